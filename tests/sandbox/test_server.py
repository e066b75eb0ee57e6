"""The loopback server that both stand-ins are built on, and what may go wrong on it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.server import LoopbackServer

CERTIFICATES = Path(__file__).parents[1] / "loki" / "certificates"


def echo(request: Request) -> Reply:
    return Reply.of_json(
        {
            "method": request.method,
            "path": request.path,
            "params": dict(request.params),
            "agent": request.headers.get("user-agent"),
            "body": request.body.decode(),
        }
    )


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(echo) as running:
        yield running


@pytest.fixture
def client(server: LoopbackServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=10) as client:
        yield client


# Plain HTTP


def test_chunks_leave_as_they_come() -> None:
    go_on = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield b"first"
        go_on.wait(10)
        yield b""
        yield b"second"

    with (
        LoopbackServer(lambda _request: Reply(chunks=slowly())) as server,
        httpx.stream("GET", server.url, trust_env=False, timeout=10) as answer,
    ):
        pieces = answer.iter_raw()
        assert next(pieces) == b"first"
        go_on.set()
        assert list(pieces) == [b"second"]


# Starting and stopping


def test_stopping_ends_idle_connections_and_endless_answers() -> None:
    def endless() -> Iterator[bytes]:
        while not running.stopping.wait(0.01):
            yield b"tick"

    running = LoopbackServer(lambda _request: Reply(chunks=endless()))
    with (
        running,
        socket.create_connection(("127.0.0.1", running.port), timeout=10) as idle,
        httpx.stream("GET", running.url, trust_env=False, timeout=10) as answer,
    ):
        pieces = answer.iter_raw()
        assert next(pieces) == b"tick"
        began = time.monotonic()
        running.stop()
        assert time.monotonic() - began < 5
        with contextlib.suppress(httpx.ReadError, httpx.RemoteProtocolError):
            assert set(pieces) <= {b"tick"}
        assert idle.recv(1) == b""


# Mishaps


@pytest.mark.parametrize(
    ("drop", "error"),
    [
        (Drop.SILENTLY, httpx.RemoteProtocolError),
        (Drop.RESET, httpx.ReadError),
        (Drop.MIDWAY, httpx.RemoteProtocolError),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_connection_may_be_lost(
    server: LoopbackServer, client: httpx.Client, drop: Drop, error: type[Exception]
) -> None:
    server.mishaps.add(Mishap(drop=drop))

    with pytest.raises(error):
        client.get("/")

    assert client.get("/").status_code == 200


def test_a_write_may_succeed_although_nobody_is_told() -> None:
    written: list[str] = []

    def write(request: Request) -> Reply:
        written.append(request.path)
        return Reply(204)

    with LoopbackServer(write) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        server.mishaps.add(Mishap(drop=Drop.SILENTLY, after=True))
        with pytest.raises(httpx.RemoteProtocolError):
            client.post("/done")
        server.mishaps.add(Mishap(drop=Drop.SILENTLY))
        with pytest.raises(httpx.RemoteProtocolError):
            client.post("/not-done")

    assert written == ["/done"]
