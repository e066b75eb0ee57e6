"""The brake: a bound on how many nodes we may have out of service (rule 19).

It only ever stops *adding*; a release never passes through here. It has no state of its own: what it must
remember stands in the nodes' records, and on the Lease what people told it and which tainted Nodes are gone.

Three kinds of nodes take the room that there is, in the fleet or in a pool: those that are out by us, those
that are out for other reasons (where they are asked to count), and those that made room a moment ago. A
release counts so once the brake holds something: an operator who undoes a false alarm shall not see the brake
fill the room at once. A tainted Node that was deleted always does: an autoscaler that removes what we taint
shall not empty the fleet.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from konductor_like.model import (
    BrakeState,
    ControlAct,
    Controls,
    Held,
    Incident,
    IncidentKey,
    IncidentState,
    NodeState,
    Pace,
    PoolBrake,
    Refusal,
    Role,
    Severity,
    Snapshot,
)
from konductor_like.model.time import span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.correlation import deferred as deferred_of

JOINING = timedelta(minutes=30)
"""A Node younger than this may well not be Ready yet: a fleet that grows shall not trip the brake."""

Deferred = Mapping[str, Collection[IncidentKey]]
"""By node, what waits a few seconds by its rule and not for the brake."""
NOTHING_DEFERRED: Deferred = {}
UNSTEERED = Controls()


@dataclass(slots=True)
class Budget:
    """How many nodes of the fleet, or of a pool, may be out, and how many are: filled, then closed."""

    gpu_nodes: int = 0
    ours: int = 0
    """Nodes that carry our taint, or may."""
    away: int = 0
    """Others that count as out."""
    bound: int = 0
    cooling: int = 0
    """Nodes whose release or deletion made room that is not used yet."""
    deleted: int = 0
    """How many of these were deleted."""
    rearms_at: datetime | None = None
    _released: list[datetime] = field(default_factory=list)
    _deleted: list[datetime] = field(default_factory=list)
    _oldest_held_ns: int | None = None

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


@dataclass(slots=True)
class FleetCount:
    """What the brake must know of the nodes."""

    fleet: Budget = field(default_factory=Budget)
    pools: dict[str, Budget] = field(default_factory=dict)
    """Where pools have a bound of their own."""
    waiting: dict[str, Incident] = field(default_factory=dict)
    """By node, the gravest of what an earlier decision held back."""
    out: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    tainted_at: list[datetime] = field(default_factory=list)
    """When nodes were tainted within the rate's window."""
    unrecorded: int = 0
    """Taints that no record shows yet."""

    def budgets(self, pool: str | None) -> tuple[Budget, ...]:
        """The budgets that a node of this pool needs a place in."""
        own = None if pool is None else self.pools.get(pool)
        return (self.fleet,) if own is None else (self.fleet, own)

    def refusal(self, state: NodeState) -> Refusal | None:
        """Why this node may not be tainted on top of the others, if it may not."""
        is_away = state.name in self.away
        found = [budget.refusal(is_away=is_away) for budget in self.budgets(state.pool)]
        return Refusal.BRAKE if Refusal.BRAKE in found else next((why for why in found if why), None)

    def take(self, state: NodeState) -> None:
        """This node is tainted as well."""
        for budget in self.budgets(state.pool):
            budget.take(is_away=state.name in self.away)
        self.away.discard(state.name)
        self.out.add(state.name)
        self.unrecorded += 1

    def pool_brakes(self) -> tuple[PoolBrake, ...]:
        """The pools for people to look at."""
        return tuple(
            PoolBrake(name, budget.gpu_nodes, budget.ours, budget.bound)
            for name, budget in sorted(self.pools.items())
        )

    def pace(self, rules: PolicyConfig) -> Pace | None:
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


def count_fleet(
    snapshot: Snapshot,
    rules: PolicyConfig,
    now: datetime,
    deferred: Deferred,
    suspected: Collection[str] = (),
) -> FleetCount:
    """Count every node once.

    Nodes in flight may have been tainted although no answer came. Ambiguous names are not the brake's to
    hold, nor is what is ``settling``; ``suspected`` nodes have a GPU by the evidence at hand.
    """
    count = FleetCount()
    nodes, controls, in_flight = snapshot.nodes, snapshot.controls, snapshot.in_flight
    rearmed = _rearmed(controls, now)
    pace_span = _pace_span(rules, rearmed, now)
    joined_ns = unix_ns(now - JOINING)
    for name, state in nodes.items():
        is_out = state.tainted or name in in_flight
        record = state.record
        if not (is_out or state.is_gpu_node or name in suspected or record.tainted_at or record.quarantines):
            continue
        is_away = (
            rules.brake_count_unavailable
            and not is_out
            and (state.unschedulable or not state.ready)
            and state.created_ns <= joined_ns
        )
        if is_out:
            count.out.add(name)
        elif is_away:
            count.away.add(name)
        held = [] if name in snapshot.ambiguous else _held(state, deferred.get(name, ()))
        held_ns: int | None = None
        if held:
            count.waiting[name] = min(held, key=urgency)
            # The oldest says since when, not the gravest; until it had settled, the brake did not hold it.
            held_ns = min(i.first_ns + span_ns(rules.escalation(i.key.rule).defer_seconds) for i in held)
        came_back = None if is_out or is_away else _came_back(state, now, rearmed)
        if record.tainted_at is not None or record.quarantines:
            _note_taints(count, state, *pace_span)
        for budget in _budgets(count, state, rules):
            budget.gpu_nodes += state.is_gpu_node or name in suspected
            budget.ours += is_out
            budget.away += is_away
            if held_ns is not None:
                budget.held(held_ns)
            if came_back is not None:
                budget.released(came_back)
    count.unrecorded = sum(not nodes[name].tainted for name in in_flight if name in nodes)
    if controls.purge is not None and (rearmed is None or controls.purge.at > rearmed):
        _note_purge(count, controls.purge, rules, now)
    _note_deleted(count, controls, nodes, rules, now)
    _close(count, rules, now)
    return count


def bound(gpu_nodes: int, rules: PolicyConfig) -> int:
    """How many nodes may be out by us: the percentage, never below one, within the absolute cap."""
    most = share(gpu_nodes, rules.brake_max_percent)
    return most if rules.brake_max_nodes is None else min(most, rules.brake_max_nodes)


def waiting(state: NodeState, deferred: Collection[IncidentKey] = ()) -> Incident | None:
    """The gravest incident that was held back, of a node that may be tainted at all."""
    return min(_held(state, deferred), key=urgency, default=None)


def _held(state: NodeState, deferred: Collection[IncidentKey]) -> list[Incident]:
    if not state.record.incidents or state.tainted or state.opted_out or state.blocked or not state.selected:
        return []
    return [
        i
        for i in state.record.incidents
        if i.state is IncidentState.HELD and i.role is not Role.COLLATERAL and i.key not in deferred
    ]


def _budgets(count: FleetCount, state: NodeState, rules: PolicyConfig) -> tuple[Budget, ...]:
    if rules.brake_pool_max_percent is None or state.pool is None:
        return (count.fleet,)
    return (count.fleet, count.pools.setdefault(state.pool, Budget()))


def _note_purge(count: FleetCount, purge: ControlAct, rules: PolicyConfig, now: datetime) -> None:
    """Count the nodes that remember nothing; of which pools they were, nobody knows, so it is of all."""
    if abs(now - purge.at) < timedelta(seconds=rules.brake_cooldown_seconds):
        for budget in (count.fleet, *count.pools.values()):
            budget.released(min(purge.at, now), purge.nodes)


def _note_deleted(
    count: FleetCount, controls: Controls, nodes: Mapping[str, NodeState], rules: PolicyConfig, now: datetime
) -> None:
    """Count the Nodes that were deleted with our taint, but those whose machine has registered again."""
    rearmed = _rearmed(controls, now)
    since, until = _pace_span(rules, rearmed, now)
    cooldown = timedelta(seconds=rules.brake_cooldown_seconds)
    for each in controls.tainted:
        back = nodes.get(each.name)
        if each.deleted_at is None or (back is not None and back.machine.same_boot(each.machine)):
            continue
        if since < each.tainted_at <= until:
            count.tainted_at.append(each.tainted_at)
        if each.deleted_at - now < cooldown and (rearmed is None or each.deleted_at > rearmed):
            for budget in count.budgets(each.pool):
                budget.lost(min(each.deleted_at, now))


def _rearmed(controls: Controls, now: datetime) -> datetime | None:
    """When a person last reset the brake."""
    reset = controls.brake_reset
    return reset.at if reset is not None and reset.at <= now else None


def _pace_span(rules: PolicyConfig, rearmed: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """After when, and up to when, a taint counts for the pace.

    What lies further ahead than the window is long was written by a clock that was wrong.
    """
    window = timedelta(seconds=rules.brake_rate_window_seconds)
    return (now - window if rearmed is None else max(now - window, rearmed)), now + window


def _close(count: FleetCount, rules: PolicyConfig, now: datetime) -> None:
    cooldown = timedelta(seconds=rules.brake_cooldown_seconds)
    count.fleet.close(bound(count.fleet.gpu_nodes, rules), cooldown, now)
    for budget in count.pools.values():
        budget.close(share(budget.gpu_nodes, rules.brake_pool_max_percent or 0.0), cooldown, now)


def _came_back(state: NodeState, now: datetime, rearmed: datetime | None) -> datetime | None:
    """When a node in service was last released, if it ever was out; a reset of the brake forgets it."""
    record = state.record
    if record.tainted_at is not None:
        at = now  # its taint is gone, and the release is written just now
    elif record.quarantines:
        at = min(record.quarantines[0].released_at, now)
    else:
        return None
    return None if rearmed is not None and at <= rearmed else at


def _note_taints(count: FleetCount, state: NodeState, since: datetime, until: datetime) -> None:
    record = state.record
    times = [each.tainted_at for each in record.quarantines]
    if record.tainted_at is not None:
        times.append(record.tainted_at)
    count.tainted_at.extend(at for at in times if since < at <= until)


def share(gpu_nodes: int, percent: float) -> int:
    """So many of these nodes, rounded down, but never below one: small fleets and pools may lose one too."""
    return max(1, math.floor(gpu_nodes * percent / 100))


def _in_a_row(latest_first: list[datetime], cooldown: timedelta) -> int:
    """How many follow each other closely enough to be one piece of work, the latest of it in front."""
    for number, (later, earlier) in enumerate(pairwise(latest_first), start=1):
        if later - earlier > cooldown:
            return number
    return len(latest_first)


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may be tainted now, and why the others may not."""

    admitted: frozenset[str]
    refused: Mapping[str, Refusal]
    brake: BrakeState


def admit(
    candidates: Mapping[str, Incident],
    snapshot: Snapshot,
    rules: PolicyConfig,
    now: datetime,
    deferred: Deferred = NOTHING_DEFERRED,
) -> Admission:
    """Choose which candidates (node to gravest incident) may be tainted now: fatal first, then the oldest.

    A node already out, or perhaps out because its write was never answered, adds nothing and passes unless
    tainting is paused. One that its pool has no room for leaves its place to the next. What is ``settling``
    waits for itself: it is not held, and trips nothing.
    """
    count = count_fleet(snapshot, rules, now, deferred, suspected=candidates.keys())
    pause = _holding(snapshot.controls, now)
    left = _left(count, rules)
    admitted: set[str] = set()
    held: list[Held] = []
    for name in sorted(candidates, key=lambda name: (urgency(candidates[name]), name)):
        state = snapshot.nodes[name]
        why = Refusal.PAUSED if pause else _refusal(count, state, left)
        if why is not None:
            held.append(Held(name, candidates[name], why, state.pool))
            continue
        admitted.add(name)
        if name not in count.out:
            count.take(state)
            left = None if left is None else left - 1
    refused = {item.node: item.why for item in held if item.why is not None}
    return Admission(frozenset(admitted), refused, _state(count, rules, tuple(held), pause))


def brake_state(
    nodes: Mapping[str, NodeState],
    rules: PolicyConfig,
    ambiguous: Collection[str] = (),
    *,
    controls: Controls = UNSTEERED,
    now: datetime,
) -> BrakeState:
    """The brake as the records on the nodes tell it, for people to look at.

    What stands against an ``ambiguous`` name is not the brake's to hold, nor what settles by ``rules``.
    """
    now_ns = unix_ns(now)
    deferred = {
        name: keys
        for name, state in nodes.items()
        if state.record.incidents and (keys := deferred_of(state.record, state, (), rules, now_ns))
    }
    snapshot = Snapshot(nodes, controls=controls, ambiguous=frozenset(ambiguous))
    count = count_fleet(snapshot, rules, now, deferred)
    pause, left = _holding(controls, now), _left(count, rules)
    held = []
    for name, incident in count.waiting.items():
        why = Refusal.PAUSED if pause else _refusal(count, nodes[name], left)
        held.append(Held(name, incident, why, nodes[name].pool))
    held.sort(key=lambda item: (urgency(item.incident), item.node))
    return _state(count, rules, tuple(held), pause)


def _holding(controls: Controls, now: datetime) -> ControlAct | None:
    return controls.pause if controls.pause is not None and controls.pause.holds(now) else None


def _left(count: FleetCount, rules: PolicyConfig) -> int | None:
    """How many taints the rate still allows; None for any number."""
    pace = count.pace(rules)
    return None if pace is None else pace.most - pace.taints


def _refusal(count: FleetCount, state: NodeState, left: int | None) -> Refusal | None:
    if state.name in count.out:
        return None
    return count.refusal(state) or (Refusal.RATE if left is not None and left <= 0 else None)


def _state(
    count: FleetCount, rules: PolicyConfig, held: tuple[Held, ...], pause: ControlAct | None
) -> BrakeState:
    fleet, budgets = count.fleet, (count.fleet, *count.pools.values())
    return BrakeState(
        gpu_nodes=fleet.gpu_nodes,
        out=fleet.ours,
        bound=fleet.bound,
        held=held,
        unavailable=fleet.away,
        pools=count.pool_brakes(),
        pace=count.pace(rules),
        cooling=max(budget.cooling for budget in budgets),
        deleted=max(budget.deleted for budget in budgets),
        rearms_at=max((budget.rearms_at for budget in budgets if budget.rearms_at), default=None),
        pause=pause,
    )
