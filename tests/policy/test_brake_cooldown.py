"""While the brake holds a node, a release starts a cool-down before the held node is tainted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import (
    Control,
    ControlAct,
    Controls,
    EventReason,
    Machine,
    Quarantine,
    ReleaseHow,
    Severity,
    SkipReason,
    TaintedNode,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.node.release import purge
from tests.policy.scenes import Cluster, at, fault, fleet, reset_node, why

COOLDOWN = 300.0


def tripped(size: int = 5) -> Cluster:
    """A cluster with ``gpu-1`` tainted, ``gpu-2`` and ``gpu-3`` held."""
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
    """``kubectl taint nodes NAME …-``, which the controller sees a second later."""
    cluster.untaint_by_hand(name)


@pytest.mark.parametrize("make_room", [reset_node, purged, by_hand])
def test_a_held_node_is_not_tainted_in_place_of_a_released_one_before_the_cool_down_ends(
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


def test_a_purge_noted_by_a_clock_a_little_ahead_counts_at_once() -> None:
    cluster = tripped()
    purged(cluster, "gpu-1", 63)

    cluster.tick(seconds=61)

    assert cluster.tainted == set()


@pytest.mark.parametrize(
    ("seconds", "tainted"),
    [(70, {"gpu-2"}), (50, set()), (500, set())],
    ids=["ends it", "before the release", "in the future"],
)
def test_a_brake_reset_ends_the_cool_down_that_began_before(seconds: float, tainted: set[str]) -> None:
    cluster = tripped()
    reset_node(cluster, "gpu-1", 60)
    act = ControlAct(Control.BRAKE_RESET, at(seconds), "kim")
    cluster.snapshot = replace(cluster.snapshot, controls=Controls((act,)))

    cluster.tick(seconds=71)

    assert cluster.tainted == tainted


YEARS = 10 * 365 * 86_400.0


def released_by_its_own_kubelet(cluster: Cluster, seconds: float) -> None:
    """The kubelet of gpu-5 writes into its record that it returned at this time."""
    state = cluster.nodes["gpu-5"]
    life = replace(
        state.record.life, quarantines=(Quarantine(at(-60), at(seconds), "xid.79", ReleaseHow.RESET),)
    )
    record = replace(state.record, life=life)
    cluster.nodes["gpu-5"] = replace(state, record=record)


def purge_noted(cluster: Cluster, seconds: float) -> None:
    act = ControlAct(Control.PURGE, at(seconds), "ann", nodes=1)
    cluster.snapshot = replace(cluster.snapshot, controls=cluster.snapshot.controls.with_act(act))


def deletion_noted(cluster: Cluster, seconds: float) -> None:
    gone = TaintedNode("gpu-9", Machine("uid-gpu-9"), at(0), None, at(seconds))
    controls = replace(cluster.snapshot.controls, tainted=(gone,))
    cluster.snapshot = replace(cluster.snapshot, controls=controls)


def brake_reset(cluster: Cluster, seconds: float) -> None:
    act = ControlAct(Control.BRAKE_RESET, at(seconds), "kim")
    cluster.snapshot = replace(cluster.snapshot, controls=cluster.snapshot.controls.with_act(act))


IN_THE_FUTURE = pytest.mark.parametrize("noted", [released_by_its_own_kubelet, purge_noted, deletion_noted])


@IN_THE_FUTURE
def test_a_time_years_ahead_does_not_keep_the_cool_down_on(
    noted: Callable[[Cluster, float], object],
) -> None:
    cluster = tripped()
    noted(cluster, YEARS)
    reset_node(cluster, "gpu-1", 60)

    cluster.tick(seconds=59 + COOLDOWN)
    assert cluster.tainted == set()
    cluster.tick(seconds=60 + COOLDOWN)

    assert cluster.tainted == {"gpu-2"}


@IN_THE_FUTURE
def test_a_time_a_little_ahead_keeps_the_cool_down_on_for_one_cool_down_after_it(
    noted: Callable[[Cluster, float], object],
) -> None:
    cluster = tripped()
    reset_node(cluster, "gpu-1", 60)
    noted(cluster, 60 + 290)

    for seconds in (61, 300, 349 + COOLDOWN):
        plan = cluster.tick(seconds=seconds)
        assert cluster.tainted == set()
        assert plan.brake.rearms_at == at(350 + COOLDOWN)  # the same time in all answers
    cluster.tick(seconds=350 + COOLDOWN)

    assert cluster.tainted == {"gpu-2"}


@IN_THE_FUTURE
def test_a_brake_reset_ends_a_cool_down_that_a_time_in_the_future_keeps_on(
    noted: Callable[[Cluster, float], object],
) -> None:
    cluster = tripped()
    reset_node(cluster, "gpu-1", 60)
    noted(cluster, 60 + 290)
    cluster.tick(seconds=70)
    assert cluster.tainted == set()

    brake_reset(cluster, 71)
    cluster.tick(seconds=72)

    assert cluster.tainted == {"gpu-2"}


def test_a_removal_of_the_taint_that_cannot_be_written_starts_one_cool_down() -> None:
    cluster = tripped()
    cluster.untaint_by_hand("gpu-1")
    cluster.snapshot = replace(cluster.snapshot, nodes=cluster.nodes, failing={"gpu-1": at(61)})

    for seconds, admitted in ((61, []), (60 + COOLDOWN, []), (61 + COOLDOWN, ["gpu-2"])):
        plan = decide(cluster.snapshot, (), cluster.rules, at(seconds))

        assert [change.node for change in plan.changes if change.verb is Verb.TAINT] == admitted


def test_a_release_in_the_future_does_not_hide_a_release_of_the_present() -> None:
    cluster = tripped()
    reset_node(cluster, "gpu-1", 60)
    released_by_its_own_kubelet(cluster, 62 + 299)

    assert cluster.tick(seconds=62).brake.cooling == 2


def test_a_release_by_a_clock_some_seconds_ahead_counts_after_a_brake_reset_before_it() -> None:
    cluster = tripped()
    brake_reset(cluster, 58)
    reset_node(cluster, "gpu-1", 65)

    cluster.tick(seconds=60)

    assert cluster.tainted == set()


def test_a_second_fault_on_a_held_node_does_not_end_the_cool_down() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1", seconds=1), fault("gpu-2", rule="xid.95", seconds=2), seconds=5)
    reset_node(cluster, "gpu-1", 60)

    cluster.tick(fault("gpu-2", seconds=61, stamp=200), seconds=62)

    assert cluster.tainted == set()
    assert why(cluster, 62) == {"gpu-2": SkipReason.COOLDOWN}


def test_a_held_test_starts_no_cool_down() -> None:
    cluster = Cluster(fleet(5))
    test = fault("gpu-2", rule="xid.14", severity=Severity.TEST, seconds=2)
    cluster.tick(fault("gpu-1", seconds=1), test, seconds=5)
    assert set(why(cluster, 6)) == {"gpu-2"}
    reset_node(cluster, "gpu-1", 60)

    cluster.tick(fault("gpu-3", seconds=61), seconds=62)

    assert cluster.tainted == {"gpu-3"}


def test_a_brake_reset_ends_the_cool_down_of_a_purge() -> None:
    cluster = tripped()
    purged(cluster, "gpu-1", 60)
    reset = ControlAct(Control.BRAKE_RESET, at(61), "ann")
    cluster.snapshot = replace(cluster.snapshot, controls=cluster.snapshot.controls.with_act(reset))

    cluster.tick(seconds=62)

    assert cluster.tainted == {"gpu-2"}


def test_a_purge_while_no_node_was_held_starts_no_cool_down() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), seconds=5)
    purged(cluster, "gpu-1", 60)

    cluster.tick(fault("gpu-2", seconds=70), seconds=71)

    assert cluster.tainted == {"gpu-2"}


def test_each_further_release_restarts_the_cool_down_for_all_released_nodes() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(*(fault(f"gpu-{i}", seconds=i) for i in range(1, 5)), seconds=5)
    reset_node(cluster, "gpu-1", 60)
    reset_node(cluster, "gpu-2", 300)

    cluster.tick(seconds=300 + COOLDOWN - 1)
    assert cluster.tainted == set()
    cluster.tick(seconds=300 + COOLDOWN)

    assert cluster.tainted == {"gpu-3", "gpu-4"}


def test_a_brake_that_held_no_node_has_no_cool_down() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), seconds=5)
    reset_node(cluster, "gpu-1", 60)

    cluster.tick(fault("gpu-2", seconds=61), seconds=62)
    cluster.tick(fault("gpu-3", seconds=63), seconds=64)

    assert cluster.tainted == {"gpu-2"}
    assert why(cluster, 64) == {"gpu-3": SkipReason.BRAKE}


def test_a_new_fault_taints_at_once_when_all_held_nodes_were_released() -> None:
    cluster = tripped()
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        reset_node(cluster, name, 60)

    cluster.tick(fault("gpu-4", seconds=70), seconds=71)

    assert cluster.tainted == {"gpu-4"}


def test_a_higher_bound_is_used_during_the_cool_down() -> None:
    cluster = tripped()
    reset_node(cluster, "gpu-1", 60)
    cluster.rules = replace(cluster.rules, brake_max_percent=40)

    cluster.tick(seconds=61)

    assert cluster.tainted == {"gpu-2"}


def test_a_pool_without_held_nodes_does_not_cool_down_with_another() -> None:
    nodes = {
        name: replace(state, pool="a" if i < 5 else "b") for i, (name, state) in enumerate(fleet(10).items())
    }
    cluster = Cluster(nodes, PolicyConfig(brake_max_percent=100, brake_pool_max_percent=20))
    cluster.tick(*(fault(f"gpu-{i}", seconds=i) for i in (1, 2, 6)), seconds=7)
    assert cluster.tainted == {"gpu-1", "gpu-6"}
    reset_node(cluster, "gpu-1", 60)
    reset_node(cluster, "gpu-6", 60)

    cluster.tick(fault("gpu-7", seconds=61), seconds=62)

    assert cluster.tainted == {"gpu-7"}
    assert why(cluster, 62) == {"gpu-2": SkipReason.COOLDOWN}


def test_a_pause_stops_taints_and_not_releases() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(fault("gpu-1"))
    pause = ControlAct(Control.PAUSE, at(10), "kim", "driver roll-out", at(3600))
    cluster.snapshot = replace(cluster.snapshot, controls=Controls((pause,)))

    plan = cluster.tick(fault("gpu-2", seconds=11), seconds=12)
    reset_node(cluster, "gpu-1", 20)

    assert cluster.tainted == set()
    assert why(cluster, 21) == {"gpu-2": SkipReason.PAUSED}
    assert plan.brake.pause == pause
    [held] = [change for change in plan.changes if change.event is EventReason.HELD]
    assert "Held: tainting is paused by kim until 2026-03-04T13:00:00Z: driver roll-out." in held.message


@pytest.mark.parametrize("how", ["expired", "resumed"])
def test_an_open_fault_taints_after_a_pause(how: str) -> None:
    cluster = Cluster(fleet(10))
    cluster.snapshot = replace(
        cluster.snapshot, controls=Controls((ControlAct(Control.PAUSE, at(0), "kim", "", at(3600)),))
    )
    cluster.tick(fault("gpu-1"), fault("gpu-2"), seconds=1)
    reset_node(cluster, "gpu-2", 20)
    if how == "resumed":
        cluster.snapshot = replace(cluster.snapshot, controls=Controls())

    cluster.tick(seconds=3600 if how == "expired" else 30)

    assert cluster.tainted == {"gpu-1"}


def test_an_unanswered_write_is_not_sent_again_during_a_pause() -> None:
    cluster = Cluster(fleet(10))
    pause = Controls((ControlAct(Control.PAUSE, at(0), "kim"),))
    cluster.snapshot = replace(cluster.snapshot, controls=pause, in_flight=frozenset({"gpu-1"}))

    cluster.tick(fault("gpu-1"))

    assert cluster.tainted == set()


_WORK = st.lists(
    st.tuples(st.sampled_from(["fault", "release", "untaint", "wait"]), st.integers(1, 10)), max_size=40
)


@given(work=_WORK)
def test_a_cool_down_delays_taints_and_neither_adds_nor_prevents_any(
    work: list[tuple[str, int]],
) -> None:
    cluster = Cluster(fleet(10))
    seconds = 0.0
    for what, number in work:
        seconds += 400 if what == "wait" else 7
        name = f"gpu-{number}"
        if what == "release" and cluster.nodes[name].record.incidents:
            if any(i.state != "released" for i in cluster.nodes[name].record.incidents):
                reset_node(cluster, name, seconds)
        elif what == "untaint":
            cluster.untaint_by_hand(name)
        faults = [fault(name, stamp=seconds, seconds=seconds)] if what == "fault" else []
        cluster.tick(*faults, seconds=seconds)
        assert len(cluster.tainted) <= 2

    plan = cluster.tick(seconds=seconds + COOLDOWN)

    assert len(cluster.tainted) == 2 or not plan.brake.holding
