"""Reading a span of time in windows that are each proven complete, with answers that Loki can hand over.

Loki's sharded queries may silently return fewer lines than match once more than ``limit`` do (rule 7),
so a window is accepted only if it was not sharded, or if a count of Loki's says that nothing was cut, and is
halved otherwise. Of a full answer that was not sharded, all but its last moment is accepted: it is cut there
and nowhere else. Windows come in the order of time and touch without overlapping, so what was accepted is
always one span without a hole.

Loki's parts hand over 4 MiB at most unless configured otherwise. A larger answer never comes: Loki says so
(413, ResourceExhausted), or keeps silent until it times out. So a page of entries is sized to
:data:`PAGE_BYTES` by how large entries were of late. For example, kernel lines with the shipped collector's
metadata take 820 bytes, which makes pages of 2,500; pod lines of 100 KB make pages of 20.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from konductor_like.loki.errors import (
    LokiAnswerTooLarge,
    LokiError,
    LokiRefused,
    LokiTimeout,
    LokiUnavailable,
)
from konductor_like.loki.logql import of_nodes
from konductor_like.loki.response import Count, Entry, QueryResult
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS
from konductor_like.settings import Settings

COUNTABLE_NS = 1_000_000
"""Loki's durations know nothing finer."""
_FILL = 0.85
STORM_LINES = 1000
"""Lines of noisy nodes are asked for in smaller answers: nobody waits for them, and they take memory."""
PAGE_BYTES = 2 * 2**20
"""How large an answer should be. Between Loki's parts, which hand over 4 MiB by default, kernel lines with
the shipped collector's metadata take 1.35 times as much as over HTTP."""
_ENTRY_BYTES = {Source.KERNEL: 2 * 2**10, Source.POD: 10 * 2**10}
"""How large a line is taken to be in an answer, metadata included, until entries tell."""
LINE_BYTES_MOST = 288 * 2**10
"""The longest line that Loki takes by default (256 KB), and its metadata."""
_GROWTH = 4
"""How much smaller than before entries may be taken to be because of one answer."""
_FORGET_SHARE = 5
"""One part in so many of what was learnt is forgotten with each poll."""
_KEEP_SHARE = 20
"""The same of how large a page was refused: trying a larger one may cost a minute of silence."""
_LEAST_ENTRIES = 2
"""One entry may fill a page of one, which says nothing about what else there is."""
_NARROWEST_NS = 10 * SECOND_NS
"""A Loki that cannot read so much before it times out falls behind whatever is asked."""

_MINUTE_SECONDS = 60.0
_HISTORY_UPTO = 0.5
_PODS_UPTO = 0.7
_SWEEPS_UPTO = 0.85
_SLOWDOWN = 6.0

_MAY_BE_TOO_LARGE = (LokiAnswerTooLarge, LokiTimeout, LokiUnavailable)
"""How a Loki fails that cannot hand an answer over."""


@dataclass(frozen=True, slots=True)
class Window:
    """The half-open span ``[start_ns, end_ns)``."""

    start_ns: int
    end_ns: int

    @property
    def width_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Piece:
    """An accepted window and its entries.

    ``complete`` is False only for a single nanosecond with more lines than Loki gives out: then ``entries``
    are what could be had.
    """

    window: Window
    entries: tuple[Entry, ...]
    complete: bool = True
    next_width_ns: int = field(default=1, compare=False)
    """How wide the next window may well be: fuller than this one, but not too full."""


Ask = Callable[[Window], QueryResult | None]
"""Queries one window; None when the answer would be too large, which is never so for a single nanosecond."""


class Queries(Protocol):
    """The part of a client that readers use; see :class:`konductor_like.loki.client.LokiClient`."""

    def query_range(self, query: str, start_ns: int, end_ns: int, limit: int) -> QueryResult:
        """See the client."""

    def count(self, query: str, start_ns: int, end_ns: int) -> Count:
        """See the client."""


class WindowQuery:
    """Asks for windows, and for less where an answer is too large or takes too long.

    ``queries`` and ``bytes_processed`` add up until :meth:`begin`.
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
        """``text`` is the query, for ``limit`` entries at most, or as many as the settings allow."""
        self.text = text
        self.widest_ns = widest_ns
        """How wide a window may be for now."""
        self.asked_ns = widest_ns
        """How wide the latest window was."""
        self.queries = 0
        self.bytes_processed = 0
        self._client = client
        self._node_label = settings.node_label
        self._most = limit or settings.loki_limit
        self._full_width_ns = widest_ns
        self._usual_bytes = self._entry_bytes = _ENTRY_BYTES[source]
        self._refused_bytes = 0
        """How large an entry is taken to be at least, because pages were too large of late."""

    @property
    def limit(self) -> int:
        """How many entries are asked for at once: what the tenant allows and an answer can hold."""
        weight = max(self._entry_bytes, self._refused_bytes)
        return min(self._most, max(_LEAST_ENTRIES, PAGE_BYTES // weight))

    def begin(self) -> None:
        """A new poll begins."""
        self.queries = self.bytes_processed = 0

    def failed(self, error: LokiError) -> None:
        """A poll, or a part of it, ended with this: ask for less from now on, where that may help."""
        if isinstance(error, LokiTimeout):
            self.widest_ns = max(_NARROWEST_NS, min(self.widest_ns, self.asked_ns) // 2)

    def succeeded(self) -> None:
        """A poll went well. Widening slowly keeps a slow Loki from timing out on every other poll."""
        self.widest_ns = min(self._full_width_ns, self.widest_ns + self._full_width_ns // 64)
        self._entry_bytes += (self._usual_bytes - self._entry_bytes) // _FORGET_SHARE
        self._refused_bytes -= self._refused_bytes // _KEEP_SHARE

    def lines_of(self, *, only: Collection[str] = (), without: Collection[str] = ()) -> Ask:
        """A callable that asks for windows of these nodes only, or of all but those."""
        nodes = only or without
        text = of_nodes(self.text, self._node_label, nodes, without=not only) if nodes else self.text
        return partial(self._ask, text, STORM_LINES if only else self._most)

    def read(
        self,
        span: Window,
        first_ns: int,
        *,
        widest_ns: int | None = None,
        only: Collection[str] = (),
        queries: int = 1,
        lines: int = 1,
    ) -> list[Piece]:
        """A poll of its own: read a span from its start on, until so many queries or lines are reached.

        It gives one piece at least. Raises a LokiError.
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

    def count(self, window: Window, text: str | None = None) -> int:
        """How many lines Loki counts in a window of whole milliseconds."""
        self.queries, self.asked_ns = self.queries + 1, window.width_ns
        count = self._client.count(text or self.text, window.start_ns, window.end_ns)
        self.bytes_processed += count.bytes_processed
        return count.lines

    def _ask(self, text: str, most: int, window: Window) -> QueryResult | None:
        """One window's answer, of as many entries as Loki can hand over; None when it only comes in parts.

        A page that turns out too small says little about who fills it: it grows, and where that fails the
        smaller page will do. Where the answer alone cannot say that nothing was cut, Loki counts the lines.
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

    def _first_page(self, text: str, window: Window, limit: int) -> QueryResult | None:
        """An answer of ``limit`` entries, or of as many as Loki hands over; None where only less time helps.

        A window that gave no answer is asked again for one entry. If that gives none either, the width of the
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

    def _send(self, text: str, window: Window, limit: int) -> QueryResult:
        """Ask once, and again where the tenant allows fewer entries."""
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
            # Larger entries count at once; smaller ones where they filled the answer, and step by step.
            mean = result.answer_bytes // len(result.entries) + 1
            if mean > self._entry_bytes:
                self._entry_bytes = mean
            elif len(result.entries) >= result.limit:
                self._entry_bytes = max(mean, self._entry_bytes // _GROWTH)
        return result

    def _refuse(self, limit: int) -> None:
        """A page of so many was too large: for a while none is more than half as large."""
        self._refused_bytes = max(self._refused_bytes, PAGE_BYTES // max(1, limit // 2))


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


def _is_too_large(error: LokiError) -> bool:
    return isinstance(error, LokiAnswerTooLarge)


def is_complete(result: QueryResult) -> bool:
    """Whether nothing can have been cut from this answer.

    One that was not sharded is cut at the limit only; the count of a sharded one tells, where it is low.
    """
    if len(result.entries) >= result.limit:
        return False
    if result.shards is not None and result.shards <= 1:
        return True
    if result.post_filter_lines is None:
        return len(result.entries) <= result.limit // 2
    return result.post_filter_lines <= result.limit


def read_span(span: Window, first_ns: int, widest_ns: int, ask: Ask) -> Iterator[Piece]:
    """Read a span piece by piece, in order; the caller may stop after any piece.

    The first window is ``first_ns`` wide. Each window that was accepted makes the next one twice as wide, up
    to ``widest_ns``; each that was not is asked again with half the width or less.
    """
    start_ns, width_ns = span.start_ns, min(first_ns, widest_ns)
    while start_ns < span.end_ns:
        window = Window(start_ns, min(start_ns + width_ns, span.end_ns))
        result = ask(window)
        if result is not None and is_complete(result):
            piece = Piece(window, result.entries, next_width_ns=_wider(width_ns, result))
        elif result is not None and (whole_ns := _whole_before(window, result)):
            window = Window(start_ns, whole_ns)
            entries = tuple(entry for entry in result.entries if entry.timestamp_ns < whole_ns)
            piece = Piece(window, entries, next_width_ns=_wider(window.width_ns, result))
        elif window.width_ns > 1:
            width_ns = _narrower(window, result)
            continue
        else:
            # No half is left. Loki's count, never too low, may still prove the answer complete.
            entries, counted = ((), None) if result is None else (result.entries, result.post_filter_lines)
            piece = Piece(window, entries, complete=counted is not None and counted <= len(entries))
        yield piece
        start_ns = window.end_ns
        width_ns = min(piece.next_width_ns, widest_ns)


def _whole_before(window: Window, result: QueryResult) -> int:
    """Up to where a full answer surely holds everything; 0 where that is nowhere."""
    if result.shards is None or result.shards > 1 or len(result.entries) < result.limit:
        return 0
    width_ns = _countable(max(entry.timestamp_ns for entry in result.entries) - window.start_ns)
    return window.start_ns + width_ns if width_ns else 0


def _wider(width_ns: int, result: QueryResult) -> int:
    """Up to twice as wide; less where that would hold more than one answer does, by this one's density."""
    doubled_ns = 2 * width_ns
    if 2 * len(result.entries) < _FILL * result.limit:
        return doubled_ns
    # A window of no width would be asked for without end.
    return _countable(max(1, int(width_ns * _FILL * result.limit / len(result.entries))))


def _narrower(window: Window, result: QueryResult | None) -> int:
    """Half as wide; or up to where a full answer ended, for a burst of lines within a moment."""
    width_ns = window.width_ns // 2
    if result is not None and len(result.entries) >= result.limit:
        last_ns = max(entry.timestamp_ns for entry in result.entries)
        width_ns = max(1, min(width_ns, last_ns - window.start_ns))
    return _countable(width_ns)


def _countable(width_ns: int) -> int:
    """Cut to whole milliseconds, which Loki can count; less than one stays."""
    return width_ns // COUNTABLE_NS * COUNTABLE_NS or width_ns
