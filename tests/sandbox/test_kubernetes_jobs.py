"""What controllers, scheduler and kubelets do to Jobs in the stand-in, as they do in a real cluster.

A bare API server has none of them, so the contract suite cannot ask it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_node
from konductor_like_sandbox.kubernetes.jobs import MESSAGE_BYTES, Ended
from konductor_like_sandbox.kubernetes.scheduling import place, refusal
from tests.contract.kubernetes_target import Answer, Target
from tests.contract.test_kubernetes_jobs import JOBS, PODS, job, on_nodes

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
OTHERS = "2 node(s) didn't satisfy plugin(s) [NodeAffinity]"


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 4, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[KubernetesServer]:
    with KubernetesServer(nodes=[make_node("gpu-1")], clock=clock) as server:
        yield server


@pytest.fixture
def client(server: KubernetesServer) -> Target:
    return Target(server.url, {"Authorization": f"Bearer {server.access.admin_token}"})


def create(client: Target, name: str = "a", **spec: Any) -> Answer:
    made = client.send("POST", JOBS, job(name, **{"suspend": False, **spec}))
    assert made.status == 201, made.body
    return made


def status(client: Target, name: str = "a") -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"{JOBS}/{name}").body["status"]
    return found


def conditions(client: Target) -> list[tuple[str, str, str]]:
    return [(each["type"], each["status"], each["reason"]) for each in status(client).get("conditions", ())]


def test_a_job_is_active_until_its_program_ends(server: KubernetesServer, client: Target) -> None:
    create(client)
    active = status(client)
    server.jobs.programs["gpu-1"] = lambda _: Ended()

    assert (active["active"], active["ready"], active["startTime"]) == (1, 1, "2026-03-04T12:00:00Z")
    assert conditions(client) == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"),
        ("Complete", "True", "CompletionsReached"),
    ]
    assert status(client)["succeeded"] == 1


def test_a_pod_requests_the_gpus_that_limit_it_and_its_job_does_not(client: Target) -> None:
    made, gpus = create(client), {"nvidia.com/gpu": "8"}
    [pod] = client.get(PODS).body["items"]
    job = client.get(f"{JOBS}/{made.meta['name']}").body["spec"]["template"]

    assert pod["spec"]["containers"][0]["resources"] == {"limits": gpus, "requests": gpus}
    assert job["spec"]["containers"][0]["resources"] == {"limits": gpus}


def test_a_failed_pod_fails_the_job_and_stays(server: KubernetesServer, client: Target) -> None:
    server.jobs.programs["gpu-1"] = lambda _: Ended(1)
    create(client)

    assert conditions(client) == [
        ("FailureTarget", "True", "BackoffLimitExceeded"),
        ("Failed", "True", "BackoffLimitExceeded"),
    ]
    assert status(client)["failed"] == 1
    assert len(server.objects("pods")) == 1


def test_a_deadline_deletes_the_pod(server: KubernetesServer, client: Target, clock: Clock) -> None:
    create(client, activeDeadlineSeconds=60)
    assert status(client)["active"] == 1
    clock.now += timedelta(seconds=60)

    assert conditions(client)[1] == ("Failed", "True", "DeadlineExceeded")
    assert server.objects("pods") == []


def test_a_pod_that_somebody_deletes_fails_the_job(server: KubernetesServer, client: Target) -> None:
    create(client)
    assert status(client)["active"] == 1
    [pod] = server.objects("pods")
    server.delete_pod("default", pod["metadata"]["name"])

    assert conditions(client)[1] == ("Failed", "True", "BackoffLimitExceeded")


def test_a_suspended_job_has_no_pod(server: KubernetesServer, client: Target) -> None:
    create(client, suspend=True)

    assert "active" not in status(client)
    assert server.objects("pods") == []


@pytest.mark.parametrize(("policy", "left"), [("Background", 0), ("Orphan", 1), (None, 1)])
def test_the_policy_says_whether_pods_go_with_their_job(
    server: KubernetesServer, client: Target, policy: str | None, left: int
) -> None:
    create(client)
    status(client)
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy} if policy else None
    client.send("DELETE", f"{JOBS}/a", body)

    pods = server.objects("pods")
    assert len(pods) == left
    assert not any("ownerReferences" in pod["metadata"] for pod in pods)


def test_the_end_of_a_long_termination_message_is_kept(server: KubernetesServer, client: Target) -> None:
    server.jobs.programs["gpu-1"] = lambda _: Ended(0, b"", "a" * MESSAGE_BYTES + "end")
    create(client)
    status(client)
    [pod] = server.objects("pods")
    [container] = pod["status"]["containerStatuses"]

    assert container["state"]["terminated"]["message"] == "a" * (MESSAGE_BYTES - 3) + "end"


def test_two_pods_do_not_share_gpus(server: KubernetesServer, client: Target) -> None:
    create(client, "a")
    create(client, "b")
    phases = [status(client, name)["ready"] for name in ("a", "b")]
    server.jobs.programs["gpu-1"] = lambda _: Ended()
    after = [status(client, name) for name in ("a", "b")]

    assert phases == [1, 0]
    assert [each["succeeded"] for each in after] == [1, 1]


def pod(**spec: Any) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": "8"}}
    return {"spec": {"containers": [{"name": "main", "resources": limits}], **spec}, "status": {}}


def fleet(**changes: Any) -> list[dict[str, Any]]:
    return [make_node("gpu-1", **changes), make_node("gpu-2"), make_node("gpu-3")]


ONLY = on_nodes("metadata.name", "gpu-1")


@pytest.mark.parametrize(
    ("wanted", "nodes", "found"),
    [
        (pod(**ONLY), fleet(), "gpu-1"),
        (pod(**ONLY), fleet(gpus=7), f"1 Insufficient nvidia.com/gpu, {OTHERS}"),
        (pod(**ONLY), fleet(unschedulable=True), f"1 node(s) were unschedulable, {OTHERS}"),
        (pod(**ONLY), fleet(taints=[TAINT]), f"1 node(s) had untolerated taint(s), {OTHERS}"),
        (pod(**ONLY), fleet(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), "gpu-1"),
        (pod(**ONLY, tolerations=[{"key": "team", "operator": "Exists"}]), fleet(taints=[TAINT]), "gpu-1"),
        (
            pod(**ONLY, tolerations=[{"key": "team", "value": "b"}]),
            fleet(taints=[TAINT]),
            f"1 node(s) had untolerated taint(s), {OTHERS}",
        ),
        (
            pod(**ONLY, tolerations=[{**TAINT, "operator": "Equal", "effect": "NoExecute"}]),
            fleet(taints=[TAINT]),
            f"1 node(s) had untolerated taint(s), {OTHERS}",
        ),
        (
            pod(**on_nodes("metadata.name", "gpu-9")),
            fleet(),
            "3 node(s) didn't satisfy plugin(s) [NodeAffinity]",
        ),
    ],
)
def test_the_scheduler_places_a_pod_or_says_why_not(
    wanted: dict[str, Any], nodes: list[dict[str, Any]], found: str
) -> None:
    name, message = place(wanted, nodes, ())

    assert (
        name or message.split("available: ")[1].split(". no new claims to deallocate, preemption: ")[0]
    ) == found


@pytest.mark.parametrize(
    ("spec", "level", "why"),
    [
        ({}, "restricted", "allowPrivilegeEscalation != false"),
        ({}, "baseline", ""),
        ({"hostPID": True}, "privileged", ""),
        ({"hostPID": True}, "baseline", "host namespaces (hostPID=true)"),
        ({"volumes": [{"hostPath": {}}]}, "baseline", "hostPath volumes"),
        (
            {"containers": [{"name": "main", "securityContext": {"privileged": True}}]},
            "baseline",
            'privileged (container "main" must not set securityContext.privileged=true)',
        ),
        ({"priorityClassName": "low"}, "baseline", "no PriorityClass with name low was found"),
    ],
)
def test_admission_refuses_a_pod_in_kubernetes_words(spec: dict[str, Any], level: str, why: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}

    found = refusal(pod(**spec), {"metadata": {"labels": labels}}, (), (), ())

    assert found.removeprefix(f'violates PodSecurity "{level}:latest": ').startswith(why)
    assert bool(found) == bool(why)
