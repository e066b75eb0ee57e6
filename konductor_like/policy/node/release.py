"""Releases and what they cover (rule 4).

``reset`` makes a release. ``decide`` makes one when a person removed our taint by other means. A release
covers incidents, not a span of time: every recorded incident up to the release, and other evidence only as
far as it had been read by then. Covered evidence never taints again; new evidence taints at once.

``reset`` reports the hold and the mark for replacement that it overrides, and clears them.

A removal by anybody but a known person is no release: :mod:`konductor_like.policy.node.removal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from konductor_like.model import (
    Change,
    Covers,
    Incident,
    IncidentState,
    Life,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    Source,
    Stage,
    Validation,
    ValidationStage,
    Verb,
)
from konductor_like.model.time import unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.gpu_counts import with_accepted
from konductor_like.policy.node.lifecycle import (
    DEFAULTS,
    Facts,
    Happening,
    become,
    failure_of,
)
from konductor_like.policy.node.undone import undone, with_undone
from konductor_like.policy.wording import act_of

RELEASES_KEPT = 5
CONTROLLER = "konductor-like"
"""The ``by`` of a release that the controller made itself."""


def release(
    state: NodeState,
    *,
    at: datetime,
    by: str,
    reason: str,
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
    if not marked and not open_incidents and not state.record.life.claimed:
        return None
    left = undone(state, at=at, reason=reason, policy=policy)
    mark = with_undone(Release(at, by, reason, ReleaseHow.RESET), state, left)
    facts = Facts(at, how=mark.how, failed=failure_of(state.record))
    released = become(state.record.life, state.stage, Happening.RESET, facts)
    record = released_record(state, released.life, mark, read_ns=read_ns, until_ns=unix_ns(at))
    return Change(
        node=state.name,
        verb=released.verb,
        record=replace(record, act=act_of(state, released.verb, at)),
        health=None,
        event=released.event,
        message=reset_words(record.releases[0]),
    )


def reset_words(mark: Release) -> str:
    """Return the text of the Event about a person's reset."""
    message = f"Released by {mark.by}" + (f": {mark.reason}" if mark.reason else "") + "."
    return f"{message} {mark.warning}" if mark.warning else message


def released_record(
    state: NodeState,
    life: Life,
    mark: Release,
    *,
    read_ns: Mapping[Source, int] | None = None,
    until_ns: int | None = None,
) -> NodeRecord:
    """Return the record after a release: every incident released, the new release first.

    Recorded incidents are covered up to Loki timestamp ``until_ns``; with None, only what is counted is
    covered. A release by the controller itself covers the incidents whose need is met, and no other evidence:
    nobody looked at the machine, so a line that is read later is new evidence. A release after a validation
    covers what had been read when the test began.
    """
    record, by_controller = state.record, mark.how.by_controller
    tested = record.validation if mark.how.covers is Covers.TESTED else None
    read = replace(record.read, boot_id=record.read.boot_id or state.machine.boot_id)
    if not by_controller:
        read_to = _read_at_least(record, read_ns or {}, unix_ns(mark.at))
        mark = replace(mark, read=read, read_ns=read_to)
        record = with_accepted(record, state)
    if tested is not None:
        mark = replace(mark, read=tested.read, read_ns=tested.read_ns)
    return replace(
        record,
        machine=record.machine or state.machine,
        life=life,
        incidents=tuple(
            _released(incident, state.machine.boot_id, until_ns)
            if not by_controller or incident.met_ns is not None or _precedes(incident, tested)
            else incident
            for incident in record.incidents
        ),
        validation=over(record.validation),
        releases=_latest((mark, *record.releases)),
        read=read,
    )


def _precedes(incident: Incident, tested: Validation | None) -> bool:
    """Whether a test of the whole node began after the incident's last line."""
    return tested is not None and not tested.began_before(incident.last, incident.last_ns)


def over(validation: Validation | None) -> Validation | None:
    """Return the validation of a node in service: the last verdict stays, and a wish or an attempt ends."""
    is_over = validation is not None and validation.stage is ValidationStage.ENDED
    return validation if is_over else None


def _latest(marks: tuple[Release, ...]) -> tuple[Release, ...]:
    """Return the latest releases; a person's last whole one is among them, because it covers the most."""
    person = next((mark for mark in marks if mark.how.covers is Covers.READ), marks[0])
    kept = marks[:RELEASES_KEPT]
    return kept if person in kept else (*kept[:-1], person)


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


def released_by_hand(
    record: NodeRecord, *, state: NodeState, now: datetime, read_ns: Mapping[Source, int]
) -> NodeRecord:
    """Return the record after a person removed our taint by other means than ``reset``."""
    state = replace(state, record=record)
    mark = Release(now, state.removed_by or "somebody", "", ReleaseHow.BY_HAND)
    mark = with_undone(mark, state, undone(state, at=now, reason="", policy=None))
    facts = Facts(now, how=mark.how, failed=failure_of(record))
    released = become(record.life, Stage.REMOVED, Happening.RELEASED_BY_HAND, facts)
    # The controller may see the removal late: it covers only what was counted, not the time in between.
    return released_record(state, released.life, mark, read_ns=read_ns)
