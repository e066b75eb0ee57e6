"""The tail reports that lines have arrived, whatever happens to its connections."""

from __future__ import annotations

import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from konductor_like.backoff import Backoff
from konductor_like.loki import tail as tails
from konductor_like.loki.query.errors import (
    LokiBadAnswer,
    LokiError,
    LokiRefused,
    LokiUnauthorized,
    LokiUnavailable,
)
from konductor_like.loki.tail import Tail, _proxy, oldest_in, wait_seconds
from konductor_like_sandbox.loki import LokiServer
from konductor_like_sandbox.websocket import accept_key
from tests.loki.scripted_server import ScriptedServer, respond
from tests.loki.support import QUERY, SECOND, kernel_labels, settings

PATIENCE_SECONDS = 20.0
NUDGE = "nudge"
CONNECTED = "connected"
CERTIFICATES = Path(__file__).parent / "certificates"
THEN_NS = time.time_ns() - 60 * SECOND
server_may_go = threading.Event()


class Notes:
    """The reports of a tail, in order."""

    def __init__(self) -> None:
        self._events: queue.Queue[object] = queue.Queue()
        self.failures = 0

    def nudged(self, oldest_ns: int | None) -> None:
        self._events.put((NUDGE, oldest_ns))

    def connected(self) -> None:
        self._events.put(CONNECTED)

    def disconnected(self, error: LokiError | None, failures: int) -> None:
        self.failures = failures
        self._events.put(error)

    def next(self) -> object:
        return self._events.get(timeout=PATIENCE_SECONDS)

    def until(self, wanted: Callable[[object], bool]) -> object:
        while not wanted(event := self.next()):
            pass
        return event

    def nudge_of(self, timestamp_ns: int) -> None:
        self.until(lambda event: event == (NUDGE, timestamp_ns))

    def failure(self) -> LokiError:
        event = self.until(lambda event: isinstance(event, LokiError))
        assert isinstance(event, LokiError)
        return event


@contextmanager
def following(endpoint: str, **values: Any) -> Iterator[tuple[Tail, Notes]]:
    notes = Notes()
    tail = Tail(settings(log_endpoint=endpoint, **values), QUERY, time.time_ns, notes)
    tail.start()
    try:
        yield tail, notes
    finally:
        tail.close(PATIENCE_SECONDS)
        assert not tail._thread.is_alive()


@contextmanager
def websocket_server(
    act: Callable[[ServerConnection], None], context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Play ``act`` with every connection; yield the URL."""

    def handle(connection: ServerConnection) -> None:
        try:
            act(connection)
        except ConnectionClosed:
            return  # the client has left, as some tests want

    with serve(handle, "127.0.0.1", 0, ssl=context) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{'https' if context else 'http'}://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "BACKOFF", Backoff(0.01, 0.05))


@pytest.fixture
def loki() -> Iterator[LokiServer]:
    with LokiServer() as server:
        yield server


def push(loki: LokiServer, timestamp_ns: int, text: str = "NVRM: Xid") -> None:
    loki.push(kernel_labels(), [(timestamp_ns, text)])


def listened(loki: LokiServer, notes: Notes) -> None:
    """Wait until the server listens: it upgrades first, and only the history has the lines between."""
    now_ns = time.time_ns()
    push(loki, now_ns, "NVRM: first")
    notes.nudge_of(now_ns)


def lines_of(*stamps: int) -> dict[str, Any]:
    return {"stream": {"a": "b"}, "values": [[f"17952400000000000{stamp:02d}", "x"] for stamp in stamps]}


LOOKS_LIKE_ONE = {"stream": {}, "values": [["1795240000000000005", '["1000000000000000001","x"]']]}
DROPPED = {"timestamp": "1795240000000000003", "labels": {}}


@pytest.mark.parametrize(
    ("message", "oldest"),
    [
        ({"streams": [lines_of(5)]}, 1_795_240_000_000_000_005),
        ({"streams": [lines_of(9, 7), lines_of(8)]}, 1_795_240_000_000_000_007),
        ({"streams": None, "dropped_entries": [DROPPED]}, 1_795_240_000_000_000_003),
        ({"streams": [LOOKS_LIKE_ONE]}, 1_795_240_000_000_000_005),
        ({"streams": None}, None),
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_oldest_time_in_a_message_is_found(
    message: dict[str, Any], oldest: int | None, separators: tuple[str, str]
) -> None:
    assert oldest_in(json.dumps(message, separators=separators).encode()) == oldest


def test_a_line_that_arrives_nudges_with_its_time(loki: LokiServer) -> None:
    with following(loki.url) as (_, notes):
        assert notes.next() == CONNECTED
        listened(loki, notes)
        push(loki, THEN_NS, "usb 1-1: new device")
        push(loki, THEN_NS + 1)
        notes.nudge_of(THEN_NS + 1)


def test_it_sends_the_query_and_headers_of_the_polls() -> None:
    with (
        LokiServer(auth_enabled=True, base_path="/behind/a/gateway") as gateway,
        following(gateway.url, loki_tenant="team-a", loki_bearer_token="s3cret") as (_, notes),
    ):
        assert notes.next() == CONNECTED
        [request] = gateway.requests("/loki/api/v1/tail")

    assert request.param("query") == QUERY
    assert request.headers["x-scope-orgid"] == "team-a"
    assert request.headers["authorization"] == "Bearer s3cret"
    assert request.headers["user-agent"].startswith("konductor-like/")
    age_ns = time.time_ns() - int(request.param("start"))
    assert 10 * SECOND <= age_ns < 60 * SECOND


def test_it_comes_back_when_loki_ends_it_all_the_same(loki: LokiServer) -> None:
    with following(loki.url) as (_, notes):
        assert [notes.next(), notes.next()] == [CONNECTED, (NUDGE, None)]
        listened(loki, notes)
        loki.close_tails()
        notes.until(lambda event: event == (NUDGE, None))
        assert str(notes.next()) == "Loki ended its tail: reached tail max duration limit"
        assert notes.next() == CONNECTED


def test_a_message_that_is_garbage_nudges_and_harms_nothing() -> None:
    line = '{"streams":[{"stream":{},"values":[["1795240000000000000","x"]]}]}'

    def act(connection: ServerConnection) -> None:
        for message in ("", "{", b"\xff\x00", "[" * 100_000, line):
            connection.send(message)
        connection.recv()

    with websocket_server(act) as url, following(url) as (_, notes):
        events = [notes.next() for _ in range(7)]

    assert events == [CONNECTED, *[(NUDGE, None)] * 5, (NUDGE, 1_795_240_000_000_000_000)]


def test_a_message_that_is_too_large_nudges_and_ends_the_connection() -> None:
    def act(connection: ServerConnection) -> None:
        connection.send("x" * (8 * 2**20 + 1))
        connection.recv()

    with websocket_server(act) as url, following(url) as (_, notes):
        assert [notes.next(), notes.next(), notes.next()] == [CONNECTED, (NUDGE, None), (NUDGE, None)]
        assert isinstance(notes.next(), LokiUnavailable)
        assert notes.next() == CONNECTED


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request", LokiRefused),
        ("403 Forbidden", LokiUnauthorized),
        ("503 Service Unavailable", LokiUnavailable),
        ("200 OK", LokiBadAnswer),
    ],
)
def test_a_refusal_is_reported_with_its_status(status: str, kind: type[LokiError]) -> None:
    with ScriptedServer(respond(b"so it is", status)) as server, following(server.url) as (_, notes):
        error = notes.failure()
        assert type(error) is kind
        assert f"answered {status[:3]}: so it is" in str(error)
        # It tries again, for refusals may pass.
        assert type(notes.failure()) is kind


def test_a_redirect_is_not_followed(loki: LokiServer) -> None:
    away = respond(b"", "302 Found", headers=f"Location: {loki.url}/loki/api/v1/tail?query=x\r\n")
    with ScriptedServer(away) as server, following(server.url, loki_tenant="team-a") as (_, notes):
        assert "redirects (302)" in str(notes.failure())
    assert loki.journal == []


def test_a_token_that_cannot_be_used_is_reported_and_tried_again(loki: LokiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    with following(loki.url, loki_bearer_token_file=token) as (_, notes):
        assert "KONDUCTOR_LOKI_BEARER_TOKEN_FILE" in str(notes.failure())
        token.write_text("fine")
        notes.until(lambda event: event == CONNECTED)


def test_it_speaks_tls_with_what_the_polls_trust() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")

    def act(connection: ServerConnection) -> None:
        connection.recv()

    with websocket_server(act, context) as url:
        with following(url, loki_ca_file=CERTIFICATES / "ca.pem") as (_, notes):
            assert notes.next() == CONNECTED
        with following(url) as (_, notes):
            assert "the certificate is not trusted" in str(notes.next())


def deaf(connection: socket.socket, head: bytes) -> None:
    """Upgrade, then neither read nor send anything."""
    key = next(line[19:].decode() for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key: "))
    connection.sendall(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode()
    )
    server_may_go.wait(PATIENCE_SECONDS)


def test_closing_ends_it_at_once_even_where_the_server_is_deaf() -> None:
    server_may_go.clear()
    before = set(threading.enumerate())
    with ScriptedServer(deaf) as server, following(server.url) as (tail, notes):
        during = set(threading.enumerate())
        assert notes.next() == CONNECTED
        began = time.monotonic()
        tail.close(PATIENCE_SECONDS)
        took_seconds = time.monotonic() - began
        server_may_go.set()
    assert took_seconds < 5
    assert during - before
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(PATIENCE_SECONDS)
    assert not [thread for thread in left if thread.is_alive()]


def test_a_dead_connection_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "_PING_SECONDS", 0.05)
    server_may_go.clear()
    with ScriptedServer(deaf) as server, following(server.url) as (_, notes):
        assert notes.next() == CONNECTED
        assert "the connection broke" in str(notes.failure())
        server_may_go.set()


def test_waits_grow_and_a_definite_refusal_waits_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    assert 0.5 <= wait_seconds(LokiUnavailable("starting"), 1) <= 1
    assert 4 <= wait_seconds(LokiUnavailable("starting"), 4) <= 8
    assert 90 <= wait_seconds(LokiUnavailable("starting"), 5000) <= 180
    assert 90 <= wait_seconds(LokiRefused("parse error"), 1) <= 180


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTP_PROXY": "proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128"}, None),
        ({"ALL_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": ".svc.cluster.local"}, None),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, None),
    ],
)
def test_it_uses_the_proxy_of_the_polls(
    environment: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert _proxy(httpx.URL("http://loki.loki.svc.cluster.local:3100")) == proxy
