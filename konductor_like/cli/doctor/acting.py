"""The rights and the taint of the controller's account, tried in its name; nothing is stored.

They need the right to impersonate the account, which cluster admins have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from konductor_like.cli.doctor.link import Unseen
from konductor_like.cli.session import ControllerReport, cluster_now
from konductor_like.cluster.api.client import KubeClient, ReadOnlyKubeClient
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.writer import NoDeadline, NodeWriter, Outcome
from konductor_like.cluster.preflight import (
    account_of,
    all_permissions,
    missing_permissions,
    validation_lacks,
)
from konductor_like.model import Change, Needs, NodeState, Verb

_ROUNDS = 3
"""Attempts at the taint, because the Node may change meanwhile."""


@dataclass(frozen=True, slots=True)
class Acting:
    """The answers to requests in the name of the controller's account."""

    missing: str = ""
    """The rights that the account does not have, in words; empty if it has all."""
    lacks: str = ""
    """The objects that validations lack, in words; empty if they are there, or there are no validations."""
    own_refusal: str = ""
    """The refusal of the controller's own taint; empty if it was admitted, or could not be tried."""


def acting(client: ReadOnlyKubeClient, lease: ControllerReport, nodes: Mapping[str, NodeState]) -> Acting:
    """Try the account's rights and the controller's own taint.

    Raises Unseen if the caller may not impersonate the account, or a KubeError.
    """
    account = account_of(lease.namespace)
    api = client.dry_run_as(account)
    namespace, name = lease.lease.split("/", 1)
    missing = missing_permissions(api, all_permissions(namespace, name, lease.settings))
    if missing is None:
        raise Unseen(f"you may not act as {account}")
    words, lacks = ", ".join(map(str, missing)), ", and ".join(validation_lacks(client, lease.settings))
    gpu_nodes = sorted((each for each in nodes.values() if each.is_gpu_node), key=lambda each: each.tainted)
    if not gpu_nodes or any(each.resource == "nodes" for each in missing):
        return Acting(words, lacks)
    return Acting(words, lacks, _own_taint(api, gpu_nodes[0], cluster_now(client)))


def _own_taint(api: KubeClient, state: NodeState, now: datetime) -> str:
    """Write the taint as the controller does. Return the refusal; empty if there is none."""
    writer = NodeWriter(api, node_decoder(), NoDeadline(), timeout_seconds=10.0, patience_seconds=0.0)
    outcome, why = Outcome.CONFLICT, ""
    for _ in range(_ROUNDS):
        record = replace(state.record, life=replace(state.record.life, tainted_at=now))
        change = Change(state.name, Verb.TAINT, record, "faulty", needs=Needs.REBOOT)
        result = writer.write(state, change)
        outcome, why, state = result.outcome, str(result.error or ""), result.state or state
        if outcome is not Outcome.CONFLICT:
            break
    return "" if outcome is Outcome.APPLIED else why or "the Node keeps changing"
