"""Building the parts from the settings: the real ones, or the ones of a dry run (rule 26)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from konductor_like import __version__
from konductor_like.cluster.client import KubeClient, ReadOnlyKubeClient
from konductor_like.cluster.events import LeaseEvents, NodeEvents
from konductor_like.cluster.lease import LeaderLease, own_identity, read_controls
from konductor_like.cluster.lease_annotations import LeaseControls
from konductor_like.cluster.node_decoder import node_decoder
from konductor_like.cluster.node_store import NodeStore, ResourceSlices
from konductor_like.cluster.node_writer import DryRunWriter, NodeWriter
from konductor_like.cluster.pods import jobs_on
from konductor_like.cluster.preflight import ready_to_write
from konductor_like.cluster.published import SETTINGS_ANNOTATION, encode_settings, published
from konductor_like.controller import logs
from konductor_like.controller.active_rules import ActiveRules, RulesInForce
from konductor_like.controller.announcer import Announcer
from konductor_like.controller.coverage_report import CoverageReport, FleetEvent
from konductor_like.controller.dry_run import DryRunEvents, DryRunNodes, dry_run_fleet_event
from konductor_like.controller.fleet_monitor import FleetMonitor
from konductor_like.controller.latency import Latency
from konductor_like.controller.leader import Controller
from konductor_like.controller.leadership import SOURCES, Leadership
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.operator_controls import TIMEOUT_SECONDS, OperatorControls
from konductor_like.controller.pod_jobs import PodJobs
from konductor_like.controller.poller import Reader
from konductor_like.controller.ports import EventSink, Nodes, Writer
from konductor_like.controller.reconciler import Reconciler
from konductor_like.controller.report import Report
from konductor_like.controller.wakeups import TailWatcher
from konductor_like.controller.warmup import warmup_reader
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.loki.byte_budget import ByteBudget
from konductor_like.loki.client import LokiClient, retrying
from konductor_like.loki.heartbeat_reader import TILE_SECONDS, HeartbeatReader
from konductor_like.loki.logql import kernel_query, pod_query
from konductor_like.loki.node_backfill import READ_SECONDS, NodeBackfill
from konductor_like.loki.reader import SourceReader
from konductor_like.loki.warmup_reader import RECHECK_SECONDS
from konductor_like.model import Checkpoint, Coverage, EventReason, Source
from konductor_like.model.time import SECOND_NS
from konductor_like.settings import Settings

LOKI_ATTEMPTS = 3
LOKI_PATIENCE_SECONDS = 6.0
"""A poll asks again this long by itself; then the loop says what is wrong and backs off."""
CURSOR_AHEAD_SECONDS = 90.0
"""So far the clock of the controller that saved a cursor may have been ahead of ours."""
LOOK_RENEWALS = 1.5
"""After so many renewals' time without one the Lease is read for what people wrote; a taint reads at once."""
WRITE_PATIENCE_SECONDS = 5.0
"""One node's write holds up a reconcile no longer than this; the next ones try again."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says beside the settings."""

    once: bool = False
    dry_run: bool = False
    kubeconfig: str | None = None
    context: str | None = None


@contextmanager
def wired(
    settings: Settings,
    options: Options,
    metrics: Metrics,
    stop: threading.Event,
    reload: threading.Event | None = None,
) -> Iterator[Controller]:
    """A controller ready to run; its connections are closed at the end. ``reload`` asks for the rules anew.

    Sends nothing yet. Raises KubeConfigError, LokiMisconfigured, RulesError or ValueError for what cannot be
    used.
    """
    rulebook = ActiveRules(settings.rules_file, metrics, reload)
    wire = _dry_run if options.dry_run else _earnest
    loki = LokiClient(
        settings, retrying(stop.wait, attempts=LOKI_ATTEMPTS, total_seconds=LOKI_PATIENCE_SECONDS)
    )
    with closing(loki), wire(settings, options, metrics, loki, rulebook, stop) as controller:
        yield controller


@contextmanager
def _earnest(
    settings: Settings,
    options: Options,
    metrics: Metrics,
    loki: LokiClient,
    rulebook: ActiveRules,
    stop: threading.Event,
) -> Iterator[Controller]:
    client = KubeClient.connect(options.kubeconfig, options.context, settings.kube_timeout_seconds)
    slices = ResourceSlices(client)
    decode = node_decoder(settings, slices.nodes)
    namespace = settings.lease_namespace(client.namespace if client.in_cluster else None)
    identity = own_identity()
    with ExitStack() as exits:
        exits.enter_context(closing(client))
        announcer = exits.enter_context(closing(Announcer(NodeEvents(client, identity, sleep=stop.wait))))
        lease = LeaderLease(
            client,
            namespace,
            settings.lease_name,
            identity,
            duration_seconds=settings.lease_duration_seconds,
            renew_deadline_seconds=settings.lease_renew_deadline_seconds,
            renew_interval_seconds=settings.lease_renew_interval_seconds,
            notes=lambda: _notes(settings, identity, rulebook),
        )
        store = NodeStore(client, decode, on_change=lambda: controller.nodes_changed(), slices=slices)
        writer = NodeWriter(
            client,
            decode,
            lease,
            timeout_seconds=settings.kube_timeout_seconds,
            write_concurrency=settings.write_concurrency,
            patience_seconds=WRITE_PATIENCE_SECONDS,
            on_state=store.apply,
            sleep=stop.wait,
        )

        def prepare() -> list[str]:
            return ready_to_write(client, namespace, settings.lease_name)

        about_lease = LeaseEvents(client, lambda: lease.reference, identity)
        leaderships = _Leaderships(
            settings,
            metrics,
            loki,
            rulebook,
            store,
            writer,
            announcer,
            Report(metrics, fleet_event=about_lease.send_soon),
            about_lease.send_soon,
            _operator_controls(
                settings, client, namespace, about_lease.send_soon, metrics, lease.renewal_since
            ),
            exits.enter_context(_jobs(settings, client, metrics, lambda: controller.nodes_changed())),
        )
        controller = Controller(
            store,
            lease,
            leaderships.make,
            prepare,
            metrics,
            once=options.once,
            finish_writes=lambda: writer.finish(settings.kube_timeout_seconds),
        )
        yield controller


@contextmanager
def _dry_run(
    settings: Settings,
    options: Options,
    metrics: Metrics,
    loki: LokiClient,
    rulebook: ActiveRules,
    _stop: threading.Event,
) -> Iterator[Controller]:
    client = ReadOnlyKubeClient.connect(options.kubeconfig, options.context, settings.kube_timeout_seconds)
    with ExitStack() as exits:
        exits.enter_context(closing(client))
        slices = ResourceSlices(client)
        decode = node_decoder(settings, slices.nodes)
        store = NodeStore(client, decode, on_change=lambda: controller.nodes_changed(), slices=slices)
        namespace = settings.lease_namespace(client.namespace if client.in_cluster else None)
        nodes = DryRunNodes(store)
        report = Report(metrics, dry_run=True, fleet_event=dry_run_fleet_event)
        writer, events = DryRunWriter(), DryRunEvents()
        leaderships = _Leaderships(
            settings,
            metrics,
            loki,
            rulebook,
            nodes,
            writer,
            events,
            report,
            dry_run_fleet_event,
            _operator_controls(settings, client, namespace, dry_run_fleet_event, metrics, lambda _: None),
            exits.enter_context(_jobs(settings, client, metrics, lambda: controller.nodes_changed())),
        )
        controller = Controller(store, None, leaderships.make, list, metrics, once=options.once)
        yield controller


@dataclass(frozen=True, slots=True)
class _Leaderships:
    """What every leadership is made of."""

    settings: Settings
    metrics: Metrics
    loki: LokiClient
    rulebook: ActiveRules
    nodes: Nodes
    writer: Writer
    events: EventSink
    report: Report
    fleet_event: FleetEvent
    operator_controls: OperatorControls | None = None
    jobs: PodJobs | None = None

    def make(
        self, checkpoint: Checkpoint | None, coverage: Coverage | None, stop: threading.Event
    ) -> tuple[Reconciler, Leadership]:
        """Its parts, reading from the checkpoint or, on the first start, as the settings say."""
        settings, started_ns = self.settings, self.loki.now_ns()
        rules = settings.rules()
        start = believable(checkpoint, settings, started_ns)
        self.rulebook.reload()  # a standby does not follow the file
        joiner = MultilineDetector(lambda: self.rulebook.in_force.detector)
        heartbeats = HeartbeatReader(self.loki, settings, started_ns)
        backfill = NodeBackfill(self.loki, self._queries()["kernel"], settings)
        budget = ByteBudget(settings.loki_budget_mib_per_minute * 2**20)
        sources = self._readers(start, started_ns, budget)

        def revisit(gaps: tuple[tuple[int, int], ...]) -> None:
            for reader in sources.values():
                reader.revisit(gaps)

        watch = FleetMonitor(
            self.metrics,
            CoverageReport(self.metrics, self.events, self.fleet_event),
            before=coverage,
            released=start.released,
            stale_seconds=settings.heartbeat_stale_seconds,
            gap_max_age_seconds=settings.gap_max_age_seconds,
            now_ns=self.loki.now_ns,
            catalog=lambda: self.rulebook.in_force.detector.catalog,
            look_again=heartbeats.reread,
            read_node=backfill.request,
            revisit=revisit,
        )
        self.report.begin(self.nodes.snapshot())
        reconciler = Reconciler(
            self.nodes,
            self.writer,
            self.events,
            self.report,
            self.metrics,
            rules=lambda: self.rulebook.in_force.under(rules),
            start=start,
            unknown_node_seconds=settings.unknown_node_seconds,
            misnamed=coverage.misnamed if coverage else None,
            detect=joiner.detect,
            fleet=watch,
            latency=Latency(self.metrics, watch.began_ns, self.loki.now_ns),
            controls=None if self.operator_controls is None else self.operator_controls.update,
            jobs=self.jobs,
        )
        readers: dict[str, Reader] = {**sources, "heartbeat": heartbeats, "node": backfill}
        if checkpoint is not None:  # on a first start all that counts is read as news
            readers["history"] = warmup_reader(
                self.loki,
                settings,
                self.rulebook,
                self._queries_by,
                self.metrics,
                budget,
                since_ns=start.act_from_ns,
                now_ns=started_ns,
            )
        leadership = Leadership(
            reconciler,
            self.nodes,
            readers,
            self.metrics,
            watch,
            intervals={
                "kernel": settings.poll_interval_seconds,
                "pod": settings.pod_poll_interval_seconds,
                "heartbeat": TILE_SECONDS,
                "node": READ_SECONDS,
                "history": RECHECK_SECONDS,
            },
            stale_seconds=settings.heartbeat_stale_seconds,
            now_ns=self.loki.now_ns,
            clock_ahead_seconds=lambda: self.loki.clock_ahead_seconds,
            stop=stop,
            new_queries=lambda: self._queries() if self.rulebook.reload() else {},
            tail=self._tail(),
        )
        return reconciler, leadership

    def _queries(self) -> dict[str, str]:
        return self._queries_by(self.rulebook.in_force)

    def _queries_by(self, rules: RulesInForce) -> dict[str, str]:
        """What is asked for faults by these rules; no pod lines where no namespace is watched."""
        pods = pod_query(self.settings, rules.detector.anchors(Source.POD))
        kernel = kernel_query(self.settings, rules.detector.anchors(Source.KERNEL))
        queries = {"kernel": kernel, "node": kernel}
        return queries if pods is None else {**queries, "pod": pods}

    def _tail(self) -> TailWatcher | None:
        """What nudges the reader of the kernel log; pods never taint by themselves, so they can wait."""
        if not self.settings.tail:
            return None
        return TailWatcher(self.settings, self._queries()["kernel"], self.loki.now_ns, self.metrics)

    def _readers(self, start: Checkpoint, started_ns: int, budget: ByteBudget) -> dict[str, SourceReader]:
        """One reader per source, each at its cursor; one whose cursor is missing goes with the oldest."""
        settings = self.settings
        oldest_ns = min(start.read_ns.values(), default=started_ns)
        self.metrics.budget_used.set_function(lambda: budget.used)

        def keeps(text: str) -> bool:
            """Pods' lines are judged one by one, so what is no fault need not be kept until then."""
            return self.rulebook.in_force.detector.find_in_pod_log(text) is not None

        judged = {"pod": keeps}
        readers = {
            name: SourceReader(
                SOURCES[name],
                self.loki,
                query,
                settings,
                budget=budget,
                keeps=judged.get(name),
                other_clock_ns=self.loki.other_clock_ns,
            )
            for name, query in self._queries().items()
            if name in SOURCES
        }
        for reader in readers.values():
            reader.start_from(start.read_ns.get(reader.source, oldest_ns))
        return readers


def _notes(settings: Settings, identity: str, rulebook: ActiveRules) -> dict[str, str]:
    """What people's commands may know of our settings."""
    ours = published(settings, by=identity, version=__version__, rules_digest=rulebook.in_force.digest)
    return {SETTINGS_ANNOTATION: encode_settings(ours)}


def _operator_controls(
    settings: Settings,
    client: ReadOnlyKubeClient,
    namespace: str,
    fleet_event: Callable[[EventReason, str, str], None],
    metrics: Metrics,
    renewed: Callable[[float], tuple[float, LeaseControls] | None],
) -> OperatorControls:
    """What follows the word of people on the Lease, in a dry run too."""

    def read() -> LeaseControls | None:
        return read_controls(client, namespace, settings.lease_name, TIMEOUT_SECONDS)

    interval_seconds = LOOK_RENEWALS * settings.lease_renew_interval_seconds
    return OperatorControls(read, fleet_event, metrics, interval_seconds=interval_seconds, renewed=renewed)


@contextmanager
def _jobs(
    settings: Settings, client: ReadOnlyKubeClient, metrics: Metrics, answered: Callable[[], object]
) -> Iterator[PodJobs | None]:
    """What asks for the jobs on nodes; None where the settings say not to ask."""
    if not settings.ask_for_pods:
        yield None
        return
    with closing(
        PodJobs(lambda node: jobs_on(client, node, datetime.now(UTC)), metrics, answered=answered)
    ) as jobs:
        jobs.start()
        yield jobs


def believable(saved: Checkpoint | None, settings: Settings, now_ns: int) -> Checkpoint:
    """Where reading begins: at the saved cursors, and as on a first start where one is missing or not true.

    A cursor from the future says nothing about what was read. What is read twice acts once; what began to
    count at the first start goes on to count.
    """
    first = first_checkpoint(settings, now_ns)
    if saved is None:
        return first
    latest_ns = now_ns + round(CURSOR_AHEAD_SECONDS * SECOND_NS)
    kept = {source: ns for source, ns in saved.read_ns.items() if ns <= latest_ns}
    for source in first.read_ns.keys() - kept.keys():
        logs.warning(
            f"No usable cursor of {source.value} lines is saved: reading as far back as on a first start."
        )
    act_from_ns = min(saved.act_from_ns, first.act_from_ns)
    return Checkpoint({**first.read_ns, **kept}, act_from_ns, saved.released)


def first_checkpoint(settings: Settings, started_ns: int) -> Checkpoint:
    """Where reading begins when nothing was ever read (rule 5)."""
    act_from_ns = started_ns - round(settings.first_start_act_seconds * SECOND_NS)
    history_ns = started_ns - round(settings.first_start_history_seconds * SECOND_NS)
    return Checkpoint({Source.KERNEL: min(history_ns, act_from_ns), Source.POD: act_from_ns}, act_from_ns)
