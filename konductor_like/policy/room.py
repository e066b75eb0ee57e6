"""How much room there is for another taint, in the fleet or in one pool.

Three kinds of nodes take it: those that are out by us, those that are out for other reasons (where they are
asked to count), and, once the brake holds something, those that were released a moment ago: an operator who
undoes a false alarm shall not see the brake fill the room at once.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from itertools import pairwise

from konductor_like.model import Refusal
from konductor_like.policy.release import unix_ns


def share(gpu_nodes: int, percent: float) -> int:
    """So many of these nodes, rounded down, but never below one: small fleets and pools may lose one too."""
    return max(1, math.floor(gpu_nodes * percent / 100))


class Room:
    """Counts while nodes are looked at; closed, it tells who may still be tainted."""

    __slots__ = ("_oldest_held_ns", "_released", "away", "bound", "cooling", "gpu_nodes", "ours", "rearms_at")

    def __init__(self) -> None:
        self.gpu_nodes = 0
        self.ours = 0
        """Nodes that carry our taint, or may."""
        self.away = 0
        """Others that count as out."""
        self.cooling = 0
        """Nodes whose release made room that is not used yet."""
        self.rearms_at: datetime | None = None
        self.bound = 0
        self._released: list[datetime] = []
        self._oldest_held_ns: int | None = None

    def released(self, at: datetime, nodes: int = 1) -> None:
        """A node that is in service, or so many, came back at this time."""
        self._released.extend([at] * nodes)

    def held(self, since_ns: int) -> None:
        """A node is held back, for a fault of that time."""
        if self._oldest_held_ns is None or since_ns < self._oldest_held_ns:
            self._oldest_held_ns = since_ns

    def close(self, bound: int, cooldown: timedelta, now: datetime) -> None:
        """Everything was counted; ``bound`` is how many may be out by us."""
        self.bound = bound
        held_ns = self._oldest_held_ns
        latest = max(self._released, default=None)
        if latest is None or held_ns is None or held_ns > unix_ns(latest) or now - latest >= cooldown:
            return  # nothing was held when the latest one was released: the brake had not tripped
        self.cooling = _in_a_row(self._released, cooldown)
        self.rearms_at = latest + cooldown

    def refusal(self, *, is_away: bool) -> Refusal | None:
        """Why one more may not be tainted; ``is_away`` says that it counts as out already."""
        taken = self.ours + (0 if is_away else self.away)
        if taken >= self.bound:
            return Refusal.BRAKE
        return Refusal.COOLDOWN if taken + self.cooling >= self.bound else None

    def take(self, *, is_away: bool) -> None:
        """One more is tainted."""
        self.ours += 1
        self.away -= is_away


def _in_a_row(released: list[datetime], cooldown: timedelta) -> int:
    """How many of the releases follow each other closely enough to be one piece of work, the latest last."""
    latest_first = sorted(released, reverse=True)
    for number, (later, earlier) in enumerate(pairwise(latest_first), start=1):
        if later - earlier > cooldown:
            return number
    return len(latest_first)
