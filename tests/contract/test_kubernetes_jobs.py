"""The behaviour of Jobs and of pod logs that validations rely on.

The Jobs are suspended: whatever the cluster has besides an API server, no pod starts.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.kubernetes_target import Answer, Target, names, refused

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
LABEL = "contract.example/attempt"


def job(name: str, **spec: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "8"}
    container = {"name": "main", "image": "none.example/none", "resources": {"limits": limits}}
    pod = {"restartPolicy": "Never", "containers": [container], **spec.pop("pod", {})}
    body = {"suspend": True, "backoffLimit": 0, "template": {"spec": pod}, **spec}
    metadata = {"name": name, "labels": {LABEL: name}}
    return {"kind": "Job", "apiVersion": "batch/v1", "metadata": metadata, "spec": body}


@pytest.fixture
def made(target: Target) -> Answer:
    """A Job, as created."""
    answer = target.create(JOBS, job(target.name()))
    assert answer.status == 201, answer.body
    return answer


def path_of(made: Answer) -> str:
    return f"{JOBS}/{made.meta['name']}"


def delete(target: Target, made: Answer, params: dict[str, str] | None = None, **options: Any) -> Answer:
    body = {"kind": "DeleteOptions", "apiVersion": "v1", **options} if options else None
    return target.send("DELETE", path_of(made), body, params=params)


def test_the_pods_of_a_job_carry_its_name_and_its_uid(target: Target, made: Answer) -> None:
    spec = target.get(path_of(made)).body["spec"]
    uid, labels = made.meta["uid"], spec["template"]["metadata"]["labels"]

    assert labels["batch.kubernetes.io/job-name"] == made.meta["name"]
    assert labels["batch.kubernetes.io/controller-uid"] == uid
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def test_only_the_pod_of_a_job_gets_the_request_that_its_limit_implies(made: Answer) -> None:
    [container] = made.body["spec"]["template"]["spec"]["containers"]

    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}


def test_a_job_that_exists_cannot_be_created(target: Target, made: Answer) -> None:
    name = made.meta["name"]
    answer = target.send("POST", JOBS, job(name))

    assert refused(answer, 409, "AlreadyExists")
    assert answer.body["message"] == f'jobs.batch "{name}" already exists'


def test_a_job_in_a_namespace_that_is_not_there_is_not_found(target: Target) -> None:
    name = target.name()
    answer = target.send("POST", JOBS.replace("default", name), job("any"))

    assert refused(answer, 404, "NotFound")
    assert answer.body["message"] == f'namespaces "{name}" not found'


AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


def on_nodes(key: str, *values: str) -> dict[str, Any]:
    term = {"matchFields": [{"key": key, "operator": "In", "values": list(values)}]}
    return {"affinity": {"nodeAffinity": {AFFINITY: {"nodeSelectorTerms": [term]}}}}


def container(**parts: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "none.example/none", **parts}]}


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ({"restartPolicy": "Always"}, "restartPolicy"),
        (container(image=""), "containers[0].image"),
        (
            container(volumeMounts=[{"name": "shm", "mountPath": "/shm"}]),
            "containers[0].volumeMounts[0].name",
        ),
        (
            container(resources={"requests": {"nvidia.com/gpu": "4"}, "limits": {"nvidia.com/gpu": "8"}}),
            "containers[0].resources.requests",
        ),
        (container(resources={"requests": {"nvidia.com/gpu": "4"}}), "containers[0].resources.limits"),
        (
            on_nodes("metadata.name", "a", "b"),
            f"affinity.nodeAffinity.{AFFINITY}.nodeSelectorTerms[0].matchFields[0].values",
        ),
        (
            on_nodes("spec.name", "a"),
            f"affinity.nodeAffinity.{AFFINITY}.nodeSelectorTerms[0].matchFields[0].key",
        ),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "tolerations[0].operator"),
    ],
)
def test_a_job_whose_pod_is_wrong_is_refused_at_once(target: Target, pod: dict[str, Any], field: str) -> None:
    answer = target.send("POST", JOBS, job(target.name(), pod=pod))

    assert refused(answer, 422, "Invalid")
    assert f"spec.template.spec.{field}" in {cause["field"] for cause in answer.body["details"]["causes"]}


def test_a_job_to_one_node_by_its_name_is_taken(target: Target) -> None:
    assert target.create(JOBS, job(target.name(), pod=on_nodes("metadata.name", "gpu-1"))).status == 201


@pytest.mark.parametrize(("chars", "status"), [(63, 201), (64, 422)])
def test_a_jobs_name_has_63_characters_at_most(target: Target, chars: int, status: int) -> None:
    assert target.create(JOBS, job(target.name().ljust(chars, "x"))).status == status


def test_a_label_selects_jobs(target: Target, made: Answer) -> None:
    target.create(JOBS, job(target.name()))

    assert names(target.get(JOBS, labelSelector=f"{LABEL}={made.meta['name']}")) == [made.meta["name"]]


def test_a_job_with_another_uid_is_not_deleted(target: Target, made: Answer) -> None:
    kept = delete(target, made, preconditions={"uid": "another"}, propagationPolicy="Background")
    there = target.get(path_of(made)).status
    gone = delete(target, made, preconditions={"uid": made.meta["uid"]}, propagationPolicy="Background")

    assert refused(kept, 409, "Conflict")
    assert (there, gone.status) == (200, 200)
    assert refused(target.get(path_of(made)), 404, "NotFound")
    assert refused(delete(target, made, propagationPolicy="Background"), 404, "NotFound")


def test_a_dry_run_in_the_query_does_not_count_beside_a_body(target: Target, made: Answer) -> None:
    rehearsed = delete(target, made, propagationPolicy="Background", dryRun=["All"])
    there = target.get(path_of(made)).status
    deleted = delete(target, made, {"dryRun": "All"}, propagationPolicy="Background")

    assert (rehearsed.status, there, deleted.status) == (200, 200, 200)
    assert target.get(path_of(made)).status == 404


def test_without_a_policy_the_server_warns_that_the_pods_stay(target: Target, made: Answer) -> None:
    warned, quiet = delete(target, made), target.create(JOBS, job(target.name()))

    assert "child pods are preserved by default" in warned.headers["Warning"]
    assert "Warning" not in delete(target, quiet, propagationPolicy="Background").headers


def test_an_unknown_policy_is_refused(target: Target, made: Answer) -> None:
    answer = delete(target, made, propagationPolicy="background")

    assert refused(answer, 422, "Invalid")
    assert {cause["field"] for cause in answer.body["details"]["causes"]} == {"propagationPolicy"}


def test_the_log_of_a_pod_that_is_not_there_is_not_found(target: Target) -> None:
    assert refused(target.get(f"{PODS}/nobody/log"), 404, "NotFound")


def test_a_log_has_at_least_one_byte(target: Target) -> None:
    assert refused(target.get(f"{PODS}/nobody/log", limitBytes="0"), 422, "Invalid")
