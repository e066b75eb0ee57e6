"""The numbers of the report, against truths made by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from konductor_like.history.numbers import (
    BY,
    fewest,
    for_nothing,
    numbers,
    periods,
    repairs,
    returned,
    shares,
)
from konductor_like.history.outages import End
from tests.history.values import END, START, day, outage

ALARM: dict[str, Any] = {"reason": "False alarm: vendor's test", "by": "ann", "how": "reset"}


def test_hours_fall_into_the_days_in_which_they_lie() -> None:
    found = periods([outage(begin=0.75, hours=12)], START, day(3), timedelta(days=1))

    assert [(each.outages, each.hours, each.gpu_hours) for each in found] == [
        (1, 6.0, 48.0),
        (0, 6.0, 48.0),
        (0, 0.0, 0.0),
    ]


def test_the_last_week_may_be_shorter() -> None:
    found = periods([outage(begin=29)], START, END, timedelta(days=7))

    assert [each.outages for each in found] == [0, 0, 0, 0, 1]
    assert (found[-1].start, found[-1].end) == (day(28), END)


def test_repair_times_are_of_nodes_that_were_returned_in_the_span() -> None:
    back = [
        outage("a", 1, 1),
        outage("b", 2, 3, how="reset of xid 79"),
        outage("c", 3, 8, how="reboot", by=None),
        outage("d", -1, 48),
    ]
    others = [
        outage("e", 4, 5, how="deleted", by=None),
        outage("f", 5, None),
        outage("g", 6, None, end=End.UNKNOWN),
        outage("h", 7, 1, rule="xid.14", how="time"),
        outage("i", -2, 1),
    ]
    found = repairs([*back, *others], START, END)

    assert returned([*back, *others], START, END) == back
    assert [(each.how, each.hours, each.median_hours) for each in found] == [
        ("reset", (1.0, 3.0, 48.0), 3.0),
        ("reboot", (8.0,), 8.0),
    ]


def test_a_node_was_taken_out_for_nothing_if_a_person_says_so_within_minutes() -> None:
    assert len(for_nothing([outage(hours=0.5, **ALARM)], START, END)) == 1


@pytest.mark.parametrize(
    "reason", ["false alarm", "FALSE POSITIVE", "“No fault found”, dcgmi", "nothing wrong."]
)
def test_a_reason_says_so(reason: str) -> None:
    assert for_nothing([outage(hours=0.5, **(ALARM | {"reason": reason}))], START, END)


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "reseated",
        "not a false alarm",
        "no false alarm",
        "false alarm?",
        "false  alarmist",
        "false alarms?",
    ],
)
def test_a_reason_says_something_else(reason: str) -> None:
    assert for_nothing([outage(hours=0.5, **(ALARM | {"reason": reason}))], START, END) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"hours": 0.51},
        {"by": None, "how": "reboot"},
        {"begun_by": "kim"},
        {"rule": "xid.14"},
        {"begin": -0.01},
    ],
    ids=["later", "by the controller", "a person's taint", "a test", "before the span"],
)
def test_it_was_not_for_nothing(changed: dict[str, Any]) -> None:
    one = outage(**({"hours": 0.4} | ALARM | changed))

    assert for_nothing([one], START, END) == []


def test_it_was_not_for_nothing_if_the_node_failed_again_within_a_day() -> None:
    alarm = outage(begin=1, hours=0.25, **ALARM)

    assert for_nothing([alarm, outage(begin=1.9)], START, END) == []
    assert for_nothing([alarm, outage("gpu-2", begin=1.9)], START, END) == [alarm]
    assert for_nothing([alarm, outage(begin=2.1)], START, END) == [alarm]


def test_the_few_that_have_half_of_the_hours_are_counted() -> None:
    outages = [outage("a", 1, 6), outage("b", 1, 3), outage("c", 1, 2), outage("d", 1, 1)]
    found = shares(outages, BY["node"], START, END)

    assert fewest(found) == 1  # 6 of 12
    assert fewest(found, 0.6) == 2
    assert fewest([]) == 0


def test_an_outage_of_before_the_node_was_created_again_takes_nothing_from_its_time() -> None:
    before = outage(begin=1, hours=48)

    found = numbers([before], START, END, {"gpu-1": day(3)})

    assert found.availability == 1
    assert found.hours == 48
