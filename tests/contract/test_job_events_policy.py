"""The manifest of the jobs' Events: which Events its role and its admission policy let the controller create.

The tests run against the stand-in, or against a real API server if ``KONDUCTOR_TEST_KUBECONFIG`` names one
(see ``test_kubernetes_manifests.py``). Every Event is a dry run. ``tests/controller/test_job_events.py`` has
the other refusals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from konductor_like.cluster.api.client import events_path
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.contract.kubernetes_target import KUBECONFIG_VARIABLE, Answer, Target, open_target, refused
from tests.contract.test_kubernetes_manifests import AS_CONTROLLER
from tests.contract.test_node_condition_policy import enforce
from tests.controller.test_job_events import GOOD
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER, rules_of
from tests.manifests.schema import problems
from tools.manifests.manifests import documents

DOCS = documents("job_events.yaml")
ELSEWHERE = "kube-public"
"""A namespace that every cluster has, and to which the controller sends no Event of its own."""


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    if os.environ.get(KUBECONFIG_VARIABLE):
        with open_target() as target:
            enforce(target, DOCS, lambda: create(target, reason="Other"))
            yield target
        return
    with KubernetesServer(require_token=True, schema=problems, admission=Policy(DOCS)) as server:
        server.create_namespace(ELSEWHERE)
        server.access.add_user(CONTROLLER, rules_of(DOCS))
        yield Target(server.url, {"Authorization": f"Bearer {server.access.admin_token}"}, server=server)


def create(target: Target, headers: dict[str, str] = AS_CONTROLLER, **changed: Any) -> Answer:
    """Create the controller's Event about a job with a change, in the name of the controller's account."""
    about = {**GOOD["involvedObject"], "namespace": ELSEWHERE}
    body = {"apiVersion": "v1", "kind": "Event", **GOOD, "involvedObject": about, **changed}
    body["metadata"] = {**GOOD["metadata"], "namespace": ELSEWHERE}
    return target.send("POST", events_path(ELSEWHERE), body, headers=headers, params={"dryRun": "All"})


def test_the_controllers_own_event_is_allowed(target: Target) -> None:
    answer = create(target)

    assert answer.status == 201, answer.body


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reason": "Doctor", "type": "Normal", "message": "a dry run"}, "no other Event about a job"),
        ({"source": {"component": "kubelet"}}, "in its own name only"),
        ({"involvedObject": {"kind": "Namespace", "name": ELSEWHERE, "namespace": ELSEWHERE}}, "the owner"),
    ],
)
def test_another_event_is_refused_to_the_controller_only(
    target: Target, changed: dict[str, Any], said: str
) -> None:
    answer, somebody_else = create(target, **changed), create(target, {}, **changed)

    assert refused(answer, 403, "Forbidden")
    assert "ValidatingAdmissionPolicy" in answer.body["message"]
    assert said in answer.body["message"]
    assert somebody_else.status == 201, somebody_else.body
