"""The one way to a node's record: the annotation, what the Lease keeps of it, or the reason of the taint.

A Node may have no room for its record, or somebody may have removed the annotation (rule 21). The commands
read Nodes through :func:`known_nodes`. The controller knows more: it remembers records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from konductor_like.model import (
    Controls,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    NodeRecord,
    NodeState,
    Severity,
    TaintedNode,
    with_kept,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.wording import check_and_release

RECORD_LOST = "node.record_lost"
"""The rule of that fault if the Lease tells only its words, as an earlier build wrote them."""
_KINDS = {kind.value: kind for kind in FaultKind}


def known_nodes(states: Mapping[str, NodeState], controls: Controls) -> Mapping[str, NodeState]:
    """Return the nodes with the records that are known of them; ``controls`` are those of the Lease.

    Of a tainted Node without any record, the Lease's list of tainted Nodes says for which fault.
    """
    states = with_kept(states, controls.kept)
    listed = {
        each.name: replace(states[each.name], record=record_of(each), record_kept=True)
        for each in controls.tainted
        if each.name in states and _explains(each, states[each.name])
    }
    return {**states, **listed} if listed else states


def _explains(each: TaintedNode, state: NodeState) -> bool:
    """Whether the Lease has a reason for the taint of this Node, and the Node has none."""
    is_told = bool(each.why) and each.deleted_at is None and each.machine.node_uid == state.as_read.uid
    return is_told and state.tainted and state.as_read.record is None and not state.record_kept


def record_of(each: TaintedNode) -> NodeRecord:
    """Return what the Lease's list of tainted Nodes tells of a Node: the claim, and its gravest fault."""
    at_ns, (family, _, code) = unix_ns(each.tainted_at), each.rule.partition(".")
    incident = Incident(
        key=IncidentKey(each.rule or RECORD_LOST, each.gpu or None),
        kind=_KINDS.get(family, FaultKind.CUSTOM),
        severity=Severity.FATAL,
        state=IncidentState.ACTIVE,
        count=1,
        first_ns=at_ns,
        last_ns=at_ns,
        last=KernelPosition(each.machine.boot_id),
        code=int(code) if code.isascii() and code.isdecimal() else None,
        title=f"Tainted for {each.why}",
        advice=check_and_release(each.name),
        needs=each.needs,
    )
    return NodeRecord(machine=each.machine, life=Life(tainted_at=each.tainted_at), incidents=(incident,))
