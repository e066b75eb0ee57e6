"""Build a leadership: readers, reconciler and what sees the fleet, from where an earlier leader stopped."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from konductor_like.cluster.lease.election import own_identity
from konductor_like.controller import logs
from konductor_like.controller.fleet.coverage_report import CoverageReport
from konductor_like.controller.fleet.fleet_monitor import FleetMonitor
from konductor_like.controller.loop.active_rules import RulesInForce
from konductor_like.controller.loop.kept_records import KeptRecords
from konductor_like.controller.loop.leadership import SOURCE_BY_READER, Leadership
from konductor_like.controller.loop.observation import Observer
from konductor_like.controller.loop.operator_controls import OperatorControls
from konductor_like.controller.loop.reconciler import Reconciler
from konductor_like.controller.loop.writes import Writes
from konductor_like.controller.ports import (
    EventSink,
    FleetEvent,
    KnownNodes,
    Nodes,
    WatchedNodes,
    Writer,
)
from konductor_like.controller.reading.poller import Reader
from konductor_like.controller.reading.wakeups import TailWatcher
from konductor_like.controller.reporting.attempts import AttemptLog
from konductor_like.controller.reporting.metrics import Latency, Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.controller.side.alerts import Alerts, Prometheus
from konductor_like.controller.side.node_condition import NodeConditions, WriteCondition
from konductor_like.controller.side.pod_jobs import PodJobs
from konductor_like.controller.side.validations import ValidationPorts, Validations
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.errors import LokiError
from konductor_like.loki.query.logql import kernel_query, pod_query
from konductor_like.loki.query.window_query import ByteBudget
from konductor_like.loki.readers.backfill import READ_SECONDS, NodeBackfill
from konductor_like.loki.readers.heartbeat import TILE_SECONDS, HeartbeatReader
from konductor_like.loki.readers.source import SourceReader
from konductor_like.loki.readers.warmup import RETRY_SECONDS, WarmupReader, WarmupTotals
from konductor_like.model import AlertsSeen, Checkpoint, Coverage, GpuCounts, Source
from konductor_like.model.text import span_text
from konductor_like.model.time import SECOND_NS
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings

FIRST_START_HISTORY_SECONDS = 86_400.0
"""Age at most of a kernel fault that a first start still records as suspect."""
UNKNOWN_NODE_SECONDS = 600.0
"""Seconds for which a fault that names no existing Node is kept, until the Node registers."""
CURSOR_AHEAD_SECONDS = 90.0
"""Seconds that a saved cursor may lie in the future: the clock of the process that saved it may be fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipFactory:
    """Builds leaderships, all from the same parts."""

    settings: Settings
    metrics: Metrics
    loki: LokiClient
    rules: RulesInForce
    nodes: WatchedNodes
    writer: Writer
    events: EventSink
    report: Report
    fleet_event: FleetEvent
    operator_controls: OperatorControls | None = None
    jobs: PodJobs | None = None
    write_condition: WriteCondition | None = None
    validations: ValidationPorts | None = None
    prometheus: Prometheus | None = None
    attempts: AttemptLog = field(default_factory=AttemptLog)
    identity: str = field(default_factory=own_identity)
    """The controller's on the Lease."""

    def make(
        self, checkpoint: Checkpoint | None, coverage: Coverage | None, stop: threading.Event
    ) -> Leadership:
        """Build a leadership that reads from the checkpoint on or, on a first start, as the settings say."""
        settings, started_ns = self.settings, self.loki.now_ns()
        start = starting_checkpoint(checkpoint, settings, started_ns)
        queries = self._queries()
        budget = ByteBudget(settings.loki_budget_mib_per_minute * 2**20)
        sources = self._readers(queries, start, started_ns, budget)
        heartbeats = HeartbeatReader(self.loki, settings, started_ns, budget)
        backfill = NodeBackfill(self.loki, queries["kernel"], settings, budget, gave_up=self._gave_up)
        readers: dict[str, Reader] = {**sources, "heartbeat": heartbeats, "backfill": backfill}
        if checkpoint is not None:  # on a first start the sources themselves read all the past that counts
            readers["warmup"] = self._warmup_reader(queries, budget, start, started_ns)

        def revisit(gaps: tuple[tuple[int, int], ...]) -> None:
            for reader in sources.values():
                reader.revisit(gaps)

        fleet = FleetMonitor(
            self.metrics,
            CoverageReport(self.metrics, self.events, self.fleet_event),
            before=coverage,
            released=start.released,
            stale_seconds=settings.heartbeat_stale_seconds,
            gap_max_age_seconds=settings.gap_max_age_seconds,
            now_ns=self.loki.now_ns,
            catalog=self.rules.detector.catalog,
            reread=heartbeats.reread,
            rereading=heartbeats.rereading,
            read_node=backfill.request,
            backfilling=backfill.waiting,
            revisit=revisit,
        )
        ports, kept = self.validations, KeptRecords()
        known = KnownNodes(self.nodes, kept.over)
        worker = Validations(ports, known, self.metrics) if ports else None
        alerts = self._alerts()
        reconciler = self._reconciler(start, coverage, fleet, worker, alerts, kept)
        return self._leadership(reconciler, known, readers, fleet, worker, alerts, queries["kernel"], stop)

    def _alerts(self) -> Alerts | None:
        if self.prometheus is None:
            return None
        rules = self._policy().alerts
        exporters = {name: rule.exporter for name, rule in rules.items() if rule.finding is not None}
        return Alerts(self.prometheus, exporters, self.nodes, self.metrics, self.attempts)

    def _gave_up(self, node: str, error: LokiError) -> None:
        logs.error(
            f"node {node}: the Node registered again, and its earlier kernel lines could not be read: "
            f"{logs.error_text(error)} Check the node. If it is faulty, use `konductor-like taint`.",
            node=node,
        )

    def _warmup_reader(
        self, queries: Mapping[str, str], budget: ByteBudget, start: Checkpoint, started_ns: int
    ) -> WarmupReader:
        """Build the reader of the time before the start, as far back as the rules look."""
        seconds = self._policy().window_seconds
        reader = WarmupReader(
            self.loki,
            self.settings,
            {source: queries[name] for name, source in SOURCE_BY_READER.items() if name in queries},
            MultilineDetector(self.rules.detector).detect,
            budget,
            seconds=seconds,
            since_ns=start.act_from_ns,
            now_ns=started_ns,
            finished=_log_warmup_done,
        )
        logs.info(
            f"Reading the last {span_text(seconds)} for rules with thresholds. Until this is done, a "
            "threshold may be reached late."
        )
        return reader

    def _policy(self) -> PolicyConfig:
        return self.rules.complete(self.settings.policy())

    def _reconciler(
        self,
        start: Checkpoint,
        coverage: Coverage | None,
        fleet: FleetMonitor,
        worker: Validations | None,
        alerts: Alerts | None,
        kept: KeptRecords,
    ) -> Reconciler:
        self.report.brake.begin(self.nodes.snapshot())
        if coverage is not None:
            self.report.persons.begin(coverage.at)
        observer = Observer(
            self.nodes,
            self.report,
            controls=self.operator_controls,
            jobs=self.jobs,
            fleet=fleet,
            validations=worker.seen if worker else lambda: None,
            alerts=alerts.seen if alerts else lambda: None,
            kept=kept,
            standing=self.nodes.standing,
        )
        latency = Latency(self.metrics, fleet.began_ns, self.loki.now_ns)
        writes = Writes(self.nodes, self.writer, self.events, self.report, self.metrics, latency=latency)
        return Reconciler(
            self.nodes,
            observer,
            writes,
            self.events,
            self.report,
            self.metrics,
            policy=self._policy(),
            start=start,
            unknown_node_seconds=UNKNOWN_NODE_SECONDS,
            misnamed=coverage.misnamed if coverage else None,
            detect=MultilineDetector(self.rules.detector).detect,
            gpus=GpuCounts(),
            alerts=AlertsSeen(start.act_from_ns) if alerts else None,
            latency=latency,
        )

    def _leadership(
        self,
        reconciler: Reconciler,
        nodes: Nodes,
        readers: Mapping[str, Reader],
        fleet: FleetMonitor,
        worker: Validations | None,
        alerts: Alerts | None,
        followed: str,
        stop: threading.Event,
    ) -> Leadership:
        settings, now_ns, write = self.settings, self.loki.now_ns, self.write_condition
        # The tail follows only the kernel log: a pod's line alone never taints, so it can wait for its poll.
        return Leadership(
            reconciler,
            nodes,
            readers,
            self.metrics,
            fleet,
            intervals={
                "kernel": settings.poll_interval_seconds,
                "pod": settings.pod_poll_interval_seconds,
                "heartbeat": TILE_SECONDS,
                "backfill": READ_SECONDS,
                "warmup": RETRY_SECONDS,
            },
            stale_seconds=settings.heartbeat_stale_seconds,
            now_ns=now_ns,
            clock_ahead_seconds=lambda: self.loki.clock_ahead_seconds,
            stop=stop,
            policy=self._policy,
            tail=TailWatcher(settings, followed, now_ns, self.metrics) if settings.tail else None,
            conditions=write and NodeConditions(settings.node_condition, nodes, write, self.metrics),
            validations=worker,
            alerts=alerts,
            attempts=self.attempts,
            identity=self.identity,
        )

    def _queries(self) -> dict[str, str]:
        """Return the readers' LogQL queries; none for ``pod`` if no namespace is watched."""
        pods = pod_query(self.settings, self.rules.detector.anchors(Source.POD))
        queries = {"kernel": kernel_query(self.settings, self.rules.detector.anchors(Source.KERNEL))}
        return queries if pods is None else {**queries, "pod": pods}

    def _readers(
        self, queries: Mapping[str, str], start: Checkpoint, started_ns: int, budget: ByteBudget
    ) -> dict[str, SourceReader]:
        """Build one reader per source, at the source's cursor; if that is missing, at the oldest cursor."""
        oldest_ns = min(start.read_ns.values(), default=started_ns)
        self.metrics.budget_used.set_function(lambda: budget.used)

        def keeps(text: str) -> bool:
            """Whether the pod's line has a fault. The reader need not keep any other line."""
            return self.rules.detector.find_in_pod_log(text) is not None

        return {
            name: SourceReader(
                source,
                self.loki,
                queries[name],
                self.settings,
                start.read_ns.get(source, oldest_ns),
                budget=budget,
                keeps=keeps if source is Source.POD else None,
                other_clock_ns=self.loki.other_clock_ns,
            )
            for name, source in SOURCE_BY_READER.items()
            if name in queries
        }


def _log_warmup_done(totals: WarmupTotals) -> None:
    logs.info(
        f"Older lines are read: {totals.lines} lines, {totals.faults} faults, {totals.queries} queries, "
        f"{totals.bytes_processed / 2**20:.1f} MiB processed."
    )
    if totals.incomplete:
        logs.warning(
            f"Loki returned only some of the older lines at {totals.incomplete} timestamps, because more "
            "lines share each timestamp than Loki returns."
        )


def starting_checkpoint(saved: Checkpoint | None, settings: Settings, now_ns: int) -> Checkpoint:
    """Return the checkpoint from which this leadership reads.

    A source begins at its saved cursor. A source whose cursor is missing or lies in the future begins where a
    first start would begin; lines that are read twice act only once. The controller acts on faults since
    ``act_from_ns``, which never moves forward: it stays at the time of the first start.
    """
    act_from_ns = now_ns - round(settings.first_start_act_seconds * SECOND_NS)
    history_ns = now_ns - round(FIRST_START_HISTORY_SECONDS * SECOND_NS)
    first = Checkpoint({Source.KERNEL: min(history_ns, act_from_ns), Source.POD: act_from_ns}, act_from_ns)
    if saved is None:
        return first
    latest_ns = now_ns + round(CURSOR_AHEAD_SECONDS * SECOND_NS)
    kept = {source: ns for source, ns in saved.read_ns.items() if ns <= latest_ns}
    for source in first.read_ns.keys() - kept.keys():
        logs.warning(
            f"The saved cursor of {source.value} lines is missing or in the future: the controller reads as "
            "far back as on a first start."
        )
    return Checkpoint({**first.read_ns, **kept}, min(saved.act_from_ns, act_from_ns), saved.released)
