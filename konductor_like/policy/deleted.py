"""Which Nodes bear our taint, and which were deleted with it: a deleted Node takes its record along.

So the brake is told of them by whoever watches. A Node that is made anew under the name is another one: it
has a UID of its own, and its predecessor counts on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from konductor_like.model import NodeState, TaintedNode
from konductor_like.policy.rules import Rules


def follow(
    before: Iterable[TaintedNode],
    nodes: Mapping[str, NodeState],
    rules: Rules,
    now: datetime,
    in_flight: Collection[str] = (),
) -> tuple[TaintedNode, ...]:
    """What was known ``before``, brought up to date: first the Nodes with our taint, then the deleted.

    ``in_flight`` names nodes that may have been tainted although no answer came. A deletion is remembered for
    as long as it may count for the cool-down or the pace. A machine that is deleted twice counts once.
    """
    known = {each.machine.node_uid: each for each in before if each.deleted_at is None}
    kept = timedelta(seconds=max(rules.brake_cooldown_seconds, rules.brake_rate_window_seconds))
    deleted = [each for each in before if each.deleted_at is not None and abs(now - each.deleted_at) < kept]
    for each in known.values():
        state = nodes.get(each.name)
        if state is None or state.machine.node_uid != each.machine.node_uid:
            deleted = [other for other in deleted if not other.machine.same_boot(each.machine)]
            deleted.append(replace(each, deleted_at=now))
    tainted = [
        _noted(state, known.get(state.machine.node_uid), now)
        for name, state in nodes.items()
        if state.tainted or name in in_flight
    ]
    return (*tainted, *deleted)


def _noted(state: NodeState, before: TaintedNode | None, now: datetime) -> TaintedNode:
    tainted_at = state.record.tainted_at or (now if before is None else before.tainted_at)
    return TaintedNode(state.name, state.machine, tainted_at, state.pool)
