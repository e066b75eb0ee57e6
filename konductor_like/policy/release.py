"""Releases and what they cover (rule 4); nodes that keep failing; contested taints.

``reset`` makes a release. ``decide`` makes one when our taint was removed by other means. A release covers
incidents, not a span of time: every recorded incident up to the release, and other evidence only as far as it
had been read by then. Covered evidence never taints again; new evidence taints at once.

A node that keeps failing gets a longer hold each time, and in the end is marked for replacement. Until a
person releases it, a node with either mark does not return by itself. ``reset`` reports the marks that it
overrides, and clears them. The quarantines (past times out of service) stay in the record, so the next fault
sets the marks again.

If somebody else keeps removing our taint (rule 23), each removal is a release, because two controllers that
fight over a node help nobody. An Event reports the contest, and a person can end it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from konductor_like.model import (
    HOW_PART,
    HOW_TIME,
    Change,
    EventReason,
    Incident,
    IncidentState,
    KernelPosition,
    Needs,
    NodeRecord,
    NodeState,
    Quarantine,
    Release,
    Role,
    Severity,
    Source,
    Verb,
)
from konductor_like.model.text import listed
from konductor_like.model.time import stamp, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.covers import with_part_covers
from konductor_like.policy.gpu_counts import with_accepted
from konductor_like.policy.health import SUSPECT, health_of, tainting
from konductor_like.policy.needs import REPLACE_ADVICE, need_of
from konductor_like.policy.wording import act_of, name_of

RELEASES_KEPT = 5
NOT_REBOOTED = "The node has not rebooted since"
"""A release's warning contains these words if a fault needs a reboot that has not happened yet."""
CONTROLLER = "konductor-like"
"""The ``by`` of a release that the controller made itself."""
BY_HAND = "taint removed"
"""The ``how`` of a release that follows from a removal of our taint by other means than ``reset``."""
CONTEST_REMOVALS = 3
CONTEST_SPAN = timedelta(hours=1)
_PEOPLE = re.compile(r"(kubectl|k9s|(open)?lens|mozilla|node-fetch|headlamp|curl)\b|oc$", re.IGNORECASE)
"""Field managers of tools with which people edit Nodes."""
DEFAULTS = PolicyConfig()
QUARANTINES_KEPT = 10


def release(
    state: NodeState,
    *,
    at: datetime,
    by: str,
    reason: str,
    how: str,
    read_ns: Mapping[Source, int],
    policy: PolicyConfig | None = DEFAULTS,
) -> Change | None:
    """Return the change that releases a node; None if it has neither our taint nor open incidents.

    A person may release a node with a hold or a mark for replacement; the warning then reports what is
    overridden. Without ``policy``, because they are not known, the warning has no numbers.

    ``at`` is an aware datetime, ``read_ns`` gives how far the controller has read each source.
    """
    open_incidents = [i for i in state.record.incidents if i.state is not IncidentState.RELEASED]
    marked = state.tainted or state.suspect_tainted
    if not marked and not open_incidents and state.record.life.tainted_at is None:
        return None
    overridden = may_return(state.record, at, policy)
    record = released_record(
        state,
        at=at,
        by=by,
        reason=reason,
        how=how,
        read_ns=read_ns,
        until_ns=unix_ns(at),
        warning=(f"The node was {overridden}. " if overridden else "")
        + (_relapse_warning(state.record) if not reason else "")
        + _loss_warning(state),
    )
    record = replace(record, life=replace(record.life, contested_at=None))
    verb = Verb.UNTAINT if state.tainted else Verb.RECORD
    record = replace(record, act=act_of(state, verb, at))
    return Change(
        node=state.name,
        verb=verb,
        record=record,
        health=None,
        event=EventReason.RELEASED,
        message=reset_words(record.releases[0]),
    )


def is_reset(mark: Release) -> bool:
    """Whether a person made the release with ``konductor-like reset``."""
    return not mark.by_controller and mark.how != BY_HAND


def reset_words(mark: Release) -> str:
    """Return the text of the Event about a person's reset."""
    message = f"Released by {mark.by}" + (f": {mark.reason}" if mark.reason else "") + "."
    return f"{message} {mark.warning}" if mark.warning else message


def released_record(
    state: NodeState,
    *,
    at: datetime,
    by: str,
    reason: str,
    how: str,
    read_ns: Mapping[Source, int],
    until_ns: int | None,
    warning: str = "",
) -> NodeRecord:
    """Return the record after a release: every incident released, the new release first.

    Recorded incidents are covered up to Loki timestamp ``until_ns``; with None, only what is counted is
    covered. ``warning`` is put before the advice that nobody has followed yet. A release by the controller
    itself (``how`` is ``reboot`` or ``time``) covers the incidents whose need is met, and no other evidence.
    """
    record = with_quarantine(state.record, at, how)
    read = replace(record.read, boot_id=record.read.boot_id or state.machine.boot_id)
    warning = f"{warning}{_reboot_warning(state)}".rstrip()
    mark = Release(at, by, reason, how, read, _read_at_least(record, read_ns, unix_ns(at)), warning or None)
    if mark.by_controller:  # nobody looked at the machine, so a line that is read later is new evidence
        mark = Release(at, by, reason, how)
    else:
        record = with_accepted(record, state)
    return replace(
        record,
        machine=record.machine or state.machine,
        life=replace(record.life, tainted_at=None),
        incidents=tuple(
            incident
            if mark.by_controller and incident.met_ns is None
            else _released(incident, state.machine.boot_id, until_ns)
            for incident in record.incidents
        ),
        releases=_latest((mark, *record.releases)),
        part_covers=record.part_covers if mark.by_controller else (),
        read=read,
    )


def release_part(
    state: NodeState, chosen: Sequence[Incident], *, at: datetime, by: str, reason: str
) -> Change:
    """Return the change that releases only the ``chosen`` incidents of ``state.record``; it has all of them.

    The taint goes if no other incident is a reason for it, and the node's time out ends then. All else in the
    record stays, and nothing but the chosen incidents is covered.
    """
    boot_id, names = state.machine.boot_id, listed(list(dict.fromkeys(map(name_of, chosen))), 3)
    ours = {id(each) for each in chosen}
    rest = tuple(
        _released(each, boot_id, unix_ns(at)) if id(each) in ours else each for each in state.record.incidents
    )
    reasons = tainting(replace(state.record, incidents=rest))
    untaints, how = state.tainted and not reasons, f"{HOW_PART}{names}"
    record, part = state.record, replace(state, record=replace(state.record, incidents=tuple(chosen)))
    overridden = may_return(record, at, None) if untaints else None
    if untaints:
        record = with_quarantine(record, at, how)
        record = replace(record, life=replace(record.life, tainted_at=None, contested_at=None))
    elif state.tainted and any(map(is_failure, chosen)):
        record = replace(record, life=replace(record.life, failed_rule=_failed_rule(record)))
    record = with_accepted(record, part)
    warning = f"The node was {overridden}. " if overridden else ""
    warning += _relapse_warning(state.record) if untaints and not reason else ""
    warning = f"{warning}{_loss_warning(part)}{_reboot_warning(part)}".rstrip()
    mark = Release(at, by, reason, how, KernelPosition(boot_id), warning=warning or None)
    verb = Verb.UNTAINT if untaints else Verb.RECORD
    record = replace(
        record,
        incidents=rest,
        releases=_latest((mark, *record.releases)),
        part_covers=with_part_covers(state, chosen, at),
        act=act_of(state, verb, at),
    )
    tainted = state.tainted and not untaints
    health = health_of(record, tainted=tainted)
    stays = f" The taint stays, for {listed(list(map(name_of, reasons)), 3)}." if tainted else ""
    message = f"{names} released by {by}" + (f": {reason}" if reason else "") + f".{stays}"
    return Change(
        node=state.name,
        verb=verb,
        record=record,
        health=health,
        needs=need_of(record, tainted=tainted),
        suspect_taint=state.suspect_tainted and health == SUSPECT,
        event=EventReason.RELEASED,
        message=f"{message} {warning}" if warning else message,
    )


def _latest(marks: tuple[Release, ...]) -> tuple[Release, ...]:
    """Return the latest releases; a person's last whole one is among them, because it covers the most."""
    person = next((mark for mark in marks if not (mark.by_controller or mark.in_part)), marks[0])
    kept = marks[:RELEASES_KEPT]
    return kept if person in kept else (*kept[:-1], person)


def returned_record(state: NodeState, *, at: datetime, how: str, reason: str) -> NodeRecord:
    """Return the record after the controller itself took the taint off; ``how`` is ``reboot`` or ``time``."""
    return released_record(state, at=at, by=CONTROLLER, reason=reason, how=how, read_ns={}, until_ns=None)


def _read_at_least(record: NodeRecord, read_ns: Mapping[Source, int], now_ns: int) -> dict[Source, int]:
    """Return how far each source had been read: the saved cursor may lag behind the recorded incidents.

    A cursor in the future, spoilt by somebody, counts as now.
    """
    further = {source: min(ns, now_ns) for source, ns in read_ns.items()}
    for incident in record.incidents:
        if not incident.has_line:
            continue  # its time is that of the controller's clock
        further[incident.source] = max(further.get(incident.source, 0), incident.last_ns + 1)
    return further


def purge(state: NodeState) -> Change | None:
    """Return the change that removes everything of ours from the Node; None if there is nothing."""
    seen = state.as_read
    if not (state.tainted or state.suspect_tainted) and seen.record is seen.health is seen.needs is None:
        return None
    return Change(state.name, Verb.PURGE, record=None, health=None)


def _released(incident: Incident, boot_id: str | None, until_ns: int | None) -> Incident:
    if incident.state is IncidentState.RELEASED:
        return incident
    if incident.state is IncidentState.PENDING and incident.last.boot_id != boot_id:
        return incident  # of a boot that the Node has not reached: nobody has seen its evidence yet
    covered_ns = incident.last_ns if until_ns is None else until_ns
    return replace(incident, state=IncidentState.RELEASED, released_ns=covered_ns)


def _relapse_warning(record: NodeRecord) -> str:
    """Return the warning that the node failed on probation and is still out of service; else empty."""
    if record.life.tainted_at is None or not any(each.relapse for each in record.life.quarantines[:1]):
        return ""
    at = stamp(record.life.tainted_at)
    return f"The node failed again on probation at {at}, and nobody recorded a repair (--reason). "


def _loss_warning(state: NodeState) -> str:
    """Return the warning that the release accepts the loss of GPUs; empty if none are missing."""
    if with_accepted(state.record, state).gpus == state.record.gpus:
        return ""
    return f"{state.gpus.allocatable} of {state.record.gpus} GPUs are allocatable, and the loss is accepted. "


def _reboot_warning(state: NodeState) -> str:
    """Return the warning about faults that need a reboot; empty if none does or the node has rebooted.

    Silence is no proof that such a fault is gone: a dead GPU logs nothing more. A reboot is not enough for a
    node that is marked for replacement.
    """
    if state.record.life.replace_since is not None:
        return ""
    open_faults = [
        f"{name_of(incident)}: {incident.advice}"
        for incident in state.record.incidents
        if incident.needs == Needs.REBOOT
        and incident.met_by is None
        and incident.taints
        and incident.state in (IncidentState.ACTIVE, IncidentState.HELD)
        and incident.last.boot_id in (None, state.machine.boot_id)
    ]
    return f"{NOT_REBOOTED}: {'; '.join(open_faults)}" if open_faults else ""


def reminder(state: NodeState) -> str:
    """Return the warning of the latest release; empty after a reboot, or if the node is tainted again.

    A release in part leaves the warnings of the releases before it in force, up to the last whole one.
    """
    if state.tainted:
        return ""
    for mark in state.record.releases:
        if mark.by_controller:
            continue
        if mark.warning and mark.read.boot_id in (None, state.machine.boot_id):
            return mark.warning
        if not mark.in_part:
            break
    return ""


def released_by_hand(
    record: NodeRecord, *, state: NodeState, now: datetime, read_ns: Mapping[Source, int]
) -> NodeRecord:
    """Return the record after somebody removed our taint by other means than ``reset``.

    The release is contested if a controller removed the taint, or anybody did so three times in an hour.
    """
    released = released_record(
        replace(state, record=record),
        at=now,
        by=state.last_writer or "somebody",
        reason="",
        how=BY_HAND,
        read_ns=read_ns,
        # The controller may see the removal late: it covers only what was counted, not the time in between.
        until_ns=None,
    )
    is_contested = is_controller(state.last_writer) or len(_removals_by_hand(released)) >= CONTEST_REMOVALS
    return replace(released, life=replace(released.life, contested_at=now)) if is_contested else released


def contest_words(record: NodeRecord) -> str:
    """Return a sentence about the contest of the latest release; empty if that is not contested."""
    if not record.releases or record.life.contested_at != record.releases[0].at:
        return ""
    by, times = record.releases[0].by, len(_removals_by_hand(record))
    often = f" {times} times in an hour, the last time by {by}" if times >= CONTEST_REMOVALS else f" by {by}"
    return (
        f"Contested: the controller's taint was removed{often}. Find out why: the controller does not taint "
        "again for the evidence so far."
    )


def is_controller(manager: str | None) -> bool:
    """Whether a field manager is a controller: it is known, and no tool that people use."""
    return manager is not None and not _PEOPLE.match(manager)


def _removals_by_hand(record: NodeRecord) -> list[Release]:
    latest = record.releases[0].at
    return [mark for mark in record.releases if mark.how == BY_HAND and latest - mark.at < CONTEST_SPAN]


def with_quarantine(record: NodeRecord, released_at: datetime, how: str = "") -> NodeRecord:
    """Return the record of a node that returns at ``released_at``: one more quarantine, and no marks.

    ``how`` is the release's (:attr:`Release.how`).

    A quarantine is one past time out of service. A test (Xid 14) and a person's own taint are no failures:
    they add none.
    """
    rule = _failed_rule(record)
    is_test = rule is None and how.startswith((HOW_TIME, HOW_PART))
    until = record.life.probation_until if is_test else None  # a test interrupts no probation
    life = replace(record.life, hold_until=None, replace_since=None, failed_rule=None, probation_until=until)
    if record.life.tainted_at is None or rule is None:
        return replace(record, life=life)
    quarantine = Quarantine(record.life.tainted_at, released_at, rule, how)
    quarantines = (quarantine, *record.life.quarantines)[:QUARANTINES_KEPT]
    return replace(record, life=replace(life, quarantines=quarantines))


def _failed_rule(record: NodeRecord) -> str | None:
    """Return the rule of the gravest failure of this time out; None without a failure."""
    failures = [i for i in record.incidents if is_failure(i) and i.state is not IncidentState.RELEASED]
    gravest = min(failures, key=lambda incident: incident.urgency, default=None)
    return record.life.failed_rule or (gravest.key.rule if gravest else None)


def held_longer(before: NodeRecord, record: NodeRecord, policy: PolicyConfig, now: datetime) -> NodeRecord:
    """Return a tainted node's record with its hold or mark for replacement, if a new time out begins.

    ``before`` is the record as it was read; a node with an active failure there keeps its marks. The first
    time out within ``repeat_days`` sets no hold, the second ``hold_base_seconds``, and each further one twice
    the last: 30, 60, 120 minutes. On a node marked for replacement, the advice becomes to check or replace
    the hardware.
    """
    if before.life.tainted_at is not None and any(_is_active_failure(i) for i in before.incidents):
        return record
    if not any(_is_active_failure(i) for i in record.incidents):
        return record
    earlier = times_out(record, policy, now)
    hold_until = None
    if earlier:  # the record keeps only QUARANTINES_KEPT, which limits the exponent
        seconds = min(policy.hold_max_seconds, policy.hold_base_seconds * 2 ** (earlier - 1))
        hold_until = now + timedelta(seconds=seconds)
    if not 0 < policy.repeat_count <= earlier + 1:
        return replace(record, life=replace(record.life, hold_until=hold_until, replace_since=None))
    times = f"The node failed {earlier + 1} times in {policy.repeat_days:g} days."
    life = replace(record.life, hold_until=hold_until, replace_since=now)
    return marked(replace(record, life=life), times)


def marked(record: NodeRecord, times: str = "The node failed too often.") -> NodeRecord:
    """Return the record with one advice for all active failures of a node marked for replacement.

    Faults that come after the mark get this advice too: a reboot or a reset of the GPU is not enough.
    """
    if record.life.replace_since is None or all(map(_asks_for_replacement, record.incidents)):
        return record
    advice, needs = f"{times} {REPLACE_ADVICE}", Needs.REPLACEMENT.value
    incidents = (
        each if _asks_for_replacement(each) else replace(each, advice=advice, needs=needs)
        for each in record.incidents
    )
    return replace(record, incidents=tuple(incidents))


def _asks_for_replacement(incident: Incident) -> bool:
    return incident.needs == Needs.REPLACEMENT or not _is_active_failure(incident)


def may_return(record: NodeRecord, now: datetime, policy: PolicyConfig | None = DEFAULTS) -> str | None:
    """Return why a node must not return by itself, in words; None if it may.

    Without ``policy``, because they are not known, the words have no numbers.
    """
    failed = "it failed before"
    if policy is not None:
        times = times_out(record, policy, now) + (record.life.tainted_at is not None)
        failed = f"it failed {times} times in {policy.repeat_days:g} days"
    if record.life.replace_since is not None:
        return f"marked for replacement: {failed}"
    if record.life.hold_until is not None and now < record.life.hold_until:
        return f"meant to stay out of service until {stamp(record.life.hold_until)}: {failed}"
    return None


def times_out(record: NodeRecord, policy: PolicyConfig, now: datetime) -> int:
    """Return how many quarantines ended within the last ``repeat_days``; those further ahead do not count."""
    span = timedelta(days=policy.repeat_days)
    return sum(abs(now - quarantine.released_at) < span for quarantine in record.life.quarantines)


def _is_active_failure(incident: Incident) -> bool:
    return is_failure(incident) and incident.state is IncidentState.ACTIVE


def is_failure(incident: Incident) -> bool:
    return (
        incident.taints
        and incident.severity is not Severity.TEST
        and incident.role is not Role.COLLATERAL
        and not incident.by_person
        and incident.state is not IncidentState.PENDING
    )
