"""Which nodes' kernel logs arrive: silence of a node means something only where its heartbeat is heard."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from konductor_like.model import Coverage, CoverageState


class CoverageTracker:
    """Remembers when each node was last heard; asked for the state of the fleet now and then."""

    def __init__(self, stale_seconds: float, *, before: Coverage | None, now_ns: int) -> None:
        """``before`` is what the last controller saw: its measured nodes are expected to be heard again."""
        self._stale_ns = round(stale_seconds * 1e9)
        self._before = before
        self._started_ns = now_ns
        self._heard_ns: dict[str, int] = {}

    def heard(self, node: str, timestamp_ns: int) -> None:
        """A heartbeat of the node, with its Loki timestamp."""
        self._heard_ns[node] = max(timestamp_ns, self._heard_ns.get(node, 0))

    def coverage(self, created_ns: Mapping[str, int], now_ns: int) -> Coverage:
        """The state of the GPU nodes that exist now, given with when they were made; forgets the others."""
        nodes = created_ns.keys()
        self._heard_ns = {node: heard for node, heard in self._heard_ns.items() if node in nodes}
        states = {node: self._state(node, created, now_ns) for node, created in created_ns.items()}
        measured = frozenset(node for node, state in states.items() if state is CoverageState.MEASURED)
        unknown = frozenset(node for node, state in states.items() if state is CoverageState.UNKNOWN)
        unmeasured = frozenset(states) - measured - unknown
        fewer_measured = len(measured) <= len(unmeasured)
        return Coverage(
            at=datetime.fromtimestamp(now_ns // 1_000_000_000, UTC),
            unknown=unknown,
            listed=measured if fewer_measured else unmeasured,
            listed_are_measured=fewer_measured,
        )

    def _state(self, node: str, created_ns: int, now_ns: int) -> CoverageState:
        heard = self._heard_ns.get(node)
        if heard is None:
            before = self._before_of(node, created_ns)
            if before is not CoverageState.MEASURED:
                return before
            heard = self._started_ns
        return CoverageState.MEASURED if now_ns - heard <= self._stale_ns else CoverageState.UNKNOWN

    def _before_of(self, node: str, created_ns: int) -> CoverageState:
        """What the last controller saw of the node; nothing, if the node is newer than that."""
        if self._before is None or created_ns > self._before.at.timestamp() * 1e9:
            return CoverageState.NOT_MEASURED
        return self._before.of(node)
