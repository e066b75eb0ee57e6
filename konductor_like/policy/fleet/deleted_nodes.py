"""Nodes that were deleted with our taint: the brake counts them, and their machines stay out of service.

A Node's record and taint are deleted with it. Its machine may register again, in another boot, and would come
back healthy without a repair. So the Lease lists the tainted Nodes, with the reason in words. A machine that
comes back under its name is tainted again. If only the Lease still has the reason, a person must release it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from konductor_like.model import (
    MET_BY_REBOOT,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Needs,
    NodeRecord,
    NodeState,
    Severity,
    TaintedNode,
)
from konductor_like.model.text import clipped, listed
from konductor_like.model.time import stamp, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.health import tainting
from konductor_like.policy.node.needs import fault_of, need_of
from konductor_like.policy.wording import check_and_release, name_of

KEPT = timedelta(days=30)
"""Time for which a machine out of service is remembered without a Node. Later it comes back clean."""
MACHINES_MOST = 50
"""Machines that are remembered for so long, at most: the latest deleted."""
OUT_OF_SERVICE = IncidentKey("node.out_of_service", None)
"""The incident of a machine of which only the Lease still has the reason."""
_WHY_CHARS = 160


def updated_tainted_nodes(
    before: Iterable[TaintedNode],
    nodes: Mapping[str, NodeState],
    policy: PolicyConfig,
    now: datetime,
    in_flight: Collection[str] = (),
) -> tuple[TaintedNode, ...]:
    """Return the Nodes with our taint, then those deleted with it, given the list ``before``.

    ``in_flight`` names nodes that may have been tainted although no answer came. A deletion is kept as long
    as it may count for the cool-down or the rate, and up to ``KEPT`` while its machine has not come back with
    a record of its own. A machine whose Node is deleted twice counts once.
    """
    known = {each.machine.node_uid: each for each in before if each.deleted_at is None}
    counts = timedelta(seconds=max(policy.brake_cooldown_seconds, policy.brake_rate_window_seconds))
    deleted = [
        each
        for each in before
        if each.deleted_at is not None
        and abs(now - each.deleted_at) < (max(KEPT, counts) if each.why else counts)
        and not _is_back(each, nodes.get(each.name))
    ]
    for each in known.values():
        state = nodes.get(each.name)
        if state is None or state.machine.node_uid != each.machine.node_uid:
            deleted = [other for other in deleted if not _is_same(other, each)]
            deleted.append(replace(each, deleted_at=now))
    tainted = []
    for name, state in nodes.items():
        if state.faulty or name in in_flight:
            noted = known.get(state.machine.node_uid)
            tainted.append(_noted(state, noted, now))
    return (*tainted, *deleted)


def _noted(state: NodeState, noted: TaintedNode | None, now: datetime) -> TaintedNode:
    record = state.record
    found = noted or TaintedNode(state.name, state.machine, now)
    found = replace(
        found, machine=state.machine, pool=state.pool, tainted_at=record.life.tainted_at or found.tainted_at
    )
    reasons = [each for each in tainting(record) if each.severity is not Severity.TEST]
    names = (f"a person's taint ({each.evidence})" if each.by_person else name_of(each) for each in reasons)
    why = clipped(listed([*dict.fromkeys(names)], 3), _WHY_CHARS)
    fault = fault_of(record, tainted=True) if reasons else None
    rule, gpu = (fault.key.rule, fault.key.gpu or "") if fault else ("", "")
    return replace(found, why=why, needs=need_of(record, tainted=True) or "", rule=rule, gpu=gpu)


def _is_same(one: TaintedNode, other: TaintedNode) -> bool:
    return one.name == other.name and one.machine.same_machine(other.machine)


def _is_back(gone: TaintedNode, state: NodeState | None) -> bool:
    """Whether the machine has a Node again that tells what is known of it."""
    if state is None or not state.machine.same_machine(gone.machine):
        return False
    return state.tainted or state.as_read.record is not None


def within_bound(tainted: Sequence[TaintedNode]) -> tuple[tuple[TaintedNode, ...], list[TaintedNode]]:
    """Return the list with at most ``MACHINES_MOST`` deleted Nodes that have a reason, and the others."""
    deleted = [each for each in tainted if each.deleted_at is not None and each.why]
    forgotten = sorted(deleted, key=lambda each: each.deleted_at or each.tainted_at)[:-MACHINES_MOST]
    left_out = {id(each) for each in forgotten}
    kept = (replace(each, why="") if id(each) in left_out else each for each in tainted)
    return (tuple(kept) if forgotten else tuple(tainted)), forgotten


def out_again(
    nodes: Mapping[str, NodeState], tainted: Iterable[TaintedNode], now: datetime
) -> dict[str, NodeRecord]:
    """Return by name the records of machines that were out of service when their Node was deleted.

    They have a new Node without any record. Who remembers more than the Lease, such as the controller that
    saw the deletion, has put that into the nodes' records.
    """
    found = {}
    for gone in tainted:
        state = nodes.get(gone.name)
        if gone.deleted_at is None or not gone.why or state is None or state.machine.boot_id is None:
            continue
        is_new = state.machine.same_machine(gone.machine) and not _is_back(gone, state)
        if is_new and not tainting(state.record):
            deleted = f"deleted at {stamp(gone.deleted_at)}"
            evidence = f"Out of service since {stamp(gone.tainted_at)} for {gone.why}, {deleted}"
            incidents = (*state.record.incidents, incident_of(gone, state, now, evidence))
            found[gone.name] = replace(state.record, machine=state.machine, incidents=incidents)
    return found


def incident_of(gone: TaintedNode, state: NodeState, now: datetime, evidence: str) -> Incident:
    """Return the incident; no reboot meets its need, because a person has to see the machine."""
    is_graver = gone.needs and gone.needs not in MET_BY_REBOOT
    return Incident(
        key=OUT_OF_SERVICE,
        kind=FaultKind.NODE,
        severity=Severity.FATAL,
        state=IncidentState.ACTIVE,
        count=1,
        first_ns=unix_ns(gone.tainted_at),
        last_ns=unix_ns(now),
        last=KernelPosition(state.machine.boot_id),
        title="This machine was out of service when its Node was deleted",
        evidence=evidence,
        advice=check_and_release(gone.name),
        needs=gone.needs if is_graver else Needs.INSPECTION.value,
    )
