"""Memory: a node that keeps failing is held longer each time, and in the end marked for replacement.

Both marks keep a node from coming back by itself. A person's word is above them: ``reset`` works, says what
it overrides and clears them, and the times out stay on record, so that the next fault sets them again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from konductor_like.model import Incident, IncidentState, NodeRecord, Role, Severity, Stint
from konductor_like.policy.rules import Rules

DEFAULTS = Rules()
STINTS_KEPT = 10


def with_stint(record: NodeRecord, released_at: datetime) -> NodeRecord:
    """The record of a node that comes back at ``released_at``: one more time out, and no marks.

    A test (Xid 14) and a person's own taint are no failures and do not count.
    """
    cleared = replace(record, hold_until=None, replace_since=None)
    failures = [i for i in record.incidents if _is_failure(i) and i.state is not IncidentState.RELEASED]
    if record.tainted_at is None or not failures:
        return cleared
    gravest = min(failures, key=lambda incident: (incident.severity is not Severity.FATAL, incident.first_ns))
    stint = Stint(record.tainted_at, released_at, gravest.key.rule)
    return replace(cleared, stints=(stint, *record.stints)[:STINTS_KEPT])


def held_longer(before: NodeRecord, record: NodeRecord, rules: Rules, now: datetime) -> NodeRecord:
    """The record of a tainted node with its marks, where it is out for a failure that it was not out for yet.

    ``before`` is what the record said before ``now``. The first time out within ``repeat_days`` sets no hold,
    the second one of ``hold_base_seconds``, each further one twice that of the one before. What a node that
    is marked for replacement is out for asks for that, and no more for the reboot that did not help.
    """
    if before.tainted_at is not None and any(_stands(i) for i in before.incidents):
        return record
    if not any(_stands(i) for i in record.incidents):
        return record
    earlier = times_out(record, rules, now)
    hold_until = now + _hold(earlier, rules) if earlier else None
    if not 0 < rules.repeat_count <= earlier + 1:
        return replace(record, hold_until=hold_until, replace_since=None)
    advice = (
        f"It failed {earlier + 1} times in {rules.repeat_days:g} days: "
        "drain it and have its hardware checked or replaced."
    )
    incidents = tuple(replace(i, advice=advice) if _stands(i) else i for i in record.incidents)
    return replace(record, incidents=incidents, hold_until=hold_until, replace_since=now)


def may_return(record: NodeRecord, now: datetime, rules: Rules | None = DEFAULTS) -> str | None:
    """Why a node must not come back by itself, in words; None where nothing here is against it.

    Without ``rules``, because they are not known, how often it failed within how long is left out.
    """
    failed = "it failed before"
    if rules is not None:
        times = times_out(record, rules, now) + (record.tainted_at is not None)
        failed = f"it failed {times} times in {rules.repeat_days:g} days"
    if record.replace_since is not None:
        return f"marked for replacement: {failed}"
    if record.hold_until is not None and now < record.hold_until:
        return f"held until {record.hold_until:%Y-%m-%dT%H:%M:%SZ}: {failed}"
    return None


def times_out(record: NodeRecord, rules: Rules, now: datetime) -> int:
    """How often the node came back from a failure within the last ``repeat_days``."""
    since = now - timedelta(days=rules.repeat_days)
    return sum(stint.released_at > since for stint in record.stints)


def _hold(earlier: int, rules: Rules) -> timedelta:
    # Ten times out are remembered, so the doubling has an end of its own.
    return timedelta(seconds=min(rules.hold_max_seconds, rules.hold_base_seconds * 2 ** (earlier - 1)))


def _stands(incident: Incident) -> bool:
    return _is_failure(incident) and incident.state is IncidentState.ACTIVE


def _is_failure(incident: Incident) -> bool:
    return (
        incident.taints
        and incident.severity is not Severity.TEST
        and incident.role is not Role.COLLATERAL
        and not incident.by_person
        and incident.state is not IncidentState.PENDING
    )
