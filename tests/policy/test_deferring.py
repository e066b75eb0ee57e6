"""What its rule defers is not held by the brake, and says until when."""

from __future__ import annotations

from konductor_like.model import EventReason, SkipReason
from konductor_like.policy.brake import brake_state
from tests.policy.scenes import Cluster, at, let_go
from tests.policy.shared import RULES, gpu_fleet, rack, xid

DEFERRED = "deferred until 2026-03-04T12:00:07Z, to tell the root cause from collateral"


def deferred(size: int = 20) -> Cluster:
    """``gpu-1`` is out; ``gpu-2`` has printed at noon what its rule defers by five seconds; heard at 2 s."""
    cluster = gpu_fleet(size)
    cluster.tick(xid("gpu-1", 79, seconds=-60), seconds=-59)
    cluster.tick(xid("gpu-2", 145, fatal=True), seconds=2)
    assert cluster.tainted == {"gpu-1"}
    return cluster


def test_what_is_deferred_says_so_in_its_event_and_in_its_refusal() -> None:
    cluster = deferred()

    plan = cluster.tick(seconds=3)

    [told] = [change for change in cluster.writes if change.node == "gpu-2"]
    assert told.event is EventReason.RECORDED
    assert told.message.endswith(f"Not tainted yet: {DEFERRED}.")
    assert [(item.node, item.why, item.detail) for item in plan.refused] == [
        ("gpu-2", SkipReason.DEFERRED, DEFERRED)
    ]


def test_what_is_deferred_is_not_held_by_the_brake() -> None:
    cluster = deferred()

    plan = cluster.tick(seconds=3)

    assert plan.brake.held == ()
    assert brake_state(cluster.nodes, cluster.rules, now=at(3)).held == ()
    assert [held.node for held in brake_state(cluster.nodes, cluster.rules, now=at(30)).held] == ["gpu-2"]


def test_what_is_deferred_trips_no_brake_so_that_a_release_meanwhile_starts_no_cool_down() -> None:
    cluster = deferred()
    let_go(cluster, "gpu-1", 3)

    plan = cluster.tick(xid("gpu-3", 79, seconds=4), seconds=4)

    assert (plan.brake.cooling, plan.brake.rearms_at) == (0, None)
    assert cluster.tainted == {"gpu-3"}


def test_what_was_deferred_is_tainted_although_a_node_was_released_meanwhile() -> None:
    cluster = deferred(5)
    let_go(cluster, "gpu-1", 3)
    cluster.tick(seconds=4)

    cluster.tick(seconds=8)

    assert cluster.tainted == {"gpu-2"}


def test_what_was_collateral_and_does_not_stop_is_tainted_once_the_event_cannot_be_its_reason() -> None:
    cluster = Cluster(rack(8), RULES)
    near, far = xid("gpu-1", 145, fatal=True), xid("gpu-2", 149, seconds=0.1, fatal=True)
    cluster.tick(near, far, seconds=1)
    cluster.tick(seconds=7)
    assert cluster.tainted == {"gpu-2"}

    for seconds in range(25, 600, 25):
        cluster.tick(xid("gpu-1", 145, seconds=seconds, fatal=True), seconds=seconds + 1)

    assert cluster.tainted == {"gpu-1", "gpu-2"}


def test_what_is_printed_again_right_after_a_release_is_deferred_anew() -> None:
    cluster = deferred()
    cluster.tick(seconds=7)
    assert "gpu-2" in cluster.tainted
    let_go(cluster, "gpu-2", 10)

    cluster.tick(xid("gpu-2", 145, seconds=11, fatal=True), seconds=12)
    assert "gpu-2" not in cluster.tainted
    cluster.tick(seconds=17)

    assert "gpu-2" in cluster.tainted


def test_what_is_deferred_while_our_clock_is_put_back_is_deferred_anew_and_no_longer() -> None:
    cluster = deferred()

    cluster.tick(seconds=-598)
    cluster.tick(seconds=-594)
    assert cluster.tainted == {"gpu-1"}
    cluster.tick(seconds=-593)

    assert cluster.tainted == {"gpu-1", "gpu-2"}


def test_a_node_whose_clock_is_ahead_is_deferred_no_longer_for_it() -> None:
    cluster = gpu_fleet(20)
    cluster.tick(xid("gpu-2", 145, seconds=300, fatal=True), seconds=2)

    cluster.tick(seconds=8)

    assert cluster.tainted == {"gpu-2"}
