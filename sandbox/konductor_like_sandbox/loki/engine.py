"""Run queries over the store, with Loki's cache of ranges in which a query found nothing."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from konductor_like_sandbox.loki.labels import Labels
from konductor_like_sandbox.loki.logql import CountQuery, LogQuery
from konductor_like_sandbox.loki.store import Store, Stream

_REMEMBERED = 8
"""Queries whose matches one stream keeps, at most."""


class Hit(NamedTuple):
    """One line of an answer, with the index labels of its stream and its own metadata."""

    timestamp_ns: int
    line: str
    stream: Labels
    metadata: Labels


@dataclass(slots=True)
class Work:
    """The cost of a query, for the ``stats`` of the answer."""

    lines: int = 0
    bytes: int = 0
    metadata_bytes: int = 0
    post_filter_lines: int = 0
    shards: int = 1

    def read(self, lines: int, sizes: tuple[int, int]) -> None:
        """Add lines that were read, with all their bytes and those of the metadata."""
        self.lines += lines
        self.bytes += sizes[0]
        self.metadata_bytes += sizes[1]


@dataclass(slots=True)
class Matches:
    """The lines of one stream that match one query. Each line is tested once."""

    reordered: int
    looked_at: int = 0
    hits: list[Hit] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def look_on(self, stream: Stream, query: LogQuery) -> None:
        """Test the lines that came since the last call."""
        fresh, self.looked_at = stream.entries[self.looked_at :], len(stream.entries)
        if not query.holds_text("\n".join(entry.line for entry in fresh)):
            return  # a shortcut: most streams have no matching line
        for entry in fresh:
            if query.passes(stream.labels, entry):
                self.hits.append(Hit(entry.timestamp_ns, entry.line, stream.labels, entry.metadata))
                self.times.append(entry.timestamp_ns)

    def between(self, start_ns: int, end_ns: int) -> list[Hit]:
        """Return the matches in [start, end)."""
        return self.hits[bisect_left(self.times, start_ns) : bisect_left(self.times, end_ns)]


def matches(stream: Stream, query: LogQuery) -> Matches:
    """Return the present matches; the caller must have the store's lock."""
    found = stream.matches.pop(query, None)
    if not isinstance(found, Matches) or found.reordered != stream.reordered:
        found = Matches(stream.reordered)
    stream.matches[query] = found  # the query that was asked last is dropped last
    while len(stream.matches) > _REMEMBERED:
        del stream.matches[next(iter(stream.matches))]
    found.look_on(stream, query)
    return found


def find_lines(store: Store, query: LogQuery, start_ns: int, end_ns: int, work: Work) -> list[Hit]:
    """Return all matches in [start, end), of all streams, by time."""
    hits: list[Hit] = []
    with store.lock:
        for stream, entries in store.select(query.selects, start_ns, end_ns):
            work.read(len(entries), stream.sizes(start_ns, end_ns))
            hits += matches(stream, query).between(start_ns, end_ns)
    work.post_filter_lines += len(hits)
    hits.sort(key=lambda hit: hit.timestamp_ns)
    return hits


def cut(hits: list[Hit], limit: int, forward: bool, falls_short: bool) -> list[Hit]:
    """Return the first ``limit`` matches of all streams, in the direction that was asked for.

    With ``falls_short`` an answer that is cut also lacks lines in between, which is a defect of sharded
    queries (grafana/loki#19133).
    """
    ordered = hits if forward else hits[::-1]
    first = ordered[:limit]
    if not falls_short or len(hits) <= limit:
        return first
    return [hit for number, hit in enumerate(first) if number % 5 != 4]


def count_lines(store: Store, query: CountQuery, at_ns: int, work: Work) -> int:
    """Count the lines in the span that ends at a moment: without its start, with the moment itself."""
    return len(find_lines(store, query.lines, at_ns - query.width_ns + 1, at_ns + 1, work))


Find = Callable[[int, int], list[Hit]]


class Span(NamedTuple):
    """A span [start, end) in nanoseconds."""

    start_ns: int
    end_ns: int

    def overlaps(self, other: Span) -> bool:
        """Whether two spans touch, as Loki's ``overlap`` defines it."""
        return self.start_ns <= other.end_ns and other.start_ns <= self.end_ns

    @property
    def length_ns(self) -> int:
        """The length in nanoseconds."""
        return self.end_ns - self.start_ns


def split(span: Span, interval_ns: int) -> Iterator[Span]:
    """Return the span in pieces that end at multiples of the interval."""
    start_ns = span.start_ns
    while start_ns < span.end_ns:
        end_ns = min(span.end_ns, (start_ns // interval_ns + 1) * interval_ns)
        yield Span(start_ns, end_ns)
        start_ns = end_ns


class EmptyResults:
    """Loki's cache of spans known to be empty, one per query text and interval. Thread-safe.

    This cache hides late lines: after a filtered log query found nothing in a range, Loki does not search the
    range again for the same text, even if a line has arrived since. Only ranges that ended some time ago are
    cached, and a request with the header ``Cache-Control: no-cache`` bypasses the cache.
    Source: pkg/querier/queryrange/log_result_cache.go.
    """

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._known: dict[tuple[str, str, int], Span] = {}
        self._lock = threading.Lock()

    def find(self, tenant: str, query: str, span: Span, newest_cached_ns: int, find: Find) -> list[Hit]:
        """Return the matches of a span; ``find`` is called for the parts that are not known to be empty."""
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
