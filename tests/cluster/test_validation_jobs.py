"""The client of validations' Jobs, on the stand-in with its scheduler and kubelets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cluster import pods as pods_module
from konductor_like.cluster.api.client import KubeClient, ServerDryRunClient, jobs_path
from konductor_like.cluster.api.errors import (
    KubeBadAnswer,
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeNotFound,
    KubeTimeout,
)
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.pods import gpu_users
from konductor_like.cluster.validation_jobs import (
    CONTAINER,
    PRIORITY_CLASS,
    Order,
    ValidationClient,
    job_body,
    job_name,
    script,
)
from konductor_like.cluster.validation_seen import SeenJob, SeenPod, why_waiting
from konductor_like.model.nodes import Taint
from konductor_like.settings import Settings
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import JSON
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.errors import refusal as answered
from konductor_like_sandbox.kubernetes.fleet import make_node
from konductor_like_sandbox.kubernetes.jobs import Ended, Started

NAMESPACE = "konductor-like-validation"
TAINT = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
SETTINGS = Settings(validation_image="dcgm:4")


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 4, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def time() -> Clock:
    return Clock()


@pytest.fixture
def cluster(time: Clock) -> Iterator[KubernetesServer]:
    """A cluster of two tainted nodes with everything of ``manifests/validation.yaml``."""
    nodes = [make_node(name, taints=[TAINT]) for name in ("gpu-1", "gpu-2")]
    with KubernetesServer(nodes=nodes, clock=time) as server:
        server.put("namespaces", namespace("baseline"))
        server.put("priorityclasses", priority_class())
        yield server


def namespace(level: str) -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": level}
    return {"metadata": {"name": NAMESPACE, "labels": labels}, "spec": {}, "status": {"phase": "Active"}}


def priority_class(policy: str = "Never") -> dict[str, Any]:
    return {"metadata": {"name": PRIORITY_CLASS}, "value": -1000, "preemptionPolicy": policy}


@pytest.fixture
def kube(cluster: KubernetesServer, tmp_path: Path) -> Iterator[KubeClient]:
    connected = KubeClient.connect(str(cluster.kubeconfig(tmp_path / "config")), None, 5.0)
    yield connected
    connected.close()


@pytest.fixture
def client(kube: KubeClient) -> ValidationClient:
    return ValidationClient(kube, SETTINGS, "gpu-ops")


def order(cluster: KubernetesServer, attempt: str = "k7f3q2ab", node: str = "gpu-1", gpus: int = 8) -> Order:
    return Order(attempt, node, cluster.node(node)["metadata"]["uid"], 3, gpus)


def only(client: ValidationClient) -> SeenJob:
    [job] = client.jobs()
    return job


def pod_of(client: ValidationClient) -> SeenPod:
    pod = client.pod(only(client))
    assert pod is not None
    return pod


def why(client: ValidationClient, **facts: str) -> str:
    job = only(client)
    return why_waiting(client.pod(job), job, **facts)


def pod(
    name: str, node: str = "gpu-1", space: str = "ml", gpus: str = "1", phase: str = "Running"
) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    return {
        "metadata": {"namespace": space, "name": name},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": limits}]},
        "status": {"phase": phase},
    }


# Create and find


def test_a_job_is_found_by_what_it_is_for(
    cluster: KubernetesServer, client: ValidationClient, time: Clock
) -> None:
    wanted = order(cluster)
    made = client.create(wanted)

    assert made == SeenJob(job_name("k7f3q2ab"), made.uid, "k7f3q2ab", "gpu-1", wanted.node_uid, time.now)
    assert client.jobs() == [made]
    assert not made.finished


def test_a_job_whose_creation_was_not_answered_is_adopted(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    cluster.mishaps.add(answered(500, after=True))
    with pytest.raises(KubeError) as lost:
        client.create(order(cluster))

    again = client.create(order(cluster))

    assert lost.value.outcome_unknown
    assert client.jobs() == [again]


def altered(body: dict[str, Any], part: str, name: str, value: str) -> dict[str, Any]:
    body["metadata"][part][name] = value
    return body


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("labels", "app.kubernetes.io/managed-by"),
        ("labels", "trainy.konduktor.ai/instance"),
        ("labels", "trainy.konduktor.ai/attempt"),
        ("annotations", "trainy.konduktor.ai/node"),
        ("annotations", "trainy.konduktor.ai/node-uid"),
    ],
)
def test_a_job_of_somebody_else_by_that_name_is_an_error(
    cluster: KubernetesServer, kube: KubeClient, client: ValidationClient, part: str, name: str
) -> None:
    body = job_body(order(cluster), SETTINGS, "gpu-ops")
    kube.create(jobs_path(NAMESPACE), altered(body, part, name, "other"))

    with pytest.raises(KubeConflict, match=r'jobs.batch "validation-k7f3q2ab" already exists'):
        client.create(order(cluster))


def test_a_conflict_about_no_job_is_a_conflict(cluster: KubernetesServer, client: ValidationClient) -> None:
    cluster.mishaps.add(answered(409))  # as of two writes of a quota

    with pytest.raises(KubeConflict):
        client.create(order(cluster))


def test_jobs_of_another_controller_are_not_seen(
    cluster: KubernetesServer, kube: KubeClient, client: ValidationClient
) -> None:
    other = ValidationClient(kube, SETTINGS, "team-b")
    other.create(order(cluster, "b"))
    client.create(order(cluster, "a", "gpu-2"))

    assert [job.attempt for job in client.jobs()] == ["a"]
    assert [job.attempt for job in other.jobs()] == ["b"]


def test_a_namespace_that_is_not_there_is_not_found(kube: KubeClient, cluster: KubernetesServer) -> None:
    settings = Settings(validation_image="dcgm:4", validation_namespace="nowhere")

    with pytest.raises(KubeNotFound, match='namespaces "nowhere" not found'):
        ValidationClient(kube, settings, "gpu-ops").create(order(cluster))


def test_a_list_that_is_none_is_an_error_and_no_empty_list(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    cluster.mishaps.add(Mishap(200, "{}", JSON))

    with pytest.raises(KubeBadAnswer):
        client.jobs()


def test_a_write_whose_time_is_over_is_not_sent(cluster: KubernetesServer, client: ValidationClient) -> None:
    job = client.create(order(cluster))
    cluster.clear_calls()

    with pytest.raises(KubeTimeout, match="before the request was sent"):
        client.create(order(cluster, "b"), -1.0)
    with pytest.raises(KubeTimeout, match="before the request was sent"):
        client.delete(job, -1.0)
    assert cluster.calls() == []


# Run


def test_the_program_runs_on_the_tainted_node_and_its_output_comes_back(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    started: list[Started] = []

    def program(container: Started) -> Ended:
        started.append(container)
        return Ended(0, b"=== \xff\n", "v=1 end\n")

    client.create(order(cluster))
    running = pod_of(client)
    cluster.jobs.programs["gpu-1"] = program
    ended, job = pod_of(client), only(client)

    assert (running.phase, running.node, running.exit_code, why(client)) == ("Running", "gpu-1", None, "")
    assert (ended.phase, ended.exit_code, ended.ended, ended.termination) == (
        "Succeeded",
        0,
        "Completed",
        "v=1 end\n",
    )
    assert (job.complete, job.failed) == (True, "")
    assert client.log(ended, 100) == b"=== \xff\n"
    [first] = started
    assert first.command == ["/bin/sh", "-c", script()]
    assert first.environment["KL_ATTEMPT"] == "k7f3q2ab"


def test_a_program_that_fails_ends_the_job_and_is_not_run_again(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    cluster.jobs.programs["gpu-1"] = lambda _: Ended(226, b"x" * 10)
    client.create(order(cluster))

    job, pod = only(client), pod_of(client)

    assert (job.complete, job.failed) == (False, "BackoffLimitExceeded")
    assert (pod.phase, pod.exit_code, pod.ended) == ("Failed", 226, "Error")
    assert len(cluster.objects("pods", NAMESPACE)) == 1
    assert client.log(pod, 4) == b"x" * 4


def test_a_pod_that_the_job_does_not_own_is_not_its_pod(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    cluster.jobs.controller_runs = False
    job = client.create(order(cluster))
    forged = pod("forged", space=NAMESPACE)
    forged["metadata"]["labels"] = {"batch.kubernetes.io/job-name": job.name}
    for uid, controller in (("another", True), (job.uid, False)):
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job.name,
            "uid": uid,
            "controller": controller,
        }
        forged["metadata"]["ownerReferences"] = [owner]
        cluster.put_pod(forged)

        assert client.pod(job) is None

    forged["metadata"]["ownerReferences"][0]["controller"] = True
    cluster.put_pod(forged)
    assert pod_of(client).name == "forged"


def test_of_several_pods_the_newest_counts(
    cluster: KubernetesServer, client: ValidationClient, time: Clock
) -> None:
    client.create(order(cluster))
    name = pod_of(client).name
    [first] = cluster.objects("pods", NAMESPACE)
    for other, hours in (("a", -1), ("z", -2)):
        at = (time.now + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {**first["metadata"], "name": other, "uid": other, "creationTimestamp": at}
        cluster.put_pod({**first, "metadata": metadata})

    assert pod_of(client).name == name


def test_a_log_that_the_kubelet_does_not_give_is_an_error(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    client.create(order(cluster))
    pod = pod_of(client)
    cluster.jobs.unreachable.add("gpu-1")

    with pytest.raises(KubeError, match="connection refused"):
        client.log(pod, 100)


def test_no_more_of_a_log_is_read_than_asked_for_whatever_the_server_sends(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    client.create(order(cluster))
    pod = pod_of(client)
    cluster.mishaps.add(Mishap(200, "x" * 100_000, "text/plain"))

    assert client.log(pod, 1000) == b"x" * 1000


# Wait


def test_it_waits_for_the_gpus_that_another_pod_holds(
    cluster: KubernetesServer, kube: KubeClient, client: ValidationClient
) -> None:
    cluster.put_pod(pod("slurmd-0", space="slurm"))
    client.create(order(cluster))
    waiting = why(client, users=gpu_users(kube, "gpu-1"))
    cluster.delete_pod("slurm", "slurmd-0")

    assert "other pods hold GPUs of the node: slurm/slurmd-0," in waiting
    assert pod_of(client).phase == "Running"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unschedulable": True}, "the node is cordoned"),
        (
            {"taints": [TAINT, {"key": "team", "value": "a", "effect": "NoSchedule"}]},
            "another taint keeps its pod away (team=a:NoSchedule); KONDUCTOR_VALIDATION_TOLERATIONS",
        ),
    ],
)
def test_it_waits_while_the_scheduler_keeps_it_away(
    cluster: KubernetesServer, client: ValidationClient, change: Mapping[str, Any], words: str
) -> None:
    cluster.edit_node("gpu-1", lambda node: node["spec"].update(change))
    client.create(order(cluster))
    taints = node_decoder()(cluster.node("gpu-1")).taints

    assert words in why(client, taints=client.untolerated(taints))


def test_only_the_taints_that_keep_the_pod_away_are_named(kube: KubeClient) -> None:
    settings = Settings(validation_image="dcgm:4", validation_tolerations=("pool",))
    client = ValidationClient(kube, settings, "gpu-ops")
    taints = [
        Taint(TAINT["key"], TAINT["value"], TAINT["effect"]),
        Taint("nvidia.com/gpu", "present", "NoSchedule"),
        Taint("pool", "a", "NoExecute"),
        Taint("busy", None, "PreferNoSchedule"),
        Taint("team", "a", "NoSchedule"),
        Taint("node.kubernetes.io/not-ready", None, "NoExecute"),
    ]

    assert client.untolerated(taints) == "team=a:NoSchedule, node.kubernetes.io/not-ready:NoExecute"


def test_a_listed_taint_is_tolerated(cluster: KubernetesServer, kube: KubeClient) -> None:
    taint = {"key": "team", "value": "a", "effect": "NoExecute"}
    cluster.edit_node("gpu-1", lambda node: node["spec"]["taints"].append(taint))
    settings = Settings(validation_image="dcgm:4", validation_tolerations=("team",))
    client = ValidationClient(kube, settings, "gpu-ops")
    client.create(order(cluster))

    assert pod_of(client).phase == "Running"


def test_a_node_that_is_gone_is_not_replaced_by_another(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    wanted = order(cluster)
    cluster.delete_node("gpu-1")
    client.create(wanted)

    assert why(client) == "the scheduler does not know the node"


def test_it_waits_for_its_image(cluster: KubernetesServer, client: ValidationClient) -> None:
    cluster.jobs.waits["gpu-1"] = ("ImagePullBackOff", 'Back-off pulling image "dcgm:4"')
    client.create(order(cluster))
    waiting = why(client)
    with pytest.raises(KubeError, match="is waiting to start: ImagePullBackOff"):
        client.log(pod_of(client), 10)
    cluster.jobs.waits.clear()

    assert 'does not come (Back-off pulling image "dcgm:4")' in waiting
    assert why(client) == ""


def test_a_kubelet_that_refuses_the_pod_ends_the_job(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    cluster.jobs.refusals["gpu-1"] = ("TopologyAffinityError", "Resources cannot be allocated")
    client.create(order(cluster))

    assert "gives no pod all GPUs (TopologyAffinityError:" in why(client)
    assert only(client).failed == "BackoffLimitExceeded"
    assert pod_of(client).exit_code is None


# Refused, and said only by an Event


def quota(**hard: str) -> dict[str, Any]:
    names = {name.replace("_", "."): value for name, value in hard.items()}
    gpus = names.pop("gpus", None)
    hard = {**names, **({"requests.nvidia.com/gpu": gpus} if gpus else {})}
    return {"metadata": {"namespace": NAMESPACE, "name": "limits"}, "spec": {"hard": hard}}


@pytest.mark.parametrize(
    ("table", "thing", "words"),
    [
        ("namespaces", namespace("restricted"), 'violates PodSecurity "restricted:latest": '),
        ("resourcequotas", quota(gpus="4"), "exceeded quota: limits, requested: requests.nvidia.com/gpu=8"),
        (
            "resourcequotas",
            quota(limits_cpu="4"),
            "failed quota: limits: must specify limits.cpu for: validation",
        ),
        (
            "priorityclasses",
            priority_class("PreemptLowerPriority"),
            "the string value of PreemptionPolicy (Never)",
        ),
    ],
)
def test_a_refused_pod_says_why_and_comes_once_it_is_admitted(
    cluster: KubernetesServer, client: ValidationClient, table: str, thing: dict[str, Any], words: str
) -> None:
    cluster.put(table, thing)
    job = client.create(order(cluster))
    refusal, before = client.refusal(job), client.pod(job)
    cluster.put("namespaces", namespace("baseline"))
    cluster.put("priorityclasses", priority_class())
    if table == "resourcequotas":
        cluster.put(table, quota(gpus="8"))

    assert before is None
    assert refusal.startswith(f'pods "{job.name}-{job.uid[:5]}" is forbidden: {words}')
    assert why_waiting(None, job, refusal=refusal) == f"the API server refuses its pod ({refusal})"
    assert pod_of(client).phase == "Running"


def test_only_the_latest_refusal_of_this_job_is_told(
    cluster: KubernetesServer, client: ValidationClient, time: Clock
) -> None:
    cluster.put("resourcequotas", quota(gpus="4"))
    jobs = [client.create(order(cluster, attempt)) for attempt in ("a", "b", "c")]
    told = [client.refusal(job) for job in jobs]
    [event] = [each for each in cluster.objects("events", NAMESPACE) if each["message"].endswith(told[1])]
    for name, reason, hours in (("older", "FailedCreate", -1), ("other", "SuccessfulCreate", 1)):
        at = (time.now + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"namespace": NAMESPACE, "name": name}
        further = {"metadata": metadata, "reason": reason, "message": name, "lastTimestamp": at}
        cluster.put("events", {**event, **further})

    assert [text.split('"')[1].rpartition("-")[0] for text in told] == [job.name for job in jobs]
    assert client.refusal(jobs[1]) == told[1]


def test_without_the_right_to_read_events_nothing_more_is_said(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    cluster.put("namespaces", namespace("restricted"))
    job = client.create(order(cluster))
    cluster.access.deny("list", "events")

    assert client.refusal(job) == ""
    assert why(client) == "its Job has no pod yet"


def test_other_errors_of_the_events_are_errors(cluster: KubernetesServer, client: ValidationClient) -> None:
    job = client.create(order(cluster))
    cluster.mishaps.add(answered(500))

    with pytest.raises(KubeError):
        client.refusal(job)


def test_a_job_that_may_not_be_created_is_forbidden(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    cluster.access.deny("create", "jobs", "batch")

    with pytest.raises(KubeForbidden):
        client.create(order(cluster))


# End


def test_a_job_past_its_deadline_fails_and_loses_its_pod(
    cluster: KubernetesServer, client: ValidationClient, time: Clock
) -> None:
    client.create(order(cluster))
    before = only(client), client.pod(only(client))
    time.now += timedelta(seconds=3599)
    still = only(client)
    time.now += timedelta(seconds=1)
    job = only(client)

    assert before[1] is not None
    assert (still.finished, job.failed) == (False, "DeadlineExceeded")
    assert client.pod(job) is None
    assert "before its deadline" in why(client)


def test_a_node_that_is_deleted_under_the_pod_ends_the_job(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    client.create(order(cluster))
    running = pod_of(client)
    cluster.delete_node("gpu-1")
    job = only(client)

    assert job.failed == "BackoffLimitExceeded"
    assert client.pod(job) is None
    assert "its pod is gone" in why(client)
    with pytest.raises(KubeNotFound):
        client.log(running, 10)


def test_a_deleted_job_takes_its_pod_along(cluster: KubernetesServer, client: ValidationClient) -> None:
    job = client.create(order(cluster))
    pod_of(client)
    client.delete(job)
    client.delete(job)

    assert client.jobs() == []
    assert cluster.objects("pods", NAMESPACE) == []


def test_another_job_of_the_same_name_is_not_deleted(
    cluster: KubernetesServer, client: ValidationClient
) -> None:
    old = client.create(order(cluster))
    client.delete(old)
    new = client.create(order(cluster))
    client.delete(old)

    assert client.jobs() == [new]


def test_a_dry_run_deletes_nothing(
    cluster: KubernetesServer, kube: KubeClient, client: ValidationClient
) -> None:
    job = client.create(order(cluster))
    dry: ServerDryRunClient = kube.dry_run_as("kubernetes-admin")
    ValidationClient(dry, SETTINGS, "gpu-ops").delete(job)

    assert client.jobs() == [job]


def test_what_the_server_does_not_do_is_an_error(cluster: KubernetesServer, client: ValidationClient) -> None:
    job = client.create(order(cluster))
    cluster.mishaps.add(answered(500))

    with pytest.raises(KubeError):
        client.delete(job)


# The GPUs' users


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([], ""),
        ([pod("a")], "ml/a"),
        ([pod("c"), pod("b"), pod("a"), pod("d")], "ml/a, ml/b and 2 more"),
        ([pod("web", gpus="")], ""),
        ([pod("a", node="gpu-2")], ""),
        ([pod("done", phase="Succeeded"), pod("dead", phase="Failed")], ""),
        ([pod("starts", phase="Pending")], "ml/starts"),
        ([pod("earlier", space=NAMESPACE)], f"{NAMESPACE}/earlier"),
    ],
)
def test_the_pods_that_hold_gpus_are_named(
    cluster: KubernetesServer, kube: KubeClient, pods: list[dict[str, Any]], words: str
) -> None:
    for each in pods:
        cluster.put_pod(each)

    assert gpu_users(kube, "gpu-1") == words


def test_a_claim_is_a_gpu(cluster: KubernetesServer, kube: KubeClient) -> None:
    claimed = pod("claimed", gpus="")
    claimed["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    cluster.put_pod(claimed)

    assert gpu_users(kube, "gpu-1") == "ml/claimed"


@pytest.mark.parametrize(
    "items",
    [
        '{"metadata":{"name":"a"},"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}',
        "7,",
    ],
)
def test_an_answer_that_is_malformed_or_cut_off_does_not_pass_as_free(
    cluster: KubernetesServer, kube: KubeClient, items: str
) -> None:
    end = "]}" if items.endswith("}") else ""
    cluster.mishaps.add(Mishap(200, f'{{"kind":"PodList","metadata":{{}},"items":[{items}{end}', JSON))

    with pytest.raises(KubeBadAnswer):
        gpu_users(kube, "gpu-1")


def test_pods_that_are_too_large_to_read_do_not_pass_as_none(
    cluster: KubernetesServer, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_module, "POD_BYTES", 1000)
    cluster.put_pod(pod("large", space="ml") | {"data": "x" * 200_000})

    with pytest.raises(KubeBadAnswer, match="cannot list the pods of gpu-1"):
        gpu_users(kube, "gpu-1")


def test_the_container_of_the_body_is_the_one_that_is_read() -> None:
    body = job_body(Order("a", "n", "u", 2, 1), SETTINGS, "gpu-ops")

    assert [each["name"] for each in body["spec"]["template"]["spec"]["containers"]] == [CONTAINER]
