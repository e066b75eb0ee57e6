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
ALIKE_LEAST = 3
"""Number of nodes of one pool and instance type of which the majority shows what such a node has."""
NOTED_AFTER_NS = span_ns(300)
"""Nanoseconds after a fall until the record gets the highest count: most falls are short restarts."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What is known of the GPUs of one node, and of its machine."""

    state: NodeState
    highest: int
    """The highest count of the machine, by this memory and by the record."""
    layout: tuple[int, bool, bool] | None = None
    """See ``GpuCount.layout``; None before the machine had a GPU."""
    expected: int = 0
    since_ns: int | None = None
    """Since when the node, in service and in its present boot, has fewer GPUs than expected; else None."""

    @property
    def present(self) -> int:
        """Return how many GPUs are allocatable now."""
        return self.state.gpus.allocatable if self.state.gpus else 0

    @property
    def is_short(self) -> bool:
        """Whether GPUs are missing. Parts of GPUs (MIG) are not counted."""
        gpus = self.state.gpus
        return self.present < self.expected and (gpus is None or gpus.comparable)

    @property
    def in_service(self) -> bool:
        """Whether missing GPUs are a fault of this node, and not work in progress."""
        state, gpus = self.state, self.state.gpus
        in_service = state.ready and not state.unschedulable and not state.opted_out
        return in_service and gpus is not None and gpus.comparable and not gpus.in_upgrade

    @property
    def words(self) -> str:
        """Return ``7 of 8 GPUs``."""
        return f"{self.present} of {self.expected} GPUs"


@dataclass(frozen=True, slots=True)
class GpuCounts:
    """The counts of all nodes: the controller's memory from reconcile to reconcile."""

    nodes: Mapping[str, Counted] = field(default_factory=dict)
    together: tuple[str, ...] = ()
    """Nodes that lost GPUs at about the same time, and too many of them to be a fault of each."""

    @property
    def short(self) -> dict[str, str]:
        """Return the nodes that miss GPUs now, in service or not, with :attr:`Counted.words`."""
        return {name: each.words for name, each in self.nodes.items() if each.is_short}

    @property
    def missing(self) -> int:
        """Return how many GPUs are missing in the fleet."""
        return sum(each.expected - each.present for each in self.nodes.values() if each.is_short)


def counted(
    before: GpuCounts, states: Mapping[str, NodeState], policy: PolicyConfig, now: datetime
) -> GpuCounts:
    """Return the counts after these states of the nodes."""
    now_ns = unix_ns(now)
    seen: dict[str, Counted] = {}
    for name, state in states.items():
        known = before.nodes.get(name)
        if known is not None and known.state is state:
            seen[name] = known
        elif known is not None or state.gpus is not None or state.record.gpus is not None:
            seen[name] = _seen(known, state)
    usual = _usual(seen.values())
    nodes = {name: _expected(each, usual, now_ns) for name, each in seen.items()}
    return GpuCounts(nodes, _together(nodes, policy))


def _seen(before: Counted | None, state: NodeState) -> Counted:
    """Return what is known after a new state of the node; ``before`` is None at the first one."""
    gpus, record = state.gpus, state.record
    recorded = record.gpus if record.gpus is not None and _is_same(record.machine, state.machine) else None
    best = recorded or 0
    if gpus is not None and gpus.comparable:
        # The capacity has GPUs that the plugin found to be broken. A record may have accepted their loss.
        best = max(best, gpus.allocatable, gpus.capacity if recorded is None else 0)
    layout = gpus.layout if gpus is not None and gpus.capacity else None  # a count of 0 has any layout
    if before is None or not _is_same(before.state.machine, state.machine):
        return Counted(state, best, layout)
    if None not in (layout, before.layout) and layout != before.layout:
        return Counted(state, best, layout)
    released = record.releases[:1] != before.state.record.releases[:1]
    return Counted(
        state,
        best if released and recorded is not None else max(best, before.highest),
        layout or before.layout,
        before.expected,
        before.since_ns if state.machine.boot_id == before.state.machine.boot_id else None,
    )


def _is_same(one: Machine | None, other: Machine) -> bool:
    if one is None:
        return False
    if one.system_id is None or other.system_id is None:
        return one.node_uid == other.node_uid
    return one.system_id == other.system_id


def _usual(nodes: Iterable[Counted]) -> dict[tuple[str | None, str], int]:
    """Return by pool and instance type the count that the majority of such nodes have."""
    found: defaultdict[tuple[str | None, str], Counter[int]] = defaultdict(Counter)
    for each in nodes:
        gpus = each.state.gpus
        if gpus is not None and gpus.kind and gpus.comparable:
            found[each.state.pool, gpus.kind][each.highest] += 1
    return {
        kind: most
        for kind, numbers in found.items()
        for most, nodes_with in numbers.most_common(1)
        if nodes_with * 2 > numbers.total() >= ALIKE_LEAST
    }


def _expected(each: Counted, usual: Mapping[tuple[str | None, str], int], now_ns: int) -> Counted:
    state, expected = each.state, each.highest
    if state.record.gpus is None and state.gpus is not None:
        expected = max(expected, usual.get((state.pool, state.gpus.kind), 0))
    if expected != each.expected:
        each = replace(each, expected=expected)
    since_ns = min(each.since_ns or now_ns, now_ns) if each.is_short and each.in_service else None
    return each if since_ns == each.since_ns else replace(each, since_ns=since_ns)


def _together(nodes: Mapping[str, Counted], policy: PolicyConfig) -> tuple[str, ...]:
    falling = sorted(
        (each.since_ns, name)
        for name, each in nodes.items()
        if each.since_ns is not None and not _is_reported(each.state)
    )
    times_ns, span = [since_ns for since_ns, _ in falling], span_ns(policy.gpu_count_seconds)
    most = max(1.0, len(nodes) * FALLING_PERCENT / 100)
    return tuple(
        name
        for since_ns, name in falling
        if bisect_right(times_ns, since_ns + span) - bisect_left(times_ns, since_ns - span) > most
    )


def open_incidents_of(state: NodeState) -> list[Incident]:
    """Return the node's incidents of missing GPUs that have not ended."""
    return [
        i
        for i in state.record.incidents
        if i.key == GPUS_MISSING and i.state is not IncidentState.RELEASED and i.ended_ns is i.met_ns is None
    ]


def _is_reported(state: NodeState) -> bool:
    return any(i.last.boot_id in (None, state.machine.boot_id) for i in open_incidents_of(state))


def faults_of(counts: GpuCounts, rule: Finding, policy: PolicyConfig, now: datetime) -> list[Fault]:
    """Return the faults of nodes that have missed GPUs for long enough, and the ends of those that miss none.

    A fault is not repeated while its incident is open in the node's present boot. ``rule`` is the finding
    without a text.
    """
    now_ns, span = unix_ns(now), span_ns(policy.gpu_count_seconds)
    found: list[Fault] = []
    for name, each in counts.nodes.items():
        state, text = each.state, f"{each.words} are allocatable"
        if each.since_ns is not None:
            if not 0 < span <= now_ns - each.since_ns or name in counts.together or _is_reported(state):
                continue
            capacity = state.gpus.capacity if state.gpus else 0
            finding = rule._replace(text=f"{text} (capacity {capacity})")
        elif state.record.incidents and not each.is_short and each.in_service and open_incidents_of(state):
            finding = rule._replace(
                text=text,
                severity=Severity.INFO,
                title="All GPUs are allocatable again",
                advice="The GPUs are back.",
                needs=Needs.NONE.value,
                clears=rule.rule,
                shadow=False,
            )
        else:
            continue
        position = KernelPosition(state.machine.boot_id)
        found.append(Fault(finding._replace(position=position), Source.KERNEL, now_ns, name))
    return found


def with_counts(plan: Plan, counts: GpuCounts, policy: PolicyConfig, now: datetime) -> Plan:
    """Return the plan with the highest counts in all records that it writes, and a write for each fall.

    A fall is written when it has lasted five minutes: after a restart of the controller, the Node alone does
    not tell what it had.
    """
    changes = []
    for change in plan.changes:
        each, record = counts.nodes.get(change.node), change.record
        if (
            each is not None
            and record is not None
            and each.expected
            and record.gpus == each.state.record.gpus
        ):
            change = replace(change, record=replace(record, gpus=each.expected))
        changes.append(change)
    planned = {change.node for change in plan.changes} | set(counts.together)
    due_ns = unix_ns(now) - NOTED_AFTER_NS
    for name, each in counts.nodes.items():
        if each.since_ns is not None and each.since_ns <= due_ns and name not in planned:
            state = each.state
            if state.record.gpus != each.expected and state.record_problem is None:
                changes.append(_noted(state, each.expected, policy, now))
    return replace(plan, changes=tuple(changes))


def _noted(state: NodeState, gpus: int, policy: PolicyConfig, now: datetime) -> Change:
    act = act_of(state, Verb.RECORD, now, policy.version)
    return Change(
        state.name,
        Verb.RECORD,
        record=replace(state.record, machine=state.machine, gpus=gpus, act=act),
        health=state.as_read.health,
        needs=state.as_read.needs,
        suspect_taint=state.suspect_tainted,
        upkeep=True,
    )


def accepted(state: NodeState) -> int | None:
    """Return the record's count after a release: a person who releases missing GPUs accepts their loss."""
    if state.gpus is None or not open_incidents_of(state):
        return state.record.gpus
    return state.gpus.allocatable
