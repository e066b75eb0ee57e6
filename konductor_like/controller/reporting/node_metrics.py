"""The metrics of single nodes. They are made at each scrape, so that a reconcile does not pay for them.

Only a node that is not plainly healthy has series. Their number has a bound; the gravest nodes come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from konductor_like.model import Coverage, CoverageState, Incident, Needs, NodeState
from konductor_like.policy.node.health import WORST_FIRST, Health, coverage_of, state_of
from konductor_like.policy.node.needs import counting, fault_of, need_of, needs_on

_NO_SERIES = (Health.HEALTHY, Health.NOT_MEASURED)


class View(NamedTuple):
    """The fleet as the leader knows it now."""

    nodes: Mapping[str, NodeState]
    coverage: Coverage | None
    """Which kernel logs arrive; None before the first heartbeats were read."""
    unread: bool
    """Whether the kernel logs are not read, so that a node without a recorded fault is unknown."""


class NodeMetrics:
    """The families of single nodes, and the number of series that the bound left out."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.view: Callable[[], View] | None = None
        """Returns the view of the leader; None while this process does not lead: then no node has series."""
        self.most = 0
        """Maximum number of series of each family (the setting ``node_metrics_most``)."""
        self.states = _Family(
            "konductor_like_node_state",
            "State of a node that is faulty, held, suspect, on probation, ignored or unknown; always 1. "
            "Other nodes have no series.",
            ("node", "state"),
            self._states,
        )
        self.faults = _Family(
            "konductor_like_node_fault_info",
            "Faults behind the state of a node, by rule, GPU, severity and need; always 1.",
            ("node", "rule", "gpu", "severity", "needs"),
            self._faults,
        )
        registry.register(self.states)
        registry.register(self.faults)
        self.left_out = Gauge(  # after both families, because a scrape collects in this order
            "konductor_like_node_series_left_out",
            "Series of single nodes that were left out because of KONDUCTOR_NODE_METRICS_MOST, by metric.",
            ("metric",),
            registry=registry,
        )

    def _states(self) -> Sequence[tuple[str, ...]]:
        return self._bounded("node_state", ((state.name, health) for health, state in self._ranked()))

    def _faults(self) -> Sequence[tuple[str, ...]]:
        rows = (
            (state.name, each.key.rule, each.key.gpu or "", each.severity.value, needs.value)
            for _, state in self._ranked()
            for each, needs in faults_of(state)
        )
        return self._bounded("node_fault_info", rows)

    def _ranked(self) -> list[tuple[Health, NodeState]]:
        """Return state and node of all nodes that are not plainly healthy: the worst first, then by name."""
        view = self.view() if self.view is not None and self.most else View({}, None, unread=False)
        found = [(_health_of(node, view), node) for node in view.nodes.values()]
        ranked = (each for each in found if each[0] not in _NO_SERIES)
        return sorted(ranked, key=lambda each: (WORST_FIRST[each[0]], each[1].name))

    def _bounded(self, metric: str, rows: Iterable[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
        every = list(dict.fromkeys(rows))  # Prometheus refuses two series with the same labels
        self.left_out.labels(metric).set(max(0, len(every) - self.most))
        return every[: self.most]


def faults_of(node: NodeState) -> Iterator[tuple[Incident, Needs]]:
    """Yield the faults behind the state of the node, each with its need; the node's own fault comes first."""
    fault, needs = fault_of(node.record, tainted=node.tainted), need_of(node.record, tainted=node.tainted)
    if fault is not None and needs is not None:
        yield fault, needs
    for each in counting(node.record, tainted=node.tainted):
        if each is not fault:
            yield each, needs_on(each, node)


def _health_of(node: NodeState, view: View) -> Health:
    """Return the state that ``status`` shows; no kernel log is missed of a node without a GPU."""
    coverage = coverage_of(node.name, view.coverage, unread=view.unread)
    return state_of(node, coverage if node.is_gpu_node else CoverageState.NOT_MEASURED)


class _Family(Collector):
    """A family whose series have the value 1 and are made at each scrape."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        rows: Callable[[], Sequence[tuple[str, ...]]],
    ) -> None:
        self._name = name
        self._text = text
        self._labelnames = labels
        self._rows = rows

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the family without series."""
        return [GaugeMetricFamily(self._name, self._text, labels=self._labelnames)]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the family with the series of this moment."""
        family = GaugeMetricFamily(self._name, self._text, labels=self._labelnames)
        for values in self._rows():
            family.add_metric(values, 1.0)
        yield family
