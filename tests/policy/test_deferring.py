"""A deferred fault is not held by the brake, and its Event says until when it is deferred."""

from __future__ import annotations

from konductor_like.model import EventReason, Incident, Severity, SkipReason
from konductor_like.policy.fleet.brake import brake_state
from tests.policy.scenes import Cluster, at, reset_node
from tests.policy.shared import RULES, gpu_fleet, rack, xid

DEFERRED = "deferred until 2026-03-04T12:00:07Z, to find the root cause first"


def deferred(size: int = 20) -> Cluster:
    """``gpu-1`` is tainted; ``gpu-2`` printed a fault at noon that its rule defers by 5 s, read at 2 s."""
    cluster = gpu_fleet(size)
    cluster.tick(xid("gpu-1", 79, seconds=-60), seconds=-59)
    cluster.tick(xid("gpu-2", 145, fatal=True), seconds=2)
    assert cluster.tainted == {"gpu-1"}
    return cluster


def test_the_event_and_the_skipped_taint_of_a_deferred_fault_say_until_when() -> None:
    cluster = deferred()

    plan = cluster.tick(seconds=3)

    [change] = [each for each in cluster.writes if each.node == "gpu-2"]
    assert change.event is EventReason.RECORDED
    assert f"Not tainted yet: {DEFERRED}." in change.message
    assert [(item.node, item.why, item.detail) for item in plan.refused] == [
        ("gpu-2", SkipReason.DEFERRED, DEFERRED)
    ]


def test_the_skipped_taint_is_about_the_fatal_fault_although_a_suspect_one_of_its_rule_came_before() -> None:
    cluster = gpu_fleet(20)
    cluster.tick(xid("gpu-2", 145, seconds=0), seconds=1)
    cluster.tick(xid("gpu-2", 145, seconds=1, fatal=True), seconds=2)

    [skipped] = cluster.tick(seconds=3).refused

    assert isinstance(skipped.about, Incident)
    assert skipped.about.severity is Severity.FATAL


def test_a_deferred_fault_is_not_held_by_the_brake() -> None:
    cluster = deferred()

    plan = cluster.tick(seconds=3)

    assert plan.brake.held == ()
    assert brake_state(cluster.nodes, cluster.rules, now=at(3)).held == ()
    assert [held.node for held in brake_state(cluster.nodes, cluster.rules, now=at(30)).held] == ["gpu-2"]


def test_a_release_during_a_deferral_starts_no_cool_down() -> None:
    cluster = deferred()
    reset_node(cluster, "gpu-1", 3)

    plan = cluster.tick(xid("gpu-3", 79, seconds=4), seconds=4)

    assert (plan.brake.cooling, plan.brake.rearms_at) == (0, None)
    assert cluster.tainted == {"gpu-3"}


def test_a_deferred_fault_taints_although_another_node_was_released_meanwhile() -> None:
    cluster = deferred(5)
    reset_node(cluster, "gpu-1", 3)
    cluster.tick(seconds=4)

    cluster.tick(seconds=8)

    assert cluster.tainted == {"gpu-2"}


def test_a_collateral_fault_that_continues_taints_once_its_root_cause_is_too_long_ago() -> None:
    cluster = Cluster(rack(8), RULES)
    near, far = xid("gpu-1", 145, fatal=True), xid("gpu-2", 149, seconds=0.1, fatal=True)
    cluster.tick(near, far, seconds=1)
    cluster.tick(seconds=7)
    assert cluster.tainted == {"gpu-2"}

    for seconds in range(25, 600, 25):
        cluster.tick(xid("gpu-1", 145, seconds=seconds, fatal=True), seconds=seconds + 1)

    assert cluster.tainted == {"gpu-1", "gpu-2"}


def test_a_fault_right_after_a_release_is_deferred_again() -> None:
    cluster = deferred()
    cluster.tick(seconds=7)
    assert "gpu-2" in cluster.tainted
    reset_node(cluster, "gpu-2", 10)

    cluster.tick(xid("gpu-2", 145, seconds=11, fatal=True), seconds=12)
    assert "gpu-2" not in cluster.tainted
    cluster.tick(seconds=17)

    assert "gpu-2" in cluster.tainted


def test_a_fault_deferred_when_the_controllers_clock_is_set_back_is_deferred_once_more() -> None:
    cluster = deferred()

    cluster.tick(seconds=-598)
    cluster.tick(seconds=-594)
    assert cluster.tainted == {"gpu-1"}
    cluster.tick(seconds=-593)

    assert cluster.tainted == {"gpu-1", "gpu-2"}


def test_a_node_with_its_clock_ahead_is_not_deferred_longer() -> None:
    cluster = gpu_fleet(20)
    cluster.tick(xid("gpu-2", 145, seconds=300, fatal=True), seconds=2)

    cluster.tick(seconds=8)

    assert cluster.tainted == {"gpu-2"}
