"""Events whose lines come in another order, to another process, or are of a node that is left alone."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import NodeState, Role
from tests.policy.scenes import Cluster
from tests.policy.shared import RULES, events, gpu_fleet, labels, nccl, rack, remote, roles, xid
from tests.policy.test_events import JOB, restarted, settled, storm


def test_kernel_lines_that_are_read_before_the_pods_are_their_jobs_event_and_not_their_racks() -> None:
    cluster = Cluster({**rack(4, "one"), **rack_of("two", 5, 6, 7, 8)}, RULES)
    kernel = [xid(f"gpu-{n}", 45, seconds=n / 10) for n in range(1, 9)]
    pods = [nccl(f"gpu-{n}", JOB, seconds=n / 10) for n in range(1, 9)]

    cluster.tick(*kernel, seconds=2)
    cluster.tick(*pods, xid("gpu-6", 79, seconds=0.1), seconds=10)
    cluster.tick(seconds=60)

    assert cluster.tainted == {"gpu-6"}
    assert {name.split("@")[0] for name in events(cluster)} == {JOB}
    assert roles(cluster)[Role.COLLATERAL] == set(cluster.nodes)


def rack_of(domain: str, *numbers: int) -> dict[str, NodeState]:
    return {name: state for name, state in rack(max(numbers), domain).items() if int(name[4:]) in numbers}


def test_jobs_that_share_a_rack_and_nothing_else_are_two_events() -> None:
    cluster = Cluster(rack(8), RULES)
    one = [nccl(f"gpu-{n}", "ml/Job/one") for n in (1, 2, 3)]
    other = [nccl(f"gpu-{n}", "ml/Job/other") for n in (4, 5, 6)]
    kernel = [xid(f"gpu-{n}", 45) for n in range(1, 7)]

    cluster.tick(*one, *other, *kernel, xid("gpu-1", 79), seconds=2)

    assert labels(cluster) == {"faulty": 1, None: 4, "suspect": 3}


def test_a_link_that_fails_ends_all_jobs_of_its_rack_in_one_event() -> None:
    cluster = Cluster(rack(8), RULES)
    pods = [nccl(f"gpu-{n}", "ml/Job/one" if n < 4 else "ml/Job/other", seconds=1) for n in range(1, 7)]

    settled(cluster, *storm(8, fatal=8), xid("gpu-2", 149, seconds=0.3, fatal=True), *pods)

    assert cluster.tainted == {"gpu-2"}
    assert len(events(cluster)) == 1


def test_whose_time_is_up_waits_for_no_origin_that_settles_itself() -> None:
    cluster = Cluster(rack(8), RULES)
    cluster.tick(*storm(8, fatal=6), seconds=1)
    cluster.tick(xid("gpu-7", 149, seconds=0.3, fatal=True), seconds=4)

    for seconds in (6, 7, 8, 10):
        cluster.tick(seconds=seconds)

    assert cluster.tainted == {"gpu-7"}


def test_what_an_earlier_process_counted_and_did_not_tick_off_is_evidence_for_the_next() -> None:
    cluster = Cluster(rack(4), RULES)
    lines = [remote(xid("gpu-1", 149, fatal=True)), xid("gpu-2", 149, seconds=0.1, fatal=True)]
    cluster.tick(*lines, seconds=1)

    restarted(cluster)
    cluster.tick(*lines, seconds=3)
    cluster.tick(seconds=10)

    assert cluster.tainted == {"gpu-2"}


def test_a_replay_after_a_restart_is_no_evidence() -> None:
    cluster = gpu_fleet(2)
    line = xid("gpu-1", 94)
    cluster.tick(line, seconds=1)

    restarted(cluster)
    cluster.tick(replace(line, timestamp_ns=line.timestamp_ns + 10**12), seconds=1001)
    assert not cluster.snapshot.window.traces

    cluster.tick(line, seconds=1002)
    assert list(cluster.snapshot.window.traces) == ["gpu-1"]


def test_a_node_that_is_opted_out_explains_the_others_and_is_left_alone() -> None:
    cluster = Cluster(rack(8), RULES)
    cluster.nodes["gpu-3"] = replace(cluster.nodes["gpu-3"], opted_out=True)

    settled(cluster, *storm(8, fatal=8), xid("gpu-3", 149, seconds=0.3, fatal=True))

    assert cluster.tainted == set()
    assert cluster.nodes["gpu-3"].record.empty
    assert roles(cluster)[Role.COLLATERAL] == {f"gpu-{n}" for n in range(1, 9)} - {"gpu-3"}
    assert {i.root_cause for s in cluster.nodes.values() for i in s.record.incidents} == {"gpu-3"}


def test_an_origin_whose_pods_say_nothing_is_known_by_the_api_servers_word() -> None:
    cluster = gpu_fleet(8)
    others = [nccl(f"gpu-{n}", JOB, seconds=1) for n in range(2, 7)]

    cluster.tick(xid("gpu-1", 79), *others, seconds=2)
    assert labels(cluster) == {"faulty": 1, "suspect": 5, None: 2}
    cluster.snapshot = replace(cluster.snapshot, jobs={"gpu-1": frozenset({JOB})})
    cluster.tick(seconds=5)

    assert labels(cluster) == {"faulty": 1, None: 7}
    cluster.tick(seconds=60)
    assert roles(cluster)[Role.ROOT_CAUSE] == {"gpu-1"}
