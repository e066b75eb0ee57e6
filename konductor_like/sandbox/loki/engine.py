"""Queries run over the store, and Loki's cache of ranges in which a query found nothing."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from konductor_like.sandbox.loki.labels import Labels
from konductor_like.sandbox.loki.logql import CountQuery, LogQuery
from konductor_like.sandbox.loki.store import Store, Stream

_REMEMBERED = 8
"""Queries whose matches a stream remembers."""


class Hit(NamedTuple):
    """One line of an answer, with the index labels of its stream and its own metadata."""

    timestamp_ns: int
    line: str
    stream: Labels
    metadata: Labels


@dataclass(slots=True)
class Work:
    """What a query cost, for the ``stats`` of the answer."""

    lines: int = 0
    bytes: int = 0
    metadata_bytes: int = 0
    post_filter_lines: int = 0
    shards: int = 1

    def read(self, lines: int, sizes: tuple[int, int]) -> None:
        """Count lines that were looked at, and their bytes: all, and those of metadata."""
        self.lines += lines
        self.bytes += sizes[0]
        self.metadata_bytes += sizes[1]


@dataclass(slots=True)
class Matches:
    """The lines of one stream that pass one query, each looked at once. Hits and times run in parallel."""

    reordered: int
    looked_at: int = 0
    hits: list[Hit] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def look_on(self, stream: Stream, query: LogQuery) -> None:
        """Look at the lines that came since."""
        fresh, self.looked_at = stream.entries[self.looked_at :], len(stream.entries)
        if not query.holds_text("\n".join(entry.line for entry in fresh)):
            return  # a shortcut: most streams have no line that is wanted
        for entry in fresh:
            if query.passes(stream.labels, entry):
                self.hits.append(Hit(entry.timestamp_ns, entry.line, stream.labels, entry.metadata))
                self.times.append(entry.timestamp_ns)

    def between(self, start_ns: int, end_ns: int) -> list[Hit]:
        """Those of [start, end)."""
        return self.hits[bisect_left(self.times, start_ns) : bisect_left(self.times, end_ns)]


def matches(stream: Stream, query: LogQuery) -> Matches:
    """The matches as of now; the store's lock must be held."""
    found = stream.matches.pop(query, None)
    if not isinstance(found, Matches) or found.reordered != stream.reordered:
        found = Matches(stream.reordered)
    stream.matches[query] = found  # the latest asked is the last to be forgotten
    while len(stream.matches) > _REMEMBERED:
        del stream.matches[next(iter(stream.matches))]
    found.look_on(stream, query)
    return found


def find_lines(store: Store, query: LogQuery, start_ns: int, end_ns: int, work: Work) -> list[Hit]:
    """All matches of [start, end), by time over all streams."""
    hits: list[Hit] = []
    with store.lock:
        for stream, entries in store.select(query.selects, start_ns, end_ns):
            work.read(len(entries), stream.sizes(start_ns, end_ns))
            hits += matches(stream, query).between(start_ns, end_ns)
    work.post_filter_lines += len(hits)
    hits.sort(key=lambda hit: hit.timestamp_ns)
    return hits


def cut(hits: list[Hit], limit: int, forward: bool, falls_short: bool) -> list[Hit]:
    """The first ``limit`` matches in the asked direction, whatever their streams.

    With ``falls_short`` an answer that had to be cut lacks more than that, with holes: the fault of sharded
    queries (grafana/loki#19133).
    """
    ordered = hits if forward else hits[::-1]
    first = ordered[:limit]
    if not falls_short or len(hits) <= limit:
        return first
    return [hit for number, hit in enumerate(first) if number % 5 != 4]


def count_lines(store: Store, query: CountQuery, at_ns: int, work: Work) -> int:
    """How many lines lie in the time before the moment, without its start and with the moment itself."""
    return len(find_lines(store, query.lines, at_ns - query.width_ns + 1, at_ns + 1, work))


Find = Callable[[int, int], list[Hit]]


class Span(NamedTuple):
    """[start, end) in ns."""

    start_ns: int
    end_ns: int

    def overlaps(self, other: Span) -> bool:
        """Whether they touch, as Loki's ``overlap`` sees it."""
        return self.start_ns <= other.end_ns and other.start_ns <= self.end_ns

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


def split(span: Span, interval_ns: int) -> Iterator[Span]:
    """The span in pieces that end at multiples of the interval."""
    start_ns = span.start_ns
    while start_ns < span.end_ns:
        end_ns = min(span.end_ns, (start_ns // interval_ns + 1) * interval_ns)
        yield Span(start_ns, end_ns)
        start_ns = end_ns


class EmptyResults:
    """Which spans are known to be empty, one per query text and interval. Thread-safe.

    This cache makes a late line invisible: Loki remembers that a filtered log query found nothing in a range
    and, asked again for the same text, does not look there any more, even if a line has arrived since. Only
    ranges that end long enough ago are remembered, and the header ``Cache-Control: no-cache`` goes past it.
    Source: pkg/querier/queryrange/log_result_cache.go.
    """

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._known: dict[tuple[str, str, int], Span] = {}
        self._lock = threading.Lock()

    def find(self, tenant: str, query: str, span: Span, newest_cached_ns: int, find: Find) -> list[Hit]:
        """The matches of the span, asked of ``find`` where they are not known to be none."""
        hits: list[Hit] = []
        with self._lock:
            for piece in split(span, self._interval_ns):
                if piece.end_ns > newest_cached_ns:
                    hits += find(*piece)
                else:
                    hits += self._find_piece(
                        (tenant, query, piece.start_ns // self._interval_ns), piece, find
                    )
        return hits

    def _find_piece(self, key: tuple[str, str, int], piece: Span, find: Find) -> list[Hit]:
        known = self._known.get(key)
        if known is None or not known.overlaps(piece):
            hits = find(*piece)
            if not hits and (known is None or piece.length_ns > known.length_ns):
                self._known[key] = piece
            return hits
        before: list[Hit] = []
        after: list[Hit] = []
        if piece.start_ns < known.start_ns:
            before = find(piece.start_ns, known.start_ns)
            if not before:
                known = Span(piece.start_ns, known.end_ns)
        if piece.end_ns > known.end_ns:
            after = find(known.end_ns, piece.end_ns)
            if not after:
                known = Span(known.start_ns, piece.end_ns)
        self._known[key] = known
        return before + after
