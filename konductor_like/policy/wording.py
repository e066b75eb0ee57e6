"""Texts for people: incidents, writes and the brake as Events, the log and the commands show them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

from konductor_like.model import (
    OPT_OUT_LABEL,
    PERSONS_TAINT,
    Act,
    BrakeState,
    ControlAct,
    FaultKind,
    Incident,
    IncidentKey,
    NodeState,
    PlannedWork,
    Role,
    Severity,
    SkippedTaint,
    SkipReason,
    Verb,
)
from konductor_like.model.text import excerpt, printable, span_text
from konductor_like.model.time import SECOND_NS, moment_of, stamp


def name_of(incident: Incident) -> str:
    """Return an incident's name: ``xid 79 on GPU 0000:4e:00``."""
    if incident.by_person:
        return PERSONS_TAINT
    what = incident.kind.value if incident.code is None else f"{incident.kind.value} {incident.code}"
    if incident.code is None and "." in incident.key.rule:
        what = incident.key.rule.replace(".", " ").replace("_", " ")
    return f"{what}{on_device(incident.key)}"


_DEVICES = {"sxid": "switch", "ib": "adapter", "aer": "PCIe device"}
"""By family of rules, what the PCI bus id in its lines is; else it is a GPU."""
_OF_GPUS = ("aer.gpu_lost", "aer.gpu_error")


def device_of(rule: str) -> str:
    """Return what the PCI bus id of a rule's fault is: ``GPU``, ``switch``, ``PCIe device``."""
    return "GPU" if rule in _OF_GPUS else _DEVICES.get(rule.partition(".")[0], "GPU")


def on_device(key: IncidentKey) -> str:
    """Return `` on GPU 0000:4e:00``; empty without a bus id."""
    return "" if key.gpu is None else f" on {device_of(key.rule)} {key.gpu}"


def describe(incident: Incident) -> str:
    """Describe an incident in one or two sentences, with its line."""
    name = name_of(incident)
    test = " (a test)" if incident.severity is Severity.TEST else ""
    by_user = " (written by a user)" if incident.user_written else ""
    by_user += f" ({incident.doubt})" if incident.doubt else ""
    evidence = quoted(incident)
    if incident.role is Role.COLLATERAL and incident.root_cause is not None:
        followed = f"A failure on {incident.root_cause} caused it."
        return f"{name}{by_user}: {incident.title}. {followed}{evidence}"
    escalated_because = (
        f" Reason for the taint: {incident.escalated_because}." if incident.escalated_because else ""
    )
    return f"{name}{test}{by_user}: {incident.title}.{escalated_because} {incident.advice}{evidence}"


_QUOTED = {FaultKind.CONDITION: "Condition", FaultKind.ALERT: "Alert"}


def quoted(incident: Incident) -> str:
    """Return the evidence as the end of a text: `` Line: "NVRM: Xid …"``; empty without any."""
    if incident.is_fact:
        return f" {incident.evidence[:1].upper()}{incident.evidence[1:]}."
    what = _QUOTED.get(incident.kind, "Line")
    return f' {what}: "{incident.evidence}"' if incident.evidence else ""


def planned_mark(state: NodeState) -> str:
    """Return the word of ``status`` for work that the Node announces; empty without any."""
    if not state.planned:
        return ""
    is_under_way = any(each.in_progress for each in state.planned)
    return "maintenance in progress" if is_under_way else "maintenance planned"


def planned_words(each: PlannedWork) -> str:
    """Return ``VMEventScheduled since 2026-05-06T12:00:00Z: Freeze``."""
    text = f": {excerpt(printable(each.text))}" if each.text else ""
    return f"{_planned(each)}{text}"


def planned_sentence(state: NodeState) -> str:
    """Return the work that the Node announces, in a sentence; empty without any.

    Events and notifications have the sentence, so it quotes no text of others.
    """
    said = "; ".join(map(_planned, state.planned))
    return f"The Node announces work on its machine: {said}." if said else ""


def _planned(each: PlannedWork) -> str:
    begins = f" for {stamp(moment_of(each.at_ns))}" if each.at_ns is not None else ""
    since = f" since {stamp(moment_of(each.since_ns))}" if each.since_ns is not None else ""
    return f"{each.name}{begins}{since}"


def check_and_release(node: str, *, validates: bool = False) -> str:
    """Return what a person does with a node that is repaired; ``validates``: the controller can test it."""
    how = f"konductor-like validate {node}" if validates else "dcgmi diag -r 3"
    return f"Run diagnostics (`{how}`), then release the node: `konductor-like reset {node}`."


def why_not_tainted(refused: SkippedTaint, state: NodeState, brake: BrakeState) -> str:
    """Return why the controller does not taint a node that has a reason for a taint.

    Events, the log, ``status`` and ``explain`` all use this text.
    """
    match refused.why:
        case SkipReason.BRAKE | SkipReason.RATE | SkipReason.COOLDOWN | SkipReason.PAUSED:
            return why_held(refused.why, brake, state.pool)
        case SkipReason.OPTED_OUT:
            return f"the node has the label {OPT_OUT_LABEL}"
        case SkipReason.NOT_SELECTED:
            return "the controller's KONDUCTOR_NODE_SELECTOR does not select the node"
        case SkipReason.BLOCKED:
            return "another tool's taint has the same key and effect"
        case SkipReason.AMBIGUOUS:
            return "two machines report under the node's name"
        case SkipReason.PENDING:
            return f"the line is from {refused.detail}, the node runs boot {state.machine.boot_id}"
        case SkipReason.COLLATERAL:
            root_cause = getattr(refused.about, "root_cause", None)
            where = f"on {root_cause}" if root_cause else "elsewhere"
            return f"a failure {where} caused it ({refused.detail})"
        case SkipReason.DEFERRED:
            return refused.detail
        case _:
            return refused.why.value


def why_held(why: SkipReason, brake: BrakeState, pool: str | None = None) -> str:
    """Return why the brake holds a node of this pool."""
    match why:
        case SkipReason.PAUSED if brake.pause is not None:
            return f"tainting is {pause_words(brake.pause)}"
        case SkipReason.COOLDOWN if brake.rearms_at is not None:
            how = "deleted" if brake.deleted else "released"
            return (
                f"the brake's cool-down ends at {stamp(brake.rearms_at)}, or later if more nodes are {how} "
                f"({_cooling_nodes(brake)})"
            )
        case SkipReason.RATE if brake.pace is not None:
            within = span_text(round(brake.pace.window_seconds))
            tests = _for_tests(brake.pace.tests)
            return f"rate limit: {brake.pace.taints} taints within {within}{tests}, at most {brake.pace.most}"
    # A pool that only tests fill holds no fault: then the fleet is full, unless a test is held.
    leaves_places = brake.out + brake.unavailable < brake.bound
    pools = (p for p in brake.pools if p.pool == pool)
    full = next(
        (p for p in pools if p.out - p.tests >= p.bound or (leaves_places and p.out >= p.bound)), None
    )
    if full is not None:
        return (
            f"{full.out} of {full.gpu_nodes} GPU nodes of pool {pool} are out of service"
            f"{_for_tests(full.tests)}, the limit is {full.bound}"
        )
    also = f" and {brake.unavailable} unavailable" if brake.unavailable else ""
    return (
        f"{brake.out} of {brake.gpu_nodes} GPU nodes are out of service{_for_tests(brake.tests)}{also}, "
        f"the limit is {brake.bound}"
    )


def _for_tests(tests: int) -> str:
    """Return `` (1 for a test)``: a part of the number before it that keeps no fault waiting."""
    return f" ({tests} for {'a test' if tests == 1 else 'tests'})" if tests else ""


def _cooling_nodes(brake: BrakeState) -> str:
    """Return ``2 released and 1 deleted while tainted``."""
    released = brake.cooling - brake.deleted
    parts = ([f"{released} released"] if released else []) + (
        [f"{brake.deleted} deleted while tainted"] if brake.deleted else []
    )
    return " and ".join(parts)


def pause_words(pause: ControlAct) -> str:
    """Return ``paused by kim until 2026-05-06T14:00:00Z: driver roll-out``."""
    until = f" until {stamp(pause.until)}" if pause.until else ""
    return f"paused by {pause.by}{until}: {pause.reason}"


def deferral_words(until_ns: int) -> str:
    """Return ``deferred until 2026-05-06T14:00:05Z, to find …``; the time is rounded up to a second."""
    rounded_up_ns = -(-until_ns // SECOND_NS) * SECOND_NS
    return f"deferred until {stamp(moment_of(rounded_up_ns))}, to find the root cause first"


ID_CHARS = 12


def act_of(state: NodeState, verb: Verb, at: datetime, rules_version: str = "") -> Act:
    """Return the act of a write: its id, time and rules.

    The id is a digest of the node as it was read and the kind of the write, so a repeated write has the same
    id.
    """
    seen = state.as_read
    parts = (state.name, seen.uid, seen.resource_version, seen.record or "", verb.value)
    return Act(_named(parts), at, rules_version)


def control_act_id(verb: str, at: datetime, by: str, reason: str = "") -> str:
    """Return the id of an operator's control on the Lease."""
    return _named((verb, at.isoformat(), by, reason))


def _named(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:ID_CHARS]
