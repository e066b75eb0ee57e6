"""A validation goes from a wish to a verdict; only a pass that is good in every way returns a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from konductor_like.model import (
    BrakeState,
    Control,
    ControlAct,
    Controls,
    EventReason,
    Gpu,
    GpuCount,
    Hearing,
    Held,
    Incident,
    IncidentKey,
    IncidentState,
    JobReport,
    KernelPosition,
    NodeRecord,
    Plan,
    Quarantine,
    ReleaseHow,
    Severity,
    Snapshot,
    Source,
    Stage,
    Taint,
    Validation,
    ValidationJobs,
    ValidationResult,
    ValidationStage,
    ValidationVerdict,
    Verb,
)
from konductor_like.model.validation import DEADLINES_SECONDS
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.node.release import release
from konductor_like.policy.recovery.guards import READ_PAST_NS, Guard
from konductor_like.policy.recovery.validation import advanced, level_for
from tests.policy.scenes import at, ns
from tests.policy.test_guards import LOST, RECORD, STATE, STOOD

RULES = PolicyConfig(returns_by_validation=True, validates=True)
ASKS = PolicyConfig(validates=True)
PASS, FAIL, UNKNOWN = (ValidationResult(each, "why" * (each != "pass")) for each in ValidationVerdict)
FREE = ValidationJobs(users={"gpu-1": ""})
PASSED = Validation(
    ValidationStage.ENDED,
    3,
    at(-1900),
    "konductor-like",
    tries=1,
    attempt="a1",
    boot_id="boot-b",
    began_at=at(-600),
    read=KernelPosition("boot-b", None, 700),
    read_ns={Source.KERNEL: ns(-601)},
    expected_gpus=8,
    job_uid="job-1",
    ended_at=at(-300),
    read_end_ns=ns(-310),
    verdict=ValidationVerdict.PASS,
    driver="570.133.20",
    gpus=(Gpu("0000:4e:00", "GPU-1", "165"),),
)
BEGAN = replace(PASSED, stage=ValidationStage.RUNNING, verdict=None, ended_at=None)
UNMET = replace(LOST, met_ns=None, met_by=None, last=KernelPosition("boot-b", None, 100))
ASKED = Validation(ValidationStage.ASKED, 3, at(-60), "kim")


def seen(
    validation: Validation | None = None,
    *incidents: Incident,
    jobs: ValidationJobs | None = FREE,
    record: NodeRecord = RECORD,
    of_snapshot: Mapping[str, Any] | None = None,
    **of_state: Any,
) -> Snapshot:
    record = replace(record, validation=validation, incidents=(*record.incidents, *incidents))
    state = replace(STATE, record=record, **of_state)
    heard = Hearing("boot-b", ns(-900), ns(0))
    given = {
        "hearing": {"gpu-1": heard},
        "standing": {"gpu-1": STOOD},
        "read_ns": {Source.KERNEL: ns(0)},
        **(of_snapshot or {}),
    }
    return Snapshot({"gpu-1": state}, validations=jobs, **given)


def decided(snapshot: Snapshot, policy: PolicyConfig = RULES, now: datetime | None = None) -> Plan:
    return decide(snapshot, (), policy, now or at(0))


def after(snapshot: Snapshot, policy: PolicyConfig = RULES, now: datetime | None = None) -> Validation | None:
    """Return the validation that the decision leaves on the node."""
    state = snapshot.nodes["gpu-1"]
    for change in decided(snapshot, policy, now).changes:
        if change.record is not None:
            return change.record.validation
    return state.record.validation


def reported(report: JobReport) -> ValidationJobs:
    return ValidationJobs({"a1": report}, {"gpu-1": ""})


def fault(**changes: Any) -> Incident:
    """A kernel fault of the present boot that needs no repair."""
    key = IncidentKey("xid.43", "0000:4e:00")
    found = replace(LOST, key=key, code=43, severity=Severity.APPLICATION, needs="none", met_ns=None)
    found = replace(found, met_by=None, last=KernelPosition("boot-b", None, 900), first_ns=ns(-500))
    return replace(found, **{"last_ns": ns(-500), **changes})


# The wish


def test_a_node_that_nothing_else_keeps_out_is_validated_unasked_and_the_attempt_is_on_its_record() -> None:
    begun = after(seen())

    assert begun is not None
    assert (begun.stage, begun.level, begun.by) == (ValidationStage.RUNNING, 3, "konductor-like")
    assert (begun.boot_id, begun.began_at, begun.expected_gpus, begun.tries) == ("boot-b", at(0), 8, 1)
    assert begun.read_ns == {Source.KERNEL: ns(0)}
    assert begun.attempt.isalnum()
    assert begun.attempt.islower()
    assert (begun.verdict, begun.job_uid) == (None, "")


@pytest.mark.parametrize(
    ("snapshot", "policy"),
    [
        (seen(), ASKS),
        (seen(), PolicyConfig(returns_by_reboot=True, validates=True)),
        (seen(), replace(RULES, rehearses=True)),
        (seen(recovery_selected=False), RULES),
        (seen(taints=()), RULES),
        (seen(unschedulable=True), RULES),
        (seen(ready=False), RULES),
        (seen(opted_out=True), RULES),
        (seen(gpus=GpuCount(7, 8)), RULES),
        (seen(taints=(*STATE.taints, Taint("karpenter.sh/disrupted", None, "NoSchedule"))), RULES),
        (seen(of_snapshot={"hearing": {}}), RULES),
        (seen(record=replace(RECORD, incidents=(UNMET,))), RULES),
        (seen(record=replace(RECORD, incidents=(replace(LOST, needs="inspection"),))), RULES),
        (seen(record=replace(RECORD, life=replace(RECORD.life, hold_until=at(60)))), RULES),
        (seen(record=replace(RECORD, life=replace(RECORD.life, replace_since=at(-60)))), RULES),
        (seen(record=replace(RECORD, life=replace(RECORD.life, contested_at=at(-60)))), RULES),
        (seen(replace(PASSED, verdict=ValidationVerdict.FAIL)), RULES),
        (seen(replace(PASSED, verdict=ValidationVerdict.UNKNOWN, tries=2)), RULES),
    ],
)
def test_the_controller_wishes_no_validation_of_a_node_that_would_not_return_after_a_pass(
    snapshot: Snapshot, policy: PolicyConfig
) -> None:
    assert after(snapshot, policy) == snapshot.nodes["gpu-1"].record.validation


@pytest.mark.parametrize(
    ("changes", "stays_out"),
    [
        ({"ended_at": at(-3601)}, "too old"),
        ({"boot_id": "boot-a"}, "of another boot"),
        ({"level": 2}, "of a lower level than the fault asks for"),
        ({"began_at": at(-901)}, "began before the need was met"),
    ],
)
def test_a_pass_that_is_not_good_enough_returns_no_node_and_is_repeated(
    changes: dict[str, Any], stays_out: str
) -> None:
    plan = decided(seen(replace(PASSED, **changes)))

    assert [change.verb for change in plan.changes] == [Verb.RECORD], stays_out
    assert plan.kept_out["gpu-1"] == Guard.VALIDATING
    again = plan.changes[0].record
    assert again is not None
    assert again.validation is not None
    assert again.validation.stage is ValidationStage.RUNNING


def test_a_failure_of_an_earlier_time_out_keeps_no_node_out() -> None:
    failed = replace(PASSED, verdict=ValidationVerdict.FAIL, asked_at=at(-3700), boot_id="boot-0")

    begun = after(seen(failed))

    assert begun is not None
    assert begun.stage is ValidationStage.RUNNING


@pytest.mark.parametrize(
    ("needs", "quarantines", "least", "level"),
    [
        ("none", 0, 2, 2),
        ("none", 0, 4, 4),
        ("application-restart", 0, 2, 2),
        ("gpu-reset", 0, 2, 3),
        ("reboot", 0, 4, 4),
        ("none", 1, 2, 4),
    ],
)
def test_the_faults_and_earlier_times_out_ask_for_a_level(
    needs: str, quarantines: int, least: int, level: int
) -> None:
    past = (Quarantine(at(-9000), at(-8000), "xid.79"),) * quarantines
    record = replace(RECORD, incidents=(replace(LOST, needs=needs),))
    record = replace(record, life=replace(record.life, quarantines=past))

    assert level_for(record, replace(RULES, validation_level=least), at(0)) == level


# The turn


def waits(snapshot: Snapshot, policy: PolicyConfig = ASKS) -> str:
    found = after(snapshot, policy)
    assert found is not None
    assert found.stage is ValidationStage.ASKED
    return found.waits


def test_a_persons_wish_begins_also_where_only_a_person_returns_nodes() -> None:
    begun = after(seen(ASKED), ASKS)

    assert begun is not None
    assert (begun.stage, begun.by) == (ValidationStage.RUNNING, "kim")


def test_the_reason_of_a_wish_stays_with_its_attempt_and_is_in_the_event() -> None:
    wished = replace(ASKED, reason="new riser")

    [change] = decided(seen(wished), ASKS).changes

    assert change.record is not None
    assert change.record.validation is not None
    assert change.record.validation.reason == "new riser"
    assert "begins, for kim: new riser (attempt" in change.message


PAUSE = ControlAct(Control.PAUSE, at(-9), "kim")


@pytest.mark.parametrize(
    ("snapshot", "policy", "words"),
    [
        (seen(ASKED), PolicyConfig(), "no image"),
        (seen(ASKED), replace(RULES, rehearses=True), "rehearse"),
        (seen(ASKED), replace(ASKS, recovery_by_file=True), "KONDUCTOR_RECOVERY_FILE"),
        (seen(ASKED, of_snapshot={"controls": Controls((PAUSE,))}), ASKS, "paused"),
        (seen(ASKED, of_snapshot={"lease_unread": True}), ASKS, "Lease"),
        (seen(ASKED, of_snapshot={"ambiguous": frozenset({"gpu-1"})}), ASKS, "two machines"),
        (seen(ASKED, opted_out=True), ASKS, "ignored"),
        (seen(ASKED, selected=False), ASKS, "KONDUCTOR_NODE_SELECTOR"),
        (seen(ASKED, record_problem="no JSON"), ASKS, "record"),
        (seen(ASKED, ready=False), ASKS, "Ready"),
        (seen(ASKED, unschedulable=True), ASKS, "cordoned"),
        (seen(ASKED, machine=replace(STATE.machine, boot_id=None)), ASKS, "boot id"),
        (seen(ASKED, gpus=GpuCount(8, 8, comparable=False)), ASKS, "MIG"),
        (seen(ASKED, gpus=GpuCount(8, 8, layout="replicas=4")), ASKS, "time-slicing"),
        (seen(ASKED, gpus=GpuCount(8, 8, paused=True)), ASKS, "being replaced"),
        (seen(ASKED, gpus=GpuCount(8, 8, by_slices=True)), ASKS, "DRA"),
        (seen(ASKED, gpus=GpuCount(0, 8)), ASKS, "none of its GPUs"),
        (seen(ASKED, gpus=GpuCount(7, 7)), ASKS, "only 7 of its 8"),
        (seen(ASKED, jobs=None), ASKS, "not looked"),
        (seen(ASKED, jobs=ValidationJobs()), ASKS, "not looked"),
        (seen(ASKED, jobs=ValidationJobs(users={"gpu-1": "train/llm-7"})), ASKS, "train/llm-7"),
        (seen(replace(ASKED, ended_at=at(-599), why="cut")), ASKS, "first result is unknown (cut)"),
    ],
)
def test_a_wish_waits_and_says_why(snapshot: Snapshot, policy: PolicyConfig, words: str) -> None:
    assert words in waits(snapshot, policy)


def fleet(*validations: Validation, domain: str | None = None) -> Snapshot:
    """Nodes with these validations, named gpu-1, gpu-2 and so on."""
    nodes = {
        f"gpu-{n}": replace(
            STATE, name=f"gpu-{n}", domain=domain, record=replace(RECORD, validation=validation)
        )
        for n, validation in enumerate(validations, 1)
    }
    reports = {each.attempt: JobReport("job-1") for each in validations if each.attempt}
    return Snapshot(nodes, validations=ValidationJobs(reports, dict.fromkeys(nodes, "")))


def stages(plan: Plan) -> dict[str, str]:
    found = {each.node: each.record.validation for each in plan.changes if each.record}
    return {name: each.stage.value for name, each in found.items() if each}


def test_two_validations_run_at_a_time_and_the_oldest_wish_of_a_person_goes_first() -> None:
    own = replace(ASKED, by="konductor-like", asked_at=at(-900))
    later = replace(ASKED, asked_at=at(-30))

    assert stages(decided(fleet(own, later, ASKED), ASKS)) == {
        "gpu-1": "asked",
        "gpu-2": "running",
        "gpu-3": "running",
    }
    busy = decided(fleet(BEGAN, replace(BEGAN, attempt="a2"), ASKED), ASKS)
    assert stages(busy)["gpu-3"] == "asked"


def test_of_one_nvlink_domain_one_node_is_validated_at_a_time() -> None:
    assert stages(decided(fleet(ASKED, ASKED, domain="rack-1"), ASKS)) == {
        "gpu-1": "running",
        "gpu-2": "asked",
    }


def test_none_begins_while_the_brake_holds_a_node() -> None:
    brake = BrakeState(5, 1, 1, (Held("gpu-2", LOST),))

    found = advanced({}, seen(ASKED), ASKS, at(0), brake)

    assert "brake holds gpu-2" in found["gpu-1"].waits


# The result


def ends(report: JobReport | None, *incidents: Incident, **of_state: Any) -> Validation:
    jobs = ValidationJobs() if report is None else reported(report)
    found = after(seen(BEGAN, *incidents, jobs=jobs, **of_state), ASKS)
    assert found is not None
    return found


def test_the_job_is_noted_once_it_is_known_and_its_pods_reason_to_wait() -> None:
    began = replace(BEGAN, job_uid="")

    found = after(seen(began, jobs=reported(JobReport("job-1", "ImagePullBackOff"))), ASKS)

    assert found == replace(began, job_uid="job-1", waits="ImagePullBackOff")


@pytest.mark.parametrize("result", [PASS, FAIL])
def test_a_result_is_a_verdict(result: ValidationResult) -> None:
    told = replace(result, driver="580.1", gpus=(Gpu("0000:9a:00", "GPU-2"),))

    found = ends(JobReport("job-1", result=told))

    assert (found.stage, found.verdict, found.why) == (ValidationStage.ENDED, result.verdict, result.why)
    assert (found.ended_at, found.driver, found.gpus) == (at(0), "580.1", told.gpus)


@pytest.mark.parametrize(
    ("report", "changes", "why"),
    [
        (JobReport("job-1", result=UNKNOWN), {}, "why"),
        (JobReport("job-1", gone=True), {}, "deleted"),
        (JobReport("", "Pod Security", refused=True), {}, "Pod Security"),
        (JobReport("job-1", result=PASS), {"machine": replace(STATE.machine, boot_id="boot-c")}, "rebooted"),
    ],
)
def test_an_unknown_result_is_tried_once_more_after_ten_minutes_and_then_left_to_a_person(
    report: JobReport, changes: dict[str, Any], why: str
) -> None:
    first = ends(report, **changes)
    assert (first.stage, first.verdict) == (ValidationStage.ASKED, ValidationVerdict.UNKNOWN)
    assert why in first.why
    assert "first result is unknown" in waits(seen(first), ASKS)

    second = after(seen(first), ASKS, at(601))
    assert second is not None
    assert (second.stage, second.tries) == (ValidationStage.RUNNING, 2)
    assert second.attempt != first.attempt

    last = after(seen(replace(BEGAN, tries=2), jobs=reported(report), **changes), ASKS)
    assert last is not None
    assert (last.stage, last.verdict) == (ValidationStage.ENDED, ValidationVerdict.UNKNOWN)


def test_an_attempt_without_a_report_ends_after_its_deadline() -> None:
    limit = DEADLINES_SECONDS[3] + 600

    assert after(seen(BEGAN, jobs=None), ASKS, at(limit - 600)) == BEGAN
    late = after(seen(BEGAN, jobs=None), ASKS, at(limit - 599))
    assert late is not None
    assert (late.verdict, late.why) == (ValidationVerdict.UNKNOWN, "no result came in time")


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (fault(), ValidationVerdict.UNKNOWN),
        (fault(severity=Severity.FATAL, code=79), ValidationVerdict.FAIL),
        (fault(severity=Severity.SUSPECT, escalated_because="three"), ValidationVerdict.FAIL),
        (fault(severity=Severity.TEST), ValidationVerdict.UNKNOWN),
        (fault(severity=Severity.INFO), ValidationVerdict.PASS),
        (fault(source=Source.POD), ValidationVerdict.PASS),
        (fault(first_ns=ns(-700)), ValidationVerdict.UNKNOWN),
        (fault(last=KernelPosition("boot-b", None, 700)), ValidationVerdict.PASS),
        (fault(last_ns=ns(-601)), ValidationVerdict.UNKNOWN),
        (fault(last=KernelPosition("boot-b")), ValidationVerdict.UNKNOWN),
        (fault(last=KernelPosition("boot-b"), last_ns=ns(-601)), ValidationVerdict.PASS),
        (fault(last=KernelPosition("boot-a", None, 900)), ValidationVerdict.PASS),
    ],
)
def test_kernel_lines_since_the_begin_of_the_test_spoil_a_pass_whenever_they_are_read(
    line: Incident, verdict: ValidationVerdict
) -> None:
    at_once = ends(JobReport("job-1", result=PASS), line)
    late = after(seen(PASSED, line), ASKS)

    assert at_once.verdict is verdict
    assert late is not None
    assert late.verdict is verdict


def test_each_step_has_its_event_once() -> None:
    def events(snapshot: Snapshot) -> list[EventReason]:
        changes = decided(snapshot, ASKS).changes
        return [each.event for each in changes if each.event] + [e for c in changes for e, _ in c.also]

    assert events(seen(ASKED)) == [EventReason.VALIDATING]
    assert events(seen(BEGAN, jobs=reported(JobReport("job-1")))) == []
    assert events(seen(BEGAN, jobs=reported(JobReport("job-1", result=PASS)))) == [EventReason.VALIDATED]
    assert events(seen(BEGAN, jobs=reported(JobReport("job-1", result=FAIL)))) == [EventReason.NOT_VALIDATED]
    assert events(seen(replace(PASSED, gpus=()))) == []


# The return


def test_the_log_is_read_past_the_end_of_the_test_by_lokis_clock_too() -> None:
    ahead = replace(PASSED, read_end_ns=ns(-60))

    assert decided(seen(ahead)).kept_out["gpu-1"] == Guard.TOO_YOUNG


def test_a_node_returns_on_probation_after_a_pass_that_is_good_in_every_way() -> None:
    plan = decided(seen(PASSED))

    (change,) = plan.changes
    assert change.verb is Verb.UNTAINT
    assert change.event is EventReason.RETURNED
    assert "all 8 GPUs passed a validation at level 3 with driver 570.133.20" in change.message
    record = change.record
    assert record is not None
    assert record.life.stage(tainted=False) is Stage.PROBATION
    mark = record.releases[0]
    assert (mark.how, mark.read, mark.read_ns) == (ReleaseHow.VALIDATED, PASSED.read, PASSED.read_ns)
    assert record.incidents[0].state is IncidentState.RELEASED
    assert record.life.quarantines[0].how is ReleaseHow.VALIDATED
    assert record.validation == PASSED


def test_no_pass_returns_a_node_if_a_person_has_to() -> None:
    assert decided(seen(PASSED), ASKS).changes == ()


def test_a_fault_without_a_need_returns_without_a_reboot_and_one_after_the_begin_does_not() -> None:
    record = replace(RECORD, incidents=())
    place = KernelPosition("boot-b", None, 700)
    here = fault(severity=Severity.FATAL, needs="application-restart", last=place)
    pod = replace(here, source=Source.POD, last=KernelPosition(), last_ns=ns(-600))

    assert [each.verb for each in decided(seen(PASSED, here, record=record)).changes] == [Verb.UNTAINT]
    assert decided(seen(PASSED, pod, record=record)).kept_out["gpu-1"] == Guard.VALIDATING


@pytest.mark.parametrize(
    ("of_snapshot", "guard"),
    [
        ({"read_ns": {Source.KERNEL: ns(-300) + READ_PAST_NS - 1}}, Guard.TOO_YOUNG),
        ({"hearing": {"gpu-1": Hearing("boot-b", ns(-900), ns(-300) + READ_PAST_NS - 1)}}, Guard.TOO_YOUNG),
        ({"hearing": {"gpu-1": Hearing("boot-b", ns(-900), ns(0), has_gap=True)}}, Guard.GAP),
        ({"hearing": {}}, Guard.SILENT),
        ({"standing": {"gpu-1": replace(STOOD, ready_seconds=599.0)}}, Guard.UNSTEADY),
        ({"standing": {"gpu-1": replace(STOOD, gpus_seconds=599.0)}}, Guard.UNSTEADY),
        ({"replaying": True}, Guard.REPLAYING),
        ({"controls": Controls((PAUSE,))}, Guard.PAUSED),
        ({"lost_boots": {"gpu-1": "boot-b"}}, Guard.LINES_LOST),
    ],
)
def test_a_pass_waits_until_the_log_is_read_past_the_end_of_the_test_and_for_every_other_guard(
    of_snapshot: dict[str, Any], guard: Guard
) -> None:
    plan = decided(seen(PASSED, of_snapshot=of_snapshot))

    assert plan.kept_out["gpu-1"] == guard
    assert all(change.verb is not Verb.UNTAINT for change in plan.changes)


def test_a_release_ends_a_wish_and_an_attempt_and_keeps_a_verdict() -> None:
    def left(validation: Validation) -> Validation | None:
        state = seen(validation).nodes["gpu-1"]
        change = release(state, at=at(0), by="kim", reason="", read_ns={})
        assert change is not None
        assert change.record is not None
        return change.record.validation

    assert (left(ASKED), left(BEGAN), left(PASSED)) == (None, None, PASSED)


@pytest.mark.parametrize(
    ("validation", "guard"),
    [
        (None, None),
        (PASSED, None),
        (ASKED, Guard.VALIDATING),  # it begins in this decision
        (BEGAN, Guard.VALIDATING),
        (replace(PASSED, verdict=ValidationVerdict.FAIL), Guard.NOT_VALIDATED),
        (replace(PASSED, verdict=ValidationVerdict.FAIL, asked_at=at(-3700)), None),
        (replace(PASSED, verdict=ValidationVerdict.UNKNOWN, tries=2), None),
    ],
)
def test_a_return_by_reboot_waits_for_a_test_that_runs_and_heeds_a_failure(
    validation: Validation | None, guard: Guard | None
) -> None:
    plan = decided(seen(validation), PolicyConfig(returns_by_reboot=True, validates=True))

    assert plan.kept_out.get("gpu-1") == guard
