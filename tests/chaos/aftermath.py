"""Invariants at the end of a schedule: every fault was acted upon, no sign is left over, no write goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from konductor_like.model import IncidentState, NodeState, Severity
from konductor_like.policy.fleet.brake import bound, share
from tests.chaos.evidence import belongs_to
from tests.chaos.ledger import MARGIN_NS
from tests.chaos.machines import Machine, Occurrence, apart_ns, seconds

if TYPE_CHECKING:
    from tests.chaos.world import World

LATE_SECONDS = 0.2
"""Seconds by which a line must be earlier than the configured lateness, to be on time for certain."""
ACT_SECONDS = 900.0
"""Seconds of the past on which a controller without a cursor acts (rule 5)."""
LONGEST_NS = seconds(330)
"""Nanoseconds that the faults of one failure group are apart at most."""
PROVABLE = (13, 31, 94)
"""The Xids that taint a node when they repeat on one GPU."""


class Aftermath:
    """Checks every node once, and reports broken invariants to the ledger."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledger = world.ledger
        self._states = {
            name: world.decode(stored)
            for name in world.names
            if (stored := world.nodes.stored(name)) is not None
        }

    def check(self, writes_before: Counter[str]) -> None:
        """Check that every fault has tainted its node, is held by the brake, was released, or is collateral.

        Nodes that are written after ``writes_before`` was counted, when nothing happens any more, are broken;
        writes that follow from the time alone are not counted.
        """
        for o in self._world.occurrences:
            self._check_fault(o)
        for sentence in self._ledger.attempts.left_over():
            self._ledger.break_(sentence)
        for name in self._ledger.crowded & self._states.keys():
            if self._world.known(self._world.nodes.stored(name) or {}).record_kept:
                self._ledger.break_(f"{name} has room for its record, which is still on the Lease")
        for name, state in self._states.items():
            self._check_signs(state)
            for sentence in self._ledger.suspicions.unseen(state):
                self._ledger.break_(sentence)
            if self._ledger.writes[name] - self._ledger.timed[name] != writes_before[name]:
                self._ledger.break_(f"{name} is written although nothing happens any more")
        for process in filter(None, self._world.processes):
            for sentence in (
                each for name in self._states for each in self._ledger.returns.unreturned(process, name)
            ):
                self._ledger.break_(sentence)
        for sentence in self._ledger.suspicions.unshown(self._states.values()):
            self._ledger.break_(sentence)

    def _check_fault(self, o: Occurrence) -> None:
        state = self._states.get(o.node)
        if state is None or state.tainted or not self._must_taint(o, state):
            return
        if state.faulty and (state.kept_out_by is not None or state.record.life.removed_at is not None):
            return  # somebody keeps removing the taint, and the node is still told as faulty
        held = any(belongs_to(o, i) and i.state is IncidentState.HELD for i in state.record.incidents)
        if held and self._is_full(state.pool):
            return
        others = list(self._explanations(o))
        if any(map(self._is_answered, others)):
            return
        why = "is held although the brake allows one more" if held else "led to nothing"
        why += ", nor did any other fault of its failure group" if others else ""
        self._ledger.break_(f"{o}, happened {self._ledger.ago(o.happened_ns)}, {why}")

    def _explanations(self, o: Occurrence) -> Iterator[Occurrence]:
        """Yield the possible root causes of a deferrable fault.

        They are the faults of other nodes at the time that taint, or that taint by repeating.
        """
        for other in self._world.occurrences if o.deferrable else ():
            failed = other.taints or other.finding.code in PROVABLE
            if failed and other.node != o.node and apart_ns(o, other) <= LONGEST_NS:
                yield other

    def _is_answered(self, o: Occurrence) -> bool:
        """Whether the fault has tainted its node or is held, or need not taint."""
        state = self._states.get(o.node)
        if state is None or state.tainted or not self._must_taint(o, state):
            return True
        return any(belongs_to(o, i) and i.state is IncidentState.HELD for i in state.record.incidents)

    def _check_signs(self, state: NodeState) -> None:
        """Check that no suspect taint is left over where the controllers may taint."""
        if state.suspect_tainted and state.selected:
            self._ledger.break_(f"{state.name} keeps the suspect taint of an earlier version")

    def _is_on_time(self, o: Occurrence) -> bool:
        latest_ns = seconds(self._world.setup.lateness_seconds - LATE_SECONDS)
        return any(s.visible_ns - s.timestamp_ns <= latest_ns for s in o.shipments)

    def _is_full(self, pool: str | None) -> bool:
        """Whether the brake allows no further tainted node, in the fleet or in this pool."""
        rules, states = self._world.settings.policy(), self._states
        full = sum(state.tainted for state in states.values()) >= bound(len(states), rules)
        if full or rules.brake_pool_max_percent is None:
            return full
        mates = [state for state in states.values() if state.pool == pool]
        return sum(state.tainted for state in mates) >= share(len(mates), rules.brake_pool_max_percent)

    def _must_taint(self, o: Occurrence, state: NodeState) -> bool:
        """Whether this fault must taint its node: no release, boot or lateness excuses the missing taint."""
        machine = self._world.machines[o.node]
        if not (o.taints and o.in_loki and o.machine is machine and o.boot_id == machine.boot_id):
            return False
        acts_from_ns = max(self._ledger.starts_without_cursor_ns, default=0) - seconds(ACT_SECONDS)
        if machine.plain and self._may_be_of_another_boot(o, machine):
            return False
        first_ns = min(o.first_ns, o.happened_ns)
        released = any(first_ns <= at_ns + MARGIN_NS for at_ns in self._ledger.released_ns[o.node])
        return (
            self._is_on_time(o)
            and not released
            and not state.blocked
            and o.node not in self._ledger.left_alone
            and not (o.finding.severity is Severity.TEST and self._is_over(o))
            and first_ns > max(state.created_ns, acts_from_ns) + MARGIN_NS
        )

    def _is_over(self, o: Occurrence) -> bool:
        """Whether a test may have ended by itself."""
        test_seconds = self._world.setup.test_seconds
        return test_seconds > 0 and o.happened_ns + seconds(test_seconds) < self._world.clock.true_ns

    def _may_be_of_another_boot(self, o: Occurrence, machine: Machine) -> bool:
        """Whether a plain line may count for another boot than its own.

        A plain line names no boot and counts for the boot that the Node had when the line was read. A line
        replayed before a reboot, or from before the first start, may belong to a boot with later stamps.
        """
        starts_ns = self._ledger.starts_without_cursor_ns
        return (
            machine.ambiguous
            or o.happened_ns <= machine.posted_ns
            or any(
                other.boot_id != o.boot_id
                and (len(other.timestamps) > 1 or any(other.happened_ns < at_ns for at_ns in starts_ns))
                for other in self._ledger.of(o.node)
            )
        )
