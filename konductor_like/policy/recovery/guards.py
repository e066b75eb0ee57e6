"""The guards of the way back: why a tainted node stays out of service (rules 36 and 37).

Each guard is a code of a closed list, and a reason in words. The decision lets a node return only if no
guard keeps it out. ``status``, ``explain``, Events and metrics take their reasons from here, so that they
never disagree.

Some guards, such as the time for which the kernel log was heard, are known to the controller only. It
publishes the code of such a guard on the Lease (``Attempts.kept_out``), for the command line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from konductor_like.model import (
    OPT_OUT_LABEL,
    BrakeState,
    Incident,
    IncidentState,
    NodeRecord,
    NodeState,
    SkipReason,
    Snapshot,
    Source,
    Validation,
    ValidationStage,
    ValidationVerdict,
)
from konductor_like.model.faults import MET_BY_REBOOT
from konductor_like.model.text import span_text
from konductor_like.model.time import SECOND_NS, moment_of, span_ns, stamp, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.gpu_counts import why_not_whole
from konductor_like.policy.node.health import is_suspicious, only_tests
from konductor_like.policy.node.lifecycle import is_failure, may_return
from konductor_like.policy.node.release import CONTROLLER
from konductor_like.policy.recovery.returns import is_stopped, returns_left, stop_words
from konductor_like.policy.recovery.validation import (
    is_dead_end,
    is_sufficient,
    is_under_way,
    level_for,
    lower,
    need_is_met,
    stage_words,
    verdict_words,
    wish,
)
from konductor_like.policy.wording import name_of, pause_words, why_held

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


class Guard(StrEnum):
    """The reasons for which a tainted node stays out; people see the first of this order first."""

    RETURNS_OFF = "returns-off"
    OPTED_OUT = "opted-out"
    NOT_SELECTED = "not-selected"
    PAUSED = "paused"
    LEASE_UNREAD = "lease-unread"
    OTHER_MACHINE = "other-machine"
    RECORD_UNREADABLE = "record-unreadable"
    PERSON = "person"
    RELAPSED = "relapsed"
    REPLACE = "replace"
    """The node is marked for replacement."""
    HOLD = "hold"
    NO_FAULT = "no-fault"
    NEEDS_MORE = "needs-more"
    """A fault needs more than a reboot."""
    NOT_REBOOTED = "not-rebooted"
    """A need is not met yet."""
    NOT_VALIDATED = "not-validated"
    """The last validation failed, or its result is unknown; a person has to look."""
    CONTESTED = "contested"
    CORDONED = "cordoned"
    CLAIMED = "claimed"
    NOT_READY = "not-ready"
    GPUS = "gpus"
    LINES_LOST = "lines-lost"
    RETURNS_STOPPED = "returns-stopped"
    RETURN_LIMIT = "return-limit"
    BRAKE = "brake"
    WRITE_FAILS = "write-fails"
    SETTINGS_UNKNOWN = "settings-unknown"
    """The controller's settings are not known; only the command line has this guard."""
    NOT_RUNNING = "not-running"
    """No controller runs; only the command line has this guard."""
    REPLAYING = "replaying"
    SILENT = "silent"
    GAP = "gap"
    TOO_YOUNG = "too-young"
    """The present boot was not heard for long enough yet."""
    UNSTEADY = "unsteady"
    """The Node has not been Ready, with all its GPUs, for long enough without a break."""
    NO_RECOVERY = "no-recovery"
    """The selector of the nodes that are validated and returned unasked leaves the node out."""
    REHEARSED = "rehearsed"
    """The controller would validate or return the node now, but for KONDUCTOR_RECOVERY=rehearse."""
    VALIDATING = "validating"
    """A validation waits, runs, or is about to be wished."""
    NOT_PUBLISHED = "not-published"
    """The controller keeps the node out for a reason that the command line does not know."""


ORDER = {guard: place for place, guard in enumerate(Guard)}
PASSING = frozenset(
    {
        *(Guard.HOLD, Guard.RETURN_LIMIT, Guard.BRAKE, Guard.REPLAYING, Guard.TOO_YOUNG),
        *(Guard.UNSTEADY, Guard.VALIDATING),
    }
)
"""The guards that end by themselves while the controller runs: nobody has to do anything."""
ENDED_BY_REBOOT = frozenset({Guard.NOT_REBOOTED, Guard.NOT_READY, Guard.LINES_LOST, Guard.GAP})
"""The guards that end with a reboot, or soon after it."""
_UNTIL_VALIDATED = frozenset({Guard.VALIDATING, Guard.RETURN_LIMIT, Guard.BRAKE})
"""The guards with which a node is validated all the same."""
READ_PAST_NS = span_ns(120)
"""Nanoseconds of the kernel log after the end of a test that must have been read before a return.

A shorter ``return_quiet_seconds`` shortens this span, too.
"""
PUBLISHED = {
    Guard.LEASE_UNREAD: "the Lease cannot be read, and a person may have paused",
    Guard.GPUS: "it has fewer GPUs than the controller has counted before",
    Guard.RETURN_LIMIT: "other nodes return first, at most KONDUCTOR_RETURNS_PER_HOUR within an hour",
    Guard.BRAKE: "the brake holds another node back",
    Guard.WRITE_FAILS: "the controller's last write of the node failed",
    Guard.REPLAYING: "the controller still reads older lines after its start",
    Guard.SILENT: "the kernel log of its present boot does not arrive",
    Guard.GAP: "its kernel log has a gap",
    Guard.TOO_YOUNG: "its kernel log must be heard without a fault for some time since the reboot or test",
    Guard.UNSTEADY: "the controller must see it Ready, with all its GPUs, for {quiet} without a break",
}
"""The guards that the controller publishes, in words. ``{quiet}`` stands for ``return_quiet_seconds``."""


class Blocker(NamedTuple):
    """One guard that keeps a node out, and the reason in words."""

    guard: Guard
    words: str


_REHEARSED = Blocker(
    Guard.REHEARSED, "KONDUCTOR_RECOVERY is rehearse: the controller would validate the node now"
)
_RETURNS_OFF = Blocker(Guard.RETURNS_OFF, "KONDUCTOR_RETURN is ask, so a person returns it")
_BY_FILE = Blocker(Guard.RETURNS_OFF, "the file of KONDUCTOR_RECOVERY_FILE is there, so a person returns it")
BY_FILE = (
    "this file is there, so no node returns or is validated. Set KONDUCTOR_RETURN and KONDUCTOR_RECOVERY "
    "instead, and delete the ConfigMap konductor-like-recovery."
)
"""The effect of the file of ``KONDUCTOR_RECOVERY_FILE``, in words that follow the variable."""


def blockers(
    state: NodeState,
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState | None = None,
) -> Iterator[Blocker]:
    """Yield the guards that keep a tainted node out, in the order of :class:`Guard`, each at least once.

    ``brake`` is None while the brake is not asked yet.
    """
    yield from _of_settings(state, snapshot, policy, now)
    yield from _of_record(state, policy, now)
    yield from _of_node(state, snapshot)
    yield from _of_fleet(state, snapshot, policy, now, brake)
    yield from _of_log(state, snapshot, policy, now)
    yield from _of_standing(state, snapshot, policy, now)
    tested = state.record.validation
    if policy.returns_by_validation:
        yield from _of_validation(state, policy, now)
    elif policy.returns_by_reboot and tested is not None and tested.stage is ValidationStage.RUNNING:
        yield Blocker(Guard.VALIDATING, lower(stage_words(tested)))


def lasting_blocker(state: NodeState, policy: PolicyConfig, now: datetime) -> Blocker | None:
    """Return the first guard that keeps a rebooted node out until a person acts; None without one."""
    if not policy.returns_unasked:
        return _returns_off(policy)
    if policy.rehearses:
        return _REHEARSED
    # Without the taint no validation begins, so only a return by reboot ends a contest.
    ends = policy.returns_by_reboot and not state.tainted
    passing = (Guard.HOLD, Guard.CONTESTED) if ends else (Guard.HOLD,)
    return next((found for found in _of_record(state, policy, now) if found.guard not in passing), None)


def _returns_off(policy: PolicyConfig) -> Blocker:
    return _BY_FILE if policy.recovery_by_file else _RETURNS_OFF


def _of_settings(
    state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now: datetime
) -> Iterator[Blocker]:
    if not policy.returns_unasked:
        test = _test_words(state.record, policy)
        yield Blocker(Guard.RETURNS_OFF, test) if test else _returns_off(policy)
    if state.opted_out:
        yield Blocker(Guard.OPTED_OUT, f"the node has the label {OPT_OUT_LABEL}")
    if not state.selected:
        yield Blocker(Guard.NOT_SELECTED, "the controller's KONDUCTOR_NODE_SELECTOR does not select the node")
    pause = snapshot.controls.pause
    if pause is not None and pause.holds(now):
        yield Blocker(Guard.PAUSED, f"tainting and returns are {pause_words(pause)}")
    if snapshot.lease_unread:
        yield published(Guard.LEASE_UNREAD, policy)


def _of_record(state: NodeState, policy: PolicyConfig, now: datetime) -> Iterator[Blocker]:
    """Yield the guards of the node's record: its faults, and its earlier times out of service."""
    record, here = state.record, state.machine
    if record.machine is not None and replace(record.machine, boot_id=here.boot_id) != here:
        yield Blocker(Guard.OTHER_MACHINE, "its record is about another machine")
    if state.record_problem is not None:
        yield Blocker(Guard.RECORD_UNREADABLE, "its record cannot be read in full")
    open_ones = _open_ones(record)
    if any(incident.by_person for incident in open_ones):
        yield Blocker(Guard.PERSON, "a person tainted it")
    relapse = next((past.released_at for past in record.life.quarantines if past.relapse), None)
    if relapse is not None:
        words = f"it failed again on probation, after its return at {stamp(relapse)}: it stays out"
        yield Blocker(Guard.RELAPSED, words)
    if held := may_return(record, now, policy):
        yield Blocker(Guard.REPLACE if record.life.marked else Guard.HOLD, held)
    if not record.life.claimed or not any(map(is_failure, open_ones)):
        words = _test_words(record, policy) or "its record has no fault that a reboot repairs"
        yield Blocker(Guard.NO_FAULT, words)
    yield from _of_faults(state, open_ones, policy)
    if record.life.contested_at is not None:
        words = "the taint is contested: it stays off, and the node is faulty until nothing else keeps it out"
        yield Blocker(Guard.CONTESTED, words)


def _of_faults(state: NodeState, open_ones: list[Incident], policy: PolicyConfig) -> Iterator[Blocker]:
    """Yield the guards of needs that are not met, and of a validation without a pass."""
    is_tested = policy.returns_by_validation
    instead = "and no validation replaces that" if is_tested else "not a reboot"
    for incident in open_ones:
        if incident.needs not in MET_BY_REBOOT:
            needs = incident.needs or "a person"
            yield Blocker(Guard.NEEDS_MORE, f"{name_of(incident)} needs {needs}, {instead}")
    for incident in open_ones:
        if is_tested and not need_is_met(incident, None):
            yield Blocker(Guard.NOT_REBOOTED, f"the need of {name_of(incident)} is not met: {incident.needs}")
        elif not is_tested and not _is_met(incident, state):
            yield Blocker(Guard.NOT_REBOOTED, f"the controller has seen no reboot since {name_of(incident)}")
    tested = state.record.validation
    if tested is None:
        return
    # A failure is the hardware's word, whatever returns nodes. A person asked for that test.
    counts = is_tested or tested.verdict is ValidationVerdict.FAIL
    if counts and is_dead_end(tested, state.record):
        yield Blocker(Guard.NOT_VALIDATED, lower(verdict_words(tested)))


def _open_ones(record: NodeRecord) -> list[Incident]:
    """Return the open incidents that speak against a return."""
    return [
        incident
        for incident in record.incidents
        if incident.state is not IncidentState.RELEASED and (incident.taints or is_suspicious(incident))
    ]


def _test_words(record: NodeRecord, policy: PolicyConfig) -> str:
    """Return that the node is out for a test, whose end no reboot and no person is needed for; else empty."""
    is_test = policy.test_seconds > 0 and only_tests(record)
    return "it is out of service for a test (Xid 14), which ends by itself" if is_test else ""


def _is_met(incident: Incident, state: NodeState) -> bool:
    """Whether the controller saw a reboot after the incident, and not the incident after the reboot."""
    is_earlier = incident.last.boot_id not in (None, state.machine.boot_id)
    return incident.met_ns is not None and is_earlier and incident.state is not IncidentState.PENDING


def _of_node(state: NodeState, snapshot: Snapshot) -> Iterator[Blocker]:
    """Yield the guards of the Node as it is now."""
    if state.unschedulable:
        yield Blocker(Guard.CORDONED, "the Node is cordoned")
    for taint in state.taints:
        if taint.key.startswith(CLAIMS):
            yield Blocker(Guard.CLAIMED, f"the taint {taint.key} shows that another tool repairs the Node")
    if not state.ready:
        yield Blocker(Guard.NOT_READY, "the Node is not Ready")
    short = snapshot.gpus.short.get(state.name) if snapshot.gpus is not None else None
    if lacks := f"it has only {short}" if short else why_not_whole(state):
        yield Blocker(Guard.GPUS, lacks)
    boot_id = state.machine.boot_id
    if boot_id is not None and snapshot.lost_boots.get(state.name) == boot_id:
        words = "the kernel overwrote lines of its present boot before they were read"
        yield Blocker(Guard.LINES_LOST, words)


def _of_fleet(
    state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now: datetime, brake: BrakeState | None
) -> Iterator[Blocker]:
    """Yield the guards that keep more nodes than this one out."""
    if is_stopped(snapshot.controls):
        yield Blocker(Guard.RETURNS_STOPPED, stop_words(snapshot.controls))
    if returns_left(snapshot.controls, policy, now) < 1:
        limit = f"{policy.returns_per_hour} returns an hour (KONDUCTOR_RETURNS_PER_HOUR)"
        yield Blocker(Guard.RETURN_LIMIT, f"the limit of {limit} is reached")
    # A fault held by the limit waits for a place, and a return gives it one. A fault held by the rate or the
    # cool-down waits for time: a return would only prolong the cool-down, and the cause may be the same for
    # both nodes. With limits of pools, faults of other pools count for nothing.
    for held in brake.held if brake is not None else ():
        shares = brake is not None and (not brake.pools or held.pool in (None, state.pool))
        if brake and shares and not held.is_test and held.why in (SkipReason.RATE, SkipReason.COOLDOWN):
            why = why_held(held.why, brake, held.pool)
            yield Blocker(Guard.BRAKE, f"the brake holds {held.node} back: {why}")
            break
    if state.name in snapshot.failing:
        yield published(Guard.WRITE_FAILS, policy)


def _of_validation(state: NodeState, policy: PolicyConfig, now: datetime) -> Iterator[Blocker]:
    """Yield the guards of a node that returns by a validation, and has no good one yet."""
    if not state.recovery_selected:
        words = "the controller's KONDUCTOR_RECOVERY_NODE_SELECTOR does not select the node"
        yield Blocker(Guard.NO_RECOVERY, words)
    tested = state.record.validation
    is_enough = is_sufficient(tested, _open_ones(state.record), state, policy, now)
    if policy.rehearses:
        would = "return" if is_enough else "validate"
        words = f"KONDUCTOR_RECOVERY is rehearse: the controller would {would} the node now"
        yield Blocker(Guard.REHEARSED, words)
    if not is_enough:
        yield Blocker(Guard.VALIDATING, lower(stage_words(tested)))


def _of_log(state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now: datetime) -> Iterator[Blocker]:
    """Yield the guard for which silence of the present boot's kernel log proves nothing yet."""
    if snapshot.replaying:
        yield published(Guard.REPLAYING, policy)
    hearing = snapshot.hearing.get(state.name)
    if hearing is None:
        yield published(Guard.SILENT, policy)
        return
    if hearing.boot_id != state.machine.boot_id:  # as after every reboot, until its first heartbeat
        yield Blocker(Guard.TOO_YOUNG, "the kernel log of its present boot has not arrived yet")
        return
    if hearing.has_gap or snapshot.gaps_given_up.get(state.name, 0) > hearing.first_ns:
        yield published(Guard.GAP, policy)
    tested = state.record.validation
    if policy.returns_by_validation:
        is_enough = is_sufficient(tested, _open_ones(state.record), state, policy, now)
        if tested is None or tested.ended_at is None or not is_enough:
            return
        # By two clocks, ours and Loki's, because either may be behind.
        past_ns = min(READ_PAST_NS, span_ns(policy.return_quiet_seconds))
        enough_ns = max(unix_ns(tested.ended_at), tested.read_end_ns) + past_ns
    else:
        enough_ns = hearing.first_ns + span_ns(policy.return_quiet_seconds)
    if min(hearing.last_ns, snapshot.read_ns.get(Source.KERNEL, 0)) < enough_ns:
        until = stamp(moment_of(enough_ns))
        yield Blocker(Guard.TOO_YOUNG, f"its kernel log must be heard without a fault until {until}")


def _of_standing(
    state: NodeState, snapshot: Snapshot, policy: PolicyConfig, now: datetime
) -> Iterator[Blocker]:
    """Yield the guard of a Node that is Ready and whole now, and was not a short time ago.

    The kubelet's clock may be ahead, so a ``lastTransitionTime`` that is still to come counts for nothing.
    Before a validation has passed, it is the validation that keeps the node out.
    """
    tested = state.record.validation
    if policy.returns_by_validation and not is_sufficient(
        tested, _open_ones(state.record), state, policy, now
    ):
        return
    standing = snapshot.standing.get(state.name)
    if standing is None:
        yield published(Guard.UNSTEADY, policy)
        return
    told_seconds = (unix_ns(now) - (state.ready_since_ns or 0)) / SECOND_NS
    ready_seconds = min(standing.ready_seconds, told_seconds if told_seconds >= 0 else math.inf)
    if state.ready and ready_seconds < policy.return_quiet_seconds:
        yield _unsteady("it has been Ready", ready_seconds, policy, now)
    if not why_not_whole(state) and standing.gpus_seconds < policy.return_quiet_seconds:
        yield _unsteady("its count of GPUs has been the same", standing.gpus_seconds, policy, now)


def _unsteady(what: str, seconds: float, policy: PolicyConfig, now: datetime) -> Blocker:
    since = now - timedelta(seconds=seconds)
    until = since + timedelta(seconds=policy.return_quiet_seconds)
    words = f"{what} only since {stamp(since)}, and must stay so without a break until {stamp(until)}"
    return Blocker(Guard.UNSTEADY, words)


def published(code: str, policy: PolicyConfig) -> Blocker:
    """Return the guard that the controller published as ``code``; the code of a newer one may be unknown."""
    try:
        guard, quiet = Guard(code), span_text(round(policy.return_quiet_seconds))
        return Blocker(guard, PUBLISHED[guard].format(quiet=quiet))
    except (KeyError, ValueError):
        words = f"the controller keeps it out for a reason that this command does not know ({code})"
        return Blocker(Guard.NOT_PUBLISHED, words)


def kept_out(
    records: Mapping[str, NodeRecord],
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState,
) -> tuple[frozenset[str], dict[str, Blocker]]:
    """Return the faulty nodes that return now, and the first guard of each of the others.

    A contested node is in service already: its claim ends if nothing but the contest speaks against a return.

    ``records`` are those that this decision has changed. The node that was tainted first returns first, and
    no more return than the hour still allows. While the brake holds a fault, one node returns at a time, and
    the cool-down follows.
    """
    free: list[tuple[datetime, str]] = []
    kept: dict[str, Blocker] = {}
    for name, state in snapshot.nodes.items():
        record = records.get(name, state.record)
        is_contested = record.life.claimed and record.life.contested_at is not None
        if not (state.tainted or is_contested):
            continue
        found = blockers(replace(state, record=record), snapshot, policy, now, brake)
        ends = (Guard.CONTESTED,) if is_contested and not state.tainted else ()
        blocker = next((each for each in found if each.guard not in ends), None)
        if blocker is None:
            free.append((record.life.tainted_at or now, name))
        else:
            kept[name] = blocker
    left = returns_left(snapshot.controls, policy, now)
    most = left if all(held.is_test for held in brake.held) else min(left, 1)
    free.sort()
    later = published(Guard.RETURN_LIMIT, policy)
    return frozenset(name for _, name in free[:most]), kept | {name: later for _, name in free[most:]}


def wishes(
    records: Mapping[str, NodeRecord],
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    brake: BrakeState,
) -> dict[str, Validation]:
    """Return the validations that the controller itself wishes now, by node.

    It wishes one for a node that would return after a pass: nothing but the validation keeps it out.
    """
    if not policy.returns_by_validation or policy.rehearses:
        return {}
    found: dict[str, Validation] = {}
    for name, state in snapshot.nodes.items():
        record = records.get(name, state.record)
        if is_under_way(record.validation) or not state.tainted:
            continue
        state = replace(state, record=record)
        guards = {blocker.guard for blocker in blockers(state, snapshot, policy, now, brake)}
        if Guard.VALIDATING in guards and guards <= _UNTIL_VALIDATED:
            found[name] = wish(level_for(record, policy, now), CONTROLLER, now)
    return found


def to_publish(kept: Mapping[str, str]) -> dict[str, str]:
    """Return the nodes, of these with their first guards, whose guard only the controller knows."""
    return {name: guard for name, guard in kept.items() if guard in PUBLISHED}
