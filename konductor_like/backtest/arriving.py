"""When the controller would have had a line: at the poll of its source after its timestamp."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter

from konductor_like.backtest.reading import Page
from konductor_like.model import LogLine, Source

Delivered = tuple[int, Iterable[LogLine]]
"""The time of a tick, in Loki's nanoseconds, and the lines that it judges."""

_tick, _order, _line = itemgetter(0), itemgetter(0, 1), itemgetter(2)


def arrivals(
    pages: Mapping[Source, Iterable[Page]], interval_ns: Mapping[Source, int], grid_ns: int
) -> Iterator[Delivered]:
    """The ticks that have lines, in order. All times are multiples of ``grid_ns``, the shortest interval.

    The source that was read least far is read next, and a tick is given as soon as no source can add to it:
    when reading ends early, all that was read of every source has been given.
    """
    unread = {source: iter(pages[source]) for source in Source if source in pages}
    reached = dict.fromkeys(unread, 0)
    """No line still to come is delivered before this tick."""
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
        for tick_ns, group in groupby(due, key=_tick):
            yield tick_ns, map(_line, group)


def _taken(
    waiting: Iterable[deque[tuple[int, int, LogLine]]], before_ns: int | None
) -> list[tuple[int, int, LogLine]]:
    """What is to be given before that tick, in order; all of it where there is none."""
    due: list[tuple[int, int, LogLine]] = []
    for lines in waiting:
        while lines and (before_ns is None or lines[0][0] < before_ns):
            due.append(lines.popleft())
    due.sort(key=_order)
    return due


def polled_ns(timestamp_ns: int, interval_ns: int, grid_ns: int) -> int:
    """The first poll that sees a line of that time, on the grid of ticks."""
    return round_up(round_up(timestamp_ns + 1, interval_ns), grid_ns)


def round_up(ns: int, step_ns: int) -> int:
    """The next multiple of the step."""
    return -(-ns // step_ns) * step_ns
