"""One node's write, from what was judged and admitted: what to set, and the words for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from konductor_like.model import (
    BrakeState,
    Change,
    EventReason,
    Fault,
    Incident,
    IncidentKey,
    IncidentState,
    NodeRecord,
    NodeState,
    Refusal,
    Role,
    Severity,
    Verb,
)
from konductor_like.policy.acts import act_of
from konductor_like.policy.brakewords import settling_words, why_held
from konductor_like.policy.contest import words as contested
from konductor_like.policy.holds import held_longer
from konductor_like.policy.judge import Judgement
from konductor_like.policy.release import name_of
from konductor_like.policy.rules import Rules
from konductor_like.policy.suspicion import bears_suspect_taint


@dataclass(slots=True)
class Case:
    """One node that needs looking at, and what came of it."""

    state: NodeState
    judgement: Judgement
    removed_by_hand: bool
    ambiguous: bool
    """Two machines report under its name: nobody can say whose fault it is (design rule 3)."""
    gravest: Incident | None = None
    """The incident to taint for, if there is one."""
    settling: Mapping[IncidentKey, int] = field(default_factory=dict)
    """What may taint only once it has settled, and until when (a Loki timestamp)."""


def tainting(record: NodeRecord) -> list[Incident]:
    """The incidents that a taint stands for, or would stand for if the brake let it."""
    open_states = (IncidentState.ACTIVE, IncidentState.HELD)
    return [
        i for i in record.incidents if i.taints and i.state in open_states and i.role is not Role.COLLATERAL
    ]


def health_of(record: NodeRecord, *, tainted: bool) -> str | None:
    """The value of the health label; None for a node that nothing stands against."""
    if tainted:
        return "faulty"
    if tainting(record):
        return "held"
    return "suspect" if any(map(_is_suspicious, record.incidents)) else None


def _is_suspicious(incident: Incident) -> bool:
    """Whether it makes a node suspect; what a person has acknowledged does not."""
    if incident.ack is not None:
        return False
    if incident.state is not IncidentState.ACTIVE:
        return incident.state is IncidentState.PENDING
    if incident.role is Role.COLLATERAL:
        return incident.severity.taints  # it looked fatal: worth a look still
    return incident.severity is Severity.SUSPECT


def change_of(
    case: Case,
    rules: Rules,
    now: datetime,
    *,
    admitted: bool,
    brake: BrakeState,
    due: bool,
    refused: Refusal | None = None,
) -> Change | None:
    """The write for one node, or None where memory will do for now.

    ``refused`` says why the ``brake`` holds it back, if it does.
    """
    state, judgement = case.state, case.judgement
    record, gravest = judgement.record, case.gravest
    taint = admitted or (gravest is not None and state.tainted)
    if taint:
        record = held_longer(judgement.record, with_taint(record, now), rules, now)
    tainted = state.tainted or admitted
    health = health_of(record, tainted=tainted)
    softly = bears_suspect_taint(state, health, rules, news=bool(judgement.news))
    lingers = state.suspect_tainted and not softly
    if not (due or judgement.urgent or lingers or record != judgement.record):
        return None
    if record.empty and state.record.empty and state.as_read.record is None:
        return None
    newly_tainted = admitted and not state.tainted
    event, message = _announcement(case, record, newly_tainted=newly_tainted, brake=brake, refused=refused)
    verb = Verb.TAINT if newly_tainted else Verb.RECORD
    if newly_tainted or lingers or record != state.record:
        record = replace(record, act=act_of(state, verb, now, rules.version))
    return Change(
        node=state.name,
        verb=verb,
        record=None if record.empty else record,
        health=health,
        suspect_taint=softly,
        event=event,
        message=message,
        incident=gravest if newly_tainted else None,
        evidence=_evidence(judgement, gravest if newly_tainted else None),
        news=tuple(judgement.news),
        grown=judgement.grown,
    )


def with_taint(record: NodeRecord, now: datetime) -> NodeRecord:
    """The record once the taint stands: what was held holds, and the taint is claimed as ours."""
    incidents = tuple(
        replace(incident, state=IncidentState.ACTIVE) if incident.state is IncidentState.HELD else incident
        for incident in record.incidents
    )
    return replace(record, incidents=incidents, tainted_at=record.tainted_at or now)


def is_due(record: NodeRecord, rules: Rules, now: datetime) -> bool:
    """Whether counts that have only grown may be written: our last write of the node is an interval ago.

    The first line of a storm is written at once, the next count ten minutes later (design rule 22).
    """
    if record.act is None:
        return True
    # A write that lies in the future was made before our clock was put back.
    return abs(now - record.act.at) >= timedelta(seconds=rules.record_interval_seconds)


def _announcement(
    case: Case, record: NodeRecord, *, newly_tainted: bool, brake: BrakeState, refused: Refusal | None
) -> tuple[EventReason | None, str]:
    """Which Event the write deserves, and its words."""
    gravest = case.gravest
    contest = contested(record) if case.removed_by_hand else ""
    if newly_tainted and gravest is not None:
        written = next((i for i in tainting(record) if i.key == gravest.key), gravest)
        return EventReason.TAINTED, " ".join((describe(written), *_marks(record), contest)).rstrip()
    if contest:
        return EventReason.CONTESTED, contest
    if case.removed_by_hand and not case.state.tainted and gravest is None:
        by = record.releases[0].by
        return EventReason.RELEASED, f"The taint was removed by {by}; its evidence will not taint again."
    if not case.judgement.news:
        notable = case.judgement.notable
        return (None, "") if notable is None else (EventReason.RECORDED, describe(notable))
    if gravest is not None and case.state.blocked:
        return (
            EventReason.RECORDED,
            f"{describe(gravest)} Not tainted: another's taint has our key and effect.",
        )
    if gravest is not None and case.ambiguous and not case.state.tainted:
        return EventReason.RECORDED, f"{describe(gravest)} Not tainted: two machines report under this name."
    if gravest is not None and not (case.state.selected or case.state.tainted):
        return EventReason.RECORDED, f"{describe(gravest)} Not tainted: the node selector leaves it out."
    if gravest is not None and not case.state.tainted:
        why = why_held(refused or Refusal.BRAKE, brake, case.state.pool)
        return EventReason.HELD, f"{describe(gravest)} Held: {why}."
    newest = record.incidents[-1]
    settles_ns = case.settling.get(newest.key)
    waits = "" if settles_ns is None else f" Not tainted yet: {settling_words(settles_ns)}."
    return EventReason.RECORDED, f"{describe(newest)}{waits}"


def _marks(record: NodeRecord) -> Iterator[str]:
    """What its earlier times out mean for a node that is tainted again."""
    if record.replace_since is not None:
        yield "It failed too often and is marked for replacement."
    elif record.hold_until is not None:
        yield f"It failed before and is held until {record.hold_until:%Y-%m-%dT%H:%M:%SZ} at least."


def describe(incident: Incident) -> str:
    """One incident in one or two sentences, with its line."""
    name = name_of(incident)
    test = " (a test)" if incident.severity is Severity.TEST else ""
    by_user = " (written by a user)" if incident.user_written else ""
    evidence = f' Line: "{incident.evidence}"' if incident.evidence else ""
    if incident.role is Role.COLLATERAL and incident.origin is not None:
        return (
            f"{name}{by_user}: {incident.title}. It followed from a failure on {incident.origin}.{evidence}"
        )
    grounds = f" Tainted for: {incident.grounds}." if incident.grounds else ""
    return f"{name}{test}{by_user}: {incident.title}.{grounds} {incident.advice}{evidence}"


def _evidence(judgement: Judgement, tainted_for: Incident | None) -> Fault | None:
    if tainted_for is None:
        return judgement.news[-1] if judgement.news else None
    return next((fault for fault in judgement.news if fault.key == tainted_for.key), None)
