"""Loki's past, in the order in which the controller's polls would have had it.

Each source is read forward in windows that are proven complete, one page at a time. The cache of an earlier
run is used first (:mod:`konductor_like.backtest.cache`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter

from konductor_like.backtest.cache import HistoryCache
from konductor_like.backtest.result import TimeSpan
from konductor_like.loki.errors import LokiError, LokiTimeout
from konductor_like.loki.response import Entry, log_line
from konductor_like.loki.window_query import ByteBudget, Piece, Queries, Window, WindowQuery, read_span
from konductor_like.model import LogLine, Source
from konductor_like.model.time import SECOND_NS
from konductor_like.settings import Settings

WIDEST_NS = 6 * 3600 * SECOND_NS
"""The widest single query; a tenant whose ``max_query_length`` is below it is asked for less."""
TIMEOUTS_MOST = 6
"""A query that times out is asked again for half the span, so often in a row."""
FAILURES_MOST = 5
"""So often in a row a Loki that answered before may fail, the client's own tries of half a minute apart."""
PATIENCE_SECONDS = 10.0
"""The first rest after such a failure; each further one is longer by as much."""
_FIRST_NS = 900 * SECOND_NS


@dataclass(slots=True)
class Page:
    """The lines of one window, by time; all up to ``upto_ns`` has been given then."""

    lines: list[LogLine]
    upto_ns: int


@dataclass(slots=True)
class HistoryReader:
    """One source's history; what it adds up to so far stands beside it."""

    source: Source
    client: Queries
    query: str
    settings: Settings
    budget: ByteBudget
    pause: Callable[[float], object]
    """Waits that many seconds, for the budget's sake."""
    tell: Callable[[str], object] = lambda _: None
    """Told of what it waits for."""
    cache: HistoryCache | None = None
    keep_upto_ns: int = 0
    """Nothing later is kept: lines may yet come there."""
    lines: int = 0
    kept_lines: int = 0
    """Those of them that Loki was not asked for."""
    queries: int = 0
    bytes_processed: int = 0
    incomplete: int = 0
    waited_seconds: float = 0.0
    """For the budget's sake."""
    upto_ns: int = 0
    oldest_ns: int | None = None
    newest_ns: int | None = None
    """The first and the last of the lines found since the start of the span."""
    _read_any: bool = field(init=False, default=False)

    def pages(self, span: TimeSpan) -> Iterator[Page]:
        """All of ``span``, page by page. Raises a LokiError once asking again and for less did not help."""
        asking = WindowQuery(self.client, self.query, self.settings, WIDEST_NS)
        self.upto_ns = span.start_ns
        while self.upto_ns < span.end_ns:
            found = None if self.cache is None else self.cache.window_at(self.upto_ns)
            if found is None:
                next_ns = None if self.cache is None else self.cache.next_ns(self.upto_ns)
                yield from self._asked_for(asking, min(next_ns or span.end_ns, span.end_ns))
                continue
            window, entries = found
            end_ns = min(window.end_ns, span.end_ns)
            page = self._page((e for e in entries if self.upto_ns <= e.timestamp_ns < end_ns), end_ns)
            self.kept_lines += len(page.lines)
            yield page

    def _asked_for(self, asking: WindowQuery, end_ns: int) -> Iterator[Page]:
        """From where we are up to ``end_ns``, from Loki."""
        timeouts, failures, width_ns = 0, 0, _FIRST_NS
        while self.upto_ns < end_ns:
            try:
                rest = Window(self.upto_ns, end_ns)
                for piece in read_span(rest, width_ns, asking.widest_ns, asking.lines_of()):
                    timeouts, failures, width_ns = 0, 0, piece.next_width_ns
                    self._read_any = True
                    self.incomplete += not piece.complete
                    self._account(asking)
                    self._keep(piece)
                    yield self._page(piece.entries, piece.window.end_ns)
                    if self.budget.used >= 1:
                        self._rest()
            except LokiTimeout as error:
                timeouts += 1
                if timeouts >= TIMEOUTS_MOST:
                    raise
                asking.failed(error)
            except LokiError as error:
                self._account(asking)
                failures += 1
                if not error.transient or not self._read_any or failures > FAILURES_MOST:
                    raise
                self.tell(f"{error}; asking again in {PATIENCE_SECONDS * failures:.0f} seconds")
                self.pause(PATIENCE_SECONDS * failures)

    def _page(self, entries: Iterable[Entry], end_ns: int) -> Page:
        found = (log_line(entry, self.source, self.settings) for entry in entries)
        lines = [line for line in found if line is not None]
        lines.sort(key=attrgetter("timestamp_ns"))
        self.lines += len(lines)
        if lines:
            self.oldest_ns = self.oldest_ns or lines[0].timestamp_ns
            self.newest_ns = lines[-1].timestamp_ns
        self.upto_ns = end_ns
        return Page(lines, end_ns)

    def _keep(self, piece: Piece) -> None:
        window = Window(piece.window.start_ns, min(piece.window.end_ns, self.keep_upto_ns))
        if self.cache is None or not piece.complete or window.width_ns <= 0:
            return
        try:
            self.cache.store(window, (e for e in piece.entries if e.timestamp_ns < window.end_ns))
        except OSError:
            self.cache = None  # a full disk ends the keeping, not the run

    def _account(self, asking: WindowQuery) -> None:
        self.queries += asking.queries
        self.bytes_processed += asking.bytes_processed
        self.budget.spend(asking.bytes_processed)
        asking.begin()

    def _rest(self) -> None:
        """Loki has worked enough for us in the last minute."""
        while self.budget.used >= 1:
            self.pause(1.0)
            self.waited_seconds += 1.0


_POLL, _ORDER, _LINE = itemgetter(0), itemgetter(0, 1), itemgetter(2)


def polls(
    pages: Mapping[Source, Iterable[Page]], interval_ns: Mapping[Source, int]
) -> Iterator[tuple[int, Iterable[LogLine]]]:
    """The polls that have lines, in order: each one's time and lines.

    All times are multiples of the shortest interval. The source that was read least far is read next, and a
    poll is given as soon as no source can add to it. So when reading ends early, all that was read of every
    source has been given.
    """
    grid_ns = min(interval_ns.values())
    unread = {source: iter(pages[source]) for source in Source if source in pages}
    reached = dict.fromkeys(unread, 0)
    """No line still to come is delivered before this poll."""
    waiting: dict[Source, deque[tuple[int, int, LogLine]]] = {source: deque() for source in unread}
    places = {source: place for place, source in enumerate(unread)}
    while unread:
        source = min(unread, key=lambda each: reached[each])
        page, interval = next(unread[source], None), interval_ns[source]
        if page is None:
            del unread[source], reached[source]
        else:
            waiting[source].extend(
                (polled_ns(line.timestamp_ns, interval, grid_ns), places[source], line) for line in page.lines
            )
            reached[source] = polled_ns(page.upto_ns, interval, grid_ns)
        due = _taken(waiting.values(), min(reached.values(), default=None))
        for poll_ns, group in groupby(due, key=_POLL):
            yield poll_ns, map(_LINE, group)


def _taken(
    waiting: Iterable[deque[tuple[int, int, LogLine]]], before_ns: int | None
) -> list[tuple[int, int, LogLine]]:
    """The lines of polls before that time, in order; all of them where there is none."""
    due: list[tuple[int, int, LogLine]] = []
    for lines in waiting:
        while lines and (before_ns is None or lines[0][0] < before_ns):
            due.append(lines.popleft())
    due.sort(key=_ORDER)
    return due


def polled_ns(timestamp_ns: int, interval_ns: int, grid_ns: int) -> int:
    """The first poll that sees a line of that time."""
    return round_up(round_up(timestamp_ns + 1, interval_ns), grid_ns)


def round_up(ns: int, step_ns: int) -> int:
    """The next multiple of the step."""
    return -(-ns // step_ns) * step_ns
