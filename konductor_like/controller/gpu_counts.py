"""The controller's memory of GPU counts, by which it finds GPUs that are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from konductor_like.catalog import Catalog, Entry, Mode
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.model import Fault, Finding, NodeState, Plan
from konductor_like.model.text import listed
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.gpu_counts import GPUS_MISSING, GpuCounts, counted, faults_of, with_counts

_NAMES = 5


class GpuMemory:
    """Counts the GPUs of all nodes from reconcile to reconcile. For one thread."""

    def __init__(self, metrics: Metrics, catalog: Callable[[], Catalog]) -> None:
        """``catalog`` returns the rules in force."""
        self._metrics = metrics
        self._catalog = catalog
        self._counts = GpuCounts()
        self._in_shadow: dict[str, int | None] = {}
        """By node, the start of the fall that the rule in shadow mode has reported."""
        self._together: frozenset[str] = frozenset()

    @property
    def short(self) -> Mapping[str, str]:
        """Return by node ``7 of 8 GPUs``, for the nodes that miss GPUs now."""
        return {name: each.words for name, each in self._counts.short.items()}

    def faults(self, states: Mapping[str, NodeState], policy: PolicyConfig, now: datetime) -> list[Fault]:
        """Count the GPUs of these nodes. Return the faults that this shows, and the ends of earlier ones."""
        self._counts = counts = counted(self._counts, states, policy, now)
        self._metrics.gpus_missing.set(sum(each.expected - each.present for each in counts.short.values()))
        if counts.together - self._together:
            logs.warning(
                f"{len(counts.together)} of {len(counts.nodes)} nodes lost GPUs at about the same time: "
                f"{listed(sorted(counts.together), _NAMES)}. The controller does not take this for a fault "
                "of the nodes. Check the driver and the device plugin."
            )
        self._together = counts.together
        entry = self._catalog().node_facts[GPUS_MISSING.rule]
        found = faults_of(counts, _finding(entry), policy, now)
        if entry.mode is Mode.ENFORCE:
            return found
        ends = [fault for fault in found if fault.finding.clears]  # incidents of before the mode was set
        if entry.mode is Mode.OFF:
            return ends
        since_ns = {str(fault.node): counts.nodes[str(fault.node)].since_ns for fault in found}
        new = {name for name, ns in since_ns.items() if self._in_shadow.get(name) != ns}
        self._in_shadow = since_ns
        return [*ends, *(fault for fault in found if fault.node in new)]

    def noted(self, plan: Plan, policy: PolicyConfig, now: datetime) -> Plan:
        """Return the plan with the counts in the records that it writes."""
        return with_counts(plan, self._counts, policy, now)


def _finding(entry: Entry) -> Finding:
    return Finding(
        *(entry.kind, entry.rule, entry.severity, entry.title, entry.advice.text, ""),
        needs=entry.advice.needs.value,
        shadow=entry.mode is Mode.SHADOW,
        severity_by_user="severity" in entry.fixed,
    )
