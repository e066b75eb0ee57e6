"""An end for suspicions and tests (rule 35), and what a reboot meets and ends (rule 34).

A suspicion is an active incident that is no reason for a taint. It ends in one of three ways: a reboot meets
its need, a later line reports its end, or the node's kernel log was heard for ``suspect_days`` without it. A
test (Xid 14) ends ``test_seconds`` after its last line, and its taint with it; a test by the command ends two
minutes after it began. An incident that ended is released: a replay of its lines adds nothing, and a new line
opens a new incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from konductor_like.model import (
    FaultKind,
    Incident,
    IncidentState,
    MetBy,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    Role,
    Severity,
    Snapshot,
)
from konductor_like.model.time import moment_of, span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.alerts import absent_since_ns, still_counts
from konductor_like.policy.node.conditions import healthy_since_ns, stands
from konductor_like.policy.node.health import tainting
from konductor_like.policy.node.lifecycle import may_return
from konductor_like.policy.node.needs import is_met_by_boot
from konductor_like.policy.wording import name_of

COMMAND_TEST = "konductor-like test"
"""Words in the line that ``konductor-like test`` writes; they stand early, because records cut long lines."""
COMMAND_TEST_SECONDS = 120.0
"""After these seconds a test by the command ends, whatever became of the command."""
_DAY_SECONDS = 86_400
OPEN = (IncidentState.ACTIVE, IncidentState.HELD)


def is_grave(incident: Incident) -> bool:
    """Whether an Event tells of the end of the incident: it is no job's own fault and no mere information."""
    return incident.severity not in (Severity.APPLICATION, Severity.INFO)


def is_suspicion(incident: Incident) -> bool:
    """Whether the incident is active and no reason for a taint."""
    is_reason = incident.taints and incident.role is not Role.COLLATERAL
    return incident.state is IncidentState.ACTIVE and not is_reason


def met(incident: Incident, by: MetBy, at_ns: int) -> Incident:
    """Return the incident with its need met: the taint stays, and anything that is no reason for one ends."""
    incident = replace(incident, met_ns=at_ns, met_by=by)
    keeps_taint = incident.state is IncidentState.ACTIVE and not is_suspicion(incident)
    if keeps_taint and by is not MetBy.TIME:
        return incident
    return replace(incident, state=IncidentState.RELEASED, released_ns=incident.last_ns)


def over_ns(incident: Incident) -> int | None:
    """Return the Loki timestamp at which the fault was over: the driver's report, or else its need met.

    None for a fault that may last, and for one that was released without either.
    """
    if incident.ended_ns is not None or incident.state is not IncidentState.RELEASED:
        return incident.ended_ns
    return incident.met_ns


def release_ns(incident: Incident, releases: Iterable[Release]) -> int | None:
    """Return the Loki timestamp at which the incident was released; None for an open one.

    ``releases`` are those of its record. ``released_ns`` is no such time if the release covers only what was
    counted: then it is the time of the incident's last line.
    """
    if incident.released_ns != incident.last_ns:
        return incident.released_ns
    if _has_ended(incident):
        return incident.met_ns
    # The record may round its times to a second.
    since_ns = max(incident.last_ns, incident.met_ns or 0) - span_ns(1)
    made_ns = (unix_ns(mark.at) for mark in releases if mark.how is not ReleaseHow.PART)
    return min((at_ns for at_ns in made_ns if at_ns >= since_ns), default=incident.released_ns)


def _ends_by_quiet(incident: Incident) -> bool:
    """Whether days without the fault end the incident.

    A fatal fault is silent because its GPU is dead, also one that may be older than a release. Missing GPUs
    are silent anyway, and end when they are back.
    """
    is_suspect = incident.severity is Severity.SUSPECT and not incident.taints and incident.doubt is None
    is_lasting = incident.is_fact or incident.by_person
    return is_suspect and not is_lasting and incident.state is IncidentState.ACTIVE


def after_boot(record: NodeRecord, state: NodeState, snapshot: Snapshot, now: datetime) -> NodeRecord:
    """Return the record with the needs met that the Node's present boot meets; else the identical object.

    A boot does not meet the need of a condition that stands, because its writer has not spoken since; nor
    that of an alert whose firing is not over.
    """
    boot_id, alerts, now_ns = state.machine.boot_id, snapshot.alerts, unix_ns(now)
    found = (
        i
        for i in record.incidents
        if is_met_by_boot(i, boot_id) and not stands(i, state, now_ns) and not still_counts(i, state, alerts)
    )
    ends = {id(each): MetBy.REBOOT for each in found}
    return _with_met(record, ends, now_ns)


def with_ends(
    record: NodeRecord, state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now: datetime
) -> NodeRecord:
    """Return the record after everything that ends by now; the identical object if nothing does.

    It is asked of every node with a record in every decision. Nothing ends on a node that is not selected, or
    that is opted out with a taint: the end of a test would remove it.
    """
    is_out = state.tainted or record.life.claimed
    is_left_alone = (state.opted_out and is_out) or not state.selected
    if is_left_alone or all(each.state is IncidentState.RELEASED for each in record.incidents):
        return record
    record = after_boot(record, state, snapshot, now)
    record = _with_quiet_clock(record, snapshot.gaps_given_up.get(state.name, 0))
    now_ns = unix_ns(now)
    quiet_ns = _quiet_ns(record, state, snapshot, policy, now_ns)
    ends: dict[int, MetBy] = {}
    for each in record.incidents:
        if _ends_by_quiet(each) and _quiet_since_ns(each, state, snapshot, policy, now_ns) <= quiet_ns:
            ends[id(each)] = MetBy.QUIET
        elif each.severity is Severity.TEST and each.state in OPEN:
            limit_ns = span_ns(seconds_of_test(each.evidence, policy))
            is_over = 0 < limit_ns <= now_ns - _test_began_ns(each, record)
            if is_over and _may_end_tests(record, state, snapshot, now):
                ends[id(each)] = MetBy.TIME
    return _with_met(record, ends, now_ns)


def _quiet_since_ns(
    incident: Incident, state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now_ns: int
) -> int:
    """Return the Loki timestamp since when nothing reports the incident.

    A condition is quiet only while its writer says that it is healthy, and an alert only while its exporter
    is up: a lost GPU takes either along.
    """
    if incident.kind is FaultKind.CONDITION:
        since_ns = healthy_since_ns(incident, state, policy, now_ns)
    elif incident.kind is FaultKind.ALERT:
        since_ns = absent_since_ns(incident, state, snapshot.alerts, now_ns)
    else:
        return incident.last_ns
    return now_ns if since_ns is None else max(incident.last_ns, since_ns)


def seconds_of_test(line: str, policy: PolicyConfig) -> float:
    """Return the seconds after which a test with this line ends by itself; 0 for never."""
    if COMMAND_TEST not in line:
        return policy.test_seconds
    return min(policy.test_seconds or COMMAND_TEST_SECONDS, COMMAND_TEST_SECONDS)


def _test_began_ns(test: Incident, record: NodeRecord) -> int:
    """Return the time from which the end of a test is counted.

    A test by the command counts from its taint at the latest: the clock of its node may be ahead.
    """
    if COMMAND_TEST in test.evidence and record.life.tainted_at is not None:
        return min(test.last_ns, unix_ns(record.life.tainted_at))
    return test.last_ns


def _with_met(record: NodeRecord, ends: Mapping[int, MetBy], at_ns: int) -> NodeRecord:
    """Return the record with these needs met, by ``id`` of the incident; the identical object without any."""
    if not ends:
        return record
    incidents = (met(each, ends[id(each)], at_ns) if id(each) in ends else each for each in record.incidents)
    return replace(record, incidents=tuple(incidents))


def returns_by_time(before: NodeRecord, record: NodeRecord) -> bool:
    """Whether the taint ends with the tests that ended between two records, as its only reasons."""
    has_ended = any(each.met_by is MetBy.TIME for each in newly_ended(before, record))
    return has_ended and record.life.claimed and not tainting(record)


def newly_ended(before: NodeRecord, record: NodeRecord) -> list[Incident]:
    """Return the suspicions and tests that ended between two records."""
    known = {identity(each) for each in before.incidents if _has_ended(each)}
    return [each for each in record.incidents if _has_ended(each) and identity(each) not in known]


def end_words(incident: Incident, policy: PolicyConfig) -> str:
    """Return ``xid 63 on GPU 0000:4e:00 ended: the machine has rebooted.``."""
    why = {
        MetBy.REBOOT: "the machine has rebooted",
        MetBy.HEALTHY_LINE: "a later line of the kernel log reported it"
        if incident.has_line
        else "the node has all its GPUs again",
        MetBy.QUIET: f"the kernel log was heard for {policy.suspect_days:g} days without it",
        MetBy.TIME: "a test ends by itself",
    }
    return f"{name_of(incident)} ended: {why[incident.met_by or MetBy.TIME]}."


def _with_quiet_clock(record: NodeRecord, gap_end_ns: int) -> NodeRecord:
    """Start the clock of quiet again after a gap that was given up, if the record has suspicions."""
    if record.quiet_since is not None and unix_ns(record.quiet_since) >= gap_end_ns:
        return record
    if not any(_ends_by_quiet(each) and each.last_ns < gap_end_ns for each in record.incidents):
        return record
    return replace(record, quiet_since=moment_of(gap_end_ns + 999))  # rounded up


def _quiet_ns(
    record: NodeRecord, state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now_ns: int
) -> int:
    """Return the Loki timestamp up to which suspicions end by quiet; -1 if none does now."""
    heard = snapshot.hearing.get(state.name)
    if heard is None or heard.has_any_gap or heard.boot_id != state.machine.boot_id or snapshot.replaying:
        return -1
    if policy.suspect_days <= 0:
        return -1
    until_ns = now_ns - span_ns(policy.suspect_days * _DAY_SECONDS)
    began_ns = max(state.created_ns, unix_ns(record.quiet_since) if record.quiet_since else 0)
    return until_ns if began_ns <= until_ns else -1


def _may_end_tests(record: NodeRecord, state: NodeState, snapshot: Snapshot, now: datetime) -> bool:
    """Whether the controller may take off this node's taint, if a test was its only reason."""
    pause = snapshot.controls.pause
    is_paused = snapshot.lease_unread or (pause is not None and pause.holds(now))
    if is_paused or state.name in snapshot.ambiguous or state.blocked or state.record_problem is not None:
        return False
    # An earlier build marks a contest by removals that were releases; there only a person ends the taint.
    is_contested = state.tainted and record.life.contested_at is not None
    return not is_contested and may_return(record, now) is None


def _has_ended(incident: Incident) -> bool:
    """Whether the incident ended; one that keeps a taint, such as an Xid 79, is only ever released."""
    is_reason = incident.taints and incident.role is not Role.COLLATERAL
    if incident.state is not IncidentState.RELEASED or incident.met_by is None:
        return False
    return not is_reason or incident.met_by is MetBy.TIME


def identity(incident: Incident) -> tuple[object, ...]:
    return (incident.key, incident.last.boot_id, incident.taints, incident.first_ns)
