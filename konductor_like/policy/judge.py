"""Judging one node: fold evidence into its record, count what is new, pass over what was seen or covered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from konductor_like.model import (
    Fault,
    Ignored,
    Incident,
    IncidentState,
    KernelPosition,
    NodeRecord,
    NodeState,
    Severity,
    Source,
    TallyKey,
    Unsettled,
)
from konductor_like.policy.release import covers, released_record

PAST_BOOTS_KEPT = 8


@dataclass(slots=True)
class Judgement:
    """What one node's evidence comes to. ``urgent`` says that the record must be written now."""

    record: NodeRecord
    urgent: bool = False
    counted: list[Fault] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    unsettled: dict[TallyKey, Unsettled] = field(default_factory=dict)
    news: list[Fault] = field(default_factory=list)
    """The faults that opened or reopened an incident in this judgement."""


def judge(
    state: NodeState,
    faults: Sequence[Fault],
    unsettled: Mapping[TallyKey, Unsettled],
    now: datetime,
    *,
    removed_by_hand: bool,
    read_ns: Mapping[Source, int],
) -> Judgement:
    """Fold ``unsettled`` (counted earlier, not on the node yet) and then ``faults`` into the node's record.

    ``removed_by_hand`` says that the record claims a taint which is gone: a release (design rule 23). What
    was counted until now is covered by it; the new faults are not.
    """
    judgement = Judgement(state.record)
    _meet_machine(judgement, state)
    leftover = _fold_unsettled(judgement, unsettled)
    if removed_by_hand:
        _release_by_hand(judgement, state, now, read_ns)
    for fault in sorted((*leftover, *faults), key=_order):
        _judge_fault(judgement, state, fault, now)
    return judgement


def _meet_machine(judgement: Judgement, state: NodeState) -> None:
    """Bring the record up to the machine that stands behind the name now."""
    record, machine = judgement.record, state.machine
    known = record.machine
    if known is not None and known.node_uid != machine.node_uid and known.system_id != machine.system_id:
        # A manifest was applied to another machine, annotation and all: its memory is not this one's.
        judgement.record, judgement.urgent = NodeRecord(machine=machine), not record.empty
        return
    if known is not None and known.boot_id != machine.boot_id and known.boot_id and machine.boot_id:
        past = (known.boot_id, *(boot for boot in record.past_boots if boot != known.boot_id))
        record = replace(
            record,
            past_boots=tuple(boot for boot in past if boot != machine.boot_id)[:PAST_BOOTS_KEPT],
            incidents=tuple(_after_boot(record.incidents, machine.boot_id)),
            read=KernelPosition(machine.boot_id),
        )
    record = replace(
        record,
        machine=machine,
        incidents=tuple(_met_boot(incident, machine.boot_id) for incident in record.incidents),
    )
    judgement.urgent = not judgement.record.empty and record != judgement.record
    judgement.record = record


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


def _fold_unsettled(judgement: Judgement, unsettled: Mapping[TallyKey, Unsettled]) -> list[Fault]:
    """Add counts kept in memory to the record; gives back what a release since then does not cover."""
    uncovered: list[Fault] = []
    for key, tally in unsettled.items():
        incident = _find(judgement.record, key)
        if incident is None:
            continue  # purged since: no trace of us is wanted
        if incident.state is IncidentState.RELEASED:
            if _seen(incident, tally.latest) or _before_release(incident, tally.latest):
                _replace_incident(judgement, incident, _extended(incident, tally.latest, tally.count))
                judgement.urgent = True
            else:
                uncovered.append(tally.latest)
            continue
        _replace_incident(judgement, incident, _extended(incident, tally.latest, tally.count))
        judgement.unsettled[key] = tally
    return uncovered


def _release_by_hand(
    judgement: Judgement, state: NodeState, now: datetime, read_ns: Mapping[Source, int]
) -> None:
    judgement.record = released_record(
        replace(state, record=judgement.record),
        at=now,
        by=state.last_writer or "somebody",
        reason="",
        how="taint removed",
        read_ns=read_ns,
        # We may see it long after it happened: only what was counted is covered, not the time in between.
        until_ns=None,
    )
    judgement.unsettled.clear()
    judgement.urgent = True


def _judge_fault(judgement: Judgement, state: NodeState, fault: Fault, now: datetime) -> None:
    reason = _not_ours(judgement.record, state, fault)
    if reason is not None:
        judgement.ignored.append(Ignored(fault, reason))
        return
    if _read_again(judgement.record, fault):
        judgement.ignored.append(Ignored(fault, "seen before"))
        return
    names_boot = fault.finding.position.boot_id is not None
    fault = _with_boot(fault, state.machine.boot_id)
    position = fault.finding.position
    incident = _find(judgement.record, _tally_key(fault))
    pending = position.boot_id != state.machine.boot_id
    if incident is not None and (_seen(incident, fault) or _before_release(incident, fault)):
        if incident.state is IncidentState.RELEASED and not _seen(incident, fault):
            # Read only now, but older than the release: remember it, so that a replay of it is covered too.
            _replace_incident(judgement, incident, _extended(incident, fault, 0))
            judgement.urgent = True
        judgement.ignored.append(Ignored(fault, "seen before"))
        return
    marks = judgement.record.releases[:1]
    if incident is None and any(covers(mark, fault, names_boot=names_boot) for mark in marks):
        judgement.ignored.append(Ignored(fault, "covered by the last release"))
        return
    if fault.severity.taints and _predates_install(judgement.record, fault):
        judgement.ignored.append(Ignored(fault, "a replay from before the first start"))
        return
    if not pending:
        judgement.record = replace(judgement.record, read=_further(judgement.record.read, position))
    judgement.counted.append(fault)
    _take_back(judgement, fault)
    if incident is not None and incident.state is not IncidentState.RELEASED:
        _replace_incident(judgement, incident, _extended(incident, fault, 1))
        _count(judgement, fault, now)
        return
    kept = tuple(other for other in judgement.record.incidents if other is not incident)
    judgement.record = replace(judgement.record, incidents=(*kept, _opened(fault, pending=pending)))
    judgement.news.append(fault)
    judgement.urgent = True


def _take_back(judgement: Judgement, fault: Fault) -> None:
    """Close what this line says has ended. It never brings a node back: a taint waits for its reset."""
    for incident in judgement.record.incidents:
        if (
            (incident.key.rule, incident.key.gpu) == (fault.finding.clears, fault.finding.gpu)
            and incident.state is IncidentState.ACTIVE
            and not incident.severity.taints
            and incident.last.boot_id == fault.finding.position.boot_id
            and incident.last.at_or_before(fault.finding.position)
        ):
            ended = replace(incident, state=IncidentState.RELEASED, released_ns=fault.timestamp_ns)
            _replace_incident(judgement, incident, ended)
            judgement.urgent = True


def _not_ours(record: NodeRecord, state: NodeState, fault: Fault) -> str | None:
    """Why a fault says nothing about this node's machine, if it does not."""
    boot_id = fault.finding.position.boot_id
    if state.opted_out:
        return "the node is opted out"
    if boot_id is not None and boot_id != state.machine.boot_id and boot_id in record.past_boots:
        return "it happened in a boot that the node has left"
    if fault.timestamp_ns < state.created_ns and (boot_id is None or boot_id != state.machine.boot_id):
        return "it is older than this Node"
    proof = fault.source is Source.KERNEL and fault.finding.kind.proves_gpu
    if not proof and not state.is_gpu_node:
        return "the node has no GPU"
    return None


def _with_boot(fault: Fault, boot_id: str | None) -> Fault:
    """A line that names no boot is of the present one: a kernel log holds no other."""
    position = fault.finding.position
    if position.boot_id is not None or boot_id is None:
        return fault
    return replace(fault, finding=fault.finding._replace(position=replace(position, boot_id=boot_id)))


def _tally_key(fault: Fault) -> TallyKey:
    return (fault.key, fault.severity.taints, fault.finding.position.boot_id)


def _find(record: NodeRecord, key: TallyKey) -> Incident | None:
    """The incident of such a fault. What taints never hides behind what does not: a rule may print both."""
    for incident in record.incidents:
        if (incident.key, incident.severity.taints, incident.last.boot_id) == key:
            return incident
    return None


def _read_again(record: NodeRecord, fault: Fault) -> bool:
    """Whether a line that names no boot is known evidence of an earlier boot, read a second time.

    Read again it has the Loki timestamp that it had; a replay of that boot's log would have a new one, but a
    kernel log holds nothing of an earlier boot.
    """
    position = fault.finding.position
    return position.boot_id is None and any(
        incident.key == fault.key
        and incident.severity.taints == fault.severity.taints
        and incident.last.boot_id in record.past_boots
        and fault.timestamp_ns <= incident.last_ns
        and bool(position.at_or_before(incident.last))
        for incident in record.incidents
    )


def _predates_install(record: NodeRecord, fault: Fault) -> bool:
    """Whether it repeats kernel evidence that was only remembered: it is older than the first start."""
    position = fault.finding.position
    return any(
        incident.before_install
        and incident.key == fault.key
        and incident.last.boot_id == position.boot_id
        and bool(position.at_or_before(incident.last))
        for incident in record.incidents
    )


def _seen(incident: Incident, fault: Fault) -> bool:
    """Whether the incident already counts this evidence: a replay, or a line read twice."""
    order = fault.finding.position.at_or_before(incident.last)
    if order is not None:
        return order
    if fault.timestamp_ns == incident.last_ns:
        # The annotation may have had room for the beginning of the line only.
        return fault.finding.text.startswith(incident.evidence.removesuffix("…"))
    return fault.timestamp_ns < incident.last_ns


def _before_release(incident: Incident, fault: Fault) -> bool:
    return incident.released_ns is not None and fault.timestamp_ns <= incident.released_ns


def _opened(fault: Fault, *, pending: bool) -> Incident:
    finding, severity = fault.finding, fault.severity
    return Incident(
        key=fault.key,
        kind=finding.kind,
        severity=severity,
        state=IncidentState.PENDING if pending else _opening_state(severity),
        count=1,
        first_ns=fault.timestamp_ns,
        last_ns=fault.timestamp_ns,
        last=finding.position,
        code=finding.code,
        evidence=finding.text,
        title=finding.title,
        advice=finding.advice,
        source=fault.source,
        before_install=fault.before_install,
        user_written=finding.user_written,
    )


def _opening_state(severity: Severity) -> IncidentState:
    """What would taint starts as held; the brake lets it pass, in the same decision when it can."""
    return IncidentState.HELD if severity.taints else IncidentState.ACTIVE


def _extended(incident: Incident, fault: Fault, count: int) -> Incident:
    return replace(
        incident,
        count=incident.count + count,
        last_ns=max(incident.last_ns, fault.timestamp_ns),
        last=incident.last.later(fault.finding.position),
        user_written=incident.user_written and fault.finding.user_written,
    )


def _further(read: KernelPosition, position: KernelPosition) -> KernelPosition:
    if read.boot_id != position.boot_id:
        return position
    return read.later(position) if position.known else read


def _replace_incident(judgement: Judgement, old: Incident, new: Incident) -> None:
    incidents = tuple(new if incident is old else incident for incident in judgement.record.incidents)
    judgement.record = replace(judgement.record, incidents=incidents)


def _count(judgement: Judgement, fault: Fault, now: datetime) -> None:
    key = _tally_key(fault)
    tally = judgement.unsettled.get(key)
    counted = (
        Unsettled(1, fault, now) if tally is None else replace(tally, count=tally.count + 1, latest=fault)
    )
    judgement.unsettled[key] = counted


def _order(fault: Fault) -> tuple[int, int, int]:
    position = fault.finding.position
    return (fault.timestamp_ns, position.sequence or 0, position.stamp_us or 0)
