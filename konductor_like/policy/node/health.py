"""The health of one node: which incidents are open, which of them taint, the node's state, the health label.

All of the policy and the command line ask these functions, so that they never disagree about a node.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from konductor_like.model import (
    Coverage,
    CoverageState,
    Incident,
    IncidentState,
    NodeRecord,
    NodeState,
    Role,
    Severity,
)


class Health(StrEnum):
    """The state of a node, the worst first. The first four are also the values of the health label."""

    FAULTY = "faulty"
    """The node has our taint, or its record claims the taint that somebody removed."""
    HELD = "held"
    """The node has a fault that taints, but the brake holds the taint back, or it cannot be written."""
    SUSPECT = "suspect"
    """The node has a recorded fault that is not enough for a taint."""
    PROBATION = "probation"
    """The controller returned the node after a reboot; a fault taints it at once (rule 37)."""
    IGNORED = "ignored"
    """A label opts the node out and it has no taint: its faults are recorded, and taint nothing (rule 20)."""
    UNKNOWN = "unknown"
    """The kernel log stopped arriving or is not read, or the record cannot be read: silence means nothing."""
    NOT_MEASURED = "not measured"
    """No heartbeat of the node's kernel log was ever seen: silence means little."""
    HEALTHY = "healthy"


CORDONED, NOT_READY = "cordoned", "not ready"
WORST_FIRST = {health: place for place, health in enumerate(Health)}
_ACTIVE_OR_HELD = (IncidentState.ACTIVE, IncidentState.HELD)


def tainting(record: NodeRecord) -> list[Incident]:
    """Return the incidents that are reasons for a taint, on a tainted node or on one that the brake holds."""
    return [
        i
        for i in record.incidents
        if i.taints and i.state in _ACTIVE_OR_HELD and i.role is not Role.COLLATERAL
    ]


def only_tests(record: NodeRecord) -> bool:
    """Whether a tainted node is out of service for a test (Xid 14) alone."""
    reasons = tainting(record)
    return bool(reasons) and all(each.severity is Severity.TEST for each in reasons)


def only_persons(record: NodeRecord) -> bool:
    """Whether a tainted node is out of service for a person's own taint alone."""
    reasons = tainting(record)
    return bool(reasons) and all(each.by_person for each in reasons)


def health_of(record: NodeRecord, *, tainted: bool, opted_out: bool = False) -> Health | None:
    """Return the value of the health label; None for a node without incidents that matter.

    A node in service that is opted out has none: its own label says so. A node whose taint somebody removed
    is faulty while its record claims the taint (rule 23).
    """
    if tainted:
        return Health.FAULTY
    if opted_out:
        return None
    if record.life.claimed:
        return Health.FAULTY
    if tainting(record):
        return Health.HELD
    if any(map(is_suspicious, record.incidents)):
        return Health.SUSPECT
    return Health.PROBATION if record.life.on_probation else None


def state_of(state: NodeState, coverage: CoverageState) -> Health:
    """Return the state of a node by its record, or else by the ``coverage`` of its kernel log."""
    if state.opted_out and not state.tainted:
        return Health.IGNORED
    if recorded := health_of(state.record, tainted=state.tainted):
        return recorded
    if state.record_problem or coverage is CoverageState.UNKNOWN:
        return Health.UNKNOWN
    return Health.HEALTHY if coverage is CoverageState.MEASURED else Health.NOT_MEASURED


def marks(state: NodeState) -> list[str]:
    """Return ``cordoned`` and ``not ready``: what Kubernetes itself says of a node, whatever its faults."""
    found = {CORDONED: state.unschedulable, NOT_READY: not state.ready}
    return [mark for mark, holds in found.items() if holds]


def coverage_of(node: str, coverage: Coverage | None, *, unread: bool) -> CoverageState:
    """Return the coverage of one node; it is UNKNOWN while kernel logs are ``unread``."""
    if unread:
        return CoverageState.UNKNOWN
    return CoverageState.NOT_MEASURED if coverage is None else coverage.of(node)


def suspicious(record: NodeRecord) -> list[Incident]:
    """Return the incidents that make a node suspect."""
    return [*filter(is_suspicious, record.incidents)]


def is_suspicious(incident: Incident) -> bool:
    """Whether the incident makes its node suspect."""
    if incident.state is not IncidentState.ACTIVE:
        return incident.state is IncidentState.PENDING
    if incident.role is Role.COLLATERAL:
        return incident.severity.taints  # a fatal fault: a person should check it
    return incident.severity is Severity.SUSPECT


def with_states(record: NodeRecord, *, tainted: bool) -> NodeRecord:
    """Return the record with the states that its open incidents have once this decision is written.

    With our taint on the node, or claimed, all are active. Else incidents that would taint the node are held.
    """
    is_out = tainted or record.life.claimed
    incidents = []
    for incident in record.incidents:
        is_held = not is_out and incident.taints and incident.role is not Role.COLLATERAL
        state = IncidentState.HELD if is_held else IncidentState.ACTIVE
        is_changed = incident.state in _ACTIVE_OR_HELD and incident.state is not state
        incidents.append(replace(incident, state=state) if is_changed else incident)
    return replace(record, incidents=tuple(incidents))


def open_incidents(record: NodeRecord, state: NodeState) -> list[Incident]:
    """Return the active and held incidents of the Node's present boot."""
    return [
        incident
        for incident in record.incidents
        if incident.state in _ACTIVE_OR_HELD
        and not (incident.before_install or incident.doubt)
        and incident.last.boot_id in (None, state.machine.boot_id)
    ]
