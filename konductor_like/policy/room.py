"""How much room there is for another taint, in the fleet or in one pool.

Three kinds of nodes take it: those that are out by us, those that are out for other reasons (where they are
asked to count), and those that made room a moment ago. A release counts so once the brake holds something:
an operator who undoes a false alarm shall not see the brake fill the room at once. A tainted Node that was
deleted always does: an autoscaler that removes what we taint shall not empty the fleet.
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

    __slots__ = (
        "_deleted",
        "_oldest_held_ns",
        "_released",
        "away",
        "bound",
        "cooling",
        "deleted",
        "gpu_nodes",
        "ours",
        "rearms_at",
    )

    def __init__(self) -> None:
        self.gpu_nodes = 0
        self.ours = 0
        """Nodes that carry our taint, or may."""
        self.away = 0
        """Others that count as out."""
        self.cooling = 0
        """Nodes whose release or deletion made room that is not used yet."""
        self.deleted = 0
        """How many of these were deleted."""
        self.rearms_at: datetime | None = None
        self.bound = 0
        self._released: list[datetime] = []
        self._deleted: list[datetime] = []
        self._oldest_held_ns: int | None = None

    def released(self, at: datetime, nodes: int = 1) -> None:
        """A node that is in service, or so many, came back at this time."""
        self._released.extend([at] * nodes)

    def lost(self, at: datetime) -> None:
        """A Node that was out by us was deleted at this time."""
        self._deleted.append(at)

    def held(self, since_ns: int) -> None:
        """A node is held back, for a fault of that time."""
        if self._oldest_held_ns is None or since_ns < self._oldest_held_ns:
            self._oldest_held_ns = since_ns

    def close(self, bound: int, cooldown: timedelta, now: datetime) -> None:
        """Everything was counted; ``bound`` is how many may be out by us."""
        self.bound = bound
        made_room, held_ns = self._released + self._deleted, self._oldest_held_ns
        if made_room and (held_ns is None or held_ns > unix_ns(max(made_room))):
            made_room = self._deleted  # nothing was held at the latest release: the brake had not tripped
        if not made_room or now - max(made_room) >= cooldown:
            return
        latest_first = sorted(made_room, reverse=True)
        self.cooling = _in_a_row(latest_first, cooldown)
        self.deleted = sum(at >= latest_first[self.cooling - 1] for at in self._deleted)
        self.rearms_at = latest_first[0] + cooldown

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


def _in_a_row(latest_first: list[datetime], cooldown: timedelta) -> int:
    """How many follow each other closely enough to be one piece of work, the latest of it in front."""
    for number, (later, earlier) in enumerate(pairwise(latest_first), start=1):
        if later - earlier > cooldown:
            return number
    return len(latest_first)
