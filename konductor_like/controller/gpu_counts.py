"""The controller's memory of GPU counts, by which it finds GPUs that are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from konductor_like.catalog import Catalog, Mode
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.model import Fault, Finding, NodeState
from konductor_like.model.text import listed
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.gpu_counts import GPUS_MISSING, GpuCounts, counted, faults_of


class GpuMemory:
    """Counts the GPUs of all nodes from reconcile to reconcile. For one thread."""

    def __init__(self, metrics: Metrics, catalog: Callable[[], Catalog]) -> None:
        """``catalog`` returns the rules in force."""
        self._metrics = metrics
        self._catalog = catalog
        self._in_shadow: set[str | None] = set()
        """The nodes with a fall that the rule in shadow mode has reported."""
        self.counts = GpuCounts()
        """The latest counts."""

    def faults(self, states: Mapping[str, NodeState], policy: PolicyConfig, now: datetime) -> list[Fault]:
        """Count the GPUs of these nodes. Return the faults that this shows, and the ends of earlier ones."""
        before, self.counts = self.counts, counted(self.counts, states, policy.gpu_count_seconds, now)
        self._metrics.gpus_missing.set(sum(self.counts.nodes[name].missing for name in self.counts.short))
        together = self.counts.together
        if together - before.together:
            logs.warning(
                f"{len(together)} of {len(self.counts.nodes)} nodes lost GPUs at about the same time: "
                f"{listed(sorted(together), 5)}. The nodes are not at fault: check driver and device plugin."
            )
        entry = self._catalog().named_entries[GPUS_MISSING.rule]
        texts, needs = (entry.title, entry.advice.text, ""), entry.advice.needs.value
        in_shadow = entry.mode is Mode.SHADOW
        rule = Finding(entry.kind, entry.rule, entry.severity, *texts, needs=needs, shadow=in_shadow)
        # Incidents of before the mode was set still end.
        seconds = 0.0 if entry.mode is Mode.OFF else policy.gpu_count_seconds
        found = faults_of(self.counts, rule, seconds, now)
        known, self._in_shadow = self._in_shadow, {each.node for each in found if each.finding.shadow}
        return [each for each in found if not each.finding.shadow or each.node not in known]
