"""The decision: a snapshot and faults in, a plan out. Pure; ``now`` is an argument.

The reconciler, backtest, dry run and ``explain`` all call :func:`decide`. Evidence is folded into the record
of each node by itself. Then the evidence of all nodes is assessed together, because many may tell of one
failure. Then the brake admits what it may of all that would be tainted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from konductor_like.model import (
    Change,
    DroppedFault,
    Fault,
    IncidentState,
    NodeRecord,
    NodeState,
    Plan,
    Snapshot,
    Verb,
)
from konductor_like.policy.brake import admit
from konductor_like.policy.change import USER_WRITTEN, NodeCase, change_of, refusals
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.escalation import Assessment, assess_fleet
from konductor_like.policy.evidence import renewed_window
from konductor_like.policy.incidents import OPTED_OUT, SEEN_BEFORE, fold_faults
from konductor_like.policy.machines import leave_boots
from konductor_like.policy.release import released_by_hand


@dataclass(slots=True)
class _Faults:
    """Faults by what can be done with them."""

    by_node: defaultdict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    ignored: list[DroppedFault] = field(default_factory=list)
    of_unknown_nodes: list[Fault] = field(default_factory=list)


def decide(
    snapshot: Snapshot,
    faults: Sequence[Fault],
    rules: PolicyConfig,
    now: datetime,
    *,
    past: Sequence[Fault] | None = None,
) -> Plan:
    """Decide what to write where.

    Nodes without new faults are decided too: what the brake held may pass now, a taint may have been removed
    by hand, a node may have rebooted, counts may be due. To decide again on what was already applied changes
    nothing. ``past`` are faults that were acted upon before this process began: they are evidence, and lead
    to nothing by themselves; None where none are handed in.
    """
    found = _by_node(snapshot, faults, rules)
    folded = {
        state.name: _folded(state, found.by_node.get(state.name, ()), snapshot, now)
        for state in _nodes_to_decide(snapshot, found)
    }
    counted = tuple(fault for case in folded.values() for fault in case.folded.counted)
    again = [
        item.fault
        for case in folded.values()
        for item in case.folded.ignored
        if _is_first_heard(item, case.folded.record)
    ]
    window = renewed_window(counted, past or (), again, snapshot, rules, now)
    records = {name: case.folded.record for name, case in folded.items()}
    fleet = assess_fleet(records, window, snapshot, rules, now, more_past=past is not None)
    cases = _assessed(folded, fleet, snapshot, now)
    candidates = {
        name: gravest
        for name, case in cases.items()
        if (gravest := case.gravest) is not None
        and case.excluded is None
        and not case.state.tainted
        and name not in snapshot.unwritable
    }
    admission = admit(candidates, snapshot, rules, now, fleet.deferred)
    changes = {name: change_of(case, admission, rules, now) for name, case in cases.items()}
    ignored = (*found.ignored, *(item for case in cases.values() for item in case.folded.ignored))
    return Plan(
        tuple(sorted((change for change in changes.values() if change is not None), key=_write_order)),
        admission.brake,
        counted,
        ignored,
        tuple(found.of_unknown_nodes),
        {
            name: cases[name].folded.grown
            for name, change in changes.items()
            if change is None and cases[name].folded.grown
        },
        window=window,
        refused=refusals(cases, admission.refused, ignored),
    )


def _by_node(snapshot: Snapshot, faults: Sequence[Fault], rules: PolicyConfig) -> _Faults:
    found = _Faults()
    for fault in faults:
        if fault.node is None:
            found.ignored.append(DroppedFault(fault, "the line names no node"))
        elif fault.finding.user_written and not rules.count_user_written:
            found.ignored.append(DroppedFault(fault, USER_WRITTEN))
        elif fault.node not in snapshot.nodes:
            found.of_unknown_nodes.append(fault)
        else:
            found.by_node[fault.node].append(fault)
    return found


def _nodes_to_decide(snapshot: Snapshot, found: _Faults) -> list[NodeState]:
    """The nodes that a change may follow for: with new facts, or with something left to do."""
    return [
        state
        for name, state in snapshot.nodes.items()
        if name in found.by_node
        or name in snapshot.grown
        or name in snapshot.left
        or (not state.record.empty and _needs_attention(state))
    ]


def _needs_attention(state: NodeState) -> bool:
    """Whether something may follow for a node although nothing new was said of it."""
    record, tainted = state.record, state.tainted
    if (record.tainted_at is not None and not tainted) or record.machine != state.machine:
        return True
    if state.suspect_tainted:  # which is not to linger
        return True
    for incident in record.incidents:
        if incident.state is IncidentState.PENDING and incident.last.boot_id == state.machine.boot_id:
            return True
        # What would taint but for the brake, its boot or its role is refused for as long as that lasts.
        if not tainted and incident.state is not IncidentState.RELEASED and incident.taints:
            return True
    return False


def _folded(state: NodeState, faults: Sequence[Fault], snapshot: Snapshot, now: datetime) -> NodeCase:
    """The node with new evidence folded into its record."""
    # Taint and claim are written in one patch: a claim without a taint is a removal, whatever is in flight.
    removed = state.record.tainted_at is not None and not state.tainted
    left = snapshot.left.get(state.name)
    met = replace(state, record=leave_boots(state, left)) if left else state
    removal = partial(released_by_hand, state=met, now=now, read_ns=snapshot.read_ns) if removed else None
    folded = fold_faults(met, faults, snapshot.grown.get(state.name, ()), now, removal=removal)
    folded.urgent = folded.urgent or met.record is not state.record
    return NodeCase(state, folded, removed, state.name in snapshot.ambiguous)


def _is_first_heard(item: DroppedFault, record: NodeRecord) -> bool:
    """Whether a line that the record counts already is heard by this process as it first came.

    Another process was killed after it wrote the record. Or the line came after later ones of its kind, which
    the record cannot tell. A replay of it has a later timestamp, and says nothing about when it happened.
    A node that is opted out has no record that counts it.
    """
    fault = item.fault
    return item.reason == OPTED_OUT or (
        item.reason == SEEN_BEFORE
        and any(i.key == fault.key and fault.timestamp_ns <= i.last_ns for i in record.incidents)
    )


def _assessed(
    cases: Mapping[str, NodeCase], fleet: Assessment, snapshot: Snapshot, now: datetime
) -> Mapping[str, NodeCase]:
    """The cases with what the fleet's evidence changes, on nodes too that had nothing new themselves."""
    found = {name: replace(case, deferred=fleet.deferred.get(name, {})) for name, case in cases.items()}
    for name, record in fleet.records.items():
        if name not in cases and name not in fleet.urgent:
            continue
        case = cases.get(name) or _folded(snapshot.nodes[name], (), snapshot, now)
        folded = replace(
            case.folded,
            record=record,
            urgent=case.folded.urgent or name in fleet.urgent,
            to_announce=fleet.suspects.get(name, case.folded.to_announce),
        )
        found[name] = replace(case, folded=folded, deferred=fleet.deferred.get(name, {}))
    return found


def _write_order(change: Change) -> tuple[bool, bool, int, str]:
    """Taints first and of those the most urgent: no bookkeeping goes before a dead GPU."""
    grave = change.incident.urgency if change.incident else (True, 0)
    return (change.verb is not Verb.TAINT, *grave, change.node)
