"""The status of nodes: :func:`collect` reads the cluster, :func:`status_report` makes a pure value of it.

The report shows the records that the controller wrote; it decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from konductor_like.cli.columns import natural, stamp
from konductor_like.cli.session import ControllerReport, cluster_now, read_controller
from konductor_like.cli.status.attempts import refusal_of
from konductor_like.cli.status.coverage import (
    CoverageSummary,
    coverage_report,
    notes_on,
    warnings_on,
)
from konductor_like.cli.status.returning import known_blockers, short_of_gpus
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
    Needs,
    NodeState,
    Role,
    Severity,
    SkipReason,
    Verb,
)
from konductor_like.model.escalation import DEFER_SECONDS_MOST
from konductor_like.model.time import moment_of, unix_ns
from konductor_like.policy.brake import brake_state
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.health import Health, coverage_of, state_of, tainting
from konductor_like.policy.release import NOT_REBOOTED, reminder
from konductor_like.policy.returns import is_stopped, stop_words
from konductor_like.policy.verdict import GRAVEST_FIRST, Verdict, accusing, verdict
from konductor_like.policy.wording import name_of
from konductor_like.settings import Settings

WORST_FIRST = {health: place for place, health in enumerate(Health)}
CLAIMED_BY_NOBODY = "tainted by another tool or person: the node's record does not explain the taint"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The state of one node and the reasons for it."""

    state: NodeState
    health: Health
    coverage: CoverageState
    accusing: tuple[Incident, ...]
    """The incidents that may explain a state other than healthy, the gravest first."""
    logs: Coverage | None
    """Which kernel logs of the fleet arrive; None if no controller has published this yet."""
    unread_since: datetime | None
    """See :meth:`ControllerReport.unread_since`, for kernel logs."""
    verdict: Verdict
    """The fault, the need, the guards and the next action."""
    refused: str = ""
    """Why the controller cannot write the node; empty if it can."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.state.name

    @property
    def fault(self) -> Incident | None:
        """See :attr:`Verdict.fault`."""
        return self.verdict.fault

    @property
    def further(self) -> int:
        """The number of further incidents that may explain the state."""
        return sum(each is not self.fault for each in self.accusing)

    @property
    def since(self) -> datetime | None:
        """When the node was tainted, returned, or its fault first seen, in UTC; None without any of these."""
        if self.health is Health.FAULTY and self.state.record.life.tainted_at:
            return self.state.record.life.tainted_at
        if self.health is Health.PROBATION and self.state.record.releases:
            return self.state.record.releases[0].at
        return moment_of(self.fault.first_ns) if self.fault else None

    @property
    def qualifier(self) -> str:
        """Further words on the state: ``test``, ``before install``, ``not rebooted``, ``acked``."""
        return ", ".join(_qualifiers(self))

    @property
    def advice(self) -> str:
        """What to do; empty if there is nothing to do."""
        return self.verdict.advice

    @property
    def needs(self) -> Needs | None:
        """See :attr:`Verdict.needs`."""
        return self.verdict.needs

    @property
    def open(self) -> list[Incident]:
        """The incidents that are not released."""
        return [each for each in self.state.record.incidents if each.state is not IncidentState.RELEASED]

    @property
    def severity(self) -> Severity | None:
        """The severity of the gravest open incident; None without one."""
        return min((each.severity for each in self.open), key=GRAVEST_FIRST.__getitem__, default=None)

    @property
    def alarms(self) -> list[str]:
        """Warnings that ``status`` prints on standard error."""
        return [*_alarms(self.state), *warnings_on(self.name, self.logs)]

    @property
    def warnings(self) -> list[str]:
        """The alarms, and the warning of a release that was not followed by a reboot."""
        reminded = reminder(self.state)
        return [*self.alarms, reminded] if reminded else self.alarms

    @property
    def not_rebooted(self) -> bool:
        """Whether the node was released from a fault that needs a reboot, and has not rebooted since."""
        return self.health not in (Health.FAULTY, Health.HELD) and NOT_REBOOTED in reminder(self.state)

    @property
    def notes(self) -> list[str]:
        """Further facts about the node."""
        return [*filter(None, [self.refused]), *_notes(self), *notes_on(self.name, self.logs)]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Everything that ``status`` prints."""

    now: datetime
    brake: BrakeState
    controller: ControllerReport
    nodes: tuple[NodeReport, ...]
    """The nodes that the person chose, by default all; the worst first."""
    fleet_size: int = 0
    """The number of nodes, chosen or not, that have a GPU or a record or taint of ours."""
    coverage: CoverageSummary | None = None
    """None if no controller has published yet which kernel logs arrive."""
    failures: tuple[FailureReport, ...] = ()
    """All failure groups of the fleet, also those of nodes that are not shown."""
    missing: tuple[str, ...] = ()
    """Names that the person gave and that the cluster does not have."""
    ordinary: tuple[str, ...] = ()
    """Names that the person gave, of nodes with neither a GPU nor a record or taint of ours."""
    stale: str = ""
    """Why a report of ``--watch`` may be older than ``now``; empty if it is not."""

    @property
    def returns_stopped(self) -> str:
        """Why no node of the fleet returns by itself, and what to do; empty if nodes may return."""
        controls = self.controller.controls
        asks = not self.controller.policy.returns_by_reboot
        return "" if asks or not is_stopped(controls) else stop_words(controls)

    @property
    def why_unknown(self) -> str:
        """Why no node is known to be healthy; empty if the controller runs and reads the kernel logs."""
        if (since := self.controller.unread_since(self.now)) is not None:
            return (
                f"the kernel logs have not been read since {stamp(since)}: "
                "until they are, nodes without a recorded fault are unknown"
            )
        if self.controller.coverage is not None:
            return self.controller.why_not_running(self.now)
        why = (
            "no controller has published yet"
            if self.controller.readable
            else "without the Lease it is unknown"
        )
        return f"{why} which kernel logs arrive: every node counts as not measured"


@dataclass(frozen=True, slots=True)
class Fleet:
    """All nodes of the cluster, because the brake counts all of them, and the controller's Lease."""

    now: datetime
    nodes: Mapping[str, NodeState]
    controller: ControllerReport
    selected: Collection[str]
    """The names of the nodes that match the selector; all names without a selector."""

    def policy(self) -> PolicyConfig:
        """Return the controller's policy; with the catalogue's rules if a fault may be deferred now.

        Reading the catalogue is the slowest part of the command, so it is read only for a fault that is young
        enough to be deferred.
        """
        since_ns = unix_ns(self.now - timedelta(seconds=DEFER_SECONDS_MOST))
        states = (state for state in self.nodes.values() if not state.tainted)
        if any(incident.first_ns > since_ns for state in states for incident in tainting(state.record)):
            from konductor_like.catalog import load_catalog

            return self.controller.policy.with_escalations(load_catalog().escalations, "")
        return self.controller.policy

    def brake(self) -> BrakeState:
        """Return the brake's state; without the controller's settings, only what is known without them."""
        controls, ambiguous = self.controller.controls, self.controller.ambiguous
        state = brake_state(self.nodes, self.policy(), ambiguous, controls=controls, now=self.now)
        if self.controller.settings is not None:
            return state
        held = tuple(
            item if item.why is SkipReason.PAUSED else replace(item, why=None, pool=None)
            for item in state.held
        )
        return BrakeState(state.gpu_nodes, state.out, state.bound, held, pause=state.pause)


def collect(client: ReadOnlyKubeClient, settings: Settings, selector: str | None = None) -> Fleet:
    """Read nodes and Lease. Raises KubeError for the nodes; the report names a problem with the Lease.

    The time is the API server's, after the last answer: by the clock of a laptop that is an hour behind, a
    controller that died half an hour ago would run.
    """
    controller = read_controller(client, settings)
    decode = node_decoder(controller.settings, listed_slices(client))
    nodes = list_nodes(client, decode)
    selected = list_nodes(client, decode, selector) if selector else nodes
    return Fleet(cluster_now(client), nodes, controller, selected)


def status_report(fleet: Fleet, names: Collection[str] = ()) -> StatusReport:
    """Return the report on the nodes of these names; without names, on the nodes that match the selector."""
    nodes, controller, now = fleet.nodes, fleet.controller, fleet.now
    chosen = set(names or fleet.selected)
    states = [state for name, state in nodes.items() if name in chosen]
    gpu_nodes = [name for name, state in nodes.items() if state.is_gpu_node]
    brake = fleet.brake()
    return StatusReport(
        now=now,
        brake=brake,
        controller=controller,
        nodes=node_reports(states, controller, brake, now),
        fleet_size=sum(map(worth_reporting, nodes.values())),
        coverage=coverage_report(gpu_nodes, controller.coverage, controller.unread_since(now)),
        failures=shared_failures(nodes, now),
        missing=tuple(name for name in dict.fromkeys(names) if name not in nodes),
        ordinary=tuple(state.name for state in states if names and not worth_reporting(state)),
    )


def node_reports(
    states: Iterable[NodeState], controller: ControllerReport, brake: BrakeState, now: datetime
) -> tuple[NodeReport, ...]:
    """Return a report for each node that has a GPU or a record or taint of ours: worst first, then by name.

    Without coverage every node is ``not measured``. While the controller does not read the kernel logs, the
    nodes that were measured are unknown, because unread logs do not prove health. A node that the controller
    cannot write is not healthy.
    """
    in_order = sorted(filter(worth_reporting, states), key=lambda state: natural(state.name))
    reports = [node_report(state, controller, brake, now) for state in in_order]
    return tuple(sorted(reports, key=lambda report: WORST_FIRST[report.health]))


def worth_reporting(state: NodeState) -> bool:
    """Whether a node has a GPU, or a record or taint of ours."""
    return (
        state.is_gpu_node
        or not state.record.empty
        or state.record_problem is not None
        or any(taint.key == TAINT_KEY for taint in state.taints)
    )


def node_report(
    state: NodeState, controller: ControllerReport, brake: BrakeState, now: datetime
) -> NodeReport:
    """Return the report on one node; see :func:`node_reports`."""
    unread_since, coverage = controller.unread_since(now), controller.coverage
    heard = coverage_of(state.name, coverage, unread=unread_since is not None)
    health = state_of(state, heard)
    failed, refused = refusal_of(state.name, controller.attempts)
    if failed is Verb.TAINT and health is not Health.FAULTY:
        health = Health.HELD
    elif refused and health in (Health.HEALTHY, Health.NOT_MEASURED):
        health = Health.UNKNOWN
    elif failed is None:
        refused = ""
    found = verdict(
        state,
        known_blockers(state, controller, brake, now),
        controller.policy,
        health,
        refused=refused,
        unread=unread_since is not None,
    )
    return NodeReport(
        state, health, heard, tuple(accusing(state)), coverage, unread_since, found, refused=refused
    )


def _qualifiers(node: NodeReport) -> Iterator[str]:
    """Yield a word on the state or fault, the role in a failure group, and ``acked``."""
    state, health, fault = node.state, node.health, node.fault
    if health is Health.HELD and node.logs is not None and node.name in node.logs.ambiguous:
        yield "ambiguous name"
    elif health is Health.HELD and node.refused:
        yield "not written"
    elif health is Health.FAULTY and state.record.life.marked:
        yield "replace"
    elif health is Health.PROBATION:
        yield f"until {stamp(state.record.life.probation_until)}"
    elif fault is not None and fault.state is IncidentState.PENDING:
        yield "other boot"
    elif fault is not None and fault.before_install:
        yield "before install"
    elif fault is not None and fault.severity is Severity.TEST:
        yield "test"
    if fault is not None and (short := short_of_gpus(state)):
        yield short
    if state.opted_out:
        yield "ignored"
    if node.not_rebooted:
        yield "not rebooted"
    about = [fault] if fault else node.open
    roles = {each.role for each in about} | {each.role for each in node.open if each.role is Role.ROOT_CAUSE}
    yield from [role.value for role in Role if role in roles][:1]
    if any(each.ack for each in about):
        yield "acked"


def why_still_held(controller: ControllerReport, now: datetime) -> str:
    """Return why a node is still held although the brake, computed now, would not hold it."""
    if controller.settings is None:
        return f"the reason is not known: {controller.why_settings_unknown}"
    when = "within seconds" if controller.alive(now) else "when a controller runs"
    return f"no longer held; will be tainted {when}"


def _alarms(state: NodeState) -> Iterator[str]:
    if state.record_problem:
        yield f"its record cannot be read: {state.record_problem}"
    for taint in state.taints:
        if taint.foreign_twin:
            shown = f"{taint.key}={taint.value or ''}:{taint.effect}"
            yield f"it has another tool's taint {shown}, which the controller does not remove"
    if state.record.life.contested_at is not None:
        at = state.record.life.contested_at
        by = next((mark.by for mark in state.record.releases if mark.at == at), "somebody")
        yield f"contested: {by} removed the controller's taint at {stamp(at)}; find out why"


def _notes(node: NodeReport) -> Iterator[str]:
    state, fault = node.state, node.fault
    if node.health is Health.FAULTY and not state.record.life.claimed:
        yield CLAIMED_BY_NOBODY
    if state.record.life.marked:
        yield f"failed too often: to be replaced, since {stamp(state.record.life.replace_since)}"
    elif state.record.life.hold_until is not None:
        yield f"failed before: should stay out until {stamp(state.record.life.hold_until)}"
    if state.record.life.tainted_at and not state.tainted:
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
    """Return the words on an incident: ``fatal``, ``held``, ``collateral``, ``before install``."""
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
