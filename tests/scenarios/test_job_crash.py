"""A job on many nodes dies, undisturbed or with a disturbance in the middle."""

from __future__ import annotations

import re
from typing import Any

import pytest

from konductor_like.model import OPT_OUT_LABEL, Role
from konductor_like_sandbox.kubernetes.fleet import make_fleet
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Site
from tests.scenarios.words import JOB, LOST, NCCL, ROW_REMAP, crash, gpu, gpus

RANKS = 24
ORIGIN, IDLE = gpu(17), gpu(RANKS + 2)


def fleet(site_of: Opens, **settings: Any) -> Site:
    """Open a site with more nodes than the job has; all are heard and healthy."""
    site = site_of(make_fleet(RANKS + 2), **settings)
    site.hearts()
    site.run(70)
    return site


def told_as_one(site: Site, origin: str = ORIGIN, collateral: int = RANKS - 1) -> None:
    """Assert that one node is tainted, the others are its collateral, and every output shows that."""
    assert site.tainted == {origin}
    assert site.labels == {"faulty": 1}
    assert site.in_role(Role.ROOT_CAUSE) == {origin}
    others = site.in_role(Role.COLLATERAL) - {origin}
    assert len(others) == collateral
    assert all(site.record(name).incidents[0].root_cause == origin for name in others)
    assert len(site.events) == 1
    [event] = site.cli("status", "-o", "json").document["failureGroups"]
    assert (event["shared"], event["rootCauses"], len(event["collateral"])) == (JOB, [origin], collateral)
    assert event["unclear"] == []
    status = site.cli("status")
    assert f"{collateral + 1} nodes: began on {origin}; {collateral} collateral" in status.out
    assert status.rows[0].split()[:3] == [origin, "faulty", "(root-cause)"]
    assert (
        f"it followed from a failure on {origin}: look there first" in site.cli("explain", "node", gpu(3)).out
    )


@pytest.mark.parametrize(
    ("origin_late", "kernel_late", "pods_late"),
    [
        (0.2, 0.2, 0.2),
        (3.0, 0.2, 0.2),
        (12.0, 12.0, 0.2),
        (0.2, 0.2, 12.0),
        (90.0, 0.2, 0.2),
        (70.0, 70.0, 0.2),
    ],
    ids=["in order", "origin 3 s late", "pods first", "pods last", "origin 90 s late", "kernel logs lag"],
)
def test_a_job_that_dies_with_a_gpu_taints_one_node_in_any_order_of_its_lines(
    site_of: Opens, origin_late: float, kernel_late: float, pods_late: float
) -> None:
    site = fleet(site_of)
    site.kernel(ORIGIN, LOST, late=origin_late)
    crash(site, gpus(RANKS), at=0.5, kernel_late=kernel_late, pods_late=pods_late)

    site.run(100)

    told_as_one(site)


def test_a_restart_in_the_middle_of_a_crash_changes_nothing(site_of: Opens) -> None:
    site = fleet(site_of)
    site.kernel(ORIGIN, LOST, late=9)
    crash(site, gpus(RANKS), at=0.5)
    site.run(3, step_seconds=3)

    site.restart(after_seconds=2)
    site.run(10)
    site.restart()
    site.run(30)

    told_as_one(site)


def test_pod_lines_that_come_with_a_sweep_still_tell_which_job_it_was(site_of: Opens) -> None:
    site = fleet(site_of)
    site.kernel(ORIGIN, LOST)
    crash(site, gpus(RANKS), at=0.5, pods_late=90)

    site.run(60)
    assert site.tainted == {ORIGIN}
    site.run(1240, step_seconds=20)

    told_as_one(site)


def test_without_a_hardware_fault_no_node_is_tainted_and_all_are_suspect_in_one_group(
    site_of: Opens,
) -> None:
    site = fleet(site_of)
    crash(site, gpus(RANKS))

    site.run(10)
    site.restart()
    site.run(60)

    assert site.tainted == set()
    assert site.labels == {"suspect": RANKS}
    assert site.in_role(Role.UNCLEAR) == set(gpus(RANKS))
    assert len(site.events) == 1
    [event] = site.cli("status", "-o", "json").document["failureGroups"]
    assert (event["rootCauses"], len(event["unclear"]), event["collateral"]) == ([], RANKS, [])
    assert f"{RANKS} nodes: no known root cause; {RANKS} unclear" in site.cli("status").out


def test_a_node_of_the_group_that_fails_later_is_shown_first(site_of: Opens) -> None:
    site = fleet(site_of)
    crash(site, gpus(RANKS))
    site.kernel(ORIGIN, LOST, at=45)

    site.run(80)

    assert site.tainted == {ORIGIN}
    assert f"the likeliest first: {ORIGIN}, " in site.cli("status").out


def test_a_node_that_was_tainted_already_is_the_root_cause_of_its_next_failure(site_of: Opens) -> None:
    site = fleet(site_of)
    site.kernel(ORIGIN, ROW_REMAP)
    site.run(120)
    assert site.tainted == {ORIGIN}

    site.kernel(ORIGIN, LOST)
    crash(site, gpus(RANKS), at=0.5)
    site.run(30)

    told_as_one(site)


def test_while_the_brake_holds_the_root_cause_the_other_nodes_are_still_collateral(site_of: Opens) -> None:
    site = fleet(site_of, brake_max_nodes=1, brake_cooldown_seconds=60)
    site.kernel(IDLE, LOST)
    site.run(10)

    site.kernel(ORIGIN, LOST)
    crash(site, gpus(RANKS), at=0.5)
    site.run(30)

    assert site.tainted == {IDLE}
    assert site.labels == {"faulty": 1, "held": 1}
    status = site.cli("status")
    assert status.lines[1].startswith("Brake:       holding 1 node; 1 out of service")
    assert [row.split()[0] for row in status.rows[:2]] == [IDLE, ORIGIN]
    assert f"began on {ORIGIN}; {RANKS - 1} collateral" in status.out
    assert re.search("^Held back: +xid 79", site.cli("explain", "node", ORIGIN).out, re.MULTILINE)

    assert site.cli("reset", IDLE, "--yes").code == 0
    site.run(90)
    told_as_one(site)


def test_a_root_cause_that_is_deleted_meanwhile_is_still_named(site_of: Opens) -> None:
    site = fleet(site_of)
    site.kernel(ORIGIN, LOST)
    crash(site, gpus(RANKS), at=0.5)
    site.run(10)

    site.kube.delete_node(ORIGIN)
    site.run(60)
    site.restart()
    site.run(60)

    assert site.tainted == set()
    assert site.labels == {}
    assert (
        f"{RANKS - 1} nodes: began on {ORIGIN}, without a recorded fault; {RANKS - 1} collateral"
        in site.cli("status").out
    )
    assert f"it followed from a failure on {ORIGIN}" in site.cli("explain", "node", gpu(3)).out


def test_a_root_cause_that_is_opted_out_is_not_tainted_and_explains_the_others(site_of: Opens) -> None:
    nodes = make_fleet(RANKS + 2)
    nodes[16]["metadata"]["labels"][OPT_OUT_LABEL] = "true"
    site = site_of(nodes)
    site.run(10)
    site.kernel(ORIGIN, LOST)
    crash(site, gpus(RANKS), at=0.5)

    site.run(30)

    assert site.tainted == set()
    assert site.record(ORIGIN).incidents[0].key.rule == "xid.79"
    assert site.labels == {}
    assert f"began on {ORIGIN}" in site.cli("status").out
    told = site.cli("explain", "node", ORIGIN).out
    assert "not tainted: the node has the label" in told
    assert "this node: root-cause; with it: " in told


def test_a_root_cause_whose_own_pod_prints_nothing_is_tainted_and_the_others_stay_unclear(
    site_of: Opens,
) -> None:
    site = fleet(site_of)
    site.kernel(ORIGIN, LOST)
    for rank, name in enumerate(gpus(RANKS)):
        if name != ORIGIN:
            site.pod(name, JOB, NCCL, rank=rank, at=1 + rank / 20)

    site.run(30)

    assert site.tainted == {ORIGIN}
    assert site.labels == {"faulty": 1, "suspect": RANKS - 1}
