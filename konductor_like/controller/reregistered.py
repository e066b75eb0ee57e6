"""Nodes that are deleted and register again: the machine is the same, and so is what is known of it (rule 3).

A deleted Node takes its annotation along. As long as this controller runs it remembers what was on it. Of
Nodes made anew while none ran the Lease tells what releases cover; all else is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from konductor_like.model import IncidentState, NodeRecord, NodeState
from konductor_like.model.time import SECOND_NS
from konductor_like.policy.machines import same_boot

REMEMBERED_NS = 86_400 * SECOND_NS
REMEMBERED_MOST = 2000


@dataclass(frozen=True, slots=True)
class Returned:
    """A Node made anew for a machine that has not rebooted; ``record`` is what was known of it."""

    state: NodeState
    record: NodeRecord


class ReregisteredNodes:
    """Compares each view of the nodes with the one before."""

    def __init__(self, unwatched_since_ns: int | None, released: Iterable[NodeRecord] = ()) -> None:
        """Nodes made later than that were made while no controller looked; None on the first start.

        ``released`` is what releases cover of machines whose Node may be among those.
        """
        self._unwatched_since_ns = unwatched_since_ns
        self._released: dict[tuple[str, str] | None, NodeRecord] = {
            machine: record for record in released if (machine := same_boot(record.machine)) is not None
        }
        self._unwatched: frozenset[str] = frozenset()
        self._nodes: Mapping[str, NodeState] | None = None
        self._gone: dict[str, tuple[NodeState, int]] = {}

    def update(self, nodes: Mapping[str, NodeState], now_ns: int) -> list[Returned]:
        """The nodes that came back since the last call, each once its boot is known."""
        before, self._nodes = self._nodes, nodes
        if nodes is before:
            return []
        if self._unwatched_since_ns is not None:
            since_ns, self._unwatched_since_ns = self._unwatched_since_ns, None
            made = (state for state in nodes.values() if state.created_ns > since_ns)
            self._unwatched = frozenset(state.name for state in made if state.record.empty)
        for name, state in before.items() if before is not None else ():
            if name not in nodes or nodes[name].machine.node_uid != state.machine.node_uid:
                self._gone[name] = (state, now_ns)
        self._forget(now_ns)
        return [*self._made_unwatched(nodes), *self._returned(nodes)]

    def _made_unwatched(self, nodes: Mapping[str, NodeState]) -> Iterable[Returned]:
        for name in sorted(self._unwatched):
            state = nodes.get(name)
            if state is not None and state.machine.boot_id is None:
                continue  # its kubelet has yet to say which boot it is
            self._unwatched -= {name}
            if state is None:
                continue
            known = self._released.get(same_boot(state.machine))
            if known is not None or state.is_gpu_node:
                yield Returned(state, known or NodeRecord())

    def _returned(self, nodes: Mapping[str, NodeState]) -> Iterable[Returned]:
        for name in [name for name in self._gone if name in nodes]:
            state, (old, _) = nodes[name], self._gone[name]
            if state.machine.boot_id is None and state.machine.system_id in (None, old.machine.system_id):
                continue  # its kubelet has yet to say which boot it is
            del self._gone[name]
            if state.machine.same_boot(old.machine):
                yield Returned(state, _kept(old) if state.record.empty else NodeRecord())

    def _forget(self, now_ns: int) -> None:
        if not self._gone:
            return
        kept = [(name, gone) for name, gone in self._gone.items() if now_ns - gone[1] < REMEMBERED_NS]
        self._gone = dict(kept[-REMEMBERED_MOST:])


def _kept(old: NodeState) -> NodeRecord:
    """What was known, with every taint yet to be made: it went with the Node, and nobody removed it."""
    record = old.record
    return replace(
        record,
        tainted_at=None,
        incidents=tuple(
            replace(incident, state=IncidentState.HELD)
            if incident.state is IncidentState.ACTIVE and incident.taints
            else incident
            for incident in record.incidents
        ),
    )
