"""What keeps a controller from adding taints: the brake with its pools, its pace and its cool-down.

Said again, in other words than the program's own, from what the process knew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from konductor_like.model import IncidentState, NodeState
from konductor_like.model.time import unix_ns
from konductor_like.policy.brake import bound, share
from tests.chaos.machines import RULES_THAT_SETTLE

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World


@dataclass(frozen=True, slots=True)
class _Lost:
    """A Node that was deleted with our taint."""

    state: NodeState
    at: datetime
    at_seconds: float
    """By the clock that never jumps."""
    seen_by: frozenset[Process]
    """Who had seen it out in this term of theirs."""


class Restraint:
    """Judges every taint that a controller adds; ``turn`` is after how many steps it began to decide."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_hand: dict[str, int] = {}
        """By node, the step at which a person tainted it."""
        self._released: dict[str, int] = {}
        """By node, the step at which a person released it."""
        self._paused: int | None = None
        """The step at which a person paused tainting."""
        self._paused_until: datetime | None = None
        self._rearmed = datetime.min.replace(tzinfo=UTC)
        self._lost: list[_Lost] = []

    def person_taints(self, name: str) -> None:
        """A person took a node out; no brake holds them."""
        self._by_hand[name] = self._world.taken

    def person_releases(self, name: str) -> None:
        """A person let a node go."""
        self._released[name] = self._world.taken

    def node_deleted(self, state: NodeState) -> None:
        """Somebody deletes a Node with our taint."""
        processes = (each for each in self._world.processes if each is not None and each.leading)
        seen_by = frozenset(each for each in processes if state.machine.node_uid in each.seen_out_uids)
        clock = self._world.clock
        # A machine that came back in the same boot took its own place, and leaves it once.
        self._lost = [each for each in self._lost if not each.state.machine.same_boot(state.machine)]
        self._lost.append(_Lost(state, clock.moment(), clock.seconds(), seen_by))

    def person_pauses(self, until: datetime | None) -> None:
        """A person paused tainting."""
        self._paused, self._paused_until = self._world.taken, until

    def person_resumes(self) -> None:
        """A person ended the pause; or nobody can say whether there is one."""
        self._paused = None

    def person_rearms(self, at: datetime) -> None:
        """A person reset the brake: what was before counts for neither pace nor cool-down."""
        self._rearmed = at

    def _pauses(self, turn: int) -> bool:
        """Whether there was a pause when the turn began, and still is."""
        if self._paused is None or self._paused >= turn:
            return False
        until = self._paused_until
        return until is None or (self._world.clock.moment() < until and not self._world.clocks_differ)

    def broken_by(self, process: Process, before: NodeState, after: NodeState, turn: int) -> Iterator[str]:
        """What this taint breaks, in words."""
        rules, nodes = self._world.settings.rules(), {**process.store.snapshot(), after.name: before}
        # What was decided before a person took a node out, and is tried again, was within the bound then.
        known = -1 if process.waits_for(after.name) else turn
        unseen = self._by_hand.keys() - process.seen_out
        out = {
            name
            for name, state in nodes.items()
            if state.tainted and self._by_hand.get(name, -2) < known and name not in unseen
        } | {after.name}
        if self._pauses(turn) and process.reads_lease():
            yield f"{process.name} taints {after.name} although tainting is paused"
        if after.name in process.perhaps_out():
            return  # it was counted as out already
        most = bound(len(nodes), rules)
        if len(out) > most:
            yield f"{process.name} takes {len(out)} nodes out, the brake allows {most}"
        if rules.brake_pool_max_percent is not None and after.pool is not None:
            pool = {name for name, state in nodes.items() if state.pool == after.pool}
            most_of_pool = share(len(pool), rules.brake_pool_max_percent)
            if len(out & pool) > most_of_pool:
                yield f"{process.name} takes {len(out & pool)} of {after.pool} out, it allows {most_of_pool}"
        lost = [] if process.waits_for(after.name) else self._known_lost(process, nodes)
        cooldown_seconds = rules.brake_cooldown_seconds
        cooling = sum(self._world.clock.seconds() - each.at_seconds < cooldown_seconds for each in lost)
        if cooling and len(out) + cooling > most:
            yield f"{process.name} takes {len(out)} out beside {cooling} deleted, the brake allows {most}"
        now = after.record.tainted_at
        if now is None:
            return
        if rules.brake_rate_nodes is not None:
            since = max(now - timedelta(seconds=rules.brake_rate_window_seconds), self._rearmed)
            gone = [each.state.record.tainted_at or datetime.min.replace(tzinfo=UTC) for each in lost]
            found = [at for state in nodes.values() for at in _tainted(state)]
            lately = [at for at in (*found, *gone) if since < at <= now]
            if len(lately) >= rules.brake_rate_nodes:
                yield f"{process.name} taints {len(lately) + 1} nodes within the rate's window"
        latest = self._latest_release(nodes.values(), turn, now)
        cooldown = timedelta(seconds=rules.brake_cooldown_seconds)
        if latest is None or len(out) < most or now - latest >= cooldown or process.waits_for(after.name):
            return
        if any(_held_at(state, unix_ns(latest)) for state in nodes.values()):
            yield f"{process.name} uses the room of a release {(now - latest).seconds} s after it"

    def _known_lost(self, process: Process, nodes: Mapping[str, NodeState]) -> list[_Lost]:
        """What the process saw out and then saw to be gone, before its turn began; clocks that jump aside."""
        if self._world.clocks_differ:
            return []
        return [
            each
            for each in self._lost
            if process in each.seen_by
            and each.state.machine.node_uid not in process.seen_uids
            and each.at > self._rearmed
            and not (
                each.state.name in nodes and nodes[each.state.name].machine.same_boot(each.state.machine)
            )
        ]

    def _latest_release(self, states: Collection[NodeState], turn: int, now: datetime) -> datetime | None:
        """When a node in service was last released, as far as the process knew."""
        found = (
            state.record.quarantines[0].released_at
            for state in states
            if state.record.quarantines and not state.tainted and self._released.get(state.name, turn) < turn
        )
        return max((at for at in found if self._rearmed < at <= now), default=None)


def _held_at(state: NodeState, at_ns: int) -> bool:
    """Whether the brake held the node back at that time, and does still; what settles, it may not have."""
    held = (i for i in state.record.incidents if i.state is IncidentState.HELD)
    since_ns = (i.first_ns for i in held if i.key.rule not in RULES_THAT_SETTLE)
    return not (state.tainted or state.blocked) and any(ns <= at_ns for ns in since_ns)


def _tainted(state: NodeState) -> Iterator[datetime]:
    yield from (stint.tainted_at for stint in state.record.quarantines)
    if state.record.tainted_at is not None:
        yield state.record.tainted_at
