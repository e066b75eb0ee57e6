"""Further bounds of the brake: pools, nodes that are out of service for other reasons, and the rate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import (
    Control,
    ControlAct,
    Controls,
    EventReason,
    Fault,
    Life,
    NodeRecord,
    NodeState,
    PoolBrake,
    Quarantine,
    ReleaseHow,
    Severity,
    SkipReason,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.health import only_tests
from tests.policy.scenes import Cluster, at, fault, fleet, node, ns, reset_node, why

HOUR = 3600.0


def pools(**sizes: int) -> dict[str, NodeState]:
    """GPU nodes ``<pool>-1`` and so on."""
    return {
        f"{pool}-{i}": replace(node(f"{pool}-{i}"), pool=pool)
        for pool, size in sizes.items()
        for i in range(1, size + 1)
    }


def test_a_full_pool_holds_its_own_nodes_and_no_others() -> None:
    cluster = Cluster(pools(a=10, b=10), PolicyConfig(brake_max_percent=50, brake_pool_max_percent=20))

    plan = cluster.tick(*(fault(f"a-{i}", seconds=i) for i in range(1, 5)), fault("b-1", seconds=9))

    assert cluster.tainted == {"a-1", "a-2", "b-1"}
    assert plan.brake.pools == (PoolBrake("a", 10, 2, 2), PoolBrake("b", 10, 1, 2))
    held = [change for change in plan.changes if change.event is EventReason.HELD]
    assert "2 of 10 GPU nodes of pool a are out of service, the limit is 2" in held[0].message
    assert why(cluster) == {"a-3": SkipReason.BRAKE, "a-4": SkipReason.BRAKE}


def cordoned(state: NodeState) -> NodeState:
    return replace(state, unschedulable=True)


_ASKED = PolicyConfig(brake_count_unavailable=True)


@pytest.mark.parametrize(
    ("nodes", "rules", "faulty", "tainted"),
    [
        pytest.param(
            pools(a=5, b=5, c=5),
            PolicyConfig(brake_max_percent=20, brake_pool_max_percent=100),
            ["a-1", "a-2", "b-1", "b-2", "c-1", "c-2"],
            {"a-1", "a-2", "b-1"},
            id="the fleet's bound is above the pools'",
        ),
        pytest.param(
            pools(**{f"p{i}": 1 for i in range(100)}),
            PolicyConfig(brake_pool_max_percent=20),
            [f"p{i}-1" for i in range(100)],
            {f"p{i}-1" for i in range(20)},
            id="each pool allows one node, and all pools together the fleet's bound",
        ),
        pytest.param(
            pools(a=3),
            PolicyConfig(brake_max_nodes=0, brake_pool_max_percent=50),
            ["a-1"],
            set(),
            id="a cap of zero holds the first of a pool too",
        ),
        pytest.param(
            fleet(10),
            PolicyConfig(brake_pool_max_percent=0),
            ["gpu-1", "gpu-2", "gpu-3", "gpu-4"],
            {"gpu-1", "gpu-2"},
            id="without a pool only the fleet's bound applies",
        ),
        pytest.param(
            fleet(10) | {name: cordoned(node(name)) for name in ("gpu-8", "gpu-9", "gpu-10")},
            _ASKED,
            ["gpu-1", "gpu-8", "gpu-9", "gpu-10"],
            {"gpu-8", "gpu-9"},
            id="a node that is out of service already is not counted twice",
        ),
    ],
)
def test_the_bounds_allow_these_nodes(
    nodes: dict[str, NodeState], rules: PolicyConfig, faulty: list[str], tainted: set[str]
) -> None:
    cluster = Cluster(nodes, rules)

    cluster.tick(*(fault(name, seconds=number) for number, name in enumerate(faulty)))

    assert cluster.tainted == tainted


def test_nodes_out_of_service_for_other_reasons_count_only_if_configured() -> None:
    nodes = fleet(10)
    nodes |= {"gpu-9": cordoned(nodes["gpu-9"]), "gpu-10": replace(nodes["gpu-10"], ready=False)}
    indifferent, asked = Cluster(nodes), Cluster(nodes, PolicyConfig(brake_count_unavailable=True))

    indifferent.tick(fault("gpu-1"))
    plan = asked.tick(fault("gpu-1"))

    assert (indifferent.tainted, asked.tainted) == ({"gpu-1"}, set())
    assert plan.brake.unavailable == 2
    assert "0 of 10 GPU nodes are out of service and 2 unavailable, the limit is 2" in plan.changes[0].message


@pytest.mark.parametrize(("seconds", "away"), [(1700, 0), (1800, 10)])
def test_nodes_that_are_not_ready_count_half_an_hour_after_they_joined(seconds: float, away: int) -> None:
    joining = {f"new-{i}": replace(node(f"new-{i}"), ready=False, created_ns=ns(-60)) for i in range(10)}
    cluster = Cluster(fleet(5) | joining, PolicyConfig(brake_count_unavailable=True))

    plan = cluster.tick(fault("gpu-1"), seconds=seconds)

    assert (plan.brake.gpu_nodes, plan.brake.unavailable) == (15, away)
    assert cluster.tainted == (set() if away else {"gpu-1"})


@pytest.mark.parametrize(("in_flight", "tainted"), [("gpu-1", {"gpu-1", "gpu-2"}), ("gpu-9", {"gpu-1"})])
def test_a_taint_without_an_answer_counts_for_the_rate_once(in_flight: str, tainted: set[str]) -> None:
    cluster = Cluster(fleet(100), PolicyConfig(brake_rate_nodes=2))
    cluster.snapshot = replace(cluster.snapshot, in_flight=frozenset({in_flight}))

    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1), seconds=2)

    assert cluster.tainted == tainted


def test_the_rate_limits_the_nodes_tainted_within_its_span() -> None:
    cluster = Cluster(fleet(100), PolicyConfig(brake_rate_nodes=2, brake_rate_window_seconds=HOUR))

    plan = cluster.tick(*(fault(f"gpu-{i}", seconds=i) for i in range(1, 5)), seconds=10)

    assert cluster.tainted == {"gpu-1", "gpu-2"}
    assert why(cluster, 10) == {"gpu-3": SkipReason.RATE, "gpu-4": SkipReason.RATE}
    held = [change for change in plan.changes if change.event is EventReason.HELD]
    assert "rate limit: 2 taints within 1h, at most 2" in held[0].message


def test_a_node_that_the_rate_held_is_tainted_when_its_span_has_passed() -> None:
    cluster = Cluster(fleet(100), PolicyConfig(brake_rate_nodes=1, brake_rate_window_seconds=HOUR))
    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1), seconds=10)

    cluster.tick(seconds=10 + HOUR - 1)
    assert cluster.tainted == {"gpu-1"}
    cluster.tick(seconds=10 + HOUR)

    assert cluster.tainted == {"gpu-1", "gpu-2"}


def test_taints_with_a_time_in_the_future_do_not_count_for_the_rate() -> None:
    cluster = Cluster(fleet(100), PolicyConfig(brake_rate_nodes=1, brake_rate_window_seconds=HOUR))
    cluster.tick(fault("gpu-1"), seconds=10 * 24 * HOUR)

    cluster.tick(fault("gpu-2", seconds=1), seconds=2)

    assert cluster.tainted == {"gpu-1", "gpu-2"}


def with_times_out(name: str, *seconds: float) -> NodeState:
    """A node whose record says that it was tainted at these times, as its own kubelet may write."""
    times = (Quarantine(at(each), at(each + 1), "xid.79", ReleaseHow.RESET) for each in seconds)
    return replace(node(name), record=NodeRecord(life=Life(quarantines=tuple(times))))


@pytest.mark.parametrize(
    "seconds", [range(-10, 0), [HOUR - 60] * 10, range(-4, 6)], ids=["past", "ahead", "both"]
)
def test_the_record_of_one_node_uses_up_one_taint_of_the_rate(seconds: Iterable[float]) -> None:
    nodes = fleet(100) | {"gpu-9": with_times_out("gpu-9", *seconds)}
    cluster = Cluster(nodes, PolicyConfig(brake_rate_nodes=2))

    cluster.tick(fault("gpu-1"), fault("gpu-2", seconds=1), seconds=1)

    assert cluster.tainted == {"gpu-1"}


def test_a_brake_reset_ends_what_a_taint_in_the_future_uses_up_of_the_rate() -> None:
    nodes = fleet(100) | {"gpu-9": with_times_out("gpu-9", HOUR - 60)}
    cluster = Cluster(nodes, PolicyConfig(brake_rate_nodes=1))
    cluster.tick(fault("gpu-1"))
    assert cluster.tainted == set()

    reset = ControlAct(Control.BRAKE_RESET, at(1), "kim")
    cluster.snapshot = replace(cluster.snapshot, controls=Controls((reset,)))
    cluster.tick(seconds=2)

    assert cluster.tainted == {"gpu-1"}


def test_a_released_node_still_counts_for_the_rate() -> None:
    cluster = Cluster(fleet(100), PolicyConfig(brake_rate_nodes=1, brake_cooldown_seconds=0))
    cluster.tick(fault("gpu-1"))
    reset_node(cluster, "gpu-1", 60)

    cluster.tick(fault("gpu-2", seconds=61), seconds=61)

    assert why(cluster, 61) == {"gpu-2": SkipReason.RATE}


def test_a_brake_reset_restarts_the_rate_but_changes_no_bound() -> None:
    cluster = Cluster(fleet(10), PolicyConfig(brake_rate_nodes=1))
    cluster.tick(*(fault(f"gpu-{i}", seconds=i) for i in range(1, 5)), seconds=10)
    cluster.snapshot = replace(
        cluster.snapshot, controls=Controls((ControlAct(Control.BRAKE_RESET, at(20), "kim"),))
    )

    cluster.tick(seconds=21)
    assert cluster.tainted == {"gpu-1", "gpu-2"}
    cluster.snapshot = replace(
        cluster.snapshot, controls=Controls((ControlAct(Control.BRAKE_RESET, at(30), "kim"),))
    )
    cluster.tick(seconds=31)

    assert cluster.tainted == {"gpu-1", "gpu-2"}
    assert set(why(cluster, 31).values()) == {SkipReason.BRAKE}


def a_test(name: str, seconds: float = 0) -> Fault:
    return fault(name, rule="xid.14", severity=Severity.TEST, seconds=seconds)


@pytest.mark.parametrize(
    "rules",
    [
        PolicyConfig(),
        PolicyConfig(brake_max_percent=100, brake_rate_nodes=2),
        PolicyConfig(brake_max_percent=100, brake_pool_max_percent=20),
    ],
    ids=["limit", "rate", "pool"],
)
def test_tests_keep_no_fault_waiting_and_tests_and_faults_keep_tests_waiting(rules: PolicyConfig) -> None:
    cluster = Cluster(pools(a=10), rules)
    cluster.tick(*(a_test(f"a-{n}", seconds=n) for n in range(1, 4)), seconds=4)
    assert cluster.tainted == {"a-1", "a-2"}

    cluster.tick(*(fault(f"a-{n}", seconds=n) for n in range(5, 8)), seconds=8)
    assert cluster.tainted == {"a-1", "a-2", "a-5", "a-6"}
    for name in ("a-1", "a-2"):
        reset_node(cluster, name, 9)
    plan = cluster.tick(seconds=9)

    assert cluster.tainted == {"a-5", "a-6"}
    assert {held.node: held.is_test for held in plan.brake.held} == {"a-3": True, "a-7": False}


def test_a_held_fault_is_told_that_the_tests_do_not_count() -> None:
    cluster = Cluster(fleet(10))
    cluster.tick(a_test("gpu-1"), seconds=1)

    plan = cluster.tick(*(fault(f"gpu-{n}", seconds=n) for n in (2, 3, 4)), seconds=5)

    assert (plan.brake.out, plan.brake.tests) == (3, 1)
    [held] = [change for change in plan.changes if change.event is EventReason.HELD]
    assert "3 of 10 GPU nodes are out of service (1 for a test), the limit is 2" in held.message


@pytest.mark.parametrize(("size", "limit"), [(3, "1 of 3 GPU nodes of pool a"), (9, "2 of 10 GPU nodes are")])
def test_a_held_test_is_told_which_limit_holds_it(size: int, limit: str) -> None:
    cluster = Cluster(pools(a=size, b=10 - size), PolicyConfig(brake_pool_max_percent=34))
    cluster.tick(a_test("a-1"), *([] if size == 3 else [a_test("a-2")]), seconds=1)

    plan = cluster.tick(a_test("a-3", seconds=2), seconds=3)

    [held] = [change for change in plan.changes if change.event is EventReason.HELD]
    assert limit in held.message


def test_a_fault_that_the_fleets_limit_holds_is_not_told_of_a_pool_that_only_a_test_fills() -> None:
    cluster = Cluster(pools(a=3, b=7), PolicyConfig(brake_pool_max_percent=34))
    cluster.tick(a_test("a-1"), seconds=1)
    cluster.tick(fault("b-1", seconds=2), fault("b-2", seconds=2), seconds=3)
    assert cluster.tainted == {"a-1", "b-1", "b-2"}

    plan = cluster.tick(fault("a-2", seconds=4), seconds=5)

    [held] = [change for change in plan.changes if change.event is EventReason.HELD]
    assert "3 of 10 GPU nodes are out of service (1 for a test), the limit is 2" in held.message


def test_an_escalated_suspicion_is_more_urgent_than_an_older_test() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(a_test("gpu-1"), fault("gpu-1", rule="xid.63", severity=Severity.SUSPECT, seconds=9))
    test, suspicion = cluster.nodes["gpu-1"].record.incidents
    escalated = replace(suspicion, escalated_because="3 in an hour")

    assert min(test, escalated, key=lambda incident: incident.urgency) == escalated


def test_a_node_that_fails_during_its_test_takes_the_place_of_a_fault() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(a_test("gpu-1"), seconds=1)
    cluster.tick(fault("gpu-1", seconds=2), seconds=3)

    cluster.tick(fault("gpu-2", seconds=4), seconds=5)

    assert cluster.tainted == {"gpu-1"}
    assert why(cluster, 5) == {"gpu-2": SkipReason.BRAKE}


_FAULTS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from("ab"), st.sampled_from(["fatal", "test"])), max_size=20
)


@given(
    arrivals=st.lists(_FAULTS, max_size=5),
    percent=st.integers(0, 100),
    pool_percent=st.none() | st.integers(0, 100),
    rate=st.none() | st.integers(0, 6),
    asked=st.booleans(),
    away=st.sets(st.tuples(st.sampled_from("ab"), st.integers(1, 6))),
)
def test_no_order_of_arrival_exceeds_a_bound(
    arrivals: list[list[tuple[int, str, str]]],
    percent: int,
    pool_percent: int | None,
    rate: int | None,
    asked: bool,
    away: set[tuple[str, int]],
) -> None:
    nodes = pools(a=6, b=6)
    nodes |= {name: cordoned(nodes[name]) for name in (f"{pool}-{i}" for pool, i in away)}
    rules = PolicyConfig(percent, None, pool_percent, rate, brake_count_unavailable=asked)
    cluster = Cluster(nodes, rules)
    for second, arrival in enumerate(arrivals):
        before = cluster.tainted
        plan = cluster.tick(
            *(fault(f"{pool}-{i}", seconds=second, severity=Severity(how)) for i, pool, how in arrival),
            seconds=second,
        )

        tested = {name for name in cluster.tainted if only_tests(cluster.nodes[name].record)}
        tests = {name for name in tested if not (asked and nodes[name].unschedulable)}
        assert (plan.brake.out, plan.brake.tests) == (len(cluster.tainted), len(tests))
        # A fault counts against the faults, and a test against all.
        for out, fresh in (
            (cluster.tainted - tests, cluster.tainted - tests - before),
            (cluster.tainted, tests - before),
        ):
            assert not fresh or len(out) <= plan.brake.bound
            for pool in plan.brake.pools:
                of_pool = {name for name in out if name.startswith(pool.pool)}
                assert not fresh & of_pool or len(of_pool) <= pool.bound
            if asked and not all(nodes[name].unschedulable for name in fresh):
                out = out | {name for name, state in nodes.items() if state.unschedulable}
                assert len(out) <= plan.brake.bound
        fresh = cluster.tainted - before
        assert rate is None or fresh <= tested or len(cluster.tainted - tested) <= rate
        assert rate is None or fresh.isdisjoint(tested) or len(cluster.tainted) <= rate
        taints = {change.node for change in plan.changes if change.verb is Verb.TAINT}
        assert taints.isdisjoint(held.node for held in plan.brake.held)


@given(
    arrival=_FAULTS,
    percent=st.integers(0, 99),
    more=st.integers(1, 100),
    pool_percent=st.integers(0, 100),
    rate=st.none() | st.integers(0, 6),
)
def test_a_higher_bound_never_taints_fewer_nodes(
    arrival: list[tuple[int, str, str]], percent: int, more: int, pool_percent: int, rate: int | None
) -> None:
    faults = [fault(f"{pool}-{i}", severity=Severity(how)) for i, pool, how in arrival]

    def out(rules: PolicyConfig) -> int:
        cluster = Cluster(pools(a=6, b=6), rules)
        cluster.tick(*faults)
        return len(cluster.tainted)

    base = PolicyConfig(percent, None, pool_percent, rate)
    higher = [
        replace(base, brake_max_percent=percent + more),
        replace(base, brake_pool_max_percent=pool_percent + more),
        replace(base, brake_pool_max_percent=None),
        replace(base, brake_rate_nodes=None if rate is None else rate + more),
    ]
    assert all(out(rules) >= out(base) for rules in higher)
