"""Looking once over all nodes: who is out, who came back lately, who waits.

Everything from their records; of Nodes that are gone, from the Lease.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from konductor_like.model import (
    ControlAct,
    Controls,
    Incident,
    IncidentKey,
    IncidentState,
    NodeState,
    Pace,
    PoolBrake,
    Refusal,
    Role,
    Severity,
)
from konductor_like.policy.release import unix_ns
from konductor_like.policy.room import Room, share
from konductor_like.policy.rules import Rules

JOINING = timedelta(minutes=30)
"""A Node younger than this may well not be Ready yet: a fleet that grows shall not trip the brake."""

Settling = Mapping[str, Collection[IncidentKey]]
"""By node, what waits a few seconds by its rule and not for the brake."""
NOTHING_SETTLES: Settling = {}


@dataclass(slots=True)
class Census:
    """What the brake must know of the nodes."""

    fleet: Room = field(default_factory=Room)
    pools: dict[str, Room] = field(default_factory=dict)
    """Where pools have a bound of their own."""
    waiting: dict[str, Incident] = field(default_factory=dict)
    """By node, the gravest of what an earlier decision held back."""
    out: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    tainted_at: list[datetime] = field(default_factory=list)
    """When nodes were tainted within the rate's window."""
    unrecorded: int = 0
    """Taints that no record shows yet."""

    def rooms(self, pool: str | None) -> tuple[Room, ...]:
        """The rooms that a node of this pool needs a place in."""
        own = None if pool is None else self.pools.get(pool)
        return (self.fleet,) if own is None else (self.fleet, own)

    def refusal(self, state: NodeState) -> Refusal | None:
        """Why this node may not be tainted on top of the others, if it may not."""
        is_away = state.name in self.away
        found = [room.refusal(is_away=is_away) for room in self.rooms(state.pool)]
        return Refusal.BRAKE if Refusal.BRAKE in found else next((why for why in found if why), None)

    def take(self, state: NodeState) -> None:
        """This node is tainted as well."""
        for room in self.rooms(state.pool):
            room.take(is_away=state.name in self.away)
        self.away.discard(state.name)
        self.out.add(state.name)
        self.unrecorded += 1

    def pool_brakes(self) -> tuple[PoolBrake, ...]:
        """The pools for people to look at."""
        return tuple(
            PoolBrake(name, room.gpu_nodes, room.ours, room.bound)
            for name, room in sorted(self.pools.items())
        )

    def pace(self, rules: Rules) -> Pace | None:
        """How many taints there were lately, where that is bounded."""
        if rules.brake_rate_nodes is None:
            return None
        window = rules.brake_rate_window_seconds
        oldest = min(self.tainted_at, default=None)
        frees_at = None if oldest is None else oldest + timedelta(seconds=window)
        return Pace(len(self.tainted_at) + self.unrecorded, rules.brake_rate_nodes, window, frees_at)


def urgency(incident: Incident) -> tuple[bool, int]:
    """Sort key: fatal before test, then the oldest first."""
    return (incident.severity is not Severity.FATAL, incident.first_ns)


def take_census(
    nodes: Mapping[str, NodeState],
    rules: Rules,
    now: datetime,
    *,
    steering: Controls,
    in_flight: Collection[str] = (),
    ambiguous: Collection[str] = (),
    suspected: Collection[str] = (),
    settling: Settling = NOTHING_SETTLES,
) -> Census:
    """Count every node once.

    ``in_flight`` may have been tainted although no answer came, ``ambiguous`` names are not the brake's to
    hold, nor is what is ``settling``; ``suspected`` nodes have a GPU by the evidence at hand.
    """
    census = Census()
    rearmed = _rearmed(steering, now)
    pace_span = _pace_span(rules, rearmed, now)
    joined_ns = unix_ns(now - JOINING)
    for name, state in nodes.items():
        is_out = state.tainted or name in in_flight
        record = state.record
        if not (is_out or state.is_gpu_node or name in suspected or record.tainted_at or record.stints):
            continue
        is_away = (
            rules.brake_count_unavailable
            and not is_out
            and (state.unschedulable or not state.ready)
            and state.created_ns <= joined_ns
        )
        if is_out:
            census.out.add(name)
        elif is_away:
            census.away.add(name)
        held = [] if name in ambiguous else _held(state, settling.get(name, ()))
        held_ns: int | None = None
        if held:
            census.waiting[name] = min(held, key=urgency)
            # The oldest says since when, not the gravest; until it had settled, the brake did not hold it.
            held_ns = min(i.first_ns + round(rules.escalation(i.key.rule).settle_seconds * 1e9) for i in held)
        came_back = None if is_out or is_away else _came_back(state, now, rearmed)
        if record.tainted_at is not None or record.stints:
            _note_taints(census, state, *pace_span)
        for room in _rooms(census, state, rules):
            room.gpu_nodes += state.is_gpu_node or name in suspected
            room.ours += is_out
            room.away += is_away
            if held_ns is not None:
                room.held(held_ns)
            if came_back is not None:
                room.released(came_back)
    census.unrecorded = sum(not nodes[name].tainted for name in in_flight if name in nodes)
    if steering.purge is not None and (rearmed is None or steering.purge.at > rearmed):
        _note_purge(census, steering.purge, rules, now)
    _note_deleted(census, steering, nodes, rules, now)
    _close(census, rules, now)
    return census


def bound(gpu_nodes: int, rules: Rules) -> int:
    """How many nodes may be out by us: the percentage, never below one, within the absolute cap."""
    most = share(gpu_nodes, rules.brake_max_percent)
    return most if rules.brake_max_nodes is None else min(most, rules.brake_max_nodes)


def waiting(state: NodeState, settling: Collection[IncidentKey] = ()) -> Incident | None:
    """The gravest incident that was held back, of a node that may be tainted at all."""
    return min(_held(state, settling), key=urgency, default=None)


def _held(state: NodeState, settling: Collection[IncidentKey]) -> list[Incident]:
    if not state.record.incidents or state.tainted or state.opted_out or state.blocked or not state.selected:
        return []
    return [
        i
        for i in state.record.incidents
        if i.state is IncidentState.HELD and i.role is not Role.COLLATERAL and i.key not in settling
    ]


def _rooms(census: Census, state: NodeState, rules: Rules) -> tuple[Room, ...]:
    if rules.brake_pool_max_percent is None or state.pool is None:
        return (census.fleet,)
    return (census.fleet, census.pools.setdefault(state.pool, Room()))


def _note_purge(census: Census, purge: ControlAct, rules: Rules, now: datetime) -> None:
    """Count the nodes that remember nothing; of which pools they were, nobody knows, so it is of all."""
    if abs(now - purge.at) < timedelta(seconds=rules.brake_cooldown_seconds):
        for room in (census.fleet, *census.pools.values()):
            room.released(min(purge.at, now), purge.nodes)


def _note_deleted(
    census: Census, steering: Controls, nodes: Mapping[str, NodeState], rules: Rules, now: datetime
) -> None:
    """Count the Nodes that were deleted with our taint, but those whose machine has registered again."""
    rearmed = _rearmed(steering, now)
    since, until = _pace_span(rules, rearmed, now)
    cooldown = timedelta(seconds=rules.brake_cooldown_seconds)
    for each in steering.tainted:
        back = nodes.get(each.name)
        if each.deleted_at is None or (back is not None and back.machine.same_boot(each.machine)):
            continue
        if since < each.tainted_at <= until:
            census.tainted_at.append(each.tainted_at)
        if each.deleted_at - now < cooldown and (rearmed is None or each.deleted_at > rearmed):
            for room in census.rooms(each.pool):
                room.lost(min(each.deleted_at, now))


def _rearmed(steering: Controls, now: datetime) -> datetime | None:
    """When a person last reset the brake."""
    return (
        steering.brake_reset.at
        if steering.brake_reset is not None and steering.brake_reset.at <= now
        else None
    )


def _pace_span(rules: Rules, rearmed: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """After when, and up to when, a taint counts for the pace.

    What lies further ahead than the window is long was written by a clock that was wrong.
    """
    window = timedelta(seconds=rules.brake_rate_window_seconds)
    return (now - window if rearmed is None else max(now - window, rearmed)), now + window


def _close(census: Census, rules: Rules, now: datetime) -> None:
    cooldown = timedelta(seconds=rules.brake_cooldown_seconds)
    census.fleet.close(bound(census.fleet.gpu_nodes, rules), cooldown, now)
    for room in census.pools.values():
        room.close(share(room.gpu_nodes, rules.brake_pool_max_percent or 0.0), cooldown, now)


def _came_back(state: NodeState, now: datetime, rearmed: datetime | None) -> datetime | None:
    """When a node in service was last released, if it ever was out; a reset of the brake forgets it."""
    record = state.record
    if record.tainted_at is not None:
        at = now  # its taint is gone, and the release is written just now
    elif record.stints:
        at = min(record.stints[0].released_at, now)
    else:
        return None
    return None if rearmed is not None and at <= rearmed else at


def _note_taints(census: Census, state: NodeState, since: datetime, until: datetime) -> None:
    record = state.record
    times = [stint.tainted_at for stint in record.stints]
    if record.tainted_at is not None:
        times.append(record.tainted_at)
    census.tainted_at.extend(at for at in times if since < at <= until)
