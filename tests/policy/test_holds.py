"""A node that keeps failing is held longer each time, and in the end marked for replacement."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from konductor_like.model import EventReason, IncidentState, NodeRecord, Quarantine, Severity
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.release import QUARANTINES_KEPT, may_return
from tests.policy.scenes import Cluster, at, fault, fleet, let_go

HOUR, DAY = 3600.0, 86_400.0


def record(cluster: Cluster) -> NodeRecord:
    return cluster.nodes["gpu-1"].record


def fails(cluster: Cluster, seconds: float, **how: object) -> None:
    """``gpu-1`` logs a new fault and is tainted for it."""
    cluster.tick(fault("gpu-1", stamp=1000 + seconds, seconds=seconds, **how), seconds=seconds)  # type: ignore[arg-type]  # the words of a fault
    assert cluster.tainted == {"gpu-1"}


def failed_times(times: int, rules: PolicyConfig | None = None, every: float = 4 * HOUR) -> Cluster:
    """``gpu-1`` is out for the so-manieth time; each time it was out for an hour."""
    cluster = Cluster(fleet(5), rules or PolicyConfig(repeat_count=0))
    for number in range(times):
        if number:
            let_go(cluster, "gpu-1", (number - 1) * every + HOUR)
        fails(cluster, number * every)
    return cluster


@pytest.mark.parametrize(
    ("times", "hold_hours"), [(1, None), (2, 0.5), (3, 1), (4, 2), (5, 4)], ids=lambda value: str(value)
)
def test_each_time_out_doubles_the_hold(times: int, hold_hours: float | None) -> None:
    found = record(failed_times(times))

    assert found.tainted_at is not None
    hold = None if hold_hours is None else found.tainted_at + timedelta(hours=hold_hours)
    assert found.hold_until == hold


def test_no_hold_is_longer_than_the_longest() -> None:
    found = record(failed_times(9, PolicyConfig(repeat_count=0, hold_max_seconds=1.5 * HOUR)))

    assert found.tainted_at is not None
    assert found.hold_until == found.tainted_at + timedelta(hours=1.5)


def test_fault_reset_fault_reset_fault_within_a_day_marks_the_node_for_replacement() -> None:
    cluster = Cluster(fleet(5))
    fails(cluster, 0)
    assert (record(cluster).hold_until, record(cluster).replace_since) == (None, None)

    let_go(cluster, "gpu-1", HOUR)
    fails(cluster, 2 * HOUR)
    assert (record(cluster).hold_until, record(cluster).replace_since) == (at(2.5 * HOUR), None)

    let_go(cluster, "gpu-1", 3 * HOUR)
    fails(cluster, 4 * HOUR)
    assert (record(cluster).hold_until, record(cluster).replace_since) == (at(5 * HOUR), at(4 * HOUR))
    assert "marked for replacement" in cluster.writes[-1].message
    [incident] = [each for each in record(cluster).incidents if each.state is IncidentState.ACTIVE]
    for told in (incident.advice, cluster.writes[-1].message):
        assert "It failed 3 times in 7 days: drain it and have its hardware checked or replaced." in told
        assert "Reboot the node." not in told
    assert cluster.writes[-1].health == "faulty"


def test_what_it_came_back_from_stands_in_the_record_the_latest_first() -> None:
    cluster = failed_times(3)

    assert record(cluster).quarantines == (
        Quarantine(at(4 * HOUR), at(5 * HOUR), "xid.79"),
        Quarantine(at(0), at(HOUR), "xid.79"),
    )


def test_times_out_long_ago_count_no_more() -> None:
    cluster = failed_times(2, PolicyConfig(repeat_days=7))
    let_go(cluster, "gpu-1", 5 * HOUR)

    fails(cluster, 5 * HOUR + 7 * DAY)

    assert (record(cluster).hold_until, record(cluster).replace_since) == (None, None)


def test_the_memory_is_bounded() -> None:
    assert len(record(failed_times(QUARANTINES_KEPT + 5)).quarantines) == QUARANTINES_KEPT


def test_a_persons_reset_works_and_says_what_it_overrides() -> None:
    cluster = failed_times(3, PolicyConfig())

    change = let_go(cluster, "gpu-1", 9 * HOUR)

    assert cluster.tainted == set()
    assert "It was marked for replacement: it failed 3 times in 7 days." in change.message
    assert (record(cluster).hold_until, record(cluster).replace_since) == (None, None)
    warning = record(cluster).releases[0].warning
    assert warning is not None
    assert warning.startswith("It was marked for replacement")
    assert "has not rebooted" in warning


def test_after_such_a_reset_the_next_fault_marks_it_again() -> None:
    cluster = failed_times(3, PolicyConfig())
    let_go(cluster, "gpu-1", 9 * HOUR)

    fails(cluster, 10 * HOUR)

    assert record(cluster).replace_since == at(10 * HOUR)
    assert record(cluster).hold_until == at(12 * HOUR)


def test_a_reset_after_the_hold_is_over_warns_of_no_hold() -> None:
    cluster = failed_times(2)

    assert "held until" in (let_go(failed_times(2), "gpu-1", 4.4 * HOUR).message)
    assert "held until" not in let_go(cluster, "gpu-1", 4.6 * HOUR).message


def test_a_taint_that_was_removed_by_hand_counts_as_a_time_out() -> None:
    cluster = Cluster(fleet(5))
    fails(cluster, 0)
    cluster.untaint_by_hand("gpu-1")
    cluster.tick(seconds=HOUR)

    fails(cluster, 2 * HOUR)

    assert record(cluster).hold_until == at(2.5 * HOUR)


def test_new_evidence_that_comes_with_a_removal_by_hand_holds_at_once() -> None:
    cluster = Cluster(fleet(5))
    fails(cluster, 0)
    cluster.untaint_by_hand("gpu-1")

    fails(cluster, HOUR)

    assert record(cluster).hold_until == at(1.5 * HOUR)


@pytest.mark.parametrize("how", [{"rule": "xid.14", "severity": Severity.TEST}, {"rule": "operator"}])
def test_a_test_and_a_persons_own_taint_are_no_failures(how: dict[str, object]) -> None:
    cluster = Cluster(fleet(5))
    for hour in (0, 2, 4, 6):
        fails(cluster, hour * HOUR, **how)
        let_go(cluster, "gpu-1", (hour + 1) * HOUR)

    assert record(cluster).quarantines == ()
    fails(cluster, 8 * HOUR)
    assert record(cluster).hold_until is None


def test_a_node_that_is_out_for_a_test_and_then_fails_is_held_for_its_failures() -> None:
    cluster = failed_times(2)
    let_go(cluster, "gpu-1", 5 * HOUR)
    fails(cluster, 6 * HOUR, rule="xid.14", severity=Severity.TEST)
    assert record(cluster).hold_until is None

    fails(cluster, 7 * HOUR)

    assert record(cluster).hold_until == at(8 * HOUR)


def test_a_second_fault_of_a_node_that_is_out_moves_no_mark() -> None:
    cluster = failed_times(2)
    before = record(cluster)

    fails(cluster, 4 * HOUR + 60, gpu="0000:aa:00")

    assert (record(cluster).hold_until, record(cluster).tainted_at) == (before.hold_until, before.tainted_at)


def test_a_reset_of_a_node_that_was_never_out_is_no_time_out() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1", severity=Severity.SUSPECT))

    change = let_go(cluster, "gpu-1", 60)

    assert change.event is EventReason.RELEASED
    assert record(cluster).quarantines == ()


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        ({}, None),
        ({"hold_until": at(-1)}, None),
        ({"hold_until": at(0)}, None),
        ({"hold_until": at(1)}, "held until 2026-03-04T12:00:01Z: it failed 2 times in 7 days"),
        ({"replace_since": at(-DAY)}, "marked for replacement: it failed 2 times in 7 days"),
    ],
    ids=["no marks", "over", "over just now", "held", "to be replaced"],
)
def test_what_keeps_a_node_from_coming_back_by_itself(marks: dict[str, object], reason: str | None) -> None:
    held = NodeRecord(tainted_at=at(-100), quarantines=(Quarantine(at(-DAY), at(-DAY / 2), "xid.79"),))

    assert may_return(replace(held, **marks), at(0)) == reason  # type: ignore[arg-type]  # fields by name
