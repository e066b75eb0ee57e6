"""A Node that was deleted with our taint keeps its room for the cool-down, and its place in the pace."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import Control, ControlAct, Controls, Machine, Plan, SkipReason, TaintedNode
from konductor_like.policy.brake import bound, brake_state, updated_tainted_nodes
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.wording import why_held
from tests.policy.scenes import Cluster, at, fault, fleet, let_go, node, why

COOLDOWN = 300.0


class Watched(Cluster):
    """A cluster whose Nodes are followed, as a tick does."""

    def look(self, seconds: float) -> None:
        """See which Nodes are there."""
        controls = self.snapshot.controls
        tainted = updated_tainted_nodes(
            controls.tainted, self.nodes, self.rules, at(seconds), self.snapshot.in_flight
        )
        self.snapshot = replace(self.snapshot, controls=replace(controls, tainted=tainted))

    def turn(self, *names: str, seconds: float) -> Plan:
        """Look, decide on an Xid 79 of each of these nodes, apply, and look again."""
        self.look(seconds)
        plan = self.tick(*(fault(name, seconds=seconds) for name in names), seconds=seconds)
        self.look(seconds)
        return plan

    def delete(self, *names: str) -> None:
        """What an autoscaler does to empty nodes."""
        for name in names:
            del self.nodes[name]

    def register(self, name: str, uid: str, *, machine: str | None = None) -> None:
        """A Node is made under this name; of the same machine in the same boot unless told otherwise."""
        made = Machine(uid, machine or f"system-{name}", "boot-a" if machine is None else f"boot-{machine}")
        self.nodes[name] = replace(node(name), machine=made)

    def rearm(self, seconds: float) -> None:
        """``konductor-like brake reset``."""
        controls = self.snapshot.controls.with_act(ControlAct(Control.BRAKE_RESET, at(seconds), "kim"))
        self.snapshot = replace(self.snapshot, controls=controls)


def names(first: int, last: int) -> list[str]:
    return [f"gpu-{number}" for number in range(first, last + 1)]


def test_an_autoscaler_that_takes_away_what_is_tainted_gets_no_more_than_the_brake_allows() -> None:
    cluster = Watched(fleet(20))
    cluster.turn(*names(1, 20), seconds=0)
    lost = len(cluster.tainted)
    assert lost == 4
    for second in range(1, 300):
        cluster.delete(*cluster.tainted)
        cluster.turn(seconds=second)
        lost += len(cluster.tainted)

    assert lost == 4
    assert set(why(cluster, 299).values()) == {SkipReason.COOLDOWN}
    plan = cluster.turn(seconds=1 + COOLDOWN)
    assert len(cluster.tainted) == 3  # a fifth of the sixteen that are left
    assert (plan.brake.cooling, plan.brake.deleted, plan.brake.rearms_at) == (0, 0, None)


def test_neither_does_one_that_comes_before_the_brake_held_anything() -> None:
    cluster = Watched(fleet(20))
    lost = 0
    for second, name in enumerate(names(1, 20)):
        cluster.turn(name, seconds=10 * second)
        lost += len(cluster.tainted)
        cluster.delete(*cluster.tainted)
        cluster.turn(seconds=10 * second + 1)

    assert lost == 3  # with three gone seventeen are left, of which a fifth may be out
    assert set(why(cluster, 200).values()) == {SkipReason.COOLDOWN}


def test_the_words_tell_of_deletions() -> None:
    cluster = Watched(fleet(10))
    cluster.turn(*names(1, 3), seconds=0)
    cluster.delete("gpu-1")
    let_go(cluster, "gpu-2", 1)

    brake = cluster.turn(seconds=2).brake

    assert (brake.cooling, brake.deleted) == (2, 1)
    assert why_held(SkipReason.COOLDOWN, brake) == (
        "1 released and 1 deleted while tainted lately, the cool-down ends at 2026-03-04T12:05:02Z "
        "unless more are deleted"
    )


def test_a_node_that_was_let_go_before_it_was_deleted_takes_no_room() -> None:
    cluster = Watched(fleet(10))
    cluster.turn("gpu-1", seconds=0)
    let_go(cluster, "gpu-1", 10)
    cluster.turn(seconds=11)
    cluster.delete("gpu-1")

    plan = cluster.turn("gpu-2", seconds=20)

    assert plan.brake.cooling == 0
    assert cluster.tainted == {"gpu-2"}


def test_a_deleted_node_keeps_its_place_in_the_pace() -> None:
    cluster = Watched(fleet(20), PolicyConfig(brake_rate_nodes=1))
    cluster.turn("gpu-1", seconds=0)
    cluster.delete("gpu-1")

    cluster.turn("gpu-2", seconds=COOLDOWN + 1)
    assert cluster.tainted == set()
    assert why(cluster, COOLDOWN + 1) == {"gpu-2": SkipReason.RATE}
    cluster.turn(seconds=3599)
    assert cluster.tainted == set()
    cluster.turn(seconds=3600)

    assert cluster.tainted == {"gpu-2"}


def test_a_reset_of_the_brake_gives_back_room_and_pace() -> None:
    cluster = Watched(fleet(5), PolicyConfig(brake_rate_nodes=1))
    cluster.turn("gpu-1", "gpu-2", seconds=0)
    cluster.delete("gpu-1")
    cluster.turn(seconds=10)
    assert cluster.tainted == set()
    cluster.rearm(11)

    cluster.turn(seconds=12)

    assert cluster.tainted == {"gpu-2"}


def test_a_reset_of_the_brake_before_the_deletion_gives_nothing_back() -> None:
    cluster = Watched(fleet(5))
    cluster.turn("gpu-1", "gpu-2", seconds=0)
    cluster.rearm(5)
    cluster.delete("gpu-1")

    cluster.turn(seconds=10)

    assert why(cluster, 10) == {"gpu-2": SkipReason.COOLDOWN}


def test_another_machine_under_the_name_is_new_and_the_deleted_one_counts_on() -> None:
    cluster = Watched(fleet(5))
    cluster.turn("gpu-1", seconds=0)
    cluster.delete("gpu-1")
    cluster.register("gpu-1", "uid-2", machine="another")  # between two looks

    cluster.turn("gpu-1", seconds=10)

    assert cluster.tainted == set()
    assert why(cluster, 10) == {"gpu-1": SkipReason.COOLDOWN}


@pytest.mark.parametrize("rules", [PolicyConfig(), PolicyConfig(brake_rate_nodes=1)], ids=["room", "pace"])
def test_the_same_machine_that_registers_again_has_its_own_place(rules: PolicyConfig) -> None:
    cluster = Watched(fleet(5), rules)
    cluster.turn("gpu-1", seconds=0)
    cluster.delete("gpu-1")
    cluster.turn(seconds=5)
    cluster.register("gpu-1", "uid-2")

    cluster.turn("gpu-1", seconds=10)
    assert cluster.tainted == {"gpu-1"}
    cluster.delete("gpu-1")
    plan = cluster.turn("gpu-2", seconds=20)

    assert cluster.tainted == set()
    assert (plan.brake.cooling, plan.brake.deleted) == (1, 1)


def test_room_stays_empty_in_the_pool_of_the_deleted_node_alone() -> None:
    nodes = {
        name: replace(state, pool="a" if number < 5 else "b")
        for number, (name, state) in enumerate(fleet(10).items())
    }
    cluster = Watched(nodes, PolicyConfig(brake_max_percent=100, brake_pool_max_percent=20))
    cluster.turn("gpu-1", seconds=0)
    cluster.delete("gpu-1")

    cluster.turn("gpu-2", "gpu-6", seconds=10)

    assert cluster.tainted == {"gpu-6"}
    assert why(cluster, 10) == {"gpu-2": SkipReason.COOLDOWN}


def test_a_node_whose_write_was_never_answered_counts_when_it_is_deleted() -> None:
    cluster = Watched(fleet(5))
    cluster.snapshot = replace(cluster.snapshot, in_flight=frozenset({"gpu-1"}))
    cluster.look(0)
    cluster.snapshot = replace(cluster.snapshot, in_flight=frozenset())
    cluster.delete("gpu-1")

    cluster.turn("gpu-2", seconds=1)

    assert cluster.tainted == set()


@pytest.mark.parametrize(("deleted", "counts"), [(at(100), True), (at(500), False)])
def test_a_deletion_that_was_noted_by_a_clock_ahead_counts_unless_it_is_absurd(
    deleted: datetime, *, counts: bool
) -> None:
    gone = TaintedNode("gpu-9", Machine("uid-gpu-9"), at(0), None, deleted)

    brake = brake_state(fleet(5), PolicyConfig(), controls=Controls(tainted=(gone,)), now=at(10))

    assert brake.cooling == int(counts)


def test_what_can_count_no_more_is_forgotten() -> None:
    cluster = Watched(fleet(5))
    cluster.turn("gpu-1", seconds=0)
    cluster.delete("gpu-1")
    cluster.turn(seconds=10)
    assert [each.name for each in cluster.snapshot.controls.tainted] == ["gpu-1"]

    cluster.turn(seconds=10 + cluster.rules.brake_rate_window_seconds)

    assert cluster.snapshot.controls.tainted == ()


_STEPS = st.lists(
    st.tuples(st.sampled_from(["fault", "delete", "replace", "wait"]), st.integers(1, 12)),
    max_size=60,
)


@given(steps=_STEPS, percent=st.sampled_from([10, 20, 50]))
def test_no_order_of_faults_and_deletions_takes_more_than_the_bound_within_a_cool_down(
    steps: list[tuple[str, int]], percent: int
) -> None:
    cluster = Watched(fleet(12), PolicyConfig(brake_max_percent=percent))
    most = bound(12, cluster.rules)
    lost: dict[str, float] = {}
    seconds = 0.0
    for number, (what, which) in enumerate(steps):
        seconds += 100 if what == "wait" else 7
        name = f"gpu-{which}"
        if what in ("delete", "replace") and name in cluster.nodes:
            if name in cluster.tainted:
                lost[cluster.nodes[name].machine.node_uid] = seconds
            cluster.delete(name)
        if what == "replace":
            cluster.register(name, f"uid-{number}", machine=f"machine-{number}")
        before = len(cluster.tainted)
        cluster.turn(*([name] if what == "fault" and name in cluster.nodes else []), seconds=seconds)
        lately = sum(seconds - when < COOLDOWN for when in lost.values())
        if len(cluster.tainted) > before:
            assert len(cluster.tainted) + lately <= most
