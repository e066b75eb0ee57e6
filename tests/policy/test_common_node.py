"""A node that failed jobs have in common: when that accuses it, and when it says nothing."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from konductor_like.model import Fault
from konductor_like.policy.thresholds import COMMON_ADVICE
from tests.policy.scenes import Cluster
from tests.policy.shared import gpu_fleet, nccl, xid

HOUR = 3600.0
MINUTE = 60.0


def failed(cluster: Cluster, job: str, nodes: Iterable[str], *, seconds: float) -> None:
    """A job ends on these nodes with nothing but its pods' complaints."""
    lines: list[Fault] = [nccl(name, job, seconds=seconds + n) for n, name in enumerate(nodes)]
    cluster.tick(*lines, seconds=seconds + len(lines))
    cluster.tick(seconds=seconds + 60)


def alone_in_common(cluster: Cluster, *, every: float = HOUR, job: str = "ml/JobSet/{}") -> None:
    """Four jobs of two nodes fail; gpu-1 is in each, with another every time."""
    for number, name in enumerate(("ant", "bee", "cow", "dog")):
        failed(cluster, job.format(name), ("gpu-1", f"gpu-{number + 2}"), seconds=number * every)


def test_jobs_that_fail_one_after_the_other_accuse_the_node_that_they_share() -> None:
    cluster = gpu_fleet(20)

    alone_in_common(cluster)

    assert cluster.tainted == {"gpu-1"}
    [incident] = [each for each in cluster.nodes["gpu-1"].record.incidents if each.grounds]
    assert incident.advice == COMMON_ADVICE[0]


def test_jobs_that_fail_all_at_once_accuse_nobody_for_they_share_more_than_a_node() -> None:
    cluster = gpu_fleet(20)

    alone_in_common(cluster, every=MINUTE)

    assert cluster.tainted == set()


def test_where_many_nodes_see_as_many_jobs_fail_none_of_them_stands_out() -> None:
    cluster, dice = gpu_fleet(200), Random(7)
    names = sorted(cluster.nodes)

    for number in range(48):  # each node is in four of them, and hardly two nodes in the same ones
        job = f"ml/JobSet/{chr(97 + number // 24)}{chr(97 + number % 24)}"
        failed(cluster, job, dice.sample(names, 16), seconds=number * HOUR / 2)

    assert cluster.tainted == set()


@pytest.mark.parametrize("seed", range(6))
def test_in_a_small_cluster_chance_alone_accuses_nobody(seed: int) -> None:
    cluster, dice = gpu_fleet(16), Random(seed)
    names = sorted(cluster.nodes)

    for number in range(20):
        job = f"ml/JobSet/{chr(97 + number)}"
        failed(cluster, job, dice.sample(names, 2), seconds=number * HOUR)

    assert cluster.tainted == set()


def test_a_job_that_fails_without_the_node_too_does_not_accuse_it() -> None:
    cluster = gpu_fleet(20)

    failed(cluster, "ml/JobSet/dog", ("gpu-8", "gpu-9"), seconds=-HOUR)
    alone_in_common(cluster)

    assert cluster.tainted == set()


def test_runs_of_a_program_that_fails_elsewhere_too_do_not_accuse_it() -> None:
    cluster = gpu_fleet(20)

    failed(cluster, "ml/JobSet/run-9", ("gpu-8", "gpu-9"), seconds=-HOUR)
    for number in range(4):
        failed(cluster, f"ml/JobSet/run-{number}", ("gpu-1", f"gpu-{number + 2}"), seconds=number * HOUR)

    assert cluster.tainted == set()


def test_runs_of_a_program_that_fails_on_that_node_alone_accuse_it() -> None:
    cluster = gpu_fleet(20)

    for number in range(4):
        failed(cluster, f"ml/JobSet/run-{number}", ("gpu-1", f"gpu-{number + 2}"), seconds=number * HOUR)

    assert cluster.tainted == {"gpu-1"}


def test_another_node_that_is_out_already_stands_in_nobodys_way() -> None:
    cluster = gpu_fleet(30)
    alone_in_common(cluster)

    for number, name in enumerate(("elk", "fox", "gnu", "hen")):
        failed(cluster, f"ml/JobSet/{name}", ("gpu-20", f"gpu-{number + 21}"), seconds=(number + 5) * HOUR)

    assert cluster.tainted == {"gpu-1", "gpu-20"}


def test_a_page_fault_of_one_programs_many_runs_is_that_programs_and_not_the_gpus() -> None:
    cluster = gpu_fleet(10)

    for number in range(4):
        run = nccl("gpu-1", f"ann/Job/debug-{number}", seconds=number * HOUR)
        cluster.tick(xid("gpu-1", 31, seconds=number * HOUR), run, seconds=number * HOUR + 1)

    assert cluster.tainted == set()
