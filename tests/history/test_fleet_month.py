"""What history says of a simulated month is the truth of that month, or says that it is not known."""

from __future__ import annotations

import itertools
from functools import cache

import pytest

from konductor_like.cli.history.document import numbers_of
from konductor_like.history.outages import Kind
from konductor_like.history.read import History
from tests.history.fleet_month import Month, simulated
from tests.history.values import told


@cache
def month() -> Month:
    return simulated(400)


@cache
def history() -> History:
    return told(month())


def test_every_outage_is_known_with_its_begin_its_end_and_who_ended_it() -> None:
    known = {(o.node, o.since, o.until, o.how, o.by, o.relapse, o.failure_group) for o in history().outages}
    true = {
        (o.node, o.since, o.until, o.how.value, o.by, o.relapse, o.failure_group) for o in month().in_span
    }

    assert len(true) > 200
    assert known == true


def test_a_fault_is_right_or_not_known() -> None:
    true = {(each.node, each.since): (each.rule, each.gpu) for each in month().in_span}
    wrong = [o for o in history().outages if (o.rule, o.gpu) != true[o.node, o.since]]

    # Only the line about a deletion is in the month, and it does not name the fault.
    assert [o.rule for o in wrong if o.since >= month().start or o.how != "deleted"] == []
    assert {o.rule for o in wrong} <= {""}


def test_hours_and_availability_are_the_true_ones() -> None:
    truth, found = month(), numbers_of(history())
    failures = [each for each in truth.in_span if each.is_failure]
    hours = sum(each.hours(truth.start, truth.end) for each in failures)
    here = {name: host for name, host in truth.hosts.items() if host.deleted is None}
    possible = sum(
        (truth.end - max(host.created, truth.start)).total_seconds() / 3600 for host in here.values()
    )
    lost = sum(each.hours(truth.start, truth.end) for each in failures if each.node in here)

    assert found.hours == pytest.approx(hours)
    assert found.gpu_hours == pytest.approx(8 * hours)
    assert found.availability == pytest.approx(1 - lost / possible)
    assert found.outages == sum(each.since >= truth.start for each in failures)
    assert found.out_now == sum(each.until is None for each in failures)


def test_without_the_trail_the_records_of_todays_nodes_are_told_and_nothing_else() -> None:
    quiet = Month(month().start, month().end, month().hosts)
    known = told(quiet, month().states())
    true = {(each.node, each.since): each for each in month().in_span}

    assert [
        o for o in known.outages if o.kind is Kind.FAILURE and o.until != true[o.node, o.since].until
    ] == []
    assert {o.node for o in known.outages} <= set(month().states())


def test_a_month_has_everything_that_it_promises() -> None:
    outages = month().in_span

    assert {each.how.value for each in outages} >= {
        "reset",
        "reboot",
        "validated",
        "taint removed",
        "deleted",
    }
    assert {each.how.value for each in outages} >= {"time", ""}
    assert any(each.failure_group for each in outages)
    assert any(each.relapse for each in outages)
    assert any(each.begun_by for each in outages)
    assert len({each.hardware.driver for each in month().hosts.values()}) == 3
    for name in month().hosts:
        mine = [each for each in month().outages if each.node == name]
        for before, after in itertools.pairwise(mine):
            assert before.until is not None
            assert before.until < after.since
