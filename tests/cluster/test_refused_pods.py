"""A look at the pods that a kubelet refused, and the Events that lead to it (rule 45)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeBadAnswer
from konductor_like.cluster.refused_pods import (
    EVENTS_PATH,
    LOOK_BYTES,
    REFUSED_MOST,
    look_at_pods,
    node_of_event,
    present_version,
    watch_refusals,
)
from konductor_like.model import EVIDENCE_CHARS, RefusedPod
from konductor_like.model.time import stamp, unix_ns
from konductor_like.policy.node.refused_pods import REASON, SPAN_NS
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import JSON
from konductor_like_sandbox.kubernetes import KubernetesServer

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/refusals/messages.jsonl").read_text("utf-8").splitlines()
]
LOST = ROWS[2]["message"]


def refused_pod(
    name: str,
    at: datetime,
    *,
    node: str = "gpu-1",
    namespace: str = "team-a",
    resource: str = "nvidia.com/gpu",
    message: str = LOST,
    reason: str = REASON,
    created: datetime | None = None,
) -> dict[str, Any]:
    """Return a pod as the API server has it after the kubelet refused it."""
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": stamp(created or at - timedelta(seconds=1)),
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]},
        "status": {"phase": "Failed", "reason": reason, "message": message, "startTime": stamp(at)},
    }


def running_pod(name: str, at: datetime, **parts: Any) -> dict[str, Any]:
    """Return a pod that the kubelet admitted at this time."""
    pod = refused_pod(name, at, **parts)
    running = [{"name": "c", "state": {"running": {"startedAt": stamp(at)}}}]
    return {
        **pod,
        "status": {"phase": "Running", "startTime": stamp(at), "containerStatuses": running},
    }


def refusal_event(
    name: str, host: str = "gpu-1", *, reason: str = REASON, kind: str = "Pod"
) -> dict[str, Any]:
    """Return the Event that the kubelet of ``host`` sends."""
    return {
        "metadata": {"namespace": "team-a", "name": name},
        "involvedObject": {"kind": kind, "namespace": "team-a", "name": name.partition(".")[0]},
        "reason": reason,
        "message": LOST.removeprefix("Pod was rejected: "),
        "type": "Warning",
        "source": {"component": "kubelet", "host": host},
    }


def before(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_only_pods_that_nvml_refused_are_found(
    server: KubernetesServer, client: KubeClient, row: dict[str, Any]
) -> None:
    server.put_pod(refused_pod("a", before(60), reason=row["reason"], message=row["message"]))

    assert bool(look_at_pods(client, "gpu-1", NOW).refused) is row["accuses"]


def test_the_pods_of_one_node_are_asked_for_once_and_from_the_cache(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.put_pod(refused_pod("b", before(10)))
    server.put_pod(refused_pod("a", before(60), namespace="team-b", message=ROWS[0]["message"]))
    server.put_pod(refused_pod("c", before(5), node="gpu-2"))
    server.clear_calls()
    found = look_at_pods(client, "gpu-1", NOW)

    assert found.refused == (
        RefusedPod(unix_ns(before(60)), "team-b", "uid-team-b-a"),
        RefusedPod(unix_ns(before(10)), "team-a", "uid-team-a-b"),
    )
    assert (found.message, found.admitted_ns) == (LOST[:EVIDENCE_CHARS], None)
    [call] = server.calls()
    assert call.rbac == ("list", "", "pods")
    assert call.request.param("resourceVersion") == "0"


@pytest.mark.parametrize(
    "odd",
    [
        refused_pod("a", before(60), resource="cpu"),
        refused_pod("a", before(SPAN_NS / 1e9 + 1)),
        {**refused_pod("a", before(60)), "status": {"phase": "Succeeded", "reason": REASON, "message": LOST}},
    ],
    ids=["without a GPU", "long ago", "succeeded"],
)
def test_other_pods_are_left_out(server: KubernetesServer, client: KubeClient, odd: dict[str, Any]) -> None:
    server.put_pod(odd)

    assert look_at_pods(client, "gpu-1", NOW).refused == ()


@pytest.mark.parametrize(
    ("created", "started", "counts_as_of"),
    [(70, 60, 60), (700, 60, 60), (70, -30, 70), (70, 90, 70)],
    ids=["at once", "after a queue", "the node's clock is ahead", "the node's clock is behind"],
)
def test_a_pod_is_refused_when_its_kubelet_says_so_unless_that_cannot_be(
    server: KubernetesServer, client: KubeClient, created: float, started: float, counts_as_of: float
) -> None:
    server.put_pod(refused_pod("a", before(started), created=before(created)))
    [pod] = look_at_pods(client, "gpu-1", NOW).refused

    assert pod.at_ns == unix_ns(before(counts_as_of))


def test_a_pod_without_a_start_counts_as_of_its_creation(
    server: KubernetesServer, client: KubeClient
) -> None:
    pod = refused_pod("a", before(60))
    del pod["status"]["startTime"]
    server.put_pod(pod)

    assert look_at_pods(client, "gpu-1", NOW).refused[0].at_ns == unix_ns(before(61))


def test_the_latest_admitted_gpu_pod_is_known(server: KubernetesServer, client: KubeClient) -> None:
    server.put_pod(running_pod("a", before(500)))
    server.put_pod(running_pod("b", before(300)))
    server.put_pod(running_pod("c", before(100), resource="cpu"))
    server.put_pod(refused_pod("d", before(50)))
    server.put_pod(refused_pod("e", before(40), reason="OutOfcpu"))

    assert look_at_pods(client, "gpu-1", NOW).admitted_ns == unix_ns(before(300))


def test_a_malformed_pod_is_a_bad_answer(server: KubernetesServer, client: KubeClient) -> None:
    body = '{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{},"spec":[]}]}'
    server.mishaps.add(Mishap(status=200, body=body, content_type=JSON))

    with pytest.raises(KubeBadAnswer, match="a pod in the list is malformed"):
        look_at_pods(client, "gpu-1", NOW)


def test_a_thousand_refused_pods_stay_bounded(server: KubernetesServer, client: KubeClient) -> None:
    for number in range(1_000):
        server.put_pod(refused_pod(f"train-{number}", before(number)))
    found = look_at_pods(client, "gpu-1", NOW)

    assert [pod.at_ns for pod in found.refused] == [unix_ns(before(n)) for n in reversed(range(REFUSED_MOST))]


def test_a_look_ends_after_its_bytes(server: KubernetesServer, client: KubeClient) -> None:
    pad = {"annotations": {"pad": "x" * (LOOK_BYTES // 4)}}
    for number in range(6):
        pod = refused_pod(f"train-{number}", before(number))
        server.put_pod({**pod, "metadata": {**pod["metadata"], **pad}})

    assert len(look_at_pods(client, "gpu-1", NOW).refused) == 4


def test_one_event_is_listed_and_only_refusals_are_watched(
    server: KubernetesServer, client: KubeClient
) -> None:
    server.put("events", refusal_event("old.1"))
    server.put("events", refusal_event("old.2"))
    server.clear_calls()
    version = present_version(client)
    server.put("events", refusal_event("train.1", reason="Pulled"))
    server.put("events", refusal_event("train.2", kind="Node"))
    server.put("events", refusal_event("train.3", "gpu-7"))
    with watch_refusals(client, version) as stream:
        event = next(iter(stream))

    assert (event.kind, node_of_event(event.object)) == ("ADDED", "gpu-7")
    listed, watched = server.calls()
    assert (listed.request.path, listed.request.param("limit")) == (EVENTS_PATH, "1")
    assert listed.request.param("fieldSelector") == ""
    assert watched.verb == "watch"


@pytest.mark.parametrize(
    ("event", "node"),
    [
        ({"source": {"host": "gpu-7"}, "reportingInstance": "gpu-8"}, "gpu-7"),
        ({"source": {}, "reportingInstance": "gpu-8"}, "gpu-8"),
        ({"source": None}, ""),
        ({}, ""),
    ],
)
def test_an_event_names_its_node(event: dict[str, Any], node: str) -> None:
    assert node_of_event(event) == node
