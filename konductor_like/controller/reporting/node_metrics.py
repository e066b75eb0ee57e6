"""The metrics of single nodes. They are made at each scrape, so that a reconcile does not pay for them.

Only a node that is not plainly healthy has series. Their number has a bound; the gravest nodes come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from konductor_like.model import Coverage, CoverageState, Incident, Needs, NodeState
from konductor_like.policy.node.health import WORST_FIRST, Health, coverage_of, state_of
from konductor_like.policy.node.needs import counting, fault_of, labels_of, need_of, needed_since, needs_on

_NO_SERIES = (Health.HEALTHY, Health.NOT_MEASURED)
_Series = tuple[tuple[str, ...], float]
"""The labels of a series, and its value."""


class View(NamedTuple):
    """The fleet as the leader knows it now."""

    nodes: Mapping[str, NodeState]
    coverage: Coverage | None
    """Which kernel logs arrive; None before the first heartbeats were read."""
    unread: bool
    """Whether the kernel logs are not read, so that a node without a recorded fault is unknown."""


_STATE = (
    "node_state",
    (
        "State of a node that is faulty, held, suspect, on probation, ignored or unknown; always 1. "
        "Other nodes have no series."
    ),
    ("node", "state"),
)
_FAULT = (
    "node_fault_info",
    "Faults behind the state of a node, by rule, GPU, severity and need; always 1.",
    ("node", "rule", "gpu", "severity", "needs"),
)
_NEED = (
    "node_need_since_timestamp_seconds",
    (
        "Unix time since when a faulty, held or suspect node has had its need. With the need none, since "
        "when it needs nothing more."
    ),
    ("node", "needs"),
)


class NodeMetrics(Collector):
    """The families of single nodes, with a bounded number of series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.view: Callable[[], View] | None = None
        """Returns the view of the leader; None while this process does not lead: then no node has series."""
        self.most = 0
        """Maximum number of series of each family (the setting ``node_metrics_most``)."""
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families without series."""
        for name, text, labels in (_STATE, _FAULT, _NEED):
            yield GaugeMetricFamily(f"konductor_like_{name}", text, labels=labels)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families with the series of this moment."""
        ranked = self._ranked()
        recorded = [state for _, state in ranked if state.tainted or not state.record.empty]
        yield self._made(*_STATE, (((state.name, health), 1.0) for health, state in ranked))
        faults = (
            ((state.name, each.key.rule, each.key.gpu or "", each.severity.value, needs.value), 1.0)
            for state in recorded
            for each, needs in faults_of(state)
        )
        yield self._made(*_FAULT, faults)
        yield self._made(*_NEED, (need for state in recorded for need in _need_of(state)))

    def _ranked(self) -> list[tuple[Health, NodeState]]:
        """Return state and node of all nodes that are not plainly healthy: the worst first, then by name."""
        view = self.view() if self.view is not None and self.most else View({}, None, unread=False)
        found = [(_health_of(node, view), node) for node in view.nodes.values()]
        ranked = (each for each in found if each[0] not in _NO_SERIES)
        return sorted(ranked, key=lambda each: (WORST_FIRST[each[0]], each[1].name))

    def _made(
        self, name: str, text: str, labels: tuple[str, ...], rows: Iterable[_Series]
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"konductor_like_{name}", text, labels=labels)
        every = dict(rows)  # Prometheus refuses two series with the same labels
        for values, value in islice(every.items(), self.most):
            family.add_metric(values, value)
        return family


def faults_of(node: NodeState) -> Iterator[tuple[Incident, Needs]]:
    """Yield the faults behind the state of the node, each with its need; the node's own fault comes first."""
    fault, needs = fault_of(node.record, tainted=node.tainted), need_of(node.record, tainted=node.tainted)
    if fault is not None and needs is not None:
        yield fault, needs
    for each in counting(node.record, tainted=node.tainted):
        if each is not fault:
            yield each, needs_on(each, node)


def _need_of(node: NodeState) -> Iterator[_Series]:
    """Yield what the node needs, and since when; nothing for an ignored node, which has no label either."""
    needs = labels_of(node.record, node, tainted=node.tainted)[1]
    since = needed_since(node.record, tainted=node.tainted)
    if needs is not None and since is not None:
        yield (node.name, needs.value), since.timestamp()


def _health_of(node: NodeState, view: View) -> Health:
    """Return the state that ``status`` shows; no kernel log is missed of a node without a GPU."""
    coverage = coverage_of(node.name, view.coverage, unread=view.unread)
    return state_of(node, coverage if node.is_gpu_node else CoverageState.NOT_MEASURED)
