"""What people do to a node with our commands: taint it, end a test, ask for its validation.

The command line calls this module. A person decides, so the brake is not asked. The record contains what the
person did, as it contains everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from konductor_like.model import (
    EVIDENCE_CHARS,
    OPERATOR_RULE,
    Change,
    EventReason,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    MetBy,
    NodeRecord,
    NodeState,
    Quarantine,
    Release,
    ReleaseHow,
    Severity,
    Snapshot,
    Validation,
    Verb,
)
from konductor_like.model.time import moment_of, unix_ns
from konductor_like.policy.node.endings import OPEN, met, returns_by_time
from konductor_like.policy.node.health import health_of, with_states
from konductor_like.policy.node.incidents import fold_faults
from konductor_like.policy.node.lifecycle import Facts, Happening, become, time_out_ended
from konductor_like.policy.node.needs import labels_of, need_of
from konductor_like.policy.node.release import released_record
from konductor_like.policy.recovery.validation import is_under_way, wish
from konductor_like.policy.wording import act_of, name_of

OPERATOR = IncidentKey(OPERATOR_RULE, None)
_REASON_CHARS_COMPARED = 60
"""Number of characters of a reason that are compared: the annotation may cut evidence, but not below this."""
_TITLE_CHARS = 200
_TAINTED_BY, _THEN_BY = "Tainted by ", ", then by "


def operator_taint(state: NodeState, *, at: datetime, by: str, reason: str) -> Change | None:
    """Return the change that taints a node for a person; None if the node is tainted for that reason already.

    The incident has the rule ``operator``, and the reasons that people gave as its evidence. ``reset``
    releases it like any other incident.
    """
    record = _up_to_date(state, at)
    known = record.incident(OPERATOR)
    known = known if state.tainted and known is not None and _is_open(known) else None
    if known is not None and reason[:_REASON_CHARS_COMPARED] in known.evidence:
        return None
    evidence = (reason if known is None else f"{known.evidence}; {reason}")[:EVIDENCE_CHARS]
    incident = _incident(state, at, evidence, _title(known, by), f"Ask {by}.")
    if known is not None:
        incident = replace(incident, count=known.count + 1, first_ns=known.first_ns)
    others = tuple(each for each in record.incidents if each.key != OPERATOR)
    stage = record.life.stage(tainted=state.tainted)
    facts = Facts(at, hardware=state.hardware)
    life, verb, event = become(record.life, stage, Happening.TAINTED_BY_PERSON, facts)
    record = with_states(replace(record, life=life, incidents=(*others, incident)), tainted=True)
    return Change(
        node=state.name,
        verb=verb,
        record=replace(record, act=act_of(state, verb, at)),
        health=health_of(record, tainted=True),
        needs=need_of(record, tainted=True),
        event=event,
        message=f"Tainted by {by}: {reason.rstrip('.')}.",
        incident=incident,
    )


def with_found_taint(record: NodeRecord, state: NodeState, at: datetime) -> NodeRecord:
    """Return the record of a tainted node with a person's reason if it does not explain the taint.

    The controller writes its own taint and the claim (``tainted_at``) in one patch. A taint without the claim
    is a person's, another tool's, or older than a damaged record. Only a person removes such a taint.
    """
    known = record.incident(OPERATOR)
    if not state.tainted or (known is not None and _is_open(known)):
        return record
    if state.record_problem is not None:
        reason = "the controller could not read all of the node's record"
    elif not record.life.claimed:
        reason = "the taint was on the node before the controller had a reason for it"
    else:
        return record
    title, advice = "Tainted for an unknown reason", "Find out who tainted the node."
    incident = _incident(state, at, reason, title, advice)
    return replace(record, incidents=(incident, *record.incidents))


def _incident(state: NodeState, at: datetime, evidence: str, title: str, advice: str) -> Incident:
    """Return the incident of a taint by a person."""
    return Incident(
        key=OPERATOR,
        kind=FaultKind.CUSTOM,
        severity=Severity.FATAL,
        state=IncidentState.ACTIVE,
        count=1,
        first_ns=unix_ns(at),
        last_ns=unix_ns(at),
        last=KernelPosition(state.machine.boot_id),
        evidence=evidence,
        title=title,
        advice=f"{advice} `konductor-like reset {state.name}` releases the node.",
    )


def _title(known: Incident | None, by: str) -> str:
    """Return the title: the people who tainted the node, in order of time."""
    if known is None:
        return f"{_TAINTED_BY}{by}"
    return known.title if by in known.title else f"{known.title}{_THEN_BY}{by}"[:_TITLE_CHARS]


def end_test(state: NodeState, test: IncidentKey, *, at: datetime, by: str, reason: str) -> Change | None:
    """Return the change that ends the tests of this key as their time does; None if none is open.

    A taint without another reason goes, and a release by time covers nothing but the test (rule 35).
    """
    before = _up_to_date(state, at)
    tests = [each for each in before.incidents if each.key == test and each.state in OPEN]
    if not tests:
        return None
    incidents = (met(i, MetBy.TIME, unix_ns(at)) if i in tests else i for i in before.incidents)
    record = replace(before, incidents=tuple(incidents))
    verb, event = Verb.RECORD, EventReason.ENDED
    if returns_by_time(before, record):
        mark = Release(at, by, reason, ReleaseHow.TEST_ENDED)
        became = become(record.life, state.stage, Happening.TEST_ENDED, Facts(at, how=mark.how))
        verb, event = became.verb, became.event or event
        record = released_record(replace(state, record=record), became.life, mark)
    tainted = state.tainted and verb is not Verb.UNTAINT
    health, needs = labels_of(record, state, tainted=tainted)
    return Change(
        node=state.name,
        verb=verb,
        record=replace(record, act=act_of(state, verb, at)),
        health=health,
        needs=needs,
        event=event,
        message=f"{name_of(tests[0])} ended by {by}: {reason.rstrip('.')}.",
    )


@dataclass(frozen=True, slots=True)
class PersonsAct:
    """What a person did to a node, as its record shows it."""

    verb: Verb
    why: str
    """The reason of its Event; empty for an act without an Event."""
    by: str | None
    """None if nothing names the person."""
    at: datetime
    """By the person's clock."""
    reason: str = ""
    how: ReleaseHow | None = None
    """How a release was made; None for no release."""
    incident: Incident | None = None
    """The incident that the act is about; None for a release of a whole node."""
    ended: Quarantine | None = None
    """The time out of service that the act ended; None if it ended none."""


def persons_acts(
    before: NodeState | None,
    after: NodeState,
    *,
    since: datetime,
    now: datetime,
    out_since: datetime | None = None,
) -> list[PersonsAct]:
    """Return what people did to a node with our commands, in the order of time.

    ``before`` is the node as it was seen last. None means that it was not seen: then the acts of after
    ``since`` are returned, and ``out_since`` is since when the last controller knew the node as out of
    service. Releases by other means, and those by the controller, are among them: the process that wrote
    them may have been killed before it told them.
    """
    known = before.record if before else NodeRecord(life=Life(tainted_at=out_since))
    had = before is not None and before.as_read.record is not None and (before.tainted or not known.empty)
    if had and after.as_read.record is None and not after.tainted:
        ended = time_out_ended(known, None, now)
        return [PersonsAct(Verb.PURGE, "", None, now, how=ReleaseHow.PURGED, ended=ended)]
    found = [
        *_releases(before, known, after, now),
        *_taints(known, after.record),
    ]
    return sorted((each for each in found if before or each.at >= since), key=lambda act: act.at)


def _releases(
    before: NodeState | None, known: NodeRecord, after: NodeState, now: datetime
) -> Iterator[PersonsAct]:
    record, last = after.record, time_out_ended(known, after.record, now)
    told = {each.at for each in known.releases}
    times_out = [*record.life.quarantines, *([last] if last else [])]
    # The record does not tell since when the node had the taint if somebody else had put it there.
    lost_taint = before is not None and before.tainted and not after.tainted and last is None
    for mark in record.releases:
        if mark.at not in told:
            ended = next((each for each in times_out if each.released_at == mark.at), None)
            untaints = ended is not None or (lost_taint and mark is record.releases[0])
            verb = Verb.UNTAINT if untaints else Verb.RECORD
            is_own = mark.how.by_controller
            why = (EventReason.RETURNED if is_own else EventReason.RELEASED).value
            by = None if is_own else mark.by
            yield PersonsAct(verb, why, by, mark.at, mark.reason, mark.how, ended=ended)


def _taints(known: NodeRecord, record: NodeRecord) -> Iterator[PersonsAct]:
    told = {each.last_ns for each in known.incidents if each.by_person}
    goes_on = known.life.claimed and known.life.tainted_at == record.life.tainted_at
    verb = Verb.RECORD if goes_on else Verb.TAINT
    for each in record.incidents:
        if each.by_person and each.title.startswith(_TAINTED_BY) and each.last_ns not in told:
            by = each.title.removeprefix(_TAINTED_BY).rpartition(_THEN_BY)[2]
            at, why = moment_of(each.last_ns), EventReason.TAINTED.value
            yield PersonsAct(verb, why, by, at, each.evidence, incident=each)


def validate(state: NodeState, level: int, *, by: str, at: datetime, reason: str = "") -> Change:
    """Return the change that wishes a validation of a tainted node; it replaces the last verdict."""
    return _with_validation(state, wish(level, by, at, reason), at)


def cancel_validation(state: NodeState, *, at: datetime) -> Change | None:
    """Return the change that ends a wish or an attempt; None without either. A verdict stays."""
    return _with_validation(state, None, at) if is_under_way(state.record.validation) else None


def _with_validation(state: NodeState, validation: Validation | None, at: datetime) -> Change:
    record = replace(_up_to_date(state, at), validation=validation, act=act_of(state, Verb.RECORD, at))
    health, needs = labels_of(record, state, tainted=state.tainted)
    return Change(state.name, Verb.RECORD, record, health, needs=needs)


def _up_to_date(state: NodeState, at: datetime) -> NodeRecord:
    """Return the record as the controller would write it now, after a reboot or a removal by hand."""
    return with_states(fold_faults(state, (), Snapshot({}), at).record, tainted=state.tainted)


def _is_open(incident: Incident) -> bool:
    return incident.state is not IncidentState.RELEASED
