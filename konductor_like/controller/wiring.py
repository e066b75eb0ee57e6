"""Build the controller's parts from the settings, for a real run or for a dry run (rule 26)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from konductor_like.build import this_program
from konductor_like.cluster.api.client import KUBE_TIMEOUT_SECONDS, KubeClient, ReadOnlyKubeClient, node_path
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
from konductor_like.controller.leaderships import LeadershipFactory
from konductor_like.controller.loop.active_rules import ActiveRules, RulesInForce
from konductor_like.controller.loop.leader import Controller
from konductor_like.controller.loop.operator_controls import TIMEOUT_SECONDS, OperatorControls
from konductor_like.controller.ports import (
    DryRunEvents,
    DryRunNodes,
    EventSink,
    NoOnlooker,
    Onlooker,
    WatchedNodes,
    Writer,
    dry_run_fleet_event,
)
from konductor_like.controller.reporting.attempts import AttemptLog, note_rights
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.controller.side.announcer import Announcer
from konductor_like.controller.side.job_events import JobOwners
from konductor_like.controller.side.node_condition import WriteCondition
from konductor_like.controller.side.notifier import Notifications
from konductor_like.controller.side.pod_jobs import PodJobs
from konductor_like.controller.side.validations import ValidationPorts
from konductor_like.controller.side.work import SideThread, running
from konductor_like.loki.query.client import LokiClient, retrying
from konductor_like.model import EventReason, NodeState
from konductor_like.notify.webhook import webhooks
from konductor_like.policy.recovery.guards import BY_FILE
from konductor_like.prometheus.client import PrometheusClient
from konductor_like.settings import Settings

LOKI_ATTEMPTS = 3
"""Attempts of one request to Loki."""
LOKI_PATIENCE_SECONDS = 6.0
"""Seconds in which the attempts must begin. Then the poll fails, and its poller logs why and backs off."""
RENEWALS = 3.0
"""Renewals of the Lease in its duration."""
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
    watch: Callable[[ActiveRules], SideThread] | None = None,
) -> Iterator[Controller]:
    """Build a controller that is ready to run, and close its connections at the end.

    ``watch`` makes the thread that watches the rules file. Building sends no request. Raises KubeConfigError,
    LokiMisconfigured, RulesError or ValueError if a setting or file cannot be used.
    """
    active_rules = ActiveRules(settings.rules_file, metrics)
    rules = active_rules.in_force
    metrics.recovery_by_file.set_function(settings.has_recovery_file)
    if settings.has_recovery_file():
        logs.warning(f"KONDUCTOR_RECOVERY_FILE={settings.recovery_file}: {BY_FILE}")
    patience = retrying(stop.wait, attempts=LOKI_ATTEMPTS, total_seconds=LOKI_PATIENCE_SECONDS)
    kind = ReadOnlyKubeClient if options.dry_run else KubeClient
    with ExitStack() as exits:
        loki = exits.enter_context(closing(LokiClient(settings, patience)))
        client = kind.connect(options.kubeconfig, options.context, KUBE_TIMEOUT_SECONDS)
        exits.enter_context(closing(client))
        prometheus = None
        if settings.alerts_endpoint:
            prometheus = exits.enter_context(closing(PrometheusClient(settings)))
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
            cluster = _real_cluster_ports(settings, client, namespace, store, decode, rules, stop, metrics)
        else:
            cluster = _ClusterPorts(DryRunNodes(store), DryRunWriter(), DryRunEvents(), dry_run_fleet_event)
        events, threads = cluster.events, [*cluster.threads]
        if watch is not None:
            threads.append(watch(active_rules))
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
            rules=rules,
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
                interval_seconds=settings.lease_duration_seconds / 2,  # without a renewal, which reads it too
                renewed=cluster.lease.renewal_since if cluster.lease else lambda _: None,
            ),
            jobs=jobs,
            write_condition=cluster.write_condition,
            validations=cluster.validations,
            prometheus=prometheus,
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

    nodes: WatchedNodes
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
    rules: RulesInForce,
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
        renew_deadline_seconds=settings.lease_duration_seconds * 2 / 3,
        renew_interval_seconds=settings.lease_duration_seconds / RENEWALS,
        notes=lambda: _notes(settings, identity, rules.digest),
    )
    writer = NodeWriter(
        client,
        decode,
        lease,
        timeout_seconds=KUBE_TIMEOUT_SECONDS,
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
    notifications = Notifications(announcer, announcer.fleet, webhooks(settings), metrics)
    return _ClusterPorts(
        store,
        writer,
        notifications,
        notifications.fleet,
        lease,
        prepare=lambda: ready_to_write(client, namespace, settings.lease_name),
        finish_writes=lambda: writer.finish(KUBE_TIMEOUT_SECONDS),
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


def _notes(settings: Settings, identity: str, rules_digest: str) -> dict[str, str]:
    """Return the Lease annotations that the command line reads: the settings (rule 32) and the build."""
    program = this_program()
    ours = published(settings, by=identity, version=program.version, rules_digest=rules_digest)
    return {
        SETTINGS_ANNOTATION: encode_settings(ours),
        BUILD_ANNOTATION: encode_program(program, by=identity),
    }
