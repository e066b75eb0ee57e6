"""Brake and pause: no controller adds a taint beyond what it knew to be allowed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from konductor_like.model import NodeState
from konductor_like.policy.brake import bound, share

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World


class Brake:
    """Judges every taint that a controller adds; ``turn`` is after how many steps it began to decide."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_hand: dict[str, int] = {}
        """By node, the step at which a person tainted it."""
        self._paused: int | None = None
        """The step at which a person paused tainting."""
        self._paused_until: datetime | None = None

    def person_taints(self, name: str) -> None:
        """A person took a node out; no brake holds them."""
        self._by_hand[name] = self._world.taken

    def person_pauses(self, until: datetime | None) -> None:
        self._paused, self._paused_until = self._world.taken, until

    def person_resumes(self) -> None:
        """A person ended the pause; or nobody can say whether there is one."""
        self._paused = None

    def broken_by(self, process: Process, before: NodeState, after: NodeState, turn: int) -> Iterator[str]:
        """What this taint breaks, in words."""
        rules, nodes = self._world.settings.rules(), {**process.store.snapshot(), after.name: before}
        if self._pauses(turn) and process.reads_lease():
            yield f"{process.name} taints {after.name} although tainting is paused"
        if after.name in process.perhaps_out():
            return  # it was counted as out already
        # What was decided before a person took a node out, and is tried again, was within the bound then.
        known = -1 if process.waits_for(after.name) else turn
        unseen = self._by_hand.keys() - process.seen_out
        out = {
            name
            for name, state in nodes.items()
            if state.tainted and self._by_hand.get(name, -2) < known and name not in unseen
        } | {after.name}
        most = bound(len(nodes), rules)
        if len(out) > most:
            yield f"{process.name} takes {len(out)} nodes out, the brake allows {most}"
        if rules.brake_pool_max_percent is not None and after.pool is not None:
            pool = {name for name, state in nodes.items() if state.pool == after.pool}
            most_of_pool = share(len(pool), rules.brake_pool_max_percent)
            if len(out & pool) > most_of_pool:
                yield f"{process.name} takes {len(out & pool)} of {after.pool} out, it allows {most_of_pool}"

    def _pauses(self, turn: int) -> bool:
        """Whether there was a pause when the turn began, and still is."""
        if self._paused is None or self._paused >= turn:
            return False
        until = self._paused_until
        return until is None or (self._world.clock.moment() < until and not self._world.clocks_differ)
