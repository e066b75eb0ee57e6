"""Queries run over the store."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from konductor_like.sandbox.loki.labels import Labels
from konductor_like.sandbox.loki.limits import SECOND_NS, LokiError, LokiLimits
from konductor_like.sandbox.loki.logql import LogQuery, MetricQuery, RangeAggregation, Sum
from konductor_like.sandbox.loki.store import Store, Stream

_REMEMBERED = 8
"""Queries whose matches a stream remembers."""


class Hit(NamedTuple):
    """One line of an answer, with the stream labels and the metadata that the pipeline left it."""

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
        if query.rules_out("\n".join(entry.line for entry in fresh)):
            return
        for entry in fresh:
            labels = query.labels_of(stream.labels, entry)
            if labels is not None:
                self.hits.append(Hit(entry.timestamp_ns, entry.line, *labels))
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


@dataclass(slots=True)
class Samples:
    """The samples of one series, in the order of time."""

    times: list[int] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    """Running totals: the value of a window is the difference of two."""

    def of_window(self, after_ns: int, until_ns: int) -> int | None:
        """The sum over (after, until]; None without a sample."""
        first, last = bisect_right(self.times, after_ns), bisect_right(self.times, until_ns)
        if first == last:
            return None
        return self.totals[last - 1] - (self.totals[first - 1] if first else 0)


def evaluate(
    store: Store, query: MetricQuery, steps_ns: list[int], limits: LokiLimits, work: Work
) -> dict[Labels, list[tuple[int, float]]]:
    """The points of every series at the given times. Raises ``LokiError`` if the series are too many."""
    aggregation, grouping = _flattened(query)
    hits = find_lines(store, aggregation.query, steps_ns[0] - aggregation.range_ns, steps_ns[-1] + 1, work)
    divisor = aggregation.range_ns / SECOND_NS if aggregation.function.endswith("rate") else 1
    of_bytes = aggregation.function.startswith("bytes")
    answer = {}
    for labels, samples in _series(hits, grouping, of_bytes).items():
        points = [(at, samples.of_window(at - aggregation.range_ns, at)) for at in steps_ns]
        present = [(at, value / divisor) for at, value in points if value is not None]
        if present:
            answer[labels] = present
    if len(answer) > limits.max_query_series:
        raise LokiError(
            400,
            f"maximum number of series ({limits.max_query_series}) reached for a single query; consider "
            "reducing query cardinality by adding more specific stream selectors, reducing the time range, "
            "or aggregating results with functions like sum(), count() or topk()",
        )
    return dict(sorted(answer.items()))


def _flattened(query: MetricQuery) -> tuple[RangeAggregation, list[Sum]]:
    """The aggregation over lines, and the sums around it from the innermost outwards."""
    sums: list[Sum] = []
    while isinstance(query, Sum):
        sums.insert(0, query)
        query = query.inner
    return query, sums


def _series(hits: Iterable[Hit], grouping: list[Sum], of_bytes: bool) -> dict[Labels, Samples]:
    values: dict[Labels, list[tuple[int, int]]] = defaultdict(list)
    known: dict[tuple[Labels, Labels], list[tuple[int, int]]] = {}
    for hit in hits:
        series = known.get((hit.stream, hit.metadata))
        if series is None:
            labels = tuple(sorted((*hit.stream, *hit.metadata)))
            for one in grouping:
                labels = one.group(labels)
            series = known[hit.stream, hit.metadata] = values[labels]
        series.append((hit.timestamp_ns, len(hit.line.encode()) if of_bytes else 1))
    return {
        labels: Samples([at for at, _ in samples], list(accumulate(value for _, value in samples)))
        for labels, samples in values.items()
    }
