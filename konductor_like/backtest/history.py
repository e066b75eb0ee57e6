"""Loki's history, in the order in which the controller's polls would have returned it.

Each source is read forward in windows that are proven complete, one page at a time. The cache of an earlier
run is used first (:mod:`konductor_like.backtest.cache`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from konductor_like.backtest.cache import HistoryCache
from konductor_like.backtest.result import History
from konductor_like.loki.query.patient import WIDEST_NS, PatientReader
from konductor_like.loki.query.response import Entry, log_lines
from konductor_like.loki.query.window_query import ByteBudget, Piece, Queries, TimeWindow, WindowQuery
from konductor_like.model import LogLine, Source
from konductor_like.settings import Settings


@dataclass(slots=True)
class Page:
    """The lines of one window, sorted by time; later pages have only lines from ``upto_ns`` on."""

    lines: list[LogLine]
    upto_ns: int


@dataclass(slots=True)
class HistoryReader:
    """Reads one source's history; the readers of all sources count their lines in the same ``found``."""

    source: Source
    client: Queries
    query: str
    settings: Settings
    found: History
    budget: ByteBudget
    pause: Callable[[float], object]
    """Waits this number of seconds, to keep within the budget or after a failure."""
    tell: Callable[[str], object] = lambda _: None
    """Prints a warning about the failure after which the reader waits."""
    cache: HistoryCache | None = None
    keep_upto_ns: int = 0
    """The time up to which windows are cached; later lines may still arrive in Loki."""
    upto_ns: int = 0
    """The time up to which the reader has returned all lines."""

    def pages(self) -> Iterator[Page]:
        """Yield the whole span, page by page. Raises a LokiError if retries and narrower queries fail."""
        asking = WindowQuery(self.client, self.query, self.settings, WIDEST_NS)
        loki = PatientReader(asking, self.budget, self.found, self.pause, self.tell)
        self.upto_ns, last_ns = self.found.asked.start_ns, self.found.asked.end_ns
        while self.upto_ns < last_ns:
            cached = None if self.cache is None else self.cache.window_at(self.upto_ns)
            if cached is None:
                next_ns = None if self.cache is None else self.cache.next_ns(self.upto_ns)
                for piece in loki.pieces(TimeWindow(self.upto_ns, min(next_ns or last_ns, last_ns))):
                    self._keep(piece)
                    yield self._page(piece.entries, piece.window.end_ns)
                continue
            window, entries = cached
            end_ns = min(window.end_ns, last_ns)
            page = self._page((e for e in entries if self.upto_ns <= e.timestamp_ns < end_ns), end_ns)
            self.found.kept_lines += len(page.lines)
            yield page

    def _page(self, entries: Iterable[Entry], end_ns: int) -> Page:
        lines = log_lines(entries, self.source, self.settings)
        self.found.count(self.source, lines)
        self.upto_ns = end_ns
        return Page(lines, end_ns)

    def _keep(self, piece: Piece) -> None:
        window = TimeWindow(piece.window.start_ns, min(piece.window.end_ns, self.keep_upto_ns))
        if self.cache is None or not piece.complete or window.width_ns <= 0:
            return
        try:
            self.cache.store(window, (e for e in piece.entries if e.timestamp_ns < window.end_ns))
        except OSError:
            self.cache = None  # a full disk ends the caching, not the run


_POLL = itemgetter(0)


def polls(
    pages: Mapping[Source, Iterable[Page]], interval_ns: Mapping[Source, int]
) -> Iterator[tuple[int, list[LogLine]]]:
    """Yield the time and lines of each poll in order: polls with lines, and the poll at each page's end.

    All times are multiples of the shortest interval. The next page is always read from the source that has
    reached the earliest time, and a poll is yielded once no source can add lines to it. So if reading ends
    early, all lines up to the common time have been yielded.
    """
    grid_ns = min(interval_ns.values())

    def polled(source: Source) -> Iterator[tuple[int, LogLine | None]]:
        for page in pages[source]:
            for line in page.lines:
                yield polled_ns(line.timestamp_ns, interval_ns[source], grid_ns), line
            yield polled_ns(page.upto_ns, interval_ns[source], grid_ns), None

    sources = [polled(source) for source in Source if source in pages]
    for poll_ns, group in groupby(heapq.merge(*sources, key=_POLL), key=_POLL):
        yield poll_ns, [line for _, line in group if line is not None]


def polled_ns(timestamp_ns: int, interval_ns: int, grid_ns: int) -> int:
    """Return the time of the first poll that reads a line with this timestamp."""
    return round_up(round_up(timestamp_ns + 1, interval_ns), grid_ns)


def round_up(ns: int, step_ns: int) -> int:
    """Return ``ns`` rounded up to a multiple of the step."""
    return -(-ns // step_ns) * step_ns
