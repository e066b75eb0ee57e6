"""Failures on many nodes: which node is the root cause, which are collateral, and which are tainted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konductor_like.model import Fault, IncidentState, Role, Severity, Snapshot
from tests.policy.scenes import OURS, Cluster, reset_node
from tests.policy.shared import (
    RULES,
    crash,
    failure_groups,
    gpu_fleet,
    labels,
    nccl,
    rack,
    remote,
    roles,
    xid,
)

JOB = "ml/PyTorchJob/llama"


def restarted(cluster: Cluster) -> None:
    """Replace the snapshot by that of a new process, which has only the nodes' records."""
    cluster.snapshot = Snapshot(cluster.nodes)


def test_only_the_node_of_the_failed_gpu_is_tainted_when_its_job_dies() -> None:
    cluster = gpu_fleet(70)
    lost = xid("gpu-17", 79, seconds=-0.5)

    cluster.tick(lost, *crash(64), seconds=6)

    assert cluster.tainted == {"gpu-17"}
    [group] = failure_groups(cluster)
    assert group.startswith(f"{JOB}@")
    assert roles(cluster)[Role.ROOT_CAUSE] == {"gpu-17"}
    assert roles(cluster)[Role.COLLATERAL] == {f"gpu-{n}" for n in range(1, 65)}
    assert labels(cluster) == {"faulty": 1, None: 69}


def test_nodes_of_a_dead_job_without_a_hardware_line_are_suspects_of_one_failure_group() -> None:
    cluster = gpu_fleet(70)

    cluster.tick(*crash(64), seconds=6)

    assert cluster.tainted == set()
    assert labels(cluster) == {"suspect": 64, None: 6}
    assert set(roles(cluster)) == {Role.UNCLEAR}
    assert len(failure_groups(cluster)) == 1


def test_a_root_cause_that_is_read_late_makes_the_others_collateral() -> None:
    cluster = gpu_fleet(70)
    cluster.tick(*crash(64), seconds=6)
    names = failure_groups(cluster)

    cluster.tick(xid("gpu-17", 79, seconds=-0.5), seconds=11)

    assert cluster.tainted == {"gpu-17"}
    assert labels(cluster) == {"faulty": 1, None: 69}
    assert failure_groups(cluster) == names


def test_ranks_whose_watchdog_gives_up_half_an_hour_after_the_gpu_died_are_collateral() -> None:
    cluster = gpu_fleet(9)
    cluster.tick(xid("gpu-3", 79, seconds=-1800), seconds=1)

    cluster.tick(*(nccl(f"gpu-{n}", JOB) for n in range(1, 9)), seconds=6)

    assert len(roles(cluster)[Role.COLLATERAL]) == 8
    assert {i.root_cause for s in cluster.nodes.values() for i in s.record.incidents} == {"gpu-3", None}
    assert labels(cluster) == {"faulty": 1, None: 8}


@pytest.mark.parametrize("restart", [False, True])
def test_a_failure_from_hours_ago_or_on_another_node_is_no_root_cause(restart: bool) -> None:
    cluster = gpu_fleet(9)
    cluster.tick(xid("gpu-3", 79, seconds=-3700), xid("gpu-9", 79, seconds=-60), seconds=1)
    if restart:
        restarted(cluster)

    cluster.tick(*(nccl(f"gpu-{n}", JOB) for n in range(1, 9)), seconds=6)

    assert labels(cluster) == {"faulty": 2, "suspect": 7}


def test_a_released_failure_is_no_root_cause() -> None:
    cluster = gpu_fleet(9)
    cluster.tick(xid("gpu-3", 79, seconds=-600), seconds=1)
    reset_node(cluster, "gpu-3", 2)

    cluster.tick(*(nccl(f"gpu-{n}", JOB) for n in range(1, 9)), seconds=6)

    assert set(roles(cluster)) == {Role.UNCLEAR}


def test_an_earlier_failure_in_a_rack_is_no_root_cause_of_its_link_failures() -> None:
    cluster = Cluster(rack(4), RULES)
    cluster.tick(xid("gpu-1", 79, seconds=-600), seconds=1)

    cluster.tick(*(xid(f"gpu-{n}", 149, fatal=True) for n in (1, 2, 3, 4)), seconds=2)
    cluster.tick(seconds=8)

    assert cluster.tainted == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}


def test_lines_of_a_single_node_are_no_failure_group() -> None:
    cluster = gpu_fleet(4)

    cluster.tick(nccl("gpu-1", JOB), nccl("gpu-2", "ml/Job/other"), seconds=2)

    assert failure_groups(cluster) == set()


def test_77_healthy_nodes_of_a_cancelled_job_are_not_tainted() -> None:
    cluster = gpu_fleet(100)
    cluster.nodes = {
        name: replace(state, domain=f"rack-{number % 11}")
        for number, (name, state) in enumerate(cluster.nodes.items())
    }

    cluster.tick(*(xid(f"gpu-{n}", 45, seconds=n / 40) for n in range(1, 78)), seconds=4)
    cluster.tick(seconds=60)

    assert cluster.tainted == set()
    assert len(failure_groups(cluster)) == 11


# NVLink domains.


def storm(size: int = 64, fatal: int = 6) -> list[Fault]:
    """Xid 145 on every node of a rack at once, fatal on the first ``fatal`` nodes."""
    return [xid(f"gpu-{n}", 145, seconds=n / 100, fatal=n <= fatal) for n in range(1, size + 1)]


def decide_deferred(cluster: Cluster, *faults: Fault) -> None:
    cluster.tick(*faults, seconds=2)
    assert cluster.tainted == set()
    cluster.tick(seconds=8)


def test_only_the_node_whose_link_failed_is_tainted_in_a_rack() -> None:
    cluster = Cluster(rack(64), RULES)

    decide_deferred(cluster, *storm(), xid("gpu-40", 149, seconds=0.3, fatal=True))

    assert cluster.tainted == {"gpu-40"}
    assert roles(cluster)[Role.COLLATERAL] == {f"gpu-{n}" for n in range(1, 65)}
    assert roles(cluster)[Role.ROOT_CAUSE] == {"gpu-40"}


def test_a_line_that_blames_its_peer_is_not_the_root_cause() -> None:
    cluster = Cluster(rack(4), RULES)

    decide_deferred(
        cluster,
        remote(xid("gpu-1", 149, fatal=True)),
        remote(xid("gpu-2", 149, fatal=True)),
        xid("gpu-3", 149, seconds=0.2, fatal=True),
    )

    assert cluster.tainted == {"gpu-3"}


def test_a_failed_gpu_is_the_root_cause_of_link_failures_around_it() -> None:
    cluster = Cluster(rack(20), RULES)

    cluster.tick(*storm(20), xid("gpu-9", 79, seconds=0.2), seconds=2)
    cluster.tick(seconds=8)

    assert cluster.tainted == {"gpu-9"}


def test_the_line_that_clearly_came_first_is_the_root_cause_of_equal_lines() -> None:
    cluster = Cluster(rack(8), RULES)

    decide_deferred(cluster, xid("gpu-5", 145, seconds=-1.5, fatal=True), *storm(4, fatal=4))

    assert cluster.tainted == {"gpu-5"}


def test_all_nodes_are_tainted_if_their_lines_show_no_root_cause() -> None:
    cluster = Cluster(rack(8), RULES)

    decide_deferred(cluster, *storm(4, fatal=4))

    assert cluster.tainted == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}


def test_a_single_node_is_tainted_when_its_deferral_ends() -> None:
    cluster = Cluster(rack(8), RULES)

    decide_deferred(cluster, xid("gpu-1", 145, fatal=True))

    assert cluster.tainted == {"gpu-1"}


def test_a_restart_neither_shortens_nor_loses_a_deferral() -> None:
    cluster = Cluster(rack(64), RULES)
    cluster.tick(*storm(), xid("gpu-40", 149, seconds=0.3, fatal=True), seconds=2)

    restarted(cluster)
    cluster.tick(seconds=3)
    assert cluster.tainted == set()
    cluster.tick(seconds=9)

    assert cluster.tainted == {"gpu-40"}


def test_a_collateral_node_that_fails_again_alone_is_tainted() -> None:
    cluster = Cluster(rack(8), RULES)
    decide_deferred(cluster, *storm(4, fatal=2), xid("gpu-3", 149, seconds=0.3, fatal=True))
    assert cluster.tainted == {"gpu-3"}

    cluster.tick(xid("gpu-1", 145, seconds=4000, fatal=True), seconds=4001)
    assert cluster.tainted == {"gpu-3"}
    cluster.tick(seconds=4010)

    assert cluster.tainted == {"gpu-3", "gpu-1"}


@pytest.mark.parametrize("code", [79, 95, 64])
def test_a_fatal_hardware_fault_is_never_collateral_of_its_job(code: int) -> None:
    cluster = gpu_fleet(70)

    cluster.tick(xid("gpu-17", 79, seconds=-5), *crash(64), seconds=6)
    cluster.tick(xid("gpu-20", code, seconds=7, fatal=True), seconds=8)

    assert cluster.tainted == {"gpu-17", "gpu-20"}


# Other rules in failure groups.


def test_a_changed_role_alone_is_not_written() -> None:
    cluster = gpu_fleet(4)
    cluster.tick(xid("gpu-1", 45), seconds=1)
    cluster.tick(nccl("gpu-2", JOB, seconds=2), nccl("gpu-1", JOB, seconds=2), seconds=3)
    writes = len(cluster.writes)

    for seconds in range(4, 40, 5):
        cluster.tick(seconds=seconds)

    assert len(cluster.writes) == writes


def test_lines_read_again_after_a_restart_change_nothing() -> None:
    cluster = gpu_fleet(70)
    lines = [xid("gpu-17", 79, seconds=-0.5), *crash(64)]
    cluster.tick(*lines, seconds=6)
    writes, before = len(cluster.writes), {n: s.record for n, s in cluster.nodes.items()}

    restarted(cluster)
    cluster.tick(seconds=20, past=lines)
    cluster.tick(*lines, seconds=25)

    assert len(cluster.writes) == writes
    assert {name: state.record for name, state in cluster.nodes.items()} == before


def test_a_failure_group_of_a_job_that_the_api_server_names_needs_no_pod_line() -> None:
    cluster = gpu_fleet(8)
    lines = [xid(f"gpu-{n}", 31, seconds=n / 10) for n in range(1, 7)]
    cluster.snapshot = replace(cluster.snapshot, jobs={f"gpu-{n}": frozenset({JOB}) for n in range(1, 7)})

    cluster.tick(*lines, seconds=1)

    assert len(failure_groups(cluster)) == 1
    assert len(roles(cluster)[Role.UNCLEAR]) == 6


def test_a_fault_on_a_node_that_is_already_tainted_is_not_deferred() -> None:
    cluster = Cluster(rack(4), RULES)
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=(OURS,))

    cluster.tick(xid("gpu-1", 145, fatal=True), seconds=1)

    [_, incident] = cluster.nodes["gpu-1"].record.incidents
    assert incident.state is IncidentState.ACTIVE


# Any order of arrival.


@st.composite
def evidence(draw: st.DrawFn) -> list[Fault]:
    """Two to five nodes of one rack and job, each with one to three lines within two seconds."""
    found: list[Fault] = []
    for number in range(1, draw(st.integers(2, 5)) + 1):
        for _ in range(draw(st.integers(1, 3))):
            name, seconds = f"gpu-{number}", draw(st.integers(0, 20)) / 10
            kind = draw(st.sampled_from(["145", "149", "45", "nccl", "79"]))
            if kind == "nccl":
                found.append(nccl(name, JOB, seconds=seconds))
            else:
                fatal = kind == "79" or (kind != "45" and draw(st.booleans()))
                found.append(xid(name, int(kind), seconds=seconds, fatal=fatal))
    return found


@settings(max_examples=75, deadline=None)
@given(evidence(), st.data())
def test_the_same_nodes_are_tainted_in_whatever_order_their_lines_arrive(
    lines: list[Fault], data: st.DataObject
) -> None:
    in_one_go, bit_by_bit = Cluster(rack(5), RULES), Cluster(rack(5), RULES)

    in_one_go.tick(*lines, seconds=3)
    in_one_go.tick(seconds=10)
    late = data.draw(st.sets(st.sampled_from([f"gpu-{n}" for n in range(1, 6)])))  # each log is in order
    bit_by_bit.tick(*(one for one in lines if one.node not in late), seconds=3)
    bit_by_bit.tick(*(one for one in lines if one.node in late), seconds=4)
    bit_by_bit.tick(seconds=11)

    assert in_one_go.tainted == bit_by_bit.tainted


@settings(max_examples=75, deadline=None)
@given(evidence())
def test_a_hardware_failure_always_taints_and_a_fatal_line_always_taints_some_node(
    lines: list[Fault],
) -> None:
    cluster = Cluster(rack(5), RULES)

    cluster.tick(*lines, seconds=3)
    cluster.tick(seconds=10)

    hard = {one.node for one in lines if one.finding.code == 79}
    assert hard <= cluster.tainted
    if any(one.severity is Severity.FATAL for one in lines):
        assert cluster.tainted
