"""The manifest of the Node condition: what its role and its admission policy let the controller change.

The tests run against the stand-in, or against a real API server if ``KONDUCTOR_TEST_KUBECONFIG`` names one
(see ``test_kubernetes_manifests.py``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from konductor_like.cluster.node.condition import patch_of
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import CONDITION_MARK, HEALTH_LABEL, Condition
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.contract.kubernetes_target import (
    KUBECONFIG_VARIABLE,
    STRATEGIC_MERGE_PATCH,
    Answer,
    Target,
    open_target,
    path_of,
    refused,
)
from tests.contract.test_kubernetes_manifests import AS_CONTROLLER, PATIENCE_SECONDS, collection
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER, rules_of
from tests.manifests.schema import problems
from tools.manifests.manifests import documents, only

DOCS = documents("node_condition.yaml")
AT = datetime(2026, 11, 2, 10, 4, 11, tzinfo=UTC)
SINCE = "2026-11-02T09:00:00Z"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}
PRESSURE = {"type": "MemoryPressure", "status": "False", "reason": "Enough", "message": "enough"}
OURS = {"type": "TrainyGPUFaulty", "status": "True", "reason": "XidFault", "message": "Xid 79"}


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    if os.environ.get(KUBECONFIG_VARIABLE):
        with open_target() as target:
            node = target.create_node()
            enforce(
                target, DOCS, lambda: change(target, node, {"status": {"phase": "Running"}}, dryRun="All")
            )
            yield target
        return
    with KubernetesServer(require_token=True, schema=problems, admission=Policy(DOCS)) as server:
        server.access.add_user(CONTROLLER, rules_of(DOCS))
        yield Target(server.url, {"Authorization": f"Bearer {server.access.admin_token}"}, server=server)


def enforce(target: Target, docs: list[dict[str, Any]], forbidden: Callable[[], Answer]) -> None:
    """Put role and policy on a real API server, under names of this run; wait until both are in force."""
    name = target.name()
    renamed = {"metadata": {"name": name}}
    for doc in docs:
        named: dict[str, Any] = {**doc, **renamed}
        if doc["kind"] == "ClusterRoleBinding":
            named["roleRef"] = {**doc["roleRef"], "name": name}
        if doc["kind"] == "ValidatingAdmissionPolicyBinding":
            named["spec"] = {**doc["spec"], "policyName": name}
        made = target.create(collection(doc), named)
        assert made.status == 201, made.body
    end = time.monotonic() + PATIENCE_SECONDS
    while "ValidatingAdmissionPolicy" not in (answer := forbidden()).body.get("message", ""):
        assert time.monotonic() < end, f"the policy is still not in force: {answer.body}"
        time.sleep(0.1)


@pytest.fixture
def node(target: Target) -> Answer:
    """A Node with two conditions of others, in this order, and a label."""
    made = target.create_node(metadata={"labels": {"policy.example/a": "x"}})
    status = {"conditions": [READY, PRESSURE], "nodeInfo": {"bootID": "boot-1"}}
    body = {"status": status}
    assert target.patch(f"{path_of(made)}/status", body, STRATEGIC_MERGE_PATCH).status == 200
    return target.get(path_of(made))


def change(
    target: Target, node: Answer, body: Any, kind: str = STRATEGIC_MERGE_PATCH, **params: str
) -> Answer:
    """A patch of the status by the controller's account."""
    return target.send("PATCH", f"{path_of(node)}/status", body, kind, AS_CONTROLLER, params)


def test_the_controller_writes_changes_and_removes_its_condition(target: Target, node: Answer) -> None:
    for status in ("True", "False", "Unknown", ""):
        condition = None
        if status:
            condition = Condition("TrainyGPUFaulty", status, "NoFault", f"{CONDITION_MARK}x", SINCE)
        state = decode_node(target.get(path_of(node)).body)

        answer = change(target, node, patch_of(state, condition, AT))

        assert answer.status == 200, answer.body
        found = [each["type"] for each in answer.body["status"]["conditions"]]
        assert found == [*(["TrainyGPUFaulty"] if status else []), "Ready", "MemoryPressure"]


FORBIDDEN = {
    "another's condition changed": ({"conditions": [{**READY, "status": "False"}]}, "condition"),
    "another's message changed": ({"conditions": [{**READY, "message": "x"}]}, "condition"),
    "another's condition removed": ({"conditions": [{"$patch": "delete", "type": "Ready"}]}, "condition"),
    "another condition added": ({"conditions": [{**OURS, "type": "GPUProblem"}]}, "condition"),
    "another's condition beside ours": ({"conditions": [OURS, {**READY, "status": "False"}]}, "condition"),
    "the capacity": ({"capacity": {"nvidia.com/gpu": "64"}}, "nothing in a Node's status"),
    "the boot id": ({"nodeInfo": {"bootID": "boot-2"}}, "nothing in a Node's status"),
    "the phase": ({"phase": "Terminated"}, "nothing in a Node's status"),
    "an address": (
        {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
        "nothing in a Node's status",
    ),
    "an image": ({"images": [{"names": ["policy.example/a"]}]}, "nothing in a Node's status"),
}
"""Changes of a status that are refused, each with a part of the message."""


@pytest.mark.parametrize(("status", "said"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_controller_changes_nothing_else_in_a_status(
    target: Target, node: Answer, status: dict[str, Any], said: str
) -> None:
    answer = change(target, node, {"status": status})
    somebody_else = target.patch(
        f"{path_of(node)}/status", {"status": status}, STRATEGIC_MERGE_PATCH, dryRun="All"
    )

    assert refused(answer, 403, "Forbidden")
    assert "ValidatingAdmissionPolicy" in answer.body["message"]
    assert said in answer.body["message"]
    assert somebody_else.status == 200, somebody_else.body


def test_the_order_of_others_conditions_stays(target: Target, node: Answer) -> None:
    body = [{"op": "replace", "path": "/status/conditions", "value": [PRESSURE, READY]}]

    answer = change(target, node, body, "application/json-patch+json")

    assert refused(answer, 403, "Forbidden")


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": {HEALTH_LABEL: "faulty"}}, id="even our label"),
        pytest.param({"labels": {"policy.example/a": None}}, id="another's label off"),
        pytest.param({"annotations": {"policy.example/b": "y"}}, id="an annotation"),
        pytest.param({"finalizers": ["policy.example/c"]}, id="a finalizer"),
    ],
)
def test_the_metadata_does_not_change_together_with_a_status(
    target: Target, node: Answer, metadata: dict[str, Any]
) -> None:
    answer = change(target, node, {"metadata": metadata, "status": {"conditions": [OURS]}})

    assert refused(answer, 403, "Forbidden")
    assert "nothing in a Node's metadata" in answer.body["message"]


def test_the_role_grants_no_replacing_of_a_status_and_nothing_else(target: Target, node: Answer) -> None:
    replaced = target.send("PUT", f"{path_of(node)}/status", node.body, headers=AS_CONTROLLER)
    patched = target.send("PATCH", path_of(node), {}, STRATEGIC_MERGE_PATCH, headers=AS_CONTROLLER)

    assert (replaced.status, patched.status) == (403, 403)
    [rule] = rules_of(DOCS)
    assert (rule.verbs, rule.resources, rule.groups) == (("patch",), ("nodes/status",), ("",))


def test_every_refusal_of_the_policy_is_a_403() -> None:
    """The controller would read 422, the default, as a Node that was made again."""
    for validation in only(DOCS, "ValidatingAdmissionPolicy")["spec"]["validations"]:
        assert validation["reason"] == "Forbidden"
        assert validation["message"].startswith("konductor-like may change no")
