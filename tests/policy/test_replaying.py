"""Recent evidence while history is read again: known lines count once, unread lines taint no node."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import Fault, KernelPosition, Snapshot
from tests.policy.scenes import Cluster
from tests.policy.shared import gpu_fleet, xid

HOUR = 3600.0
DAY = [xid("gpu-1", 94, seconds=n * HOUR) for n in range(2)]
"""Two lines of one rule; the third taints."""


def restarted(cluster: Cluster, *, replaying: bool = False) -> None:
    """Replace the snapshot by that of a new process, which has only the nodes' records."""
    cluster.snapshot = Snapshot(cluster.nodes, replaying=replaying)


def with_stamp(line: Fault, stamp: float) -> Fault:
    """Return the line as a plain ``dmesg -w`` prints it."""
    place = KernelPosition(None, None, round(stamp * 1e6))
    return replace(line, finding=line.finding._replace(position=place))


def test_a_line_read_before_the_history_taints_once_the_history_is_read() -> None:
    cluster = gpu_fleet(10)
    for line in DAY:
        cluster.tick(line, seconds=2 * HOUR)
    restarted(cluster, replaying=True)

    cluster.tick(xid("gpu-1", 94, seconds=2 * HOUR), seconds=2 * HOUR + 1)
    assert cluster.tainted == set()
    cluster.tick(seconds=3 * HOUR, past=DAY)

    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize("heard", [False, True], ids=["no heartbeat", "a heartbeat"])
def test_a_past_line_with_a_stamp_above_the_uptime_is_no_evidence_about_this_boot(heard: bool) -> None:
    cluster = gpu_fleet(10)
    past = [with_stamp(line, 1e6 + 1000 * n) for n, line in enumerate(DAY)]
    if heard:
        cluster.hear("gpu-1", began=0)
    began = cluster.snapshot.began
    restarted(cluster, replaying=True)
    cluster.snapshot = replace(cluster.snapshot, began=began)

    cluster.tick(
        with_stamp(xid("gpu-1", 94, seconds=2 * HOUR), 2e6 if not heard else 7200), seconds=2 * HOUR + 1
    )
    cluster.tick(seconds=3 * HOUR, past=past)

    assert cluster.tainted == (set() if heard else {"gpu-1"})


def test_a_line_recorded_by_a_process_that_died_before_it_read_the_history_still_taints() -> None:
    cluster = gpu_fleet(10)
    for line in DAY:
        cluster.tick(line, seconds=2 * HOUR)
    restarted(cluster, replaying=True)
    latest = xid("gpu-1", 94, seconds=2 * HOUR)
    cluster.tick(latest, seconds=2 * HOUR + 1)
    restarted(cluster, replaying=True)

    cluster.tick(seconds=2 * HOUR + 2, past=[*DAY, latest])

    assert cluster.tainted == {"gpu-1"}


@given(cuts=st.lists(st.integers(0, 6), max_size=4), known=st.integers(0, 3))
def test_no_line_counts_twice_however_the_history_is_cut_and_repeated(cuts: list[int], known: int) -> None:
    cluster = gpu_fleet(10)
    ring = [*DAY, *(replace(line, timestamp_ns=line.timestamp_ns + 10**13) for line in DAY)]
    lines = sorted([*ring, *DAY], key=lambda line: line.timestamp_ns)
    for line in lines[:known]:
        cluster.tick(line, seconds=6 * HOUR)

    edges = [0, *sorted(cuts), len(lines)]
    for begin, end in pairwise(edges):
        cluster.tick(seconds=6 * HOUR, past=lines[begin:end])
    assert cluster.tainted == set()
    cluster.tick(xid("gpu-1", 94, seconds=7 * HOUR), seconds=7 * HOUR + 1)

    assert cluster.tainted == {"gpu-1"}
