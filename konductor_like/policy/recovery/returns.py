"""Returns by reboot or validation, probation and relapses (rules 36 and 37).

With ``KONDUCTOR_RETURN=reboot`` the controller removes its taint after a reboot that met the needs of all the
node's faults, with ``validated`` after a validation that passed. The node is then on probation. A relapse is
a fault that taints a node on probation: it doubles the hold and ends the automatic returns of this node.
After three relapses among the last ten nodes that returned, no node returns by itself until a person runs
``konductor-like resume``. That act on the Lease names the relapses that no longer count.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from konductor_like.model import (
    Controls,
    IncidentState,
    NodeRecord,
    NodeState,
    ReleaseHow,
    ReturnedNode,
)
from konductor_like.model.time import moment_of, stamp
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.recovery.validation import lower, verdict_words
from konductor_like.policy.wording import name_of

RETURNS_KEPT = 10
RELAPSES_STOP = 3
"""Number of relapses among the last ``RETURNS_KEPT`` returns that stops automatic returns for the fleet."""
_HOUR = timedelta(hours=1)
RELAPSE_WORDS = "The node failed again on probation. It does not return by itself any more."


def return_words(before: NodeRecord, record: NodeRecord, how: ReleaseHow) -> str:
    """Return the message of the return, from the records before and after it."""
    met = [i for i in before.incidents if i.taints and i.state is not IncidentState.RELEASED]
    until = f" until {stamp(record.life.probation_until)}" if record.life.probation_until else ""
    at = max((each.met_ns or 0 for each in met), default=0)
    why = f"the reboot seen at {stamp(moment_of(at))} met the needs of all faults"
    if how is ReleaseHow.VALIDATED and before.validation is not None:
        why = f"{lower(verdict_words(before.validation))} after the needs of all faults were met"
    return (
        f"Returned to service: {why} "
        f"({', '.join(map(name_of, met))}). The node is on probation{until}: a fault that taints it "
        "ends its automatic returns."
    )


def known_returns(
    before: Iterable[ReturnedNode], nodes: Iterable[NodeState], now: datetime
) -> tuple[ReturnedNode, ...]:
    """Return the last returns of the fleet: those known ``before``, and those in the nodes' records.

    Of each node the latest relapse is kept, else the latest return, so that one record cannot displace the
    returns of other nodes. A return with a time in the future is the first to be left out.
    """
    found = list(before)
    for state in nodes:
        out_at = state.record.life.tainted_at
        for each in state.record.life.quarantines:
            if each.how.on_probation:
                relapsed_at = (out_at or each.released_at) if each.relapse else None
                found.append(ReturnedNode(state.name, each.released_at, relapsed_at))
            out_at = each.tainted_at

    def order(each: ReturnedNode) -> tuple[bool, datetime, str]:
        return (not _is_ahead(each, now), each.returned_at, each.name)

    found.sort(key=lambda each: (each.relapsed_at is not None, order(each)))
    by_node = {each.name: each for each in found}  # the last one of each node
    return tuple(sorted(by_node.values(), key=order, reverse=True)[:RETURNS_KEPT])


def _is_ahead(each: ReturnedNode, now: datetime) -> bool:
    """Whether the return lies an hour or more ahead: a wrong clock wrote it, or the node's own kubelet."""
    return each.returned_at - now >= _HOUR


def returns_left(controls: Controls, policy: PolicyConfig, now: datetime) -> int:
    """Return how many more nodes may return within this hour.

    A return up to an hour in the future counts as recent, because a clock may have been set back.
    """
    recent = sum(now - each.returned_at < _HOUR and not _is_ahead(each, now) for each in controls.returned)
    return max(0, policy.returns_per_hour - recent)


def relapses(controls: Controls) -> list[tuple[datetime, str]]:
    """Return time and node of the relapses that count, the earliest first.

    A ``resume`` that ended a stop names those that no longer count. No times are compared, so a wrong clock
    neither hides a relapse nor keeps a stop on.
    """
    settled = {(each.name, each.returned_at) for each in _settled(controls)}
    return sorted(
        (each.relapsed_at, each.name)
        for each in controls.returned
        if each.relapsed_at and (each.name, each.returned_at) not in settled
    )


def _settled(controls: Controls) -> tuple[ReturnedNode, ...]:
    return controls.resume.relapses if controls.resume is not None else ()


def settled_by_resume(controls: Controls) -> tuple[ReturnedNode, ...]:
    """Return the relapses that no longer count after a ``resume`` now.

    If returns are stopped, these are all relapses so far. The end of an ordinary pause changes nothing.
    """
    if not is_stopped(controls):
        return _settled(controls)
    return tuple(each for each in controls.returned if each.relapsed_at)


def is_stopped(controls: Controls) -> bool:
    """Whether automatic returns are stopped for the fleet."""
    return len(relapses(controls)) >= RELAPSES_STOP


def stop_words(controls: Controls) -> str:
    """Return why automatic returns are stopped: the first relapses, so that the words stay the same."""
    names = ", ".join(f"{name} at {stamp(at)}" for at, name in relapses(controls)[:RELAPSES_STOP])
    of_last = f"{RELAPSES_STOP} of the last {RETURNS_KEPT} returned nodes failed again ({names})"
    return f"no node returns by itself: {of_last}; `konductor-like resume` allows returns again"
