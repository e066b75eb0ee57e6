"""What a reboot that was watched says about the age of the new boot."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import NodeState


def witnessed(before: NodeState | None, state: NodeState, now_ns: int) -> NodeState:
    """The newer state of a Node, with what is known from the one before it about when its boot began.

    While the kubelet of the old boot still reported, the new one had not begun. Its report bears the node's
    own time, which may be ahead: the report was made before ``now_ns``, our time, all the same.
    """
    if before is None or before.machine.boot_id is None or state.machine.boot_id is None:
        return state
    if replace(before.machine, boot_id=state.machine.boot_id) != state.machine:
        return state  # another Node, or another machine: its boot may be older
    known_ns = before.booted_after_ns
    if before.machine.boot_id != state.machine.boot_id:
        known_ns = None if before.reported_ns is None else min(before.reported_ns, now_ns)
    return state if known_ns is None else replace(state, booted_after_ns=known_ns)
