"""How the nodes stand: one report per node, and the brake and the controller beside them.

It decides nothing: the controller decided upon the records, and this reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from konductor_like.cli.columns import natural, stamp
from konductor_like.cli.session import ControllerReport, read_controller
from konductor_like.cli.status.coverage import (
    CoverageReport,
    coverage_report,
    notes_on,
    state_of,
    warnings_on,
)
from konductor_like.cli.status.shared_failures import FailureReport, shared_failures
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.node_decoder import node_decoder
from konductor_like.cluster.node_store import list_nodes, listed_slices
from konductor_like.model import (
    OPT_OUT_LABEL,
    TAINT_KEY,
    BrakeState,
    Coverage,
    CoverageState,
    Incident,
    IncidentState,
    NodeRecord,
    NodeState,
    Refusal,
    Role,
    Severity,
)
from konductor_like.model.escalation import DEFER_SECONDS_MOST
from konductor_like.model.time import moment_of, unix_ns
from konductor_like.policy.brake import brake_state
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.incidents import health_of, tainting
from konductor_like.policy.wording import name_of
from konductor_like.settings import Settings


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


_RANK = {health: rank for rank, health in enumerate(Health)}
_SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}
_ACCUSING = (Severity.FATAL, Severity.TEST, Severity.SUSPECT)
_UNREAD_ADVICE = "find out why the controller does not read the kernel logs: its log and /readyz tell"
_READER_ADVICE = "look at the kernel-log reader's pod on this node and at the log collector"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node, as people ask about it. ``since`` is aware and UTC; None where there is no such moment."""

    state: NodeState
    health: Health
    coverage: CoverageState
    since: datetime | None
    qualifier: str
    """What the bare state hides: a test, a fault from before the install, one of another boot."""
    fault: Incident | None
    """The gravest open incident, where the state is about one."""
    further: int
    """How many other incidents accuse the node as well."""
    advice: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The node's."""
        return self.state.name


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Everything that ``status`` prints."""

    now: datetime
    brake: BrakeState
    controller: ControllerReport
    nodes: tuple[NodeReport, ...]
    coverage: CoverageReport | None = None
    """None where no controller has said yet which kernel logs arrive."""
    failures: tuple[FailureReport, ...] = ()
    """What shows on many nodes at once, whichever nodes were asked for."""
    missing: tuple[str, ...] = ()
    """Names that were asked for and that the cluster does not have."""
    ordinary: tuple[str, ...] = ()
    """Names that were asked for and have neither a GPU nor a trace of us."""

    @property
    def why_unknown(self) -> str:
        """Why nothing vouches for any node: the kernel logs are not read, or nothing tells that they are."""
        if (since := self.controller.unread_since(self.now)) is not None:
            return (
                f"the kernel logs have not been read since {stamp(since)}: "
                "until they are, nodes that nothing stands against are unknown"
            )
        if not self.controller.readable:
            return (
                "without the Lease nobody can say which kernel logs arrive: every node counts as not measured"
            )
        if self.controller.coverage is None:
            return "no controller has said yet which kernel logs arrive, so every node counts as not measured"
        return ""


def observe(
    client: ReadOnlyKubeClient,
    settings: Settings,
    now: datetime,
    *,
    names: Collection[str] = (),
    selector: str | None = None,
) -> StatusReport:
    """Read nodes and Lease. Raises KubeError where the nodes cannot be read; the Lease may be out of reach.

    Whatever was asked for, all nodes are read: the brake counts all of them. What the brake allows comes of
    the controller's settings, never of ours.
    """
    controller = read_controller(client, settings)
    coverage, unread_since = controller.coverage, controller.unread_since(now)
    decode = node_decoder(controller.settings, listed_slices(client))
    nodes = list_nodes(client, decode)
    chosen = set(names) or (list_nodes(client, decode, selector).keys() if selector else nodes.keys())
    states = [state for name, state in nodes.items() if name in chosen]
    gpu_nodes = [name for name, state in nodes.items() if state.is_gpu_node]
    return StatusReport(
        now=now,
        brake=_brake(nodes, controller, now),
        controller=controller,
        nodes=node_reports(states, coverage, unread_since),
        coverage=coverage_report(gpu_nodes, coverage, unread=unread_since is not None),
        failures=shared_failures(nodes, now),
        missing=tuple(name for name in dict.fromkeys(names) if name not in nodes),
        ordinary=tuple(state.name for state in states if names and not worth_reporting(state)),
    )


def _brake(nodes: Mapping[str, NodeState], controller: ControllerReport, now: datetime) -> BrakeState:
    """The brake by the controller's settings; where they are not known, only what nodes and Lease tell."""
    ambiguous = controller.coverage.ambiguous if controller.coverage else frozenset()
    rules = rules_for(nodes, controller, now)
    state = brake_state(nodes, rules, ambiguous, controls=controller.controls, now=now)
    if controller.settings is not None:
        return state
    held = tuple(
        item if item.why is Refusal.PAUSED else replace(item, why=None, pool=None) for item in state.held
    )
    return BrakeState(state.gpu_nodes, state.out, state.bound, held, pause=state.pause)


def rules_for(nodes: Mapping[str, NodeState], controller: ControllerReport, now: datetime) -> PolicyConfig:
    """The rules by which nodes are looked at: with the catalogue's settling where something may settle now.

    To read the catalogue takes longer than all else, and it is seldom needed.
    """
    since_ns = unix_ns(now - timedelta(seconds=DEFER_SECONDS_MOST))
    states = (state for state in nodes.values() if not state.tainted)
    if any(incident.first_ns > since_ns for state in states for incident in tainting(state.record)):
        from konductor_like.catalog import load_catalog

        return controller.policy.under(load_catalog().escalations, "")
    return controller.policy


def node_reports(
    states: Iterable[NodeState], coverage: Coverage | None, unread_since: datetime | None = None
) -> tuple[NodeReport, ...]:
    """A report per node that has a GPU or a trace of us, the worst first, then by name.

    Without coverage every node is ``not measured``. ``unread_since``: kernel logs were read up to here and
    not since; what was measured then is unknown now, because failure is not absence.
    """
    reports = [node_report(state, coverage, unread_since) for state in states if worth_reporting(state)]
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
    state: NodeState, coverage: Coverage | None, unread_since: datetime | None = None
) -> NodeReport:
    """What there is to say about one node. Coverage and ``unread_since`` as for :func:`node_reports`."""
    seen = state_of(state.name, coverage, unread=unread_since is not None)
    accusing = sorted(_accusing(state), key=_gravity)
    health = _health(state, seen)
    fault = accusing[0] if accusing else None
    qualifiers = (_qualifier(state, health, fault, coverage), *_standing(state.record, fault))
    return NodeReport(
        state=state,
        health=health,
        coverage=seen,
        since=_since(state, health, fault),
        qualifier=", ".join(filter(None, qualifiers)),
        fault=fault,
        further=max(0, len(accusing) - 1),
        advice=_advice(state, health, fault, unread=unread_since is not None),
        warnings=(*_warnings(state), *warnings_on(state.name, coverage)),
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
    return moment_of(fault.first_ns) if fault else None


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
    """What the fault is in a failure group, and whether a person has seen it; without one, of any."""
    about = [fault] if fault else [i for i in record.incidents if i.state is not IncidentState.RELEASED]
    standing = (i for i in record.incidents if i.state is not IncidentState.RELEASED)
    roles = {incident.role for incident in about} | {i.role for i in standing if i.role is Role.ROOT_CAUSE}
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
    if incident.role is not Role.COLLATERAL or incident.root_cause is None:
        return ""
    return f"it followed from a failure on {incident.root_cause}: look there first"


def why_still_held(controller: ControllerReport, now: datetime) -> str:
    """Why a node is held that nothing is known to hold."""
    if controller.settings is None:
        return f"why cannot be told: {controller.why_unset}"
    if not controller.alive(now):
        return "nothing is in its way any more, it is tainted when a controller runs"
    return "nothing is in its way any more, it is tainted at the next poll"


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
        at = stamp(state.record.contested_at)
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
        yield f"failed too often: to be replaced, since {stamp(state.record.replace_since)}"
    elif state.record.hold_until is not None:
        yield f"failed before: held until {stamp(state.record.hold_until)}"
    if state.record.tainted_at and not state.tainted:
        yield "the taint was removed by hand"
    if state.opted_out:
        yield f"opted out by the label {OPT_OUT_LABEL}"
    if unread_since is not None:
        yield f"its kernel log has not been read since {stamp(unread_since)}"
    elif seen is CoverageState.UNKNOWN and health is not Health.UNKNOWN:
        yield "its kernel-log heartbeat stopped"
    if fault is not None and fault.user_written:
        yield f"{name_of(fault)} was written by a user, not by the driver"
    for incident in state.record.incidents:
        if incident is not fault:
            yield _incident_note(incident)
    for last in state.record.releases[:1]:
        why = f": {last.reason}" if last.reason else ""
        yield f"released by {last.by} at {stamp(last.at)}{why}"


def _incident_note(incident: Incident) -> str:
    standing = "" if incident.state is IncidentState.ACTIVE else f", {incident.state.value}"
    before = ", before install" if incident.before_install else ""
    by_user = ", written by a user" if incident.user_written else ""
    role = f", {incident.role.value}" if incident.role else ""
    acked = f", acked by {incident.ack.by}" if incident.ack else ""
    more = f"{standing}{role}{before}{by_user}{acked}"
    return f"{name_of(incident)} x{incident.count} ({incident.severity.value}{more})"
