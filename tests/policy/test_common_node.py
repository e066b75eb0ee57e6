"""A node that failed jobs have in common: a suspect that is told of, and never tainted for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from konductor_like.model import Plan
from tests.policy.scenes import Cluster, fleet, let_go
from tests.policy.shared import RULES, gpu_fleet, nccl, suspected, xid

HOUR = 3600.0
COMMON = "It is the only node common to 4 or more jobs that failed within 24h"


def failed(cluster: Cluster, job: str, nodes: Iterable[str], *, seconds: float) -> Plan:
    """A job ends on these nodes with nothing but its pods' complaints."""
    lines = [nccl(name, job, seconds=seconds + n) for n, name in enumerate(nodes)]
    return cluster.tick(*lines, seconds=seconds + len(lines))


def alone_in_common(cluster: Cluster, *, others: Sequence[int] = (2, 3, 4, 5)) -> Plan:
    """Four jobs of two nodes fail, an hour apart; gpu-1 is in each, with one of the others every time."""
    plans = [
        failed(cluster, f"ml/JobSet/job-{hour}", ("gpu-1", f"gpu-{other}"), seconds=hour * HOUR)
        for hour, other in enumerate(others)
    ]
    return plans[-1]


def told(plan: Plan) -> list[str]:
    """What the plan's Events say of gpu-1."""
    return [change.message for change in plan.changes if change.node == "gpu-1" and change.event is not None]


def test_a_node_that_failed_jobs_have_in_common_is_a_suspect_told_of_once() -> None:
    cluster = gpu_fleet(20)

    plan = alone_in_common(cluster)

    [message] = told(plan)
    assert COMMON in message
    assert cluster.nodes["gpu-1"].as_read.health == "suspect"
    assert (suspected(cluster), cluster.tainted) == ({"gpu-1"}, set())

    assert told(failed(cluster, "ml/JobSet/elk", ("gpu-6", "gpu-1"), seconds=4 * HOUR)) == []
    assert cluster.tainted == set()


def test_jobs_that_failed_for_a_known_origin_make_no_common_node() -> None:
    cluster = gpu_fleet(20)

    for hour in range(5):
        cluster.tick(xid(f"gpu-{hour + 3}", 79, seconds=hour * HOUR), seconds=hour * HOUR)
        failed(cluster, f"ml/JobSet/job-{hour}", ("gpu-1", f"gpu-{hour + 3}"), seconds=hour * HOUR + 1)

    assert suspected(cluster) == set()


@pytest.mark.parametrize(
    ("others", "found"), [((2, 2, 3, 4), {"gpu-1"}), ((2, 2, 2, 3), set()), ((2, 2, 2, 2), set())]
)
def test_no_other_node_may_be_part_of_more_than_half_of_these_jobs(
    others: Sequence[int], found: set[str]
) -> None:
    cluster = gpu_fleet(20)

    alone_in_common(cluster, others=others)

    assert suspected(cluster) == found


def test_one_that_has_a_better_reason_to_be_out_is_no_suspect() -> None:
    cluster = gpu_fleet(20)
    cluster.tick(xid("gpu-1", 79, seconds=-2 * HOUR), seconds=-2 * HOUR)

    alone_in_common(cluster)

    assert (suspected(cluster), cluster.tainted) == (set(), {"gpu-1"})


def test_what_a_release_covers_is_no_failed_job_of_the_node_any_more() -> None:
    cluster = gpu_fleet(20)
    alone_in_common(cluster)
    let_go(cluster, "gpu-1", 3.5 * HOUR)

    failed(cluster, "ml/JobSet/elk", ("gpu-1", "gpu-6"), seconds=4 * HOUR)

    assert not [
        i
        for i in cluster.nodes["gpu-1"].record.incidents
        if i.advice.startswith(COMMON) and not i.released_ns
    ]


def test_nobody_is_suspected_while_the_past_is_being_read_or_where_the_settings_say_never() -> None:
    replaying, never = gpu_fleet(20), Cluster(fleet(20), replace(RULES, common_node_jobs=0))
    replaying.snapshot = replace(replaying.snapshot, replaying=True)

    alone_in_common(replaying)
    alone_in_common(never)

    assert (suspected(replaying), suspected(never)) == (set(), set())


def test_a_page_fault_of_one_programs_many_runs_is_that_programs_and_not_the_gpus() -> None:
    cluster = gpu_fleet(10)

    for number in range(4):
        run = nccl("gpu-1", f"ann/Job/debug-{number}", seconds=number * HOUR)
        cluster.tick(xid("gpu-1", 31, seconds=number * HOUR), run, seconds=number * HOUR + 1)

    assert cluster.tainted == set()
