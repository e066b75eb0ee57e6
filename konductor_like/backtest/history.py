"""Loki's history, in the order in which the controller's polls would have returned it.

Each source is read forward in windows that are proven complete, one page at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from konductor_like.backtest.result import History
from konductor_like.loki.query.patient import WIDEST_NS, PatientReader
from konductor_like.loki.query.response import log_lines
from konductor_like.loki.query.window_query import ByteBudget, Queries, WindowQuery
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
    upto_ns: int = 0
    """The time up to which the reader has returned all lines."""

    def pages(self) -> Iterator[Page]:
        """Yield the whole span, page by page. Raises a LokiError if retries and narrower queries fail."""
        asking = WindowQuery(self.client, self.query, self.settings, WIDEST_NS)
        loki = PatientReader(asking, self.budget, self.found, self.pause, self.tell)
        self.upto_ns = self.found.asked.start_ns
        for piece in loki.pieces(self.found.asked):
            lines = log_lines(piece.entries, self.source, self.settings)
            self.found.count(self.source, lines)
            self.upto_ns = piece.window.end_ns
            yield Page(lines, self.upto_ns)


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
