"""The brake: a bound on how many nodes we may have out of service (design rule 19).

It only ever stops *adding*; a release never passes through here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from konductor_like.model import (
    BrakeState,
    Held,
    Incident,
    IncidentState,
    NodeState,
    Refusal,
    Severity,
    Snapshot,
)
from konductor_like.policy.rules import Rules


def bound(gpu_nodes: int, rules: Rules) -> int:
    """How many nodes may be out by us: the percentage, never below one, within the absolute cap."""
    share = max(1, math.floor(gpu_nodes * rules.brake_max_percent / 100))
    return share if rules.brake_max_nodes is None else min(share, rules.brake_max_nodes)


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may be tainted now, and why the others may not."""

    admitted: frozenset[str]
    refused: Mapping[str, Refusal]
    brake: BrakeState


def admit(candidates: Mapping[str, Incident], snapshot: Snapshot, rules: Rules, now: datetime) -> Admission:  # noqa: ARG001  # the rate will need it
    """Choose which candidates (node to gravest incident) may be tainted now: fatal first, then the oldest.

    A node already out, or perhaps out because its write was never answered, adds nothing and always passes.
    """
    nodes = snapshot.nodes
    out = {name for name, state in nodes.items() if state.tainted} | set(snapshot.in_flight)
    gpu_nodes = gpu_node_names(nodes) | candidates.keys()
    limit = bound(len(gpu_nodes), rules)
    admitted: set[str] = set()
    held: list[Held] = []
    for name in sorted(candidates, key=lambda name: (urgency(candidates[name]), name)):
        if name in out or len(out) < limit:
            admitted.add(name)
            out.add(name)
        else:
            held.append(Held(name, candidates[name]))
    refused = {item.node: Refusal.BRAKE for item in held}
    return Admission(frozenset(admitted), refused, BrakeState(len(gpu_nodes), len(out), limit, tuple(held)))


def brake_state(nodes: Mapping[str, NodeState], rules: Rules, ambiguous: Collection[str] = ()) -> BrakeState:
    """The brake as the records on the nodes tell it, for people to look at.

    What stands against an ``ambiguous`` name is not the brake's to hold.
    """
    out = sum(state.tainted for state in nodes.values())
    gpu_nodes = gpu_node_names(nodes)
    held = [
        Held(name, min(waiting, key=urgency))
        for name, state in nodes.items()
        if not (state.tainted or state.opted_out or state.blocked or name in ambiguous)
        and (waiting := held_incidents(state.record.incidents))
    ]
    held.sort(key=lambda item: (urgency(item.incident), item.node))
    return BrakeState(len(gpu_nodes), out, bound(len(gpu_nodes), rules), tuple(held))


def held_incidents(incidents: Iterable[Incident]) -> list[Incident]:
    """Those that the brake holds."""
    return [incident for incident in incidents if incident.state is IncidentState.HELD]


def gpu_node_names(nodes: Mapping[str, NodeState]) -> set[str]:
    """The denominator: CPU nodes do not count, a node out of service for another reason does."""
    return {name for name, state in nodes.items() if state.is_gpu_node}


def urgency(incident: Incident) -> tuple[bool, int]:
    """Sort key: fatal before test, then the oldest first."""
    return (incident.severity is not Severity.FATAL, incident.first_ns)
