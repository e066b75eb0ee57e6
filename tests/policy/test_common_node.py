"""A node common to several failed jobs: a suspect with an Event, never tainted for that (rule 17)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from konductor_like.model import Plan
from tests.policy.scenes import Cluster, fleet, reset_node
from tests.policy.shared import RULES, gpu_fleet, nccl, suspected, xid

HOUR = 3600.0
COMMON = "This is the only node common to 4 or more jobs that failed within 24h"


def fail_job(cluster: Cluster, job: str, nodes: Iterable[str], *, seconds: float) -> Plan:
    """Let a job fail on these nodes, with pod lines only."""
    lines = [nccl(name, job, seconds=seconds + n) for n, name in enumerate(nodes)]
    return cluster.tick(*lines, seconds=seconds + len(lines))


def fail_four_jobs(cluster: Cluster, *, others: Sequence[int] = (2, 3, 4, 5)) -> Plan:
    """Let four jobs fail, an hour apart, each on gpu-1 and one of the others."""
    plans = [
        fail_job(cluster, f"ml/JobSet/job-{hour}", ("gpu-1", f"gpu-{other}"), seconds=hour * HOUR)
        for hour, other in enumerate(others)
    ]
    return plans[-1]


def messages(plan: Plan) -> list[str]:
    """Return the messages of the plan's Events for gpu-1."""
    return [change.message for change in plan.changes if change.node == "gpu-1" and change.event is not None]


def test_a_node_common_to_four_failed_jobs_becomes_suspect_with_one_event() -> None:
    cluster = gpu_fleet(20)

    plan = fail_four_jobs(cluster)

    [message] = messages(plan)
    assert COMMON in message
    assert cluster.nodes["gpu-1"].as_read.health == "suspect"
    assert (suspected(cluster), cluster.tainted) == ({"gpu-1"}, set())

    assert messages(fail_job(cluster, "ml/JobSet/elk", ("gpu-6", "gpu-1"), seconds=4 * HOUR)) == []
    assert cluster.tainted == set()


def test_jobs_with_a_known_root_cause_make_no_common_node() -> None:
    cluster = gpu_fleet(20)

    for hour in range(5):
        cluster.tick(xid(f"gpu-{hour + 3}", 79, seconds=hour * HOUR), seconds=hour * HOUR)
        fail_job(cluster, f"ml/JobSet/job-{hour}", ("gpu-1", f"gpu-{hour + 3}"), seconds=hour * HOUR + 1)

    assert suspected(cluster) == set()


@pytest.mark.parametrize(
    ("others", "found"), [((2, 2, 3, 4), {"gpu-1"}), ((2, 2, 2, 3), set()), ((2, 2, 2, 2), set())]
)
def test_a_common_node_is_no_suspect_if_another_node_took_part_in_more_than_half_of_the_jobs(
    others: Sequence[int], found: set[str]
) -> None:
    cluster = gpu_fleet(20)

    fail_four_jobs(cluster, others=others)

    assert suspected(cluster) == found


def test_a_node_that_is_already_tainted_does_not_become_suspect_as_a_common_node() -> None:
    cluster = gpu_fleet(20)
    cluster.tick(xid("gpu-1", 79, seconds=-2 * HOUR), seconds=-2 * HOUR)

    fail_four_jobs(cluster)

    assert (suspected(cluster), cluster.tainted) == (set(), {"gpu-1"})


def test_failed_jobs_before_a_release_do_not_count_for_a_common_node() -> None:
    cluster = gpu_fleet(20)
    fail_four_jobs(cluster)
    reset_node(cluster, "gpu-1", 3.5 * HOUR)

    fail_job(cluster, "ml/JobSet/elk", ("gpu-1", "gpu-6"), seconds=4 * HOUR)

    assert not [
        i
        for i in cluster.nodes["gpu-1"].record.incidents
        if i.advice.startswith(COMMON) and not i.released_ns
    ]


def test_no_common_node_is_suspected_while_history_is_read_or_if_the_check_is_off() -> None:
    replaying, never = gpu_fleet(20), Cluster(fleet(20), replace(RULES, common_node_jobs=0))
    replaying.snapshot = replace(replaying.snapshot, replaying=True)

    fail_four_jobs(replaying)
    fail_four_jobs(never)

    assert (suspected(replaying), suspected(never)) == (set(), set())


def test_page_faults_in_many_runs_of_one_program_do_not_taint() -> None:
    cluster = gpu_fleet(10)

    for number in range(4):
        run = nccl("gpu-1", f"ann/Job/debug-{number}", seconds=number * HOUR)
        cluster.tick(xid("gpu-1", 31, seconds=number * HOUR), run, seconds=number * HOUR + 1)

    assert cluster.tainted == set()
