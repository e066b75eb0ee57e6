"""Outages from lines of the trail that come late, twice, or with little in them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from konductor_like.history.outages import End, Kind, Ledger, Outage
from konductor_like.history.trail import TrailLine, parse
from konductor_like.loki.query.response import Entry
from konductor_like.model import Incident, Life, Quarantine, ReleaseHow
from tests.cli.scenes import incident
from tests.policy.scenes import OURS, at, node, ns

SINCE = at(0)


def line(verb: str, seconds: float = 0, *, since: datetime | None = SINCE, **more: Any) -> TrailLine:
    known = TrailLine(at(seconds), verb, "applied", "gpu-1", out_since=since)
    return replace(known, **more)


TAINT = line("taint", rule="xid.79", gpu="0000:4e:00", severity="fatal", why="GPUFaultTainted")
RESET = line("untaint", 60, rule="xid.79", gpu="0000:4e:00", how="reset", by="kim", at=at(60))


def told(*lines: TrailLine) -> Outage:
    ledger = Ledger()
    for each in lines:
        ledger.add(each)
    [found] = ledger.outages()
    return found


def test_the_order_of_lines_changes_nothing() -> None:
    assert told(TAINT, RESET) == told(RESET, TAINT)


@pytest.mark.parametrize(("is_failure", "end"), [(True, End.ENDED), (False, End.UNKNOWN)])
def test_an_end_after_the_lines_that_were_read_is_known_from_the_record_alone(
    is_failure: bool, end: End
) -> None:
    past = Quarantine(SINCE, at(60), "xid.79", ReleaseHow.RESET)
    life = Life(quarantines=(past,) if is_failure else ())  # a test and a person's taint are none
    state = node()
    ledger = Ledger()
    ledger.add(TAINT)
    ledger.add_node(replace(state, record=replace(state.record, life=life)))
    [found] = ledger.outages()

    assert (found.end, found.until) == (end, at(60) if is_failure else None)


def test_a_write_that_failed_is_no_outage_and_no_end() -> None:
    ledger = Ledger()
    ledger.add(replace(TAINT, outcome="failed"))
    assert ledger.outages() == []
    assert told(TAINT, replace(RESET, outcome="under way")).end is End.UNKNOWN


def test_a_taint_that_follows_a_removal_by_hand_at_once_is_no_end() -> None:
    assert told(replace(TAINT, how="taint removed")).until is None


def test_an_acknowledgement_begins_no_outage() -> None:
    ack = line("record", 30, rule="xid.79", by="kim", why="GPUFaultAcknowledged")

    found = told(ack)

    assert (found.begun_by, found.kind) == (None, Kind.FAILURE)


def test_a_node_that_a_person_tainted_and_that_failed_then_is_a_failure() -> None:
    begun = line("taint", rule="operator", severity="fatal", by="kim", why="GPUFaultTainted")

    found = told(begun, RESET)

    assert (found.kind, found.rule, found.begun_by) == (Kind.FAILURE, "xid.79", "kim")


def test_a_test_during_which_the_node_failed_is_a_failure() -> None:
    begun = line("taint", rule="xid.14", severity="test", why="GPUFaultTainted")

    assert told(begun).kind is Kind.TEST
    assert told(begun, RESET).kind is Kind.FAILURE
    assert told(begun, replace(RESET, rule="xid.14", gpu=None)).kind is Kind.TEST


def test_a_relapse_marks_the_outage_before_it_whichever_line_comes_first() -> None:
    again = replace(TAINT, logged_at=at(900), out_since=at(900), why="GPUNodeRelapsed")
    for lines in ((TAINT, RESET, again), (again, RESET, TAINT)):
        ledger = Ledger()
        for each in lines:
            ledger.add(each)
        assert [each.relapse for each in ledger.outages()] == [True, False]


def test_the_faults_of_a_deleted_node_are_no_reason_of_a_person() -> None:
    gone = line("delete", 60, how="deleted", reason="xid 79 on GPU 0000:4e:00", at=at(60))

    found = told(gone)

    assert (found.how_ended, found.reason, found.evidence) == ("Node deleted", "", gone.reason)


@pytest.mark.parametrize("gpus", [0, -8, 1001, True, "8", 8.5])
def test_a_number_that_is_no_number_of_gpus_is_not_known(gpus: object) -> None:
    text = json.dumps({"audit": "v1", "verb": "taint", "outcome": "applied", "gpus": gpus})
    found = parse(Entry(ns(0), text, {}))
    assert found is not None
    assert found.gpus is None


def test_the_record_of_a_node_that_is_out_tells_its_own_end_before_the_trails() -> None:
    ledger = Ledger()
    for each in (TAINT, RESET):
        ledger.add(each)
    past = Quarantine(SINCE, at(90), "xid.48", ReleaseHow.REBOOT)
    state = node()
    life = Life(at(500), quarantines=(past,))
    ledger.add_node(replace(state, taints=(OURS,), record=replace(state.record, life=life)))

    ended, out = ledger.outages()

    assert (ended.until, ended.how, ended.rule, ended.differs) == (at(90), "reboot", "xid.48", True)
    assert (out.end, out.since) == (End.OUT, at(500))


def test_an_outage_that_a_short_record_should_have_is_missing_in_it() -> None:
    ledger = Ledger()
    for each in (TAINT, RESET):
        ledger.add(each)
    state, earlier = node(), Quarantine(at(-900), at(-800), "xid.79", ReleaseHow.RESET)
    ledger.add_node(replace(state, record=replace(state.record, life=Life(quarantines=(earlier,)))))
    found = ledger.outages()
    assert [each.since for each in ledger.missing_in_records(found)] == [SINCE]

    many = tuple(replace(earlier, tainted_at=at(-900 - n), released_at=at(-800 - n)) for n in range(10))
    ledger.add_node(replace(state, record=replace(state.record, life=Life(quarantines=many))))
    assert ledger.missing_in_records(ledger.outages()) == []  # the oldest have left the record


def test_an_end_of_which_the_record_told_no_begin_is_that_of_the_last_open_outage() -> None:
    end = line("untaint", 60, since=None, how="reset", by="ivy", at=at(60))

    found = told(TAINT, end)

    assert (found.until, found.by, found.rule) == (at(60), "ivy", "xid.79")
    assert told(TAINT, RESET, replace(end, at=at(900))).by == "kim"
    assert told(TAINT, replace(end, at=at(-60))).until is None


def test_a_persons_taint_of_a_node_that_is_out_changes_nothing_about_its_failure() -> None:
    also = line("taint", 30, rule="operator", severity="fatal", by="ann", why="GPUFaultTainted")
    gone = line("delete", 60, how="deleted", at=at(60))

    found = told(TAINT, also, gone)

    assert (found.kind, found.rule, found.begun_by) == (Kind.FAILURE, "xid.79", None)


OLD, NEW = ("GPU-aaaaaaaa", "1"), ("GPU-bbbbbbbb", "")
IN_PLACE = incident("xid.79", "0000:4e:00")


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ([(IN_PLACE, OLD, -600, 0)], OLD),
        ([(IN_PLACE, OLD, -600, 0), (IN_PLACE, OLD, 5, 9)], OLD),
        ([(IN_PLACE, OLD, -600, 0), (IN_PLACE, NEW, 30, 30)], ("", "")),
        ([(IN_PLACE, OLD, -600, 0), (IN_PLACE, NEW, 90, 90)], OLD),
        ([(IN_PLACE, OLD, -200_000, -90_000), (IN_PLACE, NEW, 0, 0)], NEW),
        ([(incident("xid.79", "0000:5d:00"), OLD, 0, 0)], ("", "")),
        ([(incident("xid.48", "0000:4e:00"), OLD, 0, 0)], ("", "")),
    ],
    ids=["one", "the same twice", "two", "a later one", "an earlier one", "another place", "another fault"],
)
def test_the_record_names_the_gpu_of_a_past_outage_if_only_one_can_be_meant(
    named: list[tuple[Incident, tuple[str, str], float, float]], found: tuple[str, str]
) -> None:
    incidents = tuple(
        replace(each, uuid=uuid, serial=serial, first_ns=ns(first), last_ns=ns(last))
        for each, (uuid, serial), first, last in named
    )
    past = Quarantine(SINCE, at(60), "xid.79", ReleaseHow.RESET, gpu="0000:4e:00")
    record = replace(node().record, incidents=incidents, life=Life(quarantines=(past,)))
    ledger = Ledger()
    ledger.add_node(replace(node(), record=record))

    [outage] = ledger.outages()

    assert (outage.uuid, outage.serial) == found


def test_the_trail_names_the_gpu_before_the_record_does() -> None:
    taint = replace(TAINT, uuid=OLD[0], serial=OLD[1])
    noted = replace(IN_PLACE, uuid=NEW[0], first_ns=ns(0), last_ns=ns(0))
    record = replace(node().record, incidents=(noted,), life=Life(SINCE))
    ledger = Ledger()
    ledger.add(taint)
    ledger.add_node(replace(node(), record=record, taints=(OURS,)))

    [outage] = ledger.outages()

    assert (outage.uuid, outage.serial) == OLD


def test_an_end_that_names_another_gpu_does_not_keep_the_first_ones_name() -> None:
    found = told(replace(TAINT, uuid=OLD[0], serial=OLD[1]), replace(RESET, gpu="0000:5d:00"))

    assert (found.gpu, found.uuid, found.serial) == ("0000:5d:00", "", "")
