"""The brake: it never exceeds its bound, never stops a release, and taints held nodes when it can."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import EventReason, Fault, IncidentState, NodeState, Severity, Source, Verb
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.brake import bound, brake_state
from konductor_like.policy.node.release import release
from tests.policy.scenes import Cluster, at, fault, fleet, node, reset_node


@pytest.mark.parametrize(
    ("gpu_nodes", "percent", "cap", "expected"),
    [
        pytest.param(0, 20, None, 1, id="floor of one on an empty fleet"),
        pytest.param(3, 20, None, 1, id="floor of one on a small fleet"),
        pytest.param(10, 20, None, 2, id="percent"),
        pytest.param(14, 20, None, 2, id="rounds down"),
        pytest.param(10, 100, None, 10, id="everything"),
        pytest.param(100, 20, 5, 5, id="absolute cap"),
        pytest.param(100, 0, None, 1, id="zero percent still allows one"),
        pytest.param(100, 20, 0, 0, id="a cap of zero holds everything"),
    ],
)
def test_the_bound(gpu_nodes: int, percent: float, cap: int | None, expected: int) -> None:
    assert bound(gpu_nodes, PolicyConfig(brake_max_percent=percent, brake_max_nodes=cap)) == expected


def test_faults_beyond_the_brakes_bound_are_held_and_logged() -> None:
    cluster = Cluster(fleet(10))

    plan = cluster.tick(*(fault(f"gpu-{i}", seconds=i) for i in range(1, 5)), seconds=10)

    assert cluster.tainted == {"gpu-1", "gpu-2"}
    assert [held.node for held in plan.brake.held] == ["gpu-3", "gpu-4"]
    held = [change for change in plan.changes if change.event is EventReason.HELD]
    assert {change.health for change in held} == {"held"}
    assert "the limit is 2" in held[0].message
    assert brake_state(cluster.nodes, cluster.rules, now=at(10)).held == plan.brake.held


def test_a_held_taint_causes_no_further_write() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1))
    writes = len(cluster.writes)

    cluster.tick(seconds=5)

    assert len(cluster.writes) == writes


def test_the_oldest_held_node_is_tainted_after_a_release() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), fault("gpu-3", seconds=2), fault("gpu-2", seconds=1))
    assert cluster.tainted == {"gpu-1"}

    reset_node(cluster, "gpu-1", 60)
    cluster.tick(seconds=60 + cluster.rules.brake_cooldown_seconds)

    assert cluster.tainted == {"gpu-2"}


_CPU_NODES = {f"cpu-{i}": node(f"cpu-{i}", gpu=False) for i in range(100)}


@pytest.mark.parametrize(
    ("nodes", "unwritable", "faults", "tainted"),
    [
        pytest.param(
            fleet(3) | {"gpu-1": node(gpu=False)}, (), [fault("gpu-1")], "gpu-1", id="a lone dead GPU"
        ),
        pytest.param(
            fleet(5) | _CPU_NODES,
            (),
            [fault("gpu-1"), fault("gpu-2", seconds=1)],
            "gpu-1",
            id="CPU nodes raise no bound",
        ),
        pytest.param(
            fleet(5),
            ("gpu-1",),
            [fault("gpu-1"), fault("gpu-2", seconds=1)],
            "gpu-2",
            id="a node that cannot be tainted does not count",
        ),
        pytest.param(
            fleet(5),
            (),
            [fault("gpu-1", rule="xid.14", severity=Severity.TEST), fault("gpu-2", seconds=9)],
            "gpu-2",
            id="a fatal fault is tainted before an earlier test fault",
        ),
    ],
)
def test_the_one_node_that_may_be_tainted(
    nodes: dict[str, NodeState], unwritable: tuple[str, ...], faults: list[Fault], tainted: str
) -> None:
    cluster = Cluster(nodes)
    cluster.snapshot = replace(cluster.snapshot, unwritable=frozenset(unwritable))

    cluster.tick(*faults)

    assert cluster.tainted == {tainted}


def test_a_node_with_an_unanswered_write_counts_as_tainted() -> None:
    cluster = Cluster(fleet(5))
    cluster.snapshot = replace(cluster.snapshot, in_flight=frozenset({"gpu-5"}))

    cluster.tick(fault("gpu-1"))

    assert cluster.tainted == set()
    assert cluster.nodes["gpu-1"].record.incidents[0].state is IncidentState.HELD


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fault", "release", "untaint", "reboot", "tick"]),
        st.integers(1, 12),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(steps=_STEPS, percent=st.integers(0, 100), cap=st.none() | st.integers(0, 12))
def test_no_order_of_faults_and_releases_exceeds_the_bound_or_stops_a_release(
    steps: list[tuple[str, int, int]], percent: int, cap: int | None
) -> None:
    cluster = Cluster(fleet(12), PolicyConfig(brake_max_percent=percent, brake_max_nodes=cap))
    limit = bound(12, cluster.rules)
    for second, (what, number, gpu) in enumerate(steps, start=1):
        name = f"gpu-{number}"
        if what == "fault":
            device = f"0000:{gpu:02x}:00"
            cluster.tick(fault(name, gpu=device, stamp=second, seconds=second), seconds=second)
        elif what == "release":
            change = release(
                cluster.nodes[name],
                at=at(second),
                by="ann",
                reason="",
                read_ns={Source.KERNEL: 0},
            )
            if change is not None:
                cluster.apply(change)
            assert name not in cluster.tainted
        elif what == "untaint":
            cluster.untaint_by_hand(name)
        elif what == "reboot":
            cluster.reboot(name, f"boot-{second}")
        cluster.tick(seconds=second)
        assert len(cluster.tainted) <= limit
        for state in cluster.nodes.values():
            assert state.tainted == (state.record.life.tainted_at is not None)
    writes = len(cluster.writes)
    cluster.tick(seconds=len(steps))
    assert len(cluster.writes) == writes


def test_a_plan_lists_taints_before_other_changes() -> None:
    cluster = Cluster(fleet(10))

    plan = cluster.tick(
        fault("gpu-9", severity=Severity.SUSPECT), fault("gpu-8", seconds=5), fault("gpu-7", seconds=4)
    )

    assert [change.node for change in plan.changes] == ["gpu-7", "gpu-8", "gpu-9"]
    assert [change.verb for change in plan.changes] == [Verb.TAINT, Verb.TAINT, Verb.RECORD]


def test_a_taint_after_a_hold_does_not_show_the_line_of_another_fault() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1))
    reset_node(cluster, "gpu-1", 60)

    plan = cluster.tick(fault("gpu-2", rule="xid.63", severity=Severity.SUSPECT, seconds=361), seconds=362)

    [change] = [change for change in plan.changes if change.verb is Verb.TAINT]
    assert change.evidence is None
    assert [news.key.rule for news in change.news] == ["xid.63"]
    assert "xid 79" in change.message
