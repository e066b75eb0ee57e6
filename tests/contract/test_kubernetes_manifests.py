"""The manifests for kubectl, and the effect of their admission policy and ClusterRole.

The tests run against the stand-in, or against a real API server if ``KONDUCTOR_TEST_KUBECONFIG`` names one.
There they create policy and role for a short time under other names, and impersonate the controller's
account. The server must allow privileged containers (``--allow-privileged``), as network plugins need it too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from konductor_like.cluster.node.patch import OUR_TAINT
from konductor_like.model import RECORD_ANNOTATION
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.resources import RESOURCES
from tests.contract.kubernetes_target import KUBECONFIG_VARIABLE, Answer, Target, node_path, open_target
from tests.manifests import node_changes
from tests.manifests.node_changes import Build
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER, rules_of
from tests.manifests.schema import problems
from tools.manifests.manifests import documents, kubectl_manifests, only

APPLY = "application/apply-patch+yaml"
DOCS = documents("controller_deployment.yaml")
OBJECTS = [
    pytest.param(doc, id=f"{manifest}-{doc['kind']}-{doc['metadata']['name']}")
    for manifest in kubectl_manifests()
    for doc in documents(manifest)
]
AS_CONTROLLER = {"Impersonate-User": CONTROLLER}
PATIENCE_SECONDS = 30.0


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    if os.environ.get(KUBECONFIG_VARIABLE):
        with open_target() as target, enforced(target):
            yield target
        return
    with KubernetesServer(require_token=True, schema=problems, admission=Policy(DOCS)) as server:
        server.access.add_user(CONTROLLER, rules_of(DOCS))
        headers = {"Authorization": f"Bearer {server.access.admin_token}"}
        yield Target(server.url, headers, server=server)


@contextmanager
def enforced(target: Target) -> Iterator[None]:
    """ClusterRole and policy on a real API server, under names of this run, once both are in force."""
    name = target.name()
    renamed = {"metadata": {"name": name}}
    role, binding = only(DOCS, "ClusterRole"), only(DOCS, "ClusterRoleBinding")
    policy = only(DOCS, "ValidatingAdmissionPolicy")
    policy_binding = only(DOCS, "ValidatingAdmissionPolicyBinding")
    for doc in (
        {**role, **renamed},
        {**binding, **renamed, "roleRef": {**binding["roleRef"], "name": name}},
        {**policy, **renamed},
        {**policy_binding, **renamed, "spec": {**policy_binding["spec"], "policyName": name}},
    ):
        made = target.create(collection(doc), doc)
        assert made.status == 201, made.body
    node = target.create_node()
    cordon = [{"op": "add", "path": "/spec/unschedulable", "value": True}]
    end = time.monotonic() + PATIENCE_SECONDS
    while "ValidatingAdmissionPolicy" not in (answer := change(target, node, cordon)).body.get("message", ""):
        assert time.monotonic() < end, f"the policy is still not in force: {answer.body}"
        time.sleep(0.1)
    yield


def collection(doc: Mapping[str, Any]) -> str:
    """Where objects of this kind are, in the namespace of ``doc``."""
    [resource] = [r for r in RESOURCES if (r.api_version, r.kind) == (doc["apiVersion"], doc["kind"])]
    namespace = f"/namespaces/{doc['metadata']['namespace']}" if resource.namespaced else ""
    return f"/{'apis' if resource.group else 'api'}/{resource.api_version}{namespace}/{resource.plural}"


def try_to_apply(target: Target, doc: Mapping[str, Any]) -> Answer:
    """A strict server-side apply that stores nothing, in a namespace that is there."""
    namespace = {"namespace": "default"} if "namespace" in doc["metadata"] else {}
    tried = {**doc, "metadata": {**doc["metadata"], **namespace}}
    params = {"fieldManager": "contract", "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
    path = f"{collection(tried)}/{tried['metadata']['name']}"
    return target.send("PATCH", path, tried, APPLY, params=params)


def change(target: Target, node: Answer, operations: list[dict[str, Any]]) -> Answer:
    """A patch by the controller's account that stores nothing."""
    path = node_path(node.meta["name"])
    return target.send(
        "PATCH", path, operations, "application/json-patch+json", AS_CONTROLLER, {"dryRun": "All"}
    )


def made(target: Target, *, ours: bool) -> Answer:
    wanted = node_changes.node(target.name(), ours=ours)
    return target.create_node(metadata=wanted["metadata"], spec=wanted["spec"])


@pytest.mark.parametrize("doc", OBJECTS)
def test_every_object_is_accepted_strictly(target: Target, doc: dict[str, Any]) -> None:
    answer = try_to_apply(target, doc)

    assert answer.status in (200, 201), answer.body
    assert answer.meta["name"] == doc["metadata"]["name"]


def test_a_field_that_does_not_exist_is_refused_by_name(target: Target) -> None:
    deployment = only(DOCS, "Deployment")

    answer = try_to_apply(target, {**deployment, "spec": {**deployment["spec"], "replica": 2}})

    assert answer.status == 500
    assert answer.body["message"] == (
        "failed to create typed patch object (default/konductor-like; apps/v1, Kind=Deployment):"
        " .spec.replica: field not declared in schema"
    )


ALLOWED = [
    pytest.param(build, ours, id=name)
    for builds, ours in ((node_changes.TO_FAULTY, False), (node_changes.TO_HEALTHY, True))
    for name, build in builds.items()
]


@pytest.mark.parametrize(("build", "ours"), ALLOWED)
def test_the_controller_may_change_its_marks_on_a_node(target: Target, build: Build, ours: bool) -> None:
    node = made(target, ours=ours)

    answer = change(target, node, build(node.body))

    assert answer.status == 200, answer.body


def test_the_controller_may_mark_a_node_that_has_neither_taints_nor_labels(
    target: Target, node: Answer
) -> None:
    assert node.body["spec"].get("taints") is None

    answer = change(
        target,
        node,
        [
            {"op": "add", "path": "/spec/taints", "value": [dict(OUR_TAINT)]},
            {"op": "add", "path": "/metadata/annotations", "value": {RECORD_ANNOTATION: "{}"}},
        ],
    )

    assert answer.status == 200, answer.body


@pytest.mark.parametrize(("build", "said"), node_changes.FORBIDDEN.values(), ids=node_changes.FORBIDDEN)
def test_the_controller_may_change_nothing_else(target: Target, build: Build, said: str) -> None:
    node = made(target, ours=False)
    operations = build(node.body)

    refused = change(target, node, operations)
    somebody_else = target.patch(node_path(node.meta["name"]), operations, dryRun="All")

    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert "ValidatingAdmissionPolicy" in refused.body["message"]
    assert f"konductor-like may change {said}" in refused.body["message"]
    assert somebody_else.status == 200, somebody_else.body


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("DELETE", "", id="delete a Node"),
        pytest.param("PATCH", "/status", id="patch a Node's status"),
        pytest.param("PUT", "", id="replace a Node"),
    ],
)
def test_the_role_grants_no_other_way_to_a_node(target: Target, method: str, path: str) -> None:
    node = made(target, ours=False)
    body = [] if method == "PATCH" else node.body if method == "PUT" else None
    kind = "application/json-patch+json" if method == "PATCH" else "application/json"

    answer = target.send(
        method, f"{node_path(node.meta['name'])}{path}", body, kind, AS_CONTROLLER, {"dryRun": "All"}
    )

    assert answer.status == 403
    assert "cannot" in answer.body["message"]
