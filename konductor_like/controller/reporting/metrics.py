"""The controller's metrics: one registry per process, with all families from the start."""

from __future__ import annotations

import math
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from konductor_like.build import this_program
from konductor_like.controller.reporting.node_metrics import NodeMetrics
from konductor_like.model import (
    BrakeState,
    Fault,
    FaultKind,
    IncidentKey,
    Needs,
    PoolBrake,
    Severity,
    SkipReason,
    Source,
    Verb,
)

disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not annotate this one

HOLDING = (SkipReason.BRAKE, SkipReason.RATE, SkipReason.COOLDOWN, SkipReason.PAUSED)
"""The reasons for which the brake holds a node back."""
POOLS_MOST = 100
"""Pools with a label of their own, by name; the sums of all others have one label."""
OTHER_POOLS = "(others)"
"""The label of all other pools. No Kubernetes label has this value."""
HIGHEST_CODE = 100_000
"""Codes from here on share one label. SXids have five digits, Xids three."""
REPLAY_SECONDS = 600.0
"""Seconds between a kernel line and its arrival in Loki above which the line is taken for a replay."""
OBSERVED_MOST = 200
"""Faults of one reconcile whose latency is measured; of a flood a sample is enough."""
UNTAINTED_MOST = 10_000
"""Faults that wait for their taint to be measured; at one more all of them are forgotten."""
NO_SUCH_NODE = "no such node"
"""The reason of ``faults_ignored_total`` for a fault that names no Node, which an alert reads."""
_SOURCES = ("kernel", "pod", "heartbeat", "backfill", "warmup")
_LAGS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_OUT_OF_SERVICE = (300, 900, 3600, 4 * 3600, 12 * 3600, 86_400, 3 * 86_400, 7 * 86_400, 30 * 86_400)
HOWS = ("reset", "taint removed", "reboot", "validated", "time", "purged", "deleted", "other")
"""How a time out of service may end."""


_Kind = TypeVar("_Kind", Counter, Gauge, Histogram)


class _Family(Generic[_Kind]):
    """Declares a family of metrics. Each object of :class:`Metrics` makes its own."""

    def __init__(self, kind: type[_Kind], name: str, text: str, *labels: str, **options: Any) -> None:
        self.make: Callable[..., _Kind] = partial(kind, f"konductor_like_{name}", text, labels, **options)

    def __get__(self, metrics: object, owner: type) -> _Kind:
        """Tell the type of the attribute. An object's own attribute hides this one."""
        raise AttributeError(f"only an object of {owner.__name__} has families")


counter = partial(_Family[Counter], Counter)
gauge = partial(_Family[Gauge], Gauge)
histogram = partial(_Family[Histogram], Histogram, buckets=_LAGS)


class Metrics:
    """Every family that ``/metrics`` shows; ``docs/reference/metrics.md`` is generated from it."""

    # The controller, and faults
    build_info = gauge("build_info", "Version and build of the controller; always 1.", "version", "build")
    leader = gauge("leader", "Leadership: 1 while this process has the Lease, else 0.")
    faults = counter(
        "faults_total",
        "Faults, by source, kind, code and severity. A replayed line does not count.",
        *("source", "kind", "code", "severity"),
    )
    ignored = counter(
        "faults_ignored_total", "Detected faults that the controller ignored, by reason.", "reason"
    )
    shadowed = counter(
        "faults_shadow_total",
        "Faults that rules in shadow mode found, by source, rule and severity. They never taint.",
        *("source", "rule", "severity"),
    )
    rules_info = gauge("rules_info", "User's rules in force, by the hash of their content; always 1.", "hash")
    rules_rejected = gauge(
        "rules_rejected", "Refusal of the user's rules file: 1 while earlier rules stay in force, else 0."
    )
    recovery_by_file = gauge(
        "recovery_by_file",
        "File of KONDUCTOR_RECOVERY_FILE: 1 while it is there, and no node returns or is validated; else 0.",
    )
    faults_waiting = gauge(
        "faults_waiting", "Faults that wait for their Node to register, or for a write to succeed."
    )

    # Reading Loki
    nodeless = counter("lines_without_node_total", "Lines without a node name, by source.", "source")
    bytes_processed = counter(
        "loki_bytes_processed_total", "Bytes that Loki processed for the controller, by source.", "source"
    )
    budget_used = gauge(
        "loki_budget_used_ratio",
        "Bytes that Loki processed in the last minute, divided by the budget (1 = all of it).",
    )
    loki_errors = counter(
        "loki_errors_total", "Failed polls of Loki, by source and error.", "source", "error"
    )
    kube_errors = counter("kube_errors_total", "Failed requests to the API server, by error.", "error")
    conditions_waiting = gauge(
        "node_conditions_waiting", "Nodes whose Node condition is still to be written or removed."
    )
    read_until = gauge(
        "read_until_timestamp_seconds",
        "Unix time up to which all lines were read and reconciled, by source.",
        "source",
    )
    unread = gauge(
        "unread_seconds",
        "Seconds by which reading a source is behind, by source. If kernel is above "
        "KONDUCTOR_HEARTBEAT_STALE_SECONDS, every node without a recorded fault is UNKNOWN. Absent while "
        "the controller does not read.",
        "source",
    )
    last_success = gauge(
        "last_success_timestamp_seconds", "Unix time of the last successful poll, by source.", "source"
    )
    tails_connected = gauge(
        "tails_connected",
        "Open connections to Loki's tail of the kernel log. At 0, only polling reads new lines.",
    )

    # Writes, and how long a taint takes
    actions = counter("actions_total", "Writes of Nodes, by verb and result.", "verb", "result")
    fault_to_taint = histogram(
        "fault_to_taint_seconds", "Seconds from the Loki timestamp of a fault's line to the taint."
    )
    kernel_to_entry = histogram(
        "kernel_to_entry_seconds",
        "Seconds from the kernel's stamp of a fault's line to its Loki timestamp. Needs a heartbeat of "
        "the boot.",
    )
    entry_to_read = histogram(
        "entry_to_read_seconds",
        "Seconds from the Loki timestamp of a fault's line until the controller read the line, by source.",
        "source",
    )
    read_to_taint = histogram("read_to_taint_seconds", "Seconds from reading a fault's line to the taint.")
    reconcile_seconds = histogram(
        "reconcile_seconds",
        "Seconds of one reconcile, including its writes.",
        buckets=Histogram.DEFAULT_BUCKETS,
    )

    # The brake
    tainted = gauge("nodes_tainted", "Nodes with the controller's taint.")
    gpu_nodes = gauge("gpu_nodes", "GPU nodes. The brake's percentage refers to them.")
    brake_bound = gauge(
        "brake_bound", "Maximum number of nodes that the controller may have tainted at a time."
    )
    brake_held = gauge("brake_held", "Nodes that the brake holds back although a fault would taint them.")
    refusals = counter(
        "refusals_total",
        "Nodes that were not tainted although a fault would taint them, by reason. Each counts once "
        "while it lasts.",
        "why",
    )
    held_by = gauge("nodes_held", "Nodes that the brake holds back, by reason.", "why")
    paused = gauge("paused", "Pause: 1 while an operator has paused tainting, else 0.")
    cooling = gauge(
        "brake_cooling",
        "Released or deleted nodes that still count as out of service, because of the brake's cool-down.",
    )
    pool_out = gauge("brake_pool_out", "Nodes that the controller has tainted, by pool.", "pool")
    pool_bound = gauge(
        "brake_pool_bound",
        "Maximum number of nodes that the controller may have tainted at a time, by pool.",
        "pool",
    )
    pace_taints = gauge("brake_rate_taints", "Taints within the rate limit's window; 0 without a rate limit.")
    pace_most = gauge(
        "brake_rate_bound",
        "Maximum number of taints within the rate limit's window; +Inf without a rate limit.",
    )

    # Getting nodes back
    marked = gauge(
        "nodes_marked_for_replacement", "Nodes marked for replacement because they failed too often."
    )
    gpus = gauge(
        "gpus", "GPUs of all nodes, the missing ones included. GPUs that are split by MIG do not count."
    )
    gpus_out = gauge(
        "gpus_out_of_service",
        "GPUs of the nodes with the controller's taint. GPUs that are split by MIG do not count.",
    )
    gpus_missing = gauge(
        "gpus_missing", "GPUs that are not allocatable, although their machines had them before."
    )
    outages = counter("outages_total", "Times out of service that began with a taint by the controller.")
    out_of_service = histogram(
        "out_of_service_seconds",
        "Time that a node was out of service, by how it ended. Ends that no controller saw do not count.",
        "how",
        buckets=_OUT_OF_SERVICE,
    )
    returns = counter("returns_total", "Nodes that the controller returned to service by itself.")
    relapses = counter(
        "relapses_total", "Nodes that failed again on probation, after a return by the controller."
    )
    on_probation = gauge("nodes_on_probation", "Nodes on probation after a return by the controller.")
    returns_stopped = gauge(
        "returns_stopped", "Stop of automatic returns after too many relapses: 1 while it lasts, else 0."
    )
    kept_out = gauge(
        "nodes_kept_out",
        "Tainted nodes that do not return by themselves now, by the first guard that keeps each one out.",
        "guard",
    )
    alerts_read = gauge("alerts_read_timestamp_seconds", "Unix time of the last answer about alerts.")
    validations = gauge("validations", "Validations that wait (asked) or run (running).", "stage")
    needing = gauge("nodes_needing", "Nodes that are faulty, held or suspect, by what they need.", "needs")
    nodes_contested = gauge(
        "nodes_contested", "Faulty nodes in service, because somebody keeps removing the controller's taint."
    )
    overruled = gauge(
        "taint_removers_overruled",
        "Writers that removed the controller's taint from so many nodes that it is put back no more.",
    )

    # The kernel log of each node
    coverage = gauge(
        "nodes_coverage",
        "GPU nodes, by the state of their kernel log (measured, unknown, not measured).",
        "state",
    )
    nodes_ambiguous = gauge(
        "nodes_ambiguous", "Node names under which two machines report. The controller does not taint them."
    )
    pending = gauge(
        "boots_pending",
        "Boots with faults pending for more than ten minutes, because the Node has another boot id.",
    )
    records_lost = counter(
        "kernel_records_lost_total",
        "Kernel-log records that were overwritten before they were read, or dropped without a node's name.",
    )
    notifications = counter(
        "notifications_total",
        "Notifications, by sink and result: messages that were sent or failed, and single notifications "
        "that were dropped from a full queue.",
        *("sink", "result"),
    )
    unparsed = counter(
        "kernel_lines_unparsed_total", "Kernel lines that may report a fault and are not understood."
    )

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for attribute, family in vars(Metrics).items():
            if isinstance(family, _Family):
                setattr(self, attribute, family.make(registry=self.registry))
        self.nodes = NodeMetrics(self.registry)
        self._pools: frozenset[str] = frozenset()
        program = this_program()
        self.build_info.labels(program.version, program.build).set(1)
        self._start_at_zero()

    def show_brake(self, brake: BrakeState) -> None:
        """Set the gauges of the brake."""
        self.gpu_nodes.set(brake.gpu_nodes)
        self.brake_bound.set(brake.bound)
        self.brake_held.set(len(brake.held))
        self.cooling.set(brake.cooling)
        held = Counted(item.why for item in brake.held)
        for why in HOLDING:
            self.held_by.labels(why.value).set(held[why])
        self.pace_taints.set(brake.pace.taints if brake.pace else 0)
        self.pace_most.set(brake.pace.most if brake.pace else math.inf)
        self._show_pools(brake.pools)

    def _show_pools(self, pools: tuple[PoolBrake, ...]) -> None:
        """Set the gauges of the pools, and remove those of pools that are gone."""
        shown = [*pools[:POOLS_MOST]]
        if rest := pools[POOLS_MOST:]:
            totals = (sum(each.gpu_nodes for each in rest), sum(each.out for each in rest))
            shown.append(PoolBrake(OTHER_POOLS, *totals, sum(each.bound for each in rest)))
        for pool in shown:
            self.pool_out.labels(pool.pool).set(pool.out)
            self.pool_bound.labels(pool.pool).set(pool.bound)
        names = frozenset(pool.pool for pool in shown)
        for name in self._pools - names:
            for family in (self.pool_out, self.pool_bound):
                family.remove(name)
        self._pools = names

    def _start_at_zero(self) -> None:
        """Create every label set that is known in advance, so that ``rate()`` counts the first increment."""
        for source in _SOURCES:
            for family in (self.nodeless, self.bytes_processed):
                family.labels(source)
        for source in Source:
            self.entry_to_read.labels(source.value)
        self.ignored.labels(NO_SUCH_NODE)
        self.pace_most.set(math.inf)
        for needs in Needs:
            self.needing.labels(needs.value)
        for how in HOWS:
            self.out_of_service.labels(how)
        for why in SkipReason:
            self.refusals.labels(why.value)
        for verb in Verb:
            for result in ("applied", "conflict", "gone", "failed"):
                self.actions.labels(verb.value, result)


def fault_labels(source: Source, kind: FaultKind, code: int | None, severity: Severity) -> tuple[str, ...]:
    """Return the labels of ``faults_total``. A line may contain any number, so large codes share a label."""
    shown = "" if code is None else str(code) if code < HIGHEST_CODE else "other"
    return (source.value, kind.value, shown, severity.value)


class Latency:
    """Measures delays: from the kernel to Loki, from Loki to the controller, from there to the taint.

    ``began_ns`` returns when a node's boot began, by the node's clock.
    """

    def __init__(
        self, metrics: Metrics, began_ns: Callable[[str, str | None], int | None], now_ns: Callable[[], int]
    ) -> None:
        self._metrics = metrics
        self._began_ns = began_ns
        self._now_ns = now_ns
        self._read_ns: dict[tuple[str, IncidentKey], int] = {}

    def read(self, faults: Iterable[Fault], received_ns: Mapping[Source, int]) -> None:
        """Measure faults whose lines have just been read. ``received_ns`` is when Loki's answers arrived."""
        new = (fault for fault in faults if fault.source in received_ns and not fault.before_install)
        for fault in islice(new, OBSERVED_MOST):
            read_ns = received_ns[fault.source]
            since_entry = max(0, read_ns - fault.timestamp_ns) / 1e9
            self._metrics.entry_to_read.labels(fault.source.value).observe(since_entry)
            if fault.node is None:
                continue
            if fault.severity.taints:
                if len(self._read_ns) >= UNTAINTED_MOST:
                    self._read_ns.clear()
                self._read_ns[fault.node, fault.key] = read_ns
            position = fault.finding.position
            began_ns = self._began_ns(fault.node, position.boot_id)
            if position.stamp_us is not None and began_ns is not None:
                seconds = (fault.timestamp_ns - began_ns - position.stamp_us * 1000) / 1e9
                if seconds <= REPLAY_SECONDS:
                    self._metrics.kernel_to_entry.observe(max(0.0, seconds))

    def tainted(self, fault: Fault) -> None:
        """Measure a fault whose node has just been tainted."""
        read_ns = None if fault.node is None else self._read_ns.pop((fault.node, fault.key), None)
        if read_ns is not None:
            self._metrics.read_to_taint.observe(max(0, self._now_ns() - read_ns) / 1e9)
