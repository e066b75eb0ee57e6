"""Following the log as it arrives: a nudge to poll now, and never the source of truth (rule 13).

Loki drops lines that a slow client does not take, ends every tail after an hour
(``querier.tail-max-duration``), and reports neither reliably. So the tail reads only the oldest time from a
message, and a nudge only means "poll now".
"""

from __future__ import annotations

import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import urlencode
from urllib.request import getproxies, proxy_bypass

import httpx
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.http11 import Response
from websockets.sync.client import ClientConnection, connect

from konductor_like.backoff import Backoff
from konductor_like.loki.query.client import CONNECT_SECONDS, authorization, fixed_headers, tls_context
from konductor_like.loki.query.errors import (
    LokiBadAnswer,
    LokiError,
    LokiUnavailable,
    from_exception,
    from_status,
    without_credentials,
)
from konductor_like.model.text import excerpt
from konductor_like.model.time import SECOND_NS
from konductor_like.settings import Settings

LOOK_BACK_NS = 10 * SECOND_NS
"""Nanoseconds that a tail starts in the past: Loki answers before it listens, but sends this span first."""
BACKOFF = Backoff(first_seconds=1.0, most_seconds=180.0)
"""The waits before another connection."""
_MANY = 1000
"""Failures after which the wait is the longest one."""
STEADY_SECONDS = 30.0
"""Seconds after which a connection counts as good: after it the waits begin with the first one again."""
_MOST_BYTES = 8 * 2**20
"""Bytes above which a message breaks the connection; a hundred kernel lines with labels have a tenth of
it."""
_PING_SECONDS = 20.0
"""Seconds between two pings, and seconds that the other side has to answer one."""
_FAREWELL_SECONDS = 0.5
_OF_LINE = re.compile(rb'\["(\d{19})"')
_OF_DROPPED = re.compile(rb'"timestamp":\s*"(\d{19})"')
"""The patterns of times in a message; inside a JSON string each quote has a backslash, so no line fits
these."""

_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False  # errors are raised here; the library's log would report them twice


class Watcher(Protocol):
    """Receives what the tail reports; called from the tail's own thread."""

    def nudged(self, oldest_ns: int | None) -> None:
        """Lines have arrived, the oldest with this Loki timestamp; None where the time is not known."""

    def connected(self) -> None:
        """From now on arriving lines are reported."""

    def disconnected(self, error: LokiError | None, failures: int) -> None:
        """Arriving lines are no longer reported, or still not, after ``failures`` failures in a row.

        ``error`` is None where the tail was closed.
        """


class Tail:
    """Keeps a connection to Loki's tail open until closed, in a thread of its own."""

    def __init__(self, settings: Settings, query: str, now_ns: Callable[[], int], watcher: Watcher) -> None:
        """``query`` is the query of the polls; ``now_ns`` is the time by which their windows are placed."""
        self._settings = settings
        self._query = query
        self._now_ns = now_ns
        self._watcher = watcher
        self._connection: ClientConnection | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout_seconds: float) -> None:
        """Close the connection and end the thread. A connection in the making ends by its own time-out."""
        self._closed.set()
        self._disconnect()
        self._thread.join(timeout_seconds)

    def _disconnect(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.close()

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            began = time.monotonic()
            error = self._follow()
            if error is None or time.monotonic() - began >= STEADY_SECONDS:
                failures = 0
            if error is not None and not self._closed.is_set():
                failures += 1
            self._watcher.disconnected(error, failures)
            if error is not None:
                self._closed.wait(wait_seconds(error, failures))

    def _follow(self) -> LokiError | None:
        """Follow one connection to its end; return why it ended, or None where we ended it."""
        try:
            with open_tail(self._settings, self._query, self._now_ns() - LOOK_BACK_NS) as connection:
                self._connection = connection
                self._watcher.connected()
                # Nobody was notified of the lines since the last connection.
                self._watcher.nudged(None)
                # The tail may have been closed before there was a connection to close.
                while not self._closed.is_set():
                    self._watcher.nudged(oldest_in(connection.recv(decode=False)))
        except ConnectionClosed as closed:
            if self._closed.is_set():
                return None
            # A message that is too large breaks the connection too, and has lines like any other.
            self._watcher.nudged(None)
            reason = excerpt(closed.rcvd.reason) if closed.rcvd else ""
            return LokiUnavailable(f"Loki ended its tail: {reason or 'the connection broke'}")
        except LokiError as error:
            return error
        except Exception as error:  # noqa: BLE001  # must not end unseen (rule 27); the watcher reports it
            return LokiBadAnswer(f"Following Loki's tail failed: {error!r}")
        finally:
            self._connection = None
        return None


def wait_seconds(error: LokiError, failures: int) -> float:
    """Return the wait after this number of failures in a row, the longest one after a definite refusal."""
    return BACKOFF.seconds(failures if error.transient else _MANY)


def oldest_in(message: bytes) -> int | None:
    """Return the oldest time in one message of Loki's tail, in ns since the epoch; None where it has none."""
    # All have nineteen digits, so the least text is the least number.
    oldest = min(_OF_LINE.findall(message) + _OF_DROPPED.findall(message), default=None)
    return None if oldest is None else int(oldest)


@contextmanager
def open_tail(settings: Settings, query: str, start_ns: int) -> Iterator[ClientConnection]:
    """Open a connection on which Loki sends the lines of ``query``, from ``start_ns`` on, as they arrive.

    It uses the proxies that httpx takes from the environment. Raises a LokiError when it cannot connect.
    """
    endpoint = httpx.URL(settings.log_endpoint)
    base = without_credentials(endpoint).rstrip("/")
    place = f"Loki at {base}"
    tls = tls_context(settings)
    fields = {"query": query, "start": f"{start_ns:019d}"}
    headers = fixed_headers(settings) | authorization(settings, endpoint)
    try:
        connection = connect(
            f"ws{base.removeprefix('http')}/loki/api/v1/tail?{urlencode(fields)}",
            ssl=tls if isinstance(tls, ssl.SSLContext) else None,
            additional_headers=headers,
            user_agent_header=None,
            compression=None,
            proxy=_proxy(endpoint),
            open_timeout=CONNECT_SECONDS,
            ping_interval=_PING_SECONDS,
            ping_timeout=_PING_SECONDS,
            close_timeout=_FAREWELL_SECONDS,
            max_size=_MOST_BYTES,
            logger=_LOG,
            create_connection=_Connection,
        )
    except _AnsweredError as error:
        answer = httpx.Response(error.response.status_code, headers=list(error.response.headers.raw_items()))
        raise from_status(answer, bytes(error.response.body or b""), place) from error
    except OSError as error:
        raise from_exception(error, place) from error
    except (WebSocketException, EOFError) as error:
        raise LokiBadAnswer(f"{place} does not speak websocket: {excerpt(str(error))}") from error
    with connection:
        yield connection


class _AnsweredError(Exception):
    """The server answered with something other than an upgrade."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class _Connection(ClientConnection):
    def handshake(self, *args: Any, **kwargs: Any) -> None:
        """Shake hands without following a redirect, which would carry our tenant's name to another host."""
        try:
            super().handshake(*args, **kwargs)
        except InvalidStatus as error:
            raise _AnsweredError(error.response) from error


def _proxy(endpoint: httpx.URL) -> str | None:
    """Return the proxy that httpx would use; the library would also use one for other schemes."""
    host = f"{endpoint.host}:{endpoint.port}" if endpoint.port else endpoint.host
    if proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(endpoint.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy
