"""The nodes of a simulated cluster: only the simulation writes them, and lines say in which boot they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from konductor_like.cluster import node_patch
from konductor_like.model import AsRead, Fault, Machine, NodeRecord, NodeState, Source
from konductor_like.policy.release import purge


class SimulatedNodes:
    """Stands in for the controller's view of the cluster."""

    problem: Exception | None = None

    def __init__(self, states: Iterable[NodeState] = (), *, complete: bool = False) -> None:
        """``complete``: a node that only lines name has a GPU only where its kernel log proves it."""
        self._complete = complete
        self._states = {state.name: _in_the_past(state) for state in states}

    def snapshot(self) -> Mapping[str, NodeState]:
        """All nodes, as one consistent view."""
        return dict(self._states)

    def apply(self, state: NodeState) -> None:
        """Take over what was written."""
        self._states[state.name] = state

    def learn_from(self, fault: Fault) -> None:
        """A node that a line names exists, in the boot that the line names unless it has left that one."""
        if fault.node is None:
            return
        state = self._states.get(fault.node)
        proves = fault.source is Source.KERNEL and fault.finding.kind.proves_gpu
        boot_id = fault.finding.position.boot_id
        if state is None:
            state = healthy_node(fault.node, is_gpu_node=proves or not self._complete)
        elif proves and not state.is_gpu_node:
            state = replace(state, is_gpu_node=True)
        if boot_id not in (None, state.machine.boot_id, *state.record.past_boots):
            state = replace(state, machine=replace(state.machine, boot_id=boot_id))
        self._states[state.name] = state


def healthy_node(name: str, *, is_gpu_node: bool = True) -> NodeState:
    """A node of which nothing but its name is known."""
    uid = f"backtest:{name}"
    return NodeState(
        name=name,
        machine=Machine(uid),
        created_ns=0,
        is_gpu_node=is_gpu_node,
        ready=True,
        unschedulable=False,
        taints=(),
        record=NodeRecord(),
        as_read=AsRead(uid, "0", None, None, None, has_annotations=True, has_labels=True),
    )


def _in_the_past(state: NodeState) -> NodeState:
    """A node of today as it may have been then: without our marks, and in a boot that lines must name."""
    change = purge(state)
    clean = state if change is None else node_patch.applied(state, change)
    return replace(clean, machine=replace(clean.machine, boot_id=None), created_ns=0)
