"""In an event on many nodes: whom a controller may blame, given what it had read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from konductor_like.model import NodeState, Role
from konductor_like.model.time import unix_ns
from tests.chaos.common import EVENT_NS, LONGEST_NS, MARGIN_NS, PROVABLE, QUIET_NS
from tests.chaos.machines import RULES_THAT_SETTLE, SETTLE_NS, Occurrence, seconds

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

RECENT_NS = seconds(600)


class Blame:
    """Judges taints for what a whole rack prints as fatal, and the roles that are written."""

    def __init__(self, world: World) -> None:
        self._world = world

    def broken_by_taint(
        self, process: Process, state: NodeState, grounds: Sequence[Occurrence]
    ) -> Iterator[str]:
        """What a taint breaks that stands for ``grounds`` alone, none of which is hardware's for certain."""
        now_ns = self._world.clock.true_ns
        if all(self._just_came(process, o, now_ns) for o in grounds):
            yield f"{process.name} taints {state.name} before its fault had settled"
        origins = (self._origin_of(process, o) for o in grounds)
        if all(origin is not None and origin.node != state.name for origin in origins):
            yield f"{process.name} taints {state.name} for what followed from a failure elsewhere"

    def broken_by_roles(self, process: Process, state: NodeState) -> Iterator[str]:
        """Hardware's own failure is never called collateral."""
        for i in state.record.incidents:
            hard = i.severity.taints and i.key.rule not in RULES_THAT_SETTLE
            if hard and i.role is Role.COLLATERAL:
                yield f"{process.name} calls {i.key.rule} on {state.name} collateral"

    def explanations(self, o: Occurrence) -> Iterator[Occurrence]:
        """What looked fatal elsewhere, or came too often, and may have been the origin of a soft one."""
        for other in self._world.occurrences if o.soft else ():
            # A replay may be all that anybody read of it.
            failed = other.taints or other.finding.code in PROVABLE
            elsewhere = failed and other.node != o.node and other.in_loki
            at_once = any(abs(a - b) <= LONGEST_NS for a in o.timestamps for b in other.timestamps)
            if elsewhere and at_once and self._share(o.node, other.node):
                yield other

    def _share(self, one: str, other: str) -> bool:
        """Whether two nodes are of one rack, or ever ran the same job."""
        jobs = [
            {o.job for o in self._world.occurrences if o.node == name and o.job is not None}
            for name in (one, other)
        ]
        return self._world.setup.rack or bool(jobs[0] & jobs[1])

    def _just_came(self, process: Process, o: Occurrence, now_ns: int) -> bool:
        accepted_ns = min(s.accepted_ns for s in o.shipments)
        by_its_clock = accepted_ns > max(now_ns - SETTLE_NS, process.put_forward_ns)
        return by_its_clock and accepted_ns - o.first_ns < MARGIN_NS and self.opens(o)

    def is_hard_elsewhere(self, process: Process, o: Occurrence, symptom: Occurrence) -> bool:
        """Whether it is hardware's own failure on another node, at the same time, read, and not let go."""
        hard = o.taints and not o.soft and o.node != symptom.node and process.knows(o)
        recent = o.in_loki and o.first_ns > self._world.clock.true_ns - RECENT_NS
        return hard and recent and self.in_one_event(symptom, o) and self.opens(o) and self.stands(o)

    def _origin_of(self, process: Process, soft: Occurrence) -> Occurrence | None:
        """The failure that certainly explains it: in the same rack at the same time, read, and not let go."""
        if not self._world.setup.rack or not process.knows(soft) or not self.opens(soft):
            return None
        return next((o for o in self._world.occurrences if self.is_hard_elsewhere(process, o, soft)), None)

    def opens(self, o: Occurrence) -> bool:
        """Whether it is told by its own time, and not by that of others of its kind before it."""
        return len(o.timestamps) == 1 and not any(
            0 < o.first_ns - other.first_ns < QUIET_NS or len(other.timestamps) > 1
            for other in self._world.occurrences
            if other.node == o.node and other.finding.rule == o.finding.rule and other.in_loki
        )

    def in_one_event(self, one: Occurrence, other: Occurrence) -> bool:
        """Whether they are of one event, which began with whatever was said without a pause before them."""
        if not _near(one, other, EVENT_NS - MARGIN_NS):
            return False
        began_ns = min(one.first_ns, other.first_ns)
        before = {at for o in self._world.occurrences for at in o.timestamps if at < began_ns}
        for at in sorted(before, reverse=True):
            if began_ns - at > EVENT_NS + MARGIN_NS:
                break
            began_ns = at
        return max(one.first_ns, other.first_ns) - began_ns < LONGEST_NS - seconds(40)

    def stands(self, o: Occurrence) -> bool:
        """Whether its node is what it was when it happened, and nobody let it go."""
        stored, machine = self._world.nodes.stored(o.node), self._world.machines[o.node]
        if stored is None or o.machine is not machine or o.boot_id != machine.boot_id:
            return False
        state = self._world.decode(stored)
        since_ns = max([state.created_ns, *(unix_ns(mark.at) for mark in state.record.releases)])
        # A line that names no boot is of the one that its Node told of then.
        told = not machine.plain or (not machine.muddled and o.happened_ns > machine.posted_ns)
        of_boot = state.machine.boot_id == o.boot_id and told
        began_ns = min(o.first_ns, o.happened_ns)  # a replay may be all that Loki has of it
        let_go = self._world.ledger.let_go(o.node, began_ns)
        return of_boot and began_ns > since_ns + MARGIN_NS and not let_go


def _near(one: Occurrence, other: Occurrence, span_ns: int) -> bool:
    return abs(one.first_ns - other.first_ns) <= span_ns
