"""Records that somebody removed from a Node, and that come back (rule 23).

A write may take our annotation off, alone or together with the taint: ``kubectl replace`` of an old copy,
GitOps. The controller remembers the records of the nodes that are out of service. A controller that has
just started knows from the Lease which Nodes have our taint, and why. Only ``reset --purge`` removes a record
for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from konductor_like.model import (
    ControlAct,
    Machine,
    NodeRecord,
    NodeState,
    TaintedNode,
)
from konductor_like.model.time import CLOCKS_AGREE_SECONDS
from konductor_like.policy.fleet.known_nodes import record_of


def lost_claims(
    nodes: Mapping[str, NodeState],
    known: Mapping[str, NodeState],
    tainted: Iterable[TaintedNode],
) -> dict[str, NodeRecord]:
    """Return by name the records of nodes that lost their annotation while they were out of service.

    ``known`` are the nodes with a claim as the controller saw them last, ``tainted`` those that the Lease
    lists. Both count for the same Node in the same boot only.
    """
    found = {}
    for listed in tainted:
        state = nodes.get(listed.name)
        if state is not None and listed.deleted_at is None and listed.why and _lacks(state, listed.machine):
            found[listed.name] = record_of(listed)
    for name, before in known.items():
        state = nodes.get(name)
        if state is not None and not before.record_kept and _lacks(state, before.machine):
            found[name] = before.record
    return found


def _lacks(state: NodeState, machine: Machine) -> bool:
    same = (state.as_read.uid, state.machine.boot_id) == (machine.node_uid, machine.boot_id)
    return same and state.as_read.record is None and not state.record_kept


def is_purged(name: str, record: NodeRecord, purge: ControlAct | None) -> bool:
    """Whether the Lease tells that a person purged the node after it was tainted."""
    since, apart = record.life.tainted_at, timedelta(seconds=CLOCKS_AGREE_SECONDS)
    if purge is None or (since is not None and purge.at < since - apart):
        return False
    return purge.may_name(name)
