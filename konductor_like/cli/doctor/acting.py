"""Requests in the name of the controller's account, which the API server checks and does not store.

They prove more than a comparison: a policy may look right and apply to nobody. They need the right to
impersonate the account, which cluster admins have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from konductor_like.cli.doctor.link import Unseen
from konductor_like.cli.session import ControllerReport, cluster_now
from konductor_like.cluster.api.client import (
    KubeClient,
    ReadOnlyKubeClient,
    events_path,
    jobs_path,
    node_path,
)
from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.api.transport import STRATEGIC_MERGE_PATCH
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.writer import NoDeadline, NodeWriter, Outcome
from konductor_like.cluster.preflight import (
    VALIDATION_POLICY,
    account_of,
    all_permissions,
    missing_permissions,
    policy_names,
    validation_lacks,
)
from konductor_like.model import Change, Needs, NodeState, Verb

_ELSEWHERE = "kube-public"
"""A namespace that every cluster has, and to which the controller sends no Event of its own."""
_ROUNDS = 3
"""Attempts at the taint, because the Node may change meanwhile."""
_Write = Callable[[KubeClient, NodeState], object]


@dataclass(frozen=True, slots=True)
class Acting:
    """The answers to requests in the name of the controller's account."""

    account: str
    missing: str = ""
    """The rights that the account does not have, in words; empty if it has all."""
    lacks: str = ""
    """The objects that validations lack, in words; empty if they are there, or there are no validations."""
    node: str = ""
    """The Node of the dry runs; empty if there was none, or the account may not write it."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """By policy, the refusal of a write that the policy must deny; empty if the write was admitted."""
    own_refusal: str = ""
    """The refusal of the controller's own taint; empty if it was admitted."""
    label_refused: bool = False
    """Whether that was admitted only without the label for what a node needs."""


def acting(client: ReadOnlyKubeClient, lease: ControllerReport, nodes: Mapping[str, NodeState]) -> Acting:
    """Try the account's rights, a write that each policy must deny, and the controller's own taint.

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
        return Acting(account, words, lacks)
    state = gpu_nodes[0]
    forbidden: dict[str, _Write] = {**_FORBIDDEN, VALIDATION_POLICY: partial(_run_on_the_host, lease)}
    refusals = {name: _refusal(forbidden[name], api, state) for name in policy_names(lease.settings)}
    own, label_refused = _own_taint(api, state, cluster_now(client))
    return Acting(account, words, lacks, state.name, refusals, own, label_refused)


def _cordon(api: KubeClient, state: NodeState) -> object:
    body = {"spec": {"unschedulable": not state.unschedulable}}
    return api.patch(node_path(state.name), body, content_type=STRATEGIC_MERGE_PATCH)


def _end_the_node(api: KubeClient, state: NodeState) -> object:
    path, body = f"{node_path(state.name)}/status", {"status": {"phase": "Terminated"}}
    return api.patch(path, body, content_type=STRATEGIC_MERGE_PATCH)


def _send_an_event(api: KubeClient, _state: NodeState) -> object:
    about = {"namespace": _ELSEWHERE, "name": "konductor-like-doctor"}
    event = {"reason": "Doctor", "type": "Normal", "message": "a dry run", "involvedObject": about}
    body = {"apiVersion": "v1", "kind": "Event", "metadata": about, **event}
    return api.create(events_path(_ELSEWHERE), body)


def _run_on_the_host(lease: ControllerReport, api: KubeClient, _state: NodeState) -> object:
    namespace = lease.settings.validation_namespace if lease.settings else ""
    container = {"name": "doctor", "image": "none.example/none"}
    pod = {"restartPolicy": "Never", "hostPID": True, "containers": [container]}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "konductor-like-doctor", "namespace": namespace},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }
    return api.create(jobs_path(namespace), body)


_FORBIDDEN: Mapping[str, _Write] = {
    "konductor-like": _cordon,
    "konductor-like-node-condition": _end_the_node,
    "konductor-like-job-events": _send_an_event,
}
"""By policy, a write that it must deny to the controller's account."""


def _refusal(write: _Write, api: KubeClient, state: NodeState) -> str:
    try:
        write(api, state)
    except KubeError as error:
        return str(error)
    return ""


def _own_taint(api: KubeClient, state: NodeState, now: datetime) -> tuple[str, bool]:
    """Write the taint as the controller does. Return the refusal, and whether the label was refused."""
    refused: list[str] = []
    writer = NodeWriter(
        api,
        node_decoder(),
        NoDeadline(),
        timeout_seconds=10.0,
        patience_seconds=0.0,
        on_label_refused=refused.append,
    )
    outcome, why = Outcome.CONFLICT, ""
    for _ in range(_ROUNDS):
        record = replace(state.record, life=replace(state.record.life, tainted_at=now))
        change = Change(state.name, Verb.TAINT, record, "faulty", needs=Needs.REBOOT)
        result = writer.write(state, change)
        outcome, why, state = result.outcome, str(result.error or ""), result.state or state
        if outcome is not Outcome.CONFLICT:
            break
    return "" if outcome is Outcome.APPLIED else why or "the Node keeps changing", bool(refused)
