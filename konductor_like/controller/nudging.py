"""Nudges: from Loki's tail to the loop that polls, few polls for many nudges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.loki.errors import LokiError
from konductor_like.loki.tail import Tail
from konductor_like.settings import Settings

SPACING_SECONDS = 0.1
SPACING_POLLS = 3.0
"""Nudged polls are so far apart, in seconds and in durations of a poll, whichever is more."""
AGAIN_SECONDS = 0.25
"""What a tail has told may not be found by a query yet; so it is asked for once more after this while."""
SAID_AFTER = 3
"""So many failures in a row are said."""


@dataclass(frozen=True, slots=True)
class Nudge:
    """A reason to poll before the interval is over."""

    oldest_ns: int | None
    """The oldest Loki timestamp that was told of; None where none was."""
    again: bool = False
    """The poll that this nudge led to found nothing; this is the second try, and the last."""


class Rhythm:
    """When a source polls next. Only :meth:`nudge` may be called from any thread, and it never waits."""

    def __init__(self, interval_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that only grow."""
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._nudged = threading.Event()
        self._oldest_ns: int | None = None
        self._regular = self._spaced = clock()
        self._again: tuple[float, Nudge] | None = None

    def nudge(self, oldest_ns: int | None) -> None:
        """Poll soon, once for however many nudges come until then."""
        with self._lock:
            if oldest_ns is not None:
                self._oldest_ns = oldest_ns if self._oldest_ns is None else min(self._oldest_ns, oldest_ns)
            self._nudged.set()

    def take(self) -> Nudge | None:
        """The nudge that the poll which now begins answers, if any."""
        with self._lock:
            nudged, oldest_ns = self._nudged.is_set(), self._oldest_ns
            self._nudged.clear()
            self._oldest_ns = None
        if nudged:
            self._again = None
            return Nudge(oldest_ns)
        if self._again is not None and self._clock() >= self._again[0]:
            _, nudge = self._again
            self._again = None
            return nudge
        return None

    def failed(self, nudge: Nudge | None) -> None:
        """The poll failed; the next one answers the nudge."""
        if nudge is not None:
            self.nudge(nudge.oldest_ns)

    def polled(self, nudge: Nudge | None, *, found: bool, seconds: float) -> None:
        """A poll that took ``seconds`` is done; ``found`` says whether it brought any line."""
        now = self._clock()
        if now >= self._regular or nudge is None:
            self._regular = now + self._interval_seconds
        # A poll that nobody asked for holds up no nudge.
        self._spaced = now + max(SPACING_SECONDS, SPACING_POLLS * seconds) if nudge else now
        if nudge and nudge.oldest_ns is not None and not (found or nudge.again):
            self._again = (now + AGAIN_SECONDS, Nudge(nudge.oldest_ns, again=True))

    def due(self) -> float:
        """When the next poll is due, by the clock."""
        due = self._regular
        if self._nudged.is_set():
            due = min(due, self._spaced)
        if self._again is not None:
            due = min(due, max(self._again[0], self._spaced))
        return due

    def rest(self, stop: threading.Event) -> None:
        """Return when the next poll is due, or at once when ``stop`` is set; a nudge then ends the wait."""
        while not stop.is_set():
            nudged = self._nudged.is_set()
            left = self.due() - self._clock()
            if left <= 0:
                return
            if nudged:
                stop.wait(left)
            else:
                self._nudged.wait(left)


class TailNudges:
    """Follows the kernel log with a tail and hands its nudges on. Losing it costs latency only."""

    def __init__(self, settings: Settings, query: str, now_ns: Callable[[], int], metrics: Metrics) -> None:
        """``query`` is the one that the nudged source asks; nothing is connected yet."""
        self._metrics = metrics
        self._connected = False
        self._said: str | None = None
        self._nudge: Callable[[int | None], None] = lambda _oldest_ns: None
        self._tail = Tail(settings, query, now_ns, self)

    def start(self, nudge: Callable[[int | None], None]) -> None:
        """Begin; ``nudge`` is called for what arrives, from another thread."""
        self._nudge = nudge
        self._tail.start()

    def ask_for(self, query: str) -> None:
        """Follow another query; may be called from another thread."""
        self._tail.ask_for(query)

    def close(self, timeout_seconds: float) -> None:
        """End at once; a connection that is just being made is left to its own time-out."""
        self._tail.close()
        self._tail.join(timeout_seconds)

    def nudged(self, oldest_ns: int | None) -> None:
        """Lines have arrived: see :class:`konductor_like.loki.tail.Watcher`."""
        self._metrics.tail_nudges.inc()
        self._nudge(oldest_ns)

    def connected(self) -> None:
        """Count the connection."""
        self._connected = True
        self._metrics.tail_connections.inc()
        self._metrics.tails_connected.inc()

    def disconnected(self, error: LokiError | None, failures: int) -> None:
        """Say once what does not pass by itself; a single broken connection is everyday life."""
        if self._connected:
            self._metrics.tails_connected.dec()
        self._connected = False
        if error is None or (failures < SAID_AFTER and error.transient):
            self._said = None
        elif str(error) != self._said:
            self._said = str(error)
            logs.warning(
                f"Loki's tail cannot be followed: {error}. Nothing is lost: without it kernel lines are "
                "found by polling, some seconds later. Trying again; KONDUCTOR_TAIL=false does without.",
                error=type(error).__name__,
            )
