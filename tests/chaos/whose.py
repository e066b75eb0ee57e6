"""Page faults on one GPU that follow no job: whose each was, as pods of the node's jobs tell it.

Said again in words of our own. Where several jobs spoke up nobody knows whose it was, and one job's fault
follows it from line to line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from konductor_like.model import NodeState, Source
from tests.chaos.common import EVENT_NS, LONGEST_NS, MARGIN_NS
from tests.chaos.machines import Occurrence, seconds

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

JOB_FAULTS = (13, 31)
"""A program's own fault, unless it happens to one after the other on one GPU."""
TIMES = 3
APART_NS = seconds(60)
"""Lines that follow each other closer than this are one failure."""


class Whose:
    """Judges by what kernel and pods of a node really said."""

    def __init__(self, world: World) -> None:
        self._world = world

    def may_taint(
        self, process: Process, before: NodeState, group: Sequence[Occurrence], jobs_most: int
    ) -> bool:
        """Whether a GPU's page faults may be those of enough jobs, as far as the process knew."""
        if jobs_most < TIMES or len(group) < TIMES:
            return False
        earlier = any(i.grounds for i in before.record.incidents) or before.name in process.perhaps_out()
        if earlier or any(len(o.timestamps) > 1 for o in group):
            return True  # it was decided with less in sight, or by another order of the lines
        known = self._known_pods(process, before.name)
        jobs = [
            self._jobs_beside(occasion, known)
            for occasion in occasions(o for o in group if process.knows(o))
            if not self._is_explained(process, occasion, known)
        ]
        return any(
            all(one.isdisjoint(other) for one, other in combinations(three, 2))
            for three in combinations(jobs, TIMES)
        )

    def must_taint(self, group: Sequence[Occurrence], sure: Sequence[Occurrence]) -> int:
        """How many jobs had a page fault on a GPU for certain; 0 where they accuse nobody.

        ``sure`` is what certainly counts, of pods too.
        """
        if any(len(o.timestamps) > 1 for o in group):
            return 0
        certain = set()
        for occasion in occasions(group):
            near = self._jobs_near(occasion)
            # A late one that is read first after a restart may have been counted before, for all we know.
            told = self._jobs_beside(occasion, [o for o in sure if o.source is Source.POD and on_time(o)])
            if len(near) == 1 and told and all(o in sure and self.is_quiet_elsewhere(o) for o in occasion):
                certain |= near
        return len(certain) if len(certain) >= TIMES else 0

    def is_quiet_elsewhere(self, o: Occurrence) -> bool:
        """Whether no other node's kernel said anything at the time that might explain it."""
        return not any(
            other.node != o.node
            and other.source is Source.KERNEL
            and other.in_loki
            and min(abs(a - b) for a in other.timestamps for b in o.timestamps) < LONGEST_NS
            for other in self._world.occurrences
        )

    def _counted_since_ns(self, state: NodeState) -> int:
        """What pods said later than this counts for certain, if it was read."""
        ledger = self._world.ledger
        marks = (*ledger.released_ns[state.name], *ledger.acked_ns[state.name])
        starts = (ns - seconds(900) for ns in (0, *ledger.fresh_ns))
        return max(state.created_ns, *marks, *starts) + MARGIN_NS

    def _jobs_beside(self, occasion: Sequence[Occurrence], pods: Iterable[Occurrence]) -> set[int]:
        """The jobs of which some of these lines are of the occasion for certain."""
        near = (p for p in pods if any(_apart_ns(p, o) <= EVENT_NS - MARGIN_NS for o in occasion))
        return {p.job for p in near if p.job is not None}

    def _jobs_near(self, occasion: Sequence[Occurrence]) -> set[int]:
        """The jobs that it may be of. One whose lines go on all the while has one so near as well."""
        pods = (p for p in self._world.occurrences if p.job is not None and p.in_loki)
        mine = (p for p in pods if p.node == occasion[0].node)
        near = (p for p in mine if any(_apart_ns(p, o) <= EVENT_NS + MARGIN_NS for o in occasion))
        return {p.job for p in near if p.job is not None}

    def _is_explained(
        self, process: Process, occasion: Sequence[Occurrence], pods: Sequence[Occurrence]
    ) -> bool:
        """Whether another node's hardware failed for certain in the one job that it was of."""
        blame, near, first = self._world.ledger.blame, self._jobs_near(occasion), occasion[0]
        if self._world.setup.rack or len(near) != 1 or self._jobs_beside(occasion, pods) != near:
            return False
        return blame.opens(first) and any(
            blame.is_hard_elsewhere(process, o, first) and self._is_of(process, o, near)
            for o in self._world.occurrences
        )

    def _is_of(self, process: Process, o: Occurrence, jobs: set[int]) -> bool:
        """Whether it was of these jobs and no others, by what the process read of its node's pods."""
        return self._jobs_near([o]) == jobs == self._jobs_beside([o], self._known_pods(process, o.node))

    def _known_pods(self, process: Process, name: str) -> list[Occurrence]:
        """What pods on a node said that counts for certain, and that the process read."""
        stored = self._world.nodes.stored(name)
        if stored is None:
            return []
        since_ns = self._counted_since_ns(self._world.decode(stored))
        pods = (o for o in self._world.ledger.of(name) if o.source is Source.POD and o.in_loki)
        return [o for o in pods if process.knows(o) and o.first_ns > since_ns]


def occasions(group: Iterable[Occurrence]) -> Iterator[list[Occurrence]]:
    """The failures that lines of one GPU tell of: those that follow each other closely are one."""
    chain: list[Occurrence] = []
    for o in sorted(group, key=lambda o: o.first_ns):
        if chain and o.first_ns - chain[-1].first_ns > APART_NS:
            yield chain
            chain = []
        chain.append(o)
    if chain:
        yield chain


def on_time(o: Occurrence) -> bool:
    """Whether Loki had it at once."""
    return all(s.visible_ns - s.timestamp_ns <= MARGIN_NS for s in o.shipments)


def _apart_ns(one: Occurrence, other: Occurrence) -> int:
    return min(abs(a - b) for a in one.timestamps for b in other.timestamps)
