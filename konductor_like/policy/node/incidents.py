"""The incidents of one node: faults are folded into its record.

To fold a fault means to add it to its incident: a new incident, or one more occurrence of a known one. A
fault that is in the record already, or that a release covers, adds nothing.

A line names its GPU and, for an unknown Xid, its rule. One pod or one broken driver can therefore ask for any
number of incidents. A record has at most ``INCIDENTS_MOST``, and ``GPUS_OF_RULE_MOST`` of one rule: further
GPUs of the rule share one incident without a GPU, so no line of them is lost.

``decide`` folds the new faults of each node separately, before it assesses the fleet and asks the brake. Once
the brake has decided, :func:`with_states` sets the open incidents to active or held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from konductor_like.model import (
    DroppedFault,
    Fault,
    FaultKind,
    Growth,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    MetBy,
    NodeRecord,
    NodeState,
    Snapshot,
    Source,
    Stage,
)
from konductor_like.model.faults import NOWHERE
from konductor_like.model.time import unix_ns
from konductor_like.policy.node.covers import COVERED, COVERED_BY_TIME, covered_to, why_covered
from konductor_like.policy.node.machines import (
    BOOT_LEFT,
    at_present_machine,
    why_not_of_node,
    with_boot,
)
from konductor_like.policy.node.release import released_by_hand
from konductor_like.policy.node.update import NodeUpdate

SEEN_BEFORE = "seen before"
BEFORE_INSTALL = "a replay from before the first start"
RECORD_FULL = "the node's record has as many incidents as it may have"
QUIET_REASONS = frozenset({SEEN_BEFORE, COVERED, BEFORE_INSTALL, BOOT_LEFT})
"""Reasons that are part of normal operation: the dropped line is counted, but not logged."""
INCIDENTS_MOST = 64
"""Incidents of one record, those that pods' lines opened among them."""
INCIDENTS_OF_PODS_MOST = 24
"""Incidents that pods' lines opened, so that no pod can keep a kernel line out of the record."""
GPUS_OF_RULE_MOST = 16
"""Incidents of one rule with a GPU of their own; no machine has more GPUs."""

Key = tuple[str, str | None, bool, str | None]
"""The incident that a fault belongs to: rule, GPU, whether the fault taints, boot.

A rule may report both faults that taint and faults that do not; these are two incidents.
"""


def fold_faults(state: NodeState, faults: Sequence[Fault], snapshot: Snapshot, now: datetime) -> NodeUpdate:
    """Fold the node's growth (counted earlier, not yet written) and then ``faults`` into its record.

    If somebody removed the taint by hand, the record gets a release (rule 23). The release covers what was
    counted until now, and none of the new faults.
    """
    record = at_present_machine(state, snapshot, now)
    grown = snapshot.grown.get(state.name, ())
    # One patch writes the taint and the claim. So a claim without a taint means that somebody removed the
    # taint, even while a write of ours has no answer yet.
    is_removed = state.stage is Stage.REMOVED
    if record is state.record and not (is_removed or grown or faults):
        return NodeUpdate(state, record, ambiguous=state.name in snapshot.ambiguous)
    builder = RecordBuilder(record, urgent=record != state.record and not state.record.empty)
    uncovered = [fault for growth in grown for fault in _fold_growth(builder, growth, state)]
    if is_removed:
        folded = builder.finish()
        builder.load(released_by_hand(folded, state=state, now=now, read_ns=snapshot.read_ns))
        builder.urgent = True
    known: set[IncidentKey] = set()
    for fault in sorted((*uncovered, *faults), key=Fault.order):
        if fault.times > 1 and fault.key in known:
            fault = replace(fault, times=1)  # some of the other occurrences in ``times`` may be known as well
        reason = _fold_fault(builder, state, fault, now)
        if reason is not None:
            known.add(fault.key)
            builder.ignored.append(DroppedFault(fault, reason))
    entries = builder.entries.values()
    return NodeUpdate(
        state,
        builder.finish(),
        urgent=builder.urgent or any(entry.goes_on for entry in entries),
        counted=tuple(builder.counted),
        ignored=tuple(builder.ignored),
        grown=tuple(entry.growth(entry.latest) for entry in entries if entry.latest is not None),
        news=tuple(builder.news),
        to_announce=builder.ended,
        removed_by_hand=is_removed,
        ambiguous=state.name in snapshot.ambiguous,
    )


def _fold_growth(builder: RecordBuilder, growth: Growth, state: NodeState) -> list[Fault]:
    """Add one growth to the record; return the faults that become new because of a release in between."""
    fault = growth.latest
    boot_id = fault.finding.position.boot_id
    entry = builder.entry((fault.finding.rule, fault.finding.gpu, fault.severity.taints, boot_id))
    if entry is None or entry.seen(fault):
        return []  # purged since, or written although no answer came
    if entry.incident.state is not IncidentState.RELEASED:
        entry.catch_up(growth)
        builder.read_to(fault.finding.position, state.machine.boot_id)
        return []
    if growth.counted_ns > (entry.incident.released_ns or 0):
        return [replace(fault, times=1)]  # counted after the release, before the controller saw it
    entry.extend(fault, 0)
    builder.record = covered_to(builder.record, fault, entry.incident.released_ns)
    builder.urgent = True
    return []


def _fold_fault(builder: RecordBuilder, state: NodeState, fault: Fault, now: datetime) -> str | None:
    """Fold one fault; return why it adds nothing, or None if it was counted."""
    reason = why_not_of_node(builder.record.past_boots, state, fault, now)
    if reason is not None:
        return reason
    finding, taints, own_boot = fault.finding, fault.severity.taints, state.machine.boot_id
    booted, names_boot = fault, finding.position.boot_id is not None
    if not names_boot:
        if builder.record.past_boots and _read_again(builder, fault):
            return SEEN_BEFORE
        booted = with_boot(fault, own_boot)
    boot_id = booted.finding.position.boot_id
    is_own_end = finding.clears == finding.rule
    if is_own_end and (standing := _open_of(builder, booted)):
        return _note_end(builder, standing, booted, own_boot)
    booted, key = builder.placed(booted)
    entry = builder.entry(key)
    if entry is not None or builder.record.releases:
        reason = _why_known(builder, entry, booted, names_boot=names_boot)
        if reason is not None:
            return reason
    remembered = builder.entry((finding.rule, finding.gpu, False, boot_id)) if taints else None
    if remembered is not None and remembered.repeats_before_install(booted):
        return BEFORE_INSTALL
    builder.read_to(booted.finding.position, own_boot)
    if entry is None and not builder.make_room(booted):
        return RECORD_FULL
    builder.counted.append(fault)
    if finding.clears is not None:
        _close_ended(builder, booted)
    if entry is not None and entry.incident.state is not IncidentState.RELEASED:
        entry.grow(booted, unix_ns(now))
        return None
    incident = _new_incident(booted, IncidentState.ACTIVE if boot_id == own_boot else IncidentState.PENDING)
    if is_own_end:  # no open incident has this end: record it as closed
        incident = replace(incident, state=IncidentState.RELEASED, released_ns=fault.timestamp_ns)
    builder.open(key, incident)
    builder.news.append(booted)
    builder.urgent = True
    return None


def _why_known(
    builder: RecordBuilder, entry: IncidentBuilder | None, fault: Fault, *, names_boot: bool
) -> str | None:
    """Return why a fault adds nothing to the record, or None."""
    if entry is not None and entry.seen(fault):
        return SEEN_BEFORE
    is_released = entry is not None and entry.incident.state is IncidentState.RELEASED
    if entry is None or (is_released and not entry.before_release(fault)):
        # The last release does not cover an incident that an earlier release closed, nor one that never was
        # recorded.
        return why_covered(builder.record, fault, names_boot=names_boot)
    if not entry.before_release(fault):
        return None
    if is_released:
        # The line is older than the release and was read after it: record its position, so that a replay is
        # covered too.
        entry.extend(fault, 0)
        builder.urgent = True
    return COVERED_BY_TIME if fault.severity.taints else SEEN_BEFORE


def _open_of(builder: RecordBuilder, fault: Fault) -> list[IncidentBuilder]:
    """Return the open incidents of a fault's rule, GPU and boot, whether they taint or not."""
    finding, boots = fault.finding, {fault.finding.position.boot_id}
    if finding.kind is FaultKind.NODE:  # the Node shows what is so now, whatever its boot was then
        boots = {each.last.boot_id for each in builder.record.incidents if each.key == fault.key}
    keys = ((finding.rule, finding.gpu, taints, boot) for boot in boots for taints in (True, False))
    found = map(builder.entry, keys)
    return [each for each in found if each and each.incident.state is not IncidentState.RELEASED]


def _note_end(
    builder: RecordBuilder, standing: Iterable[IncidentBuilder], fault: Fault, own_boot: str | None
) -> str | None:
    """Note the end that the driver reports for these incidents; return why the line adds nothing, or None."""
    before = [entry for entry in standing if not entry.seen(fault)]
    if not before:
        return SEEN_BEFORE
    for entry in before:
        entry.end(fault)
    builder.read_to(fault.finding.position, own_boot)
    builder.counted.append(fault)
    builder.ended, builder.urgent = _new_incident(fault, IncidentState.ACTIVE), True
    return None


def _close_ended(builder: RecordBuilder, fault: Fault) -> None:
    """Close the incident whose end this line reports. A tainted node stays tainted until a release."""
    finding = fault.finding
    key = (str(finding.clears), finding.gpu, False, finding.position.boot_id)
    entry = builder.entry(key)
    if (
        entry is not None
        and entry.incident.state is IncidentState.ACTIVE
        and not entry.incident.taints
        and entry.last.at_or_before(finding.position)
    ):
        entry.close(fault.timestamp_ns)
        builder.urgent = True


def _read_again(builder: RecordBuilder, fault: Fault) -> bool:
    """Whether a line without a boot id is evidence of an earlier boot that was read before.

    A line read a second time has the same Loki timestamp. A replay has a later one, but not later than the
    start of the present boot: a kernel log contains only its own boot.
    """
    finding, booted_ns = fault.finding, builder.record.booted_after_ns or 0
    keys = ((finding.rule, finding.gpu, fault.severity.taints, boot) for boot in builder.record.past_boots)
    return any(
        fault.timestamp_ns <= max(entry.last_ns, booted_ns) and finding.position.at_or_before(entry.last)
        for entry in map(builder.entry, keys)
        if entry is not None
    )


def _new_incident(fault: Fault, state: IncidentState) -> Incident:
    finding = fault.finding
    return Incident(
        key=fault.key,
        kind=finding.kind,
        severity=fault.severity,
        state=state,
        count=fault.times,
        first_ns=fault.timestamp_ns,
        last_ns=fault.timestamp_ns,
        last=finding.position,
        code=finding.code,
        evidence=finding.text,
        title=finding.title,
        advice=finding.advice,
        needs=finding.needs,
        source=fault.source,
        before_install=fault.before_install,
        user_written=finding.user_written,
        job=fault.job,
        uuid=finding.uuid,
        serial=finding.serial,
    )


def key_of(incident: Incident) -> Key:
    """Return the key of a recorded incident."""
    return (incident.key.rule, incident.key.gpu, incident.severity.taints, incident.last.boot_id)


class IncidentBuilder:
    """One incident while occurrences are added to it."""

    def __init__(self, incident: Incident, recorded: Incident | None = None) -> None:
        self.incident = incident
        self.recorded = recorded
        """The incident in the record that this one continues; None for a new incident."""
        self.count, self.last, self.last_ns = incident.count, incident.last, incident.last_ns
        self.user_written = incident.user_written
        self.goes_on = False
        """Whether it occurred again after it was acknowledged, or after the driver reported its end."""
        self.latest: Fault | None = None
        """The latest of the ``unwritten`` occurrences, which the node's annotation does not count yet."""
        self.unwritten = 0
        self.reached = NOWHERE
        """The latest kernel position of the unwritten occurrences."""
        self.counted_ns = 0
        """When the latest of them was counted, by the controller's clock."""

    def seen(self, fault: Fault) -> bool:
        """Whether the incident counts this fault already: the line is a replay, or was read twice."""
        order = fault.finding.position.at_or_before(self.last)
        if order is not None:
            return order
        if fault.timestamp_ns == self.last_ns and self.count == 1:
            # The annotation may contain only the beginning of the line. With several occurrences, it quotes
            # the first line, which does not identify the last.
            return fault.finding.text.startswith(self.incident.evidence.removesuffix("…"))
        return fault.timestamp_ns <= self.last_ns

    def repeats_before_install(self, fault: Fault) -> bool:
        """Whether the fault repeats a kernel line of this incident, which is older than the first start."""
        return self.incident.before_install and bool(fault.finding.position.at_or_before(self.last))

    def before_release(self, fault: Fault) -> bool:
        """Whether a release covers the fault by its time, because its position cannot be compared."""
        if self.incident.released_ns is None or fault.finding.position.at_or_before(self.last) is not None:
            return False
        return fault.timestamp_ns <= self.incident.released_ns

    def extend(self, fault: Fault, count: int) -> None:
        """Add ``count`` occurrences, the latest of which is ``fault``."""
        self.count += count
        self.last_ns = max(self.last_ns, fault.timestamp_ns)
        self.last = self.last.later(fault.finding.position)
        self.user_written = self.user_written and fault.finding.user_written
        ack, finding = self.incident.ack, fault.finding
        if ack is not None and count and not self.incident.taints and fault.timestamp_ns > unix_ns(ack.at):
            self.incident = replace(self.incident, ack=None)  # so that a person sees the incident again
            self.goes_on = True
        if self.incident.ended_ns is not None and count:
            self.incident = replace(self.incident, ended_ns=None, advice=finding.advice, needs=finding.needs)
            self.goes_on = True

    def grow(self, fault: Fault, now_ns: int) -> None:
        """Add an occurrence that may be written later."""
        self.extend(fault, fault.times)
        self.latest = fault
        self.unwritten += fault.times
        self.reached = self.reached.later(fault.finding.position)
        self.counted_ns = now_ns

    def catch_up(self, growth: Growth) -> None:
        """Add the growth: occurrences that earlier decisions counted and did not write."""
        self.extend(growth.latest, max(0, growth.count - self.count))
        self.latest, self.unwritten = growth.latest, growth.latest.times
        self.reached = growth.latest.finding.position
        self.counted_ns = growth.counted_ns

    def close(self, ended_ns: int) -> None:
        """Close the incident, which does not taint: a line reported its end."""
        self.incident = replace(
            self.incident,
            state=IncidentState.RELEASED,
            released_ns=ended_ns,
            met_ns=ended_ns,
            met_by=MetBy.HEALTHY_LINE,
        )

    def end(self, fault: Fault) -> None:
        """Note the end that the driver reports; an incident that taints stays open until a release."""
        self.extend(fault, 0)
        if not self.incident.taints:
            self.close(fault.timestamp_ns)
            return
        advice, needs = fault.finding.advice, fault.finding.needs
        self.incident = replace(self.incident, ended_ns=fault.timestamp_ns, advice=advice, needs=needs)

    def value(self) -> Incident:
        """Return the incident with the added occurrences; the identical object if there are none."""
        added = (self.count, self.last_ns, self.last, self.user_written)
        before = self.incident
        if added == (before.count, before.last_ns, before.last, before.user_written):
            return before
        return replace(
            before, count=self.count, last_ns=self.last_ns, last=self.last, user_written=self.user_written
        )

    def growth(self, latest: Fault) -> Growth:
        """Return all unwritten occurrences, for the next decision unless the record is written now."""
        finding = latest.finding._replace(position=self.reached, user_written=self.user_written)
        return Growth(
            self.count, replace(latest, finding=finding, times=self.unwritten), counted_ns=self.counted_ns
        )


class RecordBuilder:
    """One node's record while faults are folded into it."""

    def __init__(self, record: NodeRecord, *, urgent: bool) -> None:
        """``urgent`` is whether the record is written now, whatever is folded into it."""
        self.urgent = urgent
        self.counted: list[Fault] = []
        self.ignored: list[DroppedFault] = []
        self.news: list[Fault] = []
        """The faults that opened or reopened an incident."""
        self.ended: Incident | None = None
        """The last incident whose end the driver reported."""
        self.load(record)

    def load(self, record: NodeRecord) -> None:
        """Start again from this record."""
        self.record, self.read = record, record.read
        self.entries: dict[Key, IncidentBuilder] = {}
        """The incidents that faults may have changed, and the new ones; most of a record need none."""
        self.recorded = {key_of(each): each for each in reversed(record.incidents)}

    def entry(self, key: Key) -> IncidentBuilder | None:
        """Return the builder of the incident with this key; None if there is no such incident."""
        known = self.entries.get(key)
        if known is None and (incident := self.recorded.get(key)) is not None:
            known = self.entries[key] = IncidentBuilder(incident, incident)
        return known

    def open(self, key: Key, incident: Incident) -> None:
        """Add a new incident. It is the last, and replaces a released one of its key."""
        self.remove(key)
        self.entries[key] = IncidentBuilder(incident)

    def remove(self, key: Key) -> None:
        """Remove the incident with this key, if there is one."""
        self.entries.pop(key, None)
        if (recorded := self.recorded.pop(key, None)) is not None:
            kept = tuple(i for i in self.record.incidents if i is not recorded)
            self.record = replace(self.record, incidents=kept)

    def incidents(self) -> dict[Key, Incident]:
        """Return all incidents, the new ones too; their counts may be out of date."""
        return self.recorded | {key: each.incident for key, each in self.entries.items()}

    def placed(self, fault: Fault) -> tuple[Fault, Key]:
        """Return the fault and the key of its incident; without its GPU if its rule has enough others."""
        rule, gpu, boot_id = fault.finding.rule, fault.finding.gpu, fault.finding.position.boot_id
        key = (rule, gpu, fault.severity.taints, boot_id)
        if gpu is None or self.entry(key) is not None:
            return fault, key
        gpus = {known[1] for known in self.incidents() if known[0] == rule} - {None, gpu}
        if len(gpus) < GPUS_OF_RULE_MOST:
            return fault, key
        fault = replace(fault, finding=fault.finding._replace(gpu=None))
        return fault, (rule, None, fault.severity.taints, boot_id)

    def make_room(self, fault: Fault) -> bool:
        """Whether the record may have one more incident, for this fault; the least needed one gives way.

        A released incident gives way, and for a fault that taints any other that does not.
        """
        incidents = self.incidents()
        if fault.source is Source.POD:
            incidents = {key: each for key, each in incidents.items() if each.source is Source.POD}
        if len(incidents) < (INCIDENTS_OF_PODS_MOST if fault.source is Source.POD else INCIDENTS_MOST):
            return True
        taints = fault.severity.taints
        spare = [
            (
                each.state is not IncidentState.RELEASED,
                each.taints,
                each.source is not Source.POD,
                each.last_ns,
                key,
            )
            for key, each in incidents.items()
            if (taints and not each.taints) or each.state is IncidentState.RELEASED
        ]
        if spare:
            self.remove(min(spare, key=lambda each: each[:4])[-1])
        return bool(spare)

    def read_to(self, position: KernelPosition, own_boot: str | None) -> None:
        """Note that the kernel log of the Node's own boot was folded up to the position."""
        if position.boot_id != own_boot:
            return
        if self.read.boot_id != position.boot_id:
            self.read = position
        elif position.known:
            self.read = self.read.later(position)

    def finish(self) -> NodeRecord:
        """Build the record from the incidents."""
        if self.entries or self.read is not self.record.read:
            values = {id(each.recorded): each.value() for each in self.entries.values()}
            kept = (values.get(id(incident), incident) for incident in self.record.incidents)
            new = (each.value() for each in self.entries.values() if each.recorded is None)
            self.record = replace(self.record, incidents=(*kept, *new), read=self.read)
        return self.record
