"""Each condition of a validation by itself: without it, one of these fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from konductor_like.model import (
    BrakeState,
    Control,
    ControlAct,
    Controls,
    EventReason,
    FaultKind,
    Gpu,
    GpuCount,
    IncidentKey,
    IncidentState,
    JobReport,
    KernelPosition,
    NodeState,
    Severity,
    Snapshot,
    Validation,
    ValidationJobs,
    ValidationStage,
    ValidationVerdict,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.recovery.guards import Guard, blockers, wishes
from konductor_like.policy.recovery.validation import (
    AGAIN_AFTER,
    VALID,
    advanced,
    events_of,
    is_dead_end,
    is_sufficient,
    level_for,
    need_is_met,
    stage_words,
    verdict_words,
)
from tests.policy.scenes import at, ns
from tests.policy.test_guards import LOST, RECORD, STATE
from tests.policy.test_validation import (
    ASKED,
    ASKS,
    BEGAN,
    FAIL,
    PASS,
    PASSED,
    RULES,
    after,
    decided,
    ends,
    fault,
    reported,
    seen,
)

FAILED = replace(PASSED, verdict=ValidationVerdict.FAIL, why="memory failed on 4e:00")


def good(validation: Validation | None, *, now: float = 0, state: NodeState = STATE, **of_fault: Any) -> bool:
    open_ones = [replace(LOST, **of_fault)]
    record = replace(state.record, incidents=tuple(open_ones))
    return is_sufficient(validation, open_ones, replace(state, record=record), RULES, at(now))


def test_a_pass_is_good_for_a_return() -> None:
    assert good(PASSED)
    assert good(PASSED, now=-300 + VALID.total_seconds())
    assert good(replace(PASSED, began_at=at(-900)))  # at the moment at which the need was met


@pytest.mark.parametrize(
    "changes",
    [
        {"stage": ValidationStage.ASKED},
        {"stage": ValidationStage.RUNNING},
        {"verdict": ValidationVerdict.FAIL},
        {"verdict": ValidationVerdict.UNKNOWN},
        {"verdict": None},
        {"boot_id": "boot-a"},
        {"boot_id": None},
        {"level": 2},
        {"began_at": None},
        {"began_at": at(-901)},
        {"ended_at": None},
        {"ended_at": at(-3601)},
        {"ended_at": at(3601)},  # the clock was set back by more than an hour
    ],
)
def test_a_pass_that_lacks_one_thing_is_not_good_enough(changes: dict[str, Any]) -> None:
    assert not good(replace(PASSED, **changes))


def test_no_validation_is_not_good_enough_nor_one_before_a_fault_or_with_a_need_that_is_not_met() -> None:
    assert not good(None)
    assert not good(PASSED, last=KernelPosition("boot-b", None, 701))
    assert not good(PASSED, met_ns=None)
    assert not good(PASSED, met_ns=ns(-599))
    assert good(PASSED, met_ns=ns(-600))


def test_a_need_is_met_now_without_a_test_and_before_a_test_that_has_begun() -> None:
    assert need_is_met(LOST, None)
    assert need_is_met(LOST, ASKED)
    assert not need_is_met(LOST, replace(PASSED, began_at=at(-901)))
    assert not need_is_met(replace(LOST, met_ns=None), None)
    for needs in ("none", "application-restart"):
        assert need_is_met(replace(LOST, needs=needs, met_ns=None), None)


def test_only_open_reasons_for_the_taint_ask_for_a_level() -> None:
    def level(**changes: Any) -> int:
        return level_for(replace(RECORD, incidents=(replace(LOST, **changes),)), RULES, at(0))

    assert level() == 3
    assert level(state=IncidentState.RELEASED) == 2
    assert level(severity=Severity.SUSPECT) == 2


# The steps


def test_nothing_is_written_while_a_wish_waits_for_the_same_reason() -> None:
    waiting = after(seen(ASKED, unschedulable=True), ASKS)
    assert waiting is not None
    assert waiting.waits
    assert decided(seen(waiting, unschedulable=True), ASKS).changes == ()
    brake = BrakeState(5, 1, 1)
    assert advanced({}, seen(waiting, unschedulable=True), ASKS, at(0), brake) == {}


def test_a_node_without_the_taint_is_not_validated() -> None:
    for validation in (ASKED, BEGAN):
        snapshot = seen(validation, jobs=reported(JobReport("job-1", result=PASS)), taints=())
        assert advanced({}, snapshot, ASKS, at(0), BrakeState(5, 1, 1)) == {}


def test_a_wish_begins_when_its_time_has_come_and_a_pause_is_over_and_no_sooner() -> None:
    again = replace(ASKED, ended_at=at(0) - AGAIN_AFTER)
    over = ControlAct(Control.PAUSE, at(-900), "kim", until=at(-1))
    for snapshot in (seen(again), seen(ASKED, of_snapshot={"controls": Controls((over,))})):
        begun = after(snapshot, ASKS)
        assert begun is not None
        assert begun.stage is ValidationStage.RUNNING
    later = at(0) - AGAIN_AFTER + timedelta(microseconds=1)
    too_soon = after(seen(replace(again, ended_at=later)), ASKS)
    assert too_soon is not None
    assert too_soon.stage is ValidationStage.ASKED


def test_a_wish_waits_while_the_jobs_cannot_be_read() -> None:
    jobs = ValidationJobs(users={"gpu-1": ""}, problem="jobs is forbidden")

    found = after(seen(ASKED, jobs=jobs), ASKS)

    assert found is not None
    assert (found.stage, found.waits) == (ValidationStage.ASKED, "jobs is forbidden")


@pytest.mark.parametrize(("capacity", "noted", "expected"), [(8, 7, 8), (8, None, 8), (8, 8, 8)])
def test_all_gpus_that_the_machine_has_or_had_must_pass(capacity: int, noted: int, expected: int) -> None:
    record = replace(RECORD, gpus=noted)

    begun = after(seen(ASKED, record=record, gpus=GpuCount(capacity, capacity)), ASKS)

    assert begun is not None
    assert begun.expected_gpus == expected


@pytest.mark.parametrize("read", [KernelPosition("boot-a", 5, 40), KernelPosition(None, 5, 40)])
def test_an_attempt_notes_up_to_where_the_kernel_log_had_been_read(read: KernelPosition) -> None:
    begun = after(seen(ASKED, record=replace(RECORD, read=read)), ASKS)

    assert begun is not None
    assert begun.read == replace(read, boot_id=read.boot_id or "boot-b")


def test_a_report_without_a_job_leaves_the_job_that_is_known() -> None:
    found = after(seen(BEGAN, jobs=reported(JobReport("", "the API server is away"))), ASKS)

    assert found == replace(BEGAN, waits="the API server is away")


def test_an_attempt_without_a_begin_ends_and_one_that_waited_to_its_end_says_for_what() -> None:
    damaged = after(seen(replace(BEGAN, began_at=None)), ASKS)
    assert damaged is not None
    assert damaged.verdict is ValidationVerdict.UNKNOWN

    waited = after(seen(replace(BEGAN, waits="ImagePullBackOff"), jobs=None), ASKS, at(9000))
    assert waited is not None
    assert waited.why == "ImagePullBackOff"


def test_missing_gpus_are_no_line_and_spoil_nothing() -> None:
    missing = fault(kind=FaultKind.NODE, severity=Severity.SUSPECT)

    assert ends(JobReport("job-1", result=PASS), missing).verdict is ValidationVerdict.PASS


def test_a_failure_names_the_faults_that_taint_and_no_others() -> None:
    dead = fault(severity=Severity.FATAL, code=79)
    other = fault(severity=Severity.SUSPECT, code=63, key=IncidentKey("xid.63", "0000:4e:00"))

    both = ends(JobReport("job-1", result=PASS), dead, other)
    one = ends(JobReport("job-1", result=PASS), other)

    assert (both.verdict, "63" in both.why, "79" in both.why) == (ValidationVerdict.FAIL, False, True)
    assert "63" in one.why


def test_a_spoiled_pass_keeps_its_end_its_driver_and_its_gpus() -> None:
    spoiled = after(seen(PASSED, fault(severity=Severity.FATAL)), ASKS)

    assert spoiled is not None
    kept = ("ended_at", "read_end_ns", "driver", "gpus", "attempt", "tries")
    assert [getattr(spoiled, name) for name in kept] == [getattr(PASSED, name) for name in kept]


def test_a_failure_stays_a_failure_whatever_line_comes_later() -> None:
    assert after(seen(FAILED, fault(severity=Severity.TEST)), ASKS) == FAILED


def test_a_wish_with_an_unknown_result_is_not_judged_by_lines() -> None:
    waiting = replace(PASSED, stage=ValidationStage.ASKED, verdict=ValidationVerdict.UNKNOWN, ended_at=None)
    waiting = replace(waiting, waits="the node is ignored")

    assert after(seen(waiting, fault(severity=Severity.FATAL), opted_out=True), ASKS) == waiting


# The words


def test_only_an_end_without_a_pass_in_this_time_out_is_a_dead_end() -> None:
    out_at = RECORD.life.tainted_at
    assert out_at is not None
    assert is_dead_end(FAILED, RECORD)
    assert is_dead_end(replace(FAILED, asked_at=out_at), RECORD)
    assert not is_dead_end(replace(FAILED, asked_at=out_at - timedelta(seconds=1)), RECORD)
    assert not is_dead_end(PASSED, RECORD)
    assert not is_dead_end(replace(FAILED, stage=ValidationStage.ASKED), RECORD)
    unclaimed = replace(RECORD, life=replace(RECORD.life, tainted_at=None))
    assert is_dead_end(FAILED, unclaimed)


def test_a_step_is_told_once_and_nothing_else_is() -> None:
    def told(before: Validation | None, now: Validation | None) -> list[EventReason]:
        return [reason for reason, _ in events_of(before, now)]

    assert told(PASSED, None) == told(PASSED, PASSED) == told(None, ASKED) == told(None, None) == []
    assert told(None, PASSED) == told(BEGAN, PASSED) == [EventReason.VALIDATED]
    assert told(BEGAN, FAILED) == told(PASSED, FAILED) == [EventReason.NOT_VALIDATED]
    assert told(BEGAN, replace(BEGAN, waits="x")) == []
    assert told(PASSED, replace(PASSED, gpus=())) == []
    assert told(ASKED, BEGAN) == told(None, BEGAN) == [EventReason.VALIDATING]
    assert told(replace(BEGAN, attempt="a0"), BEGAN) == [EventReason.VALIDATING]
    once_more = replace(ASKED, attempt="a1", verdict=ValidationVerdict.UNKNOWN, ended_at=at(0))
    assert told(BEGAN, once_more) == [EventReason.NOT_VALIDATED]
    assert told(once_more, replace(once_more, waits="x")) == []


def test_a_begin_names_the_person_who_asked() -> None:
    [(_, own)] = events_of(ASKED, BEGAN)
    [(_, persons)] = events_of(ASKED, replace(BEGAN, by="kim"))

    assert own == "A validation of 8 GPUs at level 3 begins (attempt a1)."
    assert persons == "A validation of 8 GPUs at level 3 begins, for kim (attempt a1)."


def test_the_words_of_each_stage() -> None:
    assert stage_words(None) == stage_words(PASSED) == "The node is validated first"
    assert stage_words(ASKED) == "A validation is asked for"
    assert stage_words(replace(ASKED, waits="it is cordoned")) == "A validation waits: it is cordoned"
    assert stage_words(replace(BEGAN, began_at=None)) == "A validation runs"
    assert stage_words(BEGAN) == "A validation runs since 2026-03-04T11:50:00Z"
    pulled = stage_words(replace(BEGAN, waits="ImagePullBackOff"))
    assert pulled == f"{stage_words(BEGAN)}, and its pod waits: ImagePullBackOff"


def test_the_words_of_each_verdict() -> None:
    passed = "All 8 GPUs passed a validation at level 3"
    assert verdict_words(PASSED) == f"{passed} with driver 570.133.20"
    assert verdict_words(replace(PASSED, driver="")) == passed
    assert verdict_words(FAILED) == "The validation failed: memory failed on 4e:00"
    unknown = replace(PASSED, verdict=ValidationVerdict.UNKNOWN, why="cut")
    assert verdict_words(unknown) == "The result of the validation is unknown: cut"
    again = replace(unknown, stage=ValidationStage.ASKED)
    assert verdict_words(again) == f"{verdict_words(unknown)}; it is tried once more"


def test_a_result_without_driver_and_gpus_leaves_those_that_are_known() -> None:
    known = replace(BEGAN, driver="580.1", gpus=(Gpu("0000:9a:00", "GPU-2"),))

    found = after(seen(known, jobs=reported(JobReport("job-1", result=FAIL))), ASKS)

    assert found is not None
    assert (found.driver, found.gpus) == (known.driver, known.gpus)


# The guards of the return


def guards(snapshot: Snapshot, policy: PolicyConfig = RULES) -> dict[Guard, str]:
    state = snapshot.nodes["gpu-1"]
    return {each.guard: each.words for each in blockers(state, snapshot, policy, at(0), BrakeState(5, 1, 1))}


def wished(snapshot: Snapshot, policy: PolicyConfig = RULES) -> dict[str, Validation]:
    return wishes({}, snapshot, policy, at(0), BrakeState(5, 1, 1))


def test_the_controller_wishes_none_where_one_is_under_way_or_the_taint_is_gone() -> None:
    assert {*wished(seen())} == {"gpu-1"}
    for validation in (ASKED, BEGAN):
        assert wished(seen(validation)) == {}
    busy = ValidationJobs(users={"gpu-1": "train/llm-7"})
    still = after(seen(ASKED, jobs=busy), RULES)
    assert still is not None
    assert (still.by, still.asked_at) == (ASKED.by, ASKED.asked_at)
    assert wished(seen(taints=())) == {}
    assert wished(seen(), replace(RULES, rehearses=True)) == {}
    assert wished(seen(), ASKS) == {}


def test_a_rehearsal_says_whether_it_would_validate_or_return() -> None:
    rehearses = replace(RULES, rehearses=True)

    assert "would validate the node now" in guards(seen(), rehearses)[Guard.REHEARSED]
    assert "would return the node now" in guards(seen(PASSED), rehearses)[Guard.REHEARSED]
    assert Guard.VALIDATING not in guards(seen(PASSED), rehearses)


def test_a_need_that_nothing_meets_is_told_in_the_words_of_the_setting() -> None:
    broken = replace(RECORD, incidents=(replace(LOST, needs="inspection"),))

    by_reboot = PolicyConfig(returns_by_reboot=True)
    assert "and no validation replaces that" in guards(seen(record=broken))[Guard.NEEDS_MORE]
    assert "not a reboot" in guards(seen(record=broken), by_reboot)[Guard.NEEDS_MORE]


def test_the_log_is_read_for_two_minutes_after_a_good_pass_only_or_for_a_shorter_quiet_time() -> None:
    just = replace(PASSED, ended_at=at(-60), read_end_ns=ns(-60))
    assert Guard.TOO_YOUNG in guards(seen(just))
    assert Guard.TOO_YOUNG not in guards(seen(replace(just, level=2)))  # it is repeated at once
    assert guards(seen(just), replace(RULES, return_quiet_seconds=60.0)) == {}
    assert guards(seen(replace(just, ended_at=at(-120), read_end_ns=ns(-120)))) == {}
    assert Guard.TOO_YOUNG in guards(seen(replace(just, ended_at=at(-119), read_end_ns=ns(-120))))
