"""Invariants at the end of a schedule: every fault was acted upon, no sign is left over, writes were few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from konductor_like.cluster.node_record import is_shortened
from konductor_like.model import IncidentState, MetBy, NodeState, Role, Severity, Source
from konductor_like.model.time import unix_ns
from konductor_like.policy.brake import bound, share
from tests.chaos.evidence import belongs_to, is_key, must_taint
from tests.chaos.ledger import MARGIN_NS
from tests.chaos.machines import Machine, Occurrence, apart_ns, seconds

if TYPE_CHECKING:
    from tests.chaos.world import World

LATE_SECONDS = 0.2
"""Seconds by which a line must be earlier than the configured lateness, to be on time for certain."""
ACT_SECONDS = 900.0
"""Seconds of the past on which a controller without a cursor acts (rule 5)."""
RECORD_SECONDS = 600.0
"""Seconds between two writes of a record in which only counts have grown (rule 22)."""
UPKEEP_NS = seconds(1200)
"""Nanoseconds within which a write that is due by the time alone is made, when everything works."""
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
        for name, state in self._states.items():
            self._check_suspicion(state)
            self._check_counts(state)
            self._check_signs(state)
            self._check_writes(name)
            self._check_way_back(state)
            if self._ledger.writes[name] - self._ledger.timed[name] != writes_before[name]:
                self._ledger.break_(f"{name} is written although nothing happens any more")

    def _check_fault(self, o: Occurrence) -> None:
        state = self._states.get(o.node)
        if state is None or state.tainted or not self._must_taint(o, state):
            return
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

    def _check_suspicion(self, state: NodeState) -> None:
        """Check that a node whose evidence had to reach a threshold is tainted, or held by the brake."""
        if state.tainted or state.blocked or state.name in self._ledger.left_alone:
            return
        held = any(i.state is IncidentState.HELD for i in state.record.incidents)
        since_ns = max(
            state.created_ns,
            *(mark - seconds(ACT_SECONDS) for mark in (0, *self._ledger.starts_without_cursor_ns)),
            *self._ledger.released_ns[state.name],
            *self._ledger.acked_ns[state.name],
            # A taint that is removed by hand ends the count when the controller sees the removal.
            *(unix_ns(mark.at) for mark in state.record.releases if not mark.how.by_controller),
            *(i.met_ns or 0 for i in state.record.incidents if i.met_by is MetBy.QUIET),
        )
        own = (
            o
            for o in self._ledger.uncovered(state)
            if min(o.first_ns, o.happened_ns) > since_ns + MARGIN_NS and self._is_sure(o)
        )
        for sentence in must_taint(own):
            if not (held and self._is_full(state.pool)):
                self._ledger.break_(f"{sentence} of {state.name} did not taint it")

    def _is_sure(self, o: Occurrence) -> bool:
        """Whether the fault was in Loki in time, and is of the node's present boot for certain."""
        machine = self._world.machines[o.node]
        of_boot = o.boot_id == machine.boot_id and not (
            machine.plain and self._may_be_of_another_boot(o, machine)
        )
        return of_boot and o.machine is machine and self._is_on_time(o)

    def _check_counts(self, state: NodeState) -> None:
        """Check that every count includes all lines, unless the process died or others changed the node.

        A line that is read after a later line of its incident is not counted: the record has only the last
        position, and cannot distinguish such a line from a replay. If a controller's clock was ahead by more
        than the overlap, its cursor passed lines that only a later sweep reads.
        """
        if self._ledger.clock_ahead_ns > seconds(self._world.setup.overlap_seconds):
            return
        touched = state.name in self._ledger.touched or self._ledger.allowed[state.name]
        if self._ledger.terms > 1 or touched or self._world.machines[state.name].plain:
            return
        acts_from_ns = max(self._ledger.starts_without_cursor_ns) - seconds(ACT_SECONDS)
        occurrences = self._ledger.of(state.name)
        for i in state.record.incidents:
            alike = [o for o in occurrences if is_key(o, i)]
            if any(o.finding.gpu != i.key.gpu for o in alike):
                continue  # it counts the GPUs that are too many for incidents of their own
            mine = [o for o in alike if o.happened_ns > acts_from_ns and self._is_sure(o)]
            last = max((o.sequence for o in alike), default=0)
            sure = sum(o.sequence == last or (is_prompt(o) and not is_overtaken(o, alike)) for o in mine)
            if i.source is Source.KERNEL and i.count < sure:
                self._ledger.break_(f"{state.name} counts {i.count} of {i.key.rule}, {sure} were read")

    def _check_signs(self, state: NodeState) -> None:
        """Check that the health label and the suspect taint follow from the record."""
        suspicious = any(
            i.ack is None
            and (
                i.state is IncidentState.PENDING
                or (i.state is IncidentState.ACTIVE and i.severity is Severity.SUSPECT)
                or (i.state is IncidentState.ACTIVE and i.severity.taints and i.role is Role.COLLATERAL)
            )
            for i in state.record.incidents
        )
        health = state.as_read.health
        if is_shortened(state.as_read.record or ""):
            return  # the controller knows more than the annotation shows
        if state.suspect_tainted and not (suspicious and health == "suspect"):
            self._ledger.break_(f"{state.name} keeps the suspect taint, and nothing makes it suspect")
        if health == "suspect" and not suspicious:
            self._ledger.break_(f"{state.name} is labelled suspect without a reason")
        if state.suspect_tainted and not self._world.setup.suspect_taint:
            self._ledger.break_(f"{state.name} has the suspect taint, which is not enabled")

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
        releases_ns = [*self._ledger.released_ns[o.node]]
        for (name, key), parts_ns in self._ledger.parts_ns.items():
            if name == o.node and key.rule == o.finding.rule and key.gpu in (None, o.finding.gpu):
                releases_ns += parts_ns
        released = any(first_ns <= at_ns + MARGIN_NS for at_ns in releases_ns)
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

    def _check_way_back(self, state: NodeState) -> None:
        """Check that tests ended, and that a label for probation follows from a return."""
        record, now = state.record, self._world.clock.moment()
        forged = state.name in self._ledger.forgers  # its kubelet may begin a probation
        if record.life.probation_until is not None and not (
            forged or self._ledger.returns.last_of(state.name)
        ):
            self._ledger.break_(f"{state.name} is on probation, and never returned by itself")
        over = record.life.probation_until is None or record.life.probation_until < now - timedelta(
            minutes=15
        )
        if state.as_read.health == "probation" and over and not self._world.clocks_differ:
            self._ledger.break_(f"{state.name} is labelled probation, which is over")
        if self._world.setup.test_seconds > 0 and state.tainted and record.life.tainted_at is not None:
            reasons = [i for i in record.incidents if i.taints and i.state is IncidentState.ACTIVE]
            last_ns = max((i.last_ns for i in reasons), default=0)
            ended_ns = last_ns + seconds(self._world.setup.test_seconds) + UPKEEP_NS
            tests = reasons and all(i.severity is Severity.TEST for i in reasons)
            if (
                tests
                and max(ended_ns, unix_ns(record.life.tainted_at) + UPKEEP_NS) < self._world.clock.true_ns
            ):
                self._ledger.break_(f"the test of {state.name} did not end")

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

    def _check_writes(self, name: str) -> None:
        """Check the number of writes: first faults and taints at once, then one in ten minutes (rule 22)."""
        mine = self._ledger.of(name)
        keys = {(o.finding.rule, o.finding.gpu, o.boot_id) for o in mine}
        late = sum(s.visible_ns - s.timestamp_ns > MARGIN_NS for o in mine for s in o.shipments)
        times = 1 + len(self._ledger.released_ns[name])
        minutes = (self._world.clock.seconds() - 1000) / RECORD_SECONDS
        allowed = 3 + 2 * len(keys) * times + late + self._ledger.allowed[name] + int(minutes)
        if self._ledger.writes[name] > allowed:
            self._ledger.break_(
                f"{name} was written {self._ledger.writes[name]} times, {allowed} are allowed"
            )


def is_prompt(o: Occurrence) -> bool:
    """Whether Loki showed all lines of the fault within the margin."""
    return all(s.visible_ns - s.timestamp_ns <= MARGIN_NS for s in o.shipments)


def is_overtaken(o: Occurrence, alike: Iterable[Occurrence]) -> bool:
    """Whether a later one of these may be read first: Loki showed it earlier, or a clock dates it earlier."""
    shown_ns = max((s.visible_ns for s in o.shipments), default=0)
    dated_ns = max((s.timestamp_ns for s in o.shipments), default=0)
    return any(
        later.sequence > o.sequence
        and any(s.visible_ns < shown_ns or s.timestamp_ns < dated_ns for s in later.shipments)
        for later in alike
    )
