"""The decision: a snapshot and faults in, a plan out. Pure; ``now`` is an argument.

The reconciler, backtest, dry run and ``explain`` all call :func:`decide`. It has three passes. The first is
about each node alone: its GPUs are counted, other programs' conditions and alerts are read, and new
faults and ends are added to its record. The second is about the fleet: several nodes may report the same
failure, the brake limits how many of the candidates are tainted, and nodes may return by reboot. The third
makes the write for each node.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from konductor_like.model import (
    BrakeState,
    Change,
    DroppedFault,
    Fault,
    Incident,
    IncidentState,
    NodeRecord,
    Plan,
    ReleaseHow,
    Snapshot,
    Stage,
    Verb,
)
from konductor_like.policy.change import USER_WRITTEN, change_of, has_old_taint, misses_label, refusals
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.brake import admit
from konductor_like.policy.fleet.escalation import Assessment, assess_fleet
from konductor_like.policy.fleet.recent_evidence import renewed_window
from konductor_like.policy.node.alerts import alert_faults, told_gpus
from konductor_like.policy.node.conditions import reported_faults
from konductor_like.policy.node.endings import returns_by_time, with_ends
from konductor_like.policy.node.gpu_counts import counted, faults_of
from konductor_like.policy.node.incidents import SEEN_BEFORE, fold_faults
from konductor_like.policy.node.removal import (
    Removal,
    is_overruled,
    may_put_right,
    removal_of,
    writer_of,
    writers_answered,
)
from konductor_like.policy.node.update import NodeUpdate
from konductor_like.policy.recovery.guards import kept_out, wishes
from konductor_like.policy.recovery.validation import advanced

ENDS_AT_ONCE = 100
"""Nodes of one decision that are decided only because something ends on them."""


@dataclass(slots=True)
class _Faults:
    """New faults, sorted by what the decision can do with them."""

    by_node: defaultdict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    ignored: list[DroppedFault] = field(default_factory=list)
    of_unknown_nodes: list[Fault] = field(default_factory=list)
    shadowed: list[Fault] = field(default_factory=list)


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
    if snapshot.gpus is not None:
        gpus = counted(snapshot.gpus, snapshot.nodes, policy, now)
        faults = [*faults, *faults_of(gpus, snapshot.gpus, policy, now)]
        snapshot = replace(snapshot, gpus=gpus)
    if snapshot.conditions is not None:
        reported, seen = reported_faults(snapshot, snapshot.conditions, policy, now)
        faults = [*faults, *reported]
        snapshot = replace(snapshot, conditions=seen)
    if snapshot.alerts is not None:
        alerting, alerts = alert_faults(snapshot, snapshot.alerts, policy)
        faults = [*faults, *alerting]
        snapshot = replace(snapshot, alerts=alerts, seen_gpus=told_gpus(alerts))
    found = _sorted(faults, snapshot, policy)
    updates = _updates(found.by_node, snapshot, policy, now)

    new = tuple(fault for update in updates.values() for fault in update.counted)
    window = renewed_window(new, past or (), _first_heard(updates.values()), snapshot, policy, now)
    records = {name: update.record for name, update in updates.items()}
    fleet = assess_fleet(records, window, snapshot, policy, now, more_past=past is not None)
    updates = _with_removals(_assessed(updates, fleet, snapshot), snapshot, now)
    admission = admit(_candidates(updates, snapshot), snapshot, policy, now, fleet.deferred)
    records = {name: update.record for name, update in updates.items()}
    updates |= _validated(updates, records, snapshot, policy, now, admission.brake)
    records = {name: update.record for name, update in updates.items()}
    back, kept = kept_out(records, snapshot, policy, now, admission.brake)
    how = ReleaseHow.VALIDATED if policy.returns_by_validation else ReleaseHow.REBOOT
    updates |= _returned(updates, back, how, snapshot)

    changes = {name: change_of(update, admission, snapshot, policy, now) for name, update in updates.items()}
    ignored = (*found.ignored, *(item for update in updates.values() for item in update.ignored))
    return Plan(
        tuple(sorted((change for change in changes.values() if change is not None), key=_write_order)),
        admission.brake,
        new,
        ignored,
        tuple(found.of_unknown_nodes),
        {name: updates[name].grown for name, change in changes.items() if not change and updates[name].grown},
        window=window,
        gpus=snapshot.gpus,
        conditions=snapshot.conditions,
        alerts=snapshot.alerts,
        shadowed=tuple(found.shadowed),
        refused=refusals(updates, admission.refused, ignored),
        kept_out={name: blocker.guard for name, blocker in kept.items()},
    )


def _sorted(faults: Iterable[Fault], snapshot: Snapshot, policy: PolicyConfig) -> _Faults:
    found = _Faults()
    for fault in faults:
        if fault.node is None and fault.nameless_boot is None:
            found.ignored.append(DroppedFault(fault, "the line names no node"))
        elif fault.finding.user_written and not policy.count_user_written:
            found.ignored.append(DroppedFault(fault, USER_WRITTEN))
        elif fault.node is None or fault.node not in snapshot.nodes:
            found.of_unknown_nodes.append(fault)
        elif fault.finding.shadow:
            found.shadowed.append(fault)
        else:
            found.by_node[fault.node].append(fault)
    return found


def _updates(
    faults: Mapping[str, Sequence[Fault]], snapshot: Snapshot, policy: PolicyConfig, now: datetime
) -> dict[str, NodeUpdate]:
    """Return the updates of all nodes about which there is something to decide.

    Of the nodes on which something ends, a label is missing or the taint of an earlier version stands, and
    nothing else, a limited number is returned: their writes have to wait anyway.
    """
    asked = {*faults, *snapshot.grown, *snapshot.left}
    asked |= snapshot.without_record
    if snapshot.gpus is not None:
        asked |= snapshot.gpus.unnoted
    found: dict[str, NodeUpdate] = {}
    ended = 0
    for name, state in snapshot.nodes.items():
        if state.record.empty and name not in asked and not (state.labelled or state.suspect_tainted):
            continue
        update = fold_faults(state, faults.get(name, ()), snapshot, now, policy.persons)
        record = with_ends(update.record, state, snapshot, policy, now)
        if record is not update.record:
            update = replace(update, record=record, has_ends=True)
        if name in asked or _needs_attention(update, now):
            found[name] = update
        elif ended < ENDS_AT_ONCE and (
            update.has_ends or misses_label(state, snapshot) or has_old_taint(state)
        ):
            found[name] = update
            ended += 1
    return found


def _needs_attention(update: NodeUpdate, now: datetime) -> bool:
    """Whether a node without new faults may need a write that does not wait, or a report."""
    state, until = update.state, update.state.record.life.probation_until
    if update.urgent or (until is not None and now >= until):
        return True
    is_removed = state.stage is Stage.REMOVED or state.record.life.removed_at is not None
    if is_removed or state.lost_record or may_put_right(state, now):
        return True
    # An incident that would taint, but for the brake, its boot or its role, is reported in every decision.
    reasons = (incident for incident in state.record.incidents if incident.taints)
    return not state.tainted and any(each.state is not IncidentState.RELEASED for each in reasons)


def _first_heard(updates: Iterable[NodeUpdate]) -> list[Fault]:
    """Return the lines that this process reads for the first time although a record counts them already.

    This happens when another process wrote the record and was killed, or when the line arrived after later
    lines of its incident. A replayed line does not qualify: its Loki timestamp is later than the incident's,
    and does not show when the fault happened.
    """

    def is_first(item: DroppedFault, record: NodeRecord) -> bool:
        fault = item.fault
        return item.reason == SEEN_BEFORE and any(
            i.key == fault.key and fault.timestamp_ns <= i.last_ns for i in record.incidents
        )

    return [each.fault for update in updates for each in update.ignored if is_first(each, update.record)]


def _assessed(
    updates: Mapping[str, NodeUpdate], fleet: Assessment, snapshot: Snapshot
) -> dict[str, NodeUpdate]:
    """Return the updates after the fleet's evidence was assessed, also of nodes without new faults."""
    others = [name for name in fleet.records if name in fleet.urgent and name not in updates]
    more = {name: _unchanged(name, snapshot) for name in others}
    return {
        name: replace(
            update,
            record=fleet.records.get(name, update.record),
            urgent=update.urgent or name in fleet.urgent,
            deferred=fleet.deferred.get(name, {}),
        )
        for name, update in {**updates, **more}.items()
    }


def _unchanged(name: str, snapshot: Snapshot) -> NodeUpdate:
    """Return the update of a node with nothing new of its own."""
    state = snapshot.nodes[name]
    return NodeUpdate(state, state.record, ambiguous=name in snapshot.ambiguous)


def _with_removals(
    updates: Mapping[str, NodeUpdate], snapshot: Snapshot, now: datetime
) -> dict[str, NodeUpdate]:
    """Return the updates with what follows for the nodes whose taint is off although it is claimed.

    The taint is put back first where it was removed first: no further one is put back against a writer that
    removed it from many nodes.
    """
    found, off = dict(updates), [u for u in updates.values() if u.state.stage is Stage.REMOVED]
    answered = writers_answered(snapshot.nodes, now) if off else {}
    for update in sorted(off, key=lambda each: (each.record.life.removed_at or now, each.state.name)):
        state, record = update.state, update.record
        nodes = answered.setdefault(writer_of(state, record.life), set())
        overruled = is_overruled({*nodes, state.name})
        removal = removal_of(state, record, now, overruled=overruled)
        if removal in (Removal.PUT_BACK, Removal.CONTEST):
            nodes.add(state.name)
        found[state.name] = replace(update, removal=removal)
    return found


def _candidates(updates: Mapping[str, NodeUpdate], snapshot: Snapshot) -> Mapping[str, Incident]:
    """Return the nodes for which the brake is asked, and each one's gravest incident."""
    return {
        name: gravest
        for name, update in updates.items()
        if (gravest := update.gravest) is not None
        and update.excluded is None
        and not update.state.tainted
        and update.removal in (None, Removal.PUT_BACK, Removal.FAILED)
        and name not in snapshot.unwritable
    }


def _validated(
    updates: Mapping[str, NodeUpdate],
    records: Mapping[str, NodeRecord],
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState,
) -> dict[str, NodeUpdate]:
    """Return the updates of the nodes whose validation is wished now, or has come further."""
    wished = wishes(records, snapshot, policy, now, brake)
    asked = {name: records.get(name, snapshot.nodes[name].record) for name in wished}
    records = {**records, **{name: replace(each, validation=wished[name]) for name, each in asked.items()}}
    found: dict[str, NodeUpdate] = {}
    for name, validation in {**wished, **advanced(records, snapshot, policy, now, brake)}.items():
        update = updates.get(name) or _unchanged(name, snapshot)
        before = update.record.validation
        is_step = before is None or (before.stage, before.verdict) != (validation.stage, validation.verdict)
        record = replace(update.record, validation=validation)
        found[name] = replace(
            update, record=record, urgent=update.urgent or is_step, has_ends=update.has_ends or not is_step
        )
    return found


def _returned(
    updates: Mapping[str, NodeUpdate], back: Iterable[str], how: ReleaseHow, snapshot: Snapshot
) -> dict[str, NodeUpdate]:
    """Return the updates of the nodes whose taint the controller takes off: ``back``, and ended tests."""
    returned = {
        name: replace(update, return_how=ReleaseHow.TEST_ENDED)
        for name, update in updates.items()
        if update.has_ends and returns_by_time(update.state.record, update.record)
    }
    for name in back:
        update = updates.get(name) or _unchanged(name, snapshot)
        returned[name] = replace(update, return_how=how)
    return returned


def _write_order(change: Change) -> tuple[bool, int, int, str]:
    """Sort key of writes: taints first, the most urgent first; a fatal fault never waits for other writes."""
    urgency = change.incident.urgency if change.incident else (2, 0)
    return (change.verb is not Verb.TAINT, *urgency, change.node)
