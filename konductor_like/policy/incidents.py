"""The incidents of one node: evidence is folded into its record; what was seen or released is passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from konductor_like.model import (
    Fault,
    Growth,
    Ignored,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    NodeRecord,
    NodeState,
    Release,
    Role,
    Severity,
    Source,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.incident_builder import IncidentBuilder, RecordBuilder, with_boot
from konductor_like.policy.machines import PAST_BOOTS_KEPT

UPTIME_MARGIN_US = 900_000_000
"""So much higher than it should be a stamp may be, by drift and by clocks that are set, and still count."""
OPTED_OUT = "the node is opted out"
NO_GPU = "the node has no GPU"
SEEN_BEFORE = "seen before"
COVERED = "covered by the last release"
BEFORE_INSTALL = "a replay from before the first start"
BOOT_LEFT = "it happened in a boot that the node has left"
QUIET_REASONS = frozenset({SEEN_BEFORE, COVERED, OPTED_OUT, BEFORE_INSTALL, BOOT_LEFT})
"""Why a line led to nothing in the ordinary course of things: counted, and no line of the log."""
COVERED_LATE = "it stands before the last release in the kernel log, although it was read later"
"""A replay of what is on no record any more, or a line that others overtook: nothing tells the two apart."""
SUSPECT = "suspect"
"""The health label of a node that something stands against which does not taint."""


@dataclass(slots=True)
class Folded:
    """What one node's evidence comes to. ``urgent`` says that the record must be written now."""

    record: NodeRecord
    urgent: bool = False
    counted: list[Fault] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    grown: tuple[Growth, ...] = ()
    """What the record counts and the node does not tell of yet."""
    news: list[Fault] = field(default_factory=list)
    """The faults that opened or reopened an incident in this folded."""
    notable: Incident | None = None
    """What to tell of although nothing opened: the driver says that it has ended, or it made a suspect."""


def fold_faults(
    state: NodeState,
    faults: Sequence[Fault],
    grown: Iterable[Growth],
    now: datetime,
    *,
    removal: Callable[[NodeRecord], NodeRecord] | None,
) -> Folded:
    """Fold ``grown`` (counted earlier, not on the node yet) and then ``faults`` into the node's record.

    ``removal`` makes a release of a taint that was taken off by hand, where one was (rule 23). It
    covers what was counted until now, and not the new faults.
    """
    folded = Folded(state.record)
    _meet_machine(folded, state)
    builder = RecordBuilder(folded.record)
    leftover = _fold_growth(folded, builder, grown, state.machine.boot_id)
    if removal is not None:
        builder = RecordBuilder(removal(builder.record()))
        folded.urgent = True
    known: set[IncidentKey] = set()
    for fault in sorted((*leftover, *faults), key=Fault.order):
        if fault.times > 1 and fault.key in known:
            fault = replace(fault, times=1)  # of the others that it stands for some may be known as well
        reason = _fold_fault(folded, builder, state, fault, now)
        if reason is not None:
            known.add(fault.key)
            folded.ignored.append(Ignored(fault, reason))
    folded.urgent = folded.urgent or builder.goes_on
    folded.record = builder.record()
    folded.grown = builder.growths()
    return folded


def _meet_machine(folded: Folded, state: NodeState) -> None:
    """Bring the record up to the machine that stands behind the name now."""
    record, machine = folded.record, state.machine
    known = record.machine
    if known is not None and known.node_uid != machine.node_uid and known.system_id != machine.system_id:
        # A manifest was applied to another machine, annotation and all: its memory is not this one's.
        folded.record, folded.urgent = NodeRecord(machine=machine), not record.empty
        return
    if known is not None and known.boot_id != machine.boot_id and known.boot_id and machine.boot_id:
        past = (known.boot_id, *(boot for boot in record.past_boots if boot != known.boot_id))
        record = replace(
            record,
            past_boots=tuple(boot for boot in past if boot != machine.boot_id)[:PAST_BOOTS_KEPT],
            incidents=tuple(_after_boot(record.incidents, machine.boot_id)),
            read=KernelPosition(machine.boot_id),
            booted_after_ns=None,
        )
    record = replace(
        record,
        machine=machine,
        booted_after_ns=record.booted_after_ns or state.booted_after_ns,
        incidents=tuple(_met_boot(incident, machine.boot_id) for incident in record.incidents),
    )
    folded.urgent = not folded.record.empty and record != folded.record
    folded.record = record


def _after_boot(incidents: Iterable[Incident], boot_id: str) -> Iterable[Incident]:
    """What is left after a reboot: what was held expires, and so does what was released."""
    for incident in incidents:
        if incident.last.boot_id == boot_id or incident.state in (
            IncidentState.ACTIVE,
            IncidentState.PENDING,
        ):
            yield incident


def _met_boot(incident: Incident, boot_id: str | None) -> Incident:
    """Evidence that was ahead of its boot counts once the node is there."""
    if incident.state is not IncidentState.PENDING or incident.last.boot_id != boot_id:
        return incident
    return replace(incident, state=_opening_state(incident.severity))


def _fold_growth(
    folded: Folded, builder: RecordBuilder, grown: Iterable[Growth], own_boot: str | None
) -> list[Fault]:
    """Add counts kept in memory to the record; gives back what a release since then does not cover."""
    uncovered: list[Fault] = []
    for growth in grown:
        fault = growth.latest
        boot_id = fault.finding.position.boot_id
        entry = builder.find((fault.finding.rule, fault.finding.gpu, fault.severity.taints, boot_id))
        if entry is None or entry.seen(fault):
            continue  # purged since, or written although the answer was lost
        if entry.state is not IncidentState.RELEASED:
            entry.catch_up(growth)
            if boot_id == own_boot:
                builder.read_to(fault.finding.position, boot_id)
        elif entry.before_release(fault):
            entry.extend(fault, 0)
            folded.urgent = True
        else:
            uncovered.append(replace(fault, times=1))
    return uncovered


def _fold_fault(
    folded: Folded, builder: RecordBuilder, state: NodeState, fault: Fault, now: datetime
) -> str | None:
    """Count one fault, or say why it leads to nothing."""
    reason = _not_ours(builder.past_boots, state, fault, now)
    if reason is not None:
        return reason
    finding, taints, own_boot = fault.finding, fault.severity.taints, state.machine.boot_id
    boot_id = finding.position.boot_id
    if boot_id is None:
        if _read_again(builder, fault, taints=taints):
            return SEEN_BEFORE
        boot_id = own_boot
    is_own_end = finding.clears == finding.rule
    if is_own_end and (standing := builder.standing(finding.rule, finding.gpu, boot_id)):
        return _end(folded, builder, standing, with_boot(fault, boot_id), own_boot)
    entry = builder.find((finding.rule, finding.gpu, taints, boot_id))
    reason = _known(folded, builder, entry, fault, boot_id)
    if reason is not None:
        return reason
    if taints and builder.remembered and _predates_install(builder, fault, boot_id):
        return BEFORE_INSTALL
    if boot_id == own_boot:
        builder.read_to(finding.position, boot_id)
    folded.counted.append(fault)
    if finding.clears is not None:
        _take_back(folded, builder, fault, boot_id)
    if entry is not None and entry.state is not IncidentState.RELEASED:
        entry.grow(fault)
        return None
    opening = with_boot(fault, boot_id)
    incident = _opened(opening, pending=boot_id != own_boot)
    if is_own_end:  # nothing of it stands: remembered, and closed
        incident = replace(incident, state=IncidentState.RELEASED, released_ns=fault.timestamp_ns)
    builder.open(incident)
    folded.news.append(opening)
    folded.urgent = True
    return None


def _known(
    folded: Folded, builder: RecordBuilder, entry: IncidentBuilder | None, fault: Fault, boot_id: str | None
) -> str | None:
    """Why a fault adds nothing to what the record says, if it does not; ``boot_id`` is the boot it is of."""
    if entry is not None and entry.seen(fault):
        return SEEN_BEFORE
    if entry is None or (entry.state is IncidentState.RELEASED and not entry.before_release(fault)):
        # An incident that an earlier release closed is no part of the last one, as one that never was.
        names_boot, booted = fault.finding.position.boot_id is not None, with_boot(fault, boot_id)
        marks = [mark for mark in builder.releases if covers(mark, booted, names_boot=names_boot)]
        if not marks:
            return None
        read = any(had_been_read(mark, fault) for mark in marks)
        return COVERED if read or not fault.severity.taints else COVERED_LATE
    if not entry.before_release(fault):
        return None
    if entry.state is IncidentState.RELEASED:
        # Read only now, but older than the release: remember it, so that a replay of it is covered too.
        entry.extend(fault, 0)
        folded.urgent = True
    return SEEN_BEFORE


def _end(
    folded: Folded,
    builder: RecordBuilder,
    standing: Iterable[IncidentBuilder],
    fault: Fault,
    own_boot: str | None,
) -> str | None:
    """Note on what stands that the driver says that it is over; a taint waits for its reset all the same."""
    before = [entry for entry in standing if not entry.seen(fault)]
    if not before:
        return SEEN_BEFORE
    for entry in before:
        entry.end(fault)
    position = fault.finding.position
    if position.boot_id == own_boot:
        builder.read_to(position, own_boot)
    folded.counted.append(fault)
    folded.notable, folded.urgent = _opened(fault, pending=False), True
    return None


def _take_back(folded: Folded, builder: RecordBuilder, fault: Fault, boot_id: str | None) -> None:
    """Close what this line says has ended. It never brings a node back: a taint waits for its reset."""
    for entry in builder.taken_back(fault, boot_id):
        entry.release(fault.timestamp_ns)
        folded.urgent = True


def is_of_this_node(state: NodeState, fault: Fault, now: datetime) -> bool:
    """Whether a fault says something about the machine that stands behind the Node's name now."""
    return _not_ours(state.record.past_boots, state, fault, now) is None


def _not_ours(past_boots: Sequence[str], state: NodeState, fault: Fault, now: datetime) -> str | None:
    """Why a fault says nothing about this node's machine, if it does not."""
    boot_id = fault.finding.position.boot_id
    if state.opted_out:
        return OPTED_OUT
    named = boot_id is not None and boot_id != state.machine.boot_id and boot_id in past_boots
    if named or (boot_id is None and _precedes_boot(state, fault.finding.position.stamp_us, now)):
        return BOOT_LEFT
    if fault.timestamp_ns < state.created_ns and (boot_id is None or boot_id != state.machine.boot_id):
        return "it is older than this Node"
    if not state.is_gpu_node and not (fault.source is Source.KERNEL and fault.finding.kind.proves_gpu):
        return NO_GPU
    return None


def _precedes_boot(state: NodeState, stamp_us: int | None, now: datetime) -> bool:
    """Whether a stamp without a boot is higher than the present boot can have come to by now."""
    if stamp_us is None or state.booted_after_ns is None:
        return False
    uptime_us = max(0, unix_ns(now) - state.booted_after_ns) // 1000
    return stamp_us > uptime_us + uptime_us // 1000 + UPTIME_MARGIN_US


def _read_again(builder: RecordBuilder, fault: Fault, *, taints: bool) -> bool:
    """Whether a line that names no boot is known evidence of an earlier boot, read a second time.

    Read again it has the Loki timestamp that it had; a replay of that boot's log would have a new one, but a
    kernel log holds nothing of an earlier boot.
    """
    finding = fault.finding
    return any(
        entry.key[:3] == (finding.rule, finding.gpu, taints)
        and fault.timestamp_ns <= entry.last_ns
        and bool(finding.position.at_or_before(entry.last))
        for entry in builder.of_past_boots
    )


def _predates_install(builder: RecordBuilder, fault: Fault, boot_id: str | None) -> bool:
    """Whether it repeats kernel evidence that was only remembered: it is older than the first start."""
    finding = fault.finding
    return any(
        entry.key[:2] == (finding.rule, finding.gpu)
        and entry.boot_id == boot_id
        and bool(finding.position.at_or_before(entry.last))
        for entry in builder.remembered
    )


def _opened(fault: Fault, *, pending: bool) -> Incident:
    finding, severity = fault.finding, fault.severity
    return Incident(
        key=fault.key,
        kind=finding.kind,
        severity=severity,
        state=IncidentState.PENDING if pending else _opening_state(severity),
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


def _opening_state(severity: Severity) -> IncidentState:
    """What would taint starts as held; the brake lets it pass, in the same decision when it can."""
    return IncidentState.HELD if severity.taints else IncidentState.ACTIVE


def covers(mark: Release, fault: Fault, *, names_boot: bool) -> bool:
    """Whether a release covers evidence of an incident that was not recorded when it was made.

    By kernel position within the boot where both are known, else by what had been read of the source. A line
    that names no boot may be of the boot before, read again after a restart: then only the latter can tell.
    """
    position = fault.finding.position
    if mark.read.boot_id != position.boot_id:
        return had_been_read(mark, fault) and not names_boot
    if position.known and mark.read.known:
        return bool(position.at_or_before(mark.read))
    return had_been_read(mark, fault)


def had_been_read(mark: Release, fault: Fault) -> bool:
    """Whether this very line had been read when a release was made; a replay of it has a later timestamp."""
    return fault.timestamp_ns < mark.read_ns.get(fault.source, 0)


def tainting(record: NodeRecord) -> list[Incident]:
    """The incidents that a taint stands for, or would stand for if the brake let it."""
    open_states = (IncidentState.ACTIVE, IncidentState.HELD)
    return [
        i for i in record.incidents if i.taints and i.state in open_states and i.role is not Role.COLLATERAL
    ]


def health_of(record: NodeRecord, *, tainted: bool) -> str | None:
    """The value of the health label; None for a node that nothing stands against."""
    if tainted:
        return "faulty"
    if tainting(record):
        return "held"
    return SUSPECT if any(map(_is_suspicious, record.incidents)) else None


def _is_suspicious(incident: Incident) -> bool:
    """Whether it makes a node suspect; what a person has acknowledged does not."""
    if incident.ack is not None:
        return False
    if incident.state is not IncidentState.ACTIVE:
        return incident.state is IncidentState.PENDING
    if incident.role is Role.COLLATERAL:
        return incident.severity.taints  # it looked fatal: worth a look still
    return incident.severity is Severity.SUSPECT


def with_taint(record: NodeRecord, now: datetime) -> NodeRecord:
    """The record once the taint stands: what was held holds, and the taint is claimed as ours."""
    incidents = tuple(
        replace(incident, state=IncidentState.ACTIVE) if incident.state is IncidentState.HELD else incident
        for incident in record.incidents
    )
    return replace(record, incidents=incidents, tainted_at=record.tainted_at or now)


def is_waiting(incident: Incident) -> bool:
    """Whether it would taint by its severity, and has not yet."""
    held = incident.state is IncidentState.HELD and incident.severity.taints
    return held and incident.role is not Role.COLLATERAL


def open_incidents(record: NodeRecord, state: NodeState) -> list[Incident]:
    """The incidents that stand, of this boot."""
    return [
        incident
        for incident in record.incidents
        if incident.state in (IncidentState.ACTIVE, IncidentState.HELD)
        and not incident.before_install
        and incident.last.boot_id in (None, state.machine.boot_id)
    ]
