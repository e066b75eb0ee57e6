"""What Loki may process for us a minute (rule 11): beyond it we ask less often, and say so."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from konductor_like.model import Source

_MINUTE_SECONDS = 60.0
_HISTORY_UPTO = 0.5
_PODS_UPTO = 0.7
_SWEEPS_UPTO = 0.85
_SLOWDOWN = 6.0


class ByteBudget:
    """Bytes processed in the last minute, against a bound. All readers share one; thread-safe.

    The past is the first to wait, then pods, then the sweeps, and only beyond the whole budget the polls of
    kernel lines.
    """

    def __init__(self, bytes_per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bound = bytes_per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._spent: deque[tuple[float, int]] = deque()
        self._total = 0

    def spend(self, bytes_processed: int) -> None:
        """Loki had to read so much for a poll of ours."""
        with self._lock:
            self._spent.append((self._clock(), bytes_processed))
            self._total += bytes_processed

    @property
    def used(self) -> float:
        """Which share of the budget the last minute took; above 1 it was overdrawn."""
        with self._lock:
            while self._spent and self._spent[0][0] < self._clock() - _MINUTE_SECONDS:
                self._total -= self._spent.popleft()[1]
            return self._total / self._bound

    def share(self, bytes_processed: int) -> float:
        """Which share of a minute's budget that is."""
        return bytes_processed / self._bound

    @property
    def allows_history(self) -> bool:
        """Whether what happened before our start may be read."""
        return self.used < _HISTORY_UPTO

    @property
    def allows_sweeps(self) -> bool:
        """Whether what was read before may be read again."""
        return self.used < _SWEEPS_UPTO

    def slowdown(self, source: Source) -> float:
        """How many times longer than usual to wait before the next poll of that source."""
        upto = 1.0 if source is Source.KERNEL else _PODS_UPTO
        return _SLOWDOWN if self.used >= upto else 1.0
