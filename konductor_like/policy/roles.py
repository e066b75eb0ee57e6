"""What each incident is in an event that shows on many nodes, and what waits to find out.

Roles only ever follow from an event that is in sight: where the evidence is gone, what was written stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from konductor_like.model import Incident, IncidentKey, IncidentState, NodeRecord, NodeState, Role
from konductor_like.policy.correlate import (
    Cluster,
    is_hard,
    is_soft,
    is_symptom,
    job_key,
    longest_ns,
    parts_of,
)
from konductor_like.policy.evidence import Evidence, open_incidents
from konductor_like.policy.rules import Rules

Waiting = Mapping[str, Mapping[IncidentKey, int]]
"""By node, the incidents that settle, and the Loki timestamp until which each does."""


@dataclass(frozen=True, slots=True)
class NamedEvent:
    """A cluster under the name that its nodes know it by."""

    name: str
    cluster: Cluster
    decided: bool
    """Whether what is known of its origins will stay."""

    @property
    def start_ns(self) -> int:
        """When it began, by its name."""
        began_ns = parts_of(self.name)[1]
        return self.cluster.start_ns if began_ns is None else began_ns


Parts = Mapping[tuple[IncidentKey, bool], Sequence[tuple[NamedEvent, Evidence]]]
"""What one node has in events, by its incidents' key and whether they taint by themselves."""


def parts_by_node(events: Iterable[NamedEvent]) -> Mapping[str, Parts]:
    """What each node has in them, or had before they began."""
    found: defaultdict[str, defaultdict[tuple[IncidentKey, bool], list[tuple[NamedEvent, Evidence]]]]
    found = defaultdict(lambda: defaultdict(list))
    for event in events:
        for each in (*event.cluster.members, *event.cluster.standing):
            found[each.node][each.key, each.taints].append((event, each))
    return found


def named(event: Cluster, records: Mapping[str, NodeRecord], waiting: Waiting, rules: Rules) -> NamedEvent:
    """The event under the name that a record has for it already, the earliest if there are several."""
    told = {i.event for node in event.nodes if node in records for i in records[node].incidents}
    known = {name for name in told if name is not None and event.is_named(name, rules)}
    name = min(known, key=lambda name: (parts_of(name)[1], name), default=event.name)
    return NamedEvent(name, event, is_decided(event, waiting, rules))


def settling(
    record: NodeRecord, state: NodeState, mine: Sequence[Evidence], rules: Rules, now_ns: int
) -> Mapping[IncidentKey, int]:
    """The node's incidents that wait a few seconds before they may taint, and until when.

    They are of rules with ``settle_seconds``, and wait from when they were heard; after a restart, from
    their first line.
    """
    if state.tainted:
        return {}
    waiting: dict[IncidentKey, int] = {}
    for incident in record.incidents:
        seconds = rules.escalation(incident.key.rule).settle_seconds
        if not seconds or not is_waiting(incident):
            continue
        heard = [e.heard_ns for e in mine if e.key == incident.key and e.taints and e.heard_ns is not None]
        since_ns = max(heard, default=incident.first_ns)
        if abs(now_ns - since_ns) < seconds * 1e9:  # a clock may be a little ahead
            waiting[incident.key] = since_ns + round(seconds * 1e9)
    return waiting


def is_waiting(incident: Incident) -> bool:
    """Whether it would taint by its severity, and has not yet."""
    held = incident.state is IncidentState.HELD and incident.severity.taints
    return held and incident.role is not Role.COLLATERAL


def with_roles(
    record: NodeRecord,
    state: NodeState,
    mine: Sequence[Evidence],
    parts: Parts,
    waiting: Waiting,
    rules: Rules,
) -> NodeRecord:
    """The node's record with the roles that its incidents have in the events that it has ``parts`` of."""
    standing = {id(incident) for incident in open_incidents(record, state)}
    incidents = []
    for incident in record.incidents:
        changed = incident
        if id(incident) in standing:
            own = parts.get((incident.key, incident.severity.taints), ())
            was_part = incident.event is not None or incident.role is not None
            if (own or was_part) and _goes_on_alone(incident, own, mine, rules):
                if incident.role is Role.COLLATERAL:
                    changed = replace(incident, role=None, event=None, origin=None)
            elif own:
                event, each = max(own, key=lambda part: part[1].start_ns)
                changed = _in_event(incident, event, each, state, waiting, rules)
            changed = _held_again(changed, incident, state)
        incidents.append(changed)
    return replace(record, incidents=tuple(incidents)) if incidents != list(record.incidents) else record


def is_decided(cluster: Cluster, waiting: Waiting, rules: Rules) -> bool:
    """Whether what is known of its origin will stay: nothing there waits to be told apart any more."""
    return any(is_hard(each, rules) for each in cluster.members) or not any(
        each.key in waiting.get(each.node, ()) for each in cluster.members if each.node in cluster.origins
    )


def _in_event(
    incident: Incident, event: NamedEvent, each: Evidence, state: NodeState, waiting: Waiting, rules: Rules
) -> Incident:
    if incident.event not in (None, event.name):
        before_ns = parts_of(incident.event)[1]
        if before_ns is not None and before_ns > each.end_ns + round(rules.correlation_seconds * 1e9):
            return incident  # it was part of a later one since
    cluster = event.cluster
    role = incident.role if incident.event == event.name else None
    if cluster.origins:
        if is_symptom(each, rules):
            role = Role.COLLATERAL if event.decided else role
        elif each.node in cluster.origins:
            role = Role.ORIGIN if event.decided else role
        elif is_soft(each, rules) and not state.tainted and each.key not in waiting.get(each.node, ()):
            # Its time is up, and another is nearer to what failed, even if that one still waits itself.
            role = Role.COLLATERAL
    elif role is None and each.key not in waiting.get(each.node, ()):
        role = Role.UNCLEAR
    origin = cluster.origin_for(state.domain) if role is Role.COLLATERAL else None
    if origin is None and incident.event == event.name and role is Role.COLLATERAL:
        origin = incident.origin
    job = _job(incident, each, cluster)
    if (event.name, role, job, origin) == (incident.event, incident.role, incident.job, incident.origin):
        return incident  # as nearly always: an event is looked at in every tick
    return replace(incident, event=event.name, role=role, job=job, origin=origin)


def _job(incident: Incident, each: Evidence, cluster: Cluster) -> str | None:
    """The event's own job if this is of it; else the only one that it is of."""
    if job_key(cluster.shared) in map(job_key, each.jobs):
        return cluster.shared
    return next(iter(each.jobs)) if len(each.jobs) == 1 else incident.job


def _goes_on_alone(
    incident: Incident,
    own: Sequence[tuple[NamedEvent, Evidence]],
    mine: Sequence[Evidence],
    rules: Rules,
) -> bool:
    """Whether it was heard long after the event that explained it, with no event to explain it now."""
    taints = incident.severity.taints
    # What is fatal and does not stop is its own; symptoms may go on for as long as a job hangs.
    latest_ns = max(
        (e.end_ns if taints else e.start_ns for e in mine if e.key == incident.key and e.taints == taints),
        default=0,
    )
    began_ns = parts_of(incident.event)[1] if incident.event else 0
    if began_ns is None:
        return False
    explained_ns = max((each.start_ns for _, each in own), default=began_ns)
    return latest_ns > max(explained_ns, began_ns) + longest_ns(rules)


def _held_again(changed: Incident, before: Incident, state: NodeState) -> Incident:
    """What taints by itself does nothing as collateral, and may taint again once it is none."""
    if not changed.taints or state.tainted or changed.role is before.role:
        return changed
    if changed.role is Role.COLLATERAL:
        return replace(changed, state=IncidentState.ACTIVE)
    return replace(changed, state=IncidentState.HELD) if before.role is Role.COLLATERAL else changed
