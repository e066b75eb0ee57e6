"""The boots that heartbeats tell of, for all nodes: what policy/machines.py needs, kept from call to call."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from konductor_like.model import NodeState
from konductor_like.model.time import SECOND_NS
from konductor_like.policy.machines import (
    UNAMBIGUOUS_AFTER_NS,
    Heard,
    boots_left,
    is_ambiguous,
    pending_boots,
    with_beat,
)

OVERDUE_NS = 600 * SECOND_NS
"""A fault that waits longer than this for its boot is counted; it is never dropped for its age."""


class Boots:
    """Which boots were heard under each name, and since when faults wait for one."""

    def __init__(self, ambiguous: Collection[str], now_ns: int) -> None:
        """``ambiguous`` is what the last controller found; it holds until this one has heard enough."""
        self.ambiguous = frozenset(ambiguous)
        """Names under which two machines report at once."""
        self.left: Mapping[str, frozenset[str]] = {}
        """By node, the boots that are over."""
        self.overdue = 0
        """Boots that faults have waited for for more than ten minutes."""
        self._presumed = self.ambiguous
        self._presumed_until_ns = now_ns + UNAMBIGUOUS_AFTER_NS
        self._heard: dict[str, Heard] = {}
        self._pending_ns: dict[tuple[str, str], int] = {}

    def beat(self, node: str, boot_id: str, at_ns: int, began_ns: int) -> None:
        """One heartbeat."""
        self._heard[node] = with_beat(self._heard.get(node, ()), boot_id, at_ns, began_ns)

    def began_ns(self, node: str, boot_id: str | None) -> int | None:
        """When that boot of the node began by the node's own clock; None where it was not heard."""
        boots = self._heard.get(node, ())
        return next((boot.began_ns for boot in boots if boot.boot_id == boot_id), None)

    def update(self, nodes: Mapping[str, NodeState], now_ns: int) -> None:
        """Work out which names are ambiguous and which boots are over; forget nodes that are gone."""
        self._heard = {name: boots for name, boots in self._heard.items() if name in nodes}
        presumed = self._presumed if now_ns < self._presumed_until_ns else frozenset()
        self.ambiguous = presumed.intersection(nodes) | {
            name for name, boots in self._heard.items() if len(boots) > 1 and is_ambiguous(boots, now_ns)
        }
        waiting = {
            name: boots
            for name, state in nodes.items()
            if state.record.incidents and (boots := pending_boots(state.record))
        }
        self._pending_ns = {
            (name, boot): self._pending_ns.get((name, boot), now_ns)
            for name, boots in waiting.items()
            for boot in boots
        }
        self.overdue = sum(now_ns - since_ns > OVERDUE_NS for since_ns in self._pending_ns.values())
        self.left = {
            name: left
            for name, boots in waiting.items()
            if name not in self.ambiguous
            and (
                left := boots_left(
                    nodes[name],
                    self._heard.get(name, ()),
                    {boot: self._pending_ns[name, boot] for boot in boots},
                )
            )
        }
