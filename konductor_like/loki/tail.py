"""Following the log as it arrives, as a nudge to poll now and never as the source of truth (design rule 13).

Loki drops what a slow client does not take, ends every tail after an hour (``querier.tail-max-duration``),
and says nothing about either that could be relied upon. So nothing is read from a message but the oldest
time in it, and what a nudge tells is "look now".
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from konductor_like.loki.errors import LokiBadAnswer, LokiError, LokiUnavailable, shown
from konductor_like.loki.spans import SECOND_NS
from konductor_like.loki.websocket import open_tail
from konductor_like.settings import Settings

LOOK_BACK_NS = 10 * SECOND_NS
"""Loki answers before it listens; what comes between is in the history that it sends first."""
_GLANCE_SECONDS = 1.0
"""How often a quiet connection is left to see whether another query is wanted."""
_OF_LINE = re.compile(rb'\["(\d{19})"')
_OF_DROPPED = re.compile(rb'"timestamp":\s*"(\d{19})"')
"""Where times stand; inside a JSON string every quote has a backslash, so no line looks so."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a connection is kept, and how long to wait before the next one, in seconds."""

    rotation_seconds: float = 3000.0
    """Shorter than Loki's hour, so that the end comes when we want it."""
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 180.0
    steady_seconds: float = 30.0
    """A connection that lasted so long was a good one: after it the waits begin from the first again."""


class Watcher(Protocol):
    """Who is told; called from the tail's own thread."""

    def nudged(self, oldest_ns: int | None) -> None:
        """Lines have arrived, the oldest with this Loki timestamp; None where that is not known."""

    def connected(self) -> None:
        """From now on lines that arrive are told."""

    def disconnected(self, error: LokiError | None, failures: int) -> None:
        """They are not told any more, or still not, after so many ``failures`` in a row.

        ``error`` is None where it ends as we want it.
        """


class Tail:
    """One connection after the other, until closed, in a thread of its own."""

    def __init__(
        self, settings: Settings, query: str, now_ns: Callable[[], int], watcher: Watcher, pace: Pace = Pace()
    ) -> None:
        """``query`` is the one that the polls ask; ``now_ns`` is the time that their windows go by."""
        self._settings = settings
        self._query = query
        self._now_ns = now_ns
        self._watcher = watcher
        self._pace = pace
        self._failures = 0
        self._lock = threading.Lock()
        self._connection: ClientConnection | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def ask_for(self, query: str) -> None:
        """Follow another query, from about a second from now on; may be called from any thread."""
        self._query = query

    def close(self) -> None:
        """End the connection at once. A connection that is just being made ends by its own time-out."""
        self._closed.set()
        with self._lock:
            connection = self._connection
        if connection is not None:
            connection.close()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread to end; :meth:`close` comes before."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            error = self._follow()
            if error is None or time.monotonic() - began >= self._pace.steady_seconds:
                self._failures = 0
            if error is not None and not self._closed.is_set():
                self._failures += 1
            self._watcher.disconnected(error, self._failures)
            if error is not None:
                self._closed.wait(self._wait_seconds(error))

    def _follow(self) -> LokiError | None:
        """One connection, from its beginning to its end; why it ended, None where it was our wish."""
        query = self._query
        try:
            with open_tail(self._settings, query, self._now_ns() - LOOK_BACK_NS) as connection:
                with self._lock:
                    self._connection = connection
                self._watcher.connected()
                # What came since the last connection, or the last poll, was told to nobody.
                self._watcher.nudged(None)
                return self._listen(connection, query)
        except LokiError as error:
            return error
        except Exception as error:  # noqa: BLE001  # must not end unseen (rule 27); the watcher says it
            return LokiBadAnswer(f"Following Loki's tail failed: {error!r}")
        finally:
            with self._lock:
                self._connection = None

    def _listen(self, connection: ClientConnection, query: str) -> LokiError | None:
        end = time.monotonic() + self._pace.rotation_seconds
        try:
            while not self._closed.is_set() and self._query == query:
                left = end - time.monotonic()
                if left <= 0:
                    return None
                try:
                    message = connection.recv(min(left, _GLANCE_SECONDS), decode=False)
                except TimeoutError:
                    continue
                self._watcher.nudged(oldest_in(message))
        except ConnectionClosed as closed:
            if self._closed.is_set():
                return None
            # A message that is too large breaks the connection too, and holds lines like any other.
            self._watcher.nudged(None)
            said = shown(closed.rcvd.reason) if closed.rcvd else ""
            return LokiUnavailable(f"Loki ended its tail: {said or 'the connection broke'}")
        return None

    def _wait_seconds(self, error: LokiError) -> float:
        longest = self._pace.longest_wait_seconds
        wait = min(longest, self._pace.first_wait_seconds * 2.0 ** min(self._failures - 1, 30))
        # A definite refusal does not pass in a second.
        return random.uniform(0.5, 1.0) * (wait if error.transient else longest)  # noqa: S311  # jitter


def oldest_in(message: bytes) -> int | None:
    """The oldest time in one message of Loki's tail, in ns since the epoch; None where there is none."""
    # All have as many digits, so the least as text is the least as a number.
    oldest = min(_OF_LINE.findall(message) + _OF_DROPPED.findall(message), default=None)
    return None if oldest is None else int(oldest)
