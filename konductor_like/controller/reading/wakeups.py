"""When to poll: at a regular interval, and soon after a nudge, when Loki's tail has shown a new line.

Many nudges make few polls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from konductor_like.controller import logs
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.loki.query.errors import LokiError
from konductor_like.loki.tail import Tail
from konductor_like.settings import Settings

SPACING_SECONDS = 0.1
"""Least seconds between the end of a nudged poll and the next nudged poll."""
SPACING_POLLS = 3.0
"""The same as a multiple of the poll's duration; the longer of the two counts.

For example, after a poll of 0.5 s the next one waits 1.5 s, so a storm of nudges keeps Loki busy for a
quarter of the time.
"""
LOGGED_AFTER = 3
"""Failures of the tail in a row before the controller logs one that may pass by itself."""


class PollSchedule:
    """The time of a source's next poll: at a regular interval, and soon after a nudge.

    Any thread may call :meth:`nudge`, which never waits. Only the thread that polls calls the other methods.
    """

    def __init__(self, interval_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns monotonic seconds."""
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._nudged = False
        self._oldest_ns: int | None = None
        self._regular = self._after_nudge = clock()

    def nudge(self, oldest_ns: int | None) -> bool:
        """Ask for a poll. Return False if an earlier nudge already waits for the same poll."""
        with self._lock:
            if oldest_ns is not None:
                self._oldest_ns = oldest_ns if self._oldest_ns is None else min(self._oldest_ns, oldest_ns)
            is_first, self._nudged = not self._nudged, True
            return is_first

    def take(self) -> tuple[bool, int | None]:
        """Take the waiting nudges: whether there is one, and the oldest Loki timestamp among them."""
        with self._lock:
            nudged, oldest_ns = self._nudged, self._oldest_ns
            self._nudged, self._oldest_ns = False, None
            return nudged, oldest_ns

    def polled(self, *, nudged: bool, seconds: float) -> None:
        """Schedule the poll after one that took ``seconds``. Only a nudged poll delays the next nudge."""
        now = self._clock()
        if now >= self._regular or not nudged:
            self._regular = now + self._interval_seconds
        self._after_nudge = now + max(SPACING_SECONDS, SPACING_POLLS * seconds) if nudged else now

    def wait(self, seconds: float) -> None:
        """Poll again after ``seconds``, regardless of the interval and of nudges."""
        self._regular = self._after_nudge = self._clock() + seconds

    def put_off(self, seconds: float) -> None:
        """Poll ``seconds`` later than planned."""
        self._regular += seconds
        self._after_nudge += seconds

    def due_seconds(self) -> float:
        """Return the seconds until the next poll; not positive if it is due."""
        due = min(self._regular, self._after_nudge) if self._nudged else self._regular
        return due - self._clock()


class TailWatcher:
    """Follows the kernel log with Loki's tail and passes its nudges on. Without a tail only latency grows."""

    def __init__(self, settings: Settings, query: str, now_ns: Callable[[], int], metrics: Metrics) -> None:
        """``query`` is the query of the nudged source. Nothing connects before :meth:`start`."""
        self._metrics = metrics
        self._logged: str | None = None
        self._nudge: Callable[[int | None], None] = lambda _oldest_ns: None
        self._tail = Tail(settings, query, now_ns, self)

    def start(self, nudge: Callable[[int | None], None]) -> None:
        """Begin. Another thread calls ``nudge`` for the lines that arrive."""
        self._nudge = nudge
        self._tail.start()

    def close(self, timeout_seconds: float) -> None:
        """End at once. A connection that is just being made ends by its own time-out."""
        self._tail.close(timeout_seconds)

    def nudged(self, oldest_ns: int | None) -> None:
        """Pass a nudge on: see :class:`konductor_like.loki.tail.Watcher`."""
        self._nudge(oldest_ns)

    def connected(self) -> None:
        """Show the connection."""
        self._metrics.tails_connected.set(1)

    def disconnected(self, error: LokiError | None, failures: int) -> None:
        """Log once an error that does not pass by itself. A single broken connection is normal."""
        self._metrics.tails_connected.set(0)
        if error is None or (failures < LOGGED_AFTER and error.transient):
            self._logged = None
        elif str(error) != self._logged:
            self._logged = str(error)
            logs.warning(
                f"The controller cannot follow Loki's tail: {error}. No line is lost: polling finds kernel "
                "lines some seconds later. The controller retries; KONDUCTOR_TAIL=false turns the tail off.",
                error=type(error).__name__,
            )
