"""A Prometheus in memory: alerts that fire, exporters that are up, and answers that are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from konductor_like.model import AlertKey, AlertsAnswer, ToldAlert
from konductor_like.prometheus.answer import Parsed
from konductor_like.prometheus.client import AlertsError
from tests.chaos.clock import Clock


class MemoryPrometheus:
    """Answers the controller's questions, each from what it knows at that moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.firing: set[AlertKey] = set()
        self.down: set[tuple[str, str]] = set()
        """Exporter and node, where the exporter is down."""
        self.nodes: set[str] = set()
        """The nodes with exporters."""
        self.error = ""
        """Why it does not answer; empty if it does."""
        self.partial = False
        self.questions = 0

    def ask(self, names: Collection[str], nodes: Collection[str]) -> Parsed:
        """Return what a real one would answer to the same question. Raises AlertsError."""
        self.questions += 1
        if self.error:
            raise AlertsError(self.error)
        firing = (
            {}
            if self.partial
            else {key: ToldAlert(f"{key.name} fires (gpu 3)") for key in self.firing if key.name in names}
        )
        up = {(exporter, node) for exporter in ("dcgm", "node") for node in self.nodes} - self.down
        watched = Counter(exporter for exporter, _ in up)
        told = frozenset(each for each in up if each[1] in nodes)
        answer = AlertsAnswer(self._clock.true_ns, firing, told, complete=not self.partial)
        return Parsed(answer, watched, ("a store is down",) if self.partial else ())
