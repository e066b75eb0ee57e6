"""What happened before our start, read again for the rules that look back (thresholds, shared events).

It makes nobody wait: one query at a time, a rest as long as each took, and no more than half of the byte
budget. Kernel lines come first, so that a known origin is there before the failures that it explains; each
source is read forward, because only then a replay of kernel records is told from its original.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from konductor_like.loki.byte_budget import ByteBudget
from konductor_like.loki.errors import LokiError
from konductor_like.loki.poll import PollResult
from konductor_like.loki.response import Naming, log_line
from konductor_like.loki.window_query import SECOND_NS, Piece, Queries, Window, WindowQuery, read_span
from konductor_like.model import Fault, LogLine, Source
from konductor_like.settings import Settings

LOOK_SECONDS = 15.0
"""Time between two looks whether other rules want the past read again, and the least before another try."""
WIDEST_NS = 6 * 3600 * SECOND_NS
LINES_MOST = 2000
"""Lines of one piece: what is judged in one go beside the lines of the present."""
QUERY_SHARE = 0.1
"""A query is to take no more of a minute's byte budget than this; the next one asks for less time."""
_FIRST_NS = 900 * SECOND_NS
_REST_LEAST_SECONDS = 0.1
_PATIENCE_SECONDS = 1.0


class WarmupScope(NamedTuple):
    """What the rules in force look back on."""

    rules: str
    """Their name; other rules have another."""
    kernel: str
    """The query for kernel lines."""
    pod: str | None
    """The query for pod lines; None where no namespace is watched."""
    seconds: int
    """How far back they look."""


@dataclass(frozen=True, slots=True)
class WarmupTotals:
    """What reading the past came to so far."""

    lines: int = 0
    faults: int = 0
    queries: int = 0
    bytes_processed: int = 0
    incomplete: int = 0
    """Single nanoseconds with more lines than Loki gives out."""


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is yet to be read of one source, and how much of it at once."""

    source: Source
    query: str
    span: Window
    width_ns: int = _FIRST_NS


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far the past is read."""

    rests: tuple[_Rest, ...]
    account: WarmupTotals


class WarmupReader:
    """Reads the past once, piece by piece, and again when other rules are in force."""

    def __init__(
        self,
        client: Queries,
        settings: Settings,
        wanted: Callable[[], WarmupScope],
        detect: Callable[[LogLine], Fault | None],
        budget: ByteBudget,
        *,
        since_ns: int,
        now_ns: int,
        whole: Callable[[WarmupTotals], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing before ``since_ns`` is evidence; ``now_ns`` is the start.

        ``whole`` is told once all is read. It, ``wanted`` and ``detect`` are called in the loop's thread,
        ``detect`` with each source's lines in order.
        """
        self._client = client
        self._naming = Naming.of(settings)
        self._limit = min(settings.loki_limit, LINES_MOST)
        self._skew_ns = round(settings.future_skew_seconds * SECOND_NS)
        self._wanted = wanted
        self._detect = detect
        self._budget = budget
        self._since_ns = since_ns
        self._whole = whole
        self._clock = clock
        self._asked: WarmupScope
        self._done: _Progress
        self._next: _Progress
        self._asking: WindowQuery
        self._begin(wanted(), now_ns)

    @property
    def unread_seconds(self) -> float:
        """How much of the past has yet to be read of the source that lacks most; any thread may ask."""
        return max((rest.span.width_ns for rest in self._done.rests), default=0) / SECOND_NS

    @property
    def slowdown(self) -> float:
        """It rests by itself."""
        return 1.0

    def ask_for(self, query: str) -> None:
        """What to ask follows from the rules."""

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """The next piece, as faults, with ``more`` until nothing is left.

        Loki is left to the others for as long as it worked for us, and while half of the budget is spent.
        Raises a LokiError; the piece comes again, as one does that was not committed.
        """
        wanted = self._wanted()
        if wanted != self._asked:
            self._begin(wanted, now_ns)
        self._next = self._done
        if not self._done.rests:
            return PollResult(upto_ns=now_ns)
        if not self._budget.allows_history:
            return PollResult(upto_ns=now_ns, more=True, wait_seconds=_PATIENCE_SECONDS)
        rest, began = self._done.rests[0], self._clock()
        try:
            piece = self._read(rest)
        finally:
            self._budget.spend(self._asking.bytes_processed)
        faults = self._faults_in(piece, rest.source)
        self._next = self._after(piece, len(faults))
        return PollResult(
            upto_ns=now_ns,
            more=bool(self._next.rests),
            queries=self._asking.queries,
            bytes_processed=self._asking.bytes_processed,
            wait_seconds=max(_REST_LEAST_SECONDS, self._clock() - began),
            past=faults,
        )

    def commit(self, batch: PollResult) -> None:
        """The piece was acted upon."""
        self._done = self._next
        if batch.past is not None and not self._done.rests:
            self._whole(self._done.account)

    def _begin(self, wanted: WarmupScope, now_ns: int) -> None:
        self._asked = wanted
        # What was acted upon just before our start may have come from a node whose clock is ahead.
        end_ns = now_ns + self._skew_ns
        span = Window(min(max(now_ns - wanted.seconds * SECOND_NS, self._since_ns, 0), end_ns - 1), end_ns)
        queries = {Source.KERNEL: wanted.kernel, Source.POD: wanted.pod}
        rests = tuple(_Rest(source, query, span) for source, query in queries.items() if query)
        self._done = self._next = _Progress(rests, WarmupTotals())
        self._asking = WindowQuery(self._client, wanted.kernel, self._naming.node, self._limit, WIDEST_NS)

    def _read(self, rest: _Rest) -> Piece:
        asking = self._asking
        if asking.text != rest.query:
            asking = WindowQuery(self._client, rest.query, self._naming.node, self._limit, WIDEST_NS)
            self._asking = asking
        asking.begin()
        try:
            piece = next(read_span(rest.span, rest.width_ns, asking.widest_ns, asking.lines_of()))
        except LokiError as error:
            asking.failed(error)
            raise
        asking.succeeded()
        return piece

    def _faults_in(self, piece: Piece, source: Source) -> tuple[Fault, ...]:
        entries = sorted(piece.entries, key=lambda entry: entry.timestamp_ns)
        lines = (log_line(entry, source, self._naming) for entry in entries)
        faults = (self._detect(line) for line in lines if line is not None)
        return tuple(fault for fault in faults if fault is not None)

    def _after(self, piece: Piece, faults: int) -> _Progress:
        """What is left after this piece, the next one no wider than the budget likes."""
        account = WarmupTotals(
            self._done.account.lines + len(piece.entries),
            self._done.account.faults + faults,
            self._done.account.queries + self._asking.queries,
            self._done.account.bytes_processed + self._asking.bytes_processed,
            self._done.account.incomplete + (not piece.complete),
        )
        first, *others = self._done.rests
        if piece.window.end_ns >= first.span.end_ns:
            return _Progress(tuple(others), account)
        width_ns = piece.next_width_ns
        share = self._budget.share(self._asking.bytes_processed)
        if share > 0:
            width_ns = min(width_ns, max(SECOND_NS, int(piece.window.width_ns * QUERY_SHARE / share)))
        left = Window(piece.window.end_ns, first.span.end_ns)
        return _Progress((replace(first, span=left, width_ns=width_ns), *others), account)
