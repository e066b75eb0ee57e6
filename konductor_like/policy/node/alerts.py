"""Alerts of Prometheus as faults (rule 44).

An alert of our catalogue that fires for a node is a fault of ``alert.NAME``, suspect at most unless a user's
rule asks for more.

The start of a firing, as Prometheus tells it, changes with its restarts, its replicas and edited rules. So
the controller does not ask for it. The same alert on the same node and GPU is the same firing until it was
absent for half an hour while its exporter was up. For example, an alert that fires again ten minutes after a
reboot says nothing new. Without an answer nothing changes: a Prometheus that is down is no end of an alert.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from konductor_like.model import (
    AlertKey,
    AlertsAnswer,
    AlertsSeen,
    Fault,
    FaultKind,
    Finding,
    Firing,
    GpuSource,
    Incident,
    IncidentState,
    KernelPosition,
    NodeState,
    SeenGpu,
    Snapshot,
    Source,
    ToldAlert,
)
from konductor_like.model.time import span_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.conditions import may_accuse
from konductor_like.policy.node.covers import known_to_ns

OVER_NS = span_ns(1800)
"""Nanoseconds for which an alert is absent, while its exporter is up, until its firing is over."""
GAP_NS = span_ns(300)
"""Nanoseconds between two answers from which on nothing is known of the time between them."""
GPUS_MOST = 32
"""GPUs of one node for which an alert of one name counts."""
FIRST_NS = span_ns(1800)
"""Nanoseconds after ``act_from_ns`` up to which the first answer is that of the first start."""


def rule_of(name: str) -> str:
    """Return the rule of an alert."""
    return f"{FaultKind.ALERT}.{name}"


def alert_faults(
    snapshot: Snapshot, seen: AlertsSeen, policy: PolicyConfig
) -> tuple[list[Fault], AlertsSeen]:
    """Return the faults of alerts that fire and no record has yet, and what the next decision must know."""
    seen, found = _after_answer(seen, snapshot, policy), list[Fault]()
    told = dict[AlertKey, Firing]()
    for key, firing in seen.firings.items():
        rule, state = policy.alerts.get(key.name), snapshot.nodes.get(key.node)
        if not firing.is_firing or firing.is_told or rule is None or rule.finding is None or state is None:
            continue
        if not may_accuse(state):
            continue
        fault = _fault(rule.finding, key, firing, state, seen)
        if fault.timestamp_ns > known_to_ns(fault.key, state, snapshot, by_gpu=True):
            found.append(fault)
            if rule.finding.shadow:
                told[key] = replace(firing, is_told=True)
    return found, replace(seen, firings={**seen.firings, **told}) if told else seen


def still_counts(incident: Incident, state: NodeState, seen: AlertsSeen | None) -> bool:
    """Whether the incident's alert fires, or may fire: then a boot does not end it.

    Without an answer nobody knows. If alerts are no longer asked for (``seen`` is None), nobody speaks.
    """
    if incident.kind is not FaultKind.ALERT or seen is None:
        return False
    firing = _firing_of(incident, state, seen)
    return firing is None or not firing.is_over


def absent_since_ns(incident: Incident, state: NodeState, seen: AlertsSeen | None, now_ns: int) -> int | None:
    """Return since when the incident's alert does not fire while its exporter is up; None if nobody knows."""
    if seen is None or seen.answer is None or now_ns - seen.answer.at_ns > GAP_NS:
        return None
    firing = _firing_of(incident, state, seen)
    return firing.absent_ns if firing else None


def told_gpus(seen: AlertsSeen) -> Mapping[str, tuple[SeenGpu, ...]]:
    """Return, by node, the GPUs that the labels of alerts name.

    Each counts as seen when the firing began: an alert that fires on after a reboot proves nothing of it.
    """
    found: dict[str, tuple[SeenGpu, ...]] = {}
    for key, firing in seen.firings.items():
        if firing.told.gpu is not None:
            each = SeenGpu(firing.told.gpu, GpuSource.EXPORTER, firing.since_ns)
            found[key.node] = (*found.get(key.node, ()), each)
    return found


def _firing_of(incident: Incident, state: NodeState, seen: AlertsSeen) -> Firing | None:
    name = incident.key.rule.removeprefix(rule_of(""))
    return seen.firings.get(AlertKey(name, state.name, incident.key.gpu))


def _after_answer(seen: AlertsSeen, snapshot: Snapshot, policy: PolicyConfig) -> AlertsSeen:
    """Return what is known after the latest answer; the identical object if there is no new one."""
    answer = snapshot.alerts_answer
    if answer is None or answer is seen.answer:
        return seen
    recorded = dict(_recorded(snapshot))
    kept = {key: each for key, each in seen.firings.items() if key in recorded or not each.is_over}
    before, firings, numbers = {**recorded, **kept}, dict[AlertKey, Firing](), Counter[tuple[str, str]]()
    for key, told in answer.firing.items():
        state = snapshot.nodes.get(key.node)
        if state is None or key.name not in policy.alerts:
            continue
        known = before.pop(key, None)
        numbers[key.name, key.node] += 1
        if numbers[key.name, key.node] > GPUS_MOST:
            continue  # no machine has so many
        is_of_node = known is not None and (key in recorded or known.since_ns >= state.created_ns)
        if known is None or known.is_over or not is_of_node:
            firings[key] = Firing(answer.at_ns, told)
        else:
            firings[key] = replace(known, told=told, is_firing=True, absent_ns=None)
    for key, known in before.items():
        if key.node in snapshot.nodes:
            gone = _absent(key, known, answer, seen.answer, policy, is_recorded=key in recorded)
            # Of a fault that ended before this controller began, the next firing is a new one.
            is_over = known.is_past and key not in seen.firings and gone.absent_ns is not None
            firings[key] = replace(gone, is_over=True) if is_over else gone
    began_ns = answer.at_ns if seen.began_ns is None and answer.complete else seen.began_ns
    return AlertsSeen(seen.act_from_ns, answer, firings, began_ns)


def _recorded(snapshot: Snapshot) -> Iterator[tuple[AlertKey, Firing]]:
    """Yield each firing that a record has: after a restart of the controller an alert is no new one."""
    for state in snapshot.nodes.values():
        for each in state.record.incidents:
            if each.kind is FaultKind.ALERT:
                key = AlertKey(each.key.rule.removeprefix(rule_of("")), state.name, each.key.gpu)
                is_past = each.state is IncidentState.RELEASED
                yield key, Firing(each.last_ns, ToldAlert(each.evidence), is_past=is_past)


def _absent(
    key: AlertKey,
    known: Firing,
    answer: AlertsAnswer,
    before: AlertsAnswer | None,
    policy: PolicyConfig,
    *,
    is_recorded: bool,
) -> Firing:
    """Return a firing that is missing in the answer.

    One that no record has, such as that of a node that is not Ready, is forgotten after half an hour,
    whatever its exporter does.
    """
    rule = policy.alerts.get(key.name)
    is_up = rule is not None and (rule.exporter, key.node) in answer.up
    if not answer.complete or (is_recorded and not is_up):
        return replace(known, is_firing=False, absent_ns=None)
    is_next = before is not None and answer.at_ns - before.at_ns <= GAP_NS
    since_ns = known.absent_ns if is_next and known.absent_ns is not None else answer.at_ns
    is_over = known.is_over or answer.at_ns - since_ns >= OVER_NS
    return replace(known, is_firing=False, absent_ns=since_ns, is_over=is_over)


def _fault(finding: Finding, key: AlertKey, firing: Firing, state: NodeState, seen: AlertsSeen) -> Fault:
    finding = finding._replace(
        text=firing.told.text, gpu=key.gpu, position=KernelPosition(state.machine.boot_id)
    )
    # What fires in the first whole answer after the first start may have fired for days.
    is_first = seen.began_ns is None or firing.since_ns <= seen.began_ns
    is_first = is_first and firing.since_ns <= seen.act_from_ns + FIRST_NS
    return Fault(finding, Source.KERNEL, firing.since_ns, state.name, before_install=is_first)
