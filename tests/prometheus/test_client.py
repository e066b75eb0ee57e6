"""The client of Prometheus: what it sends, and how it tells what went wrong."""

from __future__ import annotations

import gzip
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
import respx

from konductor_like.prometheus import client as module
from konductor_like.prometheus.client import AlertsError, PrometheusClient
from konductor_like.settings import Settings
from tests.loki.scripted_server import ScriptedServer, hang_up, respond
from tests.notify.test_webhook import taking

DATA = Path(__file__).parents[1] / "data" / "prometheus"
RECORDED = (DATA / "answer.json").read_bytes()
CERTIFICATES = Path(__file__).parents[1] / "loki" / "certificates"
ENDPOINT = "http://prometheus.test:9090/thanos"
URL = f"{ENDPOINT}/api/v1/query"


@contextmanager
def client(endpoint: str = ENDPOINT, **settings: Any) -> Iterator[PrometheusClient]:
    with closing(PrometheusClient(Settings(alerts_endpoint=endpoint, **settings))) as found:
        yield found


def test_one_question_is_one_post_with_the_tenant_and_the_token_of_the_moment(
    respx_mock: respx.MockRouter, tmp_path: Path
) -> None:
    route = respx_mock.post(URL).respond(content=RECORDED)
    token = tmp_path / "token"
    token.write_text("first\n")
    more: dict[str, Any] = {
        "alerts_tenant": "gpus",
        "alerts_matchers": 'cluster="prod"',
        "alerts_bearer_token_file": token,
    }
    with client(**more) as prometheus:
        found = prometheus.ask(["KonductorA"], ["gpu-7"])
        token.write_text("second")
        prometheus.ask(["KonductorA"], ["gpu-7"])

    assert found.watched == {"dcgm": 2}
    first, second = (call.request for call in route.calls)
    [query] = parse_qs(first.content.decode())["query"]
    assert query.startswith('ALERTS{alertstate="firing",alertname=~"KonductorA",cluster="prod"} or ')
    assert first.headers["X-Scope-OrgID"] == "gpus"
    assert (first.headers["Authorization"], second.headers["Authorization"]) == (
        "Bearer first",
        "Bearer second",
    )


def test_a_name_and_a_password_in_the_address_are_sent_and_never_told(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.post(url__regex=".*").respond(401)
    with client("http://kim:xyzzy@prometheus.test") as prometheus, pytest.raises(AlertsError) as error:
        prometheus.ask(["KonductorA"], ())

    assert route.calls.last.request.headers["Authorization"].startswith("Basic ")
    assert "xyzzy" not in str(error.value)


def test_prometheus_own_words_about_an_error_are_told(respx_mock: respx.MockRouter) -> None:
    respx_mock.post(URL).respond(400, content=(DATA / "bad_query.json").read_bytes())

    with client() as prometheus, pytest.raises(AlertsError, match=r"answered 400: .*unexpected end of input"):
        prometheus.ask(["KonductorA"], ())


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (httpx.ConnectError("[Errno 111] Connection refused"), "Prometheus: cannot connect"),
        (httpx.ConnectError("odd: http://kim:xyzzy@host"), "^Prometheus: cannot connect$"),
        (httpx.ReadTimeout("late"), "no complete answer in time"),
        (httpx.RemoteProtocolError("odd"), "dropped before a complete answer"),
    ],
)
def test_what_failed_is_told_in_a_few_words(
    error: Exception, says: str, respx_mock: respx.MockRouter
) -> None:
    respx_mock.post(URL).mock(side_effect=error)

    with client() as prometheus, pytest.raises(AlertsError, match=says):
        prometheus.ask(["KonductorA"], ())


def test_another_server_is_told(respx_mock: respx.MockRouter) -> None:
    respx_mock.post(URL).respond(content=b"<html>")

    with client() as prometheus, pytest.raises(AlertsError, match="no JSON"):
        prometheus.ask(["KonductorA"], ())


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff"], ids=str)
def test_a_token_that_cannot_be_used_is_told(content: bytes | None, tmp_path: Path) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)

    with (
        client(alerts_bearer_token_file=token) as prometheus,
        pytest.raises(AlertsError, match="KONDUCTOR_ALERTS_BEARER_TOKEN_FILE"),
    ):
        prometheus.ask(["KonductorA"], ())


@pytest.mark.parametrize("content", [None, b"no PEM"], ids=str)
def test_an_authority_that_cannot_be_used_is_told_at_the_first_question(
    content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)

    with (
        client("https://prometheus.test", alerts_ca_file=file) as prometheus,
        pytest.raises(AlertsError, match="KONDUCTOR_ALERTS_CA_FILE"),
    ):
        prometheus.ask(["KonductorA"], ())


@pytest.mark.parametrize("trusted", [True, False])
def test_the_certificate_is_checked_against_the_authority(trusted: bool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    file = CERTIFICATES / "ca.pem" if trusted else None
    server = ScriptedServer(taking([], respond(RECORDED)), context=context)
    with server, client(server.url, alerts_ca_file=file) as prometheus:
        if trusted:
            assert prometheus.ask(["KonductorA"], ()).watched
        else:
            with pytest.raises(AlertsError, match="certificate"):
                prometheus.ask(["KonductorA"], ())


def test_an_answer_that_is_too_large_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES", 2**20)
    with (
        ScriptedServer(taking([], respond(b" " * 3 * 2**20, length=2**30))) as server,
        client(server.url) as prometheus,
        pytest.raises(AlertsError, match="more than 1 MiB"),
    ):
        prometheus.ask(["KonductorA"], ())


def test_a_packed_answer_is_neither_asked_for_nor_unpacked(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.post(URL).respond(
        content=gzip.compress(gzip.compress(RECORDED)), headers={"Content-Encoding": "gzip, gzip"}
    )
    with client() as prometheus, pytest.raises(AlertsError, match="packed"):
        prometheus.ask(["KonductorA"], ())

    assert route.calls.last.request.headers["Accept-Encoding"] == "identity"


def test_trusted_authorities_that_cannot_be_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing"))
    with client("https://prometheus.test") as prometheus, pytest.raises(AlertsError, match="authorities"):
        prometheus.ask(["KonductorA"], ())


def test_an_answer_that_breaks_off_is_told() -> None:
    with (
        ScriptedServer(hang_up) as server,
        client(server.url) as prometheus,
        pytest.raises(AlertsError, match="dropped before a complete answer"),
    ):
        prometheus.ask(["KonductorA"], ())


def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOTAL_SECONDS", -1.0)
    monkeypatch.setattr(httpx, "Timeout", lambda *_, **__: None)
    with (
        ScriptedServer(taking([], respond(RECORDED))) as server,
        client(server.url) as prometheus,
        pytest.raises(AlertsError, match="did not answer in full"),
    ):
        prometheus.ask(["KonductorA"], ())
