"""The controller's metrics, one registry per process, all families known in advance."""

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
"""What the brake may hold a node back for."""
POOLS_MOST = 100
"""Pools with a label of their own, by name; all others are added up."""
OTHER_POOLS = "(others)"
"""No value of a Kubernetes label."""
HIGHEST_CODE = 100_000
"""SXids have five digits, Xids three."""
REPLAY_SECONDS = 600.0
"""A line that is older than this when it is shipped was most likely read out of the kernel's ring again."""
OBSERVED_MOST = 200
"""Of a flood in one reconcile a sample will do."""
UNTAINTED_MOST = 10_000
"""So many faults may wait for their taint to be measured."""
_SOURCES = ("kernel", "pod", "heartbeat", "node", "history")
_LAGS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """Every family that ``/metrics`` shows; ``docs/metrics.md`` is generated from it."""

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
        self.leader = gauge("leader", "1 while this process holds the Lease.")
        self.faults = counter(
            "faults_total",
            "New occurrences of faults, by what they are.",
            *("source", "kind", "code", "severity"),
        )
        self.ignored = counter(
            "faults_ignored_total", "Detected lines that led to nothing, by why.", "reason"
        )
        self.shadowed = counter(
            "faults_shadow_total",
            "Lines that a rule in shadow mode found; they lead to nothing.",
            *("source", "rule", "severity"),
        )
        self.rules_info = gauge(
            "rules_info", "The user's rules in force, by their content; always 1.", "hash"
        )
        self.rules_rejected = gauge(
            "rules_rejected", "1 while the user's rules file is refused and older rules stay in force."
        )
        self.faults_waiting = gauge(
            "faults_waiting", "Faults that wait for their node or for a write to succeed."
        )
        self.lines = counter("lines_read_total", "Lines read from Loki.", "source")
        self.duplicates = counter("lines_duplicate_total", "Lines read again in the overlap.", "source")
        self.nodeless = counter("lines_without_node_total", "Lines whose stream names no node.", "source")
        self.foreign = counter(
            "lines_foreign_total", "Lines that are not of their source by their labels.", "source"
        )
        self.incomplete = counter(
            "windows_incomplete_total",
            "Windows of one nanosecond that hold more than Loki returns.",
            "source",
        )
        self.unreadable = gauge(
            "unreadable_seconds",
            "How much time Loki cannot give the lines of; they are asked for again, and later ones are read.",
            "source",
        )
        self.queries = counter(
            "loki_queries_total", "Queries that polls took; retries are not counted.", "source"
        )
        self.bytes_processed = counter(
            "loki_bytes_processed_total", "Bytes that Loki says it read for us.", "source"
        )
        self.budget_used = gauge(
            "loki_budget_used_ratio",
            "What Loki processed for us in the last minute, as a share of the budget.",
        )
        self.slowed = gauge("polls_slowed", "1 while the budget makes polls rarer.", "source")
        self.loud_nodes = gauge(
            "loud_nodes", "Nodes that print so much that their lines are read by themselves.", "source"
        )
        self.loki_errors = counter("loki_errors_total", "Polls that failed, by error.", "source", "error")
        self.kube_errors = counter("kube_errors_total", "Requests to the API server that failed.", "error")
        self.read_until = gauge(
            "read_until_timestamp_seconds", "Everything before this time was read and acted upon.", "source"
        )
        self.unread = gauge(
            "unread_seconds",
            "How far behind the present a source was read in full; of kernel above "
            "KONDUCTOR_HEARTBEAT_STALE_SECONDS every node counts as unknown. Absent while nothing is read.",
            "source",
        )
        self.history_unread = gauge(
            "history_unread_seconds",
            "How much of the time before the start has yet to be read again for the rules that look back; "
            "above 0 a threshold may be reached late.",
        )
        self.last_success = gauge("last_success_timestamp_seconds", "When the last poll succeeded.", "source")
        self.tails_connected = gauge(
            "tails_connected", "Connections that follow the kernel log; with 0 it is only polled."
        )
        self.tail_connections = counter(
            "tail_connections_total", "Connections that were made to follow the kernel log."
        )
        self.tail_nudges = counter(
            "tail_nudges_total", "Messages that led, together with others or alone, to a poll at once."
        )
        self.evidence_dropped = counter(
            "evidence_dropped_total",
            "Traces that the window of recent evidence had no room for; thresholds may miss them.",
        )
        self.actions = counter("actions_total", "Node writes, by verb and result.", "verb", "result")
        self.fault_to_taint = histogram(
            "fault_to_taint_seconds", "From a line's Loki timestamp to the taint on its node."
        )
        self.kernel_to_entry = histogram(
            "kernel_to_entry_seconds",
            "From the kernel's own stamp of a fault's line to its Loki timestamp, where the boot was heard.",
        )
        self.entry_to_read = histogram(
            "entry_to_read_seconds", "From a fault line's Loki timestamp to when it was read here.", "source"
        )
        self.read_to_taint = histogram("read_to_taint_seconds", "From reading a fault's line to the taint.")
        self.reconcile_seconds = histogram(
            "reconcile_seconds",
            "Time one reconcile takes, writes included.",
            buckets=Histogram.DEFAULT_BUCKETS,
        )
        self.tainted = gauge("nodes_tainted", "Nodes that carry our taint.")
        self.gpu_nodes = gauge("gpu_nodes", "GPU nodes, the denominator of the brake.")
        self.brake_bound = gauge("brake_bound", "How many nodes may be out by us.")
        self.brake_held = gauge("brake_held", "Nodes that would be tainted but for the brake.")
        self.refusals = counter(
            "refusals_total",
            "Nodes that were not tainted although something stood against them, by why; once while it lasts.",
            "why",
        )
        self.held_by = gauge("nodes_held", "Nodes that would be tainted, by what holds them back.", "why")
        self.paused = gauge("paused", "1 while a person has paused tainting.")
        self.cooling = gauge(
            "brake_cooling",
            "Nodes that were released, or deleted while tainted, whose room the brake does not use yet.",
        )
        self.deleted = counter("tainted_nodes_deleted_total", "Nodes that were deleted with our taint.")
        self.pool_gpu_nodes = gauge(
            "brake_pool_gpu_nodes", "GPU nodes of each node pool, where pools have a bound.", "pool"
        )
        self.pool_out = gauge("brake_pool_out", "Nodes of each pool that are out by us.", "pool")
        self.pool_bound = gauge("brake_pool_bound", "How many nodes of each pool may be out by us.", "pool")
        self.pace_taints = gauge(
            "brake_rate_taints", "Taints within the rate's window; 0 where the rate is not bounded."
        )
        self.pace_most = gauge(
            "brake_rate_bound", "How many taints the rate allows; +Inf where it is not bounded."
        )
        self._pools: frozenset[str] = frozenset()
        self.marked = gauge("nodes_marked_for_replacement", "Nodes that failed too often.")
        self.contested = counter(
            "taints_contested_total", "Removals of our taint by another controller, or again and again."
        )
        self.coverage = gauge("nodes_coverage", "GPU nodes by whether their kernel log arrives.", "state")
        self.gaps_open = gauge("gaps_open", "Spans in which kernel logs of some nodes are missing.")
        self.nodes_with_gaps = gauge("nodes_with_gaps", "GPU nodes of whose kernel logs a span is missing.")
        self.nodes_ambiguous = gauge(
            "nodes_ambiguous", "Names under which two machines report; they are never tainted."
        )
        self.pending = gauge("boots_pending", "Boots that faults have waited for for more than ten minutes.")
        self.records_lost = counter(
            "kernel_records_lost_total", "Kernel log records that were overwritten before they were read."
        )
        self.unparsed = counter(
            "kernel_lines_unparsed_total",
            "Kernel lines that name an Xid or SXid in a form that is not understood.",
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
        """The pools as they are now; one that is gone leaves nothing behind."""
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
        """So that ``rate()`` works from the first hit on, every label set known in advance exists."""
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
    """The values of ``faults_total``'s labels; a line may claim any number, so the codes are bounded here."""
    shown = "" if code is None else str(code) if code < HIGHEST_CODE else "other"
    return (source.value, kind.value, shown, severity.value)


class Latency:
    """Measures how late things come: from the kernel to Loki, from Loki to us, and from us to the taint.

    ``began_ns`` says when a node's boot began, by the node's clock.
    """

    def __init__(
        self, metrics: Metrics, began_ns: Callable[[str, str | None], int | None], now_ns: Callable[[], int]
    ) -> None:
        self._metrics = metrics
        self._began_ns = began_ns
        self._now_ns = now_ns
        self._read_ns: dict[tuple[str, IncidentKey], int] = {}

    def read(self, faults: Iterable[Fault], received_ns: Mapping[Source, int]) -> None:
        """Faults of lines that Loki answered with at these times."""
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
        """A node was tainted for this fault just now."""
        read_ns = None if fault.node is None else self._read_ns.pop((fault.node, fault.key), None)
        if read_ns is not None:
            self._metrics.read_to_taint.observe(max(0, self._now_ns() - read_ns) / 1e9)
