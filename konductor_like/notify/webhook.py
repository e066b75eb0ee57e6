"""Posts one notification to a webhook whose URL is in a file. The URL never leaves this module.

``http.client`` posts: it follows no redirect, reads no proxy from the environment, and logs nothing. The text
of an error has a few fixed words, because those of Python may quote the URL.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from konductor_like import __version__
from konductor_like.model.edge_errors import EdgeError
from konductor_like.model.time import retry_after_seconds
from konductor_like.notify.messages import Message, cloud_event, slack_message
from konductor_like.settings import Settings

TOTAL_SECONDS = 10.0
"""Seconds for a connection, and again for the request and its answer, however slowly its bytes come."""
_BODY_BYTES = 4096
"""Bytes of an answer that are read."""
_SLACK_WORDS = frozenset(
    b"action_prohibited channel_is_archived channel_not_found invalid_payload invalid_token no_active_hooks "
    b"no_service no_team no_text rate_limited rollup_error team_disabled user_not_found".split()
)
"""Slack's answers to a message that it refuses. No other answer is shown: it may quote the URL."""
_Answer = tuple[int, str | None, bytes]


class WebhookError(EdgeError):
    """A message was not taken; the text says why, without the URL."""


class WebhookOffError(Exception):
    """The file with the URL does not exist, so this webhook is not in use (yet)."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """One receiver. Threads may share it."""

    name: str
    """``slack`` or ``webhook``, in metrics, logs and the names of settings."""
    file: Path
    content_type: str
    render: Callable[[Message, str, datetime], dict[str, Any]]
    cluster: str
    confirms: bool = False
    """Whether only the body ``ok`` is a success, as with Slack: it also answers 200 to what it refuses."""

    @property
    def setting(self) -> str:
        """The environment variable that names the file."""
        return f"KONDUCTOR_NOTIFY_{self.name.upper()}_FILE"

    def send(self, message: Message) -> None:
        """Post one message. Raises WebhookError or WebhookOffError.

        The file is read every time, so a rotated URL needs no restart.
        """
        url = self._url()
        body = json.dumps(self.render(message, self.cluster, datetime.now(UTC))).encode()
        try:
            status, retry_after, answer = _post(url, body, self.content_type, reads_all=self.confirms)
        except (OSError, HTTPException, ValueError) as error:
            raise WebhookError(_why(error), transient=not isinstance(error, ssl.CertificateError)) from None
        if 200 <= status < 300 and (not self.confirms or answer.strip() == b"ok"):
            return
        why = f"the receiver answered {status}"
        if 300 <= status < 400:
            why = f"{why}; the controller follows no redirect"
        elif (word := answer.strip()) in _SLACK_WORDS:
            why = f"{why}: {word.decode()}"
        elif status < 300:
            why = f"{why} without Slack's word for success, ok"
        transient = status in (408, 425, 429) or status >= 500
        raise WebhookError(why, transient=transient, retry_after_seconds=retry_after_seconds(retry_after))

    def _url(self) -> SplitResult:
        """Return the URL in the file. Raises WebhookError, WebhookOffError."""
        try:
            text = self.file.read_text("utf-8").strip()
        except FileNotFoundError:
            raise WebhookOffError(f"{self.setting}: there is no file {self.file}") from None
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise WebhookError(f"{self.setting}: {self.file} cannot be read: {why}") from None
        with suppress(ValueError):  # a port that is no number
            url = urlsplit(text)
            well = text.isascii() and text.isprintable() and " " not in text
            if well and url.scheme in ("http", "https") and url.hostname and url.port != 0:
                return url
        problem = "does not contain one URL with http:// or https://" if text else "is empty"
        raise WebhookError(f"{self.setting}: {self.file} {problem}")


def webhooks(settings: Settings) -> list[Webhook]:
    """Return the receivers that the settings name."""
    cluster, found = settings.notify_cluster, []
    if file := settings.notify_webhook_file:
        found.append(Webhook("webhook", file, "application/cloudevents+json", cloud_event, cluster))
    if file := settings.notify_slack_file:
        found.append(Webhook("slack", file, "application/json", slack_message, cluster, confirms=True))
    return found


def _post(url: SplitResult, body: bytes, content_type: str, *, reads_all: bool) -> _Answer:
    """Return status, ``Retry-After`` and the beginning of the answer.

    Raises OSError, HTTPException or ValueError. The body of a success is read with ``reads_all`` only.
    """
    headers = {
        "Content-Type": f"{content_type}; charset=utf-8",
        "User-Agent": f"konductor-like/{__version__}",
    }
    if url.username is not None:
        credentials = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
    connection = HTTPConnection(url.hostname or "", url.port, timeout=TOTAL_SECONDS)
    if url.scheme == "https":
        import httpx  # slow to import, and most installations do not notify

        trusted = httpx.create_ssl_context()  # the packaged authorities, or those in SSL_CERT_FILE
        connection = HTTPSConnection(url.hostname or "", url.port, timeout=TOTAL_SECONDS, context=trusted)
    with closing(connection):
        connection.connect()
        # A receiver that sends byte by byte meets every time-out of the socket.
        passed = threading.Event()
        deadline = threading.Timer(TOTAL_SECONDS, _hang_up, [connection.sock, passed])
        deadline.daemon = True
        deadline.start()
        try:
            target = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request("POST", target, body, headers)
            with connection.getresponse() as response:
                answer = b"" if response.status < 300 and not reads_all else _beginning(response)
        finally:
            deadline.cancel()
            if passed.is_set():
                raise TimeoutError
    return response.status, response.headers.get("Retry-After"), answer


def _hang_up(connected: socket.socket, passed: threading.Event) -> None:
    passed.set()
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _beginning(response: HTTPResponse) -> bytes:
    answer = response.read(_BODY_BYTES)
    if response.length and len(answer) < _BODY_BYTES:
        raise ConnectionResetError
    return answer


_WHY: tuple[tuple[type[Exception], str], ...] = (
    (ssl.SSLError, "the receiver's TLS certificate or protocol was not accepted"),
    (socket.gaierror, "the host name of the URL cannot be resolved"),
    (TimeoutError, f"the receiver did not answer in full within {TOTAL_SECONDS:.0f} s"),
    (ConnectionRefusedError, "the receiver refused the connection"),
    (ConnectionError, "the receiver closed the connection before its answer was complete"),
)


def _why(error: Exception) -> str:
    """Return a few fixed words about an error, without its own text."""
    return next((why for kind, why in _WHY if isinstance(error, kind)), f"it failed ({type(error).__name__})")
