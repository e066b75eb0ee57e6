"""A Prometheus in memory: alerts that fire, exporters that are up, and answers that are missing or in part.

It remembers every answer that it gave, and to which controller: the invariants compare the records with these
(:mod:`tests.chaos.firings`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from konductor_like.model import AlertKey, AlertsAnswer, ToldAlert
from konductor_like.prometheus.answer import Parsed
from konductor_like.prometheus.client import AlertsError
from tests.chaos.clock import Clock

EXPORTERS = ("dcgm", "node")


@dataclass(frozen=True, slots=True)
class Given:
    """One answer."""

    at_ns: int
    """When it was asked, by the clock of the controller."""
    firing: frozenset[AlertKey]
    up: frozenset[tuple[str, str]]
    complete: bool


@dataclass(eq=False, slots=True)
class MemoryPrometheus:
    """Answers the controller's questions, each from what it knows at that moment."""

    clock: Clock
    nodes: set[str] = field(default_factory=set)
    """The nodes with exporters."""
    firing: set[AlertKey] = field(default_factory=set)
    down: set[tuple[str, str]] = field(default_factory=set)
    """Exporter and node, where the exporter is down."""
    error: str = ""
    """Why it does not answer; empty if it does."""
    partial: bool = False
    asker: object = None
    """The leadership that asks."""
    given: defaultdict[object, list[Given]] = field(default_factory=lambda: defaultdict(list))
    """By leadership, its answers."""

    def ask(self, names: Collection[str], nodes: Collection[str]) -> Parsed:
        """Return what a real one would answer to the same question. Raises AlertsError."""
        if self.error:
            raise AlertsError(self.error)
        firing = (
            frozenset() if self.partial else frozenset(each for each in self.firing if each.name in names)
        )
        up = {(exporter, node) for exporter in EXPORTERS for node in self.nodes} - self.down
        told = frozenset(each for each in up if each[1] in nodes)
        at_ns = self.clock.wall_ns()
        self.given[self.asker].append(Given(at_ns, firing, told, not self.partial))
        alerts = {key: ToldAlert(f"{key.name} fires (gpu 3)") for key in firing}
        answer = AlertsAnswer(at_ns, alerts, told, complete=not self.partial)
        watched = Counter(exporter for exporter, _ in up)
        return Parsed(answer, watched, ("a store is down",) if self.partial else ())
