"""Spans of silence: cut by heartbeats that were read late, grouped over the fleet, given up when too old.

Pure. A span is ``(start_ns, end_ns)`` between two heartbeats that are further apart than a silence may be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from konductor_like.model import Gap

Span = tuple[int, int]
OpenSpan = tuple[int, int | None]
"""With no end while the silence lasts."""

SECOND_NS = 1_000_000_000
GAPS_MOST = 50
SPANS_PER_NODE = 8
_NEVER_NS = 1 << 63
# Of a week, the longest that a gap is kept, days make fewer than GAPS_MOST spans.
_ROUNDING_NS = tuple(seconds * SECOND_NS for seconds in (60, 300, 900, 3600, 6 * 3600, 24 * 3600))


def cut(spans: Sequence[Span], at_ns: int, quiet_ns: int) -> list[Span]:
    """What is left after a heartbeat at that time: parts no longer than ``quiet_ns`` are no gaps."""
    left: list[Span] = []
    for start_ns, end_ns in spans:
        if start_ns < at_ns < end_ns:
            parts = ((start_ns, at_ns), (at_ns, end_ns))
            left += [part for part in parts if part[1] - part[0] > quiet_ns]
        else:
            left.append((start_ns, end_ns))
    return fewest(left)


def fewest(spans: list[Span]) -> list[Span]:
    """At most so many as are kept of one node: the closest neighbours become one, never less than both."""
    while len(spans) > SPANS_PER_NODE:
        spans = sorted(spans)
        near = min(range(len(spans) - 1), key=lambda i: spans[i + 1][0] - spans[i][1])
        spans[near : near + 2] = [(spans[near][0], max(spans[near][1], spans[near + 1][1]))]
    return spans


def grouped(missing: Iterable[tuple[str, OpenSpan]], fleet: Collection[str]) -> tuple[Gap, ...]:
    """The gaps of all nodes as few values: spans rounded outwards, coarser the more there are."""
    found = list(missing)
    nodes_by_span: dict[OpenSpan, set[str]] = {}
    for rounding_ns in _ROUNDING_NS:
        nodes_by_span = defaultdict(set)
        for node, span in found:
            nodes_by_span[_outwards(span, rounding_ns)].add(node)
        if len(nodes_by_span) <= GAPS_MOST:
            break
    ordered = sorted(nodes_by_span.items(), key=lambda item: (item[0][0], item[0][1] or _NEVER_NS))
    return tuple(gap_of(span, nodes, fleet) for span, nodes in ordered)


def gap_of(span: OpenSpan, nodes: Collection[str], fleet: Collection[str]) -> Gap:
    """The gap of these nodes, told by whichever is shorter: them or the others."""
    if 2 * len(nodes) <= len(fleet):
        return Gap(*span, frozenset(nodes))
    return Gap(*span, frozenset(fleet).difference(nodes), all_but=True)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same time without overlaps, in order."""
    result: list[Span] = []
    for start_ns, end_ns in sorted(spans):
        if result and start_ns <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end_ns))
        else:
            result.append((start_ns, end_ns))
    return tuple(result)


def _outwards(span: OpenSpan, rounding_ns: int) -> OpenSpan:
    start_ns, end_ns = span
    rounded_ns = start_ns // rounding_ns * rounding_ns
    return rounded_ns, None if end_ns is None else -(-end_ns // rounding_ns) * rounding_ns
