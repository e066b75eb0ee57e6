"""What other programs do to Nodes and to the Lease, as steps of schedules: see :mod:`tests.chaos.steps`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from konductor_like.sandbox.kubernetes.store import Key
from tests.chaos.process import LEASE, NAMESPACE
from tests.chaos.steps import node_of

if TYPE_CHECKING:
    from tests.chaos.world import World

CURSOR = "trainy.konduktor.ai/cursor"


@dataclass(frozen=True, slots=True)
class OthersWrite:
    """Other programs change their own taints, labels and annotations."""

    node: int
    number: int

    def take(self, world: World) -> None:
        team = {"key": "team", "value": f"v{self.number}", "effect": "NoSchedule"}

        def change(node: dict[str, Any]) -> None:
            node["metadata"].setdefault("annotations", {})["example.org/note"] = f"<{self.number}> & ü"
            node["metadata"].setdefault("labels", {})["example.org/team"] = f"t{self.number}"
            if self.number % 3 == 0:
                node["spec"]["taints"] = [team, *_others(node)][:4]
            elif self.number % 3 == 1:
                node["spec"]["taints"] = [*_others(node), team][:4]
            if self.number % 5 == 4:
                node["metadata"].pop("annotations", None)

        def careful(node: dict[str, Any]) -> None:
            kept = {k: v for k, v in node["metadata"].get("annotations", {}).items() if "konduktor" in k}
            change(node)
            if kept:
                node["metadata"].setdefault("annotations", {}).update(kept)

        world.nodes.edit(node_of(world, self.node), careful)


@dataclass(frozen=True, slots=True)
class DeleteLease:
    """Somebody deletes the Lease."""

    def take(self, world: World) -> None:
        if world.kube._store.get("leases", Key(NAMESPACE, LEASE)) is not None:
            world.kube._store.delete("leases", Key(NAMESPACE, LEASE))
            world.ledger.lease_touched()


@dataclass(frozen=True, slots=True)
class SpoilCursor:
    """The cursor on the Lease is lost, garbled, or from the future."""

    cursor: str | None

    def take(self, world: World) -> None:
        stored = world.kube._store.get("leases", Key(NAMESPACE, LEASE))
        if stored is None:
            return
        lease = stored.load()
        notes = lease["metadata"].setdefault("annotations", {})
        notes.pop(CURSOR, None)
        if self.cursor is not None:
            notes[CURSOR] = self.cursor
        world.kube._store.put("leases", lease)
        world.ledger.lease_touched()


def _others(node: dict[str, Any]) -> list[dict[str, str]]:
    return [taint for taint in node["spec"].get("taints", []) if taint["key"] != "team"]
