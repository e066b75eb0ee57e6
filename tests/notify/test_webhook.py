"""A webhook posts to the URL in its file, and its errors never quote the URL, whatever the receiver does."""

from __future__ import annotations

import json
import logging
import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from konductor_like.notify import webhook as module
from konductor_like.notify.messages import trial_message
from konductor_like.notify.webhook import Webhook, WebhookError, WebhookOffError, webhooks
from konductor_like.settings import Settings
from tests.loki.scripted_server import Act, ScriptedServer, hang_up, reset, respond
from tests.policy.scenes import at

PATH = "/services/T0SECRET/B0SECRET/xyzzysecret"
MESSAGE = trial_message(at(0))
CERTIFICATES = Path(__file__).parents[1] / "loki" / "certificates"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "url"


@pytest.fixture(autouse=True)
def _nothing_logs_the_url(caplog: pytest.LogCaptureFixture) -> object:
    """Every test of this module fails if any logger, at any level, is told a part of the URL."""
    caplog.set_level(logging.DEBUG)
    yield
    assert "secret" not in caplog.text.lower()


DROPPED = "the receiver: the connection was dropped before a complete answer came"


def slack(file: Path) -> Webhook:
    [found] = webhooks(Settings(notify_slack_file=file))
    return found


def generic(file: Path) -> Webhook:
    [found] = webhooks(Settings(notify_webhook_file=file, notify_cluster="prod"))
    return found


def taking(bodies: list[bytes], act: Act) -> Act:
    """Read the request's body before the act."""

    def read(connection: socket.socket, head: bytes) -> None:
        start, _, body = head.partition(b"\r\n\r\n")
        length = int(start.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65536)
        bodies.append(body)
        act(connection, head)

    return read


def failure(webhook: Webhook, act: Act, *, context: ssl.SSLContext | None = None) -> WebhookError:
    """Return the error of a message to a receiver that acts like this; its text must not quote the URL."""
    with ScriptedServer(taking([], act), context=context) as server:
        webhook.file.write_text(f"{server.url}{PATH}\n")
        with pytest.raises(WebhookError) as caught:
            webhook.send(MESSAGE)
        assert len(server.requests) == (0 if context else 1)
    shown = [str(caught.value), repr(caught.value), str(caught.value.__cause__)]
    assert not [text for text in shown if "secret" in text.lower() or "127.0.0.1" in text]
    return caught.value


def test_a_webhook_gets_a_cloud_event_and_its_body_is_not_waited_for(file: Path) -> None:
    bodies: list[bytes] = []
    with ScriptedServer(taking(bodies, respond(b"", "202 Accepted", length=100))) as server:
        file.write_text(f"  {server.url}{PATH}?key=secret\r\n")
        generic(file).send(MESSAGE)

    head = server.requests[0].decode()
    assert head.startswith(f"POST {PATH}?key=secret HTTP/1.1\r\n")
    assert "\r\nContent-Type: application/cloudevents+json; charset=utf-8\r\n" in head
    assert json.loads(bodies[0])["source"] == "/konductor-like/prod"


def test_slack_gets_a_text_and_confirms_it(file: Path) -> None:
    bodies: list[bytes] = []
    with ScriptedServer(taking(bodies, respond(b"ok"))) as server:
        file.write_text(server.url + PATH)
        slack(file).send(MESSAGE)

    assert json.loads(bodies[0])["text"].startswith("Test message of konductor-like · ")


def test_a_rotated_url_and_one_with_a_password_are_used_at_once(file: Path) -> None:
    with ScriptedServer(taking([], respond(b"ok"))) as server:
        file.write_text(server.url + "/secret-one")
        slack(file).send(MESSAGE)
        file.write_text(server.url.replace("//", "//kim:se%20cret@") + "/secret-two")
        slack(file).send(MESSAGE)

    one, two = (request.decode() for request in server.requests)
    assert one.startswith("POST /secret-one ")
    assert two.startswith("POST /secret-two ")
    assert "Authorization: Basic a2ltOnNlIGNyZXQ=" in two
    assert "Authorization" not in one


@pytest.mark.parametrize(
    ("act", "transient", "says"),
    [
        (respond(b"rollup_error", "500 Oops"), True, "the receiver answered 500: rollup_error"),
        (respond(b"invalid_payload\n", "400 Bad"), False, "the receiver answered 400: invalid_payload"),
        (respond(b"no_service", "404 Gone"), False, "the receiver answered 404: no_service"),
        (respond(b"invalid_payload"), False, "the receiver answered 200: invalid_payload"),
        (respond(b"<html>"), False, "the receiver answered 200 without Slack's word for success, ok"),
        (respond(b"x" * 2_000_000, "400 Bad"), False, "the receiver answered 400"),
        (
            respond(b"", "302 Found", headers="Location: https://evil.example/secret\r\n"),
            False,
            "the receiver answered 302; the controller follows no redirect",
        ),
        (respond(b"o", length=2), True, DROPPED),
        (hang_up, True, DROPPED),
        (reset, True, DROPPED),
        (
            lambda connection, _: connection.sendall(b"220 mail\r\n"),
            True,
            DROPPED,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_receiver_that_refuses_fails_or_lies(file: Path, act: Act, transient: bool, says: str) -> None:
    error = failure(slack(file), act)

    assert says in str(error)
    assert len(str(error)) < 200
    assert error.transient is transient


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Again", "308 For ever", "304 Same"])
def test_a_webhook_that_redirects_has_not_taken_the_notification(file: Path, status: str) -> None:
    error = failure(generic(file), respond(b"", status, headers="Location: https://evil.example/secret\r\n"))

    assert str(error) == f"the receiver answered {status[:3]}; the controller follows no redirect"
    assert not error.transient


@pytest.mark.parametrize("text", [PATH, "XYZZYSECRET", "T0SEC...", "Authorization: Basic a2ltOnNlIGNyZXQ="])
def test_an_answer_that_is_not_slacks_is_not_shown(file: Path, text: str) -> None:
    error = failure(slack(file), respond(f"no_service {text}".encode(), "403 Forbidden"))

    assert str(error) == "the receiver answered 403"


@pytest.mark.parametrize(("asked", "waits"), [("7", 7.0), ("99999", 300.0), ("soon", None)])
def test_a_receivers_wait_is_respected_within_a_limit(file: Path, asked: str, waits: float | None) -> None:
    error = failure(slack(file), respond(b"", "429 Slow", headers=f"Retry-After: {asked}\r\n"))

    assert error.retry_after_seconds == waits


@pytest.mark.parametrize(
    "drips",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
    ],
    ids=["mute", "drips headers", "drips", "drips without a length"],
)
def test_a_receiver_that_stalls_is_given_up(
    file: Path, drips: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOTAL_SECONDS", 0.2)

    def stalls(connection: socket.socket, _head: bytes) -> None:
        connection.sendall(drips)
        connection.settimeout(0.02)
        with suppress(OSError):
            while True:
                try:
                    if not connection.recv(1):
                        return
                except TimeoutError:
                    connection.sendall(b" " * bool(drips))

    error = failure(slack(file), stalls)

    assert error.transient
    assert "no complete answer in time" in str(error)


def test_a_certificate_that_nobody_signed_is_refused(file: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")

    error = failure(slack(file), respond(b"ok"), context=context)

    assert str(error) == "the receiver: the certificate is not trusted"
    assert not error.transient


def test_an_authority_of_ones_own_is_trusted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    with ScriptedServer(taking([], respond(b"ok")), context=context) as server:
        file.write_text(server.url + PATH)
        slack(file).send(MESSAGE)

    assert len(server.requests) == 1


def test_a_proxy_of_the_environment_is_not_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with ScriptedServer(taking([], respond(b"ok"))) as server:
        file.write_text(server.url + PATH)
        slack(file).send(MESSAGE)

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"ftp://host/secret", "does not contain one URL"),
        (b"hooks.slack.com/secret", "does not contain one URL"),
        (b"https:///secret", "does not contain one URL"),
        (b"https://host:99999/secret", "does not contain one URL"),
        (b"https://[::1/secret", "does not contain one URL"),
        (b"https://host/secret\nhttps://host/secret", "does not contain one URL"),
        (b"https://host/secret one", "does not contain one URL"),
        ("https://höst/secret".encode(), "does not contain one URL"),
        (b"\xff\xfesecret", "cannot be read: it is no text"),
    ],
    ids=repr,
)
def test_a_file_without_a_usable_url_is_named_and_not_quoted(file: Path, content: bytes, says: str) -> None:
    file.write_bytes(content)

    with pytest.raises(WebhookError) as caught:
        slack(file).send(MESSAGE)

    assert str(caught.value).startswith(f"KONDUCTOR_NOTIFY_SLACK_FILE: {file} {says}")
    assert "secret" not in str(caught.value)
    assert not caught.value.transient


def test_a_file_that_cannot_be_read_is_a_failure_and_a_missing_one_switches_off(tmp_path: Path) -> None:
    with pytest.raises(WebhookError, match=r"cannot be read: Is a directory"):
        slack(tmp_path).send(MESSAGE)
    with pytest.raises(WebhookOffError, match=f"there is no file {tmp_path / 'no'}"):
        generic(tmp_path / "no").send(MESSAGE)


def test_a_name_that_does_not_resolve_and_a_closed_port(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    file.write_text(f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}")
    listener.close()
    with pytest.raises(WebhookError, match=r"^the receiver: cannot connect: Connection refused$"):
        slack(file).send(MESSAGE)

    def unknown(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, os.strerror(2))

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(WebhookError, match=r"^the receiver: the host name cannot be resolved$") as caught:
        slack(file).send(MESSAGE)
    assert caught.value.transient


def test_without_a_setting_there_is_no_webhook() -> None:
    assert webhooks(Settings()) == []
