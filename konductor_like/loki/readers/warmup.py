"""The warm-up: reading the time before our start again, for rules that look back (such as thresholds).

It delays nobody: it sends one query at a time, pauses as long as each query took, and uses at most half of
the byte budget. It reads kernel lines first, so that a known root cause is there before the failures that it
explains. It reads each source forward, because only then can a replay of kernel records be distinguished from
its original.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from konductor_like.loki.query.response import log_lines
from konductor_like.loki.query.window_query import (
    HISTORY_FIRST_NS,
    HISTORY_REST_LEAST_SECONDS,
    HISTORY_WAIT_SECONDS,
    ByteBudget,
    Piece,
    Queries,
    TimeWindow,
    WindowQuery,
)
from konductor_like.loki.readers.poll import PollResult
from konductor_like.loki.readers.read_state import FUTURE_SKEW_SECONDS
from konductor_like.model import Fault, LogLine, Source
from konductor_like.model.time import SECOND_NS, span_ns
from konductor_like.settings import Settings

RETRY_SECONDS = 15.0
"""Seconds of the least wait after a failure."""
WIDEST_NS = 6 * 3600 * SECOND_NS
LINES_MOST = 2000
"""Lines of one piece, which are decided on together with the lines of the present."""


@dataclass(slots=True)
class WarmupTotals:
    """The sums of what the warm-up has read."""

    lines: int = 0
    faults: int = 0
    queries: int = 0
    bytes_processed: int = 0
    incomplete: int = 0
    """Single nanoseconds with more lines than Loki returns."""


@dataclass(frozen=True, slots=True)
class _Unread:
    """The part of one source that is still to be read, and the width of its next window."""

    source: Source
    query: WindowQuery
    """The source's own, because a WindowQuery learns how large the source's entries are."""
    span: TimeWindow
    width_ns: int = HISTORY_FIRST_NS


class WarmupReader:
    """Reads the past once, piece by piece."""

    def __init__(
        self,
        client: Queries,
        settings: Settings,
        queries: Mapping[Source, str],
        detect: Callable[[LogLine], Fault | None],
        budget: ByteBudget,
        *,
        seconds: int,
        since_ns: int,
        now_ns: int,
        finished: Callable[[WarmupTotals], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``queries`` are read in their order; the rules look back ``seconds`` before the start, ``now_ns``.

        Lines before ``since_ns`` are not evidence. The reader calls ``finished`` once everything is read. It
        calls ``finished`` and ``detect`` in the thread that polls, and ``detect`` with each source's lines in
        order.
        """
        self._settings = settings
        self._detect = detect
        self._budget = budget
        self._finished = finished
        self._clock = clock
        # A line that was acted upon just before our start may come from a node whose clock is ahead.
        end_ns = now_ns + span_ns(FUTURE_SKEW_SECONDS)
        start_ns = min(max(now_ns - seconds * SECOND_NS, since_ns, 0), end_ns - 1)
        span, limit = TimeWindow(start_ns, end_ns), min(settings.loki_limit, LINES_MOST)
        self._unread = self._next = tuple(
            _Unread(source, WindowQuery(client, text, settings, WIDEST_NS, limit=limit), span)
            for source, text in queries.items()
        )
        self._totals = WarmupTotals()

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """Return the faults of the next piece, with ``more`` until everything is read.

        After a query it leaves Loki to the other readers for as long as the query took, and it waits while
        half of the budget is spent. Raises a LokiError; then, or without a commit, the next poll reads the
        piece again.
        """
        self._next = self._unread
        if not self._unread:
            return PollResult(upto_ns=now_ns)
        if not self._budget.allows_history:
            return PollResult(upto_ns=now_ns, more=True, wait_seconds=HISTORY_WAIT_SECONDS)
        began, first = self._clock(), self._unread[0]
        try:
            (piece,) = first.query.read(first.span, first.width_ns)
        finally:
            self._budget.spend(first.query.bytes_processed)
            self._totals.queries += first.query.queries
            self._totals.bytes_processed += first.query.bytes_processed
        lines = log_lines(piece.entries, first.source, self._settings)
        faults = tuple(fault for line in lines if (fault := self._detect(line)) is not None)
        self._next = self._after(piece)
        self._totals.lines += len(piece.entries)
        self._totals.faults += len(faults)
        self._totals.incomplete += not piece.complete
        return PollResult(
            upto_ns=now_ns,
            more=bool(self._next),
            queries=first.query.queries,
            bytes_processed=first.query.bytes_processed,
            wait_seconds=max(HISTORY_REST_LEAST_SECONDS, self._clock() - began),
            past=faults,
        )

    def commit(self, result: PollResult) -> None:
        """Note that the caller has acted on the piece."""
        self._unread = self._next
        if result.past is not None and not self._unread:
            self._finished(self._totals)

    def _after(self, piece: Piece) -> tuple[_Unread, ...]:
        """Return the parts left after this piece, the next window no wider than the budget allows."""
        first, *others = self._unread
        if piece.window.end_ns >= first.span.end_ns:
            return tuple(others)
        width_ns = self._budget.history_width_ns(piece, first.query.bytes_processed)
        left = TimeWindow(piece.window.end_ns, first.span.end_ns)
        return (replace(first, span=left, width_ns=width_ns), *others)
