"""When to poll: at an interval, and soon after Loki's tail told of a line. Few polls for many nudges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.loki.errors import LokiError
from konductor_like.loki.tail import Tail
from konductor_like.settings import Settings

SPACING_SECONDS = 0.1
SPACING_POLLS = 3.0
"""Nudged polls are so far apart, in seconds and in durations of a poll, whichever is more.

For example, polls that take 0.5 s each are 1.5 s apart, so a storm of nudges keeps Loki busy for a quarter of
the time.
"""
SAID_AFTER = 3
"""So many failures in a row are said."""


class PollSchedule:
    """When a source polls next: at a regular interval, and soon after a nudge.

    :meth:`nudge` may be called from any thread and never waits; the rest is for the thread that polls.
    """

    def __init__(self, interval_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that only grow."""
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._nudged = False
        self._oldest_ns: int | None = None
        self._regular = self._after_nudge = clock()

    def nudge(self, oldest_ns: int | None) -> bool:
        """Poll soon, once for however many nudges come until then; False where that was known already."""
        with self._lock:
            if oldest_ns is not None:
                self._oldest_ns = oldest_ns if self._oldest_ns is None else min(self._oldest_ns, oldest_ns)
            news, self._nudged = not self._nudged, True
            return news

    def take(self) -> tuple[bool, int | None]:
        """Whether the poll that now begins answers a nudge, and the oldest Loki timestamp told of."""
        with self._lock:
            nudged, oldest_ns = self._nudged, self._oldest_ns
            self._nudged, self._oldest_ns = False, None
            return nudged, oldest_ns

    def polled(self, *, nudged: bool, seconds: float) -> None:
        """A poll that took ``seconds`` is done. A poll that nobody asked for holds up no nudge."""
        now = self._clock()
        if now >= self._regular or not nudged:
            self._regular = now + self._interval_seconds
        self._after_nudge = now + max(SPACING_SECONDS, SPACING_POLLS * seconds) if nudged else now

    def wait(self, seconds: float) -> None:
        """Poll again after ``seconds``, whatever the interval and nudges say."""
        self._regular = self._after_nudge = self._clock() + seconds

    def put_off(self, seconds: float) -> None:
        """Poll so much later than planned."""
        self._regular += seconds
        self._after_nudge += seconds

    def due_seconds(self) -> float:
        """How long until the next poll."""
        due = min(self._regular, self._after_nudge) if self._nudged else self._regular
        return due - self._clock()


class TailWatcher:
    """Follows the kernel log with a tail and hands its nudges on. Losing it costs latency only."""

    def __init__(self, settings: Settings, query: str, now_ns: Callable[[], int], metrics: Metrics) -> None:
        """``query`` is the one that the nudged source asks; nothing is connected yet."""
        self._metrics = metrics
        self._said: str | None = None
        self._nudge: Callable[[int | None], None] = lambda _oldest_ns: None
        self._tail = Tail(settings, query, now_ns, self)

    def start(self, nudge: Callable[[int | None], None]) -> None:
        """Begin; ``nudge`` is called for what arrives, from another thread."""
        self._nudge = nudge
        self._tail.start()

    def use_query(self, query: str) -> None:
        """Follow another query; may be called from another thread."""
        self._tail.use_query(query)

    def close(self, timeout_seconds: float) -> None:
        """End at once; a connection that is just being made is left to its own time-out."""
        self._tail.close(timeout_seconds)

    def nudged(self, oldest_ns: int | None) -> None:
        """Lines have arrived: see :class:`konductor_like.loki.tail.Watcher`."""
        self._metrics.tail_nudges.inc()
        self._nudge(oldest_ns)

    def connected(self) -> None:
        """Count the connection."""
        self._metrics.tail_connections.inc()
        self._metrics.tails_connected.set(1)

    def disconnected(self, error: LokiError | None, failures: int) -> None:
        """Say once what does not pass by itself; a single broken connection is everyday life."""
        self._metrics.tails_connected.set(0)
        if error is None or (failures < SAID_AFTER and error.transient):
            self._said = None
        elif str(error) != self._said:
            self._said = str(error)
            logs.warning(
                f"Loki's tail cannot be followed: {error}. Nothing is lost: without it kernel lines are "
                "found by polling, some seconds later. Trying again; KONDUCTOR_TAIL=false does without.",
                error=type(error).__name__,
            )
