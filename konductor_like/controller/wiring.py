"""Build the controller's parts from the settings, for a real run or for a dry run (rule 26)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from konductor_like.build import this_program
from konductor_like.cluster.api.client import KubeClient, ReadOnlyKubeClient, node_path
from konductor_like.cluster.api.errors import KubeNotFound
from konductor_like.cluster.events import JobEvents, LeaseEvents, NodeEvents
from konductor_like.cluster.lease.election import LeaderLease, own_identity, read_controls
from konductor_like.cluster.node.decoder import NodeDecoder, node_decoder
from konductor_like.cluster.node.store import NodeStore, ResourceSlices
from konductor_like.cluster.node.writer import DryRunWriter, NodeWriter
from konductor_like.cluster.pods import gpu_users, jobs_on
from konductor_like.cluster.preflight import all_permissions, ready_to_write
from konductor_like.cluster.published import (
    BUILD_ANNOTATION,
    SETTINGS_ANNOTATION,
    encode_program,
    encode_settings,
    published,
)
from konductor_like.cluster.validation_jobs import ValidationClient
from konductor_like.controller import logs
from konductor_like.controller.fleet.coverage_report import CoverageReport
from konductor_like.controller.fleet.fleet_monitor import FleetMonitor
from konductor_like.controller.loop.active_rules import ActiveRules, RulesInForce
from konductor_like.controller.loop.active_switches import ActiveSwitches
from konductor_like.controller.loop.leader import Controller
from konductor_like.controller.loop.leadership import SOURCE_BY_READER, Leadership
from konductor_like.controller.loop.observation import Observer
from konductor_like.controller.loop.operator_controls import TIMEOUT_SECONDS, OperatorControls
from konductor_like.controller.loop.reconciler import Reconciler
from konductor_like.controller.loop.writes import Writes
from konductor_like.controller.ports import (
    DryRunEvents,
    DryRunNodes,
    EventSink,
    FleetEvent,
    Nodes,
    NoOnlooker,
    Onlooker,
    Writer,
    dry_run_fleet_event,
)
from konductor_like.controller.reading.poller import Reader
from konductor_like.controller.reading.wakeups import TailWatcher
from konductor_like.controller.reporting.attempts import AttemptLog, note_rights
from konductor_like.controller.reporting.metrics import Latency, Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.controller.side.announcer import Announcer
from konductor_like.controller.side.job_events import JobOwners
from konductor_like.controller.side.node_condition import NodeConditions, WriteCondition
from konductor_like.controller.side.notifier import Notifications
from konductor_like.controller.side.pod_jobs import PodJobs
from konductor_like.controller.side.validations import ValidationPorts, Validations
from konductor_like.controller.side.work import SideThread, running
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.loki.query.client import LokiClient, retrying
from konductor_like.loki.query.errors import LokiError
from konductor_like.loki.query.logql import kernel_query, pod_query
from konductor_like.loki.query.window_query import ByteBudget
from konductor_like.loki.readers.backfill import READ_SECONDS, NodeBackfill
from konductor_like.loki.readers.heartbeat import TILE_SECONDS, HeartbeatReader
from konductor_like.loki.readers.source import SourceReader
from konductor_like.loki.readers.warmup import RECHECK_SECONDS, WarmupReader, WarmupScope, WarmupTotals
from konductor_like.model import Checkpoint, Coverage, EventReason, GpuCounts, NodeState, Source
from konductor_like.model.text import span_text
from konductor_like.model.time import SECOND_NS
from konductor_like.notify.webhook import webhooks
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings

LOKI_ATTEMPTS = 3
"""Attempts of one request to Loki."""
LOKI_PATIENCE_SECONDS = 6.0
"""Seconds in which the attempts must begin. Then the poll fails, and its poller logs why and backs off."""
CURSOR_AHEAD_SECONDS = 90.0
"""Seconds that a saved cursor may lie in the future: the clock of the process that saved it may be fast."""
READ_LEASE_RENEWALS = 1.5
"""Renew intervals without a renewal after which the controller reads the Lease for the operators' controls.

With an interval of 10 seconds, 15 seconds. Before a taint the controller reads the Lease in any case.
"""
WRITE_PATIENCE_SECONDS = 5.0
"""Seconds in which a reconcile may try one node's write again; after that a later reconcile tries."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line, which no setting has."""

    once: bool = False
    dry_run: bool = False
    kubeconfig: str | None = None
    context: str | None = None


@contextmanager
def open_controller(
    settings: Settings,
    options: Options,
    metrics: Metrics,
    stop: threading.Event,
    reload: threading.Event | None = None,
) -> Iterator[Controller]:
    """Build a controller that is ready to run, and close its connections at the end.

    Setting ``reload`` makes the controller read the rules file again. Building sends no request. Raises
    KubeConfigError, LokiMisconfigured, RulesError or ValueError if a setting or file cannot be used.
    """
    active_rules = ActiveRules(settings.rules_file, metrics, reload)
    switches = ActiveSwitches(settings)
    patience = retrying(stop.wait, attempts=LOKI_ATTEMPTS, total_seconds=LOKI_PATIENCE_SECONDS)
    kind = ReadOnlyKubeClient if options.dry_run else KubeClient
    with ExitStack() as exits:
        loki = exits.enter_context(closing(LokiClient(settings, patience)))
        client = kind.connect(options.kubeconfig, options.context, settings.kube_timeout_seconds)
        exits.enter_context(closing(client))
        slices, attempts = ResourceSlices(client), AttemptLog(silent_seconds=loki.silent_seconds)
        decode = node_decoder(settings, slices.nodes)
        namespace = settings.lease_namespace(client.namespace if client.in_cluster else None)
        needed = all_permissions(namespace, settings.lease_name, settings)
        needed = needed if isinstance(client, KubeClient) else ()  # a dry run has no Lease to show them on
        store = NodeStore(
            client, decode, slices=slices, between=lambda: note_rights(attempts, client, needed)
        )
        settings = settings.placed(namespace)  # no pattern selects our own pod
        if isinstance(client, KubeClient):
            cluster = _real_cluster_ports(
                settings, client, namespace, store, decode, active_rules, switches, stop, metrics
            )
        else:
            cluster = _ClusterPorts(DryRunNodes(store), DryRunWriter(), DryRunEvents(), dry_run_fleet_event)
        events, threads = cluster.events, [*cluster.threads]
        jobs = None
        if settings.ask_for_pods:
            jobs = PodJobs(lambda node: jobs_on(client, node, datetime.now(UTC)), metrics)
            threads.append(jobs.queue)
        if jobs is not None and settings.job_events and isinstance(client, KubeClient):
            send = JobEvents(client, own_identity(), sleep=stop.wait).send
            events = owners = JobOwners(events, jobs.of, send, metrics)
            threads.append(owners.queue)
        metrics.nodes.most = settings.node_metrics_most
        factory = LeadershipFactory(
            settings=settings,
            metrics=metrics,
            loki=loki,
            active_rules=active_rules,
            switches=switches,
            nodes=cluster.nodes,
            writer=cluster.writer,
            events=events,
            report=Report(
                metrics,
                dry_run=options.dry_run,
                fleet_event=cluster.fleet_event,
                onlooker=cluster.onlooker,
            ),
            fleet_event=cluster.fleet_event,
            operator_controls=OperatorControls(
                lambda: read_controls(client, namespace, settings.lease_name, TIMEOUT_SECONDS),
                cluster.fleet_event,
                metrics,
                interval_seconds=READ_LEASE_RENEWALS * settings.lease_renew_interval_seconds,
                renewed=cluster.lease.renewal_since if cluster.lease else lambda _: None,
            ),
            jobs=jobs,
            write_condition=cluster.write_condition,
            validations=cluster.validations,
            attempts=attempts,
        )
        controller = Controller(
            store,
            cluster.lease,
            factory.make,
            cluster.prepare,
            metrics,
            once=options.once,
            finish_writes=cluster.finish_writes,
        )
        store.on_change = controller.nodes_changed
        if jobs is not None:
            jobs.answered = controller.nodes_changed
        # Only now does a thread start: all parts know each other.
        exits.enter_context(running(*threads))
        yield controller


class _FleetEvent(Protocol):
    """Sends an Event about the fleet. It raises nothing."""

    def __call__(self, reason: EventReason, message: str, act: str = "", /) -> None:
        """Queue the Event and return at once. ``act`` names the act of a person that the Event reports."""


@dataclass(frozen=True, slots=True)
class _ClusterPorts:
    """Everything that writes to the cluster. A dry run has stand-ins that do not, and no Lease (rule 26)."""

    nodes: Nodes
    writer: Writer
    events: EventSink
    fleet_event: _FleetEvent
    lease: LeaderLease | None = None
    prepare: Callable[[], list[str]] = list
    finish_writes: Callable[[], object] = lambda: None
    write_condition: WriteCondition | None = None
    validations: ValidationPorts | None = None
    onlooker: Onlooker = field(default_factory=NoOnlooker)
    threads: Sequence[SideThread] = ()


def _real_cluster_ports(
    settings: Settings,
    client: KubeClient,
    namespace: str,
    store: NodeStore,
    decode: NodeDecoder,
    active_rules: ActiveRules,
    switches: ActiveSwitches,
    stop: threading.Event,
    metrics: Metrics,
) -> _ClusterPorts:
    identity = own_identity()
    lease = LeaderLease(
        client,
        namespace,
        settings.lease_name,
        identity,
        duration_seconds=settings.lease_duration_seconds,
        renew_deadline_seconds=settings.lease_renew_deadline_seconds,
        renew_interval_seconds=settings.lease_renew_interval_seconds,
        notes=lambda: _notes(settings, identity, active_rules, switches),
    )
    writer = NodeWriter(
        client,
        decode,
        lease,
        timeout_seconds=settings.kube_timeout_seconds,
        write_concurrency=settings.write_concurrency,
        patience_seconds=WRITE_PATIENCE_SECONDS,
        on_state=store.apply,
        on_label_refused=logs.warning,
        sleep=stop.wait,
    )
    announcer = Announcer(
        NodeEvents(client, identity, sleep=stop.wait),
        LeaseEvents(client, identity, sleep=stop.wait),
        lambda: lease.reference,
    )
    notifications = Notifications(announcer, announcer.fleet, webhooks(settings), metrics, store.snapshot)
    return _ClusterPorts(
        store,
        writer,
        notifications,
        notifications.fleet,
        lease,
        prepare=lambda: ready_to_write(client, namespace, settings.lease_name),
        finish_writes=lambda: writer.finish(settings.kube_timeout_seconds),
        write_condition=writer.write_condition,
        validations=_validation_ports(settings, client, namespace, decode, lease),
        onlooker=notifications,
        threads=(*announcer.threads, *notifications.threads),
    )


def _validation_ports(
    settings: Settings, client: KubeClient, namespace: str, decode: NodeDecoder, lease: LeaderLease
) -> ValidationPorts | None:
    """Return the requests about validations; None if there are no validations, so that none is sent."""
    if not settings.validation_image:
        return None

    def node(name: str) -> NodeState | None:
        try:
            return decode(client.get(node_path(name)))
        except KubeNotFound:
            return None

    return ValidationPorts(
        jobs=ValidationClient(client, settings, namespace),
        node=node,
        users=lambda name: gpu_users(client, name),
        deadline=lease,
        command=bool(settings.validation_command),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipFactory:
    """Builds leaderships, all from the same parts."""

    settings: Settings
    metrics: Metrics
    loki: LokiClient
    active_rules: ActiveRules
    switches: ActiveSwitches
    nodes: Nodes
    writer: Writer
    events: EventSink
    report: Report
    fleet_event: FleetEvent
    operator_controls: OperatorControls | None = None
    jobs: PodJobs | None = None
    write_condition: WriteCondition | None = None
    validations: ValidationPorts | None = None
    attempts: AttemptLog = field(default_factory=AttemptLog)
    identity: str = field(default_factory=own_identity)
    """The controller's on the Lease."""

    def make(
        self, checkpoint: Checkpoint | None, coverage: Coverage | None, stop: threading.Event
    ) -> Leadership:
        """Build a leadership that reads from the checkpoint on or, on a first start, as the settings say."""
        settings, started_ns = self.settings, self.loki.now_ns()
        start = starting_checkpoint(checkpoint, settings, started_ns)
        self.active_rules.reload()  # while standing by, the controller reads neither file
        self.switches.reload()
        queries = self._queries(self.active_rules.in_force)
        budget = ByteBudget(settings.loki_budget_mib_per_minute * 2**20)
        sources = self._readers(queries, start, started_ns, budget)
        heartbeats = HeartbeatReader(self.loki, settings, started_ns, budget)
        backfill = NodeBackfill(self.loki, queries["kernel"], settings, budget, gave_up=self._gave_up)
        self.metrics.backfill_nodes.set_function(lambda: len(backfill.waiting()))
        readers: dict[str, Reader] = {**sources, "heartbeat": heartbeats, "backfill": backfill}
        if checkpoint is not None:  # on a first start the sources themselves read all the past that counts
            readers["warmup"] = self._warmup_reader(budget, start, started_ns)

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
            catalog=lambda: self.active_rules.in_force.detector.catalog,
            reread=heartbeats.reread,
            rereading=heartbeats.rereading,
            read_node=backfill.request,
            backfilling=backfill.waiting,
            revisit=revisit,
        )
        ports = self.validations
        worker = Validations(ports, self.nodes, self.metrics) if ports else None
        reconciler = self._reconciler(start, coverage, fleet, worker)
        return self._leadership(reconciler, readers, fleet, worker, stop)

    def _gave_up(self, node: str, error: LokiError) -> None:
        self.metrics.backfills_given_up.inc()
        logs.error(
            f"node {node}: the Node registered again, and its earlier kernel lines could not be read: "
            f"{logs.error_text(error)} Check the node. If it is faulty, use `konductor-like taint`.",
            node=node,
        )

    def _warmup_reader(self, budget: ByteBudget, start: Checkpoint, started_ns: int) -> WarmupReader:
        """Build the reader of the time before the start, as far back as the rules in force look."""

        def scope() -> WarmupScope:
            rules = self.active_rules.in_force  # once, because another thread may replace it
            queries, seconds = self._queries(rules), rules.complete(self.settings.policy()).window_seconds
            return WarmupScope(rules.digest, queries["kernel"], queries.get("pod"), seconds)

        reader = WarmupReader(
            self.loki,
            self.settings,
            scope,
            MultilineDetector(lambda: self.active_rules.in_force.detector).detect,
            budget,
            since_ns=start.act_from_ns,
            now_ns=started_ns,
            finished=_log_warmup_done,
        )
        self.metrics.history_unread.set_function(lambda: reader.unread_seconds)
        logs.info(
            f"Reading the last {span_text(scope().seconds)} for rules with thresholds. Until this is done, a "
            "threshold may be reached late."
        )
        return reader

    def _policy(self) -> PolicyConfig:
        return self.switches.in_force.complete(self.active_rules.in_force.complete(self.settings.policy()))

    def _reconciler(
        self,
        start: Checkpoint,
        coverage: Coverage | None,
        fleet: FleetMonitor,
        worker: Validations | None,
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
            unknown_node_seconds=self.settings.unknown_node_seconds,
            misnamed=coverage.misnamed if coverage else None,
            detect=MultilineDetector(lambda: self.active_rules.in_force.detector).detect,
            gpus=GpuCounts(),
            latency=latency,
        )

    def _leadership(
        self,
        reconciler: Reconciler,
        readers: Mapping[str, Reader],
        fleet: FleetMonitor,
        worker: Validations | None,
        stop: threading.Event,
    ) -> Leadership:
        settings, now_ns, write = self.settings, self.loki.now_ns, self.write_condition
        # The tail follows only the kernel log: a pod's line alone never taints, so it can wait for its poll.
        followed = self._queries(self.active_rules.in_force)["kernel"]
        return Leadership(
            reconciler,
            self.nodes,
            readers,
            self.metrics,
            fleet,
            intervals={
                "kernel": settings.poll_interval_seconds,
                "pod": settings.pod_poll_interval_seconds,
                "heartbeat": TILE_SECONDS,
                "backfill": READ_SECONDS,
                "warmup": RECHECK_SECONDS,
            },
            stale_seconds=settings.heartbeat_stale_seconds,
            now_ns=now_ns,
            clock_ahead_seconds=lambda: self.loki.clock_ahead_seconds,
            stop=stop,
            new_queries=lambda: self._reloaded(reconciler),
            tail=TailWatcher(settings, followed, now_ns, self.metrics) if settings.tail else None,
            conditions=write and NodeConditions(settings.node_condition, self.nodes, write, self.metrics),
            validations=worker,
            attempts=self.attempts,
            identity=self.identity,
        )

    def _queries(self, rules: RulesInForce) -> dict[str, str]:
        """Return the readers' LogQL queries by these rules; none for ``pod`` if no namespace is watched."""
        pods = pod_query(self.settings, rules.detector.anchors(Source.POD))
        kernel = kernel_query(self.settings, rules.detector.anchors(Source.KERNEL))
        queries = {"kernel": kernel, "backfill": kernel}
        return queries if pods is None else {**queries, "pod": pods}

    def _reloaded(self, reconciler: Reconciler) -> dict[str, str]:
        """Read the files of rules and switches again; return the new queries if the rules changed."""
        if self.switches.reload():
            reconciler.policy = self._policy()
        return self._new_queries(reconciler) if self.active_rules.reload() else {}

    def _new_queries(self, reconciler: Reconciler) -> dict[str, str]:
        """Put the new rules into the reconciler and return the queries that follow from them."""
        reconciler.policy = self._policy()
        return self._queries(self.active_rules.in_force)

    def _readers(
        self, queries: Mapping[str, str], start: Checkpoint, started_ns: int, budget: ByteBudget
    ) -> dict[str, SourceReader]:
        """Build one reader per source, at the source's cursor; if that is missing, at the oldest cursor."""
        oldest_ns = min(start.read_ns.values(), default=started_ns)
        self.metrics.budget_used.set_function(lambda: budget.used)

        def keeps(text: str) -> bool:
            """Whether the pod's line has a fault. The reader need not keep any other line."""
            return self.active_rules.in_force.detector.find_in_pod_log(text) is not None

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


def _notes(
    settings: Settings, identity: str, active_rules: ActiveRules, switches: ActiveSwitches
) -> dict[str, str]:
    """Return the Lease annotations that the command line reads: the settings (rule 32) and the build."""
    program = this_program()
    ours = published(
        settings, by=identity, version=program.version, rules_digest=active_rules.in_force.digest
    )
    ours = replace(ours, policy=switches.in_force.complete(ours.policy))
    return {
        SETTINGS_ANNOTATION: encode_settings(ours),
        BUILD_ANNOTATION: encode_program(program, by=identity),
    }


def starting_checkpoint(saved: Checkpoint | None, settings: Settings, now_ns: int) -> Checkpoint:
    """Return the checkpoint from which this leadership reads.

    A source begins at its saved cursor. A source whose cursor is missing or lies in the future begins where a
    first start would begin; lines that are read twice act only once. The controller acts on faults since
    ``act_from_ns``, which never moves forward: it stays at the time of the first start.
    """
    act_from_ns = now_ns - round(settings.first_start_act_seconds * SECOND_NS)
    history_ns = now_ns - round(settings.first_start_history_seconds * SECOND_NS)
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
