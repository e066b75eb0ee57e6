"""The client against real sockets: refusals, resets, slow and truncated answers, TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from konductor_like.loki.query.client import LokiClient, retrying
from konductor_like.loki.query.errors import (
    LokiAnswerTooLarge,
    LokiBadAnswer,
    LokiDropped,
    LokiError,
    LokiMisconfigured,
    LokiRefused,
    LokiTimeout,
    LokiUnreachable,
)
from konductor_like.loki.query.response import QueryResult
from tests.loki.scripted_server import Act, ScriptedServer, hang_up, reset, respond
from tests.loki.support import NOW, QUERY, answer_bytes, kernel_labels, settings

CERTIFICATES = Path(__file__).parent / "certificates"
ANSWER = answer_bytes([(kernel_labels(), [[str(NOW), "NVRM: one"]])])


def _ask(url: str, attempts: int = 1, **values: Any) -> QueryResult:
    chosen = settings(log_endpoint=url, **{"loki_timeout_seconds": 5.0, **values})
    with closing(LokiClient(chosen, retrying(lambda _seconds: False, attempts=attempts))) as client:
        return client.query_range(QUERY, NOW, NOW + 1, 10)


def _failure(act: Act, given_up: threading.Event | None = None, **values: Any) -> LokiError:
    """Return how a query fails against that act, then set ``given_up``, for which an act may wait."""
    with ScriptedServer(act) as server:
        try:
            with pytest.raises(LokiError) as caught:
                _ask(server.url, **values)
        finally:
            if given_up is not None:
                given_up.set()
    return caught.value


def test_a_closed_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(LokiUnreachable, match=r"cannot connect: Connection refused$") as caught:
        _ask(f"http://127.0.0.1:{port}")
    assert f"http://127.0.0.1:{port}" in str(caught.value)
    assert caught.value.transient


def test_a_name_that_does_not_resolve_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    with pytest.raises(LokiUnreachable, match="the host name cannot be resolved") as caught:
        _ask("http://loki.nowhere:3100")
    assert "port-forward" in caught.value.hint


def _speak_smtp(connection: socket.socket, _head: bytes) -> None:
    connection.sendall(b"220 mail.example ESMTP\r\n")


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(reset, id="reset"),
        pytest.param(hang_up, id="closed"),
        pytest.param(_speak_smtp, id="no HTTP"),
        pytest.param(respond(ANSWER[:40], length=len(ANSWER)), id="cut midway"),
    ],
)
def test_a_connection_dropped_before_the_answer_is_transient(act: Act) -> None:
    error = _failure(act)

    assert isinstance(error, LokiDropped)
    assert error.transient
    assert "dropped before a complete answer came" in str(error)


def test_a_server_that_drips_is_given_up_in_time() -> None:
    given_up = threading.Event()

    def act(connection: socket.socket, _head: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not given_up.wait(0.02):
            connection.sendall(b" ")

    error = _failure(act, given_up=given_up, loki_timeout_seconds=0.3)

    assert isinstance(error, LokiTimeout)
    assert "still not complete in time" in str(error)


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        ("200 OK", LokiAnswerTooLarge, "answered with more than 1000000 bytes"),
        ("400 Bad Request", LokiRefused, "answered 400: parse error"),
    ],
)
def test_an_endless_answer_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, status: str, kind: type[LokiError], says: str
) -> None:
    monkeypatch.setattr("konductor_like.loki.query.client.MAX_ANSWER_BYTES", 1_000_000)

    def act(connection: socket.socket, _head: bytes) -> None:
        connection.sendall(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\nparse error ".encode())
        while True:
            connection.sendall(b"x" * 65536)

    error = _failure(act)

    assert isinstance(error, kind)
    assert says in str(error)


def test_broken_compression_is_a_bad_answer() -> None:
    error = _failure(respond(b"not gzip", headers="Content-Encoding: gzip\r\n"))

    assert isinstance(error, LokiBadAnswer)
    assert "compression is broken" in str(error)


@pytest.fixture
def secure() -> Iterator[ScriptedServer]:
    with ScriptedServer(respond(ANSWER), context=_server_context()) as server:
        yield server


def _server_context(*, asks_for_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    if asks_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CERTIFICATES / "ca.pem")
    return context


def test_an_untrusted_certificate_is_refused_and_not_asked_again(secure: ScriptedServer) -> None:
    with pytest.raises(
        LokiUnreachable, match="not trusted: unable to get local issuer certificate"
    ) as caught:
        _ask(secure.url, attempts=3)
    assert "KONDUCTOR_LOKI_CA_FILE" in caught.value.hint
    assert not caught.value.transient


def test_a_certificate_for_another_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, secure: ScriptedServer
) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *args, **more: real("127.0.0.1", *args, **more))

    with pytest.raises(LokiUnreachable, match=r"the certificate is not trusted: .*loki\.example"):
        _ask(secure.url.replace("127.0.0.1", "loki.example"), loki_ca_file=CERTIFICATES / "ca.pem")


def test_https_to_a_server_without_tls_is_explained() -> None:
    with (
        ScriptedServer(respond(ANSWER)) as server,
        pytest.raises(LokiUnreachable, match="TLS failed") as caught,
    ):
        _ask(server.url.replace("http://", "https://"), loki_insecure_skip_verify=True)
    assert "http:// in LOG_ENDPOINT" in caught.value.hint


def test_a_client_certificate_is_shown_when_asked_for() -> None:
    ours: dict[str, Any] = {
        "loki_ca_file": CERTIFICATES / "ca.pem",
        "loki_client_cert_file": CERTIFICATES / "client.pem",
        "loki_client_key_file": CERTIFICATES / "client.key",
    }
    with ScriptedServer(respond(ANSWER), context=_server_context(asks_for_certificate=True)) as server:
        assert len(_ask(server.url, **ours).entries) == 1


def test_a_missing_client_certificate_is_explained() -> None:
    with (
        ScriptedServer(respond(ANSWER), context=_server_context(asks_for_certificate=True)) as server,
        pytest.raises(LokiUnreachable) as caught,
    ):
        _ask(server.url, loki_ca_file=CERTIFICATES / "ca.pem")
    # Depending on timing the server's alert comes through or only the broken connection.
    assert "certificate required" in str(caught.value) or "dropped" in str(caught.value)


@pytest.mark.parametrize(
    ("authority", "certificate", "key", "names", "says"),
    [
        ("/nowhere/ca.pem", None, None, "KONDUCTOR_LOKI_CA_FILE /nowhere/ca.pem", "no such file"),
        (__file__, None, None, "KONDUCTOR_LOKI_CA_FILE", "cannot be used"),
        (None, "client.pem", "/nowhere/key", "KONDUCTOR_LOKI_CLIENT_KEY_FILE /nowhere/key", "no such file"),
        (None, "client.pem", "server.key", "KONDUCTOR_LOKI_CLIENT_CERT_FILE", "mismatch"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_named(
    authority: str | None, certificate: str | None, key: str | None, names: str, says: str
) -> None:
    values = {
        "loki_ca_file": authority,
        "loki_client_cert_file": certificate and CERTIFICATES / certificate,
        "loki_client_key_file": key and CERTIFICATES / key,
    }
    with pytest.raises(LokiMisconfigured) as caught:
        LokiClient(settings(log_endpoint="https://loki.test", **values))
    assert names in str(caught.value)
    assert says in str(caught.value).lower()
