"""GPUs that are missing: how many a node has, against the most that its machine had (rule 38).

A GPU may be lost without a line in any log. The controller therefore counts. It expects of a machine the
highest count that it saw or that the record has. Without a record, the machine should also have as many GPUs
as most nodes of its pool and instance type. A count that stays lower is a fault of ``node.gpus_missing``.

Restarts of the kubelet, the device plugin or the machine make counts fall for minutes, and driver roll-outs
make them fall on many nodes. So a fall must last, on a node in service, and few nodes may fall at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from konductor_like.model import (
    Change,
    Fault,
    Finding,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Machine,
    Needs,
    NodeState,
    Plan,
    Severity,
    Source,
    Verb,
)
from konductor_like.model.time import span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.wording import act_of

GPUS_MISSING = IncidentKey("node.gpus_missing", None)
FALLING_PERCENT = 5.0
"""Percentage of the counted nodes that may lose GPUs at once; more fall in a driver roll-out."""
NOTED_AFTER_NS = span_ns(300)
"""Nanoseconds after a fall until the record gets the highest count: most falls are short restarts."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What is known of the GPUs of one node, and of its machine."""

    state: NodeState
    present: int
    """How many GPUs are allocatable now."""
    highest: int
    """The highest count of the machine, by this memory and by the record."""
    layout: str
    """See ``GpuCount.layout``; empty before the machine had a GPU."""
    open_boots: frozenset[str | None]
    """The boots with an open incident of missing GPUs."""
    expected: int = 0
    since_ns: int | None = None
    """Since when the node, in service and in its present boot, has fewer GPUs than expected; else None."""

    @property
    def is_reported(self) -> bool:
        """Whether the record says already that GPUs are missing in this boot."""
        return not self.open_boots.isdisjoint((None, self.state.machine.boot_id))

    @property
    def words(self) -> str:
        """Return ``7 of 8 GPUs``."""
        return f"{self.present} of {self.expected} GPUs"


@dataclass(frozen=True, slots=True)
class GpuCounts:
    """The counts of all nodes: the controller's memory from reconcile to reconcile."""

    nodes: Mapping[str, Counted] = field(default_factory=dict)
    short: Mapping[str, Counted] = field(default_factory=dict)
    """The nodes that miss GPUs now, in service or not."""
    together: frozenset[str] = frozenset()
    """Nodes that lost GPUs at about the same time, and too many of them to be a fault of each."""


def counted(
    before: GpuCounts, states: Mapping[str, NodeState], policy: PolicyConfig, now: datetime
) -> GpuCounts:
    """Return the counts after these states of the nodes. Parts of GPUs (MIG) are not counted."""
    now_ns, nodes, short = unix_ns(now), {}, {}
    for name, state in states.items():
        known, gpus = before.nodes.get(name), state.gpus
        if known is not None and known.state is state:
            nodes[name] = known
        elif gpus.comparable if gpus is not None else known is not None or state.record.gpus is not None:
            nodes[name] = _seen(known, state)
    usual = _usual(nodes.values())
    for name, each in nodes.items():
        expected = each.highest
        if usual and each.state.record.gpus is None and each.state.gpus is not None:
            expected = max(expected, usual.get((each.state.pool, each.state.gpus.kind), 0))
        if each.present < expected:
            since_ns = min(each.since_ns or now_ns, now_ns) if _is_in_service(each.state) else None
            nodes[name] = short[name] = replace(each, expected=expected, since_ns=since_ns)
        elif each.expected != expected or each.since_ns is not None:
            nodes[name] = replace(each, expected=expected, since_ns=None)
    return GpuCounts(nodes, short, _together(short, len(nodes), span_ns(policy.gpu_count_seconds)))


def _seen(before: Counted | None, state: NodeState) -> Counted:
    """Return what is known after a new state of the node; ``before`` is None at the first one."""
    gpus, record, now = state.gpus, state.record, state.machine
    recorded = record.gpus if record.machine is not None and _is_same(record.machine, now) else None
    present, best, layout = 0, recorded or 0, before.layout if before is not None else ""
    if gpus is not None:
        present = gpus.allocatable
        # The capacity has GPUs that the plugin found to be broken. A record may have accepted their loss.
        best = max(best, present if recorded is not None else gpus.capacity)
        layout = gpus.layout if gpus.capacity else layout  # a count of 0 has any layout
    boots = frozenset(incident.last.boot_id for incident in open_incidents_of(state))
    if before is None or not _is_same(before.state.machine, now) or layout != (before.layout or layout):
        return Counted(state, present, best, layout, boots)
    if recorded is None or record.releases[:1] == before.state.record.releases[:1]:
        best = max(best, before.highest)
    since_ns = before.since_ns if before.state.machine.boot_id == now.boot_id else None
    return Counted(state, present, best, layout, boots, before.expected, since_ns)


def _is_same(one: Machine, other: Machine) -> bool:
    return (one.system_id or one.node_uid) == (other.system_id or other.node_uid)


def _is_in_service(state: NodeState) -> bool:
    """Whether missing GPUs are a fault of this node, and not work in progress."""
    is_ready = state.ready and not state.unschedulable and not state.opted_out
    return is_ready and state.gpus is not None and not state.gpus.in_upgrade


def _usual(nodes: Iterable[Counted]) -> dict[tuple[str | None, str], int]:
    """Return by pool and instance type the count that most such nodes have.

    A node that has fewer is one of them, so only three or more nodes have such a majority.
    """
    found: defaultdict[tuple[str | None, str], Counter[int]] = defaultdict(Counter)
    for each in nodes:
        if each.state.gpus is not None and each.state.gpus.kind:
            found[each.state.pool, each.state.gpus.kind][each.highest] += 1
    most = {kind: numbers.most_common(1)[0] for kind, numbers in found.items()}
    return {kind: gpus for kind, (gpus, alike) in most.items() if alike * 2 > found[kind].total()}


def _together(short: Mapping[str, Counted], nodes: int, span: int) -> frozenset[str]:
    falls = [(each.since_ns, name) for name, each in short.items() if each.since_ns and not each.is_reported]
    times_ns, most = sorted(ns for ns, _ in falls), max(1.0, nodes * FALLING_PERCENT / 100)
    return frozenset(
        name
        for ns, name in falls
        if bisect_right(times_ns, ns + span) - bisect_left(times_ns, ns - span) > most
    )


def open_incidents_of(state: NodeState) -> list[Incident]:
    """Return the node's incidents of missing GPUs that have not ended."""
    return [
        i
        for i in state.record.incidents
        if i.key == GPUS_MISSING and i.state is not IncidentState.RELEASED and i.ended_ns is i.met_ns is None
    ]


def faults_of(counts: GpuCounts, rule: Finding, policy: PolicyConfig, now: datetime) -> list[Fault]:
    """Return the faults of nodes that have missed GPUs for long enough, and the ends of those that miss none.

    A fault is not repeated while its incident is open in the node's present boot. ``rule`` is the finding
    without a text.
    """
    now_ns, span = unix_ns(now), span_ns(policy.gpu_count_seconds)
    found: list[tuple[Counted, Finding]] = []
    for name, each in counts.short.items():
        lasts = each.since_ns is not None and 0 < span <= now_ns - each.since_ns
        if lasts and name not in counts.together and not each.is_reported:
            capacity = each.state.gpus.capacity if each.state.gpus else 0
            found.append((each, rule._replace(text=f"{each.words} are allocatable (capacity {capacity})")))
    for name, each in counts.nodes.items():
        if each.open_boots and name not in counts.short and not each.state.opted_out:
            end = Finding(
                *(rule.kind, rule.rule, Severity.INFO, "All GPUs are allocatable again"),
                *("The GPUs are back.", f"{each.words} are allocatable"),
                needs=Needs.NONE.value,
                clears=rule.rule,
            )
            found.append((each, end))
    return [
        Fault(
            finding._replace(position=KernelPosition(each.state.machine.boot_id)),
            *(Source.KERNEL, now_ns, each.state.name),
        )
        for each, finding in found
    ]


def with_counts(plan: Plan, counts: GpuCounts, policy: PolicyConfig, now: datetime) -> Plan:
    """Return the plan with the highest counts in all records that it writes, and a write for each fall.

    A fall is written when it has lasted five minutes: after a restart of the controller, the Node alone does
    not tell what it had.
    """
    changes = {change.node: change for change in plan.changes}
    for name, change in changes.items():
        each, record = counts.nodes.get(name), change.record
        if each and record and each.expected and record.gpus == each.state.record.gpus:
            changes[name] = replace(change, record=replace(record, gpus=each.expected))
    due_ns = unix_ns(now) - NOTED_AFTER_NS
    for name, each in counts.short.items():
        state, lasts = each.state, each.since_ns is not None and each.since_ns <= due_ns
        if not lasts or name in changes or name in counts.together or state.record_problem is not None:
            continue
        if state.record.gpus != each.expected:
            act = act_of(state, Verb.RECORD, now, policy.version)
            changes[name] = Change(
                *(name, Verb.RECORD),
                record=replace(state.record, machine=state.machine, gpus=each.expected, act=act),
                health=state.as_read.health,
                needs=state.as_read.needs,
                suspect_taint=state.suspect_tainted,
                upkeep=True,
            )
    return replace(plan, changes=tuple(changes.values()))


def accepted(state: NodeState) -> int | None:
    """Return the record's count after a release: a person who releases missing GPUs accepts their loss."""
    if state.gpus is None or not open_incidents_of(state):
        return state.record.gpus
    return state.gpus.allocatable
