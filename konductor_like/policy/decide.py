"""The decision: a snapshot and faults in, a plan out. Pure; ``now`` is an argument.

Each node is judged by itself; then all that happened lately is weighed together, because many nodes may tell
of one event; then the brake looks at all that would be tainted and lets through what it may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from konductor_like.model import (
    Change,
    Fault,
    Ignored,
    Incident,
    IncidentState,
    NodeState,
    Plan,
    Snapshot,
    TallyKey,
    Unsettled,
    Verb,
)
from konductor_like.policy.boots import leave_boots
from konductor_like.policy.brake import admit, urgency
from konductor_like.policy.change import Case, change_of, is_due, tainting
from konductor_like.policy.judge import OPTED_OUT, SEEN_BEFORE, judge
from konductor_like.policy.refusing import USER_WRITTEN, refusals
from konductor_like.policy.rules import Rules
from konductor_like.policy.weigh import Weighed, weigh


@dataclass(slots=True)
class _Sorted:
    """Faults by what can be done with them."""

    by_node: defaultdict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    ignored: list[Ignored] = field(default_factory=list)
    waiting: list[Fault] = field(default_factory=list)


def decide(
    snapshot: Snapshot,
    faults: Sequence[Fault],
    rules: Rules,
    now: datetime,
    *,
    past: Sequence[Fault] | None = None,
) -> Plan:
    """Decide what to write where.

    Nodes without new faults are looked at too: what the brake held may pass now, a taint may have been
    removed by hand, a node may have rebooted, counts may be due. Deciding again on what was already applied
    changes nothing. ``past`` are faults that were acted upon before this process began: they are weighed with
    the others and lead to nothing by themselves; None where none are handed in.
    """
    found = _sorted(snapshot, faults, rules)
    cases = {
        state.name: _look_at(state, found.by_node.get(state.name, ()), snapshot, now)
        for state in _to_look_at(snapshot, found)
    }
    counted = [fault for case in cases.values() for fault in case.judgement.counted]
    records = {name: case.judgement.record for name, case in cases.items()}
    again = [fault for case in cases.values() for fault in _first_heard(case)]
    weighed = weigh(records, counted, past, snapshot, rules, now, again=again)
    _heed(weighed, cases, snapshot, now)
    candidates = _candidates(cases, weighed, snapshot)
    admission = admit(candidates, snapshot, rules, now, weighed.settling)

    changes: list[Change] = []
    ignored = found.ignored
    unsettled: dict[str, Mapping[TallyKey, Unsettled]] = {}
    for name, case in cases.items():
        ignored.extend(case.judgement.ignored)
        due = is_due(case.judgement.unsettled, snapshot.counts_written.get(name), rules, now)
        admitted = name in admission.admitted
        change = change_of(
            case,
            rules,
            now,
            admitted=admitted,
            brake=admission.brake,
            due=due,
            refused=admission.refused.get(name),
        )
        if change is not None:
            changes.append(change)
        elif case.judgement.unsettled:
            unsettled[name] = case.judgement.unsettled
    changes.sort(key=_write_order)
    return Plan(
        tuple(changes),
        admission.brake,
        tuple(counted),
        tuple(ignored),
        tuple(found.waiting),
        unsettled,
        window=weighed.window,
        refused=refusals(cases, weighed.settling, admission.refused, ignored),
        events=weighed.events,
    )


def _sorted(snapshot: Snapshot, faults: Sequence[Fault], rules: Rules) -> _Sorted:
    found = _Sorted()
    for fault in faults:
        if fault.node is None:
            found.ignored.append(Ignored(fault, "the line names no node"))
        elif fault.finding.user_written and not rules.count_user_written:
            found.ignored.append(Ignored(fault, USER_WRITTEN))
        elif fault.node not in snapshot.nodes:
            found.waiting.append(fault)
        else:
            found.by_node[fault.node].append(fault)
    return found


def _to_look_at(snapshot: Snapshot, found: _Sorted) -> list[NodeState]:
    """The nodes that anything can follow for; of all others nothing can."""
    return [
        state
        for name, state in snapshot.nodes.items()
        if name in found.by_node
        or name in snapshot.unsettled
        or name in snapshot.left
        or _needs_attention(state)
    ]


def _needs_attention(state: NodeState) -> bool:
    """Whether a node is to be looked at although nothing new was said of it."""
    record = state.record
    return not record.empty and (
        (record.tainted_at is not None and not state.tainted)
        or (not state.tainted and any(_wants_a_taint(incident) for incident in record.incidents))
        or state.suspect_tainted  # which is not to linger
        or record.machine != state.machine
        or any(_has_met_its_boot(incident, state) for incident in record.incidents)
    )


def _wants_a_taint(incident: Incident) -> bool:
    """Whether it would taint but for the brake, its boot or its role: refused for as long as that lasts."""
    return incident.taints and incident.state is not IncidentState.RELEASED


def _has_met_its_boot(incident: Incident, state: NodeState) -> bool:
    return incident.state is IncidentState.PENDING and incident.last.boot_id == state.machine.boot_id


def _look_at(state: NodeState, faults: Sequence[Fault], snapshot: Snapshot, now: datetime) -> Case:
    # Taint and claim are written in one patch: a claim without a taint is a removal, whatever is in flight.
    removed = state.record.tainted_at is not None and not state.tainted
    tallies = snapshot.unsettled.get(state.name, {})
    met = replace(state, record=leave_boots(state, snapshot.left.get(state.name, ())))
    judgement = judge(met, faults, tallies, now, removed_by_hand=removed, read_ns=snapshot.read_ns)
    judgement.urgent = judgement.urgent or met.record is not state.record
    return Case(state, judgement, removed, state.name in snapshot.ambiguous)


def _first_heard(case: Case) -> Iterator[Fault]:
    """Lines that the record counts already, as they first came: another process was killed after it wrote.
    Or they came after later ones of their kind, which the record cannot tell.

    A replay of the same lines has later timestamps, and says nothing about when they happened. Of a node that
    is opted out there is no record to count them.
    """
    incidents = case.judgement.record.incidents
    for item in case.judgement.ignored:
        fault = item.fault
        if item.reason == OPTED_OUT or (
            item.reason == SEEN_BEFORE
            and any(i.key == fault.key and fault.timestamp_ns <= i.last_ns for i in incidents)
        ):
            yield fault


def _heed(weighed: Weighed, cases: dict[str, Case], snapshot: Snapshot, now: datetime) -> None:
    """Take over what weighing changed, on nodes too that had nothing new themselves."""
    for name, record in weighed.records.items():
        if name not in cases and name not in weighed.urgent:
            continue
        if name not in cases:
            cases[name] = _look_at(snapshot.nodes[name], (), snapshot, now)
        judgement = cases[name].judgement
        judgement.record, judgement.urgent = record, judgement.urgent or name in weighed.urgent


def _candidates(cases: Mapping[str, Case], weighed: Weighed, snapshot: Snapshot) -> dict[str, Incident]:
    """What would be tainted now but for the brake: node to gravest incident."""
    candidates: dict[str, Incident] = {}
    for name, case in cases.items():
        case.settling = weighed.settling.get(name, {})
        grave = [i for i in tainting(case.judgement.record) if i.key not in case.settling]
        case.gravest = min(grave, key=urgency, default=None)
        if case.gravest is None or case.ambiguous or name in snapshot.unwritable:
            continue
        if _may_be_tainted(case.state):
            candidates[name] = case.gravest
    return candidates


def _may_be_tainted(state: NodeState) -> bool:
    return not (state.tainted or state.opted_out or not state.selected or state.blocked)


def _write_order(change: Change) -> tuple[bool, bool, int, str]:
    """Taints first and of those the most urgent: a dead GPU waits for no bookkeeping."""
    grave = urgency(change.incident) if change.incident else (True, 0)
    return (change.verb is not Verb.TAINT, *grave, change.node)
