"""A Node that was deleted while tainted counts for the brake during the cool-down, and for the rate."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import (
    Control,
    ControlAct,
    Controls,
    Machine,
    Plan,
    Severity,
    SkipReason,
    TaintedNode,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.brake import bound, brake_state
from konductor_like.policy.fleet.deleted_nodes import KEPT, updated_tainted_nodes
from konductor_like.policy.wording import why_held
from tests.policy.scenes import Cluster, at, fault, fleet, node, reset_node, why

COOLDOWN = 300.0


class Watched(Cluster):
    """A cluster that notes deleted Nodes around every decision, as the controller does."""

    def observe_nodes(self, seconds: float) -> None:
        """Note which Nodes exist."""
        controls = self.snapshot.controls
        tainted = updated_tainted_nodes(
            controls.tainted, self.nodes, self.rules, at(seconds), self.snapshot.in_flight
        )
        self.snapshot = replace(self.snapshot, controls=replace(controls, tainted=tainted))

    def cycle(self, *names: str, seconds: float) -> Plan:
        """Decide on an Xid 79 of each of these nodes, and note the Nodes before and after."""
        self.observe_nodes(seconds)
        plan = self.tick(*(fault(name, seconds=seconds) for name in names), seconds=seconds)
        self.observe_nodes(seconds)
        return plan

    def delete(self, *names: str) -> None:
        """Delete Nodes, as an autoscaler does."""
        for name in names:
            del self.nodes[name]

    def register(self, name: str, uid: str, *, machine: str | None = None) -> None:
        """Create a Node with this name, by default of the same machine in the same boot."""
        made = Machine(uid, machine or f"system-{name}", "boot-a" if machine is None else f"boot-{machine}")
        self.nodes[name] = replace(node(name), machine=made)

    def reset_brake(self, seconds: float) -> None:
        """``konductor-like brake reset``."""
        controls = self.snapshot.controls.with_act(ControlAct(Control.BRAKE_RESET, at(seconds), "kim"))
        self.snapshot = replace(self.snapshot, controls=controls)


def names(first: int, last: int) -> list[str]:
    return [f"gpu-{number}" for number in range(first, last + 1)]


def test_an_autoscaler_that_deletes_tainted_nodes_removes_no_more_than_the_brake_allows() -> None:
    cluster = Watched(fleet(20))
    cluster.cycle(*names(1, 20), seconds=0)
    lost = len(cluster.tainted)
    assert lost == 4
    for second in range(1, 300):
        cluster.delete(*cluster.tainted)
        cluster.cycle(seconds=second)
        lost += len(cluster.tainted)

    assert lost == 4
    assert set(why(cluster, 299).values()) == {SkipReason.COOLDOWN}
    plan = cluster.cycle(seconds=1 + COOLDOWN)
    assert len(cluster.tainted) == 3  # 20 % of the 16 nodes that are left
    assert (plan.brake.cooling, plan.brake.deleted, plan.brake.rearms_at) == (0, 0, None)


def test_an_autoscaler_that_deletes_nodes_before_the_brake_held_one_removes_no_more_either() -> None:
    cluster = Watched(fleet(20))
    lost = 0
    for second, name in enumerate(names(1, 20)):
        cluster.cycle(name, seconds=10 * second)
        lost += len(cluster.tainted)
        cluster.delete(*cluster.tainted)
        cluster.cycle(seconds=10 * second + 1)

    assert lost == 3  # 20 % of the 17 nodes that are left
    assert set(why(cluster, 200).values()) == {SkipReason.COOLDOWN}


def test_the_reason_of_a_cool_down_names_released_and_deleted_nodes() -> None:
    cluster = Watched(fleet(10))
    cluster.cycle(*names(1, 3), seconds=0)
    cluster.delete("gpu-1")
    reset_node(cluster, "gpu-2", 1)

    brake = cluster.cycle(seconds=2).brake

    assert (brake.cooling, brake.deleted) == (2, 1)
    assert why_held(SkipReason.COOLDOWN, brake) == (
        "the brake's cool-down ends at 2026-03-04T12:05:02Z, or later if more nodes are deleted "
        "(1 released and 1 deleted while tainted)"
    )


def test_a_node_released_before_it_was_deleted_does_not_count() -> None:
    cluster = Watched(fleet(10))
    cluster.cycle("gpu-1", seconds=0)
    reset_node(cluster, "gpu-1", 10)
    cluster.cycle(seconds=11)
    cluster.delete("gpu-1")

    plan = cluster.cycle("gpu-2", seconds=20)

    assert plan.brake.cooling == 0
    assert cluster.tainted == {"gpu-2"}


def test_a_deleted_node_still_counts_for_the_rate() -> None:
    cluster = Watched(fleet(20), PolicyConfig(brake_rate_nodes=1))
    cluster.cycle("gpu-1", seconds=0)
    cluster.delete("gpu-1")

    cluster.cycle("gpu-2", seconds=COOLDOWN + 1)
    assert cluster.tainted == set()
    assert why(cluster, COOLDOWN + 1) == {"gpu-2": SkipReason.RATE}
    cluster.cycle(seconds=3599)
    assert cluster.tainted == set()
    cluster.cycle(seconds=3600)

    assert cluster.tainted == {"gpu-2"}


def test_a_deleted_node_does_not_count_after_a_brake_reset() -> None:
    cluster = Watched(fleet(5), PolicyConfig(brake_rate_nodes=1))
    cluster.cycle("gpu-1", "gpu-2", seconds=0)
    cluster.delete("gpu-1")
    cluster.cycle(seconds=10)
    assert cluster.tainted == set()
    cluster.reset_brake(11)

    cluster.cycle(seconds=12)

    assert cluster.tainted == {"gpu-2"}


def test_a_node_deleted_after_a_brake_reset_still_counts() -> None:
    cluster = Watched(fleet(5))
    cluster.cycle("gpu-1", "gpu-2", seconds=0)
    cluster.reset_brake(5)
    cluster.delete("gpu-1")

    cluster.cycle(seconds=10)

    assert why(cluster, 10) == {"gpu-2": SkipReason.COOLDOWN}


def test_a_deleted_node_still_counts_if_another_machine_takes_its_name() -> None:
    cluster = Watched(fleet(5))
    cluster.cycle("gpu-1", seconds=0)
    cluster.delete("gpu-1")
    cluster.register("gpu-1", "uid-2", machine="another")  # between two observations

    cluster.cycle("gpu-1", seconds=10)

    assert cluster.tainted == set()
    assert why(cluster, 10) == {"gpu-1": SkipReason.COOLDOWN}


@pytest.mark.parametrize("rules", [PolicyConfig(), PolicyConfig(brake_rate_nodes=1)], ids=["bound", "rate"])
def test_a_machine_that_registers_again_is_counted_once(rules: PolicyConfig) -> None:
    cluster = Watched(fleet(5), rules)
    cluster.cycle("gpu-1", seconds=0)
    cluster.delete("gpu-1")
    cluster.cycle(seconds=5)
    cluster.register("gpu-1", "uid-2")

    cluster.cycle("gpu-1", seconds=10)
    assert cluster.tainted == {"gpu-1"}
    cluster.delete("gpu-1")
    plan = cluster.cycle("gpu-2", seconds=20)

    assert cluster.tainted == set()
    assert (plan.brake.cooling, plan.brake.deleted) == (1, 1)


def test_a_machine_whose_second_taint_had_no_answer_is_counted_once() -> None:
    cluster = Watched(fleet(5))
    cluster.cycle("gpu-1", seconds=0)
    cluster.delete("gpu-1")
    cluster.cycle(seconds=5)
    cluster.register("gpu-1", "uid-2")
    cluster.snapshot = replace(cluster.snapshot, in_flight=frozenset({"gpu-1"}))
    cluster.observe_nodes(10)
    cluster.snapshot = replace(cluster.snapshot, in_flight=frozenset())
    cluster.delete("gpu-1")

    assert cluster.cycle(seconds=20).brake.deleted == 1


def test_a_deleted_node_counts_in_its_own_pool_only() -> None:
    nodes = {
        name: replace(state, pool="a" if number < 5 else "b")
        for number, (name, state) in enumerate(fleet(10).items())
    }
    cluster = Watched(nodes, PolicyConfig(brake_max_percent=100, brake_pool_max_percent=20))
    cluster.cycle("gpu-1", seconds=0)
    cluster.delete("gpu-1")

    cluster.cycle("gpu-2", "gpu-6", seconds=10)

    assert cluster.tainted == {"gpu-6"}
    assert why(cluster, 10) == {"gpu-2": SkipReason.COOLDOWN}


def test_a_node_with_an_unanswered_write_counts_when_it_is_deleted() -> None:
    cluster = Watched(fleet(5))
    cluster.snapshot = replace(cluster.snapshot, in_flight=frozenset({"gpu-1"}))
    cluster.observe_nodes(0)
    cluster.snapshot = replace(cluster.snapshot, in_flight=frozenset())
    cluster.delete("gpu-1")

    cluster.cycle("gpu-2", seconds=1)

    assert cluster.tainted == set()


@pytest.mark.parametrize(("deleted", "counts"), [(at(100), True), (at(500), False)])
def test_a_deletion_noted_by_a_clock_ahead_counts_up_to_the_length_of_a_cool_down(
    deleted: datetime, *, counts: bool
) -> None:
    gone = TaintedNode("gpu-9", Machine("uid-gpu-9"), at(0), None, deleted)

    brake = brake_state(fleet(5), PolicyConfig(), controls=Controls(tainted=(gone,)), now=at(10))

    assert brake.cooling == int(counts)


@pytest.mark.parametrize("rule", ["xid.79", "xid.14"])
def test_a_deleted_node_is_forgotten_later_and_after_a_mere_test_when_the_brake_counts_it_no_more(
    rule: str,
) -> None:
    cluster = Watched(fleet(5))
    severity = Severity.TEST if rule == "xid.14" else Severity.FATAL
    cluster.tick(fault("gpu-1", rule=rule, severity=severity), seconds=0)
    cluster.observe_nodes(0)
    cluster.delete("gpu-1")
    kept = KEPT.total_seconds() if rule == "xid.79" else cluster.rules.brake_rate_window_seconds
    for seconds in (10, 9 + kept):
        cluster.cycle(seconds=seconds)
        assert [each.name for each in cluster.snapshot.controls.tainted] == ["gpu-1"]

    cluster.cycle(seconds=10 + kept)

    assert cluster.snapshot.controls.tainted == ()


_STEPS = st.lists(
    st.tuples(st.sampled_from(["fault", "delete", "replace", "wait"]), st.integers(1, 12)),
    max_size=60,
)


@given(steps=_STEPS, percent=st.sampled_from([10, 20, 50]))
def test_no_order_of_faults_and_deletions_exceeds_the_bound_within_a_cool_down(
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
        cluster.cycle(*([name] if what == "fault" and name in cluster.nodes else []), seconds=seconds)
        lately = sum(seconds - when < COOLDOWN for when in lost.values())
        if len(cluster.tainted) > before:
            assert len(cluster.tainted) + lately <= most
