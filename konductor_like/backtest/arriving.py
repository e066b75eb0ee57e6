"""When the controller would have had a line: at the poll of its source after its timestamp."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter

from konductor_like.backtest.reading import Page
from konductor_like.model import LogLine, Source

Delivered = tuple[int, Iterable[LogLine]]
"""The time of a tick, in Loki's nanoseconds, and the lines that it judges."""

_tick, _line = itemgetter(0), itemgetter(2)


def arrivals(
    pages: Mapping[Source, Iterable[Page]], interval_ns: Mapping[Source, int], grid_ns: int
) -> Iterator[Delivered]:
    """The ticks that have lines, in order. All times are multiples of ``grid_ns``, the shortest interval."""
    streams = [
        _delivered(pages[source], interval_ns[source], grid_ns, place)
        for place, source in enumerate(Source)
        if source in pages
    ]
    merged = heapq.merge(*streams, key=itemgetter(0, 1)) if len(streams) > 1 else streams[0]
    for tick_ns, group in groupby(merged, key=_tick):
        yield tick_ns, map(_line, group)


def _delivered(
    pages: Iterable[Page], interval_ns: int, grid_ns: int, place: int
) -> Iterator[tuple[int, int, LogLine]]:
    for page in pages:
        for line in page.lines:
            yield polled_ns(line.timestamp_ns, interval_ns, grid_ns), place, line


def polled_ns(timestamp_ns: int, interval_ns: int, grid_ns: int) -> int:
    """The first poll that sees a line of that time, on the grid of ticks."""
    return round_up(round_up(timestamp_ns + 1, interval_ns), grid_ns)


def round_up(ns: int, step_ns: int) -> int:
    """The next multiple of the step."""
    return -(-ns // step_ns) * step_ns
