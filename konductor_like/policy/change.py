"""The write for one node, and the reasons why nodes are not tainted.

``decide`` makes a :class:`NodeUpdate` of each node that needs attention and asks the brake; this module
derives the changes and the reasons from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from konductor_like.model import (
    HOW_REBOOT,
    HOW_TIME,
    Change,
    DroppedFault,
    EventReason,
    Fault,
    Incident,
    IncidentState,
    Needs,
    NodeRecord,
    NodeState,
    Role,
    SkippedTaint,
    SkipReason,
    Snapshot,
    Source,
    Verb,
)
from konductor_like.model.time import stamp
from konductor_like.policy.brake import Admission
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.covers import COVERED_BY_TIME, COVERED_LATE
from konductor_like.policy.endings import end_words, is_grave, newly_ended, reboot_words
from konductor_like.policy.gpu_counts import with_count
from konductor_like.policy.health import SUSPECT, health_of, tainting, with_states
from konductor_like.policy.machines import NO_GPU, OPTED_OUT, with_boot
from konductor_like.policy.needs import fault_of, need_of, with_repeats, worse_words, worsening
from konductor_like.policy.operator import with_found_taint
from konductor_like.policy.release import contest_words, held_longer, marked, returned_record
from konductor_like.policy.returns import (
    RELAPSE_WORDS,
    on_probation,
    relapsed,
    return_words,
    without_ended_probation,
)
from konductor_like.policy.update import NodeUpdate
from konductor_like.policy.verdict import action_on
from konductor_like.policy.wording import act_of, deferral_words, describe, why_not_tainted

USER_WRITTEN = "a user wrote the line into the kernel log"
_SKIP_REASONS = {
    OPTED_OUT: SkipReason.OPTED_OUT,
    NO_GPU: SkipReason.NO_GPU,
    USER_WRITTEN: SkipReason.USER_WRITTEN,
    COVERED_BY_TIME: SkipReason.COVERED,
    COVERED_LATE: SkipReason.COVERED,
}
"""By the reason of a dropped fault, why its node is not tainted. Other reasons mean that the line was no new
evidence."""
RETURN_REASONS = {HOW_REBOOT: "a reboot met all needs of the node", HOW_TIME: "the test has ended"}
"""By how the controller returns a node, the reason of its release."""


def change_of(
    update: NodeUpdate, admission: Admission, snapshot: Snapshot, policy: PolicyConfig, now: datetime
) -> Change | None:
    """Return the write for one node; None if nothing needs to be written now."""
    state, gpus = update.state, snapshot.gpus
    lacks_count = gpus is not None and state.name in gpus.unnoted
    admitted = state.name in admission.admitted
    newly_tainted = admitted and not state.tainted
    tainted = (state.tainted or admitted) and not update.returned
    before = without_ended_probation(update.record, now)
    is_over = before is not update.record
    if update.returned:
        reason = RETURN_REASONS[update.returned]
        before = returned_record(replace(state, record=before), at=now, how=update.returned, reason=reason)
    if update.returned == HOW_REBOOT:
        before = on_probation(before, policy, now)
    record = with_states(before, tainted=tainted)
    if tainted and update.gravest is not None:
        record = with_found_taint(record, state, now)
        life = replace(record.life, tainted_at=record.life.tainted_at or now)
        record = replace(record, life=life)
        if record.life.quarantines or policy.repeat_count == 1:
            # If the folding removed the claim (``tainted_at``), somebody had removed the taint: this is a new
            # time out.
            claimed = state.record if update.record.life.tainted_at is not None else NodeRecord()
            record = relapsed(held_longer(claimed, record, policy, now), policy, now)
    record = with_repeats(record)
    record = marked(record) if tainted else record
    health = health_of(record, tainted=tainted)
    needs = need_of(record, tainted=tainted)
    tainted_for = fault_of(record, tainted=True) if newly_tainted else None
    worse = worsening(state.record, record) if tainted and not newly_tainted else None
    relabels = snapshot.labels_needs and misses_label(state, needs)
    suspect_taint = bears_suspect_taint(state, health, policy, news=bool(update.news))
    loses_suspect_taint = state.suspect_tainted and not suspect_taint
    due = bool(update.grown) and is_due(state.record, policy, now)
    has_news = due or update.urgent or loses_suspect_taint
    can_wait = is_over or update.has_ends or record == update.record
    if not (has_news or update.has_ends or record != update.record or relabels or lacks_count):
        return None
    is_bare = record.empty and not lacks_count
    if is_bare and state.record.empty and state.as_read.record is None:
        return None
    record = record if is_bare and record.gpus is None else with_count(record, state, gpus)
    event, message = _announcement(update, record, admission, tainted_for, worse)
    if event is not None and needs is not None:
        message = f"{message} Needs: {needs}."
    also = _further_events(update, record, policy)
    if event is None and also:
        (event, message), *also = also
    verb = Verb.TAINT if newly_tainted else Verb.UNTAINT if update.returned else Verb.RECORD
    if newly_tainted or loses_suspect_taint or record != state.record:
        record = replace(record, act=act_of(state, verb, now, policy.version))
    about = tainted_for or worse
    evidence = [fault for fault in update.news if about is None or fault.key == about.key]
    return Change(
        node=state.name,
        verb=verb,
        record=None if record.empty and record.gpus is None else record,
        health=health,
        needs=needs if snapshot.labels_needs else state.as_read.needs,
        suspect_taint=suspect_taint,
        event=event,
        message=message,
        also=tuple(also),
        upkeep=verb is not Verb.TAINT and update.returned != HOW_REBOOT and can_wait and not has_news,
        incident=about,
        evidence=evidence[0 if newly_tainted else -1] if evidence else None,
        news=update.news,
        grown=update.grown,
    )


def _further_events(
    update: NodeUpdate, record: NodeRecord, policy: PolicyConfig
) -> list[tuple[EventReason, str]]:
    """Return the Events about a return, a reboot, and every suspicion and test that ended."""
    words = reboot_words(update.state, record, returns=policy.returns_by_reboot)
    events = [(EventReason.REBOOTED, words)] if words else []
    if update.returned == HOW_TIME:
        message = f"The controller removed the taint: {record.releases[0].reason}."
        events.insert(0, (EventReason.RETURNED, message))
    ended = newly_ended(update.state.record, record)
    return events + [(EventReason.ENDED, end_words(each, policy)) for each in ended if is_grave(each)]


def misses_label(state: NodeState, needs: Needs | None) -> bool:
    """Whether the node's label for what it needs is another; the controller leaves excluded nodes alone."""
    return needs != state.as_read.needs and not state.opted_out and state.selected


def is_due(record: NodeRecord, policy: PolicyConfig, now: datetime) -> bool:
    """Whether counts alone may be written now: the controller's last write of the node is an interval ago."""
    if record.act is None:
        return True
    # A time in the future was written before the controller's clock was set back.
    return abs(now - record.act.at) >= timedelta(seconds=policy.record_interval_seconds)


def _announcement(
    update: NodeUpdate,
    record: NodeRecord,
    admission: Admission,
    tainted_for: Incident | None,
    worse: Incident | None,
) -> tuple[EventReason | None, str]:
    """Return the write's Event, None for no Event, and its message."""
    gravest, state = update.gravest, update.state
    contest = contest_words(record) if update.removed_by_hand else ""
    if tainted_for is not None:
        parts = [describe(replace(tainted_for, advice=action_on(tainted_for, state)[1]))]
        was_on_probation = update.record.life.probation_until is not None
        is_relapse = was_on_probation and record.life.probation_until is None
        if is_relapse:
            parts.append(RELAPSE_WORDS)
        if record.life.replace_since is not None:
            parts.append("The node failed too often and is marked for replacement.")
        elif record.life.hold_until is not None:
            until = stamp(record.life.hold_until)
            parts.append(
                f"The node failed before and should stay out of service until {until}; "
                "the controller does not return it before."
            )
        reason = EventReason.RELAPSED if is_relapse else EventReason.TAINTED
        return reason, " ".join((*parts, contest)).rstrip()
    if worse is not None:
        return EventReason.WORSENED, f"{worse_words(worse, record)} {describe(worse)}"
    if contest:
        return EventReason.CONTESTED, contest
    if update.returned == HOW_REBOOT:
        return EventReason.RETURNED, return_words(update.record, record)
    if update.removed_by_hand and not state.tainted and gravest is None:
        by = record.releases[0].by
        return EventReason.RELEASED, f"{by} removed the taint. The evidence so far does not taint again."
    if all(fault.finding.clears is not None for fault in update.news) and newly_ended(state.record, record):
        return None, ""  # the Event about the end says it all
    if not update.news:
        to_announce = update.to_announce
        return (None, "") if to_announce is None else (EventReason.RECORDED, describe(to_announce))
    if gravest is not None and not state.tainted:
        why = update.excluded or admission.refused.get(state.name, SkipReason.BRAKE)
        refused = SkippedTaint(state.name, gravest.key, why)
        reason, how = (EventReason.RECORDED, "Not tainted") if update.excluded else (EventReason.HELD, "Held")
        fault = fault_of(record, tainted=False) or gravest
        return reason, f"{describe(fault)} {how}: {why_not_tainted(refused, state, admission.brake)}."
    newest = record.incidents[-1]
    deferred_until_ns = update.deferred.get(newest.key)
    deferral = "" if deferred_until_ns is None else f" Not tainted yet: {deferral_words(deferred_until_ns)}."
    return EventReason.RECORDED, f"{describe(newest)}{deferral}"


def bears_suspect_taint(state: NodeState, health: str | None, policy: PolicyConfig, *, news: bool) -> bool:
    """Whether the node carries the suspect taint after the write of ``health``.

    The controller adds it when the node becomes suspect, or when a new incident opens (``news``) while it is.
    If a person removes it, the controller adds it again only at one of these occasions.
    """
    if health != SUSPECT or not policy.suspect_taint or state.opted_out or not state.selected:
        return False
    return state.suspect_tainted or news or state.as_read.health != SUSPECT


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
