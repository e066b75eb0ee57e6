"""The write for one node, and the reasons why nodes are not tainted.

``decide`` makes a :class:`NodeUpdate` of each node that needs attention and asks the brake; this module
derives the changes and the reasons from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from konductor_like.model import (
    Change,
    DroppedFault,
    EventReason,
    Fault,
    Incident,
    IncidentState,
    Life,
    Needs,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    Role,
    SkippedTaint,
    SkipReason,
    Snapshot,
    Source,
    Stage,
    Verb,
)
from konductor_like.model.time import stamp
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.brake import Admission
from konductor_like.policy.node.covers import COVERED_BY_TIME, COVERED_LATE
from konductor_like.policy.node.endings import end_words, is_grave, newly_ended
from konductor_like.policy.node.gpu_counts import with_count
from konductor_like.policy.node.health import Health, only_persons, tainting, with_states
from konductor_like.policy.node.identities import with_identities
from konductor_like.policy.node.lifecycle import (
    TABLE,
    Became,
    Facts,
    Happening,
    become,
    failure_of,
    is_first_failure,
    is_probation_over,
    marked,
    what_failed,
)
from konductor_like.policy.node.machines import NO_GPU, with_boot
from konductor_like.policy.node.needs import (
    fault_of,
    labels_of,
    need_sentence,
    with_repeats,
    worse_words,
    worsening,
)
from konductor_like.policy.node.release import CONTROLLER, over, released_record
from konductor_like.policy.node.removal import (
    Removal,
    contest_words,
    damage_events,
    may_put_right,
    put_back_words,
    removal_words,
    writer_of,
)
from konductor_like.policy.node.update import NodeUpdate
from konductor_like.policy.operator import with_found_taint
from konductor_like.policy.recovery.returns import RELAPSE_WORDS, return_words
from konductor_like.policy.recovery.validation import events_of as validation_events
from konductor_like.policy.recovery.verdict import action_on, reboot_words
from konductor_like.policy.wording import (
    act_of,
    deferral_words,
    describe,
    planned_sentence,
    why_not_tainted,
)

RECORD_INTERVAL_SECONDS = 600.0
"""Seconds between two writes of a node that bring only counts up to date, at least."""
USER_WRITTEN = "a user wrote the line into the kernel log"
_SKIP_REASONS = {
    NO_GPU: SkipReason.NO_GPU,
    USER_WRITTEN: SkipReason.USER_WRITTEN,
    COVERED_BY_TIME: SkipReason.COVERED,
    COVERED_LATE: SkipReason.COVERED,
}
"""By the reason of a dropped fault, why its node is not tainted. Other reasons mean that the line was no new
evidence."""
_RETURNS = {
    ReleaseHow.REBOOT: (Happening.REBOOTED, "a reboot met all needs of the node"),
    ReleaseHow.VALIDATED: (Happening.VALIDATED, "the GPUs passed a validation after all needs were met"),
    ReleaseHow.TEST_ENDED: (Happening.TEST_ENDED, "the test has ended"),
}
"""By how the controller returns a node, what happened, and the reason of its release."""
_REMOVALS = {
    Removal.NOTED: Happening.REMOVED,
    Removal.CONTEST: Happening.CONTESTED,
    Removal.FAILED: Happening.FAILED_UNTAINTED,
}
"""What a removal of our taint does to the node's life at once."""


class _Announcement(NamedTuple):
    """The Event of a write, None for no Event, and its message."""

    event: EventReason | None
    words: str
    told: Incident | None = None
    """The fault that the message describes."""


class _Outcome(NamedTuple):
    """What becomes of a node in this decision."""

    record: NodeRecord
    tainted: bool
    verb: Verb
    event: EventReason | None
    """The Event about the node's life; None if nothing happened to it that is worth one."""
    about: Incident | None
    """The fault that taints the node, or with which the tainted node needs more than before."""


def change_of(
    update: NodeUpdate, admission: Admission, snapshot: Snapshot, policy: PolicyConfig, now: datetime
) -> Change | None:
    """Return the write for one node; None if nothing needs to be written now."""
    state, gpus = update.state, snapshot.gpus
    if update.record is not state.record and not update.ambiguous:
        seen = snapshot.seen_gpus.get(state.name, ())
        update = replace(update, record=with_identities(update.record, state, seen))
    lacks_count = gpus is not None and state.name in gpus.unnoted
    lacks_record = state.name in snapshot.without_record
    outcome = _outcome(update, policy, now, admitted=state.name in admission.admitted)
    record, verb, about = outcome.record, outcome.verb, outcome.about
    health, needs = labels_of(record, state, tainted=outcome.tainted)

    due = bool(update.grown) and is_due(state.record, now)
    has_news = due or update.urgent
    has_ends = update.has_ends or is_probation_over(update.record, now)
    is_same = record == update.record
    relabels = _differ(state, snapshot, health, needs)
    # Our taint, or our record, is not as we wrote it.
    has_damage = state.lost_record or (may_put_right(state, now) and outcome.tainted)
    lacks = lacks_count or lacks_record or has_damage
    cleans = relabels or has_old_taint(state)
    if is_same and not (has_news or has_ends or cleans or lacks):
        return None
    is_bare = record.empty and not lacks_count
    if is_bare and state.record.empty and state.as_read.record is None and not cleans:
        return None
    if not is_bare or record.gpus is not None:
        record = with_count(record, state, gpus)

    event, message, told = _announcement(update, outcome, admission, policy)
    if event is not None and needs is not None:
        message = f"{message} {need_sentence(record, told, tainted=outcome.tainted)}"
    if event is not None and update.news and state.planned:
        message = f"{message} {planned_sentence(state)}"
    also = _further_events(update, record, policy, now)
    if event is None and also:
        (event, message), *also = also
    if verb is Verb.TAINT or has_damage or record != state.record:
        record = replace(record, act=act_of(state, verb, now, policy.version))
    evidence = [fault for fault in update.news if about is None or fault.key == about.key]
    returns = update.return_how is not None and update.return_how.on_probation
    is_nothing = record.empty and record.gpus is None and (not is_same or state.as_read.record is None)
    is_urgent = has_news or verb is Verb.TAINT or returns or has_damage or update.removal is not None
    return Change(
        node=state.name,
        verb=verb,
        record=None if is_nothing else record,
        health=health,
        needs=needs if snapshot.labels_needs else state.as_read.needs,
        event=event,
        message=message,
        is_own_end=event is EventReason.RELEASED and only_persons(state.record),
        also=tuple(also),
        upkeep=(has_ends or is_same) and not is_urgent,
        incident=about,
        evidence=evidence[0 if verb is Verb.TAINT else -1] if evidence else None,
        news=update.news,
        grown=update.grown,
        read=state,
    )


def _outcome(update: NodeUpdate, policy: PolicyConfig, now: datetime, *, admitted: bool) -> _Outcome:
    """Return what becomes of the node. The table of ``lifecycle`` decides what becomes of its life."""
    state, record, by_hand = update.state, update.record, None
    if update.released_by_hand:
        by_hand = TABLE[Stage.REMOVED, Happening.RELEASED_BY_HAND].event
    stage = record.life.stage(tainted=state.tainted)
    if stage is Stage.OUT and record.life.removed_at is not None:
        life, *_ = become(record.life, stage, Happening.BACK, Facts(now))
        record = replace(record, life=life)
    if is_probation_over(record, now):
        life, *_ = become(record.life, stage, Happening.PROBATION_OVER, Facts(now))
        record = replace(record, life=life)
    became = Became(record.life)
    if update.return_how is not None:
        happening, reason = _RETURNS[update.return_how]
        mark = Release(now, CONTROLLER, reason, update.return_how)
        became = become(record.life, stage, happening, Facts(now, policy, mark.how, failure_of(record)))
        record = released_record(replace(state, record=record), became.life, mark)
    elif (admitted or state.tainted) and update.gravest is not None:
        is_first = is_first_failure(state.record, record)
        facts = Facts(now, policy, is_first=is_first, hardware=state.hardware)
        is_put_back = update.removal is Removal.PUT_BACK
        happening = Happening.PUT_BACK if is_put_back else what_failed(record, facts)
        became = become(record.life, stage, happening, facts)
        record = replace(with_found_taint(record, state, now), life=became.life)
    elif update.removal in _REMOVALS:
        facts = Facts(now, by=writer_of(state, record.life))
        became = become(record.life, stage, _REMOVALS[update.removal], facts)
        is_contest = update.removal is Removal.CONTEST
        tested = over(record.validation) if is_contest else record.validation
        record = replace(record, life=became.life, validation=tested)
    verb, event = became.verb, became.event or by_hand
    tainted = verb is Verb.TAINT or (state.tainted and verb is not Verb.UNTAINT)
    record = with_repeats(with_states(record, tainted=tainted))
    if not (tainted or record.life.claimed):
        return _Outcome(record, tainted, verb, event, None)
    record = marked(record, state.record.life, policy, now)
    is_told = verb is Verb.TAINT or event is EventReason.RELAPSED
    about = fault_of(record, tainted=True) if is_told else worsening(state.record, record)
    return _Outcome(record, tainted, verb, event, about)


def _announcement(
    update: NodeUpdate, outcome: _Outcome, admission: Admission, policy: PolicyConfig
) -> _Announcement:
    """Return the write's Event."""
    if outcome.event is not None and (words := _words_of_life(update, outcome, policy)):
        return _Announcement(outcome.event, words, outcome.about)
    if outcome.about is not None:
        words = f"{worse_words(outcome.about, outcome.record)} {describe(outcome.about)}"
        found = _Announcement(EventReason.WORSENED, words, outcome.about)
    else:
        found = _news(update, outcome.record, admission)
    # On a node that is tainted already, the failure that begins a hold taints nothing.
    hold = _hold_words(outcome.record.life)
    is_new = hold and hold != _hold_words(update.state.record.life)
    return found._replace(words=f"{found.words} {hold}") if is_new else found


def _words_of_life(update: NodeUpdate, outcome: _Outcome, policy: PolicyConfig) -> str:
    """Return the message of the Event about the node's life; empty if another Event is the write's first."""
    record = outcome.record
    match outcome.event:
        case EventReason.TAINTED | EventReason.RELAPSED if outcome.about is not None:
            fault = replace(outcome.about, advice=action_on(outcome.about, update.state)[1])
            relapse = RELAPSE_WORDS if outcome.event is EventReason.RELAPSED else ""
            parts = (describe(fault), relapse, _hold_words(record.life))
            return " ".join(filter(None, parts))
        case EventReason.REMOVED:
            return removal_words(record.life, update.state.name, opted_out=update.state.opted_out)
        case EventReason.PUT_BACK:
            told = "" if outcome.about is None else describe(outcome.about)
            return f"{put_back_words(record.life, update.state.name)} {told}".rstrip()
        case EventReason.CONTESTED:
            return contest_words(record.life, update.state.name, returns=policy.returns_by_reboot)
        case EventReason.RETURNED if update.return_how and update.return_how.on_probation:
            return return_words(update.record, record, update.return_how)
        case EventReason.RELEASED if update.gravest is None:
            mark = record.releases[0]
            words = f"{mark.by} removed the taint. The evidence so far does not taint again."
            return f"{words} {mark.warning}" if mark.warning else words
    return ""


def _hold_words(life: Life) -> str:
    if life.marked:
        return "The node failed too often and is marked for replacement."
    if life.hold_until is None:
        return ""
    return (
        f"The node failed before and should stay out of service until {stamp(life.hold_until)}; "
        "the controller does not return it before."
    )


def _news(update: NodeUpdate, record: NodeRecord, admission: Admission) -> _Announcement:
    """Return the Event about the faults that were found."""
    gravest, state = update.gravest, update.state
    if all(fault.finding.clears is not None for fault in update.news) and newly_ended(state.record, record):
        return _Announcement(None, "")  # the Event about the end says it all
    if not update.news:
        known = update.to_announce
        return (
            _Announcement(None, "")
            if known is None
            else _Announcement(EventReason.RECORDED, describe(known), known)
        )
    if gravest is not None and not state.tainted and not record.life.claimed:
        why = update.excluded or admission.refused.get(state.name, SkipReason.BRAKE)
        refused = SkippedTaint(state.name, gravest.key, why)
        reason, how = (EventReason.RECORDED, "Not tainted") if update.excluded else (EventReason.HELD, "Held")
        fault = fault_of(record, tainted=False) or gravest
        words = f"{describe(fault)} {how}: {why_not_tainted(refused, state, admission.brake)}."
        return _Announcement(reason, words, fault)
    newest = record.incidents[-1]
    deferred_until_ns = update.deferred.get(newest.key)
    deferral = "" if deferred_until_ns is None else f" Not tainted yet: {deferral_words(deferred_until_ns)}."
    return _Announcement(EventReason.RECORDED, f"{describe(newest)}{deferral}", newest)


def _further_events(
    update: NodeUpdate, record: NodeRecord, policy: PolicyConfig, now: datetime
) -> list[tuple[EventReason, str]]:
    """Return the Events about a return, a reboot, a validation, and every suspicion and test that ended."""
    words = reboot_words(update.state, record, policy, now)
    events = [(EventReason.REBOOTED, words)] if words else []
    events += validation_events(update.state.record.validation, record.validation)
    events += _late_events(update.state.record, record)
    if update.return_how is ReleaseHow.TEST_ENDED:
        message = f"The controller removed the taint: {record.releases[0].reason}."
        events.insert(0, (EventReason.RETURNED, message))
    events += damage_events(update.state, now)
    ended = newly_ended(update.state.record, record)
    return events + [(EventReason.ENDED, end_words(each, policy)) for each in ended if is_grave(each)]


def _late_events(before: NodeRecord, record: NodeRecord) -> list[tuple[EventReason, str]]:
    """Return an Event for each rule whose fatal lines were first read after a release; once for a release."""
    told = {each.key.rule for each in before.incidents if _is_in_doubt(each)}
    new = {each.key.rule: each for each in record.incidents if _is_in_doubt(each)}
    return [(EventReason.READ_LATE, describe(each)) for rule, each in new.items() if rule not in told]


def _is_in_doubt(incident: Incident) -> bool:
    return incident.doubt is not None and incident.state is IncidentState.ACTIVE


def misses_label(state: NodeState, snapshot: Snapshot) -> bool:
    """Whether the node has other labels than its record asks for.

    It is so after somebody set or removed the label that opts the node out, or edited ours.
    """
    return _differ(state, snapshot, *labels_of(state.record, state, tainted=state.tainted))


def has_old_taint(state: NodeState) -> bool:
    """Whether the node has the suspect taint of an earlier version, and its taints are ours to write."""
    return state.suspect_tainted and state.selected


def _differ(state: NodeState, snapshot: Snapshot, health: Health | None, needs: Needs | None) -> bool:
    has = state.as_read
    misses_needs = snapshot.labels_needs and needs != has.needs
    return state.selected and (health != has.health or misses_needs)


def is_due(record: NodeRecord, now: datetime) -> bool:
    """Whether counts alone may be written now: the controller's last write of the node is an interval ago."""
    if record.act is None:
        return True
    # A time in the future was written before the controller's clock was set back.
    return abs(now - record.act.at) >= timedelta(seconds=RECORD_INTERVAL_SECONDS)


def refusals(
    updates: Mapping[str, NodeUpdate], refused: Mapping[str, SkipReason], ignored: Iterable[DroppedFault]
) -> tuple[SkippedTaint, ...]:
    """Return the nodes that are not tainted although an incident or a line asks for it, once for each reason.

    ``refused`` are the brake's reasons. ``ignored`` faults led to nothing because of their node (opted out,
    no GPU) or their line (written by a user).
    """
    found: list[SkippedTaint] = []
    for name, update in updates.items():
        if update.state.tainted:
            continue
        record, gravest = update.record, update.gravest
        fatal = {incident.key: incident for incident in tainting(record)}
        for key, until_ns in sorted(update.deferred.items(), key=str):
            found.append(
                SkippedTaint(name, key, SkipReason.DEFERRED, deferral_words(until_ns), fatal.get(key))
            )
        why = None if gravest is None else update.excluded or refused.get(name)
        if why is not None and gravest is not None:
            found.append(SkippedTaint(name, gravest.key, why, about=gravest))
        for i in record.incidents:
            if not i.taints or i.state is IncidentState.RELEASED:
                continue
            if i.state is IncidentState.PENDING:
                found.append(SkippedTaint(name, i.key, SkipReason.PENDING, f"boot {i.last.boot_id}", i))
            elif i.role is Role.COLLATERAL:
                found.append(SkippedTaint(name, i.key, SkipReason.COLLATERAL, i.failure_group or "", i))
    for item in ignored:
        reason, fault = _SKIP_REASONS.get(item.reason), item.fault
        if reason is not None and fault.severity.taints and fault.node is not None:
            found.append(SkippedTaint(fault.node, fault.key, reason, about=fault))
    return tuple(dict.fromkeys(found))


def would_taint(state: NodeState, fault: Fault) -> bool:
    """Whether the fault is a reason to taint this node; the brake may still hold the node."""
    if state.opted_out or not state.selected or not fault.severity.taints:
        return False
    return state.is_gpu_node or (fault.source is Source.KERNEL and fault.finding.kind.proves_gpu)


def shadow_event(state: NodeState, fault: Fault) -> Change:
    """Return the Event for a fault of a rule in shadow mode: a change without a write.

    The Event is the same for all faults of its rule, GPU and boot.
    """
    finding = fault.finding
    device = f" on GPU {finding.gpu}" if finding.gpu else ""
    message = (
        f"This fault would have tainted the node, but its rule is in shadow mode: {finding.rule}{device}, "
        f'{finding.title}. Line: "{finding.text}"'
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
