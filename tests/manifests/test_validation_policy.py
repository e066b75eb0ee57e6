"""The admission policy of ``manifests/validation.yaml``: the controller's Jobs, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from konductor_like.cluster.validation_jobs import PRIORITY_CLASS, Order, job_body
from konductor_like.settings import Settings
from konductor_like_sandbox.kubernetes import Review
from konductor_like_sandbox.kubernetes.job_objects import complete
from tests.manifests.policy import Policy
from tests.manifests.roles import CONTROLLER
from tools.manifests.manifests import documents, only

DOCS = documents("validation.yaml")
SPEC = only(DOCS, "ValidatingAdmissionPolicy")["spec"]
ORDER = Order("k7f3q2ab", "gpu-1", "uid-of-the-node", 3, 8)
Pod = dict[str, Any]


def job(**settings: Any) -> dict[str, Any]:
    """Return the controller's Job with the defaults of the API server."""
    body = job_body(ORDER, Settings(validation_image="dcgm:4", **settings), "konductor-like")
    body["metadata"]["uid"] = "1"
    complete(body)
    return body


def refusal(body: dict[str, Any], user: str = CONTROLLER, **review: str) -> str:
    asked = {"operation": "CREATE", "group": "batch", "resource": "jobs", **review}
    return Policy(DOCS)(
        Review(user=user, name="x", subresource="", object=body, old_object=None, **asked)
    ).rpartition("request: ")[2]


@pytest.mark.parametrize(
    "settings", [{}, {"validation_command": "run.sh"}, {"validation_tolerations": ("team", "dedicated")}]
)
def test_the_controllers_own_job_is_allowed(settings: dict[str, Any]) -> None:
    assert refusal(job(**settings)) == ""


def terms(pod: Pod) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    return found


def add_container(pod: Pod) -> None:
    pod["containers"].append({"name": "b", "image": "b"})


def secure(**fields: Any) -> Callable[[Pod], None]:
    return lambda pod: pod["containers"][0]["securityContext"].update(fields)


def contain(**fields: Any) -> Callable[[Pod], None]:
    return lambda pod: pod["containers"][0].update(fields)


def volume(**source: Any) -> Callable[[Pod], None]:
    return lambda pod: pod["volumes"].append({"name": "x", **source})


FROM_SECRET = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
ON_TWO = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}
BY_LABEL = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
CASES: dict[str, tuple[Callable[[Pod], object], str]] = {
    "two containers": (add_container, "one container"),
    "an init container": (
        lambda pod: pod.update(initContainers=[{"name": "b", "image": "b"}]),
        "one container",
    ),
    "hostPID": (lambda pod: pod.update(hostPID=True), "namespace of the host"),
    "hostIPC": (lambda pod: pod.update(hostIPC=True), "namespace of the host"),
    "hostNetwork": (lambda pod: pod.update(hostNetwork=True), "namespace of the host"),
    "a host's port": (contain(ports=[{"containerPort": 1, "hostPort": 1}]), "namespace of the host"),
    "privileged": (secure(privileged=True), "privileged"),
    "escalation": (secure(allowPrivilegeEscalation=True), "privileged"),
    "capabilities": (secure(capabilities={"add": ["SYS_ADMIN"]}), "privileged"),
    "no security context": (lambda pod: pod["containers"][0].pop("securityContext"), "privileged"),
    "a folder of the host": (volume(hostPath={"path": "/"}), "emptyDir"),
    "a Secret as a volume": (volume(secret={"secretName": "a"}), "emptyDir"),
    "a token as a volume": (volume(projected={"sources": []}), "emptyDir"),
    "the account's token": (lambda pod: pod.update(automountServiceAccountToken=True), "token"),
    "no word about the token": (lambda pod: pod.pop("automountServiceAccountToken"), "token"),
    "another account": (lambda pod: pod.update(serviceAccountName="admin"), "token"),
    "a Secret as a variable": (lambda pod: pod["containers"][0]["env"].append(FROM_SECRET), "Secret"),
    "a Secret as variables": (contain(envFrom=[{"secretRef": {"name": "a"}}]), "Secret"),
    "another class": (lambda pod: pod.update(priorityClassName="high"), "PriorityClass"),
    "no class": (lambda pod: pod.pop("priorityClassName"), "PriorityClass"),
    "preempting": (lambda pod: pod.update(preemptionPolicy="PreemptLowerPriority"), "PriorityClass"),
    "no word about preemption": (lambda pod: pod.pop("preemptionPolicy"), "PriorityClass"),
    "past the scheduler": (lambda pod: pod.update(nodeName="gpu-1"), "one node"),
    "anywhere": (lambda pod: pod.pop("affinity"), "one node"),
    "a choice of terms": (lambda pod: terms(pod).append(BY_LABEL), "one node"),
    "on two nodes": (lambda pod: terms(pod).__setitem__(0, ON_TWO), "one node"),
    "by label only": (lambda pod: terms(pod).__setitem__(0, BY_LABEL), "one node"),
}


@pytest.mark.parametrize(("change", "said"), CASES.values(), ids=CASES)
def test_a_job_that_could_do_more_is_refused(change: Callable[[Pod], object], said: str) -> None:
    body = job()
    change(body["spec"]["template"]["spec"])

    assert said in refusal(body)
    assert refusal(body, user="system:serviceaccount:kube-system:job-controller") == ""


@pytest.mark.parametrize("field", ["parallelism", "completions"])
def test_a_job_of_several_pods_is_refused(field: str) -> None:
    body = job()
    body["spec"][field] = 2

    assert "one pod" in refusal(body)


@pytest.mark.parametrize(
    "review",
    [
        pytest.param({"operation": "UPDATE"}, id="a change of a Job"),
        pytest.param({"group": "", "resource": "configmaps"}, id="a ConfigMap"),
        pytest.param({"group": "apps", "resource": "jobs"}, id="a kind of another group"),
    ],
)
def test_nothing_but_new_jobs_may_be_written(review: dict[str, str]) -> None:
    assert "nothing but Jobs" in refusal(job(), **review)


def test_writes_in_other_namespaces_are_no_matter_of_this_policy() -> None:
    body = copy.deepcopy(job())
    body["metadata"]["namespace"] = "konductor-like"
    body["spec"]["template"]["spec"]["hostPID"] = True

    assert refusal(body) == ""


def test_every_refusal_is_a_403_and_has_a_case() -> None:
    """The controller reads a 403 of a policy as a refusal for good; 422 is the default."""
    for validation in SPEC["validations"]:
        assert validation["reason"] == "Forbidden"
        assert validation["message"].startswith("konductor-like may create no")
        assert "nothing but Jobs" in validation["message"] or any(
            part in validation["message"] for _, part in CASES.values()
        )


def test_the_objects_have_the_names_that_the_code_uses() -> None:
    namespace = Settings().validation_namespace
    [selected] = SPEC["matchConstraints"]["namespaceSelector"]["matchLabels"].values()
    of = {kind: only(DOCS, kind)["metadata"] for kind in ("Role", "RoleBinding", "NetworkPolicy")}

    assert only(DOCS, "Namespace")["metadata"]["name"] == selected == namespace
    assert {each["namespace"] for each in of.values()} == {namespace}
    assert only(DOCS, "PriorityClass")["metadata"]["name"] == PRIORITY_CLASS
    assert f"'{PRIORITY_CLASS}'" in str(SPEC["validations"])


def test_a_pod_of_the_namespace_reaches_nothing_and_displaces_nothing() -> None:
    policy, level = only(DOCS, "NetworkPolicy")["spec"], only(DOCS, "PriorityClass")
    labels = only(DOCS, "Namespace")["metadata"]["labels"]

    assert policy == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert (level["value"], level["preemptionPolicy"], level["globalDefault"]) == (-1000, "Never", False)
    assert labels == {
        f"pod-security.kubernetes.io/{mode}": "baseline" for mode in ("enforce", "warn", "audit")
    }
