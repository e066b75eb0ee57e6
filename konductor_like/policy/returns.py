"""Returns by reboot, probation and relapses (rules 36 and 37).

With ``KONDUCTOR_RETURN=reboot`` the controller removes its taint after a reboot that met the needs of all the
node's faults. The node is then on probation. A relapse is a fault that taints a node on probation: it doubles
the hold and ends the automatic returns of this node. After three relapses among the last ten returns of the
fleet no node returns by itself until a person runs ``konductor-like resume``.

The decision, Events, ``status`` and ``explain`` all ask :func:`why_stays`, so that they never disagree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from operator import itemgetter

from konductor_like.model import (
    HOW_REBOOT,
    OPT_OUT_LABEL,
    BrakeState,
    Controls,
    Incident,
    IncidentState,
    NodeRecord,
    NodeState,
    ReturnedNode,
    Snapshot,
    Source,
)
from konductor_like.model.faults import MET_BY_REBOOT
from konductor_like.model.time import EPOCH, moment_of, span_ns, stamp, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.health import is_suspicious, tainting
from konductor_like.policy.release import is_failure, may_return
from konductor_like.policy.wording import name_of, pause_words

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
    "remediation.medik8s.io/*",
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
    "nvsentinel.*",
)
"""Keys of the taints with which other repairers claim a node."""


def why_stays(
    state: NodeState,
    record: NodeRecord,
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState | None = None,
) -> str | None:
    """Return the first reason why a tainted node does not return by itself now; None if it returns.

    ``record`` is the node's record with the newest evidence. ``brake`` is None before the brake was asked.
    """
    return next(_reasons(state, record, snapshot, policy, now, brake), None)


def _reasons(
    state: NodeState,
    record: NodeRecord,
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState | None,
) -> Iterator[str]:
    """Yield the reasons, the cheapest and most final first."""
    if not policy.returns_by_reboot:
        yield "KONDUCTOR_RETURN is ask, so a person returns it"
    if state.opted_out:
        yield f"the node has the label {OPT_OUT_LABEL}"
    if not state.selected:
        yield "the controller's KONDUCTOR_NODE_SELECTOR does not select the node"
    yield from _withheld(snapshot, now, brake)
    yield from _of_record(state, record, policy, now)
    yield from _foreign_claims(state)
    if not state.ready:
        yield "the Node is not Ready"
    if state.name in snapshot.short_of_gpus:
        yield f"it has only {snapshot.short_of_gpus[state.name]}"
    yield from _unheard(state, snapshot, policy)
    if is_stopped(snapshot.controls):
        yield f"{stop_words(snapshot.controls)}; `konductor-like resume` allows returns again"
    if returns_left(snapshot.controls, policy, now) < 1:
        most = f"{policy.returns_per_hour} returns an hour (KONDUCTOR_RETURNS_PER_HOUR)"
        yield f"the limit of {most} is reached"


def _withheld(snapshot: Snapshot, now: datetime, brake: BrakeState | None) -> Iterator[str]:
    """Yield why no node at all returns: a pause, perhaps an unknown one, or many failures at once."""
    pause = snapshot.controls.pause
    if pause is not None and pause.holds(now):
        yield f"tainting and returns are {pause_words(pause)}"
    if snapshot.lease_unread:
        yield "the Lease cannot be read, and a person may have paused"
    if brake is not None and brake.holding:
        yield "the brake holds nodes back"


def _of_record(state: NodeState, record: NodeRecord, policy: PolicyConfig, now: datetime) -> Iterator[str]:
    """Yield the reasons in the node's record: people, earlier failures, needs that are not met."""
    known = state.record.machine
    if known is not None and replace(known, boot_id=state.machine.boot_id) != state.machine:
        yield "its record is about another machine"
    if state.record_problem is not None:
        yield "its record cannot be read in full"
    open_ones = [
        each
        for each in record.incidents
        if each.state is not IncidentState.RELEASED and (each.taints or is_suspicious(each))
    ]
    if any(each.by_person for each in open_ones):
        yield "a person tainted it"
    if held := may_return(record, now, policy):
        yield held
    if record.tainted_at is None or not any(map(is_failure, open_ones)):
        yield "its record has no fault that a reboot repairs"
    yield from _unmet(open_ones, state.machine.boot_id)
    if relapsed := next((each for each in record.quarantines if each.relapse), None):
        yield f"it failed again on probation, after its return at {stamp(relapsed.released_at)}"
    if record.contested_at is not None:
        yield "the taint is contested: somebody else has removed it before"


def _unmet(open_ones: Collection[Incident], boot_id: str | None) -> Iterator[str]:
    """Yield why the reboot did not meet the needs of all open incidents."""
    for each in open_ones:
        if each.needs not in MET_BY_REBOOT:
            yield f"{name_of(each)} needs {each.needs or 'a person'}, and a reboot does not meet that need"
    for each in open_ones:
        if each.state is IncidentState.PENDING or each.last.boot_id in (None, boot_id):
            yield f"the node has not rebooted since {name_of(each)}"
        if any(each.key == other.key and each.last.boot_id != other.last.boot_id for other in open_ones):
            yield f"{name_of(each)} came back after a reboot"
        if each.met_ns is None:
            yield f"the controller has not seen a reboot of this machine since {name_of(each)}"


def _foreign_claims(state: NodeState) -> Iterator[str]:
    """Yield the signs that a person or another repairer works on the node."""
    if state.unschedulable:
        yield "the Node is cordoned"
    for taint in state.taints:
        if any(fnmatchcase(taint.key, claim) for claim in CLAIMS):
            yield f"the taint {taint.key} shows that another tool repairs or removes the Node"


def _unheard(state: NodeState, snapshot: Snapshot, policy: PolicyConfig) -> Iterator[str]:
    """Yield why silence of the present boot's kernel log proves nothing yet."""
    if snapshot.replaying:
        yield "the controller still reads older lines after its start"
    hearing = snapshot.hearing.get(state.name)
    if hearing is None or hearing.boot_id != state.machine.boot_id:
        yield "the kernel log of its present boot does not arrive"
    elif hearing.has_gap or snapshot.gaps_given_up.get(state.name, 0) > hearing.first_ns:
        yield "its kernel log has a gap"
    else:
        enough_ns = hearing.first_ns + span_ns(policy.return_quiet_seconds)
        if min(hearing.last_ns, snapshot.read_ns.get(Source.KERNEL, 0)) < enough_ns:
            yield f"its kernel log must be heard without a fault until {stamp(moment_of(enough_ns))}"


def returning(
    records: Mapping[str, NodeRecord],
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState,
) -> frozenset[str]:
    """Return the nodes that return now: the longest tainted first, as many as the hour still allows."""
    if not policy.returns_by_reboot:
        return frozenset()
    found = [
        (record.tainted_at, name)
        for name, record in records.items()
        if record.tainted_at is not None
        and snapshot.nodes[name].tainted
        and why_stays(snapshot.nodes[name], record, snapshot, policy, now, brake) is None
    ]
    return frozenset(name for _, name in sorted(found)[: returns_left(snapshot.controls, policy, now)])


def on_probation(record: NodeRecord, policy: PolicyConfig, now: datetime) -> NodeRecord:
    """Return the record of a node that returns now, with its probation."""
    return replace(record, probation_until=now + timedelta(seconds=policy.probation_seconds))


def return_words(before: NodeRecord, record: NodeRecord) -> str:
    """Return the message of the return, from the records before and after it."""
    met = [i for i in before.incidents if i.taints and i.state is not IncidentState.RELEASED]
    until = f" until {stamp(record.probation_until)}" if record.probation_until else ""
    at = max((each.met_ns for each in met if each.met_ns is not None), default=0)
    return (
        f"Returned to service: the reboot at {stamp(moment_of(at))} met the needs of all faults "
        f"({', '.join(map(name_of, met))}). The node is on probation{until}: a fault taints it at once and "
        "ends its automatic returns."
    )


def without_ended_probation(record: NodeRecord, now: datetime) -> NodeRecord:
    """Return the record without a probation that is over; the identical object if nothing changes.

    While the brake holds a fault of the probation back, the probation goes on.
    """
    until = record.probation_until
    if until is None or now < until or tainting(record):
        return record
    return replace(record, probation_until=None)


def relapsed(record: NodeRecord, policy: PolicyConfig, now: datetime) -> NodeRecord:
    """Return a tainted node's record after a relapse; the identical object without one.

    A fault that happened on probation is a relapse even if it is read, or admitted by the brake, later.
    """
    until = record.probation_until
    if until is None or not any(
        is_failure(i) and i.state is IncidentState.ACTIVE and i.first_ns < unix_ns(until)
        for i in record.incidents
    ):
        return record
    ordinary = timedelta(seconds=policy.hold_base_seconds)
    if record.hold_until is not None and record.hold_until > now:
        ordinary = record.hold_until - now
    hold = min(2 * ordinary, timedelta(seconds=policy.hold_max_seconds))
    last = next((n for n, each in enumerate(record.quarantines) if each.how == HOW_REBOOT), None)
    return replace(
        record,
        probation_until=None,
        hold_until=now + hold,
        quarantines=tuple(
            replace(each, relapse=True) if n == last else each for n, each in enumerate(record.quarantines)
        ),
    )


def known_returns(before: Iterable[ReturnedNode], nodes: Iterable[NodeState]) -> tuple[ReturnedNode, ...]:
    """Return the last returns of the fleet: those known ``before``, and those in the nodes' records."""
    in_order = sorted(before, key=lambda each: each.relapsed_at is not None)  # a known relapse stays known
    found = {(each.name, each.returned_at): each for each in in_order}
    for state in nodes:
        out_at = state.record.tainted_at
        for each in state.record.quarantines:
            if each.how == HOW_REBOOT:
                key, uid = (state.name, each.released_at), state.machine.node_uid
                relapsed_at = (out_at or each.released_at) if each.relapse else None
                if key not in found or relapsed_at is not None:
                    found[key] = ReturnedNode(state.name, uid, each.released_at, relapsed_at)
            out_at = each.tainted_at
    latest_first = sorted(found.values(), key=lambda each: (each.returned_at, each.name), reverse=True)
    return tuple(latest_first[:RETURNS_KEPT])


def returns_left(controls: Controls, policy: PolicyConfig, now: datetime) -> int:
    """Return how many more nodes may return within this hour."""
    recent = sum(abs(now - each.returned_at) < _HOUR for each in controls.returned)
    return max(0, policy.returns_per_hour - recent)


def relapses(controls: Controls) -> tuple[ReturnedNode, ...]:
    """Return the relapses among the last returns since a person last resumed, the earliest first."""
    since = controls.resume.at if controls.resume is not None else EPOCH
    found = [(at, each.name, each) for each in controls.returned if (at := each.relapsed_at) and at > since]
    return tuple(each for _, _, each in sorted(found, key=itemgetter(0, 1)))


def is_stopped(controls: Controls) -> bool:
    """Whether automatic returns are stopped for the fleet."""
    return len(relapses(controls)) >= RELAPSES_STOP


def stop_words(controls: Controls) -> str:
    """Return why automatic returns are stopped: the first relapses, so that the words stay the same."""
    first = relapses(controls)[:RELAPSES_STOP]
    names = ", ".join(f"{each.name} at {stamp(each.relapsed_at)}" for each in first if each.relapsed_at)
    of_last = f"{len(first)} of the last {RETURNS_KEPT} returned nodes"
    return f"no node returns by itself: {of_last} failed again ({names})"
