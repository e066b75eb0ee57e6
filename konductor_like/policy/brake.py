"""The brake: a bound on how many nodes we may have out of service (design rule 19).

It only ever stops *adding*; a release never passes through here. It has no state of its own: what it must
remember stands in the nodes' records, and on the Lease what people told it and which tainted Nodes are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from konductor_like.model import (
    BrakeState,
    ControlAct,
    Controls,
    Held,
    Incident,
    NodeState,
    Refusal,
    Snapshot,
)
from konductor_like.policy.census import (
    NOTHING_SETTLES,
    Census,
    Settling,
    bound,
    take_census,
    urgency,
)
from konductor_like.policy.release import unix_ns
from konductor_like.policy.roles import settling as settling_of
from konductor_like.policy.rules import Rules

__all__ = ["Admission", "admit", "bound", "brake_state", "urgency"]


UNSTEERED = Controls()


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may be tainted now, and why the others may not."""

    admitted: frozenset[str]
    refused: Mapping[str, Refusal]
    brake: BrakeState


def admit(
    candidates: Mapping[str, Incident],
    snapshot: Snapshot,
    rules: Rules,
    now: datetime,
    settling: Settling = NOTHING_SETTLES,
) -> Admission:
    """Choose which candidates (node to gravest incident) may be tainted now: fatal first, then the oldest.

    A node already out, or perhaps out because its write was never answered, adds nothing and passes unless
    tainting is paused. One that its pool has no room for leaves its place to the next. What is ``settling``
    waits for itself: it is not held, and trips nothing.
    """
    census = take_census(
        snapshot.nodes,
        rules,
        now,
        steering=snapshot.controls,
        in_flight=snapshot.in_flight,
        ambiguous=snapshot.ambiguous,
        suspected=candidates.keys(),
        settling=settling,
    )
    pause = _holding(snapshot.controls, now)
    left = _left(census, rules)
    admitted: set[str] = set()
    held: list[Held] = []
    for name in sorted(candidates, key=lambda name: (urgency(candidates[name]), name)):
        state = snapshot.nodes[name]
        why = Refusal.PAUSED if pause else _refusal(census, state, left)
        if why is not None:
            held.append(Held(name, candidates[name], why, state.pool))
            continue
        admitted.add(name)
        if name not in census.out:
            census.take(state)
            left = None if left is None else left - 1
    refused = {item.node: item.why for item in held if item.why is not None}
    return Admission(frozenset(admitted), refused, _state(census, rules, tuple(held), pause))


def brake_state(
    nodes: Mapping[str, NodeState],
    rules: Rules,
    ambiguous: Collection[str] = (),
    *,
    steering: Controls = UNSTEERED,
    now: datetime,
) -> BrakeState:
    """The brake as the records on the nodes tell it, for people to look at.

    What stands against an ``ambiguous`` name is not the brake's to hold, nor what settles by ``rules``.
    """
    now_ns = unix_ns(now)
    settling = {
        name: keys
        for name, state in nodes.items()
        if state.record.incidents and (keys := settling_of(state.record, state, (), rules, now_ns))
    }
    census = take_census(nodes, rules, now, steering=steering, ambiguous=ambiguous, settling=settling)
    pause, left = _holding(steering, now), _left(census, rules)
    held = [
        Held(
            name,
            incident,
            Refusal.PAUSED if pause else _refusal(census, nodes[name], left),
            nodes[name].pool,
        )
        for name, incident in census.waiting.items()
    ]
    held.sort(key=lambda item: (urgency(item.incident), item.node))
    return _state(census, rules, tuple(held), pause)


def _holding(steering: Controls, now: datetime) -> ControlAct | None:
    return steering.pause if steering.pause is not None and steering.pause.holds(now) else None


def _left(census: Census, rules: Rules) -> int | None:
    """How many taints the rate still allows; None for any number."""
    pace = census.pace(rules)
    return None if pace is None else pace.most - pace.taints


def _refusal(census: Census, state: NodeState, left: int | None) -> Refusal | None:
    if state.name in census.out:
        return None
    return census.refusal(state) or (Refusal.RATE if left is not None and left <= 0 else None)


def _state(census: Census, rules: Rules, held: tuple[Held, ...], pause: ControlAct | None) -> BrakeState:
    fleet, rooms = census.fleet, (census.fleet, *census.pools.values())
    return BrakeState(
        gpu_nodes=fleet.gpu_nodes,
        out=fleet.ours,
        bound=fleet.bound,
        held=held,
        unavailable=fleet.away,
        pools=census.pool_brakes(),
        pace=census.pace(rules),
        cooling=max(room.cooling for room in rooms),
        deleted=max(room.deleted for room in rooms),
        rearms_at=max((room.rearms_at for room in rooms if room.rearms_at), default=None),
        pause=pause,
    )
