"""The decision: a snapshot and faults in, a plan out. Pure; ``now`` is an argument.

The reconciler, backtest, dry run and ``explain`` all call :func:`decide`. It has three steps. First it folds
each node's faults into the node's record. Then it assesses the evidence of all nodes together, because
several nodes may report the same failure. Last, the brake limits how many of the candidates are tainted, and
nodes may return by reboot.

Whether a node is tainted is decided in this order:

1. ``Severity.taints``: fatal faults and tests (Xid 14) are reason enough.
2. ``Fault.severity``: suspect at most for a pod's line, unless a user's rule asks for more, and for a line
   from before the first start.
3. ``Incident.taints``: the severity, or an escalation by recent evidence of the fleet.
4. ``health.tainting``: only active and held incidents, and none that is collateral.
5. ``NodeUpdate.gravest``: the most urgent of these that its rule does not defer.
6. ``NodeUpdate.excluded``: whether the node is left alone: opted out, not selected, blocked or ambiguous.
7. ``brake.admit``: whether the brake admits the taint now.
8. ``change_of``: the write.
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
    ReleaseHow,
    Snapshot,
    Verb,
)
from konductor_like.policy.brake import admit
from konductor_like.policy.change import USER_WRITTEN, change_of, misses_label, refusals
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.endings import returns_by_time, with_ends
from konductor_like.policy.escalation import Assessment, assess_fleet
from konductor_like.policy.guards import first_blocker, kept_out
from konductor_like.policy.incidents import OPTED_OUT, SEEN_BEFORE, fold_faults
from konductor_like.policy.machines import leave_boots
from konductor_like.policy.needs import need_of
from konductor_like.policy.recent_evidence import renewed_window
from konductor_like.policy.release import released_by_hand
from konductor_like.policy.update import NodeUpdate

ENDS_AT_ONCE = 100
"""Nodes of one decision that are decided only because something ends on them."""


@dataclass(slots=True)
class _Faults:
    """New faults, sorted by what the decision can do with them."""

    by_node: defaultdict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    ignored: list[DroppedFault] = field(default_factory=list)
    of_unknown_nodes: list[Fault] = field(default_factory=list)


def decide(
    snapshot: Snapshot,
    faults: Sequence[Fault],
    policy: PolicyConfig,
    now: datetime,
    *,
    past: Sequence[Fault] | None = None,
) -> Plan:
    """Decide what to write to each Node.

    Nodes without new faults are decided too: the brake may now admit a held taint, somebody may have removed
    a taint by hand, a node may have rebooted, or counts may be due. Deciding a second time on applied faults
    changes nothing. ``past`` are faults that were acted upon before this process began: they are evidence,
    but cause no write by themselves. It is None when the caller has no further ones to add.
    """
    found = _by_node(snapshot, faults, policy)
    folded = {
        state.name: _updated(state, found.by_node.get(state.name, ()), snapshot, policy, now)
        for state in _nodes_to_decide(snapshot, found, policy, now)
    }
    counted = tuple(fault for update in folded.values() for fault in update.counted)
    again = [
        item.fault
        for update in folded.values()
        for item in update.ignored
        if _is_first_heard(item, update.record)
    ]
    window = renewed_window(counted, past or (), again, snapshot, policy, now)
    records = {name: update.record for name, update in folded.items()}
    fleet = assess_fleet(records, window, snapshot, policy, now, more_past=past is not None)
    updates = {
        name: _returned(update) for name, update in _assessed(folded, fleet, snapshot, policy, now).items()
    }
    candidates = {
        name: gravest
        for name, update in updates.items()
        if (gravest := update.gravest) is not None
        and update.excluded is None
        and not update.state.tainted
        and name not in snapshot.unwritable
    }
    admission = admit(candidates, snapshot, policy, now, fleet.deferred)
    records = {name: update.record for name, update in updates.items()}
    back, kept = kept_out(records, snapshot, policy, now, admission.brake)
    updates = {
        name: replace(update, returned=ReleaseHow.REBOOT) if name in back else update
        for name, update in updates.items()
    }
    changes = {
        name: change_of(update, admission, policy, now, labels_needs=snapshot.labels_needs)
        for name, update in updates.items()
    }
    ignored = (*found.ignored, *(item for update in updates.values() for item in update.ignored))
    return Plan(
        tuple(sorted((change for change in changes.values() if change is not None), key=_write_order)),
        admission.brake,
        counted,
        ignored,
        tuple(found.of_unknown_nodes),
        {
            name: updates[name].grown
            for name, change in changes.items()
            if change is None and updates[name].grown
        },
        window=window,
        refused=refusals(updates, admission.refused, ignored),
        kept_out={name: blocker.guard for name, blocker in kept.items()},
    )


def _by_node(snapshot: Snapshot, faults: Sequence[Fault], policy: PolicyConfig) -> _Faults:
    found = _Faults()
    for fault in faults:
        if fault.node is None:
            found.ignored.append(DroppedFault(fault, "the line names no node"))
        elif fault.finding.user_written and not policy.count_user_written:
            found.ignored.append(DroppedFault(fault, USER_WRITTEN))
        elif fault.node not in snapshot.nodes:
            found.of_unknown_nodes.append(fault)
        else:
            found.by_node[fault.node].append(fault)
    return found


def _nodes_to_decide(
    snapshot: Snapshot, found: _Faults, policy: PolicyConfig, now: datetime
) -> list[NodeState]:
    """Return the nodes to decide: with new faults, unwritten counts, boots that are over, or work left.

    Of the nodes whose only work is an end, a limited number is returned: their writes have to wait anyway.
    """
    nodes: list[NodeState] = []
    ended = 0
    for name, state in snapshot.nodes.items():
        if (
            name in found.by_node
            or name in snapshot.grown
            or name in snapshot.left
            or (not state.record.empty and _needs_attention(state, snapshot, policy, now))
        ):
            nodes.append(state)
        elif ended < ENDS_AT_ONCE and not state.record.empty and _has_upkeep(state, snapshot, policy, now):
            ended += 1
            nodes.append(state)
    return nodes


def _has_upkeep(state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now: datetime) -> bool:
    """Whether a need is met, an incident ends, or a label is missing, although there are no new faults."""
    if snapshot.labels_needs and misses_label(state, need_of(state.record, tainted=state.tainted)):
        return True
    return with_ends(state.record, state, snapshot, policy, now) is not state.record


def _needs_attention(state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now: datetime) -> bool:
    """Whether a node may need a write although there are no new faults of it."""
    record, tainted = state.record, state.tainted
    if (record.life.tainted_at is not None and not tainted) or record.machine != state.machine:
        return True
    if state.suspect_tainted:  # once its reason is gone, the suspect taint must be removed
        return True
    if record.life.probation_until is not None and now >= record.life.probation_until:
        return True
    if tainted and first_blocker(state, snapshot, policy, now) is None:
        return True
    for incident in record.incidents:
        if incident.state is IncidentState.PENDING and incident.last.boot_id == state.machine.boot_id:
            return True
        # An incident that would taint, but for the brake, its boot or its role, is reported in every
        # decision.
        if not tainted and incident.state is not IncidentState.RELEASED and incident.taints:
            return True
    return False


def _updated(
    state: NodeState, faults: Sequence[Fault], snapshot: Snapshot, policy: PolicyConfig, now: datetime
) -> NodeUpdate:
    """Return the node's update: new faults and unwritten counts are added to ("folded into") its record."""
    # One patch writes the taint and the claim (``tainted_at``). So a claim without a taint means that
    # somebody removed the taint, even while a write of ours has no answer yet.
    removed = state.record.life.tainted_at is not None and not state.tainted
    left = snapshot.left.get(state.name)
    current = replace(state, record=leave_boots(state, left)) if left else state
    removal = partial(released_by_hand, state=current, now=now, read_ns=snapshot.read_ns) if removed else None
    update = fold_faults(current, faults, snapshot.grown.get(state.name, ()), now, removal=removal)
    record = with_ends(update.record, current, snapshot, policy, now)
    return replace(
        update,
        state=state,
        record=record,
        urgent=update.urgent or current.record is not state.record,
        has_ends=record is not update.record,
        removed_by_hand=removed,
        ambiguous=state.name in snapshot.ambiguous,
    )


def _is_first_heard(item: DroppedFault, record: NodeRecord) -> bool:
    """Whether this process reads a line for the first time although the record counts the line already.

    This happens when another process wrote the record and was killed, or when the line arrived after later
    lines of its incident. A replayed line does not qualify: its Loki timestamp is later than the incident's,
    and does not show when the fault happened. On a node that is opted out no record counts the line.
    """
    fault = item.fault
    return item.reason == OPTED_OUT or (
        item.reason == SEEN_BEFORE
        and any(i.key == fault.key and fault.timestamp_ns <= i.last_ns for i in record.incidents)
    )


def _assessed(
    updates: Mapping[str, NodeUpdate],
    fleet: Assessment,
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
) -> Mapping[str, NodeUpdate]:
    """Return the updates after the fleet's evidence was assessed, also of nodes without new faults."""
    found = {name: replace(update, deferred=fleet.deferred.get(name, {})) for name, update in updates.items()}
    for name, record in fleet.records.items():
        if name not in updates and name not in fleet.urgent:
            continue
        update = updates.get(name) or _updated(snapshot.nodes[name], (), snapshot, policy, now)
        found[name] = replace(
            update,
            record=record,
            urgent=update.urgent or name in fleet.urgent,
            to_announce=fleet.suspects.get(name, update.to_announce),
            deferred=fleet.deferred.get(name, {}),
        )
    return found


def _returned(update: NodeUpdate) -> NodeUpdate:
    """Return the update with how the controller itself takes the taint off now, if it does."""
    if update.has_ends and returns_by_time(update.state.record, update.record, update.state):
        return replace(update, returned=ReleaseHow.TEST_ENDED)
    return update


def _write_order(change: Change) -> tuple[bool, int, int, str]:
    """Sort key of writes: taints first, the most urgent first; a fatal fault never waits for other writes."""
    urgency = change.incident.urgency if change.incident else (2, 0)
    return (change.verb is not Verb.TAINT, *urgency, change.node)
