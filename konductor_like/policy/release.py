"""Letting a node go, so that it stays let go (design rule 4).

A release covers incidents, not a span of time: every recorded incident up to the release, and any other
evidence only up to what had been read by then. Covered evidence never taints again; new evidence does, at
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from konductor_like.model import (
    Change,
    EventReason,
    Fault,
    Incident,
    IncidentState,
    Machine,
    NodeRecord,
    NodeState,
    Release,
    Source,
    Verb,
)
from konductor_like.policy.acts import act_of
from konductor_like.policy.holds import DEFAULTS, may_return, with_stint
from konductor_like.policy.rules import Rules

RELEASES_KEPT = 5
REBOOT = "reboot"
"""The catalogue's ``Needs.REBOOT``; the catalogue itself would make every command start slowly."""
REMEMBERED = timedelta(days=1)
"""As far back as the kernel lines of a Node that was made anew are read again."""
REMEMBERED_MOST = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def release(
    state: NodeState,
    *,
    at: datetime,
    by: str,
    reason: str,
    how: str,
    read_ns: Mapping[Source, int],
    rules: Rules | None = DEFAULTS,
) -> Change | None:
    """The change that lets a node go; None where there is neither our taint nor anything recorded.

    A person may let go what is held for its earlier failures; the warning says what that overrides, by these
    rules, or without numbers where they are not known.

    ``at`` is an aware datetime, ``read_ns`` says up to where the controller has read each source.
    """
    open_incidents = [i for i in state.record.incidents if i.state is not IncidentState.RELEASED]
    marked = state.tainted or state.suspect_tainted
    if not marked and not open_incidents and state.record.tainted_at is None:
        return None
    record = released_record(
        state, at=at, by=by, reason=reason, how=how, read_ns=read_ns, until_ns=unix_ns(at)
    )
    record = replace(record, contested_at=None)
    if held := may_return(state.record, at, rules):
        record = _warned(record, f"It was {held}.")
    verb = Verb.UNTAINT if state.tainted else Verb.RECORD
    record = replace(record, act=act_of(state, verb, at))
    warning = record.releases[0].warning
    message = f"Released by {by}" + (f": {reason}" if reason else "") + "."
    return Change(
        node=state.name,
        verb=verb,
        record=record,
        health=None,
        event=EventReason.RELEASED,
        message=f"{message} {warning}" if warning else message,
    )


def released_record(
    state: NodeState,
    *,
    at: datetime,
    by: str,
    reason: str,
    how: str,
    read_ns: Mapping[Source, int],
    until_ns: int | None,
) -> NodeRecord:
    """The record after a release: every incident released, the mark of what it covers in front.

    Recorded incidents are covered up to Loki timestamp ``until_ns``; None covers only what is counted.
    """
    record = with_stint(state.record, at)
    read = replace(record.read, boot_id=record.read.boot_id or state.machine.boot_id)
    mark = Release(at, by, reason, how, read, _read_at_least(record, read_ns, unix_ns(at)), _warning(state))
    return replace(
        record,
        machine=record.machine or state.machine,
        tainted_at=None,
        incidents=tuple(
            _released(incident, state.machine.boot_id, until_ns) for incident in record.incidents
        ),
        releases=(mark, *record.releases)[:RELEASES_KEPT],
        read=read,
    )


def _warned(record: NodeRecord, warning: str) -> NodeRecord:
    mark, *before = record.releases
    both = f"{warning} {mark.warning}" if mark.warning else warning
    return replace(record, releases=(replace(mark, warning=both), *before))


def _read_at_least(record: NodeRecord, read_ns: Mapping[Source, int], now_ns: int) -> dict[Source, int]:
    """How far each source had been read: the saved cursor lags behind what was acted upon already.

    One that somebody spoilt may lie ahead; nothing that is still to come was read.
    """
    further = {source: min(ns, now_ns) for source, ns in read_ns.items()}
    for incident in record.incidents:
        if incident.by_person:
            continue  # no line was read for it
        further[incident.source] = max(further.get(incident.source, 0), incident.last_ns + 1)
    return further


def purge(state: NodeState) -> Change | None:
    """The change that removes every trace of us; None where there is none."""
    seen = state.as_read
    if not (state.tainted or state.suspect_tainted) and seen.record is None and seen.health is None:
        return None
    return Change(state.name, Verb.PURGE, record=None, health=None)


def covers(mark: Release, fault: Fault, *, names_boot: bool) -> bool:
    """Whether a release covers evidence of an incident that was not recorded when it was made.

    By kernel position within the boot where both are known, else by what had been read of the source. A line
    that names no boot may be of the boot before, read again after a restart: then only the latter can tell.
    """
    position = fault.finding.position
    if mark.read.boot_id != position.boot_id:
        return had_been_read(mark, fault) and not names_boot
    if position.known and mark.read.known:
        return bool(position.at_or_before(mark.read))
    return had_been_read(mark, fault)


def had_been_read(mark: Release, fault: Fault) -> bool:
    """Whether this very line had been read when a release was made; a replay of it has a later timestamp."""
    return fault.timestamp_ns < mark.read_ns.get(fault.source, 0)


def remembered(
    before: Iterable[NodeRecord], states: Iterable[NodeState], now: datetime
) -> tuple[NodeRecord, ...]:
    """What the releases of the last day cover, a record for each machine, the newest first.

    It is for machines whose Node is deleted and registers again while nobody looks. ``before`` is what was
    remembered until now; where a machine has a Node, the record there is what counts.
    """
    states = list(states)
    found = {
        machine: _what_it_covers(state.record)
        for state in states
        if _is_recent(state.record, now) and (machine := same_boot(state.machine)) is not None
        if same_boot(state.record.machine) == machine
    }
    gone = {
        machine: record
        for record in before
        if _is_recent(record, now) and (machine := same_boot(record.machine)) and machine not in found
    }
    if gone:
        there = {same_boot(state.machine) for state in states}
        found |= {machine: record for machine, record in gone.items() if machine not in there}
    newest = sorted(found.values(), key=lambda record: record.releases[0].at, reverse=True)
    return tuple(newest[:REMEMBERED_MOST])


def same_boot(machine: Machine | None) -> tuple[str, str] | None:
    """What two Nodes share that are one machine in one boot; None where that is not known."""
    if machine is None or machine.system_id is None or machine.boot_id is None:
        return None
    return machine.system_id, machine.boot_id


def _is_recent(record: NodeRecord, now: datetime) -> bool:
    return bool(record.releases) and record.releases[0].at > now - REMEMBERED


def _what_it_covers(record: NodeRecord) -> NodeRecord:
    """The last release and what is released; a taint of later is decided anew, from its lines."""
    released = tuple(i for i in record.incidents if i.state is IncidentState.RELEASED)
    mark = record.releases[0]
    return NodeRecord(machine=record.machine, incidents=released, releases=(mark,), read=mark.read)


def unix_ns(moment: datetime) -> int:
    """An aware datetime as integer nanoseconds since the epoch, without passing through a float."""
    since = moment - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000


def _released(incident: Incident, boot_id: str | None, until_ns: int | None) -> Incident:
    if incident.state is IncidentState.RELEASED:
        return incident
    if incident.state is IncidentState.PENDING and incident.last.boot_id != boot_id:
        return incident  # of a boot that is still to come: nobody has seen it yet
    covered_ns = incident.last_ns if until_ns is None else until_ns
    return replace(incident, state=IncidentState.RELEASED, released_ns=covered_ns)


def _warning(state: NodeState) -> str | None:
    """What asks for a reboot and had none: a dead GPU logs nothing more, so silence proves nothing."""
    open_faults = [
        f"{name_of(incident)}: {incident.advice}"
        for incident in state.record.incidents
        if incident.needs == REBOOT
        and incident.taints
        and incident.state in (IncidentState.ACTIVE, IncidentState.HELD)
        and incident.last.boot_id in (None, state.machine.boot_id)
    ]
    if not open_faults:
        return None
    return "The node has not rebooted since: " + "; ".join(open_faults)


def name_of(incident: Incident) -> str:
    """``xid 79 on GPU 0000:4e:00``, as people say it."""
    if incident.by_person:
        return "operator's taint"
    what = incident.kind.value if incident.code is None else f"{incident.kind.value} {incident.code}"
    if incident.code is None and "." in incident.key.rule:
        what = incident.key.rule.replace(".", " ").replace("_", " ")
    device = "switch" if incident.kind.value == "sxid" else "GPU"
    return what if incident.key.gpu is None else f"{what} on {device} {incident.key.gpu}"
