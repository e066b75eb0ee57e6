"""Which nodes' kernel logs arrive, and which spans of them are missing (rules 8 and 14).

A node whose last heartbeat is older than ``stale_seconds`` is silent, and has a gap::

    heartbeats  |  |  |  |  .  .  .  .  .  .  .  .  |  |  |
                         ^           ^              ^
                     start_ns    found_ns        end_ns
                         | read late |   missing    |

1. *Silent*: the gap has no end yet.
2. *Heard again*: the next heartbeat ends the gap. The collector may still deliver what it kept, so the
   heartbeats of the missing part are read again now and then, and so are the lines of the gap.
3. *Closed*: all heartbeats of the gap were read late, so the collector has delivered the lines between them
   too. The tracker waits ``CLOSING_NS`` longer, until those lines were read again as well.
4. *Given up*, instead of closed: the gap ended longer ago than ``max_age_seconds``.

This module reads neither a clock nor Loki: heartbeats go in, and the spans to read again come out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from konductor_like.loki.readers.heartbeat import Reread
from konductor_like.model import Coverage, CoverageState, Gap, Loss
from konductor_like.model.time import SECOND_NS, moment_of, unix_ns

Span = tuple[int, int]
"""Start and end, as Loki's timestamps in nanoseconds."""
OpenSpan = tuple[int, int | None]
"""Start and end; the end is None while the silence lasts."""

GAPS_MOST = 50
"""Gaps in one coverage; further gaps are joined (:func:`grouped`)."""
_MINUTE_NS = 60 * SECOND_NS
LATE_NS = 60 * SECOND_NS
"""Nanoseconds before a node becomes unknown. Then its heartbeats are read again: they may be late."""
CAUGHT_UP_NS = 90 * SECOND_NS
"""Nanoseconds that reading heartbeats may be behind; if it is further behind, no node is called silent."""
ROUND_NS = 600 * SECOND_NS
"""Nanoseconds between two readings of a gap's heartbeats in its first hour; later there is one an hour."""
ONGOING_NS = 3600 * SECOND_NS
"""Nanoseconds of a lasting silence that are read again: its first hour.

A collector delivers its oldest lines first, so late heartbeats appear there first.
"""
TOGETHER_NS = 600 * SECOND_NS
"""Nanoseconds between the last heartbeats of two nodes, at most, if they fell silent together."""
FLEET_PERCENT = 5.0
"""Percent of the GPU nodes. If more nodes fall silent together, the collector is the likely reason."""
LOSSES_MOST = 200
"""Nodes whose lost records are remembered: as many as the Lease keeps."""
CLOSING_NS = 120 * SECOND_NS
"""Nanoseconds between reading a gap's last heartbeat and closing it; meanwhile its lines are read."""


@dataclass(slots=True)
class NodeGap:
    """The gap of one node after it was heard again. Late heartbeats do not make it shorter."""

    start_ns: int
    """The last heartbeat before the gap."""
    end_ns: int
    """The first heartbeat after the gap."""
    found_ns: int
    """The latest heartbeat of the gap that was read late with no silence between it and ``start_ns``."""
    found_all_ns: int | None = None
    """When the last missing heartbeat was read; None while some are missing."""

    def found(self, at_ns: int, quiet_ns: int) -> None:
        """Note a heartbeat that was read late. It counts if no silence is between ``found_ns`` and it."""
        if self.found_ns < at_ns <= self.end_ns and at_ns - self.found_ns <= quiet_ns:
            self.found_ns = self.end_ns if self.end_ns - at_ns <= quiet_ns else at_ns

    @property
    def span(self) -> Span:
        """Return the whole gap."""
        return self.start_ns, self.end_ns

    @property
    def missing(self) -> Span | None:
        """Return the part of the gap whose heartbeats were not read yet, None if all were."""
        return (self.found_ns, self.end_ns) if self.found_ns < self.end_ns else None


@dataclass(slots=True)
class _Node:
    """The heartbeats of one node."""

    heard_ns: int
    """The last heartbeat; before the first one in this leadership, the last controller's ``Coverage.at``."""
    fresh_ns: int
    """The time since which silence counts: the last heartbeat or the start of this leadership."""
    confirmed: bool = True
    """Whether the node was heard in this leadership."""
    silent: bool = False
    reread: bool = False
    """Whether late heartbeats were read again since the node was last heard."""
    gap: NodeGap | None = None


@dataclass(slots=True)
class CoverageChanges:
    """The changes since the last report: nodes, each with the span of its silence or gap."""

    silent: list[tuple[str, OpenSpan]] = field(default_factory=list)
    heard: list[tuple[str, OpenSpan]] = field(default_factory=list)
    """Nodes that were heard again; their gap may still be closed."""
    closed: list[tuple[str, OpenSpan]] = field(default_factory=list)
    given_up: list[tuple[str, OpenSpan]] = field(default_factory=list)


class CoverageTracker:
    """Remembers when each node was heard, and derives the fleet's coverage from that."""

    def __init__(
        self, stale_seconds: float, *, before: Coverage | None, now_ns: int, max_age_seconds: float = 86_400.0
    ) -> None:
        """``before`` is the last controller's coverage. Its measured nodes are expected to be heard again."""
        self._stale_ns = round(stale_seconds * SECOND_NS)
        self._max_age_ns = round(max_age_seconds * SECOND_NS)
        self._before = before
        self._started_ns = self._upto_ns = now_ns
        self._nodes: dict[str, _Node] = {}
        self._blind: Span | None = None
        """The last span in which no heartbeats could be read: the gap of nodes that are not measured."""
        self._lost: dict[str, Loss] = dict(before.lost) if before else {}
        self._overruns: dict[str, set[tuple[str, int]]] = {}
        self._next_round_ns = now_ns + ROUND_NS
        self._reread_now: set[str] = set()
        self._changes = CoverageChanges()
        self.given_up: dict[str, int] = {}
        """By node, the end of the latest span whose lines may be lost for good.

        That is a gap that was given up, a part of the log that the kernel overwrote, or the time before the
        first heartbeat if the last controller did not hear the node until a moment before.
        """
        self.revisit_spans: tuple[Span, ...] = ()
        """The spans that the fault readers should read again: all gaps, without overlaps, in order."""

    def note_heartbeat(self, node: str, timestamp_ns: int) -> None:
        """Note a heartbeat of the node by its Loki timestamp. Order and repetition do not matter."""
        known = self._nodes.get(node) or self._adopt(node)
        if known is None:
            self._nodes[node] = _Node(timestamp_ns, timestamp_ns)
            self.given_up[node] = timestamp_ns
            return
        if timestamp_ns <= known.heard_ns:
            if known.gap is not None:
                known.gap.found(timestamp_ns, self._stale_ns)
            return
        if timestamp_ns - known.heard_ns > self._stale_ns and (known.confirmed or known.silent):
            known.gap = longer(known.gap, known.heard_ns, timestamp_ns)
            self._reread_now.add(node)
            if not known.silent:
                self._changes.heard.append((node, known.gap.span))
        elif timestamp_ns - known.heard_ns > self._stale_ns:  # nobody read heartbeats between two controllers
            self.given_up[node] = timestamp_ns
        known.heard_ns, known.fresh_ns = timestamp_ns, max(known.fresh_ns, timestamp_ns)
        known.confirmed, known.reread = True, False

    def overrun(self, node: str, boot_id: str, first: int, lost: int, timestamp_ns: int) -> bool:
        """Count records that the kernel overwrote before they were read. Return whether they were new."""
        seen = self._overruns.setdefault(node, set())
        before = self._lost.get(node)
        known_before = not seen and before is not None and timestamp_ns <= before.at_ns
        if (boot_id, first) in seen or known_before:
            return False
        if len(seen) >= 64:
            seen.clear()
        seen.add((boot_id, first))
        self.given_up[node] = max(timestamp_ns, self.given_up.get(node, 0))
        if before is None:
            self._lost[node] = Loss(lost, timestamp_ns, boot_id)
        else:
            boot_id = boot_id if timestamp_ns >= before.at_ns else before.boot_id
            self._lost[node] = Loss(before.records + lost, max(timestamp_ns, before.at_ns), boot_id)
        return True

    def knows(self, node: str) -> bool:
        """Whether this controller or the last one has heard the node."""
        return (self._nodes.get(node) or self._adopt(node)) is not None

    def read_up_to(self, upto_ns: int, now_ns: int) -> None:
        """Note that all heartbeats before ``upto_ns`` were read. After a long failure to read, note a gap."""
        if now_ns - self._upto_ns > self._stale_ns + CAUGHT_UP_NS:
            self._blind = (self._blind[0] if self._blind else self._upto_ns, now_ns)
        self._upto_ns = max(self._upto_ns, upto_ns)

    def coverage(self, created_ns: Mapping[str, int], now_ns: int, waiting: Collection[str] = ()) -> Coverage:
        """Return the coverage of the GPU nodes that exist, and forget all others.

        ``created_ns`` is the creation time of each GPU node. A loss is remembered for as long as a gap, and
        of a node that is ``waiting`` to return for as long as it waits.
        """
        self._take_over(created_ns)
        oldest_ns = now_ns - self._max_age_ns
        for name, node in self._nodes.items():
            self._update(name, node, oldest_ns, now_ns)
        if self._blind is not None and self._blind[1] <= oldest_ns:
            self._blind = None
        lost = [each for each in self._lost.items() if each[1].at_ns > oldest_ns or each[0] in waiting]
        lost.sort(key=lambda each: (each[0] not in waiting, -each[1].at_ns))
        self._lost = dict(lost[:LOSSES_MOST])
        states = {name: self._state(name, now_ns) for name in created_ns}
        measured = frozenset(name for name, state in states.items() if state is CoverageState.MEASURED)
        unknown = frozenset(name for name, state in states.items() if state is CoverageState.UNKNOWN)
        unmeasured = frozenset(states) - measured - unknown
        fewer_measured = len(measured) <= len(unmeasured)
        self.revisit_spans = self._spans_to_revisit(oldest_ns)
        return Coverage(
            at=moment_of(now_ns // SECOND_NS * SECOND_NS),
            unknown=unknown,
            listed=measured if fewer_measured else unmeasured,
            listed_are_measured=fewer_measured,
            gaps=self._gaps(unmeasured, now_ns),
            lost=dict(self._lost),
        )

    def silent_alone(self, gpu_nodes: int) -> frozenset[str]:
        """Return the silent nodes, but for those that fell silent together with much of the fleet.

        While heartbeats cannot be read, no node becomes silent, and the silent nodes stay silent.
        """
        silent = {name: node.heard_ns for name, node in self._nodes.items() if node.silent}
        times = sorted(silent.values())
        most = max(1.0, gpu_nodes * FLEET_PERCENT / 100)
        return frozenset(
            name
            for name, ns in silent.items()
            if bisect_right(times, ns + TOGETHER_NS) - bisect_left(times, ns - TOGETHER_NS) <= most
        )

    def gap_end_ns(self, node: str) -> int:
        """Return the end of the node's gap; 0 if no heartbeat is missing that may still arrive."""
        known = self._nodes.get(node)
        return known.gap.end_ns if known and known.gap else 0

    def take_changes(self) -> CoverageChanges:
        """Return the changes since the last call."""
        changes, self._changes = self._changes, CoverageChanges()
        return changes

    def rereads(self, now_ns: int) -> list[Reread]:
        """Return the spans to read again now: of nodes about to become unknown, and of gaps."""
        if now_ns - self._upto_ns > CAUGHT_UP_NS:
            return []
        is_round = now_ns >= self._next_round_ns
        if is_round:
            self._next_round_ns = now_ns + ROUND_NS
        found: list[tuple[Span, str]] = []
        for name, node in self._nodes.items():
            if not (node.silent or node.reread) and now_ns - node.fresh_ns > self._stale_ns - LATE_NS:
                node.reread = True
                found.append(((max(node.heard_ns, now_ns - self._stale_ns - LATE_NS), now_ns), name))
            if is_round:
                found += [(span, name) for span in self._spans_of_round(node, now_ns)]
            if name in self._reread_now and node.gap is not None and node.gap.missing is not None:
                found.append((node.gap.missing, name))
        self._reread_now.clear()
        return joined(found, now_ns - self._max_age_ns)

    def _adopt(self, name: str) -> _Node | None:
        """Take over a node that the last controller has heard. Return None if it never heard the node."""
        if self._before is None:
            return None
        state, gaps = self._before.of(name), [gap for gap in self._before.gaps if gap.concerns(name)]
        if state is CoverageState.NOT_MEASURED:
            return None
        silent = state is CoverageState.UNKNOWN
        open_since_ns = [gap.start_ns for gap in gaps if gap.end_ns is None]
        heard_ns = min(open_since_ns, default=unix_ns(self._before.at))
        span = _closed(gaps)
        node = self._nodes[name] = _Node(
            heard_ns,
            heard_ns if silent else self._started_ns,
            confirmed=False,
            silent=silent,
            gap=None if span is None else longer(None, *span),
        )
        return node

    def _take_over(self, created_ns: Mapping[str, int]) -> None:
        """Take over the last controller's coverage, once. Forget the nodes that do not exist."""
        if self._before is not None:
            at_ns = unix_ns(self._before.at)
            unmeasured = [name for name in created_ns if not (self._nodes.get(name) or self._adopt(name))]
            for name, created in created_ns.items():
                if created > at_ns and name in self._nodes and not self._nodes[name].confirmed:
                    del self._nodes[name]  # the last controller knew an older Node of this name
            if unmeasured:
                self._blind = _closed(gap for gap in self._before.gaps if gap.concerns(unmeasured[0]))
            self._before = None
        self._nodes = {name: node for name, node in self._nodes.items() if name in created_ns}
        self._lost = {name: loss for name, loss in self._lost.items() if name in created_ns}
        self._overruns = {name: seen for name, seen in self._overruns.items() if name in created_ns}
        self.given_up = {name: end_ns for name, end_ns in self.given_up.items() if name in created_ns}

    def _update(self, name: str, node: _Node, oldest_ns: int, now_ns: int) -> None:
        """Note whether the node fell silent or was heard again, and whether its gap is closed or too old."""
        stale = now_ns - node.fresh_ns > self._stale_ns
        if stale and not node.silent and now_ns - self._upto_ns <= CAUGHT_UP_NS:
            node.silent = True
            self._changes.silent.append((name, (node.heard_ns, None)))
        elif node.silent and not stale:
            node.silent = False
            self._changes.heard.append((name, node.gap.span if node.gap else (node.heard_ns, node.heard_ns)))
        gap = node.gap
        if gap is None:
            return
        if gap.missing is None:
            gap.found_all_ns = now_ns if gap.found_all_ns is None else gap.found_all_ns
            if abs(now_ns - gap.found_all_ns) >= CLOSING_NS:
                node.gap = None
                self._changes.closed.append((name, gap.span))
        elif gap.end_ns <= oldest_ns:
            node.gap = None
            self.given_up[name] = gap.end_ns
            self._changes.given_up.append((name, gap.span))

    def _state(self, name: str, now_ns: int) -> CoverageState:
        node = self._nodes.get(name)
        if node is None:
            return CoverageState.NOT_MEASURED
        stale = now_ns - node.fresh_ns > self._stale_ns
        return CoverageState.UNKNOWN if stale else CoverageState.MEASURED

    def _gaps(self, unmeasured: Iterable[str], now_ns: int) -> tuple[Gap, ...]:
        unread = now_ns - self._upto_ns > self._stale_ns + CAUGHT_UP_NS
        missing: list[tuple[str, OpenSpan]] = []
        for name, node in self._nodes.items():
            if node.silent or unread:
                since_ns = node.heard_ns if node.silent else self._upto_ns
                missing.append((name, (node.gap.start_ns if node.gap else since_ns, None)))
            elif node.gap is not None:
                missing.append((name, node.gap.span))
        blind = (self._blind[0] if self._blind else self._upto_ns, None) if unread else self._blind
        if blind is not None:
            missing += [(name, blind) for name in unmeasured]
        return grouped(missing)

    def _spans_to_revisit(self, oldest_ns: int) -> tuple[Span, ...]:
        nodes = self._nodes.values()
        found = [node.gap.missing for node in nodes if node.gap is not None] + [self._blind]
        found += [(node.heard_ns, node.heard_ns + ONGOING_NS) for node in nodes if node.silent]
        whole = [((_minute(span[0]), -_minute(-span[1])), "") for span in found if span]
        return tuple((each.start_ns, each.end_ns) for each in joined(whole, _minute(oldest_ns)))

    def _spans_of_round(self, node: _Node, now_ns: int) -> list[Span]:
        """Return the spans of the node whose heartbeats are read again in this round."""
        spans = []
        if node.gap is not None and node.gap.missing is not None and _is_due(now_ns - node.gap.end_ns):
            spans.append(node.gap.missing)
        if node.silent and _is_due(now_ns - node.heard_ns):
            spans.append((node.heard_ns, min(now_ns, node.heard_ns + ONGOING_NS)))
        return spans


def _minute(ns: int) -> int:
    """Round down to the minute; ``-_minute(-ns)`` rounds up."""
    return ns // _MINUTE_NS * _MINUTE_NS


def _is_due(age_ns: int) -> bool:
    """Whether a gap of that age is read again in this round: always in its first hour, then every sixth time.

    A collector delivers what it kept soon after it is back. Reading a long gap again every ten minutes for a
    day would cost Loki more than all other queries of the controller.
    """
    rounds = age_ns // ROUND_NS
    return rounds <= 6 or rounds % 6 == 0


def joined(found: Iterable[tuple[Span, str]], oldest_ns: int) -> list[Reread]:
    """Join spans that overlap or touch; a joined span is read for the nodes of all its parts."""
    spans: list[tuple[int, int, set[str]]] = []
    for (start_ns, end_ns), name in sorted(found):
        start_ns = max(start_ns, oldest_ns)
        if spans and start_ns <= spans[-1][1]:
            first_ns, last_ns, names = spans[-1]
            names.add(name)
            spans[-1] = (first_ns, max(last_ns, end_ns), names)
        elif start_ns < end_ns:
            spans.append((start_ns, end_ns, {name}))
    return [Reread(start_ns, end_ns, frozenset(names)) for start_ns, end_ns, names in spans]


def _closed(gaps: Iterable[Gap]) -> Span | None:
    """Return one span that covers all gaps with an end."""
    spans = [(gap.start_ns, gap.end_ns) for gap in gaps if gap.end_ns is not None]
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None


def longer(gap: NodeGap | None, start_ns: int, end_ns: int) -> NodeGap:
    """Return the node's gap after one more silence: from the old gap's start to the new one's end."""
    if gap is None:
        return NodeGap(start_ns, end_ns, start_ns)
    return NodeGap(gap.start_ns, end_ns, gap.found_ns if gap.missing else start_ns)


def grouped(missing: Iterable[tuple[str, OpenSpan]]) -> tuple[Gap, ...]:
    """Group the spans of all nodes into gaps; spans of the same minutes become one gap.

    Of more than ``GAPS_MOST`` gaps the latest ones become one.
    """
    nodes_by_span: defaultdict[OpenSpan, set[str]] = defaultdict(set)
    for node, (start_ns, end_ns) in missing:
        nodes_by_span[_minute(start_ns), None if end_ns is None else -_minute(-end_ns)].add(node)
    gaps = [Gap(start_ns, end_ns, frozenset(nodes)) for (start_ns, end_ns), nodes in nodes_by_span.items()]
    gaps.sort(key=lambda gap: (gap.start_ns, gap.end_ns is None, gap.end_ns))
    kept, latest = gaps[: GAPS_MOST - 1], gaps[GAPS_MOST - 1 :]
    if len(latest) > 1:
        ends = [gap.end_ns for gap in latest if gap.end_ns is not None]
        end = max(ends) if len(ends) == len(latest) else None
        nodes = frozenset().union(*(gap.nodes or () for gap in latest))
        latest = [Gap(latest[0].start_ns, end, nodes)]
    return (*kept, *latest)
