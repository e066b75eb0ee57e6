"""Reading a span of time in windows that are each proven complete, with answers that Loki can hand over.

When more lines match than ``limit``, Loki's sharded queries may silently return fewer than ``limit`` (rule
7). So a window is accepted only if its query was not sharded, or if Loki's count shows that nothing was cut;
otherwise it is halved. A full answer of a query that was not sharded is cut at its end and nowhere else, so
all but its last moment is accepted. Windows come in the order of time and touch without overlapping, so the
accepted windows together are one span without a hole.

Loki's parts hand over 4 MiB at most unless configured otherwise. A larger answer never comes: Loki either
reports an error (413, ResourceExhausted) or is silent until it times out. So a query asks for a page of
entries that fills :data:`PAGE_BYTES`, given the size of recent entries. For example, kernel lines with the
shipped collector's metadata take 820 bytes, which makes pages of 2,500; pod lines of 100 KB make pages of 20.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from konductor_like.loki.query.errors import (
    LokiAnswerTooLarge,
    LokiError,
    LokiRefused,
    LokiTimeout,
    LokiUnavailable,
)
from konductor_like.loki.query.logql import of_nodes
from konductor_like.loki.query.response import Count, Entry, QueryResult
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS
from konductor_like.settings import Settings

COUNTABLE_NS = 1_000_000
"""Nanoseconds of a millisecond, the finest duration in Loki's queries."""
_FILL = 0.85
"""Share of the limit that the next window's expected lines may reach."""
STORM_LINES = 1000
"""Entries per answer for noisy nodes: fewer than usual, since nobody waits for them and they take memory."""
PAGE_BYTES = 2 * 2**20
"""Bytes that an answer should have: half of the 4 MiB that Loki's parts hand over by default. Between the
parts, kernel lines with the shipped collector's metadata take 1.35 times the bytes of the HTTP answer."""
_ENTRY_BYTES = {Source.KERNEL: 2 * 2**10, Source.POD: 10 * 2**10}
"""Bytes that an entry is expected to take in an answer, with metadata, until answers show its size."""
LINE_BYTES_MOST = 288 * 2**10
"""Bytes of the longest line that Loki accepts by default (256 KB), with its metadata."""
_GROWTH = 4
"""Factor by which one answer may lower the expected size of an entry."""
_FORGET_SHARE = 5
"""With each poll one fifth of what was learnt about the size of entries is forgotten."""
_KEEP_SHARE = 20
"""With each poll one twentieth of what was learnt from refused pages is forgotten: to try a larger page may
cost a minute of silence."""
_LEAST_ENTRIES = 2
"""Entries of the smallest page: a page of one is always full, and so shows nothing about further entries."""
_NARROWEST_NS = 10 * SECOND_NS
"""Nanoseconds below which windows are not narrowed: a Loki too slow for them falls behind in any case."""

HISTORY_FIRST_NS = 900 * SECOND_NS
"""Nanoseconds of the first window of the past: it shows how much Loki processes for one."""
HISTORY_QUERY_SHARE = 0.1
"""Share of a minute's byte budget that a query of the past may take; after a larger one the next window is
narrower."""
HISTORY_REST_LEAST_SECONDS = 0.1
"""Seconds of pause after a query of the past, at least; as long as the query took otherwise."""
HISTORY_WAIT_SECONDS = 1.0
"""Seconds until the past is tried again after the budget did not allow it."""

_MINUTE_SECONDS = 60.0
_HISTORY_UPTO = 0.5
PODS_UPTO = 0.7
_SWEEPS_UPTO = 0.85
"""Shares of the budget from which on the past, the polls of pods, and the sweeps wait."""
_SLOWDOWN = 6.0
"""Factor by which a poll that waits is later than usual."""

_MAY_BE_TOO_LARGE = (LokiAnswerTooLarge, LokiTimeout, LokiUnavailable)
"""Errors with which a Loki fails that cannot hand over an answer."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The half-open span ``[start_ns, end_ns)``."""

    start_ns: int
    end_ns: int

    @property
    def width_ns(self) -> int:
        """Return the length."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Piece:
    """An accepted window and its entries.

    ``complete`` is False only for a single nanosecond with more lines than Loki returns: then ``entries`` are
    those that Loki did return.
    """

    window: TimeWindow
    entries: tuple[Entry, ...]
    complete: bool = True
    next_width_ns: int = field(default=1, compare=False)
    """Width for the next window, by this window's density: as wide as one answer should contain."""


Ask = Callable[[TimeWindow], QueryResult | None]
"""A function that queries one window; None when only a narrower window can be answered.

It never returns None for a single nanosecond."""


class Queries(Protocol):
    """The methods of a client that readers use; see :class:`konductor_like.loki.query.client.LokiClient`."""

    def query_range(self, query: str, start_ns: int, end_ns: int, limit: int) -> QueryResult:
        """See the client."""

    def count(self, query: str, start_ns: int, end_ns: int) -> Count:
        """See the client."""


class WindowQuery:
    """One query, asked for one window after the other, and for less when an answer is too large or too slow.

    ``queries`` and ``bytes_processed`` count since the latest :meth:`begin`.
    """

    def __init__(
        self,
        client: Queries,
        text: str,
        settings: Settings,
        widest_ns: int,
        *,
        limit: int | None = None,
        source: Source = Source.KERNEL,
    ) -> None:
        """``text`` is the query; ``limit`` bounds the entries of an answer (default: the setting)."""
        self.text = text
        self.widest_ns = widest_ns
        """The widest window at present; time-outs narrow it."""
        self.asked_ns = widest_ns
        """The width of the latest window."""
        self.queries = 0
        self.bytes_processed = 0
        self._client = client
        self._node_label = settings.node_label
        self._most = limit or settings.loki_limit
        self._full_width_ns = widest_ns
        self._usual_bytes = self._entry_bytes = _ENTRY_BYTES[source]
        self._refused_bytes = 0
        """Bytes that an entry is taken to have at least, because recent pages were too large."""

    @property
    def limit(self) -> int:
        """Return the entries to ask for at once: what the tenant allows and an answer can contain."""
        weight = max(self._entry_bytes, self._refused_bytes)
        return min(self._most, max(_LEAST_ENTRIES, PAGE_BYTES // weight))

    def begin(self) -> None:
        """Begin a new poll."""
        self.queries = self.bytes_processed = 0

    def failed(self, error: LokiError) -> None:
        """Note that a poll or a part of it failed; after a time-out, ask for narrower windows."""
        if isinstance(error, LokiTimeout):
            self.widest_ns = max(_NARROWEST_NS, min(self.widest_ns, self.asked_ns) // 2)

    def succeeded(self) -> None:
        """Note that a poll succeeded. Slow widening keeps a slow Loki from timing out on every other poll."""
        self.widest_ns = min(self._full_width_ns, self.widest_ns + self._full_width_ns // 64)
        self._entry_bytes += (self._usual_bytes - self._entry_bytes) // _FORGET_SHARE
        self._refused_bytes -= self._refused_bytes // _KEEP_SHARE

    def lines_of(self, *, only: Collection[str] = (), without: Collection[str] = ()) -> Ask:
        """Return a function that queries windows of the nodes ``only``, or of all nodes but ``without``."""
        nodes = only or without
        text = of_nodes(self.text, self._node_label, nodes, without=not only) if nodes else self.text
        return partial(self._read_window, text, STORM_LINES if only else self._most)

    def read(
        self,
        span: TimeWindow,
        first_ns: int,
        *,
        widest_ns: int | None = None,
        only: Collection[str] = (),
        queries: int = 1,
        lines: int = 1,
    ) -> list[Piece]:
        """Read a span from its start on until ``queries`` or ``lines`` are reached, as a poll of its own.

        It returns one piece at least. Raises a LokiError.
        """
        self.begin()
        pieces: list[Piece] = []
        try:
            for piece in read_span(span, first_ns, widest_ns or self.widest_ns, self.lines_of(only=only)):
                pieces.append(piece)
                if self.queries >= queries or sum(len(piece.entries) for piece in pieces) >= lines:
                    break
        except LokiError as error:
            self.failed(error)
            raise
        self.succeeded()
        return pieces

    def count(self, window: TimeWindow, text: str | None = None) -> int:
        """Return Loki's count of lines in a window of whole milliseconds."""
        self.queries, self.asked_ns = self.queries + 1, window.width_ns
        count = self._client.count(text or self.text, window.start_ns, window.end_ns)
        self.bytes_processed += count.bytes_processed
        return count.lines

    def _read_window(self, text: str, most: int, window: TimeWindow) -> QueryResult | None:
        """Return one window's answer with as many entries as Loki can hand over; None if it must be narrower.

        A page that turns out too small hardly shows which nodes fill it, so it is asked for again with more
        entries; if that fails, the smaller page is used. When the answer alone cannot prove that nothing was
        cut, Loki counts the lines.
        """
        page = self._first_page(text, window, min(most, self.limit))
        while page is not None and len(page.entries) >= page.limit:
            limit = min(most, self.limit, _GROWTH * page.limit)
            if limit < 2 * page.limit:
                return page
            try:
                page = self._send(text, window, limit)
            except _MAY_BE_TOO_LARGE:
                self._refuse(limit)
                return page
        if page is None or is_complete(page) or window.width_ns % COUNTABLE_NS:
            return page
        found = len(page.entries)
        return replace(page, post_filter_lines=found) if self.count(window, text) == found else page

    def _first_page(self, text: str, window: TimeWindow, limit: int) -> QueryResult | None:
        """Return an answer with ``limit`` or fewer entries; None if only a narrower window helps.

        After a time-out the window is asked for again with one entry. If that fails too, the width of the
        window is the reason.
        """
        silent_at = 0
        while True:
            try:
                page = self._send(text, window, limit)
            except LokiError as error:
                if isinstance(error, LokiRefused) and error.asks_for_less and window.width_ns > SECOND_NS:
                    return None
                if _is_too_large(error) and limit > 1:
                    self._refuse(limit)
                    limit = max(1, min(limit // 2, PAGE_BYTES // LINE_BYTES_MOST))
                elif _is_too_large(error) and window.width_ns > 1:
                    return None
                elif isinstance(error, LokiTimeout) and limit > 1 and not silent_at:
                    limit, silent_at = 1, limit
                else:
                    raise
            else:
                if silent_at:
                    self._refuse(silent_at)
                return page

    def _send(self, text: str, window: TimeWindow, limit: int) -> QueryResult:
        """Send one query, and again where the tenant allows fewer entries."""
        self.queries, self.asked_ns = self.queries + 1, window.width_ns
        try:
            result = self._client.query_range(text, window.start_ns, window.end_ns, limit)
        except LokiRefused as error:
            if not 0 < (error.allowed_limit or 0) < limit:
                raise
            self._most = error.allowed_limit or 1
            return self._send(text, window, self._most)
        self.bytes_processed += result.bytes_processed
        if result.entries and result.answer_bytes:
            # Larger entries count at once; smaller entries only in a full answer, and step by step.
            mean = result.answer_bytes // len(result.entries) + 1
            if mean > self._entry_bytes:
                self._entry_bytes = mean
            elif len(result.entries) >= result.limit:
                self._entry_bytes = max(mean, self._entry_bytes // _GROWTH)
        return result

    def _refuse(self, limit: int) -> None:
        """Note that a page of ``limit`` entries was too large; ask for half as many at most for a while."""
        self._refused_bytes = max(self._refused_bytes, PAGE_BYTES // max(1, limit // 2))


class ByteBudget:
    """The bytes that Loki processed in the last minute, against a bound. All readers share it; thread-safe.

    When bytes run short, the past waits first, then pods, then the sweeps; polls of kernel lines wait only
    beyond the whole budget.
    """

    def __init__(self, bytes_per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bound = bytes_per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._spent: deque[tuple[float, int]] = deque()
        self._total = 0

    def spend(self, bytes_processed: int) -> None:
        """Add the bytes that Loki processed for a poll."""
        with self._lock:
            self._spent.append((self._clock(), bytes_processed))
            self._total += bytes_processed

    @property
    def used(self) -> float:
        """Return the share of the budget that the last minute used, for example 1.2 when it was overdrawn."""
        with self._lock:
            while self._spent and self._spent[0][0] < self._clock() - _MINUTE_SECONDS:
                self._total -= self._spent.popleft()[1]
            return self._total / self._bound

    def history_width_ns(self, piece: Piece, bytes_processed: int) -> int:
        """Return the width of the next window of the past, after Loki processed these bytes for ``piece``."""
        share = bytes_processed / self._bound
        if share <= 0:
            return piece.next_width_ns
        affordable_ns = int(piece.window.width_ns * HISTORY_QUERY_SHARE / share)
        return min(piece.next_width_ns, max(SECOND_NS, affordable_ns))

    @property
    def allows_history(self) -> bool:
        """Whether the past may be read: lines from before our start, and those of re-registered Nodes."""
        return self.used < _HISTORY_UPTO

    @property
    def allows_sweeps(self) -> bool:
        """Whether spans that were read before may be read again."""
        return self.used < _SWEEPS_UPTO

    def slowdown(self, source: Source) -> float:
        """Return the factor by which to lengthen the time before the next poll of that source."""
        upto = 1.0 if source is Source.KERNEL else PODS_UPTO
        return _SLOWDOWN if self.used >= upto else 1.0


def _is_too_large(error: LokiError) -> bool:
    return isinstance(error, LokiAnswerTooLarge)


def is_complete(result: QueryResult) -> bool:
    """Whether nothing can have been cut from this answer.

    An answer that was not sharded is cut at the limit only. A sharded one is complete when Loki's count is
    within the limit.
    """
    if len(result.entries) >= result.limit:
        return False
    if result.shards is not None and result.shards <= 1:
        return True
    if result.post_filter_lines is None:
        return len(result.entries) <= result.limit // 2
    return result.post_filter_lines <= result.limit


def read_span(span: TimeWindow, first_ns: int, widest_ns: int, ask: Ask) -> Iterator[Piece]:
    """Read a span piece by piece, in order; the caller may stop after any piece.

    The first window is ``first_ns`` wide. After an accepted window the next one is up to twice as wide, and
    at most ``widest_ns``. A window that was not accepted is asked for again, half as wide or narrower.
    """
    start_ns, width_ns = span.start_ns, min(first_ns, widest_ns)
    while start_ns < span.end_ns:
        window = TimeWindow(start_ns, min(start_ns + width_ns, span.end_ns))
        result = ask(window)
        if result is not None and is_complete(result):
            piece = Piece(window, result.entries, next_width_ns=_wider(width_ns, result))
        elif result is not None and (complete_until_ns := _complete_until(window, result)):
            window = TimeWindow(start_ns, complete_until_ns)
            entries = tuple(entry for entry in result.entries if entry.timestamp_ns < complete_until_ns)
            piece = Piece(window, entries, next_width_ns=_wider(window.width_ns, result))
        elif window.width_ns > 1:
            width_ns = _narrower(window, result)
            continue
        else:
            # It cannot be halved further. Loki's count, never too low, may still prove the answer complete.
            entries, counted = ((), None) if result is None else (result.entries, result.post_filter_lines)
            piece = Piece(window, entries, complete=counted is not None and counted <= len(entries))
        yield piece
        start_ns = window.end_ns
        width_ns = min(piece.next_width_ns, widest_ns)


def _complete_until(window: TimeWindow, result: QueryResult) -> int:
    """Return the time up to which a full answer certainly has everything; 0 where there is no such time."""
    if result.shards is None or result.shards > 1 or len(result.entries) < result.limit:
        return 0
    width_ns = _countable(max(entry.timestamp_ns for entry in result.entries) - window.start_ns)
    return window.start_ns + width_ns if width_ns else 0


def _wider(width_ns: int, result: QueryResult) -> int:
    """Return up to twice the width; less where that would exceed one answer, by this answer's density."""
    doubled_ns = 2 * width_ns
    if 2 * len(result.entries) < _FILL * result.limit:
        return doubled_ns
    # A window without width would be asked for for ever.
    return _countable(max(1, int(width_ns * _FILL * result.limit / len(result.entries))))


def _narrower(window: TimeWindow, result: QueryResult | None) -> int:
    """Return half the width; or the width up to a full answer's end, for a burst of lines within a moment."""
    width_ns = window.width_ns // 2
    if result is not None and len(result.entries) >= result.limit:
        last_ns = max(entry.timestamp_ns for entry in result.entries)
        width_ns = max(1, min(width_ns, last_ns - window.start_ns))
    return _countable(width_ns)


def _countable(width_ns: int) -> int:
    """Round down to whole milliseconds, which Loki can count; a width below one stays."""
    return width_ns // COUNTABLE_NS * COUNTABLE_NS or width_ns
