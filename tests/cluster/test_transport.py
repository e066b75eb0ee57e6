from __future__ import annotations

import json
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from konductor_like import __version__
from konductor_like.cluster.api import auth, transport
from konductor_like.cluster.api.client import ACCESS_REVIEWS_PATH, KubeClient, node_path
from konductor_like.cluster.api.errors import (
    KubeBadAnswer,
    KubeConfigError,
    KubeError,
    KubeNotFound,
    KubeTimeout,
    KubeUnauthorized,
    KubeUnavailable,
    KubeUnreachable,
)
from konductor_like.cluster.api.transport import Connection, Transport
from konductor_like.model.time import seconds_ahead
from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.http import HTML, JSON
from konductor_like_sandbox.kubernetes import KubernetesServer, refusal
from tests.cluster.scenes import raw_node

CERTIFICATES = Path(__file__).parent.parent / "loki" / "certificates"
NODE = node_path("gpu-1")


@contextmanager
def connected(config: Path, timeout_seconds: float = 5.0) -> Iterator[KubeClient]:
    """A client that is closed after the test."""
    client = KubeClient.connect(str(config), None, timeout_seconds)
    try:
        yield client
    finally:
        client.close()


def failure(client: KubeClient, *, write: bool = False) -> KubeError:
    """Return the error of a read or a write."""
    with pytest.raises(KubeError) as caught:
        client.patch(NODE, []) if write else client.get(NODE)
    return caught.value


def test_a_request_has_our_user_agent(server: KubernetesServer, client: KubeClient) -> None:
    server.put_node(raw_node())

    client.get(NODE)

    assert server.calls()[0].user_agent == f"konductor-like/{__version__}"


def test_a_write_names_its_field_manager(server: KubernetesServer, client: KubeClient) -> None:
    server.put_node(raw_node())

    client.patch(NODE, [{"op": "add", "path": "/metadata/labels/a", "value": "b"}])

    assert server.calls("patch")[0].request.param("fieldManager") == "konductor-like"
    managers = [entry["manager"] for entry in server.node("gpu-1")["metadata"]["managedFields"]]
    assert "konductor-like" in managers


@pytest.mark.parametrize(
    ("method", "path", "write"),
    [("GET", NODE, False), ("POST", ACCESS_REVIEWS_PATH, False), ("PATCH", NODE, True)],
    ids=["read", "question", "write"],
)
def test_silence_is_a_timeout_whose_outcome_is_unknown_for_a_write(
    server: KubernetesServer, client: KubeClient, method: str, path: str, write: bool
) -> None:
    server.mishaps.add(Mishap(delay_seconds=5))

    with pytest.raises(KubeTimeout, match="no complete answer in time") as caught:
        client._transport.ask("try", method, path, timeout_seconds=0.1)

    assert caught.value.outcome_unknown is write
    server.stop()


@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
@pytest.mark.parametrize(
    "mishap",
    [Mishap(drop=Drop.RESET), Mishap(drop=Drop.SILENTLY), Mishap(drop=Drop.MIDWAY)],
    ids=["reset", "closed", "cut off"],
)
def test_a_broken_connection_is_an_error(
    server: KubernetesServer, client: KubeClient, mishap: Mishap, write: bool
) -> None:
    server.put_node(raw_node())
    server.mishaps.add(mishap)

    error = failure(client, write=write)

    assert isinstance(error, KubeUnreachable)
    assert error.outcome_unknown is write
    assert "\n" not in str(error)


def test_a_port_that_nobody_listens_on_is_an_error_and_the_outcome_is_known(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.stop()

    error = failure(client, write=True)

    assert isinstance(error, KubeUnreachable)
    assert not error.outcome_unknown
    assert f"at {server.url}: cannot connect: " in str(error)
    assert "object at 0x" not in str(error)


@pytest.mark.parametrize(
    ("mishap", "said"),
    [
        (Mishap(200, "<html>log in</html>", HTML), r"answered 200 with no JSON object \(text/html"),
        (Mishap(200, '{"kind": "No', JSON), "no JSON object"),
        (Mishap(200, "[1]", JSON), "no JSON object"),
        (Mishap(200, "\udcff".encode("utf-8", "surrogatepass").decode("latin-1"), JSON), "no JSON object"),
        (Mishap(302, "", HTML, {"Location": "http://elsewhere.invalid/"}), "HTTP status 302"),
    ],
    ids=["HTML", "truncated", "a list", "no text", "a redirect"],
)
def test_an_answer_that_no_api_server_gives_is_reported_without_its_body(
    server: KubernetesServer, client: KubeClient, mishap: Mishap, said: str
) -> None:
    server.mishaps.add(mishap, times=2)

    with pytest.raises(KubeBadAnswer, match=said):
        client.get(NODE)
    assert failure(client, write=True).outcome_unknown


def test_an_answer_that_is_too_large_is_read_no_further(
    server: KubernetesServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES_MOST", 1 << 20)
    server.mishaps.add(Mishap(200, json.dumps({"data": "x" * (1 << 20)}), JSON))

    error = failure(client)

    assert isinstance(error, KubeBadAnswer)
    assert "answered with more than 1 MiB" in str(error)
    assert isinstance(failure(client), KubeNotFound)  # over another connection


def test_nothing_is_retried_here(server: KubernetesServer, client: KubeClient) -> None:
    server.mishaps.add(refusal(503))

    assert isinstance(failure(client), KubeUnavailable)
    assert len(server.calls()) == 1


# Credentials.


def test_a_token_that_was_rotated_under_us_is_picked_up(server: KubernetesServer, tmp_path: Path) -> None:
    server.put_node(raw_node())
    old, new = server.access.add_user("kim"), server.access.add_user("kim")
    config = server.kubeconfig(tmp_path / "c", old)
    with connected(config) as client:
        client.get(NODE)
        server.access.revoke(old)
        server.kubeconfig(tmp_path / "c", new)

        assert client.get(NODE)["metadata"]["name"] == "gpu-1"


def test_the_same_wrong_token_is_not_sent_twice(server: KubernetesServer, tmp_path: Path) -> None:
    with connected(server.kubeconfig(tmp_path / "c", "wrong")) as client:
        error = failure(client)

    assert isinstance(error, KubeUnauthorized)
    assert str(error) == "cannot get nodes/gpu-1: Unauthorized"
    assert [call.status for call in server.calls()] == [401]


def test_logging_in_again_is_not_tried_at_each_request(server: KubernetesServer, tmp_path: Path) -> None:
    config = server.kubeconfig(tmp_path / "c", "wrong-1")
    with connected(config) as client:
        server.kubeconfig(config, "wrong-2")
        failure(client)
        server.kubeconfig(config, server.access.admin_token)

        assert isinstance(failure(client), KubeUnauthorized)


def test_if_the_kubeconfig_vanished_the_401_is_reported(server: KubernetesServer, tmp_path: Path) -> None:
    config = server.kubeconfig(tmp_path / "c", "wrong")
    with connected(config) as client:
        config.unlink()

        assert isinstance(failure(client), KubeUnauthorized)


class SlowLogin:
    """A clock, and credentials whose renewal takes ``takes_seconds`` by it."""

    def __init__(self, config: Path) -> None:
        self.seconds = 0.0
        self.takes_seconds = 0.0
        self._config = config

    def clock(self) -> float:
        return self.seconds

    def find(self) -> Connection:
        access = auth.load(str(self._config), None)
        access._renew = self._take_time
        self._take_time()
        return access

    def _take_time(self) -> None:
        self.seconds += self.takes_seconds


def test_a_write_whose_time_went_by_in_the_login_is_never_sent(
    server: KubernetesServer, tmp_path: Path
) -> None:
    server.put_node(raw_node())
    login = SlowLogin(server.kubeconfig(tmp_path / "c"))
    with closing(KubeClient(Transport(login.find, 5.0, login.clock))) as client:
        login.takes_seconds = 9.0
        with pytest.raises(KubeTimeout, match="deadline passed before the request") as caught:
            client.patch(NODE, [], timeout_seconds=8.0)
        assert server.calls("patch") == []
        assert not caught.value.outcome_unknown

        login.takes_seconds = 7.0
        client.patch(NODE, [], timeout_seconds=8.0)
        client.get(NODE)


def test_a_write_is_not_sent_a_second_time_when_logging_in_again_took_too_long(
    server: KubernetesServer, tmp_path: Path
) -> None:
    server.put_node(raw_node())
    old, new = server.access.add_user("kim"), server.access.add_user("kim")
    login = SlowLogin(server.kubeconfig(tmp_path / "c", old))
    with closing(KubeClient(Transport(login.find, 5.0, login.clock))) as client:
        server.access.revoke(old)
        server.kubeconfig(tmp_path / "c", new)
        login.takes_seconds = 4.0

        with pytest.raises(KubeTimeout, match="deadline passed before the request"):
            client.patch(NODE, [], timeout_seconds=8.0)

    assert [call.status for call in server.calls("patch")] == [401]


@pytest.mark.parametrize("token", ["two\nlines", "ünïcödé \u2603"])
def test_a_token_with_invalid_characters_is_refused_and_not_shown(
    server: KubernetesServer, tmp_path: Path, token: str
) -> None:
    with connected(server.kubeconfig(tmp_path / "c", token)) as client:
        error = failure(client)

    assert isinstance(error, KubeConfigError)
    assert token not in str(error)


# TLS.


@pytest.fixture
def tls_server() -> Iterator[KubernetesServer]:
    """An API server over HTTPS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    with KubernetesServer(ssl_context=context) as started:
        started.put_node(raw_node())
        yield started


def test_a_certificate_that_does_not_match_is_an_error(tls_server: KubernetesServer, tmp_path: Path) -> None:
    config = tls_server.kubeconfig(tmp_path / "c", ca_file=CERTIFICATES / "ca.pem")
    config.write_text(
        config.read_text().replace(str(CERTIFICATES / "ca.pem"), str(CERTIFICATES / "client.pem"))
    )

    with connected(config) as client:
        error = failure(client, write=True)

    assert isinstance(error, KubeUnreachable)
    assert not error.outcome_unknown
    assert "the certificate is not trusted: " in str(error)
    assert "certificate-authority" in error.hint


def test_an_unchecked_certificate_gives_no_warning(tls_server: KubernetesServer, tmp_path: Path) -> None:
    with connected(tls_server.kubeconfig(tmp_path / "c")) as client:
        assert client.get(NODE)["metadata"]["name"] == "gpu-1"


# Quiet.


def test_the_http_library_logs_nothing(
    server: KubernetesServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.mishaps.add(Mishap(drop=Drop.RESET))
    failure(client)
    server.stop()
    failure(client)

    assert [record.name for record in caplog.records if record.name.startswith("urllib3")] == []


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:{port}", "socks5://127.0.0.1:{port}"])
def test_a_proxy_that_cannot_be_used_is_an_error(
    server: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("http_proxy", proxy.format(port=nobody.getsockname()[1]))
        config = server.kubeconfig(tmp_path / "c")
        config.write_text(config.read_text().replace("127.0.0.1", "api.invalid"))

        with pytest.raises(KubeError) as caught, connected(config) as client:
            client.get(NODE)

    assert isinstance(caught.value, KubeUnreachable | KubeConfigError)


def test_the_servers_clock_is_compared_with_ours(
    server: KubernetesServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put_node(raw_node())
    client._transport.clock_ahead_seconds = 99.0
    client.get(NODE)
    assert client.clock_ahead_seconds == 0

    monkeypatch.setattr(transport, "seconds_ahead", lambda date, now: seconds_ahead(date, now + 3600))
    client.get(NODE)
    assert client.clock_ahead_seconds == pytest.approx(-3600, abs=5)
