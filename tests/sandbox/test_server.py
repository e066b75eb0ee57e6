"""The loopback server that both stand-ins are built on, and what may go wrong on it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx
import pytest

from konductor_like.sandbox.fault_injection import Drop, Mishap, Mishaps
from konductor_like.sandbox.http import HTML, BadBodyError, Reply, Request, read_body
from konductor_like.sandbox.server import LoopbackServer

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


def test_a_request_arrives_whole(client: httpx.Client) -> None:
    answer = client.post("/a%20b/c?x=1&x=2&empty=", content="body", headers={"User-Agent": "test"}).json()

    assert answer == {
        "method": "POST",
        "path": "/a b/c",
        "params": {"x": ["1", "2"], "empty": [""]},
        "agent": "test",
        "body": "body",
    }


def test_a_body_may_come_in_chunks(client: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"first "
        yield b"second"

    assert client.post("/", content=chunks()).json()["body"] == "first second"


def test_one_connection_carries_many_requests(client: httpx.Client) -> None:
    before = threading.active_count()
    for number in range(20):
        assert client.get(f"/{number}").json()["path"] == f"/{number}"

    assert threading.active_count() <= before + 1


def test_many_clients_are_served_at_once() -> None:
    both_here = threading.Barrier(2, timeout=10)

    def meet(_request: Request) -> Reply:
        both_here.wait()
        return Reply.of_text("met")

    with LoopbackServer(meet) as server:
        answers: list[str] = []

        def ask() -> None:
            with httpx.Client(trust_env=False, timeout=10) as client:
                answers.append(client.get(server.url).text)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert answers == ["met", "met"]


def test_an_answer_without_content_has_no_body() -> None:
    with LoopbackServer(lambda _request: Reply(204)) as server:
        answer = httpx.get(server.url, trust_env=False)

    assert (answer.status_code, answer.content) == (204, b"")
    assert "Content-Type" not in answer.headers


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


def test_a_body_that_ends_too_early_is_refused(server: LoopbackServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the body ended after 3 of 10 bytes" in answer


@pytest.mark.parametrize(
    "headers", [{"content-length": "many"}, {"transfer-encoding": "chunked"}], ids=["length", "chunked"]
)
def test_a_length_that_is_no_number_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadBodyError):
        read_body(BytesIO(b"zz\r\n"), headers)


def test_the_journal_tells_what_was_asked(server: LoopbackServer, client: httpx.Client) -> None:
    client.get("/one")
    client.get("/two")

    assert [(one.request.path, one.status) for one in server.journal] == [("/one", 200), ("/two", 200)]
    server.clear_journal()
    assert server.journal == []


def test_it_speaks_https_with_a_certificate() -> None:
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    of_client = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))

    with LoopbackServer(echo, ssl_context=of_server) as server:
        assert server.url.startswith("https://")
        assert httpx.get(f"{server.url}/a", trust_env=False, verify=of_client).json()["path"] == "/a"
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url, trust_env=False, verify=ssl.create_default_context())


# Starting and stopping


def test_it_comes_back_on_the_same_port() -> None:
    server = LoopbackServer(echo)
    server.stop()  # harmless before the start
    with server:
        url = server.url
        assert httpx.get(url, trust_env=False).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    with server:
        assert server.url == url
        assert httpx.get(url, trust_env=False).status_code == 200


def test_a_port_that_is_taken_is_an_error(server: LoopbackServer) -> None:
    with pytest.raises(OSError, match="in use"):
        LoopbackServer(echo, server.port).start()


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


def test_a_request_may_be_refused(server: LoopbackServer, client: httpx.Client) -> None:
    server.mishaps.add(Mishap(status=429, body="slow down\n", headers={"Retry-After": "3"}), times=2)

    first, second, third = (client.get("/") for _ in range(3))

    assert (first.status_code, first.text, first.headers["Retry-After"]) == (429, "slow down\n", "3")
    assert (second.status_code, third.status_code) == (429, 200)
    assert [one.status for one in server.journal] == [429, 429, 200]


def test_a_page_or_half_of_the_json_may_come(server: LoopbackServer, client: httpx.Client) -> None:
    server.mishaps.add(Mishap(status=200, body="<html></html>", content_type=HTML))
    server.mishaps.add(Mishap(cut_body_to=5))

    page, cut = client.get("/"), client.get("/")

    assert page.headers["Content-Type"] == HTML
    assert (cut.status_code, cut.content) == (200, b'{"met')


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


def test_an_answer_may_be_slow(server: LoopbackServer, client: httpx.Client) -> None:
    server.mishaps.add(Mishap(delay_seconds=30))

    with pytest.raises(httpx.ReadTimeout):
        client.get("/", timeout=0.1)


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


def test_a_mishap_befalls_the_requests_it_is_meant_for() -> None:
    mishaps = Mishaps()
    unlucky, later = Mishap(status=500), Mishap(status=503)
    mishaps.add(unlucky, times=None, when=lambda request: request.path == "/unlucky")
    mishaps.add(later)

    assert mishaps.take(Request("GET", "/other")) is later
    assert mishaps.take(Request("GET", "/other")) is None
    assert [mishaps.take(Request("GET", "/unlucky")) for _ in range(3)] == [unlucky] * 3
    assert mishaps.pending == 1
    mishaps.clear()
    assert mishaps.take(Request("GET", "/unlucky")) is None
