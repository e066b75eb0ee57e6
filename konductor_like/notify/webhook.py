"""Posts one notification to a webhook whose URL is in a file. The URL never leaves this module.

It follows no redirect and reads no proxy from the environment. The text of an error has a few fixed words,
because those of httpx may quote the URL.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from konductor_like import __version__
from konductor_like.model.edge_errors import Cause, EdgeError, from_exception, kind_of
from konductor_like.notify.messages import Message, cloud_event, slack_message
from konductor_like.settings import Settings

TOTAL_SECONDS = 10.0
"""Seconds for a request and its answer, however slowly its bytes come."""
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

    edge = "the receiver"


_LATER = partial(WebhookError, transient=True)
_Make = Callable[..., WebhookError]
_BY_CAUSE: Mapping[Cause, _Make] = {**dict.fromkeys(Cause, _LATER), Cause.UNTRUSTED: WebhookError}
_BY_STATUS: Mapping[int, _Make] = {**dict.fromkeys((408, 425, 429, 5), _LATER), 0: WebhookError}


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
        status, retry_after, answer = _post(url, body, self.content_type, reads_all=self.confirms)
        if 200 <= status < 300 and (not self.confirms or answer.strip() == b"ok"):
            return
        why = f"{WebhookError.edge} answered {status}"
        if 300 <= status < 400:
            why = f"{why}; the controller follows no redirect"
        elif (word := answer.strip()) in _SLACK_WORDS:
            why = f"{why}: {word.decode()}"
        elif status < 300:
            why = f"{why} without Slack's word for success, ok"
        raise kind_of(status, _BY_STATUS)(why, retry_after=retry_after)

    def _url(self) -> str:
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
                return text
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


def _post(url: str, body: bytes, content_type: str, *, reads_all: bool) -> _Answer:
    """Return status, ``Retry-After`` and the beginning of the answer. Raises WebhookError.

    The body of a success is read with ``reads_all`` only.
    """
    import httpx  # slow to import, and most installations do not notify

    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)  # below, they log the URL
    headers = {
        "Content-Type": f"{content_type}; charset=utf-8",
        "User-Agent": f"konductor-like/{__version__}",
        "Accept-Encoding": "identity",
    }
    try:
        # The packaged authorities, or those in SSL_CERT_FILE; ``trust_env`` would also read proxies.
        verify = httpx.create_ssl_context() if url.startswith("https:") else False
        with (
            _hung_up_after(TOTAL_SECONDS) as traced,
            httpx.Client(trust_env=False, verify=verify, timeout=TOTAL_SECONDS) as client,
            client.stream("POST", url, content=body, headers=headers, extensions=traced) as response,
        ):
            answer = bytearray()
            if response.status_code >= 300 or reads_all:
                for chunk in response.iter_raw(_BODY_BYTES):
                    answer += chunk
                    if len(answer) >= _BODY_BYTES:
                        break
    except TimeoutError:
        raise _LATER(f"{WebhookError.edge}: {Cause.LATE}") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise from_exception(error, WebhookError.edge, _BY_CAUSE, quotes=False) from None
    return response.status_code, response.headers.get("Retry-After"), bytes(answer)


@contextmanager
def _hung_up_after(seconds: float) -> Iterator[dict[str, Any]]:
    """Shut a request's connection down after so long, and raise TimeoutError; yield the request's extensions.

    A receiver that sends byte by byte meets every time-out of httpx.
    """
    sockets, passed = list[socket.socket](), threading.Event()

    def hang_up() -> None:
        passed.set()
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def traced(event: str, info: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            sockets[:] = [info["return_value"].get_extra_info("socket")]
            if passed.is_set():
                hang_up()

    deadline = threading.Timer(seconds, hang_up)
    deadline.daemon = True
    deadline.start()
    try:
        yield {"trace": traced}
    finally:
        deadline.cancel()
        if passed.is_set():
            raise TimeoutError
