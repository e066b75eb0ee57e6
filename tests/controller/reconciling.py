"""A reconciler over a cluster in memory, whose writes may fail in every way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from konductor_like.catalog import UserRules, load_catalog
from konductor_like.cluster.api.errors import KubeForbidden, KubeTimeout
from konductor_like.cluster.node.writer import DryRunWriter, Outcome, WriteResult
from konductor_like.controller.fleet.coverage_report import CoverageReport
from konductor_like.controller.fleet.fleet_monitor import FleetMonitor
from konductor_like.controller.loop.active_rules import RulesInForce
from konductor_like.controller.loop.observation import Observer
from konductor_like.controller.loop.operator_controls import OperatorControls
from konductor_like.controller.loop.reconciler import Reconciler
from konductor_like.controller.loop.writes import Writes
from konductor_like.controller.ports import DryRunEvents, dry_run_fleet_event
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.detection import Detector, detect
from konductor_like.model import (
    Change,
    Checkpoint,
    Controls,
    EventReason,
    Fault,
    GpuCounts,
    LogLine,
    NodeState,
    Source,
    Standing,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from tests.policy.scenes import at, ns
from tests.policy.scenes import fleet as nodes_of

XID_79 = (
    "[{stamp}] NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


class Cluster:
    """Nodes in memory, a writer whose results a test chooses, and a list of the announced Events."""

    problem: Exception | None = None

    labels_needs = True

    unsteady: frozenset[str] = frozenset()

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self.nodes = dict(nodes)
        self.moods: dict[str, list[WriteResult | Exception]] = {}
        self.written: list[Change] = []
        self.unanswered: dict[str, Change] = {}
        """By node, the last change whose result a test chose."""
        self.events: list[tuple[str, EventReason | None]] = []

    def snapshot(self) -> Mapping[str, NodeState]:
        return dict(self.nodes)

    def apply(self, state: NodeState) -> None:
        self.nodes[state.name] = state

    def standing(self, names: Iterable[str]) -> Mapping[str, Standing]:
        """Every Node stands as it is for a day, but for those in ``unsteady``."""
        return {name: Standing(86_400.0, 86_400.0) for name in names if name not in self.unsteady}

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        return [self._write(state, change) for state, change in pairs]

    def _write(self, state: NodeState, change: Change) -> WriteResult:
        moods = self.moods.get(change.node)
        if moods:
            mood = moods.pop(0)
            if isinstance(mood, Exception):
                raise mood
            self.unanswered[change.node] = change
            return replace(mood, change=change)
        self.written.append(change)
        return DryRunWriter().write(state, change)

    def announce(self, state: NodeState, change: Change) -> None:
        self.events.append((state.name, change.event))

    @property
    def tainted(self) -> set[str]:
        return {name for name, state in self.nodes.items() if state.tainted}


class Scene:
    """One reconciler over one cluster."""

    def __init__(
        self,
        size: int = 10,
        detect: Callable[[LogLine], Fault | None] = detect,
        *,
        nodes: Mapping[str, NodeState] | None = None,
        cluster: Cluster | None = None,
        start: Checkpoint | None = None,
        fleet: FleetMonitor | None = None,
        lease: Controls | None = None,
        controls: OperatorControls | None = None,
        rules: UserRules | None = None,
    ) -> None:
        """With ``rules``, the reconciler counts GPUs."""
        if lease is not None:
            read = SimpleNamespace(update=lambda _now, **_: lease, unread=False)
            controls = cast("OperatorControls", read)
        policy = PolicyConfig()
        if rules is not None:
            policy = RulesInForce(rules, Detector(rules.catalog)).complete(policy)
        self.cluster = cluster or Cluster(nodes_of(size) if nodes is None else nodes)
        self.metrics = Metrics()
        self.fleet_events: list[tuple[EventReason, str]] = []
        report = Report(self.metrics, fleet_event=lambda *told: self.fleet_events.append(told))
        self.reconciler = Reconciler(
            self.cluster,
            Observer(self.cluster, report, controls=controls, fleet=fleet, standing=self.cluster.standing),
            Writes(self.cluster, self.cluster, self.cluster, report, self.metrics),
            self.cluster,
            report,
            self.metrics,
            policy=policy,
            start=start or Checkpoint({Source.KERNEL: ns(0), Source.POD: ns(0)}, act_from_ns=ns(-900)),
            unknown_node_seconds=600,
            detect=detect,
            gpus=None if rules is None else GpuCounts(),
        )

    def run(self, *lines: LogLine, seconds: float, read: float | None = None) -> None:
        reached = {Source.KERNEL: ns(seconds if read is None else read)}
        self.reconciler.run(lines, reached, at(seconds))

    @property
    def kernel_checkpoint(self) -> int:
        return self.reconciler.checkpoint().read_ns[Source.KERNEL]

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"konductor_like_{name}", labels) or 0.0


def monitor(metrics: Metrics, now_ns: Callable[[], int] = lambda: ns(0), **more: Any) -> FleetMonitor:
    """Return a fleet monitor that has nothing read again."""
    arguments = {
        "before": None,
        "stale_seconds": 300,
        "gap_max_age_seconds": 86_400,
        "catalog": load_catalog(),
        "reread": lambda _: None,
        "rereading": frozenset,
        "read_node": lambda _node, _since_ns: True,
        "backfilling": frozenset,
        "revisit": lambda _: None,
    }
    report = CoverageReport(metrics, DryRunEvents(), dry_run_fleet_event)
    return FleetMonitor(metrics, report, now_ns=now_ns, **(arguments | more))


def xid(node: str = "gpu-1", *, seconds: float = 1, stamp: float = 100.5) -> LogLine:
    return LogLine(Source.KERNEL, ns(seconds), XID_79.format(stamp=f"{stamp:.6f}"), {}, node)


ANY = Change("", Verb.RECORD, None, None)
SLOW = WriteResult(ANY, Outcome.UNDER_WAY, outcome_unknown=True)
FORBIDDEN = WriteResult(ANY, Outcome.FAILED, error=KubeForbidden("cannot patch nodes/gpu-1"))
UNANSWERED = WriteResult(
    ANY, Outcome.FAILED, error=KubeTimeout("no answer", outcome_unknown=True), outcome_unknown=True
)
GONE = WriteResult(ANY, Outcome.GONE)
