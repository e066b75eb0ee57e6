"""The brake: a limit on how many nodes the controller takes out of service (rule 19).

``decide`` asks the brake which taints may be added now; a release never asks it. The brake keeps no state. It
reads the nodes' records and the Lease (operators' controls, and tainted Nodes that were deleted).

Nodes that are out of service for a test (Xid 14) alone take a place from further tests only, and none from a
fault.

Three kinds of nodes use up the limit of the fleet or of a pool: nodes tainted by the controller; nodes that
are unavailable for other reasons, where the settings count these; and nodes in the cool-down, which returned
a moment ago. A released node is in the cool-down only if the brake was holding a node back at the release.
Without the cool-down, an operator who undoes a false alarm would see the brake admit the next taints at once.
A tainted Node that was deleted always has a cool-down: otherwise an autoscaler that removes tainted Nodes
could empty the fleet.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise

from konductor_like.model import (
    BrakeState,
    Control,
    ControlAct,
    Controls,
    Held,
    Incident,
    IncidentKey,
    IncidentState,
    NodeState,
    Pace,
    PoolBrake,
    Role,
    Severity,
    SkipReason,
    Snapshot,
    TaintedNode,
)
from konductor_like.model.time import CLOCKS_AGREE_SECONDS, span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.correlation import deferred_of
from konductor_like.policy.node.health import only_tests

NEW_NODE_AGE = timedelta(minutes=30)
"""Age below which a Node is not counted as unavailable: new Nodes are often not Ready yet."""

DeferredKeys = Mapping[str, Collection[IncidentKey]]
"""By node, the keys of deferred incidents; the brake does not hold these."""
NOTHING_DEFERRED: DeferredKeys = {}
NO_CONTROLS = Controls()


@dataclass(slots=True)
class Budget:
    """The limit of the fleet or of a pool, and the nodes that use it up."""

    gpu_nodes: int = 0
    out: int = 0
    """Nodes that carry our taint, or may carry it because a write had no answer."""
    tests: int = 0
    """Number of the nodes in ``out`` that are there for a test (Xid 14) alone: no fault waits for them."""
    away: int = 0
    """Nodes that are unavailable for other reasons."""
    bound: int = 0
    """Number of nodes that the controller may have tainted at a time."""
    cooling: int = 0
    """Nodes in the cool-down: released or deleted a moment ago, their places still empty."""
    deleted: int = 0
    """Number of the nodes in ``cooling`` that were deleted."""
    rearms_at: datetime | None = None
    released_at: list[datetime] = field(default_factory=list)
    """The times at which nodes that are now in service returned; some may be a little in the future."""
    deleted_at: list[datetime] = field(default_factory=list)
    """The times at which Nodes tainted by the controller were deleted."""
    held_since_ns: int | None = None
    """Loki timestamp of the oldest fault, tests left out, for which the brake holds a node."""

    def cool_down(self, cooldown: timedelta, now: datetime) -> None:
        """Set ``cooling``: the places of recently released and deleted nodes stay empty for the cool-down.

        A further release or deletion within the cool-down starts it again for all of them.
        """
        made_room, held_ns = self.released_at + self.deleted_at, self.held_since_ns
        if made_room and (held_ns is None or held_ns > unix_ns(max(made_room))):
            made_room = self.deleted_at  # at the latest release the brake held nothing
        if not made_room or now - max(made_room) >= cooldown:
            return
        latest_first = sorted((min(at, now) for at in made_room), reverse=True)
        gaps = (later - earlier > cooldown for later, earlier in pairwise(latest_first))
        self.cooling = next((n for n, too_long in enumerate(gaps, start=1) if too_long), len(latest_first))
        self.deleted = sum(at >= latest_first[self.cooling - 1] for at in self.deleted_at)
        self.rearms_at = max(made_room) + cooldown


@dataclass(slots=True)
class FleetCount:
    """Counts of all nodes, each counted once, and the answer whether one more node may be tainted."""

    policy: PolicyConfig
    now: datetime
    pause: ControlAct | None
    reset_at: datetime | None
    """When a person last ended the cool-down: releases, deletions and taints before it do not count."""
    fleet: Budget = field(default_factory=Budget)
    pools: dict[str, Budget] = field(default_factory=dict)
    """By name; empty unless the settings limit pools."""
    held: dict[str, Incident] = field(default_factory=dict)
    """By node, the most urgent incident that an earlier decision held back."""
    out: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    tainted_at: list[datetime] = field(default_factory=list)
    """The times of the taints within the rate's window."""
    tested_at: list[datetime] = field(default_factory=list)
    """The same for nodes that are out for a test alone."""
    unrecorded: int = 0
    """Number of taints that no record shows yet."""
    unrecorded_tests: int = 0
    """Number of these for a test."""

    def budgets(self, pool: str | None) -> tuple[Budget, ...]:
        """Return the budgets that limit a node of this pool."""
        own = None if pool is None else self.pools.get(pool)
        return (self.fleet,) if own is None else (self.fleet, own)

    def refusal(self, state: NodeState, incident: Incident) -> SkipReason | None:
        """Return why the brake does not admit this node for its gravest incident; None if it may be tainted.

        A fault takes its place among the other faults; a test only if faults and tests leave one.
        """
        if self.pause is not None:
            return SkipReason.PAUSED
        if state.name in self.out:
            return None
        is_test = incident.severity is Severity.TEST
        is_cooling = False
        for budget in self.budgets(state.pool):
            taken = budget.out + (0 if state.name in self.away else budget.away)
            taken -= 0 if is_test else budget.tests
            if taken >= budget.bound:
                return SkipReason.BRAKE
            is_cooling = is_cooling or taken + budget.cooling >= budget.bound
        if is_cooling:
            return SkipReason.COOLDOWN
        pace = self.pace()
        if pace is not None and pace.taints - (0 if is_test else pace.tests) >= pace.most:
            return SkipReason.RATE
        return None

    def take(self, state: NodeState, incident: Incident) -> None:
        """Count this node as tainted for this incident."""
        if state.name in self.out:
            return
        is_test = incident.severity is Severity.TEST
        for budget in self.budgets(state.pool):
            budget.out += 1
            budget.tests += is_test and state.name not in self.away
            budget.away -= state.name in self.away
        self.away.discard(state.name)
        self.out.add(state.name)
        self.unrecorded += 1
        self.unrecorded_tests += is_test

    def pace(self) -> Pace | None:
        """Return the taints within the rate's window; None without a rate limit."""
        if self.policy.brake_rate_nodes is None:
            return None
        window = self.policy.brake_rate_window_seconds
        oldest = min(self.tainted_at + self.tested_at, default=None)
        frees_at = None if oldest is None else oldest + timedelta(seconds=window)
        tests = len(self.tested_at) + self.unrecorded_tests
        taints = len(self.tainted_at) + len(self.tested_at) + self.unrecorded
        return Pace(taints, self.policy.brake_rate_nodes, window, frees_at, tests)

    def state(self, held: Iterable[Held]) -> BrakeState:
        """Return the brake as commands and metrics show it."""
        budgets = (self.fleet, *self.pools.values())
        return BrakeState(
            gpu_nodes=self.fleet.gpu_nodes,
            out=self.fleet.out,
            bound=self.fleet.bound,
            held=tuple(held),
            unavailable=self.fleet.away,
            pools=tuple(
                PoolBrake(name, budget.gpu_nodes, budget.out, budget.bound, budget.tests)
                for name, budget in sorted(self.pools.items())
            ),
            pace=self.pace(),
            cooling=max(budget.cooling for budget in budgets),
            deleted=max(budget.deleted for budget in budgets),
            rearms_at=max((budget.rearms_at for budget in budgets if budget.rearms_at), default=None),
            pause=self.pause,
            tests=self.fleet.tests,
        )

    def note_held(self, state: NodeState, deferred: Collection[IncidentKey]) -> None:
        """Count the incidents that an earlier decision held back on this node."""
        held = held_back(state, deferred)
        if not held:
            return
        self.held[state.name] = min(held, key=lambda incident: incident.urgency)
        held = [incident for incident in held if incident.severity is not Severity.TEST]
        if not held:
            return
        # The oldest incident determines since when, not the gravest. The brake did not hold a fault while it
        # was deferred.
        since_ns = min(i.first_ns + span_ns(self.policy.escalation(i.key.rule).defer_seconds) for i in held)
        for budget in self.budgets(state.pool):
            if budget.held_since_ns is None or since_ns < budget.held_since_ns:
                budget.held_since_ns = since_ns

    def note_times_out(self, state: NodeState, removed_at: datetime, *, in_service: bool) -> None:
        """Count the node's latest taint, and its latest return if it is in service.

        ``removed_at`` is when somebody removed the taint, if the record does not show that yet: now, or the
        first try to write it, if the API server refuses that.
        """
        record = state.record
        claimed = [] if record.life.tainted_at is None else [record.life.tainted_at]
        times = [quarantine.tainted_at for quarantine in record.life.quarantines]
        if only_tests(record):
            self.note_taint(claimed, self.tested_at)
            self.note_taint(times, self.tainted_at)
        else:
            self.note_taint([*claimed, *times], self.tainted_at)
        if in_service:
            # A claim (``tainted_at``) without a taint: somebody removed the taint. However often that
            # happens, the node returned once, at the first time.
            life = record.life
            at = life.first_removed_at or removed_at if claimed else life.quarantines[0].returned_at
            self.note_release(at, self.budgets(state.pool))

    def counts(self, at: datetime, span: timedelta) -> bool:
        """Whether a taint, return or deletion of this time counts; ``span`` is for how long one counts.

        A time in the future was written by a wrong clock, or by the node's own kubelet. If it is further
        ahead than the span, it does not count. If it is nearer, nobody knows whether it was written before a
        person's reset: after a reset within the last span it does not count until its time has come.
        """
        is_ahead = at > self.now + timedelta(seconds=CLOCKS_AGREE_SECONDS)
        earliest = self.now - span if is_ahead else at
        return at - self.now < span and (self.reset_at is None or earliest > self.reset_at)

    def note_release(self, at: datetime, budgets: Iterable[Budget], nodes: int = 1) -> None:
        """Count the return of ``nodes`` nodes at this time."""
        if self.counts(at, timedelta(seconds=self.policy.brake_cooldown_seconds)):
            for budget in budgets:
                budget.released_at += [at] * nodes

    def note_deleted(self, gone: TaintedNode, deleted_at: datetime) -> None:
        """Count a Node that was deleted with our taint."""
        self.note_taint([gone.tainted_at], self.tainted_at)
        if self.counts(deleted_at, timedelta(seconds=self.policy.brake_cooldown_seconds)):
            for budget in self.budgets(gone.pool):
                budget.deleted_at.append(deleted_at)

    def note_taint(self, times: Iterable[datetime], noted: list[datetime]) -> None:
        """Count the latest of one node's taints for the rate, in ``noted``.

        A node counts once, whatever its record says: its own kubelet may write the record.
        """
        window = timedelta(seconds=self.policy.brake_rate_window_seconds)
        recent = [at for at in times if self.now - at < window and self.counts(at, window)]
        noted += [max(recent)] if recent else []


def count_fleet(
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    deferred: DeferredKeys,
    candidates: Collection[str] = (),
) -> FleetCount:
    """Count every node once.

    Nodes in flight may have been tainted although no answer came. The brake holds no incident of an ambiguous
    name and none that is ``deferred``. ``candidates`` have a GPU: their new evidence shows it.
    """
    acts = {act.control: act for act in snapshot.controls.acts}
    pause, reset = acts.get(Control.PAUSE), acts.get(Control.BRAKE_RESET)
    fleet_count = FleetCount(
        policy,
        now,
        pause if pause is not None and pause.holds(now) else None,
        reset.at if reset is not None and reset.at <= now else None,
    )
    joined_ns = unix_ns(now - NEW_NODE_AGE)
    for name, state in snapshot.nodes.items():
        record = state.record
        is_out = state.tainted or name in snapshot.in_flight or state.kept_out_by is not None
        is_gpu_node = state.is_gpu_node or name in candidates
        was_out = record.life.claimed or bool(record.life.quarantines)
        if not (is_out or is_gpu_node or was_out):
            continue
        is_unavailable = (
            policy.brake_count_unavailable
            and (state.unschedulable or not state.ready)
            and state.created_ns <= joined_ns
        )
        is_away = is_unavailable and not is_out
        is_test = state.tainted and only_tests(record) and not is_unavailable
        if is_out:
            fleet_count.out.add(name)
            fleet_count.unrecorded += name in snapshot.in_flight and not state.tainted
        elif is_away:
            fleet_count.away.add(name)
        if policy.brake_pool_max_percent is not None and state.pool is not None:
            fleet_count.pools.setdefault(state.pool, Budget())
        for budget in fleet_count.budgets(state.pool):
            budget.gpu_nodes += is_gpu_node
            budget.out += is_out
            budget.tests += is_test
            budget.away += is_away
        if record.incidents and name not in snapshot.ambiguous:
            fleet_count.note_held(state, deferred.get(name, ()))
        if was_out:
            removed_at = snapshot.failing.get(name, now)
            fleet_count.note_times_out(state, removed_at, in_service=not (is_out or is_away))
    if snapshot.controls.tainted or Control.PURGE in acts:
        _count_gone(fleet_count, snapshot, acts.get(Control.PURGE))
    _set_bounds(fleet_count)
    return fleet_count


def _count_gone(fleet_count: FleetCount, snapshot: Snapshot, purge: ControlAct | None) -> None:
    """Count the nodes whose records a purge removed, or that disappeared with a deleted Node."""
    cooldown = timedelta(seconds=fleet_count.policy.brake_cooldown_seconds)
    if purge is not None and abs(fleet_count.now - purge.at) < cooldown:
        # The pools of these nodes are unknown, so they count in every pool.
        budgets = (fleet_count.fleet, *fleet_count.pools.values())
        fleet_count.note_release(purge.at, budgets, purge.nodes)
    for each in snapshot.controls.tainted:
        if each.deleted_at is not None:
            back = snapshot.nodes.get(each.name)
            if back is None or not back.machine.same_machine(each.machine):
                fleet_count.note_deleted(each, each.deleted_at)


def _set_bounds(fleet_count: FleetCount) -> None:
    policy = fleet_count.policy
    fleet_count.fleet.bound = bound(fleet_count.fleet.gpu_nodes, policy)
    for budget in fleet_count.pools.values():
        budget.bound = share(budget.gpu_nodes, policy.brake_pool_max_percent or 0.0)
    for budget in (fleet_count.fleet, *fleet_count.pools.values()):
        if budget.released_at or budget.deleted_at:
            budget.cool_down(timedelta(seconds=policy.brake_cooldown_seconds), fleet_count.now)


def bound(gpu_nodes: int, policy: PolicyConfig) -> int:
    """Return how many nodes the controller may taint: the percentage, at least 1, within the cap."""
    most = share(gpu_nodes, policy.brake_max_percent)
    return most if policy.brake_max_nodes is None else min(most, policy.brake_max_nodes)


def share(gpu_nodes: int, percent: float) -> int:
    """Return ``percent`` of the nodes, rounded down but at least 1: 20 % of 14 nodes is 2, of 3 nodes 1."""
    return max(1, math.floor(gpu_nodes * percent / 100))


def held_back(state: NodeState, deferred: Collection[IncidentKey] = ()) -> list[Incident]:
    """Return the incidents that an earlier decision held back; none for a node that may not be tainted."""
    if state.faulty or state.opted_out or state.blocked or not state.selected:
        return []
    return [
        i
        for i in state.record.incidents
        if i.state is IncidentState.HELD and i.role is not Role.COLLATERAL and i.key not in deferred
    ]


@dataclass(frozen=True, slots=True)
class Admission:
    """The nodes that may be tainted now, and why the other candidates may not."""

    admitted: frozenset[str]
    refused: Mapping[str, SkipReason]
    brake: BrakeState


def admit(
    candidates: Mapping[str, Incident],
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    deferred: DeferredKeys = NOTHING_DEFERRED,
) -> Admission:
    """Choose which candidates (node to gravest incident) may be tainted now, the most urgent first.

    A node that is counted as tainted already (it carries the taint, or a write of it had no answer) needs no
    further place and is admitted unless tainting is paused. A node whose pool is full does not keep later
    candidates of other pools out. The brake neither holds ``deferred`` incidents nor engages for them.
    """
    fleet_count = count_fleet(snapshot, policy, now, deferred, candidates.keys())
    refused: dict[str, SkipReason] = {}
    for name in sorted(candidates, key=lambda name: (candidates[name].urgency, name)):
        state, incident = snapshot.nodes[name], candidates[name]
        why = fleet_count.refusal(state, incident)
        if why is None:
            fleet_count.take(state, incident)
        else:
            refused[name] = why
    held = (
        Held(name, replace(candidates[name], state=IncidentState.HELD), why, snapshot.nodes[name].pool)
        for name, why in refused.items()
    )
    return Admission(frozenset(candidates.keys() - refused.keys()), refused, fleet_count.state(held))


def brake_state(
    nodes: Mapping[str, NodeState],
    policy: PolicyConfig,
    ambiguous: Collection[str] = (),
    *,
    controls: Controls = NO_CONTROLS,
    now: datetime,
) -> BrakeState:
    """Return the brake as computed from the nodes' records, for commands.

    The brake holds no incident of an ``ambiguous`` name, and none that ``policy`` defer.
    """
    now_ns = unix_ns(now)
    deferred = {
        name: keys
        for name, state in nodes.items()
        if state.record.incidents and (keys := deferred_of(state.record, state, (), policy, now_ns))
    }
    snapshot = Snapshot(nodes, controls=controls, ambiguous=frozenset(ambiguous))
    fleet_count = count_fleet(snapshot, policy, now, deferred)
    held = [
        Held(name, incident, fleet_count.refusal(nodes[name], incident), nodes[name].pool)
        for name, incident in fleet_count.held.items()
    ]
    return fleet_count.state(sorted(held, key=lambda item: (item.incident.urgency, item.node)))
