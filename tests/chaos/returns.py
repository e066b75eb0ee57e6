"""The invariants of nodes that return by themselves: after a reboot, or after a test.

A return is allowed only if all its conditions hold in the world itself, and on the Node as it was right
before the write: the patch tests that nothing of the Node has changed since the decision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from konductor_like.model import (
    MET_BY_REBOOT,
    Incident,
    IncidentState,
    NodeRecord,
    NodeState,
    Severity,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.recovery.guards import Guard
from tests.chaos.evidence import recorded_in
from tests.chaos.machines import seconds
from tests.chaos.setup import CLAIM

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

BY_REBOOT, BY_TIME, BY_VALIDATION, BY_HAND = "reboot", "time", "validated", "taint removed"
"""How a release by the controller came about (``Release.how``)."""
HOUR_NS = seconds(3600)
MARGIN_NS = seconds(2)
READ_PAST_NS = seconds(120)
"""Nanoseconds of the kernel log after the end of a test that are read before a return."""
CALM_SECONDS = 900.0
"""Seconds after the last trouble within which a controller has seen for long enough that a Node stands."""
BEHIND_NS = seconds(120)
"""Nanoseconds by which a decision may be older than its write, and heartbeats later than the lines."""


def how_of(record: NodeRecord) -> str:
    """Return how the latest release came about; empty if there was none."""
    return record.releases[0].how if record.releases else ""


def is_timed(old: NodeRecord, new: NodeRecord) -> bool:
    """Whether a controller's write follows from the time or a reboot alone, and from no line or person."""
    met = {(i.key, i.first_ns, i.met_by) for i in old.incidents}
    return (
        new.releases[:1] != old.releases[:1]
        or (old.life.probation_until is not None and new.life.probation_until is None)
        or any(i.met_by and (i.key, i.first_ns, i.met_by) not in met for i in new.incidents)
        or new.quiet_since != old.quiet_since
        or new.validation != old.validation
        or new.gpus != old.gpus
        or _facts(new) != _facts(old)
    )


def _facts(record: NodeRecord) -> set[tuple[str, str]]:
    """Return the faults that no line reports, such as missing GPUs, with their state."""
    return {(i.key.rule, i.state.value) for i in record.incidents if not (i.has_line or i.by_person)}


class Returns:
    """Checks every taint that a controller removes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.made: list[tuple[str, int]] = []
        """The node and the time of each return after a reboot, the latest last."""
        self._heartbeats: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        """The Loki timestamps of all heartbeats, by node and boot."""
        self._printed: set[tuple[str, str]] = set()
        """The nodes with the boots of which a heartbeat is in Loki, or on its way there."""
        self._losing: set[str] = set()
        """The lines that say that records of a boot were overwritten, if nobody had heard these."""
        self._lost_ns: dict[tuple[str, str], int] = {}
        """Since when every query returns such a line, by node and boot."""

    # What happens

    def heartbeat(self, name: str, text: str, timestamp_ns: int) -> None:
        """Note a heartbeat, or a gap at the beginning of a boot, that Loki accepted."""
        boot = next((word for word in text.split() if word.startswith("boot=")), "").removeprefix("boot=")
        if text in self._losing:
            visible_ns = max(self._world.clock.true_ns, self._world.traffic.blind_until_ns)
            self._lost_ns.setdefault((name, boot), visible_ns)
        elif not text.startswith("kmsg/1 gap"):
            self._heartbeats[name, boot].add(timestamp_ns)

    def printed(self, name: str) -> None:
        """Note a heartbeat that Loki has or will have, perhaps late."""
        self._printed.add((name, self._world.machines[name].boot_id))

    def was_heard(self, name: str) -> bool:
        """Whether Loki has a heartbeat of the machine's present boot, or will have it."""
        return (name, self._world.machines[name].boot_id) in self._printed

    def loses(self, text: str) -> None:
        """Note that this line of a kernel-log reader tells of records that nobody heard."""
        self._losing.add(text)

    def forgotten(self, name: str | None = None) -> None:
        """Note that the Lease, or a node's own record, no longer tells of returns."""
        self.made = [each for each in self.made if name not in (None, each[0])]

    # What is checked

    def broken_by(
        self, process: Process, old: NodeState, new: NodeState, step: int, *, late: bool
    ) -> Iterator[str]:
        """Describe each rule that this removal of the taint breaks, and remember it."""
        how, who = how_of(new.record), f"{process.name} removes the taint of {new.name}"
        if new.record.releases[:1] == old.record.releases[:1]:
            yield f"{who} without a release"
        elif how in (BY_REBOOT, BY_VALIDATION):
            is_tested = how == BY_VALIDATION
            for why in (
                *self._reasons_against(process, old, new, step, late=late),
                *(self._unheard_past(old) if is_tested else self._unheard_for(old)),
                *(self._world.ledger.attempts.against(old) if is_tested else ()),
            ):
                yield f"{who}, although {why}"
            # A process that was stopped, or whose answer is lost, writes later than it decides.
            at_ns = min(unix_ns(new.record.releases[0].at), self._world.clock.true_ns)
            self.made.append((new.name, at_ns))
        elif how == BY_TIME:
            for why in self._test_goes_on(old):
                yield f"{who}, although {why}"
        else:
            yield f"{who}, and calls that {how!r}"

    def _reasons_against(
        self, process: Process, old: NodeState, new: NodeState, step: int, *, late: bool
    ) -> Iterator[str]:
        """Describe each condition of a return after a reboot that does not hold."""
        record, now_ns = old.record, self._world.clock.true_ns + max(0, process.clock_ahead_ns)
        if how_of(new.record) != self._world.settings.return_by.replace("ask", ""):
            yield "the settings say otherwise"
        if record.life.tainted_at is None or any(i.by_person and _is_open(i) for i in record.incidents):
            yield "a person tainted it"
        if record.life.replace_since is not None:
            yield "it is marked for replacement"
        if record.life.contested_at is not None:
            yield "its taint is contested"
        if record.life.hold_until is not None and unix_ns(record.life.hold_until) > now_ns + MARGIN_NS:
            yield "its hold has not ended"
        yield from self._unmet(old)
        yield from self._unheard(old)
        yield from self._node_against(old)
        yield from self._flapped(old.name)
        is_paused = self._world.ledger.brake.pauses(step) and process.reads_lease()
        if is_paused and not (late or process.waits_for(old.name)):
            yield "tainting is paused"
        yield from self._rate_against(now_ns)
        if self._world.setup.probation_seconds and new.record.life.probation_until is None:
            yield "it is not on probation"

    def _unmet(self, old: NodeState) -> Iterator[str]:
        known = [i for i in old.record.incidents if _is_open(i) and not self._is_over(i)]
        for o in self._world.ledger.of(old.name):
            if o.machine is self._world.machines[old.name] and o.taints and recorded_in(o, known):
                if not o.machine.plain and o.boot_id == old.machine.boot_id:
                    yield f"{o} is of the present boot"
                elif o.finding.needs not in MET_BY_REBOOT:
                    yield f"{o} needs {o.finding.needs}"

    def _is_over(self, incident: Incident) -> bool:
        """Whether a test ends by now; it may end with the same write."""
        test_ns, now_ns = (
            seconds(self._world.setup.test_seconds),
            self._world.clock.true_ns + self._slack_ns(),
        )
        return incident.severity is Severity.TEST and 0 < test_ns <= now_ns - incident.last_ns

    def _unheard(self, old: NodeState) -> Iterator[str]:
        """Describe why the kernel log of the present boot counts as not heard."""
        machine, settings = self._world.machines[old.name], self._world.settings
        if machine.plain:
            yield "it prints no heartbeats"
            return
        if machine.clock_was_set:
            return  # the times of its heartbeats prove nothing
        lost_ns = self._lost_ns.get((old.name, old.machine.boot_id or ""), self._world.clock.true_ns)
        if lost_ns < self._world.clock.true_ns - BEHIND_NS:
            yield "records of its boot were overwritten before anybody read them"
        heard = sorted(self._heartbeats[old.name, old.machine.boot_id or ""])
        if not heard:
            yield "its kernel log of this boot was not heard"
            return
        stale_ns = seconds(settings.heartbeat_stale_seconds) + BEHIND_NS
        if any(later - earlier > stale_ns for earlier, later in pairwise(heard)):
            yield "its kernel log has a gap"
        if self._world.clock.true_ns - heard[-1] > stale_ns and not self._world.clocks_differ:
            yield "its kernel log is silent"

    def _unheard_for(self, old: NodeState) -> Iterator[str]:
        """Describe that the kernel log was heard for too short a time since the reboot."""
        heard = self._heard(old)
        heard_ns = heard[-1] - heard[0] if heard else 0
        if heard and heard_ns < seconds(self._world.settings.return_quiet_seconds) - MARGIN_NS:
            yield f"its kernel log was heard for {heard_ns / 1e9:.0f} s only"

    def _unheard_past(self, old: NodeState) -> Iterator[str]:
        """Describe that the kernel log was not read past the end of the test."""
        heard = self._heard(old)
        validation = old.record.validation
        ended_ns = self._world.ledger.attempts.ended_ns(validation.attempt if validation else "")
        quiet_ns = seconds(self._world.settings.return_quiet_seconds)
        past_ns = 0 if self._world.clocks_differ else min(READ_PAST_NS, quiet_ns) - MARGIN_NS
        if heard and heard[-1] < ended_ns + past_ns:
            yield "its kernel log was not read past the end of the test"

    def _heard(self, old: NodeState) -> list[int]:
        """Return the times of the heartbeats of the present boot; empty if they prove nothing."""
        was_set = self._world.machines[old.name].clock_was_set
        return [] if was_set else sorted(self._heartbeats[old.name, old.machine.boot_id or ""])

    def _node_against(self, old: NodeState) -> Iterator[str]:
        """Describe what the Node itself says against the return: its patch tests that nothing changed."""
        count = old.gpus.allocatable
        against = {
            "it is cordoned": old.unschedulable,
            "it is not Ready": not old.ready,
            "another tool has claimed it": any(taint.key == CLAIM for taint in old.taints),
            "it is opted out": old.opted_out,
            "it is not selected": not old.selected,
            f"it has {count} of {old.record.gpus} GPUs": count < (old.record.gpus or 0),
            "its record is damaged": old.record_problem is not None,
        }
        yield from (why for why, holds in against.items() if holds)

    def stood_seconds(self, name: str) -> float:
        """Return for how long the Node has shown the same GPUs and the same readiness."""
        return (self._world.clock.true_ns - self._world.machines[name].stood_ns) / 1e9

    def _flapped(self, name: str) -> Iterator[str]:
        """Describe that the Node was not Ready with these GPUs for long enough.

        The patch of a return tests that nothing of the Node has changed since the decision.
        """
        stood_seconds = self.stood_seconds(name)
        if stood_seconds < self._world.settings.return_quiet_seconds:
            yield f"it has been Ready with these GPUs for {stood_seconds:.0f} s only"

    def unreturned(self, process: Process, name: str) -> Iterator[str]:
        """Describe that a node that stood for long enough is still called unsteady."""
        guard, settings = process.kept_out().get(name), self._world.settings
        if (
            guard == Guard.UNSTEADY
            and self.stood_seconds(name) > settings.return_quiet_seconds + CALM_SECONDS
        ):
            yield f"{name} stays out as unsteady, and has stood for {self.stood_seconds(name):.0f} s"

    def _rate_against(self, now_ns: int) -> Iterator[str]:
        lately = {name for name, at_ns in self.made if at_ns > now_ns - HOUR_NS + self._slack_ns()}
        most = self._world.settings.returns_per_hour
        if len(lately) >= most:
            yield f"{len(lately)} nodes returned in the last hour, and {most} may"

    def _test_goes_on(self, old: NodeState) -> Iterator[str]:
        """Describe what forbids the end of a test."""
        if not self._world.setup.test_seconds:
            yield "tests do not end"
        reasons = [i for i in old.record.incidents if i.taints and _is_open(i)]
        yield from (f"{i.key.rule} is no test" for i in reasons if i.severity is not Severity.TEST)

    # Helpers

    def _slack_ns(self) -> int:
        """Return the nanoseconds by which times of a controller and of a node may differ from the truth."""
        machines = self._world.machines.values()
        nodes_ns = max((seconds(300) for machine in machines if machine.clock_was_set), default=0)
        return MARGIN_NS + self._world.ledger.clock_ahead_ns + nodes_ns


def _is_open(incident: Incident) -> bool:
    return incident.state in (IncidentState.ACTIVE, IncidentState.HELD)
