"""Validations: who is validated next, what its Job's result means, and when it is good for a return.

A validation goes from a wish to an attempt, and from there to a verdict. The decision writes each step on the
record. This module is pure: the Jobs are seen in ``Snapshot.validations``.

A verdict counts for an hour, in the boot of its test, and only while the kernel log says nothing against it:
a line that the machine wrote after the test began spoils a pass, whenever it is read.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256

from konductor_like.model import (
    UNSHARED,
    BrakeState,
    EventReason,
    Incident,
    IncidentState,
    JobReport,
    Needs,
    NodeRecord,
    NodeState,
    Severity,
    Snapshot,
    Source,
    Validation,
    ValidationResult,
    ValidationStage,
    ValidationVerdict,
)
from konductor_like.model.text import clipped, listed
from konductor_like.model.time import stamp, unix_ns
from konductor_like.model.validation import DEADLINES_SECONDS, GPUS_KEPT
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.lifecycle import times_out
from konductor_like.policy.node.release import CONTROLLER
from konductor_like.policy.wording import name_of, pause_words

RUNNING_MOST = 2
"""Validations that run at a time, at most; in one NVLink domain one."""
VALID = timedelta(hours=1)
"""How long after its end a pass may return a node."""
TRIES_MOST = 2
"""Attempts of one wish, at most: an unknown result is tried once more."""
AGAIN_AFTER = timedelta(minutes=10)
OVERDUE = timedelta(minutes=10)
"""Time after an attempt's deadline at which it ends without a report of its Job."""
WHY_CHARS = 240
_NEEDS_NO_REPAIR = (Needs.NONE, Needs.APPLICATION_RESTART)
_AFTER_REPAIR_LEVEL, _REPEATED_LEVEL = 3, 4


def level_for(record: NodeRecord, policy: PolicyConfig, now: datetime) -> int:
    """Return the least level of a validation that may return the node.

    Faults that need no repair ask for level 2, a repaired one for 3, and a node that was out of service
    before, within ``repeat_days``, for 4.
    """
    if times_out(record.life, policy, now):
        return _REPEATED_LEVEL
    repaired = any(each.needs not in _NEEDS_NO_REPAIR for each in _reasons(record))
    return max(policy.validation_level, _AFTER_REPAIR_LEVEL if repaired else 0)


def need_is_met(incident: Incident, validation: Validation | None) -> bool:
    """Whether the incident needs no repair, or its need was met before the test of a validation began.

    Without a validation that has begun: whether its need is met now.
    """
    if incident.needs in _NEEDS_NO_REPAIR:
        return True
    began_at = validation.began_at if validation else None
    return incident.met_ns is not None and (began_at is None or incident.met_ns <= unix_ns(began_at))


def advanced(
    records: Mapping[str, NodeRecord],
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState,
) -> dict[str, Validation]:
    """Return the validations that change in this decision, by node.

    ``records`` are those that this decision has changed. A person's wish goes before the controller's, and
    of each kind the oldest goes first.
    """
    found: dict[str, Validation] = {}
    running: list[NodeState] = []
    asked: list[tuple[bool, datetime, str, NodeState, Validation]] = []
    for name, state in snapshot.nodes.items():
        record = records.get(name, state.record)
        before = record.validation
        if before is None:
            continue
        if not state.tainted:
            # A Node that registers again gets its record and its taint in this decision.
            running += [state] if _may_run(before, now) else []
            continue
        after = _progressed(before, replace(state, record=record), snapshot, now)
        if after != before:
            found[name] = after
        if before.stage is ValidationStage.RUNNING:
            running.append(state)  # one that ends now, too: its Job is not deleted yet
        if after.stage is ValidationStage.ASKED:
            state = replace(state, record=record)
            asked.append((after.by == CONTROLLER, after.asked_at, name, state, after))
    for _, _, name, state, wished in sorted(asked, key=lambda each: each[:3]):
        why = next(_waits(wished, state, running, snapshot, policy, now, brake), "")
        if why:
            after = replace(wished, waits=clipped(why, WHY_CHARS))
        else:
            after = _begun(wished, state, snapshot, now)
            running.append(state)
        if after != state.record.validation:
            found[name] = after
    return found


def wish(level: int, by: str, now: datetime, reason: str = "") -> Validation:
    """Return the wish for a validation."""
    return Validation(ValidationStage.ASKED, level, now, by, reason)


def _waits(
    wished: Validation,
    state: NodeState,
    running: list[NodeState],
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState,
) -> Iterator[str]:
    """Yield why a wish cannot begin now."""
    if not policy.validates:
        yield "the controller has no image for it (KONDUCTOR_VALIDATION_IMAGE)"
    if policy.rehearses:
        yield "KONDUCTOR_RECOVERY is rehearse, so no validation begins"
    if policy.recovery_by_file:
        yield "the file of KONDUCTOR_RECOVERY_FILE is there, so no validation begins"
    if wished.ended_at is not None and now < wished.ended_at + AGAIN_AFTER:
        again = stamp(wished.ended_at + AGAIN_AFTER)
        yield f"the first result is unknown ({wished.why}); once more at {again}"
    yield from _waits_for_others(state, running, snapshot, now, brake)
    if state.name in snapshot.ambiguous:
        yield "two machines report under its name"
    yield from why_not_testable(state)
    if snapshot.validations is not None and snapshot.validations.problem:
        yield snapshot.validations.problem
    users = snapshot.validations.users.get(state.name) if snapshot.validations else None
    if users is None:
        yield "the controller has not looked at the node's pods yet"
    elif users:
        yield f"pods use its GPUs: {users}"


def _waits_for_others(
    state: NodeState, running: list[NodeState], snapshot: Snapshot, now: datetime, brake: BrakeState
) -> Iterator[str]:
    """Yield why no validation begins now that has nothing to do with the node itself."""
    pause = snapshot.controls.pause
    if pause is not None and pause.holds(now):
        yield f"tainting and returns are {pause_words(pause)}"
    if snapshot.lease_unread:
        yield "the Lease cannot be read, and a person may have paused"
    if any(not held.is_test for held in brake.held):
        yield f"the brake holds {brake.held[0].node} back"
    if len(running) >= RUNNING_MOST:
        names = listed(sorted(each.name for each in running), 2)
        yield f"validations run on {names}, and no more may at a time"
    if state.domain and any(each.domain == state.domain for each in running):
        yield f"a validation runs in the same NVLink domain ({state.domain})"


def why_not_testable(state: NodeState) -> Iterator[str]:
    """Yield why this Node cannot be validated as it is now; the command line says it, too."""
    if state.opted_out:
        yield "the node is ignored"
    if not state.selected:
        yield "the controller's KONDUCTOR_NODE_SELECTOR does not select the node"
    if state.record_problem is not None:
        yield "its record cannot be read in full"
    if not state.ready:
        yield "the Node is not Ready"
    if state.unschedulable:
        yield "the Node is cordoned"
    if state.machine.boot_id is None:
        yield "the Node does not tell its boot id"
    gpus, expected = state.gpus, expected_gpus(state)
    if not gpus.comparable or gpus.layout != UNSHARED:
        yield "its GPUs are split or shared (MIG, time-slicing, MPS), which validations do not support"
    elif gpus.paused:
        yield "its driver or device plugin is being replaced"
    elif gpus.by_slices:
        yield "its GPUs are given to pods by DRA claims, which validations do not support"
    elif not gpus.allocatable:
        yield "none of its GPUs is allocatable"
    elif gpus.allocatable < expected:
        yield f"only {gpus.allocatable} of its {expected} GPUs are allocatable"


def expected_gpus(state: NodeState) -> int:
    """Return how many GPUs a validation of the node must find."""
    return max(state.gpus.capacity, state.record.gpus or 0)


def _begun(wished: Validation, state: NodeState, snapshot: Snapshot, now: datetime) -> Validation:
    tries = wished.tries + 1
    seed = f"{state.machine.node_uid} {wished.asked_at.isoformat()} {tries} {now.isoformat()}"
    return replace(
        wish(wished.level, wished.by, wished.asked_at, wished.reason),
        stage=ValidationStage.RUNNING,
        tries=tries,
        attempt=b32encode(sha256(seed.encode()).digest()).decode()[:12].lower(),
        boot_id=state.machine.boot_id,
        began_at=now,
        read=replace(state.record.read, boot_id=state.record.read.boot_id or state.machine.boot_id),
        read_ns=dict(snapshot.read_ns),
        expected_gpus=expected_gpus(state),
    )


def _progressed(before: Validation, state: NodeState, snapshot: Snapshot, now: datetime) -> Validation:
    """Return the validation after what is known by now of its Job, its boot and the kernel log."""
    if before.stage is ValidationStage.ENDED and before.verdict is ValidationVerdict.PASS:
        spoiled = _spoiled(before, state.record)
        return _ended(before, spoiled, before.ended_at or now, before.read_end_ns) if spoiled else before
    if before.stage is not ValidationStage.RUNNING:
        return before
    report = snapshot.validations.reports.get(before.attempt) if snapshot.validations else None
    if report is not None and report.job_uid:
        before = replace(before, job_uid=report.job_uid)
    result = _result(before, state, report, now)
    if result is None:
        return replace(before, waits=clipped(report.why if report else before.waits, WHY_CHARS))
    read_ns = snapshot.read_ns.get(Source.KERNEL, 0)
    return _ended(before, _spoiled(before, state.record) or result, now, read_ns)


def _result(
    running: Validation, state: NodeState, report: JobReport | None, now: datetime
) -> ValidationResult | None:
    """Return the result of the attempt; None while it runs."""
    unknown = ValidationVerdict.UNKNOWN
    if running.boot_id != state.machine.boot_id:
        return ValidationResult(unknown, "the node rebooted during the test")
    if report is not None and report.result is not None:
        return report.result
    if report is not None and report.gone:
        return ValidationResult(unknown, "somebody deleted its Job")
    if report is not None and report.refused:
        return ValidationResult(unknown, report.why)
    if not _may_run(running, now):
        return ValidationResult(unknown, running.waits or "no result came in time")
    return None


def _may_run(validation: Validation, now: datetime) -> bool:
    """Whether the Job of an attempt may still run: its deadline has not passed."""
    if validation.stage is not ValidationStage.RUNNING or validation.began_at is None:
        return False
    return (
        now - validation.began_at <= timedelta(seconds=DEADLINES_SECONDS.get(validation.level, 0)) + OVERDUE
    )


def _spoiled(validation: Validation, record: NodeRecord) -> ValidationResult | None:
    """Return the result that lines of the kernel log since the test began make of any other; None without.

    A fault that taints is the hardware's word. Any other, such as an Xid 43 under the test's load, leaves the
    result unknown.
    """
    if validation.began_at is None:
        return None
    later = [
        each
        for each in record.incidents
        if each.source is Source.KERNEL
        and validation.began_before(each.last, each.last_ns)
        and each.last.boot_id in (None, validation.boot_id)
        and each.has_line
        and each.severity is not Severity.INFO
    ]
    grave = [each for each in later if each.taints and each.severity is not Severity.TEST]
    if not later:
        return None
    verdict = ValidationVerdict.FAIL if grave else ValidationVerdict.UNKNOWN
    names = listed(sorted({name_of(each) for each in grave or later}), 3)
    return ValidationResult(verdict, f"the kernel reported {names} after the test began")


def _ended(running: Validation, result: ValidationResult, at: datetime, read_ns: int) -> Validation:
    """Return the validation with its verdict; an unknown one is wished again, once.

    ``read_ns`` is up to when the kernel log has been read.
    """
    is_last = result.verdict is not ValidationVerdict.UNKNOWN or running.tries >= TRIES_MOST
    return replace(
        running,
        stage=ValidationStage.ENDED if is_last else ValidationStage.ASKED,
        ended_at=at,
        read_end_ns=read_ns,
        verdict=result.verdict,
        waits="",
        why=clipped(result.why, WHY_CHARS),
        driver=result.driver or running.driver,
        gpus=result.gpus[:GPUS_KEPT] or running.gpus,
    )


def is_sufficient(
    validation: Validation | None,
    open_ones: Iterable[Incident],
    state: NodeState,
    policy: PolicyConfig,
    now: datetime,
) -> bool:
    """Whether a pass is enough for a return of the node now.

    It is of the present boot, at most an hour old, of the level that the faults ask for, and the test began
    after all ``open_ones`` and after their needs were met.
    """
    if validation is None or validation.began_at is None or validation.ended_at is None:
        return False
    return (
        validation.stage is ValidationStage.ENDED
        and validation.verdict is ValidationVerdict.PASS
        and validation.boot_id == state.machine.boot_id
        and abs(now - validation.ended_at) <= VALID
        and validation.level >= level_for(state.record, policy, now)
        and not any(validation.began_before(each.last, each.last_ns) for each in open_ones)
        and all(need_is_met(each, validation) for each in open_ones)
    )


def is_dead_end(validation: Validation, record: NodeRecord) -> bool:
    """Whether a validation of this time out of service ended without a pass, so that a person has to look."""
    is_over = validation.stage is ValidationStage.ENDED
    return (
        is_over and validation.verdict is not ValidationVerdict.PASS and is_of_this_time(validation, record)
    )


def is_of_this_time(validation: Validation, record: NodeRecord) -> bool:
    """Whether the validation was asked for in the present time out of service."""
    return record.life.tainted_at is None or validation.asked_at >= record.life.tainted_at


def events_of(before: Validation | None, after: Validation | None) -> list[tuple[EventReason, str]]:
    """Return the Events about a step of the validation, with their messages."""
    if after is None or before == after:
        return []
    is_new = before is None or before.attempt != after.attempt
    if after.stage is ValidationStage.RUNNING and is_new:
        asked = "" if after.by == CONTROLLER else f", for {after.by}{': ' * bool(after.reason)}{after.reason}"
        words = f"A validation of {after.expected_gpus} GPUs at level {after.level} begins{asked}"
        return [(EventReason.VALIDATING, f"{words} (attempt {after.attempt}).")]
    told = (before.verdict, before.ended_at) if before else (None, None)
    if after.verdict is None or told == (after.verdict, after.ended_at):
        return []
    reason = EventReason.VALIDATED if after.verdict is ValidationVerdict.PASS else EventReason.NOT_VALIDATED
    return [(reason, f"{verdict_words(after)} (attempt {after.attempt}).")]


def stage_words(validation: Validation | None) -> str:
    """Return how far the validation of a node is that returns after one, as a sentence without its end."""
    if validation is None or validation.stage is ValidationStage.ENDED:
        return "The node is validated first"
    return f"A validation {progress_words(validation)}"


def progress_words(validation: Validation) -> str:
    """Return how far a validation under way is, for words before it: ``waits: the Node is not Ready``."""
    if validation.stage is ValidationStage.ASKED:
        return f"waits: {validation.waits}" if validation.waits else "is asked for"
    since = f" since {stamp(validation.began_at)}" if validation.began_at else ""
    waits = f", and its pod waits: {validation.waits}" if validation.waits else ""
    return f"runs{since}{waits}"


def is_under_way(validation: Validation | None) -> bool:
    """Whether a validation waits or runs."""
    return validation is not None and validation.stage is not ValidationStage.ENDED


def lower(sentence: str) -> str:
    """Return the sentence as a part of another one."""
    return sentence[:1].lower() + sentence[1:]


def verdict_words(validation: Validation) -> str:
    """Return the verdict as a sentence without its end: ``8 GPUs passed level 3 with driver 570.133.20``."""
    driver = f" with driver {validation.driver}" if validation.driver else ""
    if validation.verdict is ValidationVerdict.PASS:
        return f"All {validation.expected_gpus} GPUs passed a validation at level {validation.level}{driver}"
    if validation.verdict is ValidationVerdict.FAIL:
        return f"The validation failed: {validation.why}"
    more = "; it is tried once more" if validation.stage is ValidationStage.ASKED else ""
    return f"The result of the validation is unknown: {validation.why}{more}"


def _reasons(record: NodeRecord) -> list[Incident]:
    return [each for each in record.incidents if each.taints and each.state is not IncidentState.RELEASED]
