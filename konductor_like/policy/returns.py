"""Returns by reboot, probation and relapses (rules 36 and 37).

With ``KONDUCTOR_RETURN=reboot`` the controller removes its taint after a reboot that met the needs of all the
node's faults. The node is then on probation. A relapse is a fault that taints a node on probation: it doubles
the hold and ends the automatic returns of this node. After three relapses among the last ten nodes that
returned, no node returns by itself until a person runs ``konductor-like resume``. That act on the Lease names
the relapses that no longer count.

The decision, ``status`` and ``explain`` take their :func:`reasons` from here, so that they never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from konductor_like.model import (
    OPT_OUT_LABEL,
    BrakeState,
    Controls,
    Incident,
    IncidentState,
    NodeRecord,
    NodeState,
    ReleaseHow,
    ReturnedNode,
    SkipReason,
    Snapshot,
    Source,
)
from konductor_like.model.faults import MET_BY_REBOOT
from konductor_like.model.time import moment_of, span_ns, stamp
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.gpu_counts import why_not_whole
from konductor_like.policy.health import is_suspicious
from konductor_like.policy.lifecycle import is_failure
from konductor_like.policy.release import may_return
from konductor_like.policy.wording import name_of, pause_words, why_held

RETURNS_KEPT = 10
RELAPSES_STOP = 3
"""Number of relapses among the last ``RETURNS_KEPT`` returns that stops automatic returns for the fleet."""
_HOUR = timedelta(hours=1)
RELAPSE_WORDS = "The node failed again on probation. It does not return by itself any more."
CLAIMS = (
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupted",
    "medik8s.io/drain",
    "remediation.medik8s.io/",
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
    "nvsentinel.",
)
"""Beginnings of the keys of taints with which other repairers claim a node."""


def why_stays(state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now: datetime) -> str | None:
    """Return the first reason why a tainted node does not return by itself now; None if there is none."""
    return next(iter(reasons(state, snapshot, policy, now)), None) or _unheard(state, snapshot, policy)


def reasons(state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now: datetime) -> list[str]:
    """Return why a tainted node does not return by itself; :func:`why_stays` checks its kernel log too."""
    record, controls, pause = state.record, snapshot.controls, snapshot.controls.pause
    machine = record.machine and replace(record.machine, boot_id=state.machine.boot_id)
    short, left = snapshot.short_of_gpus.get(state.name), returns_left(controls, policy, now)
    lacks = f"it has only {short}" if short else why_not_whole(state)
    relapse = next((stamp(each.released_at) for each in record.life.quarantines if each.relapse), None)
    open_ones = [
        each
        for each in record.incidents
        if each.state is not IncidentState.RELEASED and (each.taints or is_suspicious(each))
    ]
    failed = record.life.tainted_at is not None and any(map(is_failure, open_ones))
    limit = f"{policy.returns_per_hour} returns an hour (KONDUCTOR_RETURNS_PER_HOUR)"
    found = (
        (not policy.returns_by_reboot, "KONDUCTOR_RETURN is ask, so a person returns it"),
        (state.opted_out, f"the node has the label {OPT_OUT_LABEL}"),
        (not state.selected, "the controller's KONDUCTOR_NODE_SELECTOR does not select the node"),
        (pause and pause.holds(now), f"tainting and returns are {pause and pause_words(pause)}"),
        (snapshot.lease_unread, "the Lease cannot be read, and a person may have paused"),
        (machine not in (None, state.machine), "its record is about another machine"),
        (state.record_problem is not None, "its record cannot be read in full"),
        (any(each.by_person for each in open_ones), "a person tainted it"),
        (relapse, f"it failed again on probation, after its return at {relapse}: it stays out"),
        (held := may_return(record, now, policy), f"{held}"),
        (not failed, "its record has no fault that a reboot repairs"),
        *(
            (i.needs not in MET_BY_REBOOT, f"{name_of(i)} needs {i.needs or 'a person'}, not a reboot")
            for i in open_ones
        ),
        *(
            (not _is_met(i, state), f"the controller has seen no reboot since {name_of(i)}")
            for i in open_ones
        ),
        (record.life.contested_at is not None, "the taint is contested: somebody else has removed it before"),
        (state.unschedulable, "the Node is cordoned"),
        *(
            (each.key.startswith(CLAIMS), f"the taint {each.key} shows that another tool repairs the Node")
            for each in state.taints
        ),
        (not state.ready, "the Node is not Ready"),
        (lacks, f"{lacks}"),
        (
            state.machine.boot_id is not None
            and snapshot.lost_boots.get(state.name) == state.machine.boot_id,
            "the kernel overwrote lines of its present boot before they were read",
        ),
        (is_stopped(controls), stop_words(controls)),
        (left < 1, f"the limit of {limit} is reached"),
    )
    return [words for holds, words in found if holds]


def _is_met(incident: Incident, state: NodeState) -> bool:
    """Whether the controller saw a reboot after the incident, and not the incident after the reboot."""
    is_earlier = incident.last.boot_id not in (None, state.machine.boot_id)
    return incident.met_ns is not None and is_earlier and incident.state is not IncidentState.PENDING


def _unheard(state: NodeState, snapshot: Snapshot, policy: PolicyConfig) -> str | None:
    """Return why silence of the present boot's kernel log proves nothing yet; None if it does."""
    if snapshot.replaying:
        return "the controller still reads older lines after its start"
    hearing = snapshot.hearing.get(state.name)
    if hearing is None or hearing.boot_id != state.machine.boot_id:
        return "the kernel log of its present boot does not arrive"
    if hearing.has_gap or snapshot.gaps_given_up.get(state.name, 0) > hearing.first_ns:
        return "its kernel log has a gap"
    enough_ns = hearing.first_ns + span_ns(policy.return_quiet_seconds)
    if min(hearing.last_ns, snapshot.read_ns.get(Source.KERNEL, 0)) < enough_ns:
        return f"its kernel log must be heard without a fault until {stamp(moment_of(enough_ns))}"
    return None


def why_brake_keeps(state: NodeState, brake: BrakeState) -> str | None:
    """Return why a tainted node does not return now because of faults that the brake holds; None if it may.

    A fault held by the limit waits for a place, and a return gives it one. A fault held by the rate or the
    cool-down waits for time: a return would only prolong the cool-down, and the cause may be the same for
    both nodes. With limits of pools, faults of other pools count for nothing.
    """
    for held in brake.held:
        shares = not brake.pools or held.pool in (None, state.pool)
        if shares and not held.is_test and held.why in (SkipReason.RATE, SkipReason.COOLDOWN):
            return f"the brake holds {held.node} back: {why_held(held.why, brake, held.pool)}"
    return None


def returning(
    records: Mapping[str, NodeRecord],
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState,
) -> frozenset[str]:
    """Return the nodes that return now: the longest tainted first, as many as the hour still allows.

    While the brake holds a fault, one node returns at a time, and the cool-down follows.
    """
    if not policy.returns_by_reboot:
        return frozenset()
    found = [
        (record.life.tainted_at or now, name)
        for name, record in records.items()
        if name not in snapshot.failing
        and (state := snapshot.nodes[name]).tainted
        and why_brake_keeps(state, brake) is None
        and why_stays(replace(state, record=record), snapshot, policy, now) is None
    ]
    left = returns_left(snapshot.controls, policy, now)
    most = left if all(held.is_test for held in brake.held) else min(left, 1)
    return frozenset(name for _, name in sorted(found)[:most])


def return_words(before: NodeRecord, record: NodeRecord) -> str:
    """Return the message of the return, from the records before and after it."""
    met = [i for i in before.incidents if i.taints and i.state is not IncidentState.RELEASED]
    until = f" until {stamp(record.life.probation_until)}" if record.life.probation_until else ""
    at = max((each.met_ns or 0 for each in met), default=0)
    return (
        f"Returned to service: the reboot seen at {stamp(moment_of(at))} met the needs of all faults "
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
            if each.how is ReleaseHow.REBOOT:
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
