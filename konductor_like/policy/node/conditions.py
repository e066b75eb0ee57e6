"""Other programs' conditions of a Node, as faults (rule 42).

node-problem-detector, a cloud's agent or NVSentinel writes what it finds into the Node's status. A condition
that reports a fault is a fault of ``condition.TYPE``, suspect at most unless a user's rule asks for more.

The time of its last change (``lastTransitionTime``) identifies it: a change is one occurrence, whatever its
heartbeats and messages are, also for the next controller. A condition whose heartbeat is old tells nothing:
it begins no fault, and ends none. A healthy one ends nothing at once, either, because a lost GPU can take the
program along that would report it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from konductor_like.detection.kernel_record import normal_pci
from konductor_like.model import (
    EVIDENCE_CHARS,
    NO_GPUS,
    ConditionRule,
    ConditionsSeen,
    Fault,
    FaultKind,
    Finding,
    Incident,
    KernelPosition,
    NodeState,
    ReportedCondition,
    Snapshot,
    Source,
)
from konductor_like.model.text import clipped, printable
from konductor_like.model.time import moment_of, span_ns, stamp, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.covers import known_to_ns

STALE_NS = span_ns(900)
"""Nanoseconds after its last heartbeat from which on a condition tells nothing. Agents write one every five
minutes."""
_PCI = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
"""A PCI address with its domain: one without looks like a time of day."""


def rule_of(kind: str) -> str:
    """Return the rule of conditions of this type."""
    return f"{FaultKind.CONDITION}.{kind}"


def reported_faults(
    snapshot: Snapshot, seen: ConditionsSeen, policy: PolicyConfig, now: datetime
) -> tuple[list[Fault], ConditionsSeen]:
    """Return the faults that conditions report and no record has yet, and what the next decision must know.

    In shadow mode nothing is recorded, so what was found before is in ``seen``.
    """
    now_ns, found = unix_ns(now), list[Fault]()
    shadowed = set[tuple[str, str, int]]()
    for state in snapshot.nodes.values():
        for each in state.reported:
            rule = policy.conditions.get(each.type)
            if rule is None or each.status != rule.bad or rule.finding is None:
                continue  # nearly every condition of a fleet
            if rule.reasons is not None and rule.reasons.fullmatch(each.reason) is None:
                continue
            if each.since_ns is None:
                continue
            mark = (state.name, each.type, each.since_ns)
            is_known = rule.finding.shadow and mark in seen.shadowed
            if not is_known and may_accuse(state) and _is_told_now(each, state, now_ns):
                fault = _fault(rule.finding, each, each.since_ns, state, seen)
                if fault.timestamp_ns > known_to_ns(fault.key, state, snapshot):
                    found.append(fault)
                    is_known = rule.finding.shadow
            if is_known:
                shadowed.add(mark)
    return found, ConditionsSeen(seen.act_from_ns, frozenset(shadowed))


def stands(incident: Incident, state: NodeState, now_ns: int) -> bool:
    """Whether the incident is of a condition whose writer does not say now that it has changed since.

    A condition that is gone, out of date, ``Unknown`` or without a time does not say so.
    """
    if incident.kind is not FaultKind.CONDITION:
        return False
    each = _condition_of(incident, state)
    if each is None or each.status == "Unknown" or (each.since_ns or 0) <= incident.last_ns:
        return True
    return not _is_told_now(each, state, now_ns)


def healthy_since_ns(incident: Incident, state: NodeState, policy: PolicyConfig, now_ns: int) -> int | None:
    """Return since when the incident's condition is healthy; None if its writer does not say so now."""
    each = _condition_of(incident, state)
    if each is None or each.since_ns is None or not _is_told_now(each, state, now_ns):
        return None
    rule = policy.conditions.get(each.type)
    return each.since_ns if rule is not None and _is_healthy(each, rule) else None


def reported_words(state: NodeState, rules: Mapping[str, ConditionRule], now: datetime) -> Iterator[str]:
    """Yield each condition that is not healthy: ``GPUProblem is True (GPUsAreDown) since …``.

    The words say of a condition without a recent heartbeat that it tells nothing.
    """
    for each in state.reported:
        rule = rules.get(each.type)
        if rule is None or _is_healthy(each, rule):
            continue
        since = "" if each.since_ns is None else f", since {stamp(moment_of(each.since_ns))}"
        tells = "" if _is_told_now(each, state, unix_ns(now)) else ". It is out of date, and tells nothing"
        yield f"{_words(each)}{since}{tells}"


def _condition_of(incident: Incident, state: NodeState) -> ReportedCondition | None:
    if incident.kind is not FaultKind.CONDITION:
        return None
    return next((each for each in state.reported if rule_of(each.type) == incident.key.rule), None)


def _is_healthy(each: ReportedCondition, rule: ConditionRule) -> bool:
    return each.status == ("False" if rule.bad == "True" else "True")


def _is_told_now(each: ReportedCondition, state: NodeState, now_ns: int) -> bool:
    """Whether the writer speaks of the present: of this Node and boot, lately, and of no time to come."""
    since_ns = each.since_ns or 0
    told_ns = max(since_ns, each.beat_ns or 0)
    is_of_boot = told_ns >= max(state.created_ns, state.booted_after_ns or 0)
    return since_ns <= now_ns and is_of_boot and now_ns - told_ns <= STALE_NS


def may_accuse(state: NodeState) -> bool:
    """Whether what others see of the node may be a fault of the GPUs now.

    A check fails while the machine boots, and while the GPU operator replaces the driver.
    """
    is_replacing = state.gpus.paused and state.gpus != NO_GPUS
    return state.is_gpu_node and state.ready and not is_replacing


def _fault(
    finding: Finding, each: ReportedCondition, since_ns: int, state: NodeState, seen: ConditionsSeen
) -> Fault:
    gpus = {normal_pci(address) for address in _PCI.findall(each.message)}
    finding = finding._replace(
        text=_words(each),
        gpu=gpus.pop() if len(gpus) == 1 else None,
        position=KernelPosition(state.machine.boot_id),
    )
    return Fault(finding, Source.KERNEL, since_ns, state.name, before_install=since_ns < seen.act_from_ns)


def _words(each: ReportedCondition) -> str:
    """Return ``GPUProblem is True (GPUsAreDown): Unable to determine …``, safe to print."""
    reason = f" ({each.reason})" if each.reason else ""
    message = " ".join(each.message.split())
    text = f"{each.type} is {each.status}{reason}" + (f": {message}" if message else "")
    return clipped(printable(text).rstrip("."), EVIDENCE_CHARS)
