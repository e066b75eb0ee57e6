"""The nodes of a simulated cluster: what was decided happens at once, and boots change when lines say so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from konductor_like.model import (
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    AsRead,
    Change,
    Fault,
    Machine,
    NodeRecord,
    NodeState,
    Source,
    Taint,
    Verb,
)
from konductor_like.policy.decide import needs_attention

OURS = Taint(TAINT_KEY, TAINT_VALUE, TAINT_EFFECT)


class Fleet:
    """Nodes by name, and what :class:`konductor_like.model.Snapshot` wants to know of who follows them."""

    def __init__(self, nodes: Iterable[NodeState] = (), *, complete: bool = False) -> None:
        """``complete``: nodes that only lines name have a GPU only where their kernel log proves it."""
        self.nodes: dict[str, NodeState] = {}
        self.attention: set[str] = set()
        """Nodes to look at although no line was heard of them."""
        self.with_jobs: set[str] = set()
        self._written: set[str] = set()
        self.gpu_nodes = 0
        self.out = 0
        self._complete = complete
        self._writes = 0
        for state in nodes:
            self._put(cleaned(state))

    def copy(self) -> Fleet:
        """Another fleet that is as this one is now."""
        twin = Fleet(complete=self._complete)
        twin.nodes, twin.attention = dict(self.nodes), set(self.attention)
        twin._written, twin.with_jobs = set(self._written), set(self.with_jobs)
        twin.gpu_nodes, twin.out, twin._writes = self.gpu_nodes, self.out, self._writes
        return twin

    def written(self) -> set[str]:
        """The nodes that were written since this was last asked."""
        written, self._written = self._written, set()
        return written

    def hear(self, fault: Fault) -> None:
        """A node that a line names is there, in the boot that the line names, unless it has left that one."""
        if fault.node is None:
            return
        state = self.nodes.get(fault.node)
        proves = fault.source is Source.KERNEL and fault.finding.kind.proves_gpu
        boot_id = fault.finding.position.boot_id
        if state is None:
            state = node(fault.node, is_gpu_node=proves or not self._complete)
        elif proves and not state.is_gpu_node:
            state = replace(state, is_gpu_node=True)
        if boot_id not in (None, state.machine.boot_id, *state.record.past_boots):
            state = replace(state, machine=replace(state.machine, boot_id=boot_id))
        if state is not self.nodes.get(fault.node):
            self._put(state)

    def apply(self, change: Change) -> None:
        """Write one change as the API server would; nobody else writes here."""
        state = self.nodes[change.node]
        taints = state.taints
        if change.verb is Verb.TAINT and not state.tainted:
            taints = (*taints, OURS)
        elif change.verb in (Verb.UNTAINT, Verb.PURGE):
            taints = tuple(taint for taint in taints if not taint.ours)
        self._writes += 1
        self._written.add(change.node)
        seen = replace(
            state.as_read,
            resource_version=str(self._writes),
            record=None if change.record is None else "…",
            health=change.health,
        )
        self._put(replace(state, taints=taints, record=change.record or NodeRecord(), as_read=seen))

    def _put(self, state: NodeState) -> None:
        before = self.nodes.get(state.name)
        self.gpu_nodes += state.is_gpu_node - (before is not None and before.is_gpu_node)
        self.out += state.tainted - (before is not None and before.tainted)
        self.nodes[state.name] = state
        (self.attention.add if needs_attention(state) else self.attention.discard)(state.name)
        names_job = any(incident.job is not None for incident in state.record.incidents)
        (self.with_jobs.add if names_job else self.with_jobs.discard)(state.name)


def node(name: str, *, is_gpu_node: bool = True) -> NodeState:
    """A healthy node of which nothing but its name is known."""
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


def cleaned(state: NodeState) -> NodeState:
    """A node of today as it may have been then: without our marks, and always there.

    Its boot of today says nothing about the past; lines say which one it was in.
    """
    return replace(
        state,
        machine=replace(state.machine, boot_id=None),
        created_ns=0,
        taints=tuple(taint for taint in state.taints if not taint.ours),
        record=NodeRecord(),
        record_problem=None,
        as_read=replace(state.as_read, record=None, health=None),
    )
