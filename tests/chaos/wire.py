"""The edges of a process in memory: the real clients, with the stand-ins' pure cores in place of sockets.

Every request passes :meth:`Exchange.__call__`, where a process is killed or stopped and where a dependency
fails. The clients handle answers and broken connections with their own code.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
from urllib3 import exceptions as broken

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.transport import Connection, Transport
from konductor_like.loki.query.client import LokiClient, fixed_headers
from konductor_like.settings import Settings
from konductor_like_sandbox.http import Reply, Request

LOKI, KUBE = "loki", "kube"
PASS: Any = lambda call, *args: call(*args)  # noqa: E731  # in place of tenacity: the next poll asks again


class NoConnectionError(Exception):
    """The connection was refused."""


class NoAnswerError(Exception):
    """The server did not answer in time."""


class BrokenOffError(Exception):
    """The connection was lost; ``begun`` is the part of the answer that had arrived, if any."""

    def __init__(self, begun: Reply | None = None) -> None:
        super().__init__()
        self.begun = begun


class Exchange(Protocol):
    """Carries one request to a server and brings the answer."""

    def __call__(self, server: str, request: Request, timeout_seconds: float) -> Reply:
        """Return the answer. Raises one of the errors above if there is none."""


def awaited(reply: Reply, timeout_seconds: float, advance: Callable[[float], object]) -> Reply:
    """Let the answer's time pass and return it. Raises one of the errors above if none comes."""
    if reply.after_seconds:
        advance(min(reply.after_seconds, timeout_seconds))
    if reply.after_seconds > timeout_seconds:
        raise NoAnswerError
    if reply.hangs_up:
        raise BrokenOffError
    return reply


# Loki


class _Headers(dict[str, str]):
    """Headers by lower-case name."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


@dataclass(frozen=True, slots=True)
class _LokiAnswer:
    reply: Reply
    headers: _Headers
    lost: bool = False

    @property
    def status_code(self) -> int:
        return self.reply.status

    def iter_bytes(self) -> Iterator[bytes]:
        yield self.reply.body
        if self.lost:
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


class _LokiWire:
    """Stands in for ``httpx.Client`` inside a LokiClient."""

    def __init__(self, exchange: Exchange, headers: Mapping[str, str], date: Callable[[], str]) -> None:
        self._exchange = exchange
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._date = date

    def close(self) -> None:
        """No connection to close."""

    @contextmanager
    def stream(self, method: str, url: str, **parts: Any) -> Iterator[_LokiAnswer]:
        fields = parts.get("params") or parts.get("data") or {}
        params = {name: [str(value)] for name, value in dict(fields).items()}
        request = Request(method, urlsplit(url).path, params, self._headers)
        lost = False
        try:
            reply = self._exchange(LOKI, request, parts["timeout"].read)
        except NoConnectionError as error:
            raise httpx.ConnectError("connection refused") from error
        except NoAnswerError as error:
            raise httpx.ReadTimeout("timed out") from error
        except BrokenOffError as error:
            if error.begun is None:
                raise httpx.RemoteProtocolError("server disconnected") from error
            reply, lost = error.begun, True
        headers = {name.lower(): value for name, value in reply.headers.items()}
        yield _LokiAnswer(reply, _Headers({"date": self._date(), **headers}), lost)


@cache
def _loki_template(settings: Settings) -> LokiClient:
    return LokiClient(settings, PASS)


def loki_client(
    settings: Settings, exchange: Exchange, date: Callable[[], str], steady: Callable[[], float]
) -> LokiClient:
    """Return a LokiClient whose requests go to ``exchange``; ``date`` returns the servers' Date header.

    ``steady`` is its clock, in seconds.
    """
    client = copy.copy(_loki_template(settings))
    client._clock = steady
    client._http = _LokiWire(exchange, fixed_headers(settings), date)  # type: ignore[assignment]  # stands in
    return client


# The API server


class _KubeAnswer:
    """Stands in for urllib3's response."""

    def __init__(self, reply: Reply, body: bytes, date: str, lost: bool) -> None:
        self.status = reply.status
        self.headers = {"Content-Type": reply.content_type, "Date": date, **reply.headers}
        self.length_remaining = len(body)
        is_packed = "Content-Encoding" in self.headers and not lost  # read() of a lost answer raises anyway
        self._body = gzip.decompress(body) if is_packed else body
        self._lost = lost

    def read(self, size: int | None = None) -> bytes:
        if self._lost:
            raise broken.ProtocolError("Connection broken: IncompleteRead", OSError("incomplete"))
        return self._body[:size]

    def read1(self, _size: int) -> bytes:
        if self._lost and not self._body:
            raise broken.ProtocolError("Connection broken: IncompleteRead", OSError("incomplete"))
        body, self._body = self._body, b""
        return body

    def release_conn(self) -> None:
        """No connection to return."""

    drain_conn = close = shutdown = release_conn


class _KubeWire:
    """Stands in for the transport's connection."""

    host = "http://cluster.test"
    namespace = None
    in_cluster = False

    def __init__(self, exchange: Exchange, agent: str, date: Callable[[], str]) -> None:
        self._exchange = exchange
        self._agent = agent
        self._date = date

    def authorization(self) -> str:
        return "Bearer t"  # the same when loaded again, so a 401 stays one

    def close(self) -> None:
        """No connection to close."""

    def send(
        self,
        method: str,
        target: str,
        body: object,
        content_type: str | None,
        left: Callable[[], float],
        accept: str,
        further: Mapping[str, str],
    ) -> Any:
        url = urlsplit(target)
        headers = {"user-agent": self._agent, "accept": accept}
        headers |= {name.lower(): value for name, value in further.items()}
        if content_type is not None:
            headers["content-type"] = content_type
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(
            method, unquote(url.path), parse_qs(url.query, keep_blank_values=True), headers, data
        )
        lost = False
        try:
            reply = self._exchange(KUBE, request, left())
        except NoConnectionError as error:
            raise broken.NewConnectionError(None, "Connection refused") from error  # type: ignore[arg-type]  # no pool
        except NoAnswerError as error:
            raise broken.ReadTimeoutError(None, target, "Read timed out.") from error  # type: ignore[arg-type]  # no pool
        except BrokenOffError as error:
            if error.begun is None:
                raise broken.ProtocolError("Connection aborted.", ConnectionResetError()) from error
            reply, lost = error.begun, True
        return _KubeAnswer(reply, b"".join(reply.chunks) if reply.chunks else reply.body, self._date(), lost)


@cache
def _transport_template() -> Transport:
    from kubernetes.client import Configuration

    configuration: Any = Configuration(host=_KubeWire.host)
    configuration.retries = False
    configuration.api_key = {"BearerToken": "Bearer t"}
    return Transport(lambda: Connection(configuration), timeout_seconds=10.0)


def kube_client(exchange: Exchange, agent: str, date: Callable[[], str]) -> KubeClient:
    """Return a KubeClient whose requests go to ``exchange``."""
    transport = copy.copy(_transport_template())
    transport.connection = _KubeWire(exchange, agent, date)  # type: ignore[assignment]  # stands in
    return KubeClient(transport)
