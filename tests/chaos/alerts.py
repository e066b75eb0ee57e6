"""Steps of alerts of Prometheus: they fire, end, come back under another name, and lose their exporter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from konductor_like.model import AlertKey
from tests.chaos.machines import seconds
from tests.chaos.steps import node_of

if TYPE_CHECKING:
    from tests.chaos.world import World

ALERT = "alert."
OVER_NS, GAP_NS = seconds(1800), seconds(300)
REMAP, LINK, PORT = "KonductorGPURowRemapPending", "KonductorGPUNVLinkDown", "KonductorRDMAPortDown"
NAMES = (REMAP, LINK, PORT)
UNKNOWN = "KonductorNotInTheCatalogue"
DEEDS = (
    *("fires", "is resolved", "fires once more", "comes back under another name"),
    *("loses its exporter", "has its exporter again"),
    *("is asked for, and there is no answer", "is asked for, and the answer is in part"),
)
"""What happens to alerts, as it is counted."""


def key_of(world: World, node: int, name: str) -> AlertKey:
    """Return the alert on a node; one about a port names no GPU."""
    return AlertKey(name, node_of(world, node), None if name == PORT else "0000:4e:00")


@dataclass(frozen=True, slots=True)
class Fires:
    """An alert begins to fire, or is resolved."""

    node: int
    name: str
    on: bool = True

    def take(self, world: World) -> None:
        key, prometheus = key_of(world, self.node, self.name), world.prometheus
        if self.on and key in world.firings.was:
            _count(world, "fires once more")
        if self.on:
            prometheus.firing.add(key)
            world.firings.was.add(key)
        else:
            prometheus.firing.discard(key)
        _count(world, "fires" if self.on else "is resolved")


@dataclass(frozen=True, slots=True)
class Renamed:
    """Somebody edits a rule: its alert comes back under another name."""

    node: int
    name: str
    other: str = UNKNOWN

    def take(self, world: World) -> None:
        firing = world.prometheus.firing
        if (key := key_of(world, self.node, self.name)) in firing:
            firing.discard(key)
            firing.add(key_of(world, self.node, self.other))
            _count(world, "comes back under another name")


@dataclass(frozen=True, slots=True)
class ExporterDown:
    """The exporters of a node are down, and its alerts with them; or they are up again."""

    node: int
    on: bool = True

    def take(self, world: World) -> None:
        name, prometheus = node_of(world, self.node), world.prometheus
        pairs = {("dcgm", name), ("node", name)}
        if self.on:
            prometheus.down |= pairs
            prometheus.firing -= {key for key in prometheus.firing if key.node == name}
        else:
            prometheus.down -= pairs
        _count(world, "loses its exporter" if self.on else "has its exporter again")


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Prometheus does not answer, or only in part; without ``how`` it answers again."""

    how: str = ""

    def take(self, world: World) -> None:
        prometheus = world.prometheus
        prometheus.error = "Prometheus answered 503" if self.how == "error" else ""
        prometheus.partial = self.how == "part"
        if self.how:
            what = "there is no answer" if prometheus.error else "the answer is in part"
            _count(world, f"is asked for, and {what}")


def _count(world: World, deed: str) -> None:
    world.ledger.happened[f"alert {deed}"] += 1
