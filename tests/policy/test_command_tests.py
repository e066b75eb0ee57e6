"""A test by ``konductor-like test`` ends after two minutes, whatever became of the command (rule 35)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import EventReason, Fault, Incident, IncidentState, MetBy, Severity, Verb
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.endings import seconds_of_test
from tests.policy.scenes import Cluster, at, fault, fleet, ns


def commanded(*, seconds: float = 0, stamp: float = 100, word: str = "a1b2c3") -> Fault:
    """The line of ``konductor-like test``."""
    line = f"NVRM: Xid (PCI:0000:ff:1f): 14, konductor-like test {word}"
    gpu = "0000:ff:1f"
    return fault(
        rule="xid.14", severity=Severity.TEST, seconds=seconds, stamp=stamp, text=line, gpu=gpu, needs="none"
    )


def after_reading(*faults: Fault) -> Cluster:
    """A cluster of ten nodes that has read these lines."""
    cluster = Cluster(fleet(10))
    cluster.tick(*faults)
    return cluster


def of_gpu_1(cluster: Cluster) -> Incident:
    [incident] = cluster.nodes["gpu-1"].record.incidents
    return incident


def test_a_test_by_the_command_ends_after_two_minutes_although_nobody_releases_it() -> None:
    cluster = after_reading(commanded())
    assert cluster.tainted == {"gpu-1"}
    assert cluster.tick(seconds=119).changes == ()

    [change] = cluster.tick(seconds=120).changes

    assert (cluster.tainted, of_gpu_1(cluster).met_by) == (set(), MetBy.TIME)
    assert (change.verb, change.event) == (Verb.UNTAINT, EventReason.RETURNED)
    assert cluster.tick(commanded(seconds=130), seconds=131).changes == ()  # a replay
    cluster.tick(commanded(seconds=140, stamp=240, word="d4e5f6"), seconds=141)
    assert cluster.tainted == {"gpu-1"}


@pytest.mark.parametrize(
    ("test_seconds", "line", "ends"),
    [
        (3600, "14, konductor-like test a1b2c3", 120),
        (60, "14, konductor-like test a1b2c3", 60),
        (0, "14, konductor-like test a1b2c3", 120),
        (3600, "14, konductor-like tes…", 3600),
        (3600, "14, konductor-like kept a1b2c3", 3600),
        (0, "14, a test of the alarm chain", 0),
    ],
)
def test_the_line_of_a_test_and_the_setting_say_when_it_ends(
    test_seconds: float, line: str, ends: float
) -> None:
    assert seconds_of_test(line, PolicyConfig(test_seconds=test_seconds)) == ends


def test_a_line_of_the_command_that_is_read_after_two_minutes_never_taints() -> None:
    cluster = after_reading()

    cluster.tick(commanded(), seconds=120)

    assert cluster.tainted == set()
    assert (of_gpu_1(cluster).state, of_gpu_1(cluster).met_by) == (IncidentState.RELEASED, MetBy.TIME)
    assert cluster.tick(commanded(seconds=130), seconds=131).changes == ()
    assert cluster.nodes["gpu-1"].as_read.health is None


def test_a_line_of_the_command_with_a_time_in_the_future_taints_for_two_minutes() -> None:
    cluster = after_reading()
    cluster.tick(commanded(seconds=600), seconds=0)
    assert cluster.tainted == {"gpu-1"}

    cluster.tick(seconds=120)

    assert cluster.tainted == set()


def test_a_test_by_the_command_that_the_brake_holds_ends_after_two_minutes_too() -> None:
    cluster = Cluster(fleet(2))
    cluster.tick(fault("gpu-2"), commanded())
    assert cluster.tainted == {"gpu-2"}

    cluster.tick(seconds=120)

    assert of_gpu_1(cluster).met_by is MetBy.TIME


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["new line", "replay", "nothing", "restart"]),
            st.sampled_from([0, 10, 60, 110, 300]),
        ),
        max_size=12,
    )
)
def test_tests_by_the_command_taint_for_two_minutes_at_most_and_replays_of_them_never(
    history: list[tuple[str, int]],
) -> None:
    cluster, now, lines = after_reading(), 0.0, list[Fault]()
    for what, wait in history:
        for _ in range(0, wait, 10):
            now += 10
            cluster.tick(seconds=now)
            since = cluster.nodes["gpu-1"].record.life.tainted_at
            assert since is None or at(now) < since + timedelta(seconds=120)
        before = set(cluster.tainted)
        if what == "new line":
            lines.append(commanded(seconds=now - 5, stamp=101 + len(lines)))
            cluster.tick(lines[-1], seconds=now)
            assert cluster.tainted == {"gpu-1"}
        elif what == "replay" and lines:
            cluster.tick(*(replace(line, timestamp_ns=ns(now)) for line in lines), seconds=now)
            assert cluster.tainted == before
        elif what == "restart":
            cluster.snapshot = replace(cluster.snapshot, grown={})
            cluster.tick(*lines, seconds=now)  # the new controller reads the last hour again
