"""The controller's metrics: one registry per process, with all families from the start."""

from __future__ import annotations

import math
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from konductor_like import __version__
from konductor_like.model import (
    BrakeState,
    Fault,
    FaultKind,
    IncidentKey,
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
_SOURCES = ("kernel", "pod", "heartbeat", "backfill", "warmup")
_LAGS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """Every family that ``/metrics`` shows; ``docs/reference/metrics.md`` is generated from it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prefix = "konductor_like_"

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(prefix + name, text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(prefix + name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, *labels: str, buckets: Sequence[float] = _LAGS) -> Histogram:
            return Histogram(prefix + name, text, labels, buckets=buckets, registry=self.registry)

        gauge("build_info", "Version of the controller; always 1.", "version").labels(__version__).set(1)
        self.leader = gauge("leader", "1 while this process has the Lease.")
        self.faults = counter(
            "faults_total",
            "New occurrences of faults, by source, kind, code and severity.",
            *("source", "kind", "code", "severity"),
        )
        self.ignored = counter(
            "faults_ignored_total", "Detected faults that the controller ignored, by reason.", "reason"
        )
        self.shadowed = counter(
            "faults_shadow_total",
            "Lines that a rule in shadow mode found; the controller does nothing about them.",
            *("source", "rule", "severity"),
        )
        self.rules_info = gauge(
            "rules_info", "The user's rules in force, by the digest of their content; always 1.", "hash"
        )
        self.rules_rejected = gauge(
            "rules_rejected", "1 while the user's rules file is refused and older rules stay in force."
        )
        self.faults_waiting = gauge(
            "faults_waiting", "Faults that wait for their node to register or for a failed write to succeed."
        )
        self.lines = counter("lines_read_total", "Lines read from Loki.", "source")
        self.duplicates = counter(
            "lines_duplicate_total", "Lines that were read once more and dropped.", "source"
        )
        self.nodeless = counter("lines_without_node_total", "Lines whose stream names no node.", "source")
        self.foreign = counter(
            "lines_foreign_total", "Lines whose labels show that they come from another source.", "source"
        )
        self.incomplete = counter(
            "windows_incomplete_total",
            "Windows of one nanosecond with more lines than Loki returns; the controller misses the others.",
            "source",
        )
        self.unreadable = gauge(
            "unreadable_seconds",
            "Seconds of the log that Loki cannot return; the controller asks again and reads later lines.",
            "source",
        )
        self.queries = counter("loki_queries_total", "Queries of polls, without retries.", "source")
        self.bytes_processed = counter(
            "loki_bytes_processed_total",
            "Bytes that Loki processed for the controller, as Loki reports.",
            "source",
        )
        self.budget_used = gauge(
            "loki_budget_used_ratio",
            "Bytes that Loki processed for the controller in the last minute, as a share of the budget.",
        )
        self.slowed = gauge(
            "polls_slowed", "1 while polls are less frequent because the byte budget is used up.", "source"
        )
        self.loud_nodes = gauge(
            "loud_nodes", "Nodes that print so many lines that they are read separately.", "source"
        )
        self.loki_errors = counter("loki_errors_total", "Failed polls, by error.", "source", "error")
        self.kube_errors = counter(
            "kube_errors_total", "Failed requests to the API server, by error.", "error"
        )
        self.read_until = gauge(
            "read_until_timestamp_seconds",
            "Unix time up to which all lines were read and acted upon.",
            "source",
        )
        self.unread = gauge(
            "unread_seconds",
            "Seconds between now and the time up to which the source was read in full. For kernel, above "
            "KONDUCTOR_HEARTBEAT_STALE_SECONDS every node without a recorded fault is UNKNOWN. Absent while "
            "the controller does not read.",
            "source",
        )
        self.history_unread = gauge(
            "history_unread_seconds",
            "Seconds of the time before the start that the warm-up has not read yet; while it is above 0, a "
            "threshold may be reached late.",
        )
        self.last_success = gauge(
            "last_success_timestamp_seconds", "Unix time of the last poll that succeeded.", "source"
        )
        self.tails_connected = gauge(
            "tails_connected",
            "Open connections to Loki's tail of the kernel log; while 0, it is only polled.",
        )
        self.tail_connections = counter(
            "tail_connections_total", "Connections that were made to Loki's tail of the kernel log."
        )
        self.tail_nudges = counter(
            "tail_nudges_total", "Messages of Loki's tail that made the controller poll at once."
        )
        self.evidence_dropped = counter(
            "evidence_dropped_total",
            "Items dropped from the recent evidence because it was full; thresholds may miss them.",
        )
        self.actions = counter("actions_total", "Writes of Nodes, by verb and result.", "verb", "result")
        self.fault_to_taint = histogram(
            "fault_to_taint_seconds", "Seconds from the Loki timestamp of a fault's line to the taint."
        )
        self.kernel_to_entry = histogram(
            "kernel_to_entry_seconds",
            "Seconds from the kernel's stamp of a fault's line to its Loki timestamp, if the boot was heard.",
        )
        self.entry_to_read = histogram(
            "entry_to_read_seconds",
            "Seconds from the Loki timestamp of a fault's line until the controller read the line.",
            "source",
        )
        self.read_to_taint = histogram(
            "read_to_taint_seconds", "Seconds from reading a fault's line to the taint."
        )
        self.reconcile_seconds = histogram(
            "reconcile_seconds",
            "Seconds that one reconcile takes, writes included.",
            buckets=Histogram.DEFAULT_BUCKETS,
        )
        self.tainted = gauge("nodes_tainted", "Nodes with the controller's taint.")
        self.gpu_nodes = gauge("gpu_nodes", "GPU nodes; the brake's percentage is a share of these.")
        self.brake_bound = gauge(
            "brake_bound", "Nodes that the controller may keep tainted at the same time."
        )
        self.brake_held = gauge("brake_held", "Nodes with a fault that taints, which the brake holds back.")
        self.refusals = counter(
            "refusals_total",
            "Nodes that were not tainted in spite of a fault, by reason; each counts once while it lasts.",
            "why",
        )
        self.held_by = gauge("nodes_held", "Nodes that the brake holds back, by reason.", "why")
        self.paused = gauge("paused", "1 while tainting is paused by a person.")
        self.cooling = gauge(
            "brake_cooling",
            "Nodes that were released, or deleted with the taint, and that the brake still counts in its "
            "cool-down.",
        )
        self.deleted = counter(
            "tainted_nodes_deleted_total", "Nodes that were deleted with the controller's taint."
        )
        self.pool_gpu_nodes = gauge(
            "brake_pool_gpu_nodes", "GPU nodes of each node pool; absent unless pools have a bound.", "pool"
        )
        self.pool_out = gauge("brake_pool_out", "Nodes of each pool that the controller has tainted.", "pool")
        self.pool_bound = gauge(
            "brake_pool_bound",
            "Nodes of each pool that the controller may keep tainted at the same time.",
            "pool",
        )
        self.pace_taints = gauge(
            "brake_rate_taints", "Taints in the time that the rate limit looks back; 0 without a rate limit."
        )
        self.pace_most = gauge(
            "brake_rate_bound", "Taints that the rate limit allows in that time; +Inf without a rate limit."
        )
        self._pools: frozenset[str] = frozenset()
        self.marked = gauge(
            "nodes_marked_for_replacement", "Nodes marked for replacement because they failed too often."
        )
        self.contested = counter(
            "taints_contested_total",
            "Removals of the controller's taint by another controller, or repeatedly in a short time.",
        )
        self.coverage = gauge("nodes_coverage", "GPU nodes, by whether their kernel log arrives.", "state")
        self.gaps_open = gauge("gaps_open", "Spans of time for which kernel logs of nodes are missing.")
        self.nodes_with_gaps = gauge(
            "nodes_with_gaps", "GPU nodes whose kernel log is missing for some span of time."
        )
        self.nodes_ambiguous = gauge(
            "nodes_ambiguous", "Names under which two machines report; the controller does not taint them."
        )
        self.pending = gauge("boots_pending", "Boots for which faults have waited for more than ten minutes.")
        self.records_lost = counter(
            "kernel_records_lost_total",
            "Kernel log records that the kernel overwrote before they were read.",
        )
        self.unparsed = counter(
            "kernel_lines_unparsed_total",
            "Kernel lines that name an Xid or SXid in a form that the controller does not understand.",
        )
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
            self.pool_gpu_nodes.labels(pool.pool).set(pool.gpu_nodes)
            self.pool_out.labels(pool.pool).set(pool.out)
            self.pool_bound.labels(pool.pool).set(pool.bound)
        names = frozenset(pool.pool for pool in shown)
        for name in self._pools - names:
            for family in (self.pool_gpu_nodes, self.pool_out, self.pool_bound):
                family.remove(name)
        self._pools = names

    def _start_at_zero(self) -> None:
        """Create every label set that is known in advance, so that ``rate()`` counts the first increment."""
        for source in _SOURCES:
            for family in (self.lines, self.duplicates, self.nodeless, self.queries, self.bytes_processed):
                family.labels(source)
        self.pace_most.set(math.inf)
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
        for fault in islice((fault for fault in faults if fault.source in received_ns), OBSERVED_MOST):
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
