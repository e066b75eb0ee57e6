"""The node that failed jobs have in common: when it may be blamed, and when it must be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import comb
from typing import TYPE_CHECKING

from konductor_like.model import NodeState
from tests.chaos.machines import Occurrence, seconds

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

EVENT_NS = seconds(30)
"""Nodes of one job or rack that report within so long tell of one event."""
LONGEST_NS = seconds(330)
"""No event is longer than this."""
QUIET_NS = seconds(400)
"""What is said after so long a silence begins something new."""
MARGIN_NS = seconds(2)
CHANCE_MOST = 0.05
"""More often than this, chance is reason enough."""
PROVABLE = (13, 31, 94)
"""What may become hardware's own failure by repetition."""


class CommonNode:
    """Judges by what pods really printed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def may_taint(self, process: Process, name: str, mine: Iterable[Occurrence]) -> bool:
        """Whether it alone may be common to so many failed jobs, as far as the process knew."""
        own = _by_job(mine)
        others: defaultdict[str, set[int]] = defaultdict(set)
        shared: set[int] = set()
        for o in self._elsewhere(name):
            if o.job is None or o.job not in own:
                continue
            shared.add(o.job)
            if process.knows(o) and any(process.knows(each) and _beside(each, o) for each in own[o.job]):
                others[o.node].add(o.job)
        if not 0 < self._world.setup.common_jobs <= len(shared):
            return False
        if self._world.ledger.people_meddled or any(o.taints for o in self._world.occurrences):
            return True  # what was let go, or is explained, is no part of it
        return all(len(jobs) * 2 <= len(shared) for jobs in others.values())

    def must_taint(
        self, state: NodeState, mine: Iterable[Occurrence], sure: Callable[[Occurrence], bool]
    ) -> int:
        """How many jobs failed that certainly have it alone in common; 0 where they accuse nobody."""
        setup, name = self._world.setup, state.name
        if setup.rack or not setup.common_jobs or any(i.severity.taints for i in state.record.incidents):
            return 0  # a rack's own events may be larger than its jobs'
        at_ns: dict[int, int] = {}
        for job, lines in _by_job(mine).items():
            others = [o for o in self._elsewhere(name) if o.job == job]
            if others and all(sure(o) and any(self._fails(each, o) for each in lines) for o in others):
                at_ns[job] = min(o.first_ns for o in (*lines, *others))
        failed, last_ns = 0, 0
        for began_ns in sorted(at_ns.values()):
            if began_ns - last_ns > LONGEST_NS:  # what ends many jobs at once is no node
                failed, last_ns = failed + 1, began_ns
        partners: defaultdict[str, set[int]] = defaultdict(set)
        for o in self._elsewhere(name):
            if o.job is not None:
                partners[o.node].add(o.job)
        busiest = max((len(jobs) for jobs in partners.values()), default=0)
        if failed < setup.common_jobs or busiest * 2 > failed or self._may_be_chance(failed):
            return 0
        return failed

    def _may_be_chance(self, failed: int) -> bool:
        """Whether some node might well have been in so many of the jobs had they run anywhere."""
        nodes = len(self._world.setup.plain)
        places = _by_job(o for o in self._world.occurrences if o.in_loki)
        share = max(len({o.node for o in lines}) for lines in places.values()) / nodes
        return nodes * comb(len(places), failed) * share**failed > CHANCE_MOST

    def _elsewhere(self, name: str) -> Iterable[Occurrence]:
        return (o for o in self._world.occurrences if o.node != name and o.job is not None and o.in_loki)

    def _fails(self, one: Occurrence, other: Occurrence) -> bool:
        """Whether the two are one failure of a job for certain, which nothing else explains."""
        if one.job != other.job or abs(one.first_ns - other.first_ns) > EVENT_NS - MARGIN_NS:
            return False
        if not (self._opens(one) and self._opens(other)) or self._world.ledger.let_go(
            other.node, other.first_ns
        ):
            return False
        stored = self._world.nodes.stored(other.node)
        if stored is None or self._world.decode(stored).created_ns > other.first_ns - MARGIN_NS:
            return False
        return not any(
            (o.taints or o.finding.code in PROVABLE)
            and o.in_loki
            and min(abs(at - one.first_ns) for at in o.timestamps) < LONGEST_NS
            for o in self._world.occurrences
        )

    def _opens(self, o: Occurrence) -> bool:
        """Whether it is the first that its job says on its node for a long time."""
        return len(o.timestamps) == 1 and not any(
            0 < o.first_ns - other.first_ns < QUIET_NS
            for other in self._world.occurrences
            if (other.node, other.job) == (o.node, o.job) and other.in_loki
        )


def _by_job(occurrences: Iterable[Occurrence]) -> Mapping[int, Sequence[Occurrence]]:
    found: defaultdict[int, list[Occurrence]] = defaultdict(list)
    for o in occurrences:
        if o.job is not None:
            found[o.job].append(o)
    return found


def _beside(one: Occurrence, other: Occurrence) -> bool:
    pairs = ((a, b) for a in one.timestamps for b in other.timestamps)
    return any(abs(a - b) <= EVENT_NS for a, b in pairs)
