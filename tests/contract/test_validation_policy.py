"""The manifest of validations: which Jobs its role and its admission policy let the controller create.

The tests run against the stand-in, or against a real API server if ``KONDUCTOR_TEST_KUBECONFIG`` names one
(see ``test_kubernetes_manifests.py``). Every Job is a dry run.
``tests/manifests/test_validation_policy.py`` has the other refusals.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from konductor_like.cluster.api.client import jobs_path
from konductor_like.cluster.validation_jobs import Order, job_body
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes import KubernetesServer
from tests.contract.kubernetes_target import KUBECONFIG_VARIABLE, Answer, Target, open_target, refused
from tests.contract.test_kubernetes_manifests import AS_CONTROLLER, PATIENCE_SECONDS, collection
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER, rules_of
from tests.manifests.schema import problems
from tools.manifests.manifests import documents, only

DOCS = documents("validation.yaml")
NAME = "konductor-like-validation"
KINDS = ("Role", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    if os.environ.get(KUBECONFIG_VARIABLE):
        with open_target() as target:
            yield target
        return
    with KubernetesServer(require_token=True, schema=problems, admission=Policy(DOCS)) as server:
        server.access.add_user(CONTROLLER, rules_of(DOCS))
        yield Target(server.url, {"Authorization": f"Bearer {server.access.admin_token}"}, server=server)


@pytest.fixture(scope="module")
def namespace(target: Target) -> str:
    """The namespace of the Jobs, once role and policy are in force there, under names of this run."""
    name = NAME if target.server else target.name()
    docs = json.loads(json.dumps(DOCS).replace(f'"{NAME}"', f'"{name}"'))
    for doc in [only(docs, "Namespace"), *(only(docs, kind) for kind in KINDS)]:
        made = target.create(collection(doc), doc)
        assert made.status == 201, made.body
    end = time.monotonic() + PATIENCE_SECONDS
    while "ValidatingAdmissionPolicy" not in (answer := create(target, name, on_the_host)).body.get(
        "message", ""
    ):
        assert time.monotonic() < end, f"the policy is still not in force: {answer.body}"
        time.sleep(0.1)
    return name


def create(target: Target, namespace: str, change: Callable[[dict[str, Any]], object]) -> Answer:
    """Create the controller's Job with a change of its pod, in the name of the controller's account."""
    settings = Settings(
        validation_image="none.example/none", validation_namespace=namespace, watched_namespaces=()
    )
    body = job_body(Order("k7f3q2ab", "gpu-1", "uid", 3, 8), settings, "konductor-like")
    change(body["spec"]["template"]["spec"])
    path = jobs_path(namespace)
    return target.send("POST", path, body, headers=AS_CONTROLLER, params={"dryRun": "All"})


def on_the_host(pod: dict[str, Any]) -> None:
    pod["hostPID"] = True


def test_the_controllers_own_job_is_allowed(target: Target, namespace: str) -> None:
    answer = create(target, namespace, lambda _pod: None)

    assert answer.status == 201, answer.body


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(on_the_host, "namespace of the host", id="a host's namespace"),
        pytest.param(
            lambda pod: pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
            "emptyDir",
            id="hostPath",
        ),
        pytest.param(
            lambda pod: pod["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"),
            "privileged",
            id="escalation",
        ),
        pytest.param(
            lambda pod: pod["containers"].append({"name": "b", "image": "b"}), "one container", id="two"
        ),
        pytest.param(lambda pod: pod.pop("automountServiceAccountToken"), "token", id="a token"),
        pytest.param(lambda pod: pod.pop("priorityClassName"), "PriorityClass", id="no PriorityClass"),
        pytest.param(lambda pod: pod.pop("affinity"), "one node", id="anywhere"),
    ],
)
def test_a_job_that_could_do_more_is_refused(
    target: Target, namespace: str, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    answer = create(target, namespace, change)

    assert refused(answer, 403, "Forbidden")
    assert "ValidatingAdmissionPolicy" in answer.body["message"]
    assert said in answer.body["message"]


def test_the_role_is_about_this_namespace_and_about_jobs_only(target: Target, namespace: str) -> None:
    elsewhere = create(target, "default", lambda _pod: None)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    other = target.send("POST", f"/api/v1/namespaces/{namespace}/configmaps", config, headers=AS_CONTROLLER)

    assert (elsewhere.status, other.status) == (403, 403)
