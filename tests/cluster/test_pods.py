"""The jobs on a node, by the labels and controllers of its pods."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import cycle
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient, ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeBadAnswer
from konductor_like.cluster.pods import OTHERS_BYTES, PODS_MOST, RUNNING_BYTES, jobs_on
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import JSON
from konductor_like_sandbox.kubernetes import KubernetesServer

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def pod(
    name: str,
    node: str = "gpu-1",
    *,
    labels: dict[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    gpus: int = 8,
    ended: str | None = None,
) -> dict[str, Any]:
    """Return a pod of the namespace ``ml``."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "4"}
    kind, owned_by = owner or ("", "")
    owners = [{"kind": kind, "name": owned_by, "apiVersion": "x/v1", "uid": "u", "controller": True}]
    state: dict[str, Any] = {"terminated": {"exitCode": 1, "finishedAt": ended}} if ended else {"running": {}}
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "labels": labels or {},
            **({"ownerReferences": owners} if owner else {}),
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {
            "phase": "Failed" if ended else "Running",
            "containerStatuses": [{"name": "main", "state": state}],
        },
    }


def test_only_the_pods_of_that_node_are_asked_for(server: KubernetesServer, client: KubeClient) -> None:
    server.put_pod(pod("a-0", labels={"jobset.sigs.k8s.io/jobset-name": "run-1"}))
    server.put_pod(pod("b-0", "gpu-2", labels={"jobset.sigs.k8s.io/jobset-name": "run-2"}))
    server.clear_calls()

    found = jobs_on(client, "gpu-1", NOW)

    assert found.jobs == {"ml/JobSet/run-1"}
    assert found.pods == {"ml/a-0": "ml/JobSet/run-1"}
    assert [(call.verb, call.resource) for call in server.calls()] == [("list", "pods")] * 2


@pytest.mark.parametrize(
    ("labels", "owner", "job"),
    [
        ({"training.kubeflow.org/job-name": "llama"}, ("PyTorchJob", "llama"), "ml/PyTorchJob/llama"),
        ({"batch.kubernetes.io/job-name": "llama"}, ("Job", "llama"), "ml/Job/llama"),
        ({"ray.io/cluster": "llama-x"}, ("RayCluster", "llama-x"), "ml/RayCluster/llama-x"),
        ({"kueue.x-k8s.io/pod-group-name": "llama"}, None, "ml/Workload/llama"),
        ({"leaderworkerset.sigs.k8s.io/name": "chat"}, ("StatefulSet", "chat-0"), "ml/LeaderWorkerSet/chat"),
        ({}, ("StatefulSet", "chat"), "ml/StatefulSet/chat"),
        ({"pod-template-hash": "6d4cf56db6"}, ("ReplicaSet", "chat-6d4cf56db6"), "ml/Deployment/chat"),
        ({}, ("MyTraining", "llama"), "ml/MyTraining/llama"),
        ({}, None, "ml/Pod/some"),
    ],
)
def test_the_job_is_named_by_label_by_controller_or_by_the_pod(
    server: KubernetesServer,
    client: KubeClient,
    labels: dict[str, str],
    owner: tuple[str, str] | None,
    job: str,
) -> None:
    server.put_pod(pod("some-0", labels=labels, owner=owner))

    assert jobs_on(client, "gpu-1", NOW).jobs == {job}


def test_people_read_the_full_names_of_pods_that_no_object_joins(
    server: KubernetesServer, client: KubeClient
) -> None:
    for name in ("train-0", "train-1"):
        server.put_pod(pod(name))
    server.put_pod(pod("llama-0", owner=("Job", "llama")))
    server.put_pod(pod("web-0", gpus=0))

    found = jobs_on(client, "gpu-1", NOW)

    assert found.names == {"ml/Pod/train-0", "ml/Pod/train-1", "ml/Job/llama"}
    assert found.jobs == {"ml/Pod/train", "ml/Job/llama"}


def test_a_daemonset_is_not_a_job(server: KubernetesServer, client: KubeClient) -> None:
    server.put_pod(pod("dcgm-x7k2p", owner=("DaemonSet", "dcgm"), labels={"app": "dcgm"}))
    server.put_pod(pod("proxy-gpu-1", owner=("Node", "gpu-1")))

    found = jobs_on(client, "gpu-1", NOW)

    assert (found.jobs, found.pods) == (frozenset(), {"ml/dcgm-x7k2p": "", "ml/proxy-gpu-1": ""})


def test_a_pod_without_a_gpu_did_not_fail_by_one_but_its_job_is_known(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.put_pod(pod("web-0", owner=("StatefulSet", "web"), gpus=0))

    found = jobs_on(client, "gpu-1", NOW)

    assert (found.jobs, found.pods) == (frozenset(), {"ml/web-0": "ml/StatefulSet/web"})


@pytest.mark.parametrize(
    ("ended", "counts"), [("2026-03-04T11:58:00Z", True), ("2026-03-04T09:00:00Z", False)]
)
def test_a_pod_that_has_just_ended_counts_and_an_older_one_does_not(
    server: KubernetesServer, client: KubeClient, ended: str, *, counts: bool
) -> None:
    server.put_pod(pod("llama-0", owner=("Job", "llama"), ended=ended))

    assert bool(jobs_on(client, "gpu-1", NOW).jobs) == counts


def test_a_pod_with_a_claim_has_a_gpu(server: KubernetesServer, client: KubeClient) -> None:
    claimed = pod("llama-0", owner=("Job", "llama"), gpus=0)
    claimed["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    server.put_pod(claimed)

    assert jobs_on(client, "gpu-1", NOW).jobs == {"ml/Job/llama"}


def test_a_running_job_is_found_among_any_number_of_pods_that_have_ended(
    server: KubernetesServer, client: KubeClient
) -> None:
    for number in range(PODS_MOST + 100):
        server.put_pod(pod(f"batch-{number:04}", owner=("Job", f"b-{number}"), ended="2026-03-04T09:00:00Z"))
    server.put_pod(pod("zz-0", owner=("Job", "zz")))

    found = jobs_on(client, "gpu-1", NOW)

    assert found.jobs == {"ml/Job/zz"}
    assert (len(found.pods), found.complete) == (PODS_MOST, True)


class Counted:
    """An endless answer of pods of 1.4 MB each, in place of urllib3's."""

    def __init__(self) -> None:
        self.read = 0
        self.closed = False
        running = json.dumps(pod("train-0", owner=("Job", "llama")) | {"data": "x" * 1_400_000}).encode()
        self._text = cycle([running[at : at + 65_536] for at in range(0, len(running), 65_536)] + [b","])
        self._head = [b'{"kind":"PodList","items":[']

    def read1(self, size: int) -> bytes:
        piece = self._head.pop() if self._head else next(self._text)
        assert len(piece) <= size
        self.read += len(piece)
        return piece

    def close(self) -> None:
        self.closed = True


class Wire:
    """A transport with these answers."""

    def __init__(self) -> None:
        self.answers: list[Counted] = []

    def open(self, *_: object) -> Counted:
        self.answers.append(Counted())
        return self.answers[-1]

    def reading(self, _what: str) -> nullcontext[None]:
        return nullcontext()


def test_however_large_the_pods_are_little_of_them_is_read_and_less_is_held() -> None:
    wire = Wire()
    tracemalloc.start()
    try:
        found = jobs_on(ReadOnlyKubeClient(wire), "gpu-1", NOW)  # type: ignore[arg-type]  # stands in
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found.jobs == {"ml/Job/llama"}
    assert not found.complete
    running, others = (answer.read for answer in wire.answers)
    assert running <= RUNNING_BYTES + 65_536
    assert others <= OTHERS_BYTES + 65_536
    assert all(answer.closed for answer in wire.answers)
    assert peak < 16 << 20


def test_pods_that_are_not_as_they_should_be_are_an_error_and_no_answer(
    server: KubernetesServer, client: KubeClient
) -> None:
    body = '{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"labels":7}}]}'
    server.mishaps.add(Mishap(200, body, JSON))

    with pytest.raises(KubeBadAnswer, match="cannot list pods"):
        jobs_on(client, "gpu-1", NOW)
