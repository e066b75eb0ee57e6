"""Gaps in the nodes' kernel logs: spans in which a log was not heard, one per node.

A span is ``(start_ns, end_ns)`` between two heartbeats that are further apart than a silence may be. After
two outages the node has one longer gap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from konductor_like.model import Gap
from konductor_like.model.time import SECOND_NS

Span = tuple[int, int]
OpenSpan = tuple[int, int | None]
"""With no end while the silence lasts."""

GAPS_MOST = 50
_MINUTE_NS = 60 * SECOND_NS


@dataclass(slots=True)
class NodeGap:
    """The gap of one node. It never shrinks; it closes when all heartbeats of it were read after all."""

    start_ns: int
    """The last heartbeat before it."""
    end_ns: int
    """The first heartbeat after it."""
    found_ns: int
    """Up to here its heartbeats were read after all."""
    found_all_ns: int | None = None
    """When the last of them was read."""

    def found(self, at_ns: int, quiet_ns: int) -> None:
        """A heartbeat of that time was read late. One that leaves a silence before it tells nothing yet."""
        if self.found_ns < at_ns <= self.end_ns and at_ns - self.found_ns <= quiet_ns:
            self.found_ns = self.end_ns if self.end_ns - at_ns <= quiet_ns else at_ns

    @property
    def span(self) -> Span:
        """All of it."""
        return self.start_ns, self.end_ns

    @property
    def missing(self) -> Span | None:
        """The part whose heartbeats were not read yet."""
        return (self.found_ns, self.end_ns) if self.found_ns < self.end_ns else None


def longer(gap: NodeGap | None, start_ns: int, end_ns: int) -> NodeGap:
    """The node's gap after one more silence."""
    if gap is None:
        return NodeGap(start_ns, end_ns, start_ns)
    return NodeGap(gap.start_ns, end_ns, gap.found_ns if gap.missing else start_ns)


def hull(spans: Iterable[Span]) -> Span | None:
    """One span that covers all of them."""
    found = list(spans)
    return (min(start for start, _ in found), max(end for _, end in found)) if found else None


def grouped(missing: Iterable[tuple[str, OpenSpan]]) -> tuple[Gap, ...]:
    """The gaps of all nodes, those of the same minutes as one. Of too many, the latest become one."""
    nodes_by_span: defaultdict[OpenSpan, set[str]] = defaultdict(set)
    for node, (start_ns, end_ns) in missing:
        end = None if end_ns is None else -(-end_ns // _MINUTE_NS) * _MINUTE_NS
        nodes_by_span[start_ns // _MINUTE_NS * _MINUTE_NS, end].add(node)
    gaps = [Gap(start_ns, end_ns, frozenset(nodes)) for (start_ns, end_ns), nodes in nodes_by_span.items()]
    gaps.sort(key=lambda gap: (gap.start_ns, gap.end_ns is None, gap.end_ns))
    kept, latest = gaps[: GAPS_MOST - 1], gaps[GAPS_MOST - 1 :]
    if len(latest) > 1:
        ends = [gap.end_ns for gap in latest if gap.end_ns is not None]
        end = max(ends) if len(ends) == len(latest) else None
        nodes = frozenset().union(*(gap.nodes or () for gap in latest))
        latest = [Gap(latest[0].start_ns, end, nodes)]
    return (*kept, *latest)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same time without overlaps, in order, in whole minutes."""
    result: list[Span] = []
    for start_ns, end_ns in sorted(spans):
        start_ns, end_ns = start_ns // _MINUTE_NS * _MINUTE_NS, -(-end_ns // _MINUTE_NS) * _MINUTE_NS
        if result and start_ns <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end_ns))
        else:
            result.append((start_ns, end_ns))
    return tuple(result)
