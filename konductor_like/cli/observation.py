"""What the cluster says, read once: the nodes, and the Lease with what it carries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from konductor_like.cli.covering import coverage_report
from konductor_like.cli.document import stamp
from konductor_like.cli.happenings import event_reports
from konductor_like.cli.report import ControllerReport, StatusReport, node_reports, worth_reporting
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.errors import KubeError
from konductor_like.cluster.lease import read_lease
from konductor_like.cluster.node_decoder import node_decoder
from konductor_like.cluster.node_store import list_nodes, listed_slices
from konductor_like.model import BrakeState, Coverage, NodeState, Refusal
from konductor_like.model.escalation import SETTLE_SECONDS_MOST
from konductor_like.policy import Rules
from konductor_like.policy.brake import brake_state
from konductor_like.policy.release import unix_ns
from konductor_like.policy.roles import is_waiting
from konductor_like.settings import Settings

_UNREADABLE = "the controller's settings are not known: the Lease that carries them cannot be read"
_NEVER = "the controller's settings are not known: no controller has ever run"
_OLDER = "the controller's settings are not known: it is older than this command, and does not publish them"


@dataclass(frozen=True, slots=True)
class Observation:
    """The report on the nodes that were asked for, and what it cannot tell by itself."""

    report: StatusReport
    missing: tuple[str, ...] = ()
    """Names that were asked for and that the cluster does not have."""
    ordinary: tuple[str, ...] = ()
    """Names that were asked for and have neither a GPU nor a trace of us."""
    unread: str = ""
    """Why nothing vouches for any node: the kernel logs are not read, or nothing tells that they are."""


@contextmanager
def reading_client(
    settings: Settings, kubeconfig: str | None, context: str | None
) -> Iterator[ReadOnlyKubeClient]:
    """A client that cannot write. Raises KubeConfigError."""
    with closing(ReadOnlyKubeClient.connect(kubeconfig, context, settings.kube_timeout_seconds)) as client:
        yield client


def observe(
    client: ReadOnlyKubeClient,
    settings: Settings,
    now: datetime,
    *,
    names: Collection[str] = (),
    selector: str | None = None,
) -> Observation:
    """Read nodes and Lease. Raises KubeError where the nodes cannot be read; the Lease may be out of reach.

    Whatever was asked for, all nodes are read: the brake counts all of them. What the brake allows comes of
    the controller's settings, never of ours.
    """
    controller, coverage = read_controller(client, settings)
    decode = node_decoder(controller.settings, listed_slices(client))
    nodes = list_nodes(client, decode)
    chosen = set(names) or (list_nodes(client, decode, selector).keys() if selector else nodes.keys())
    states = [state for name, state in nodes.items() if name in chosen]
    unread_since = controller.unread_since(now)
    report = StatusReport(
        now=now,
        brake=_brake(nodes, controller, coverage, now),
        controller=controller,
        nodes=node_reports(states, coverage, unread_since),
        coverage=coverage_report(
            (name for name, state in nodes.items() if state.is_gpu_node),
            coverage,
            unread=unread_since is not None,
        ),
        events=event_reports(nodes, now),
    )
    return Observation(
        report,
        missing=tuple(name for name in dict.fromkeys(names) if name not in nodes),
        ordinary=tuple(state.name for state in states if names and not worth_reporting(state)),
        unread=_unread(controller, coverage, unread_since),
    )


def _brake(
    nodes: Mapping[str, NodeState], controller: ControllerReport, coverage: Coverage | None, now: datetime
) -> BrakeState:
    """The brake by the controller's settings; where they are not known, only what nodes and Lease tell."""
    state = brake_state(
        nodes,
        rules_for(nodes, controller, now),
        coverage.ambiguous if coverage else (),
        steering=controller.steering,
        now=now,
    )
    if controller.settings is not None:
        return state
    held = tuple(
        item if item.why is Refusal.PAUSED else replace(item, why=None, pool=None) for item in state.held
    )
    return BrakeState(state.gpu_nodes, state.out, state.bound, held, pause=state.pause)


def rules_for(nodes: Mapping[str, NodeState], controller: ControllerReport, now: datetime) -> Rules:
    """The rules by which nodes are looked at: with the catalogue's settling where something may settle now.

    To read the catalogue takes longer than all else, and it is seldom needed. Bounds and spans are the
    defaults where the controller's are not known.
    """
    rules = controller.settings.policy if controller.settings else Rules()
    since_ns = unix_ns(now - timedelta(seconds=SETTLE_SECONDS_MOST))
    incidents = (incident for state in nodes.values() for incident in state.record.incidents)
    if any(is_waiting(incident) and incident.first_ns > since_ns for incident in incidents):
        from konductor_like.catalog import load_catalog

        return rules.under(load_catalog().escalations, "")
    return rules


def read_controller(
    client: ReadOnlyKubeClient, settings: Settings
) -> tuple[ControllerReport, Coverage | None]:
    """What the Lease says. A Lease that cannot be read is a problem in the report, not an error."""
    try:
        namespace = settings.lease_namespace(client.namespace if client.in_cluster else None)
        name = f"{namespace}/{settings.lease_name}"
        seen = read_lease(client, namespace, settings.lease_name)
    except KubeError as error:
        report = ControllerReport(settings.lease_name, problem=str(error), why_unset=_UNREADABLE)
        return report, None
    if seen is None:
        return ControllerReport(name, exists=False, why_unset=_NEVER), None
    known = seen.settings is not None and seen.holder in ("", seen.settings.by)
    controller = ControllerReport(
        name,
        holder=seen.holder or None,
        renewed=seen.renewed,
        duration_seconds=seen.duration_seconds or 0,
        read_ns=seen.checkpoint.read_ns if seen.checkpoint else {},
        heard_ns=seen.coverage.read_ns if seen.coverage else {},
        settings=seen.settings if known else None,
        why_unset="" if known else _OLDER,
        coverage_at=seen.coverage.at if seen.coverage else None,
        problem=seen.problem,
        steering=seen.controls,
    )
    return controller, seen.coverage


def _unread(controller: ControllerReport, coverage: Coverage | None, unread_since: datetime | None) -> str:
    if unread_since is not None:
        return (
            f"the kernel logs have not been read since {stamp(unread_since)}: "
            "until they are, nodes that nothing stands against are unknown"
        )
    if not controller.readable:
        return "without the Lease nobody can say which kernel logs arrive: every node counts as not measured"
    if coverage is None:
        return "no controller has said yet which kernel logs arrive, so every node counts as not measured"
    return ""
