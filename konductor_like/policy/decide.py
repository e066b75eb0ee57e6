"""The decision: a snapshot and faults in, a plan out. Pure; ``now`` is an argument.

Each node is judged by itself; then the brake looks at all that would be tainted and lets through what it may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from konductor_like.model import (
    BrakeState,
    Change,
    EventReason,
    Fault,
    Ignored,
    Incident,
    IncidentState,
    NodeRecord,
    NodeState,
    Plan,
    Severity,
    Snapshot,
    TallyKey,
    Unsettled,
    Verb,
)
from konductor_like.policy.boots import leave_boots
from konductor_like.policy.brake import admit, urgency
from konductor_like.policy.judge import Judgement, judge
from konductor_like.policy.release import name_of
from konductor_like.policy.rules import Rules


@dataclass(frozen=True, slots=True)
class _Case:
    """One node that needs looking at, and what came of it."""

    state: NodeState
    judgement: Judgement
    removed_by_hand: bool
    gravest: Incident | None
    """The incident to taint for, if there is one."""
    ambiguous: bool
    """Two machines report under its name: nobody can say whose fault it is (design rule 3)."""


def decide(snapshot: Snapshot, faults: Sequence[Fault], rules: Rules, now: datetime) -> Plan:
    """Decide what to write where.

    Nodes without new faults are looked at too: what the brake held may pass now, a taint may have been
    removed by hand, a node may have rebooted, counts may be due. Deciding again on what was already applied
    changes nothing.
    """
    by_node: defaultdict[str, list[Fault]] = defaultdict(list)
    ignored: list[Ignored] = []
    waiting: list[Fault] = []
    for fault in faults:
        if fault.node is None:
            ignored.append(Ignored(fault, "the line names no node"))
        elif fault.finding.user_written and not rules.count_user_written:
            ignored.append(Ignored(fault, "a user wrote it into the kernel log"))
        elif fault.node not in snapshot.nodes:
            waiting.append(fault)
        else:
            by_node[fault.node].append(fault)

    cases = {
        name: _look_at(state, by_node.get(name, ()), snapshot, now)
        for name, state in snapshot.nodes.items()
        if name in by_node or name in snapshot.unsettled or name in snapshot.left or _needs_attention(state)
    }
    candidates = {
        name: gravest
        for name, case in cases.items()
        if _may_be_tainted(case.state)
        and not case.ambiguous
        and name not in snapshot.unwritable
        and (gravest := case.gravest)
    }
    admitted, brake = admit(candidates, snapshot.nodes, snapshot.in_flight, rules)

    changes: list[Change] = []
    counted: list[Fault] = []
    unsettled: dict[str, Mapping[TallyKey, Unsettled]] = {}
    for name, case in cases.items():
        counted.extend(case.judgement.counted)
        ignored.extend(case.judgement.ignored)
        due = _due(case.judgement.unsettled, snapshot.counts_written.get(name), rules, now)
        change = _change(case, now, admitted=name in admitted, brake=brake, due=due)
        if change is not None:
            changes.append(change)
        elif case.judgement.unsettled:
            unsettled[name] = case.judgement.unsettled
    changes.sort(key=_write_order)
    return Plan(tuple(changes), brake, tuple(counted), tuple(ignored), tuple(waiting), unsettled)


def tainting(record: NodeRecord) -> list[Incident]:
    """The incidents that a taint stands for, or would stand for if the brake let it."""
    open_states = (IncidentState.ACTIVE, IncidentState.HELD)
    return [i for i in record.incidents if i.severity.taints and i.state in open_states]


def health_of(record: NodeRecord, *, tainted: bool) -> str | None:
    """The value of the health label; None for a node that nothing stands against."""
    if tainted:
        return "faulty"
    if tainting(record):
        return "held"
    suspicious = any(
        incident.state is IncidentState.PENDING
        or (incident.state is IncidentState.ACTIVE and incident.severity is Severity.SUSPECT)
        for incident in record.incidents
    )
    return "suspect" if suspicious else None


def _may_be_tainted(state: NodeState) -> bool:
    return not (state.tainted or state.opted_out or state.blocked)


def _needs_attention(state: NodeState) -> bool:
    record = state.record
    return not record.empty and (
        (record.tainted_at is not None and not state.tainted)
        or (not state.tainted and bool(tainting(record)))
        or record.machine != state.machine
        or any(_has_met_its_boot(incident, state) for incident in record.incidents)
    )


def _has_met_its_boot(incident: Incident, state: NodeState) -> bool:
    return incident.state is IncidentState.PENDING and incident.last.boot_id == state.machine.boot_id


def _look_at(state: NodeState, faults: Sequence[Fault], snapshot: Snapshot, now: datetime) -> _Case:
    # Taint and claim are written in one patch: a claim without a taint is a removal, whatever is in flight.
    removed = state.record.tainted_at is not None and not state.tainted
    tallies = snapshot.unsettled.get(state.name, {})
    met = replace(state, record=leave_boots(state, snapshot.left.get(state.name, ())))
    judgement = judge(met, faults, tallies, now, removed_by_hand=removed, read_ns=snapshot.read_ns)
    judgement.urgent = judgement.urgent or met.record is not state.record
    gravest = min(tainting(judgement.record), key=urgency, default=None)
    return _Case(state, judgement, removed, gravest, state.name in snapshot.ambiguous)


def _change(case: _Case, now: datetime, *, admitted: bool, brake: BrakeState, due: bool) -> Change | None:
    """The write for one node, or None where memory will do for now."""
    state, judgement = case.state, case.judgement
    record, gravest = judgement.record, case.gravest
    taint = admitted or (gravest is not None and state.tainted)
    if taint:
        record = _with_taint(record, now)
    tainted = state.tainted or admitted
    if not (due or judgement.urgent or record != judgement.record):
        return None
    if record.empty and state.record.empty and state.as_read.record is None:
        return None
    newly_tainted = admitted and not state.tainted
    event, message = _announcement(case, record, newly_tainted=newly_tainted, brake=brake)
    return Change(
        node=state.name,
        verb=Verb.TAINT if newly_tainted else Verb.RECORD,
        record=None if record.empty else record,
        health=health_of(record, tainted=tainted),
        event=event,
        message=message,
        incident=gravest if newly_tainted else None,
        evidence=_evidence(judgement, gravest if newly_tainted else None),
        news=tuple(judgement.news),
        grown=tuple(judgement.unsettled.values()),
    )


def _with_taint(record: NodeRecord, now: datetime) -> NodeRecord:
    incidents = tuple(
        replace(incident, state=IncidentState.ACTIVE) if incident.state is IncidentState.HELD else incident
        for incident in record.incidents
    )
    return replace(record, incidents=incidents, tainted_at=record.tainted_at or now)


def _due(
    unsettled: Mapping[TallyKey, Unsettled], written: datetime | None, rules: Rules, now: datetime
) -> bool:
    """Whether counts that have only grown are to be written (design rule 22).

    Once they have settled, or have waited for the interval while they grow; and either way only when the
    node's last such write is an interval ago.
    """
    if not unsettled:
        return False
    interval = timedelta(seconds=rules.record_interval_seconds)
    if written is not None and timedelta(0) <= now - written < interval:
        return False
    quiet = now - max(tally.latest_at for tally in unsettled.values())
    waited = now - min(tally.since for tally in unsettled.values())
    return waited >= interval or quiet >= timedelta(seconds=rules.settle_seconds)


def _announcement(
    case: _Case, record: NodeRecord, *, newly_tainted: bool, brake: BrakeState
) -> tuple[EventReason | None, str]:
    """Which Event the write deserves, and its words."""
    gravest = case.gravest
    if newly_tainted and gravest is not None:
        return EventReason.TAINTED, describe(gravest)
    if case.removed_by_hand and not case.state.tainted and gravest is None:
        by = record.releases[0].by
        return EventReason.RELEASED, f"The taint was removed by {by}; its evidence will not taint again."
    if not case.judgement.news:
        return None, ""
    if gravest is not None and case.state.blocked:
        return (
            EventReason.RECORDED,
            f"{describe(gravest)} Not tainted: another's taint has our key and effect.",
        )
    if gravest is not None and case.ambiguous and not case.state.tainted:
        return EventReason.RECORDED, f"{describe(gravest)} Not tainted: two machines report under this name."
    if gravest is not None and not case.state.tainted:
        held = f"Held: {brake.out} of {brake.gpu_nodes} GPU nodes are out, the brake allows {brake.bound}."
        return EventReason.HELD, f"{describe(gravest)} {held}"
    newest = record.incidents[-1]
    return EventReason.RECORDED, describe(newest)


def describe(incident: Incident) -> str:
    """One incident in one or two sentences, with its line."""
    name = name_of(incident)
    test = " (a test)" if incident.severity is Severity.TEST else ""
    by_user = " (written by a user)" if incident.user_written else ""
    evidence = f' Line: "{incident.evidence}"' if incident.evidence else ""
    return f"{name}{test}{by_user}: {incident.title}. {incident.advice}{evidence}"


def _evidence(judgement: Judgement, tainted_for: Incident | None) -> Fault | None:
    if tainted_for is None:
        return judgement.news[-1] if judgement.news else None
    return next((fault for fault in judgement.news if fault.key == tainted_for.key), None)


def _write_order(change: Change) -> tuple[bool, bool, int, str]:
    """Taints first and of those the most urgent: a dead GPU waits for no bookkeeping."""
    grave = urgency(change.incident) if change.incident else (True, 0)
    return (change.verb is not Verb.TAINT, *grave, change.node)
