"""The status of nodes: :func:`collect` reads the cluster, :func:`status_report` makes a pure value of it.

The report shows the records that the controller wrote; it decides nothing itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from konductor_like.cli.columns import natural, stamp
from konductor_like.cli.session import ControllerReport, cluster_now, read_controller
from konductor_like.cli.similar_names import did_you_mean
from konductor_like.cli.status.coverage import CoverageSummary, coverage_report
from konductor_like.cli.status.node import NodeReport, node_report
from konductor_like.cli.status.shared_failures import FailureReport, shared_failures
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import list_nodes, listed_slices
from konductor_like.model import TAINT_KEY, BrakeState, NodeState, SkipReason, ValidationStage
from konductor_like.model.escalation import DEFER_SECONDS_MOST
from konductor_like.model.time import unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.brake import brake_state
from konductor_like.policy.fleet.known_nodes import known_nodes
from konductor_like.policy.node.health import WORST_FIRST, tainting
from konductor_like.policy.recovery.returns import is_stopped, stop_words
from konductor_like.settings import Settings


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
    suggestion: str = ""
    """Which nodes the person may have meant with the missing names; empty if none is similar."""
    ordinary: tuple[str, ...] = ()
    """Names that the person gave, of nodes with neither a GPU nor a record or taint of ours."""
    jobs_problem: str = ""
    """Why the jobs of broken nodes are not all known; empty if they are, or if nobody asked."""
    stale: str = ""
    """Why a report of ``--watch`` may be older than ``now``; empty if it is not."""

    @property
    def returns_stopped(self) -> str:
        """Why no node of the fleet returns by itself, and what to do; empty if nodes may return."""
        controls = self.controller.controls
        asks = not self.controller.policy.returns_unasked
        return "" if asks or not is_stopped(controls) else stop_words(controls)

    @property
    def validations(self) -> Counter[ValidationStage]:
        """The number of chosen nodes whose validation waits, runs, or has a verdict."""
        found = (node.state.record.validation for node in self.nodes)
        return Counter(each.stage for each in found if each is not None)

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
    nodes = known_nodes(list_nodes(client, decode, cached=True), controller.controls)
    selected = list_nodes(client, decode, selector, cached=True) if selector else nodes
    return Fleet(cluster_now(client), nodes, controller, selected)


def status_report(fleet: Fleet, names: Collection[str] = ()) -> StatusReport:
    """Return the report on the nodes of these names; without names, on the nodes that match the selector."""
    nodes, controller, now = fleet.nodes, fleet.controller, fleet.now
    chosen = set(names or fleet.selected)
    states = [state for name, state in nodes.items() if name in chosen]
    gpu_nodes = [name for name, state in nodes.items() if state.is_gpu_node]
    brake = fleet.brake()
    missing = tuple(name for name in dict.fromkeys(names) if name not in nodes)
    return StatusReport(
        now=now,
        brake=brake,
        controller=controller,
        nodes=node_reports(states, controller, brake, now),
        fleet_size=sum(map(worth_reporting, nodes.values())),
        coverage=coverage_report(gpu_nodes, controller.coverage, controller.unread_since(now)),
        failures=shared_failures(nodes, now),
        missing=missing,
        suggestion=did_you_mean(missing, nodes) if missing else "",
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


def why_still_held(controller: ControllerReport, now: datetime) -> str:
    """Return why a node is still held although the brake, computed now, would not hold it."""
    if controller.settings is None:
        return f"the reason is not known: {controller.why_settings_unknown}"
    when = "within seconds" if controller.alive(now) else "when a controller runs"
    return f"no longer held; will be tainted {when}"
