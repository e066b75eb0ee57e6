"""One event on many nodes: who is the origin, who only fell with it, and who is tainted in the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from konductor_like.model import Fault, IncidentState, Role, Severity, Snapshot
from tests.policy.scenes import OURS, Cluster, let_go
from tests.policy.shared import RULES, crash, events, gpu_fleet, labels, nccl, rack, remote, roles, xid

JOB = "ml/PyTorchJob/llama"


def restarted(cluster: Cluster) -> None:
    """A new process knows what the nodes say, and nothing else."""
    cluster.snapshot = Snapshot(cluster.nodes)


def test_of_a_job_that_died_with_a_gpu_only_the_gpus_node_is_tainted() -> None:
    cluster = gpu_fleet(70)
    lost = xid("gpu-17", 79, seconds=-0.5)

    cluster.tick(lost, *crash(64), seconds=6)

    assert cluster.tainted == {"gpu-17"}
    [group] = events(cluster)
    assert group.startswith(f"{JOB}@")
    assert roles(cluster)[Role.ROOT_CAUSE] == {"gpu-17"}
    assert roles(cluster)[Role.COLLATERAL] == {f"gpu-{n}" for n in range(1, 65)}
    assert labels(cluster) == {"faulty": 1, None: 69}


def test_with_no_hardware_line_nobody_is_tainted_and_all_are_suspect_in_one_event() -> None:
    cluster = gpu_fleet(70)

    cluster.tick(*crash(64), seconds=6)

    assert cluster.tainted == set()
    assert labels(cluster) == {"suspect": 64, None: 6}
    assert set(roles(cluster)) == {Role.UNCLEAR}
    assert len(events(cluster)) == 1


def test_an_origin_that_is_read_late_clears_the_others() -> None:
    cluster = gpu_fleet(70)
    cluster.tick(*crash(64), seconds=6)
    names = events(cluster)

    cluster.tick(xid("gpu-17", 79, seconds=-0.5), seconds=11)

    assert cluster.tainted == {"gpu-17"}
    assert labels(cluster) == {"faulty": 1, None: 69}
    assert events(cluster) == names


def test_ranks_whose_watchdog_gives_up_half_an_hour_after_the_gpu_died_are_collateral() -> None:
    cluster = gpu_fleet(9)
    cluster.tick(xid("gpu-3", 79, seconds=-1800), seconds=1)

    cluster.tick(*(nccl(f"gpu-{n}", JOB) for n in range(1, 9)), seconds=6)

    assert len(roles(cluster)[Role.COLLATERAL]) == 8
    assert {i.root_cause for s in cluster.nodes.values() for i in s.record.incidents} == {"gpu-3", None}
    assert labels(cluster) == {"faulty": 1, None: 8}


@pytest.mark.parametrize("restart", [False, True])
def test_what_failed_hours_ago_or_on_a_node_that_takes_no_part_explains_nothing(restart: bool) -> None:
    cluster = gpu_fleet(9)
    cluster.tick(xid("gpu-3", 79, seconds=-3700), xid("gpu-9", 79, seconds=-60), seconds=1)
    if restart:
        restarted(cluster)

    cluster.tick(*(nccl(f"gpu-{n}", JOB) for n in range(1, 9)), seconds=6)

    assert labels(cluster) == {"faulty": 2, "suspect": 7}


def test_what_was_released_since_explains_nothing() -> None:
    cluster = gpu_fleet(9)
    cluster.tick(xid("gpu-3", 79, seconds=-600), seconds=1)
    let_go(cluster, "gpu-3", 2)

    cluster.tick(*(nccl(f"gpu-{n}", JOB) for n in range(1, 9)), seconds=6)

    assert set(roles(cluster)) == {Role.UNCLEAR}


def test_a_rack_whose_links_all_fail_is_not_explained_by_what_failed_there_before() -> None:
    cluster = Cluster(rack(4), RULES)
    cluster.tick(xid("gpu-1", 79, seconds=-600), seconds=1)

    cluster.tick(*(xid(f"gpu-{n}", 149, fatal=True) for n in (1, 2, 3, 4)), seconds=2)
    cluster.tick(seconds=8)

    assert cluster.tainted == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}


def test_what_one_node_says_alone_is_no_event() -> None:
    cluster = gpu_fleet(4)

    cluster.tick(nccl("gpu-1", JOB), nccl("gpu-2", "ml/Job/other"), seconds=2)

    assert events(cluster) == set()


def test_seventy_seven_healthy_nodes_of_a_cancelled_job_are_left_alone() -> None:
    cluster = gpu_fleet(100)
    cluster.nodes = {
        name: replace(state, domain=f"rack-{number % 11}")
        for number, (name, state) in enumerate(cluster.nodes.items())
    }

    cluster.tick(*(xid(f"gpu-{n}", 45, seconds=n / 40) for n in range(1, 78)), seconds=4)
    cluster.tick(seconds=60)

    assert cluster.tainted == set()
    assert len(events(cluster)) == 11


# NVLink domains.


def storm(size: int = 64, fatal: int = 6) -> list[Fault]:
    """Every node of a rack reports Xid 145 at once, several of them as fatal."""
    return [xid(f"gpu-{n}", 145, seconds=n / 100, fatal=n <= fatal) for n in range(1, size + 1)]


def settled(cluster: Cluster, *faults: Fault) -> None:
    cluster.tick(*faults, seconds=2)
    assert cluster.tainted == set()
    cluster.tick(seconds=8)


def test_of_a_racks_nvlink_fault_only_the_node_whose_link_failed_is_tainted() -> None:
    cluster = Cluster(rack(64), RULES)

    settled(cluster, *storm(), xid("gpu-40", 149, seconds=0.3, fatal=True))

    assert cluster.tainted == {"gpu-40"}
    assert roles(cluster)[Role.COLLATERAL] == {f"gpu-{n}" for n in range(1, 65)}
    assert roles(cluster)[Role.ROOT_CAUSE] == {"gpu-40"}


def test_a_line_that_blames_its_peer_is_not_the_origin() -> None:
    cluster = Cluster(rack(4), RULES)

    settled(
        cluster,
        remote(xid("gpu-1", 149, fatal=True)),
        remote(xid("gpu-2", 149, fatal=True)),
        xid("gpu-3", 149, seconds=0.2, fatal=True),
    )

    assert cluster.tainted == {"gpu-3"}


def test_hardware_of_another_kind_explains_the_links_around_it() -> None:
    cluster = Cluster(rack(20), RULES)

    cluster.tick(*storm(20), xid("gpu-9", 79, seconds=0.2), seconds=2)
    cluster.tick(seconds=8)

    assert cluster.tainted == {"gpu-9"}


def test_of_equal_lines_the_one_that_clearly_came_first_is_the_origin() -> None:
    cluster = Cluster(rack(8), RULES)

    settled(cluster, xid("gpu-5", 145, seconds=-1.5, fatal=True), *storm(4, fatal=4))

    assert cluster.tainted == {"gpu-5"}


def test_where_nothing_tells_them_apart_all_are_tainted() -> None:
    cluster = Cluster(rack(8), RULES)

    settled(cluster, *storm(4, fatal=4))

    assert cluster.tainted == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}


def test_one_node_alone_is_tainted_once_it_has_settled() -> None:
    cluster = Cluster(rack(8), RULES)

    settled(cluster, xid("gpu-1", 145, fatal=True))

    assert cluster.tainted == {"gpu-1"}


def test_a_restart_in_between_neither_hurries_nor_forgets_what_settles() -> None:
    cluster = Cluster(rack(64), RULES)
    cluster.tick(*storm(), xid("gpu-40", 149, seconds=0.3, fatal=True), seconds=2)

    restarted(cluster)
    cluster.tick(seconds=3)
    assert cluster.tainted == set()
    cluster.tick(seconds=9)

    assert cluster.tainted == {"gpu-40"}


def test_what_was_collateral_and_fails_again_by_itself_is_tainted() -> None:
    cluster = Cluster(rack(8), RULES)
    settled(cluster, *storm(4, fatal=2), xid("gpu-3", 149, seconds=0.3, fatal=True))
    assert cluster.tainted == {"gpu-3"}

    cluster.tick(xid("gpu-1", 145, seconds=4000, fatal=True), seconds=4001)
    assert cluster.tainted == {"gpu-3"}
    cluster.tick(seconds=4010)

    assert cluster.tainted == {"gpu-3", "gpu-1"}


@pytest.mark.parametrize("code", [79, 95, 64])
def test_fatal_is_never_demoted_whatever_else_happens_on_the_job(code: int) -> None:
    cluster = gpu_fleet(70)

    cluster.tick(xid("gpu-17", 79, seconds=-5), *crash(64), seconds=6)
    cluster.tick(xid("gpu-20", code, seconds=7, fatal=True), seconds=8)

    assert cluster.tainted == {"gpu-17", "gpu-20"}


# The rest of the rules hold.


def test_writes_stay_rare_where_a_role_alone_changes() -> None:
    cluster = gpu_fleet(4)
    cluster.tick(xid("gpu-1", 45), seconds=1)
    cluster.tick(nccl("gpu-2", JOB, seconds=2), nccl("gpu-1", JOB, seconds=2), seconds=3)
    writes = len(cluster.writes)

    for seconds in range(4, 40, 5):
        cluster.tick(seconds=seconds)

    assert len(cluster.writes) == writes


def test_what_is_read_again_after_a_restart_changes_nothing() -> None:
    cluster = gpu_fleet(70)
    lines = [xid("gpu-17", 79, seconds=-0.5), *crash(64)]
    cluster.tick(*lines, seconds=6)
    writes, before = len(cluster.writes), {n: s.record for n, s in cluster.nodes.items()}

    restarted(cluster)
    cluster.tick(seconds=20, past=lines)
    cluster.tick(*lines, seconds=25)

    assert len(cluster.writes) == writes
    assert {name: state.record for name, state in cluster.nodes.items()} == before


def test_an_event_by_the_api_servers_word_needs_no_pods_line() -> None:
    cluster = gpu_fleet(8)
    lines = [xid(f"gpu-{n}", 31, seconds=n / 10) for n in range(1, 7)]
    cluster.snapshot = replace(cluster.snapshot, jobs={f"gpu-{n}": frozenset({JOB}) for n in range(1, 7)})

    cluster.tick(*lines, seconds=1)

    assert len(events(cluster)) == 1
    assert len(roles(cluster)[Role.UNCLEAR]) == 6


def test_a_node_somebody_tainted_before_is_no_candidate_for_settling() -> None:
    cluster = Cluster(rack(4), RULES)
    cluster.nodes["gpu-1"] = replace(cluster.nodes["gpu-1"], taints=(OURS,))

    cluster.tick(xid("gpu-1", 145, fatal=True), seconds=1)

    [incident] = cluster.nodes["gpu-1"].record.incidents
    assert incident.state is IncidentState.ACTIVE


# What holds for any order.


@st.composite
def evidence(draw: st.DrawFn) -> list[Fault]:
    """A handful of nodes of one rack and job, each with a few lines out of a few seconds."""
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


@settings(max_examples=150, deadline=None)
@given(evidence(), st.data())
def test_the_order_in_which_the_same_lines_arrive_changes_nothing_about_who_is_tainted(
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


@settings(max_examples=150, deadline=None)
@given(evidence())
def test_hardwares_own_failure_always_taints_and_something_fatal_is_never_lost(lines: list[Fault]) -> None:
    cluster = Cluster(rack(5), RULES)

    cluster.tick(*lines, seconds=3)
    cluster.tick(seconds=10)

    hard = {one.node for one in lines if one.finding.code == 79}
    assert hard <= cluster.tainted
    if any(one.severity is Severity.FATAL for one in lines):
        assert cluster.tainted
