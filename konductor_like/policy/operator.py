"""What people do to a node through us: taint it for a reason of their own, acknowledge what is known of it.

The command line calls it. A person decides, so the brake is not asked; what they did is in the same record as
everything else.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from konductor_like.model import (
    EVIDENCE_CHARS,
    OPERATOR_RULE,
    Ack,
    Change,
    EventReason,
    FaultKind,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    NodeRecord,
    NodeState,
    Severity,
    Verb,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.incidents import SUSPECT, fold_faults, health_of, with_states
from konductor_like.policy.release import released_by_hand
from konductor_like.policy.wording import act_of, name_of

OPERATOR = IncidentKey(OPERATOR_RULE, None)
_REASON_CHARS_COMPARED = 60
"""A record that is short of room cuts evidence, but not below so many characters."""
_TITLE_CHARS = 200


def operator_taint(state: NodeState, *, at: datetime, by: str, reason: str) -> Change | None:
    """The change that taints a node because a person wants it; None where one stands for that reason already.

    The incident is of the rule ``operator``, its evidence is the reason, or all of them that people gave;
    ``reset`` releases it as any other.
    """
    record = _up_to_date(state, at)
    known = record.incident(OPERATOR)
    known = known if state.tainted and known is not None and _is_open(known) else None
    if known is not None and reason[:_REASON_CHARS_COMPARED] in known.evidence:
        return None
    incident = Incident(
        key=OPERATOR,
        kind=FaultKind.CUSTOM,
        severity=Severity.FATAL,
        state=IncidentState.ACTIVE,
        count=1 if known is None else known.count + 1,
        first_ns=unix_ns(at) if known is None else known.first_ns,
        last_ns=unix_ns(at),
        last=KernelPosition(state.machine.boot_id),
        evidence=(reason if known is None else f"{known.evidence}; {reason}")[:EVIDENCE_CHARS],
        title=_title(known, by),
        advice=f"Ask {by}; `konductor-like reset {state.name}` brings it back.",
    )
    others = tuple(each for each in record.incidents if each.key != OPERATOR)
    record = with_states(replace(record, incidents=(*others, incident)), tainted=True)
    record = replace(record, tainted_at=record.tainted_at or at)
    verb = Verb.RECORD if state.tainted else Verb.TAINT
    return Change(
        node=state.name,
        verb=verb,
        record=replace(record, act=act_of(state, verb, at)),
        health=health_of(record, tainted=True),
        event=EventReason.TAINTED,
        message=f"Tainted by {by}: {reason.rstrip('.')}.",
        incident=incident,
    )


def _title(known: Incident | None, by: str) -> str:
    """Who wanted it, the first first."""
    if known is None:
        return f"Tainted by {by}"
    return known.title if by in known.title else f"{known.title}, then by {by}"[:_TITLE_CHARS]


def acknowledge(state: NodeState, rule: str | None, *, at: datetime, by: str, reason: str) -> Change | None:
    """The change that marks what stands against a node as seen by a person; None where nothing does.

    Of ``rule``, else of every rule. A taint stays. What does not taint makes its node suspect no more, until
    it is seen again.
    """
    record = _up_to_date(state, at)
    seen = [each for each in record.incidents if _is_open(each) and rule in (None, each.key.rule)]
    if not seen:
        return None
    ack = Ack(at, by, reason)
    record = replace(
        record, incidents=tuple(replace(i, ack=ack) if i in seen else i for i in record.incidents)
    )
    health = health_of(record, tainted=state.tainted)
    return Change(
        node=state.name,
        verb=Verb.RECORD,
        record=replace(record, act=act_of(state, Verb.RECORD, at)),
        health=health,
        suspect_taint=state.suspect_tainted and health == SUSPECT,
        event=EventReason.ACKNOWLEDGED,
        message=f"{', '.join(dict.fromkeys(map(name_of, seen)))} acknowledged by {by}: {reason.rstrip('.')}.",
        incident=replace(seen[0], ack=ack),
    )


def _up_to_date(state: NodeState, at: datetime) -> NodeRecord:
    """The record as the controller would have it now: after a reboot, after a removal by hand."""
    removed = state.record.tainted_at is not None and not state.tainted
    removal = partial(released_by_hand, state=state, now=at, read_ns={}) if removed else None
    return with_states(fold_faults(state, (), (), at, removal=removal).record, tainted=state.tainted)


def _is_open(incident: Incident) -> bool:
    return incident.state is not IncidentState.RELEASED
