"""The status of nodes: what is read (:func:`collect`), and the report that follows from it, a pure value.

It decides nothing: the controller decided upon the records, and this shows them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
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
    NodeState,
    Role,
    Severity,
    SkipReason,
)
from konductor_like.model.escalation import DEFER_SECONDS_MOST
from konductor_like.model.time import moment_of, unix_ns
from konductor_like.policy.brake import brake_state
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.incidents import health_of, tainting
from konductor_like.policy.wording import name_of
from konductor_like.settings import Settings


class Health(StrEnum):
    """The state of a node, worst first: the order of the list."""

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


_HEALTHS, _SEVERITIES = tuple(Health), tuple(Severity)
"""The worst first."""
_ACCUSING = (Severity.FATAL, Severity.TEST, Severity.SUSPECT)
CLAIMED_BY_NOBODY = "tainted by somebody else: no record of ours claims it"
_UNREAD_ADVICE = "find out why the controller does not read the kernel logs: its log and /readyz tell"
_READER_ADVICE = "look at the kernel-log reader's pod on this node and at the log collector"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node, as people ask about it."""

    state: NodeState
    health: Health
    coverage: CoverageState
    accusing: tuple[Incident, ...]
    """The incidents that may be behind a state other than healthy, the gravest first."""
    logs: Coverage | None
    """The kernel logs of the fleet that arrive; None where no controller has said so."""
    unread_since: datetime | None
    """Up to where kernel logs were read, where that is so long ago that nodes are unknown."""

    @property
    def name(self) -> str:
        """The node's."""
        return self.state.name

    @property
    def fault(self) -> Incident | None:
        """The gravest open incident, where the state is about one."""
        return self.accusing[0] if self.accusing else None

    @property
    def since(self) -> datetime | None:
        """When it was tainted or the fault first seen, in UTC; None where there is no such moment."""
        if self.health is Health.FAULTY and self.state.record.tainted_at:
            return self.state.record.tainted_at
        return moment_of(self.fault.first_ns) if self.fault else None

    @property
    def qualifier(self) -> str:
        """What the bare state hides: a test, a fault from before the install, one of another boot."""
        return ", ".join(_qualifiers(self))

    @property
    def advice(self) -> str:
        """What to do; empty where nothing is."""
        if self.fault is not None:
            return follows_from(self.fault) or self.fault.advice
        if self.health is Health.FAULTY:
            return f"find out who tainted it, then `konductor-like reset {self.name}`"
        if self.state.record_problem:
            return f"somebody edited its record; `konductor-like reset {self.name} --purge` clears it"
        if self.health is not Health.UNKNOWN:
            return ""
        return _READER_ADVICE if self.unread_since is None else _UNREAD_ADVICE

    @property
    def warnings(self) -> list[str]:
        """What a person must hear whatever the columns show."""
        return [*_warnings(self.state), *warnings_on(self.name, self.logs)]

    @property
    def notes(self) -> list[str]:
        """What is worth a column in the wide table only."""
        return [*_notes(self), *notes_on(self.name, self.logs)]


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
        """Why no node is known to be healthy: kernel logs are not read, or nobody has said that they are."""
        if (since := self.controller.unread_since(self.now)) is not None:
            return (
                f"the kernel logs have not been read since {stamp(since)}: "
                "until they are, nodes that nothing stands against are unknown"
            )
        if self.controller.coverage is not None:
            return ""
        who = "no controller has said yet" if self.controller.readable else "without the Lease nobody can say"
        return f"{who} which kernel logs arrive: every node counts as not measured"


@dataclass(frozen=True, slots=True)
class Fleet:
    """What was read: all nodes, whichever were asked for, because the brake counts all of them."""

    now: datetime
    nodes: Mapping[str, NodeState]
    controller: ControllerReport
    selected: Collection[str]
    """The names that the selector picks; without one all of them."""

    @property
    def ambiguous(self) -> frozenset[str]:
        """Names under which two machines report at once."""
        return self.controller.coverage.ambiguous if self.controller.coverage else frozenset()

    @property
    def unread_since(self) -> datetime | None:
        """Up to where kernel logs were read, where that is so long ago that nodes are unknown."""
        return self.controller.unread_since(self.now)

    def rules(self) -> PolicyConfig:
        """The controller's rules, with the catalogue's deferrals where something may be deferred now.

        To read the catalogue takes longer than all else, and it is seldom needed.
        """
        since_ns = unix_ns(self.now - timedelta(seconds=DEFER_SECONDS_MOST))
        states = (state for state in self.nodes.values() if not state.tainted)
        if any(incident.first_ns > since_ns for state in states for incident in tainting(state.record)):
            from konductor_like.catalog import load_catalog

            return self.controller.policy.under(load_catalog().escalations, "")
        return self.controller.policy

    def brake(self) -> BrakeState:
        """The brake by the controller's settings; where they are not known, without what depends on them."""
        controls = self.controller.controls
        state = brake_state(self.nodes, self.rules(), self.ambiguous, controls=controls, now=self.now)
        if self.controller.settings is not None:
            return state
        held = tuple(
            item if item.why is SkipReason.PAUSED else replace(item, why=None, pool=None)
            for item in state.held
        )
        return BrakeState(state.gpu_nodes, state.out, state.bound, held, pause=state.pause)


def collect(
    client: ReadOnlyKubeClient, settings: Settings, now: datetime, selector: str | None = None
) -> Fleet:
    """Read nodes and Lease. Raises KubeError for the nodes; a Lease that cannot be read is reported."""
    controller = read_controller(client, settings)
    decode = node_decoder(controller.settings, listed_slices(client))
    nodes = list_nodes(client, decode)
    return Fleet(now, nodes, controller, list_nodes(client, decode, selector) if selector else nodes)


def status_report(fleet: Fleet, names: Collection[str] = ()) -> StatusReport:
    """The report on the nodes of these names; without names on those that the selector picks."""
    nodes, coverage, unread_since = fleet.nodes, fleet.controller.coverage, fleet.unread_since
    chosen = set(names or fleet.selected)
    states = [state for name, state in nodes.items() if name in chosen]
    gpu_nodes = [name for name, state in nodes.items() if state.is_gpu_node]
    return StatusReport(
        now=fleet.now,
        brake=fleet.brake(),
        controller=fleet.controller,
        nodes=node_reports(states, coverage, unread_since),
        coverage=coverage_report(gpu_nodes, coverage, unread=unread_since is not None),
        failures=shared_failures(nodes, fleet.now),
        missing=tuple(name for name in dict.fromkeys(names) if name not in nodes),
        ordinary=tuple(state.name for state in states if names and not worth_reporting(state)),
    )


def node_reports(
    states: Iterable[NodeState], coverage: Coverage | None, unread_since: datetime | None = None
) -> tuple[NodeReport, ...]:
    """A report per node that has a GPU or a trace of us, the worst first, then by name.

    Without coverage every node is ``not measured``. ``unread_since``: kernel logs were read up to here and
    not since; what was measured then is unknown now, because failure is not absence.
    """
    reports = [node_report(state, coverage, unread_since) for state in states if worth_reporting(state)]
    return tuple(sorted(reports, key=lambda report: (_HEALTHS.index(report.health), natural(report.name))))


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
    """The report on one node. Coverage and ``unread_since`` as for :func:`node_reports`."""
    heard = state_of(state.name, coverage, unread=unread_since is not None)
    accusing = sorted(
        filter(lambda incident: _accuses(incident, state), state.record.incidents),
        # What the node is out for comes first, whatever else is suspected of it.
        key=lambda each: (not each.taints, _SEVERITIES.index(each.severity), each.first_ns),
    )
    if recorded := health_of(state.record, tainted=state.tainted):
        health = Health(recorded)
    elif state.record_problem or heard is CoverageState.UNKNOWN:
        health = Health.UNKNOWN
    else:
        health = Health.HEALTHY if heard is CoverageState.MEASURED else Health.NOT_MEASURED
    return NodeReport(state, health, heard, tuple(accusing), coverage, unread_since)


def _accuses(incident: Incident, state: NodeState) -> bool:
    """Whether it may be behind a state other than healthy; another boot's never explains a taint.

    What a person acknowledged, or what followed from elsewhere, accuses nobody unless it taints.
    """
    if incident.state is IncidentState.RELEASED:
        return False
    if incident.state is IncidentState.PENDING:
        return not state.tainted
    explained = incident.ack is not None or incident.role is Role.COLLATERAL
    return incident.taints or (incident.severity in _ACCUSING and not explained)


def _qualifiers(node: NodeReport) -> Iterator[str]:
    """One word on state or fault, the role in a failure group, and whether a person acknowledged it."""
    state, health, fault = node.state, node.health, node.fault
    if health is Health.HELD and node.logs is not None and node.name in node.logs.ambiguous:
        yield "ambiguous name"
    elif health is Health.FAULTY and state.record.replace_since is not None:
        yield "replace"
    elif fault is not None and fault.state is IncidentState.PENDING:
        yield "other boot"
    elif fault is not None and fault.before_install:
        yield "before install"
    elif fault is not None and fault.severity is Severity.TEST:
        yield "test"
    standing = [each for each in state.record.incidents if each.state is not IncidentState.RELEASED]
    about = [fault] if fault else standing
    roles = {each.role for each in about} | {each.role for each in standing if each.role is Role.ROOT_CAUSE}
    yield from [role.value for role in Role if role in roles][:1]
    if any(each.ack for each in about):
        yield "acked"


def follows_from(incident: Incident) -> str:
    """Where to look first if the incident followed from another node's failure; empty if it did not."""
    if incident.role is not Role.COLLATERAL or incident.root_cause is None:
        return ""
    return f"it followed from a failure on {incident.root_cause}: look there first"


def why_still_held(controller: ControllerReport, now: datetime) -> str:
    """Why a node is held that nothing is known to hold."""
    if controller.settings is None:
        return f"why cannot be told: {controller.why_unset}"
    when = "at the next poll" if controller.alive(now) else "when a controller runs"
    return f"nothing is in its way any more, it is tainted {when}"


def _warnings(state: NodeState) -> Iterator[str]:
    if state.record_problem:
        yield f"its record cannot be read: {state.record_problem}"
    for taint in state.taints:
        if taint.foreign_twin:
            shown = f"{taint.key}={taint.value or ''}:{taint.effect}"
            yield f"it carries the taint {shown}, which is not ours and is left alone"
    if state.record.contested_at is not None:
        at = state.record.contested_at
        by = next((mark.by for mark in state.record.releases if mark.at == at), "somebody")
        yield f"our taint is contested: {by} removed it at {stamp(at)}; find out what does that"
    for last in state.record.releases[:1]:
        if last.warning and last.read.boot_id in (None, state.machine.boot_id):
            yield last.warning


def _notes(node: NodeReport) -> Iterator[str]:
    state, fault = node.state, node.fault
    if node.health is Health.FAULTY and state.record.tainted_at is None:
        yield CLAIMED_BY_NOBODY
    if state.record.replace_since is not None:
        yield f"failed too often: to be replaced, since {stamp(state.record.replace_since)}"
    elif state.record.hold_until is not None:
        yield f"failed before: held until {stamp(state.record.hold_until)}"
    if state.record.tainted_at and not state.tainted:
        yield "the taint was removed by hand"
    if state.opted_out:
        yield f"opted out by the label {OPT_OUT_LABEL}"
    if node.unread_since is not None:
        yield f"its kernel log has not been read since {stamp(node.unread_since)}"
    elif node.coverage is CoverageState.UNKNOWN and node.health is not Health.UNKNOWN:
        yield "its kernel-log heartbeat stopped"
    if fault is not None and fault.user_written:
        yield f"{name_of(fault)} was written by a user, not by the driver"
    for incident in state.record.incidents:
        if incident is not fault:
            yield _incident_note(incident)
    for last in state.record.releases[:1]:
        why = f": {last.reason}" if last.reason else ""
        yield f"released by {last.by} at {stamp(last.at)}{why}"


def marks_of(incident: Incident) -> list[str]:
    """``fatal``, ``held``, ``collateral``, ``before install``."""
    role = incident.role.value if incident.role else ""
    before = "before install" if incident.before_install else ""
    return [mark for mark in (incident.severity.value, incident.state.value, role, before) if mark]


def _incident_note(incident: Incident) -> str:
    marks = [mark for mark in marks_of(incident) if mark != IncidentState.ACTIVE.value]
    if incident.user_written:
        marks.append("written by a user")
    if incident.ack:
        marks.append(f"acked by {incident.ack.by}")
    return f"{name_of(incident)} x{incident.count} ({', '.join(marks)})"
