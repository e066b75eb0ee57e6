"""What ``status`` knows, as values: one report per node, and the brake and the controller beside them.

Pure: Node states and what the Lease says in, reports out. It decides nothing; the records were decided upon
by the controller, and this reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from konductor_like.cli.columns import moment, natural
from konductor_like.cli.covering import CoverageReport, notes_on, state_of, warnings_on
from konductor_like.cli.happenings import EventReport
from konductor_like.model import (
    OPT_OUT_LABEL,
    TAINT_KEY,
    BrakeState,
    Controls,
    Coverage,
    CoverageState,
    Incident,
    IncidentState,
    NodeRecord,
    NodeState,
    Release,
    Role,
    Severity,
    Source,
    Stint,
)
from konductor_like.policy.change import health_of
from konductor_like.policy.release import name_of

if TYPE_CHECKING:  # commands that need no cluster start without pydantic
    from konductor_like.cluster.published import Published


class Health(StrEnum):
    """How a node stands, worst first: the order of the list."""

    FAULTY = "faulty"
    """It carries our taint."""
    HELD = "held"
    """It would carry it, but for the brake."""
    SUSPECT = "suspect"
    """Something is recorded that is not enough by itself."""
    UNKNOWN = "unknown"
    """Its kernel log stopped arriving or is not read, or its record cannot be read: silence means nothing."""
    NOT_MEASURED = "not measured"
    """Its kernel log was never seen with a heartbeat: silence means little."""
    HEALTHY = "healthy"


STALE_SECONDS = 300.0
"""The default of KONDUCTOR_HEARTBEAT_STALE_SECONDS, which holds where the controller's is not known."""
_RANK = {health: rank for rank, health in enumerate(Health)}
_SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}
_ACCUSING = (Severity.FATAL, Severity.TEST, Severity.SUSPECT)
_UNREAD_ADVICE = "find out why the controller does not read the kernel logs: its log and /readyz tell"
_READER_ADVICE = "look at the kernel-log reader's pod on this node and at the log collector"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node, as people ask about it. ``since`` is aware and UTC; None where there is no such moment."""

    name: str
    health: Health
    coverage: CoverageState
    tainted: bool
    since: datetime | None
    qualifier: str
    """What the bare state hides: a test, a fault from before the install, one of another boot."""
    fault: Incident | None
    """The gravest open incident, where the state is about one."""
    further: int
    """How many other incidents accuse the node as well."""
    advice: str
    incidents: tuple[Incident, ...]
    releases: tuple[Release, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    hold_until: datetime | None = None
    """Nothing but a person brings it back before this."""
    replace_since: datetime | None = None
    """It failed too often: marked for replacement."""
    contested_at: datetime | None = None
    """When somebody last fought over our taint."""
    stints: tuple[Stint, ...] = ()


@dataclass(frozen=True, slots=True)
class ControllerReport:
    """What the Lease says; ``holder`` is None where there is no Lease or nobody holds it."""

    lease: str
    """Its namespace and name, ``konductor-like/konductor-like``."""
    exists: bool = True
    holder: str | None = None
    renewed: datetime | None = None
    duration_seconds: float = 0.0
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Up to where each source was read and acted upon."""
    heard_ns: Mapping[Source, int] = field(default_factory=dict)
    """Up to where each source was read, as the coverage has it; an older controller's has nothing."""
    settings: Published | None = None
    """What it decides by; None where that is not known."""
    why_unset: str = ""
    """Why the settings are not known."""
    coverage_at: datetime | None = None
    steering: Controls = field(default_factory=Controls)
    """What people told it."""
    problem: str | None = None
    """Why the Lease, or something in it, could not be read."""

    @property
    def readable(self) -> bool:
        """Whether anything is known at all."""
        return self.problem is None or self.renewed is not None

    @property
    def stale_seconds(self) -> float:
        """What was not heard or not read for so long is unknown; without settings, their default."""
        return self.settings.stale_seconds if self.settings else STALE_SECONDS

    @property
    def reached_ns(self) -> Mapping[Source, int]:
        """Up to where each source was read; what was read may wait to be acted upon."""
        return self.heard_ns or self.read_ns

    def unread_since(self, now: datetime, source: Source = Source.KERNEL) -> datetime | None:
        """Up to where the source was read, if that is longer ago than the stale span.

        None where it was read since then, and where nothing tells that it was ever read.
        """
        known = [moment(self.reached_ns[source])] if source in self.reached_ns else []
        if source is Source.KERNEL and self.coverage_at is not None:
            known.append(self.coverage_at)
        since = min(known, default=now)
        return since if now - since > timedelta(seconds=self.stale_seconds) else None

    def alive(self, now: datetime) -> bool:
        """Whether the holder renewed recently enough to be taken for running."""
        if self.holder is None or self.renewed is None:
            return False
        return now - self.renewed < timedelta(seconds=self.duration_seconds)


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Everything that ``status`` prints."""

    now: datetime
    brake: BrakeState
    controller: ControllerReport
    nodes: tuple[NodeReport, ...]
    coverage: CoverageReport | None = None
    """None where no controller has said yet which kernel logs arrive."""
    events: tuple[EventReport, ...] = ()
    """What shows on many nodes at once, whichever nodes were asked for."""

    @property
    def unread_since(self) -> datetime | None:
        """Up to where kernel logs were read, where they have not been for so long that nodes are unknown."""
        return self.controller.unread_since(self.now)


def node_reports(
    states: Iterable[NodeState], coverage: Coverage | None, unread_since: datetime | None = None
) -> tuple[NodeReport, ...]:
    """A report per node that has a GPU or a trace of us, the worst first, then by name.

    Without coverage every node is ``not measured``. ``unread_since``: kernel logs were read up to here and
    not since; what was measured then is unknown now, because failure is not absence.
    """
    reports = [
        node_report(
            state, state_of(state.name, coverage, unread=unread_since is not None), coverage, unread_since
        )
        for state in states
        if worth_reporting(state)
    ]
    return tuple(sorted(reports, key=lambda report: (_RANK[report.health], natural(report.name))))


def worth_reporting(state: NodeState) -> bool:
    """Whether a node has a GPU, or anything of ours on it."""
    return (
        state.is_gpu_node
        or not state.record.empty
        or state.record_problem is not None
        or any(taint.key == TAINT_KEY for taint in state.taints)
    )


def node_report(
    state: NodeState,
    seen: CoverageState,
    coverage: Coverage | None = None,
    unread_since: datetime | None = None,
) -> NodeReport:
    """What there is to say about one node, given whether its kernel log arrives and what is missing of it.

    ``unread_since`` as for :func:`node_reports`.
    """
    accusing = sorted(_accusing(state), key=_gravity)
    health = _health(state, seen)
    fault = accusing[0] if accusing else None
    return NodeReport(
        name=state.name,
        health=health,
        coverage=seen,
        tainted=state.tainted,
        since=_since(state, health, fault),
        qualifier=", ".join(
            filter(None, (_qualifier(state, health, fault, coverage), *_standing(state.record, fault)))
        ),
        fault=fault,
        further=max(0, len(accusing) - 1),
        advice=_advice(state, health, fault, unread=unread_since is not None),
        incidents=state.record.incidents,
        releases=state.record.releases,
        warnings=(*_warnings(state), *warnings_on(state.name, coverage)),
        hold_until=state.record.hold_until,
        replace_since=state.record.replace_since,
        contested_at=state.record.contested_at,
        stints=state.record.stints,
        notes=(*_notes(state, health, fault, seen, unread_since), *notes_on(state.name, coverage)),
    )


def _health(state: NodeState, seen: CoverageState) -> Health:
    """The policy's own judgement of the record; where it finds nothing, what the silence is worth."""
    if judged := health_of(state.record, tainted=state.tainted):
        return Health(judged)
    if state.record_problem or seen is CoverageState.UNKNOWN:
        return Health.UNKNOWN
    return Health.HEALTHY if seen is CoverageState.MEASURED else Health.NOT_MEASURED


def _accusing(state: NodeState) -> Iterable[Incident]:
    """The incidents that may be behind a state other than healthy; another boot's never explain a taint."""
    for incident in state.record.incidents:
        if incident.state is IncidentState.PENDING:
            if not state.tainted:
                yield incident
        elif incident.state is not IncidentState.RELEASED and _accuses(incident):
            yield incident


def _accuses(incident: Incident) -> bool:
    """What taints does whoever has seen it; of the rest what is acknowledged or collateral accuses nobody."""
    if incident.taints:
        return True
    dealt_with = incident.ack is not None or incident.role is Role.COLLATERAL
    return incident.severity in _ACCUSING and not dealt_with


def _gravity(incident: Incident) -> tuple[bool, int, int]:
    """What the node is out for comes first, whatever else is suspected of it."""
    return (not incident.taints, _SEVERITY_RANK[incident.severity], incident.first_ns)


def _since(state: NodeState, health: Health, fault: Incident | None) -> datetime | None:
    if health is Health.FAULTY and state.record.tainted_at:
        return state.record.tainted_at
    return moment(fault.first_ns) if fault else None


def _qualifier(state: NodeState, health: Health, fault: Incident | None, coverage: Coverage | None) -> str:
    if health is Health.HELD and coverage is not None and state.name in coverage.ambiguous:
        return "ambiguous name"
    if health is Health.FAULTY and state.record.replace_since is not None:
        return "replace"
    if fault is None:
        return ""
    if fault.state is IncidentState.PENDING:
        return "other boot"
    if fault.before_install:
        return "before install"
    return "test" if fault.severity is Severity.TEST else ""


def _standing(record: NodeRecord, fault: Incident | None) -> Iterable[str]:
    """What the fault is in an event on many nodes, and whether a person has seen it; without one, of any."""
    about = [fault] if fault else [i for i in record.incidents if i.state is not IncidentState.RELEASED]
    standing = (i for i in record.incidents if i.state is not IncidentState.RELEASED)
    roles = {incident.role for incident in about} | {i.role for i in standing if i.role is Role.ORIGIN}
    yield next((role.value for role in Role if role in roles), "")
    if any(incident.ack for incident in about):
        yield "acked"


def _advice(state: NodeState, health: Health, fault: Incident | None, *, unread: bool) -> str:
    if fault is not None:
        return wake_of(fault) or fault.advice
    if health is Health.FAULTY:
        return f"find out who tainted it, then `konductor-like reset {state.name}`"
    if state.record_problem:
        return f"somebody edited its record; `konductor-like reset {state.name} --purge` clears it"
    if health is not Health.UNKNOWN:
        return ""
    return _UNREAD_ADVICE if unread else _READER_ADVICE


def wake_of(incident: Incident) -> str:
    """Where to look first if the incident followed from another node's failure; empty if it did not."""
    if incident.role is not Role.COLLATERAL or incident.origin is None:
        return ""
    return f"it followed from a failure on {incident.origin}: look there first"


def other_rules(settings: Published | None, own: str) -> str:
    """That the controller runs other rules than those that ``own`` names; empty where that is not known."""
    if settings is None or not own or settings.rules_digest == own:
        return ""
    return (
        f"the controller runs other rules ({settings.rules_digest}) than this machine has: "
        "what `explain RULE` and `rules` say here may not hold there"
    )


def _warnings(state: NodeState) -> Iterable[str]:
    """What a person must hear whatever the columns show."""
    if state.record_problem:
        yield f"its record cannot be read: {state.record_problem}"
    for taint in state.taints:
        if taint.foreign_twin:
            shown = f"{taint.key}={taint.value or ''}:{taint.effect}"
            yield f"it carries the taint {shown}, which is not ours and is left alone"
    if state.record.contested_at is not None:
        by = next(
            (mark.by for mark in state.record.releases if mark.at == state.record.contested_at), "somebody"
        )
        at = f"{state.record.contested_at:%Y-%m-%dT%H:%M:%SZ}"
        yield f"our taint is contested: {by} removed it at {at}; find out what does that"
    last = next(iter(state.record.releases), None)
    if last and last.warning and last.read.boot_id in (None, state.machine.boot_id):
        yield last.warning


def _notes(
    state: NodeState,
    health: Health,
    fault: Incident | None,
    seen: CoverageState,
    unread_since: datetime | None,
) -> Iterable[str]:
    """What is worth a column in the wide table only."""
    if health is Health.FAULTY and state.record.tainted_at is None:
        yield "tainted by somebody else: no record of ours claims it"
    if state.record.replace_since is not None:
        yield f"failed too often: to be replaced, since {state.record.replace_since:%Y-%m-%dT%H:%M:%SZ}"
    elif state.record.hold_until is not None:
        yield f"failed before: held until {state.record.hold_until:%Y-%m-%dT%H:%M:%SZ}"
    if state.record.tainted_at and not state.tainted:
        yield "the taint was removed by hand"
    if state.opted_out:
        yield f"opted out by the label {OPT_OUT_LABEL}"
    if unread_since is not None:
        yield f"its kernel log has not been read since {unread_since:%Y-%m-%dT%H:%M:%SZ}"
    elif seen is CoverageState.UNKNOWN and health is not Health.UNKNOWN:
        yield "its kernel-log heartbeat stopped"
    if fault is not None and fault.user_written:
        yield f"{name_of(fault)} was written by a user, not by the driver"
    for incident in state.record.incidents:
        if incident is not fault:
            yield _incident_note(incident)
    for last in state.record.releases[:1]:
        why = f": {last.reason}" if last.reason else ""
        yield f"released by {last.by} at {last.at:%Y-%m-%dT%H:%M:%SZ}{why}"


def _incident_note(incident: Incident) -> str:
    standing = "" if incident.state is IncidentState.ACTIVE else f", {incident.state.value}"
    before = ", before install" if incident.before_install else ""
    by_user = ", written by a user" if incident.user_written else ""
    role = f", {incident.role.value}" if incident.role else ""
    acked = f", acked by {incident.ack.by}" if incident.ack else ""
    more = f"{standing}{role}{before}{by_user}{acked}"
    return f"{name_of(incident)} x{incident.count} ({incident.severity.value}{more})"
