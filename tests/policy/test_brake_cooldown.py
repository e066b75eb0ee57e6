"""Once the brake holds something, the room that a release makes is not used at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import Control, ControlAct, Controls, EventReason, Severity, SkipReason
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.release import purge
from tests.policy.scenes import Cluster, at, fault, fleet, let_go, why

COOLDOWN = 300.0


def tripped(size: int = 5) -> Cluster:
    """``gpu-1`` is out, ``gpu-2`` and ``gpu-3`` are held."""
    cluster = Cluster(fleet(size))
    cluster.tick(*(fault(f"gpu-{i}", seconds=i) for i in (1, 2, 3)), seconds=5)
    assert cluster.tainted == {"gpu-1"}
    return cluster


def purged(cluster: Cluster, name: str, seconds: float) -> None:
    """``konductor-like reset NAME --purge``."""
    cluster.apply(purge(cluster.nodes[name]))
    act = ControlAct(Control.PURGE, at(seconds), "ann", nodes=1)
    cluster.snapshot = replace(cluster.snapshot, controls=Controls((act,)))


def by_hand(cluster: Cluster, name: str, _seconds: float) -> None:
    """``kubectl taint nodes NAME …-``; we see it a second later."""
    cluster.untaint_by_hand(name)


@pytest.mark.parametrize("make_room", [let_go, purged, by_hand])
def test_room_that_an_operator_makes_is_not_used_before_the_cool_down_is_over(
    make_room: Callable[[Cluster, str, float], object],
) -> None:
    cluster = tripped()
    make_room(cluster, "gpu-1", 61)

    plan = cluster.tick(seconds=61)
    assert cluster.tainted == set()
    assert set(why(cluster, 61).values()) == {SkipReason.COOLDOWN}
    assert (plan.brake.cooling, plan.brake.rearms_at) == (1, at(61 + COOLDOWN))
    cluster.tick(seconds=60 + COOLDOWN)
    assert cluster.tainted == set()
    plan = cluster.tick(seconds=61 + COOLDOWN)

    assert cluster.tainted == {"gpu-2"}
    assert plan.brake.rearms_at is None


def test_a_purge_that_was_noted_by_a_clock_a_little_ahead_counts_at_once() -> None:
    cluster = tripped()
    purged(cluster, "gpu-1", 63)

    cluster.tick(seconds=61)

    assert cluster.tainted == set()


@pytest.mark.parametrize(
    ("seconds", "tainted"),
    [(70, {"gpu-2"}), (50, set()), (500, set())],
    ids=["ends it", "before the release", "in the future"],
)
def test_a_reset_of_the_brake_ends_the_cool_down_that_began_before(seconds: float, tainted: set[str]) -> None:
    cluster = tripped()
    let_go(cluster, "gpu-1", 60)
    act = ControlAct(Control.BRAKE_RESET, at(seconds), "kim")
    cluster.snapshot = replace(cluster.snapshot, controls=Controls((act,)))

    cluster.tick(seconds=71)

    assert cluster.tainted == tainted


def test_a_graver_fault_on_a_node_that_was_held_does_not_end_the_cool_down() -> None:
    cluster = Cluster(fleet(5))
    test = fault("gpu-2", rule="xid.14", severity=Severity.TEST, seconds=2)
    cluster.tick(fault("gpu-1", seconds=1), test, seconds=5)
    let_go(cluster, "gpu-1", 60)

    cluster.tick(fault("gpu-2", seconds=61, stamp=200), seconds=62)

    assert cluster.tainted == set()
    assert why(cluster, 62) == {"gpu-2": SkipReason.COOLDOWN}


def test_a_reset_of_the_brake_forgets_a_purge() -> None:
    cluster = tripped()
    purged(cluster, "gpu-1", 60)
    reset = ControlAct(Control.BRAKE_RESET, at(61), "ann")
    cluster.snapshot = replace(cluster.snapshot, controls=cluster.snapshot.controls.with_act(reset))

    cluster.tick(seconds=62)

    assert cluster.tainted == {"gpu-2"}


def test_a_purge_while_nothing_was_held_keeps_no_node_in_service() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), seconds=5)
    purged(cluster, "gpu-1", 60)

    cluster.tick(fault("gpu-2", seconds=70), seconds=71)

    assert cluster.tainted == {"gpu-2"}


def test_each_further_release_begins_the_cool_down_anew_for_all_of_them() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(*(fault(f"gpu-{i}", seconds=i) for i in range(1, 5)), seconds=5)
    let_go(cluster, "gpu-1", 60)
    let_go(cluster, "gpu-2", 300)

    cluster.tick(seconds=300 + COOLDOWN - 1)
    assert cluster.tainted == set()
    cluster.tick(seconds=300 + COOLDOWN)

    assert cluster.tainted == {"gpu-3", "gpu-4"}


def test_a_brake_that_held_nothing_has_no_cool_down() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), seconds=5)
    let_go(cluster, "gpu-1", 60)

    cluster.tick(fault("gpu-2", seconds=61), seconds=62)
    cluster.tick(fault("gpu-3", seconds=63), seconds=64)

    assert cluster.tainted == {"gpu-2"}
    assert why(cluster, 64) == {"gpu-3": SkipReason.BRAKE}


def test_when_all_that_was_held_is_released_too_new_evidence_taints_at_once() -> None:
    cluster = tripped()
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        let_go(cluster, name, 60)

    cluster.tick(fault("gpu-4", seconds=70), seconds=71)

    assert cluster.tainted == {"gpu-4"}


def test_room_that_no_release_made_is_used_meanwhile() -> None:
    cluster = tripped()
    let_go(cluster, "gpu-1", 60)
    cluster.rules = replace(cluster.rules, brake_max_percent=40)

    cluster.tick(seconds=61)

    assert cluster.tainted == {"gpu-2"}


def test_a_pool_that_holds_nothing_does_not_cool_down_with_another() -> None:
    nodes = {
        name: replace(state, pool="a" if i < 5 else "b") for i, (name, state) in enumerate(fleet(10).items())
    }
    cluster = Cluster(nodes, PolicyConfig(brake_max_percent=100, brake_pool_max_percent=20))
    cluster.tick(*(fault(f"gpu-{i}", seconds=i) for i in (1, 2, 6)), seconds=7)
    assert cluster.tainted == {"gpu-1", "gpu-6"}
    let_go(cluster, "gpu-1", 60)
    let_go(cluster, "gpu-6", 60)

    cluster.tick(fault("gpu-7", seconds=61), seconds=62)

    assert cluster.tainted == {"gpu-7"}
    assert why(cluster, 62) == {"gpu-2": SkipReason.COOLDOWN}


def test_while_tainting_is_paused_nothing_is_added_and_releases_go_on() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault("gpu-1"))
    pause = ControlAct(Control.PAUSE, at(10), "kim", "driver roll-out", at(3600))
    cluster.snapshot = replace(cluster.snapshot, controls=Controls((pause,)))

    plan = cluster.tick(fault("gpu-2", seconds=11), seconds=12)
    let_go(cluster, "gpu-1", 20)

    assert cluster.tainted == set()
    assert why(cluster, 21) == {"gpu-2": SkipReason.PAUSED}
    assert plan.brake.pause == pause
    [held] = [change for change in plan.changes if change.event is EventReason.HELD]
    assert "Held: tainting is paused by kim until 2026-03-04T13:00:00Z: driver roll-out." in held.message


@pytest.mark.parametrize("how", ["expired", "resumed"])
def test_after_a_pause_what_is_still_true_passes(how: str) -> None:
    cluster = Cluster(fleet(10))
    cluster.snapshot = replace(
        cluster.snapshot, controls=Controls((ControlAct(Control.PAUSE, at(0), "kim", "", at(3600)),))
    )
    cluster.tick(fault("gpu-1"), fault("gpu-2"), seconds=1)
    let_go(cluster, "gpu-2", 20)
    if how == "resumed":
        cluster.snapshot = replace(cluster.snapshot, controls=Controls())

    cluster.tick(seconds=3600 if how == "expired" else 30)

    assert cluster.tainted == {"gpu-1"}


def test_a_write_without_an_answer_is_not_sent_again_while_paused() -> None:
    cluster = Cluster(fleet(10))
    pause = Controls((ControlAct(Control.PAUSE, at(0), "kim"),))
    cluster.snapshot = replace(cluster.snapshot, controls=pause, in_flight=frozenset({"gpu-1"}))

    cluster.tick(fault("gpu-1"))

    assert cluster.tainted == set()


_WORK = st.lists(
    st.tuples(st.sampled_from(["fault", "release", "untaint", "wait"]), st.integers(1, 10)), max_size=40
)


@given(work=_WORK)
def test_a_cool_down_delays_and_never_lets_more_pass_nor_keeps_anything_for_good(
    work: list[tuple[str, int]],
) -> None:
    cluster = Cluster(fleet(10))
    seconds = 0.0
    for what, number in work:
        seconds += 400 if what == "wait" else 7
        name = f"gpu-{number}"
        if what == "release" and cluster.nodes[name].record.incidents:
            if any(i.state != "released" for i in cluster.nodes[name].record.incidents):
                let_go(cluster, name, seconds)
        elif what == "untaint":
            cluster.untaint_by_hand(name)
        faults = [fault(name, stamp=seconds, seconds=seconds)] if what == "fault" else []
        cluster.tick(*faults, seconds=seconds)
        assert len(cluster.tainted) <= 2

    plan = cluster.tick(seconds=seconds + COOLDOWN)

    assert len(cluster.tainted) == 2 or not plan.brake.holding
