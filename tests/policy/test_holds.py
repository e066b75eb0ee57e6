"""A node that keeps failing gets a longer hold each time, and is marked for replacement in the end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from konductor_like.model import (
    EventReason,
    IncidentState,
    Life,
    NodeRecord,
    Quarantine,
    ReleaseHow,
    Severity,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.lifecycle import QUARANTINES_KEPT, may_return
from konductor_like.policy.node.needs import REPLACE_ADVICE
from konductor_like.policy.operator import operator_taint
from tests.policy.scenes import Cluster, at, fault, fleet, reset_node

HOUR, DAY = 3600.0, 86_400.0


def record(cluster: Cluster) -> NodeRecord:
    return cluster.nodes["gpu-1"].record


def fails(cluster: Cluster, seconds: float, **how: object) -> None:
    """``gpu-1`` logs a new fault and is tainted for it."""
    cluster.tick(fault("gpu-1", stamp=1000 + seconds, seconds=seconds, **how), seconds=seconds)  # type: ignore[arg-type]  # the words of a fault
    assert cluster.tainted == {"gpu-1"}


def failed_times(times: int, rules: PolicyConfig | None = None, every: float = 4 * HOUR) -> Cluster:
    """A cluster with ``gpu-1`` tainted for time number ``times``; each earlier time lasted an hour."""
    cluster = Cluster(fleet(5), rules or PolicyConfig(repeat_count=0))
    for number in range(times):
        if number:
            reset_node(cluster, "gpu-1", (number - 1) * every + HOUR)
        fails(cluster, number * every)
    return cluster


@pytest.mark.parametrize(
    ("times", "hold_hours"), [(1, None), (2, 0.5), (3, 1), (4, 2), (5, 4)], ids=lambda value: str(value)
)
def test_each_quarantine_doubles_the_hold(times: int, hold_hours: float | None) -> None:
    found = record(failed_times(times))

    assert found.life.tainted_at is not None
    hold = None if hold_hours is None else found.life.tainted_at + timedelta(hours=hold_hours)
    assert found.life.hold_until == hold


def test_the_event_says_until_when_a_node_that_failed_again_should_stay_out() -> None:
    message = failed_times(2).writes[-1].message

    until = "2026-03-04T16:30:00Z"
    assert f"should stay out of service until {until}; the controller does not return it before." in message


def test_the_event_says_so_too_if_the_failing_node_is_tainted_by_a_person_already() -> None:
    cluster = failed_times(1)
    reset_node(cluster, "gpu-1", HOUR)
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(2 * HOUR), by="kim", reason="riser swap"))
    fails(cluster, 4 * HOUR)
    fails(cluster, 5 * HOUR, rule="xid.63", severity=Severity.SUSPECT)

    told = [(each.event, "until 2026-03-04T16:30:00Z" in each.message) for each in cluster.writes[-2:]]
    assert told == [(EventReason.WORSENED, True), (EventReason.RECORDED, False)]


def test_no_hold_exceeds_the_maximum() -> None:
    found = record(failed_times(9, PolicyConfig(repeat_count=0, hold_max_seconds=1.5 * HOUR)))

    assert found.life.tainted_at is not None
    assert found.life.hold_until == found.life.tainted_at + timedelta(hours=1.5)


def test_fault_reset_fault_reset_fault_within_a_day_marks_the_node_for_replacement() -> None:
    cluster = Cluster(fleet(5))
    fails(cluster, 0)
    assert (record(cluster).life.hold_until, record(cluster).life.replace_since) == (None, None)

    reset_node(cluster, "gpu-1", HOUR)
    fails(cluster, 2 * HOUR)
    assert (record(cluster).life.hold_until, record(cluster).life.replace_since) == (at(2.5 * HOUR), None)

    reset_node(cluster, "gpu-1", 3 * HOUR)
    fails(cluster, 4 * HOUR)
    assert (record(cluster).life.hold_until, record(cluster).life.replace_since) == (
        at(5 * HOUR),
        at(4 * HOUR),
    )
    assert "marked for replacement" in cluster.writes[-1].message
    [incident] = [each for each in record(cluster).incidents if each.state is IncidentState.ACTIVE]
    for text in (incident.advice, cluster.writes[-1].message):
        assert f"failed 3 times in 7 days. {REPLACE_ADVICE}" in text
        assert "Reboot the node." not in text
    assert cluster.writes[-1].health == "faulty"


def test_past_quarantines_are_recorded_with_the_latest_first() -> None:
    cluster = failed_times(3)

    assert record(cluster).life.quarantines == (
        Quarantine(at(4 * HOUR), at(5 * HOUR), "xid.79", ReleaseHow.RESET, gpu="0000:4e:00"),
        Quarantine(at(0), at(HOUR), "xid.79", ReleaseHow.RESET, gpu="0000:4e:00"),
    )


def test_old_quarantines_do_not_count() -> None:
    cluster = failed_times(2, PolicyConfig(repeat_days=7))
    reset_node(cluster, "gpu-1", 5 * HOUR)

    fails(cluster, 5 * HOUR + 7 * DAY)

    assert (record(cluster).life.hold_until, record(cluster).life.replace_since) == (None, None)


def test_quarantines_that_a_wrong_clock_dated_years_ahead_do_not_count() -> None:
    cluster = Cluster(fleet(5))
    ahead = (Quarantine(at(1000 * DAY), at(1001 * DAY + n), "xid.79", ReleaseHow.RESET) for n in range(3))
    state = cluster.nodes["gpu-1"]
    cluster.nodes["gpu-1"] = replace(state, record=replace(state.record, life=Life(quarantines=tuple(ahead))))

    fails(cluster, 0)

    assert (record(cluster).life.hold_until, record(cluster).life.replace_since) == (None, None)


def test_the_number_of_recorded_quarantines_is_bounded() -> None:
    assert len(record(failed_times(QUARANTINES_KEPT + 5)).life.quarantines) == QUARANTINES_KEPT


def test_a_reset_by_a_person_works_and_names_the_hold_that_it_overrides() -> None:
    cluster = failed_times(3, PolicyConfig())

    change = reset_node(cluster, "gpu-1", 9 * HOUR)

    assert cluster.tainted == set()
    assert "Unmet need: replacement (it failed 3 times in 7 days)." in change.message
    assert (record(cluster).life.hold_until, record(cluster).life.replace_since) == (None, None)
    warning = record(cluster).releases[0].warning
    assert warning is not None
    assert warning.startswith("Unmet need: replacement")
    assert "reboot" not in warning.lower(), "a reboot is not enough for this node"


def test_a_fault_after_a_reset_marks_the_node_for_replacement_again() -> None:
    cluster = failed_times(3, PolicyConfig())
    reset_node(cluster, "gpu-1", 9 * HOUR)

    fails(cluster, 10 * HOUR)

    assert record(cluster).life.replace_since == at(10 * HOUR)
    assert record(cluster).life.hold_until == at(12 * HOUR)


def test_a_reset_after_the_hold_is_over_warns_of_no_hold() -> None:
    cluster = failed_times(2)

    assert "meant to stay out of service until" in (reset_node(failed_times(2), "gpu-1", 4.4 * HOUR).message)
    assert "meant to stay out of service until" not in reset_node(cluster, "gpu-1", 4.6 * HOUR).message


def test_a_taint_removed_by_hand_counts_as_a_quarantine() -> None:
    cluster = Cluster(fleet(5))
    fails(cluster, 0)
    cluster.untaint_by_hand("gpu-1")
    cluster.tick(seconds=HOUR)

    fails(cluster, 2 * HOUR)

    assert record(cluster).life.hold_until == at(2.5 * HOUR)


def test_a_new_fault_read_with_a_removal_by_hand_sets_the_hold_at_once() -> None:
    cluster = Cluster(fleet(5))
    fails(cluster, 0)
    cluster.untaint_by_hand("gpu-1")

    fails(cluster, HOUR)

    assert record(cluster).life.hold_until == at(1.5 * HOUR)


@pytest.mark.parametrize("how", [{"rule": "xid.14", "severity": Severity.TEST}, {"rule": "operator"}])
def test_a_test_fault_and_a_persons_taint_do_not_count_as_failures(how: dict[str, object]) -> None:
    cluster = Cluster(fleet(5))
    for hour in (0, 2, 4, 6):
        fails(cluster, hour * HOUR, **how)
        reset_node(cluster, "gpu-1", (hour + 1) * HOUR)

    assert record(cluster).life.quarantines == ()
    fails(cluster, 8 * HOUR)
    assert record(cluster).life.hold_until is None


def test_a_node_tainted_for_a_test_that_then_fails_gets_a_hold() -> None:
    cluster = failed_times(2)
    reset_node(cluster, "gpu-1", 5 * HOUR)
    fails(cluster, 6 * HOUR, rule="xid.14", severity=Severity.TEST)
    assert record(cluster).life.hold_until is None

    fails(cluster, 7 * HOUR)

    assert record(cluster).life.hold_until == at(8 * HOUR)


def test_a_second_fault_of_a_tainted_node_does_not_change_its_hold() -> None:
    cluster = failed_times(2)
    before = record(cluster).life

    fails(cluster, 4 * HOUR + 60, gpu="0000:aa:00")

    assert record(cluster).life == before


def test_a_reset_of_a_node_that_was_not_tainted_is_no_quarantine() -> None:
    cluster = Cluster(fleet(5))
    cluster.tick(fault("gpu-1", severity=Severity.SUSPECT))

    change = reset_node(cluster, "gpu-1", 60)

    assert change.event is EventReason.RELEASED
    assert record(cluster).life.quarantines == ()


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        ({}, None),
        ({"hold_until": at(-1)}, None),
        ({"hold_until": at(0)}, None),
        (
            {"hold_until": at(1)},
            "meant to stay out of service until 2026-03-04T12:00:01Z: it failed 2 times in 7 days",
        ),
        ({"replace_since": at(-DAY)}, "marked for replacement: it failed 2 times in 7 days"),
    ],
    ids=["no marks", "over", "over just now", "held", "to be replaced"],
)
def test_these_marks_keep_a_node_from_an_automatic_return(
    marks: dict[str, object], reason: str | None
) -> None:
    held = Life(at(-100), quarantines=(Quarantine(at(-DAY), at(-DAY / 2), "xid.79"),))

    life = replace(held, **marks)  # type: ignore[arg-type]  # fields by name
    assert may_return(NodeRecord(life=life), at(0)) == reason
