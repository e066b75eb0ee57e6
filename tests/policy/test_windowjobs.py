"""Whose failure it was, where the API server knows better than pods' names."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import Fault, Role
from tests.policy.scenes import Cluster
from tests.policy.shared import crash, events, gpu_fleet, nccl, roles, suspected, xid

HOUR = 3600.0


def plain(name: str, pod: str, *, seconds: float = 0) -> Fault:
    """A line of a pod whose labels say nothing, put down to a job by its name."""
    return replace(nccl(name, "ml/Pod/train", seconds=seconds), namespace="ml", pod=pod)


def answered(cluster: Cluster, pods: dict[str, dict[str, str]], *, seconds: float) -> None:
    """The API server told; what it said is looked at with the next tick."""
    cluster.snapshot = replace(cluster.snapshot, pods=pods)
    cluster.tick(seconds=seconds)
    cluster.snapshot = replace(cluster.snapshot, pods={})


def four_failures(cluster: Cluster, *, told: bool) -> None:
    """Four jobs whose pods' names differ in a number only; gpu-1 took part in every one."""
    for number in range(4):
        names = ("gpu-1", f"gpu-{2 * number + 2}", f"gpu-{2 * number + 3}")
        pods = {name: f"train-{number}{place}" for place, name in enumerate(names)}
        for name, pod in pods.items():
            cluster.tick(plain(name, pod, seconds=number * HOUR), seconds=number * HOUR + 1)
        if told:
            jobs = {name: {f"ml/{pod}": f"ml/Workload/run-{number}"} for name, pod in pods.items()}
            answered(cluster, jobs, seconds=number * HOUR + 2)


def test_jobs_that_pods_names_do_not_tell_apart_are_counted_apart_once_the_server_told() -> None:
    blind, told = gpu_fleet(20), gpu_fleet(20)

    four_failures(blind, told=False)
    four_failures(told, told=True)

    assert suspected(blind) == set()
    assert suspected(told) == {"gpu-1"}


def test_pods_of_one_job_that_have_nothing_in_common_become_one_event() -> None:
    cluster = gpu_fleet(10)
    head = replace(plain("gpu-1", "head-x7k2p"), job="ml/Pod/head")
    worker = replace(plain("gpu-2", "small-group-9z2fd"), job="ml/Pod/small-group")
    cluster.tick(head, worker, seconds=1)
    assert events(cluster) == set()

    pods = {
        "gpu-1": {"ml/head-x7k2p": "ml/RayCluster/r"},
        "gpu-2": {"ml/small-group-9z2fd": "ml/RayCluster/r"},
    }
    cluster.snapshot = replace(cluster.snapshot, pods=pods)
    cluster.tick(seconds=2)
    cluster.tick(seconds=60)

    assert [name.partition("@")[0] for name in events(cluster)] == ["ml/RayCluster/r"]
    assert roles(cluster) == {Role.UNCLEAR: {"gpu-1", "gpu-2"}}


def test_a_pod_that_nobody_told_of_stays_with_the_job_of_its_name() -> None:
    cluster = gpu_fleet(10)
    cluster.tick(plain("gpu-1", "train-0"), seconds=1)

    answered(cluster, {"gpu-1": {"ml/other-0": "ml/Workload/other"}}, seconds=2)

    [key] = cluster.snapshot.window.traces["gpu-1"]
    assert key.job == "ml/Pod/train"


def test_kernel_lines_alone_are_one_event_where_the_server_knows_their_job() -> None:
    cluster = gpu_fleet(10)
    lines = [line for line in crash(4) if line.pod is None]
    cluster.tick(*lines, xid("gpu-1", 79), seconds=6)
    assert events(cluster) == set()

    jobs = frozenset({"ml/PyTorchJob/llama"})
    cluster.snapshot = replace(cluster.snapshot, jobs={f"gpu-{n}": jobs for n in range(1, 5)})
    cluster.tick(seconds=7)

    assert cluster.tainted == {"gpu-1"}
    cluster.tick(seconds=60)
    assert {"gpu-2", "gpu-3", "gpu-4"} <= roles(cluster)[Role.COLLATERAL]
    assert roles(cluster)[Role.ROOT_CAUSE] == {"gpu-1"}


def test_a_node_that_spoke_before_the_event_was_known_is_told_of_it_once_it_is_over() -> None:
    cluster = gpu_fleet(10)
    lost, other = xid("gpu-1", 79), nccl("gpu-1", "ml/PyTorchJob/llama")
    cluster.tick(lost, other, seconds=1)
    cluster.tick(nccl("gpu-2", "ml/PyTorchJob/llama", seconds=5), seconds=6)
    assert cluster.nodes["gpu-1"].record.incidents[0].failure_group is None
    before = len(cluster.writes)

    for seconds in range(10, 200, 5):
        cluster.tick(seconds=seconds)

    assert [change.node for change in cluster.writes[before:]] == ["gpu-1"]
    assert {incident.failure_group for incident in cluster.nodes["gpu-1"].record.incidents} == events(cluster)
    assert len(events(cluster)) == 1
