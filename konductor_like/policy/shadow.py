"""What a rule on trial (``mode: shadow``) would have done to a node, for people to see."""

from __future__ import annotations

from konductor_like.model import Change, EventReason, Fault, NodeState, Source, Verb
from konductor_like.policy.book import with_boot


def would_taint(state: NodeState, fault: Fault) -> bool:
    """Whether such a fault is a reason to taint this node; what the brake would say is not asked."""
    if state.opted_out or not state.selected or not fault.severity.taints:
        return False
    return state.is_gpu_node or (fault.source is Source.KERNEL and fault.finding.kind.proves_gpu)


def shadow_event(state: NodeState, fault: Fault) -> Change:
    """The Event that tells of it, as a change that writes nothing; the same for its rule, GPU and boot."""
    finding = fault.finding
    device = f" on GPU {finding.gpu}" if finding.gpu else ""
    message = (
        f"Would have tainted this node: {finding.rule}{device}, {finding.title}, but the rule is on trial "
        f'(shadow). Line: "{finding.text}"'
    )
    return Change(
        state.name,
        Verb.RECORD,
        record=None,
        health=None,
        event=EventReason.SHADOW,
        message=message,
        evidence=with_boot(fault, state.machine.boot_id),
    )
