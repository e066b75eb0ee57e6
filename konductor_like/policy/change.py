"""One node's write, from what was decided: what to set and what to say; and why nodes are not tainted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from konductor_like.model import (
    Change,
    EventReason,
    Fault,
    Ignored,
    Incident,
    IncidentKey,
    IncidentState,
    NodeRecord,
    NodeState,
    Refusal,
    Refused,
    Role,
    Source,
    Verb,
)
from konductor_like.policy.brake import Admission, urgency
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.correlation import Waiting
from konductor_like.policy.incident_builder import with_boot
from konductor_like.policy.incidents import (
    NO_GPU,
    OPTED_OUT,
    SUSPECT,
    Folded,
    health_of,
    tainting,
    with_taint,
)
from konductor_like.policy.release import contest_words, held_longer
from konductor_like.policy.wording import act_of, deferral_words, describe, why_held

USER_WRITTEN = "a user wrote it into the kernel log"
_OF_IGNORED = {
    OPTED_OUT: Refusal.OPTED_OUT,
    NO_GPU: Refusal.NO_GPU,
    USER_WRITTEN: Refusal.USER_WRITTEN,
}
"""Why a line led to nothing, where it would have tainted otherwise. Other reasons say that it is no news."""
_EXCLUDED = {
    Refusal.OPTED_OUT: OPTED_OUT,
    Refusal.NOT_SELECTED: "the node selector leaves it out",
    Refusal.BLOCKED: "another's taint has our key and effect",
    Refusal.AMBIGUOUS: "two machines report under this name",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One node that needs looking at, and what came of it."""

    state: NodeState
    folded: Folded
    removed_by_hand: bool
    ambiguous: bool
    """Two machines report under its name: nobody can say whose fault it is (rule 3)."""
    deferred: Mapping[IncidentKey, int] = field(default_factory=dict)
    """What may taint only once it has settled, and until when (a Loki timestamp)."""

    @property
    def gravest(self) -> Incident | None:
        """The incident to taint for, if there is one."""
        grave = [i for i in tainting(self.folded.record) if i.key not in self.deferred]
        return min(grave, key=urgency, default=None)

    @property
    def excluded(self) -> Refusal | None:
        """Why this node would not be tainted whatever stands against it."""
        if self.state.opted_out:
            return Refusal.OPTED_OUT
        if not self.state.selected:
            return Refusal.NOT_SELECTED
        if self.state.blocked:
            return Refusal.BLOCKED
        return Refusal.AMBIGUOUS if self.ambiguous else None


def change_of(case: Case, admission: Admission, rules: PolicyConfig, now: datetime) -> Change | None:
    """The write for one node, or None where memory will do for now."""
    state, folded = case.state, case.folded
    record, gravest = folded.record, case.gravest
    admitted = state.name in admission.admitted
    due = bool(folded.grown) and is_due(state.record, rules, now)
    taint = admitted or (gravest is not None and state.tainted)
    if taint:
        record = held_longer(folded.record, with_taint(record, now), rules, now)
    tainted = state.tainted or admitted
    health = health_of(record, tainted=tainted)
    softly = bears_suspect_taint(state, health, rules, news=bool(folded.news))
    lingers = state.suspect_tainted and not softly
    if not (due or folded.urgent or lingers or record != folded.record):
        return None
    if record.empty and state.record.empty and state.as_read.record is None:
        return None
    newly_tainted = admitted and not state.tainted
    event, message = _announcement(case, record, admission, newly_tainted=newly_tainted)
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
        evidence=_evidence(folded, gravest if newly_tainted else None),
        news=tuple(folded.news),
        grown=folded.grown,
    )


def is_due(record: NodeRecord, rules: PolicyConfig, now: datetime) -> bool:
    """Whether counts that have only grown may be written: our last write of the node is an interval ago.

    The first line of a storm is written at once, the next count ten minutes later (rule 22).
    """
    if record.act is None:
        return True
    # A write that lies in the future was made before our clock was put back.
    return abs(now - record.act.at) >= timedelta(seconds=rules.record_interval_seconds)


def _announcement(
    case: Case, record: NodeRecord, admission: Admission, *, newly_tainted: bool
) -> tuple[EventReason | None, str]:
    """Which Event the write deserves, and its words."""
    gravest = case.gravest
    contest = contest_words(record) if case.removed_by_hand else ""
    if newly_tainted and gravest is not None:
        written = next((i for i in tainting(record) if i.key == gravest.key), gravest)
        return EventReason.TAINTED, " ".join((describe(written), *_marks(record), contest)).rstrip()
    if contest:
        return EventReason.CONTESTED, contest
    if case.removed_by_hand and not case.state.tainted and gravest is None:
        by = record.releases[0].by
        return EventReason.RELEASED, f"The taint was removed by {by}; its evidence will not taint again."
    if not case.folded.news:
        notable = case.folded.notable
        return (None, "") if notable is None else (EventReason.RECORDED, describe(notable))
    if gravest is not None and not case.state.tainted:
        if case.excluded is not None:
            return EventReason.RECORDED, f"{describe(gravest)} Not tainted: {_EXCLUDED[case.excluded]}."
        refusal = admission.refused.get(case.state.name, Refusal.BRAKE)
        why = why_held(refusal, admission.brake, case.state.pool)
        return EventReason.HELD, f"{describe(gravest)} Held: {why}."
    newest = record.incidents[-1]
    deferred_until_ns = case.deferred.get(newest.key)
    waits = "" if deferred_until_ns is None else f" Not tainted yet: {deferral_words(deferred_until_ns)}."
    return EventReason.RECORDED, f"{describe(newest)}{waits}"


def _marks(record: NodeRecord) -> Iterator[str]:
    """What its earlier times out mean for a node that is tainted again."""
    if record.replace_since is not None:
        yield "It failed too often and is marked for replacement."
    elif record.hold_until is not None:
        yield f"It failed before and is held until {record.hold_until:%Y-%m-%dT%H:%M:%SZ} at least."


def _evidence(folded: Folded, tainted_for: Incident | None) -> Fault | None:
    if tainted_for is None:
        return folded.news[-1] if folded.news else None
    return next((fault for fault in folded.news if fault.key == tainted_for.key), None)


def bears_suspect_taint(state: NodeState, health: str | None, rules: PolicyConfig, *, news: bool) -> bool:
    """Whether the node is to bear the softer taint, given the ``health`` that is written with it.

    It comes with the suspicion, or with ``news`` of another one. One that a person took off by hand stays off
    until then.
    """
    if health != SUSPECT or not rules.suspect_taint or state.opted_out or not state.selected:
        return False
    return state.suspect_tainted or news or state.as_read.health != SUSPECT


def refusals(
    cases: Mapping[str, Case],
    deferred: Waiting,
    refused: Mapping[str, Refusal],
    ignored: Iterable[Ignored],
) -> tuple[Refused, ...]:
    """Every node that is not tainted although something stands against it, once for each reason.

    ``settling`` are incidents that wait, ``refused`` is what the brake said; ``ignored`` faults would have
    tainted but for what their node or their line is.
    """
    told: dict[Refused, None] = {}
    for name, case in cases.items():
        if case.state.tainted:
            continue
        record, gravest = case.folded.record, case.gravest
        for key, until_ns in sorted(deferred.get(name, {}).items(), key=str):
            told[Refused(name, key, Refusal.DEFERRED, deferral_words(until_ns), record.incident(key))] = None
        why = None if gravest is None else case.excluded or refused.get(name)
        if why is not None and gravest is not None:
            told[Refused(name, gravest.key, why, about=gravest)] = None
        told |= dict.fromkeys(_of_incidents(name, record))
    for item in ignored:
        reason = _OF_IGNORED.get(item.reason)
        if reason is not None and item.fault.severity.taints and item.fault.node is not None:
            told[Refused(item.fault.node, item.fault.key, reason, about=item.fault)] = None
    return tuple(told)


def _of_incidents(name: str, record: NodeRecord) -> Iterator[Refused]:
    """What would taint, and is no reason to: it waits for its boot, or followed from something elsewhere."""
    for incident in record.incidents:
        if not incident.taints or incident.state is IncidentState.RELEASED:
            continue
        if incident.state is IncidentState.PENDING:
            yield Refused(name, incident.key, Refusal.PENDING, f"boot {incident.last.boot_id}", incident)
        elif incident.role is Role.COLLATERAL:
            yield Refused(name, incident.key, Refusal.COLLATERAL, incident.failure_group or "", incident)


def would_taint(state: NodeState, fault: Fault) -> bool:
    """Whether such a fault is a reason to taint this node; what the brake would say is not asked."""
    if state.opted_out or not state.selected or not fault.severity.taints:
        return False
    return state.is_gpu_node or (fault.source is Source.KERNEL and fault.finding.kind.proves_gpu)


def shadow_event(state: NodeState, fault: Fault) -> Change:
    """The Event that tells of it, as a change that writes nothing; the same for its rule, GPU and boot."""
    finding = fault.finding
    device = f" on GPU {finding.gpu}" if finding.gpu else ""
    message = (
        f"Would have tainted this node: {finding.rule}{device}, {finding.title}, but the rule is on trial "
        f'(shadow). Line: "{finding.text}"'
    )
    return Change(
        state.name,
        Verb.RECORD,
        record=None,
        health=None,
        event=EventReason.SHADOW,
        message=message,
        evidence=with_boot(fault, state.machine.boot_id),
    )
