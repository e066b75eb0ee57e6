"""Failure groups whose lines come late, out of order or from another process, and pods that hide no fault."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import EventReason, Fault, NodeState, Role
from konductor_like.policy.change import RECORD_INTERVAL_SECONDS
from konductor_like.policy.fleet.recent_evidence import TRACES_MOST, TRACES_OF_NODE_MOST
from tests.policy.scenes import Cluster, fleet
from tests.policy.shared import (
    RULES,
    crash,
    failure_groups,
    gpu_fleet,
    labels,
    nccl,
    rack,
    remote,
    roles,
    xid,
)
from tests.policy.test_root_causes import JOB, decide_deferred, restarted, storm

HOUR = 3600.0


def test_kernel_lines_read_before_pod_lines_join_the_failure_group_of_the_job_and_not_of_the_rack() -> None:
    cluster = Cluster({**rack(4, "one"), **rack_of("two", 5, 6, 7, 8)}, RULES)
    kernel = [xid(f"gpu-{n}", 45, seconds=n / 10) for n in range(1, 9)]
    pods = [nccl(f"gpu-{n}", JOB, seconds=n / 10) for n in range(1, 9)]

    cluster.tick(*kernel, seconds=2)
    cluster.tick(*pods, xid("gpu-6", 79, seconds=0.1), seconds=10)
    cluster.tick(seconds=60)

    assert cluster.tainted == {"gpu-6"}
    assert {name.split("@")[0] for name in failure_groups(cluster)} == {JOB}
    assert roles(cluster)[Role.COLLATERAL] == set(cluster.nodes)


def rack_of(domain: str, *numbers: int) -> dict[str, NodeState]:
    return {name: state for name, state in rack(max(numbers), domain).items() if int(name[4:]) in numbers}


def test_jobs_that_share_only_a_rack_are_two_failure_groups() -> None:
    cluster = Cluster(rack(8), RULES)
    one = [nccl(f"gpu-{n}", "ml/Job/one") for n in (1, 2, 3)]
    other = [nccl(f"gpu-{n}", "ml/Job/other") for n in (4, 5, 6)]
    kernel = [xid(f"gpu-{n}", 45) for n in range(1, 7)]

    cluster.tick(*one, *other, *kernel, xid("gpu-1", 79), seconds=2)

    assert len(failure_groups(cluster)) == 2
    assert labels(cluster) == {"faulty": 1, None: 4, "suspect": 3}


def test_all_jobs_that_a_failed_link_ends_are_one_failure_group() -> None:
    cluster = Cluster(rack(8), RULES)
    pods = [nccl(f"gpu-{n}", "ml/Job/one" if n < 4 else "ml/Job/other", seconds=1) for n in range(1, 7)]

    decide_deferred(cluster, *storm(8, fatal=8), xid("gpu-2", 149, seconds=0.3, fatal=True), *pods)

    assert cluster.tainted == {"gpu-2"}
    assert len(failure_groups(cluster)) == 1


def test_a_node_whose_deferral_ends_does_not_wait_for_a_root_cause_that_is_deferred() -> None:
    cluster = Cluster(rack(8), RULES)
    cluster.tick(*storm(8, fatal=6), seconds=1)
    cluster.tick(xid("gpu-7", 149, seconds=0.3, fatal=True), seconds=4)

    for seconds in (6, 7, 8, 10):
        cluster.tick(seconds=seconds)

    assert cluster.tainted == {"gpu-7"}


def test_lines_behind_the_cursor_of_an_earlier_process_are_evidence_for_the_next() -> None:
    cluster = Cluster(rack(4), RULES)
    lines = [remote(xid("gpu-1", 149, fatal=True)), xid("gpu-2", 149, seconds=0.1, fatal=True)]
    cluster.tick(*lines, seconds=1)

    restarted(cluster)
    cluster.tick(*lines, seconds=3)
    cluster.tick(seconds=10)

    assert cluster.tainted == {"gpu-2"}


def test_a_replayed_line_after_a_restart_is_no_evidence() -> None:
    cluster = gpu_fleet(2)
    line = xid("gpu-1", 94)
    cluster.tick(line, seconds=1)

    restarted(cluster)
    cluster.tick(replace(line, timestamp_ns=line.timestamp_ns + 10**12), seconds=1001)
    assert not cluster.snapshot.window.traces

    cluster.tick(line, seconds=1002)
    assert list(cluster.snapshot.window.traces) == ["gpu-1"]


def test_an_opted_out_node_can_be_the_root_cause_and_is_not_tainted() -> None:
    cluster = Cluster(rack(8), RULES)
    cluster.nodes["gpu-3"] = replace(cluster.nodes["gpu-3"], opted_out=True)

    decide_deferred(cluster, *storm(8, fatal=8), xid("gpu-3", 149, seconds=0.3, fatal=True))

    assert cluster.tainted == set()
    assert {each.key.rule for each in cluster.nodes.pop("gpu-3").record.incidents} == {"xid.145", "xid.149"}
    assert roles(cluster) == {Role.COLLATERAL: {f"gpu-{n}" for n in range(1, 9)} - {"gpu-3"}}
    assert {i.root_cause for s in cluster.nodes.values() for i in s.record.incidents} == {"gpu-3"}


def test_a_collateral_fault_of_an_opted_out_node_does_not_taint_when_the_label_goes() -> None:
    cluster = Cluster(rack(8), RULES)
    cluster.nodes["gpu-5"] = replace(cluster.nodes["gpu-5"], opted_out=True)
    decide_deferred(cluster, *storm(8, fatal=8), xid("gpu-3", 149, seconds=0.3, fatal=True))
    assert [each.role for each in cluster.nodes["gpu-5"].record.incidents] == [Role.COLLATERAL]

    cluster.nodes["gpu-5"] = replace(cluster.nodes["gpu-5"], opted_out=False)
    cluster.tick(seconds=60)

    assert cluster.tainted == {"gpu-3"}


def test_a_root_cause_without_pod_lines_joins_the_job_that_the_api_server_names() -> None:
    cluster = gpu_fleet(8)
    others = [nccl(f"gpu-{n}", JOB, seconds=1) for n in range(2, 7)]

    cluster.tick(xid("gpu-1", 79), *others, seconds=2)
    assert labels(cluster) == {"faulty": 1, "suspect": 5, None: 2}
    cluster.snapshot = replace(cluster.snapshot, jobs={"gpu-1": frozenset({JOB})})
    cluster.tick(seconds=5)

    assert labels(cluster) == {"faulty": 1, None: 7}
    cluster.tick(seconds=60)
    assert roles(cluster)[Role.ROOT_CAUSE] == {"gpu-1"}


# Lines of pods hide no hardware fault.


def test_a_job_over_two_racks_does_not_make_a_link_failure_of_the_other_rack_collateral() -> None:
    nodes = {
        **rack(10),
        **{f"gpu-{n}": replace(fleet(20)[f"gpu-{n}"], domain="rack-8") for n in range(11, 21)},
    }
    cluster = Cluster(nodes, RULES)
    job = [nccl(f"gpu-{n}", "ml/PyTorchJob/big", seconds=2 + n / 10) for n in range(1, 21)]
    links = [xid("gpu-15", 149, seconds=2, fatal=True), xid("gpu-16", 145, seconds=2.1, fatal=True)]

    cluster.tick(*job, xid("gpu-3", 79, seconds=1), *links, seconds=5)
    cluster.tick(seconds=11)

    assert cluster.tainted == {"gpu-3", "gpu-15"}
    [link] = cluster.nodes["gpu-16"].record.incidents[:1]
    assert (link.role, link.root_cause) == (Role.COLLATERAL, "gpu-15")


def test_pods_of_a_daemonset_do_not_join_unrelated_faults_to_a_failure_group() -> None:
    cluster = gpu_fleet(20)
    noise = [
        replace(
            nccl(f"gpu-{n}", "mon/Pod/exporter", seconds=n / 10), namespace="mon", pod=f"exporter-{n}xxxx"
        )
        for n in range(1, 21)
    ]
    # An empty owner: the API server names a DaemonSet, and no job.
    pods = {f"gpu-{n}": {f"mon/exporter-{n}xxxx": ""} for n in range(1, 21)}

    cluster.tick(*noise, xid("gpu-3", 79, seconds=1), xid("gpu-15", 149, seconds=2, fatal=True), seconds=3)
    cluster.snapshot = replace(cluster.snapshot, pods=pods)
    cluster.tick(seconds=4)
    cluster.tick(seconds=10)

    assert cluster.tainted == {"gpu-3", "gpu-15"}


def test_pods_with_ever_new_names_remove_no_kernel_line_from_recent_evidence() -> None:
    cluster = gpu_fleet(20)

    cluster.tick(xid("gpu-1", 94), seconds=1)
    cluster.tick(xid("gpu-1", 94, seconds=HOUR), seconds=HOUR + 1)
    for number in range(1, 21):
        most = TRACES_OF_NODE_MOST * 2 if number == 1 else TRACES_MOST // 19
        names = (f"evil/Job/{number}-{n}" for n in range(most))
        lines = [nccl(f"gpu-{number}", name, seconds=HOUR + 9 + n / 1000) for n, name in enumerate(names)]
        cluster.tick(*lines, seconds=HOUR + 11)
    traces = cluster.snapshot.window.traces.values()
    assert (max(map(len, traces)), sum(map(len, traces)) <= TRACES_MOST) == (TRACES_OF_NODE_MOST, True)
    cluster.tick(xid("gpu-1", 94, seconds=2 * HOUR), seconds=2 * HOUR + 1)

    assert cluster.tainted == {"gpu-1"}


def test_a_job_that_keeps_crashing_causes_no_more_writes_than_growing_counts() -> None:
    cluster = gpu_fleet(10)

    for crashed in range(0, 3600, 180):
        cluster.tick(*crash(4, seconds=crashed), seconds=crashed + 6)
        for later in range(20, 180, 20):
            cluster.tick(seconds=crashed + later)

    assert Role.UNCLEAR in roles(cluster)
    kept = [change for change in cluster.writes if change.event is not EventReason.RECORDED]
    assert len(kept) <= 4 * (3600 / RECORD_INTERVAL_SECONDS + 1)


# Jobs that the API server names, and pods' names do not.


def plain(name: str, pod: str, *, seconds: float = 0) -> Fault:
    """A line of a pod without job labels, which gets a job from the pod's name."""
    return replace(nccl(name, "ml/Pod/train", seconds=seconds), namespace="ml", pod=pod)


def answered(cluster: Cluster, pods: dict[str, dict[str, str]], *, seconds: float) -> None:
    """Give the API server's answer to the next decision."""
    cluster.snapshot = replace(cluster.snapshot, pods=pods)
    cluster.tick(seconds=seconds)
    cluster.snapshot = replace(cluster.snapshot, pods={})


def page_faults(cluster: Cluster, *, known: bool) -> None:
    """Three page faults of one GPU under jobs whose pods differ only in a number."""
    for number, job in enumerate("abc"):
        pod, seconds = f"train-{number}0", number * HOUR
        cluster.tick(
            xid("gpu-1", 31, seconds=seconds), plain("gpu-1", pod, seconds=seconds), seconds=seconds + 1
        )
        if known:
            answered(cluster, {"gpu-1": {f"ml/{pod}": f"ml/Workload/{job}"}}, seconds=seconds + 2)


def test_jobs_with_equal_pod_names_are_counted_separately_once_the_api_server_names_their_owners() -> None:
    blind, known = gpu_fleet(20), gpu_fleet(20)

    page_faults(blind, known=False)
    page_faults(known, known=True)

    assert blind.tainted == set()
    assert known.tainted == {"gpu-1"}


def test_pods_of_one_job_with_different_names_become_one_failure_group() -> None:
    cluster = gpu_fleet(10)
    head = replace(plain("gpu-1", "head-x7k2p"), job="ml/Pod/head")
    worker = replace(plain("gpu-2", "small-group-9z2fd"), job="ml/Pod/small-group")
    cluster.tick(head, worker, seconds=1)
    assert failure_groups(cluster) == set()

    pods = {
        "gpu-1": {"ml/head-x7k2p": "ml/RayCluster/r"},
        "gpu-2": {"ml/small-group-9z2fd": "ml/RayCluster/r"},
    }
    cluster.snapshot = replace(cluster.snapshot, pods=pods)
    cluster.tick(seconds=2)
    cluster.tick(seconds=60)

    assert [name.partition("@")[0] for name in failure_groups(cluster)] == ["ml/RayCluster/r"]
    assert roles(cluster) == {Role.UNCLEAR: {"gpu-1", "gpu-2"}}


def test_a_pod_that_the_api_server_does_not_list_keeps_the_job_of_its_name() -> None:
    cluster = gpu_fleet(10)
    cluster.tick(plain("gpu-1", "train-0"), seconds=1)

    answered(cluster, {"gpu-1": {"ml/other-0": "ml/Workload/other"}}, seconds=2)

    [key] = cluster.snapshot.window.traces["gpu-1"]
    assert key.job == "ml/Pod/train"


def test_kernel_lines_of_a_job_that_the_api_server_names_are_one_failure_group() -> None:
    cluster = gpu_fleet(10)
    lines = [line for line in crash(4) if line.pod is None]
    cluster.tick(*lines, xid("gpu-1", 79), seconds=6)
    assert failure_groups(cluster) == set()

    jobs = frozenset({"ml/PyTorchJob/llama"})
    cluster.snapshot = replace(cluster.snapshot, jobs={f"gpu-{n}": jobs for n in range(1, 5)})
    cluster.tick(seconds=7)

    assert cluster.tainted == {"gpu-1"}
    cluster.tick(seconds=60)
    assert {"gpu-2", "gpu-3", "gpu-4"} <= roles(cluster)[Role.COLLATERAL]
    assert roles(cluster)[Role.ROOT_CAUSE] == {"gpu-1"}


def test_a_node_recorded_before_its_failure_group_gets_the_groups_name_in_one_later_write() -> None:
    cluster = gpu_fleet(10)
    lost, other = xid("gpu-1", 79), nccl("gpu-1", "ml/PyTorchJob/llama")
    cluster.tick(lost, other, seconds=1)
    cluster.tick(nccl("gpu-2", "ml/PyTorchJob/llama", seconds=5), seconds=6)
    assert cluster.nodes["gpu-1"].record.incidents[0].failure_group is None
    before = len(cluster.writes)

    for seconds in range(10, 200, 5):
        cluster.tick(seconds=seconds)

    assert [change.node for change in cluster.writes[before:]] == ["gpu-1"]
    assert {incident.failure_group for incident in cluster.nodes["gpu-1"].record.incidents} == failure_groups(
        cluster
    )
    assert len(failure_groups(cluster)) == 1
