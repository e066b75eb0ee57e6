"""The incidents of one node: faults are folded into its record.

To fold a fault means to add it to its incident: a new incident, or one more occurrence of a known one. A
fault that is in the record already, or that a release covers, adds nothing.

``decide`` folds the new faults of each node separately, before it assesses the fleet and asks the brake. Once
the brake has decided, :func:`with_states` sets the open incidents to active or held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    Needs,
    NodeRecord,
    NodeState,
    Source,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.covers import (
    covered_to,
    covers,
    decides_by_position,
    had_been_read,
    part_marks,
    parts_still_needed,
)
from konductor_like.policy.folding import IncidentBuilder, RecordBuilder
from konductor_like.policy.machines import PAST_BOOTS_KEPT
from konductor_like.policy.update import NodeUpdate

UPTIME_MARGIN_US = 900_000_000
"""Microseconds by which a kernel stamp may exceed the boot's longest possible uptime: stamps drift, clocks
are set."""
OPTED_OUT = "the node is opted out"
NO_GPU = "the node has no GPU"
SEEN_BEFORE = "seen before"
COVERED = "covered by the last release"
BEFORE_INSTALL = "a replay from before the first start"
BOOT_LEFT = "the line is from an earlier boot of the node"
RECORD_FULL = "the node's record has as many incidents as it may have"
QUIET_REASONS = frozenset({SEEN_BEFORE, COVERED, OPTED_OUT, BEFORE_INSTALL, BOOT_LEFT})
"""Reasons that are part of normal operation: the dropped line is counted, but not logged."""
COVERED_BY_TIME = "only its time, and no position in the kernel log, shows that the last release covers it"
"""Only clocks show that a line that would taint is no new one, and clocks may be off."""
COVERED_LATE = "the line precedes the last release in the kernel log, but was read after it"
"""Either a replay of a line that no record has any more, or a line that arrived after later ones: nothing
shows which."""


def fold_faults(
    state: NodeState,
    faults: Sequence[Fault],
    grown: Iterable[Growth],
    now: datetime,
    *,
    removal: Callable[[NodeRecord], NodeRecord] | None,
) -> NodeUpdate:
    """Fold ``grown`` (counted earlier, not yet written) and then ``faults`` into the node's record.

    ``removal``, given when somebody removed the taint by hand, adds the release (rule 23). The release covers
    what was counted until now, and none of the new faults.
    """
    record = _at_present_machine(state, now)
    builder = RecordBuilder(record, urgent=record != state.record and not state.record.empty)
    uncovered = [fault for growth in grown for fault in _fold_growth(builder, growth, state)]
    if removal is not None:
        builder.load(removal(builder.finish()))
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
        builder.urgent or any(entry.goes_on for entry in entries),
        counted=tuple(builder.counted),
        ignored=tuple(builder.ignored),
        grown=tuple(entry.growth(entry.latest) for entry in entries if entry.latest is not None),
        news=tuple(builder.news),
        to_announce=builder.ended,
    )


def _at_present_machine(state: NodeState, now: datetime) -> NodeRecord:
    """Return the record adapted to the machine and the boot that the Node has now."""
    record, machine = state.record, state.machine
    known = record.machine
    if known is not None and known.node_uid != machine.node_uid and known.system_id != machine.system_id:
        # Somebody applied a manifest with the annotation of another machine: that record is not this
        # machine's.
        return NodeRecord(machine=machine)
    if known is not None and known.boot_id != machine.boot_id and known.boot_id and machine.boot_id:
        past = (known.boot_id, *(boot for boot in record.past_boots if boot != known.boot_id))
        record = replace(
            record,
            past_boots=tuple(boot for boot in past if boot != machine.boot_id)[:PAST_BOOTS_KEPT],
            # Released incidents end with their boot.
            incidents=tuple(
                incident
                for incident in record.incidents
                if incident.last.boot_id == machine.boot_id or incident.state is not IncidentState.RELEASED
            ),
            part_covers=parts_still_needed(record.part_covers, machine.boot_id, now),
            read=KernelPosition(machine.boot_id),
            booted_after_ns=None,
        )
        if None not in (known.system_id, machine.system_id) and known.system_id != machine.system_id:
            record = replace(record, incidents=tuple(map(_of_another_machine, record.incidents)))
    booted_after_ns = record.booted_after_ns or state.booted_after_ns
    if (record.machine, record.booted_after_ns) != (machine, booted_after_ns):
        record = replace(record, machine=machine, booted_after_ns=booted_after_ns)
    if all(incident.state is not IncidentState.PENDING for incident in record.incidents):
        return record
    return replace(
        record,
        # A pending incident becomes active when the Node reaches its boot.
        incidents=tuple(
            replace(incident, state=IncidentState.ACTIVE)
            if incident.state is IncidentState.PENDING and incident.last.boot_id == machine.boot_id
            else incident
            for incident in record.incidents
        ),
    )


def _of_another_machine(incident: Incident) -> Incident:
    """Return the incident of a Node that another machine runs now: a person has to look at both machines."""
    if not incident.taints or incident.by_person:
        return incident
    advice = "Another machine has the name of this Node now. Check the machine, then reset the node."
    return replace(incident, advice=advice, needs=Needs.INSPECTION.value)


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
        marks = [*builder.record.releases, *part_marks(builder.record, fault)]
        booted_ns = builder.record.booted_after_ns
        marks = [
            mark for mark in marks if covers(mark, fault, names_boot=names_boot, booted_after_ns=booted_ns)
        ]
        if not marks:
            return None
        if not fault.severity.taints:
            return COVERED
        if not any(decides_by_position(mark, fault) for mark in marks):
            return COVERED_BY_TIME
        return COVERED if any(had_been_read(mark, fault) for mark in marks) else COVERED_LATE
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


def why_not_of_node(past_boots: Sequence[str], state: NodeState, fault: Fault, now: datetime) -> str | None:
    """Return why a fault is no evidence about the Node's present machine and boot, or None."""
    boot_id = fault.finding.position.boot_id
    if state.opted_out:
        return OPTED_OUT
    is_past = boot_id is not None and boot_id != state.machine.boot_id and boot_id in past_boots
    if boot_id is None and state.booted_after_ns is not None:
        is_past = _precedes_boot(state.booted_after_ns, fault.finding.position.stamp_us, now)
    if is_past:
        return BOOT_LEFT
    if fault.timestamp_ns < state.created_ns and (boot_id is None or boot_id != state.machine.boot_id):
        return "the line is older than this Node"
    if not state.is_gpu_node and not (fault.source is Source.KERNEL and fault.finding.kind.proves_gpu):
        return NO_GPU
    return None


def _precedes_boot(booted_after_ns: int, stamp_us: int | None, now: datetime) -> bool:
    """Whether a stamp without a boot id is higher than the present boot can have reached by now."""
    uptime_us = max(0, unix_ns(now) - booted_after_ns) // 1000
    return stamp_us is not None and stamp_us > uptime_us + uptime_us // 1000 + UPTIME_MARGIN_US


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
    )


def with_boot(fault: Fault, boot_id: str | None) -> Fault:
    """Return the fault with a boot id: a line without one is of the present boot."""
    position = fault.finding.position
    if position.boot_id is not None or boot_id is None:
        return fault
    return replace(fault, finding=fault.finding._replace(position=replace(position, boot_id=boot_id)))
