"""The Loki that the contract suite tests: the stand-in, or the one at ``KONDUCTOR_TEST_LOKI_URL``.

A real one should be a single binary with its defaults and ``auth_enabled: false``. All written lines have a
random namespace, so that a used Loki is as good as a new one. No line is removed again.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import httpx

from konductor_like_sandbox.loki import LokiLimits, LokiServer, otlp_body, otlp_record, shipped
from konductor_like_sandbox.websocket import Opcode, accept_key, read_frame, write_frame

LOKI_VARIABLE = "KONDUCTOR_TEST_LOKI_URL"
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
TIMEOUT_SECONDS = 20.0
NO_CACHE = {"Cache-Control": "no-cache"}

PLAIN = "text/plain; charset=utf-8"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python3, GPU has fallen off the bus."

Line = tuple[int, str]


@dataclass(frozen=True)
class Answer:
    """One answer of Loki."""

    status: int
    content_type: str
    text: str

    @property
    def data(self) -> Any:
        """Return the ``data`` of a JSON answer."""
        assert self.status == 200, f"{self.status}: {self.text[:300]}"
        return json.loads(self.text)["data"]

    @property
    def streams(self) -> list[dict[str, str]]:
        """The label sets of the answer."""
        return [stream["stream"] for stream in self.data["result"]]

    @property
    def lines(self) -> list[Line]:
        """(ns, text) of all streams, by time."""
        values = (value for stream in self.data["result"] for value in stream["values"])
        return sorted((int(value[0]), value[1]) for value in values)

    @property
    def texts(self) -> list[str]:
        """The texts of all lines, by time."""
        return [text for _at, text in self.lines]

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of the statistics."""
        summary: dict[str, Any] = self.data["stats"]["summary"]
        return summary

    @property
    def refusal(self) -> tuple[int, str, str]:
        """Status, media type and text of an error."""
        return self.status, self.content_type, self.text


@dataclass
class Target:
    """A Loki, and a name for this run's lines."""

    url: str
    server: LokiServer | None = None
    """The stand-in; None for a real Loki."""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = TIMEOUT_SECONDS
    prefix: str = field(default_factory=lambda: f"kl-contract-{secrets.token_hex(4)}")
    _count: int = 0

    @property
    def is_real(self) -> bool:
        """Whether this is a real Loki."""
        return self.server is None

    def namespace(self) -> str:
        """Return a namespace without lines."""
        self._count += 1
        return f"{self.prefix}-{self._count:03}"

    def send(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        content: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request; return its answer, with any status."""
        with httpx.Client(trust_env=False, timeout=self.timeout_seconds) as client:
            response = client.request(
                method,
                f"{self.url}{path}",
                params=params,
                content=content,
                headers={**self.headers, **(headers or {})},
            )
        return Answer(response.status_code, response.headers.get("Content-Type", ""), response.text)

    def get(self, path: str, headers: Mapping[str, str] | None = None, **params: Any) -> Answer:
        """Send a GET."""
        return self.send("GET", path, params, headers=headers)

    def query_range(
        self,
        query: str,
        start: int | str,
        end: int | str,
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> Answer:
        """Send a ``query_range``, by default without the cache and forward."""
        asked = {"query": query, "start": start, "end": end, "direction": "forward", **params}
        return self.get("/loki/api/v1/query_range", NO_CACHE if headers is None else headers, **asked)

    def query(self, query: str, **params: Any) -> Answer:
        """Send an instant ``query``."""
        return self.get("/loki/api/v1/query", NO_CACHE, query=query, **params)

    def push(self, *streams: tuple[Mapping[str, str], Iterable[list[Any]]], **headers: str) -> Answer:
        """Push in Loki's own format: label sets with their values."""
        body = {"streams": [{"stream": labels, "values": list(values)} for labels, values in streams]}
        return self.post_json("/loki/api/v1/push", body, headers)

    def push_otlp(self, resource: Mapping[str, str], records: Iterable[Mapping[str, Any]]) -> Answer:
        """Push an OTLP export: one resource and its records."""
        return self.post_json("/otlp/v1/logs", otlp_body(resource, records))

    def ship(self, node: str, lines: Iterable[Line], namespace: str) -> None:
        """Push lines as our collector sends them, 1,000 at once."""
        pushed = iter(lines)
        while batch := list(islice(pushed, 1000)):
            self._export(shipped(node, batch, namespace=namespace))

    def _export(self, body: object) -> None:
        """Push an export that must arrive; retry if it came too fast, as the collector does."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (answer := self.post_json("/otlp/v1/logs", body)).status == 429:
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
        assert answer.status == 204, answer

    def post_json(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a POST with JSON."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        return self.send("POST", path, content=json.dumps(body), headers=sent)

    def write(self, resource: Mapping[str, str], *lines: Line, observed: bool = True) -> None:
        """Push lines that must arrive, as the collector sends them."""
        records = [otlp_record(text, at, at + 1_000_000 if observed else None) for at, text in lines]
        self._export(otlp_body(resource, records))

    @contextmanager
    def tail(self, query: str, start_ns: int) -> Iterator[Tail]:
        """Open a tail."""
        address = urlsplit(self.url)
        with socket.create_connection((address.hostname, address.port or 80), TIMEOUT_SECONDS) as connection:
            path = f"{address.path}/loki/api/v1/tail?{urlencode({'query': query, 'start': start_ns})}"
            with Tail(connection, path) as tail:
                yield tail


class Tail:
    """The client's end of one open tail."""

    def __init__(self, connection: socket.socket, path: str) -> None:
        self._writer = connection.makefile("wb")
        self._reader = connection.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = (
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n"
        )
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: loki\r\n{upgrade}\r\n".encode())
        self._writer.flush()
        self.status = int(self._reader.readline().split()[1])
        headers = dict(line.decode().strip().split(": ", 1) for line in iter(self._reader.readline, b"\r\n"))
        self.accepted = headers.get("Sec-WebSocket-Accept") == accept_key(key)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield Loki's messages until it closes. Raises ``TimeoutError`` after a long silence."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (frame := read_frame(self._reader)) and frame.opcode != Opcode.CLOSE:
            if frame.opcode == Opcode.TEXT:
                yield json.loads(frame.payload)
            if time.monotonic() > deadline:
                raise TimeoutError("only pings came")

    def ping(self, payload: bytes) -> bytes:
        """Send a ping; return the payload of the answer."""
        write_frame(self._writer, Opcode.PING, payload, masked=True)
        while (frame := read_frame(self._reader)) and frame.opcode != Opcode.PONG:
            pass
        return frame.payload if frame else b""

    def lines(self, count: int) -> list[str]:
        """Return the next ``count`` texts, in the order of their arrival."""
        texts: list[str] = []
        for message in self.messages():
            texts += [value[1] for stream in message["streams"] for value in stream["values"]]
            if len(texts) >= count:
                break
        return texts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        with self._reader, self._writer:
            write_frame(self._writer, Opcode.CLOSE, masked=True)


def of(namespace: str, rest: str = "") -> str:
    """Return a query for the lines of one namespace."""
    return f'{{k8s_namespace_name="{namespace}"}}{rest}'


def a_minute_ago_ns() -> int:
    """Return a whole second about a minute ago."""
    return (time.time_ns() // SECOND_NS - 60) * SECOND_NS


def around(at_ns: int) -> tuple[int, int]:
    """Return a window of a minute before and a minute after."""
    return at_ns - MINUTE_NS, at_ns + MINUTE_NS


def kernel_resource(namespace: str, node: str, **more: str) -> dict[str, str]:
    """Return the collector's attributes of a line of the dmesg DaemonSet on this node."""
    return {
        "k8s.namespace.name": namespace,
        "k8s.pod.name": f"dmesg-{node}",
        "k8s.container.name": "dmesg",
        "k8s.node.name": node,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


@contextmanager
def open_target(limits: LokiLimits | None = None) -> Iterator[Target]:
    """Yield the Loki to test; the stand-in has its default limits, or these."""
    url = os.environ.get(LOKI_VARIABLE)
    if url:
        yield Target(url.rstrip("/"))
        return
    with LokiServer(limits=limits or LokiLimits()) as server:
        yield Target(server.url, server)
