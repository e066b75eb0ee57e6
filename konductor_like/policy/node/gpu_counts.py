"""GPUs that are missing: how many a node has, against the most that its machine had (rule 38).

A GPU may be lost without a line in any log. The controller therefore counts. It expects of a machine the
highest count that it saw or that the record has. Without a record, the machine should also have as many GPUs
as most nodes of its pool and instance type. A count that stays lower is a fault of ``node.gpus_missing``.

Restarts of the kubelet, the device plugin or the machine make counts fall for minutes, and driver roll-outs
make them fall on many nodes. So a fall must last, on a node in service, and few nodes may fall at once.

A half-dead GPU comes and goes. So a fall that follows another one within ``gpu_count_seconds`` continues it,
and the fault of a node with several falls ends only when its GPUs have been back for as long.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache

from konductor_like.model import (
    NO_GPUS,
    Fault,
    Finding,
    GpuCounts,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    MetBy,
    Needs,
    NodeGpus,
    NodeRecord,
    NodeState,
    Severity,
    Source,
)
from konductor_like.model.time import span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig

Usual = Mapping[tuple[str | None, str], int]
"""By pool and instance type, the count that most nodes have."""
GPUS_MISSING = IncidentKey("node.gpus_missing", None)
FALLING_PERCENT = 5.0
"""Percentage of the counted nodes that may lose GPUs at once; more fall in a driver roll-out."""
NOTED_AFTER_NS = span_ns(300)
"""Nanoseconds after a fall until the record gets the highest count: most falls are short restarts."""


def counted(
    before: GpuCounts, states: Mapping[str, NodeState], policy: PolicyConfig, now: datetime
) -> GpuCounts:
    """Return the counts after these states of the nodes. Parts of GPUs (MIG) are not counted.

    Falls within ``gpu_count_seconds`` of one another count as falls at about the same time.
    """
    now_ns, usual = unix_ns(now), cache(lambda: _usual(states.values()))
    span = span_ns(policy.gpu_count_seconds)
    nodes: dict[str, NodeGpus] = {}
    for name, state in states.items():
        known = before.nodes.get(name)
        if known is None or known.state is not state or known.missing:
            known = _seen(known, state, usual, span, now_ns)
        if known.expected and state.gpus.comparable:
            nodes[name] = known
    missing = {name: each for name, each in nodes.items() if each.missing}
    falls = {name: ns for name, each in missing.items() if (ns := _fell_ns(each)) is not None}
    short = {name: each.words for name, each in missing.items()}
    times_ns, most = sorted(falls.values()), max(1.0, len(nodes) * FALLING_PERCENT / 100)
    near = {ns: bisect_right(times_ns, ns + span) - bisect_left(times_ns, ns - span) for ns in times_ns}
    alone = {name: ns for name, ns in falls.items() if near[ns] <= most}
    due = {name for name, ns in alone.items() if policy.gpus_missing and 0 < span <= now_ns - ns}
    lasting = (name for name, ns in alone.items() if ns <= now_ns - NOTED_AFTER_NS)
    unnoted = frozenset(name for name in lasting if _lacks_count(nodes[name]))
    return GpuCounts(nodes, short, alone, frozenset(falls.keys() - alone.keys()), frozenset(due), unnoted)


def _fell_ns(known: NodeGpus) -> int | None:
    """Return since when GPUs have been missing; None if none is missed in service, or on record already."""
    return known.since_ns if known.back_ns is None and not open_incidents_of(known.state) else None


def _seen(
    known: NodeGpus | None, state: NodeState, usual: Callable[[], Usual], lasting_ns: int, now_ns: int
) -> NodeGpus:
    """Return what is known after this state of the node; ``known`` is None at the first one."""
    gpus, record, machine = state.gpus, state.record, state.machine
    is_own = record.machine is not None and record.machine.system == machine.system
    layout = gpus.layout
    if not gpus.capacity:  # without a GPU, feature discovery removes the labels that show the layout
        layout = known.layout if known else record.gpu_layout if is_own and record.gpus else layout
    if known and (layout, machine.system) != (known.layout, known.state.machine.system):
        known = None
    recorded = record.gpus if is_own and record.gpu_layout == layout else None
    # The capacity has GPUs that the plugin found to be broken. A record may have accepted their loss.
    most = 0 if known or not gpus.kind else usual().get((state.pool, gpus.kind), 0)
    expected = max(gpus.capacity, most) if recorded is None else recorded
    is_released = known is not None and record.releases[:1] != known.state.record.releases[:1]
    if known and not (is_released and recorded is not None):
        expected = max(expected, known.expected)
    seen = NodeGpus(state, max(expected, gpus.allocatable), layout, None)
    if state.unschedulable or state.opted_out or gpus.paused:  # somebody is working on it
        return seen
    if known and not is_released and known.state.machine.boot_id == machine.boot_id:
        seen = replace(seen, since_ns=known.since_ns, back_ns=known.back_ns, falls=known.falls)
    return _fallen(seen, lasting_ns, now_ns) if seen.missing and state.ready else _back(seen, now_ns)


def _back(seen: NodeGpus, now_ns: int) -> NodeGpus:
    """Return the node without a missing GPU; one that is not Ready says nothing of its GPUs."""
    return seen if seen.since_ns is None else replace(seen, back_ns=min(seen.back_ns or now_ns, now_ns))


def _fallen(seen: NodeGpus, lasting_ns: int, now_ns: int) -> NodeGpus:
    """Return the node with a missing GPU: the fall begins, goes on, or continues an earlier one."""
    is_new = seen.since_ns is None or (seen.back_ns is not None and now_ns - seen.back_ns >= lasting_ns)
    if is_new:
        return replace(seen, since_ns=now_ns, back_ns=None, falls=1)
    falls = seen.falls + (seen.back_ns is not None)
    return replace(seen, since_ns=min(seen.since_ns or now_ns, now_ns), back_ns=None, falls=falls)


def why_not_whole(state: NodeState) -> str | None:
    """Return why the Node does not show that its machine has all its GPUs; None if it does.

    The answer follows from the Node alone, so the command line gives it too. A node that returns by itself
    must show as many GPUs as its record has, counted in the same layout.
    """
    gpus, record, why = state.gpus, state.record, None
    if gpus == NO_GPUS:
        why = "the Node tells of none"
    elif not gpus.comparable:
        why = "they are split by MIG"
    elif gpus.paused:
        why = "their driver, device plugin or MIG layout is being replaced"
    elif not record.gpus:
        why = "its record does not say how many it had before the reboot"
    elif gpus.capacity and gpus.layout != record.gpu_layout:
        why = f"they are shared in another way than before ({gpus.layout}, before {record.gpu_layout})"
    elif gpus.allocatable < record.gpus:
        return f"it has only {gpus.allocatable} of {record.gpus} GPUs"
    return f"its GPUs cannot be counted: {why}" if why else None


def short_words(state: NodeState) -> str:
    """Return ``7 of 8 GPUs`` for a node with fewer than its machine had; empty if none is known to miss."""
    gpus, record = state.gpus, state.record
    expected = gpus.capacity if record.gpus is None else record.gpus
    same_layout = record.gpus is None or gpus.layout in ("", record.gpu_layout)
    is_short = gpus.comparable and same_layout and gpus.allocatable < expected
    return f"{gpus.allocatable} of {expected} GPUs" if is_short else ""


def _usual(states: Iterable[NodeState]) -> Usual:
    """Return by pool and instance type the count that most such nodes have.

    A node that has fewer is one of them, so only three or more nodes have such a majority.
    """
    found: defaultdict[tuple[str | None, str], Counter[int]] = defaultdict(Counter)
    for state in states:
        if state.gpus.kind and state.gpus.comparable:
            recorded = state.record.gpus if state.record.gpu_layout == state.gpus.layout else None
            found[state.pool, state.gpus.kind][max(state.gpus.capacity, recorded or 0)] += 1
    most = {kind: numbers.most_common(1)[0] for kind, numbers in found.items()}
    return {kind: gpus for kind, (gpus, alike) in most.items() if alike * 2 > found[kind].total()}


def open_incidents_of(state: NodeState) -> list[Incident]:
    """Return the node's incidents of missing GPUs that have not ended."""
    found = (incident for incident in state.record.incidents if incident.key == GPUS_MISSING)
    return [i for i in found if i.state is not IncidentState.RELEASED and i.ended_ns is i.met_ns is None]


def faults_of(counts: GpuCounts, before: GpuCounts, policy: PolicyConfig, now: datetime) -> list[Fault]:
    """Return the faults of nodes that have missed GPUs for long, and the ends where none is missing.

    A fault is not repeated while its incident is open, and in shadow mode not while GPUs are missing.
    """
    rule, now_ns = policy.gpus_missing, unix_ns(now)
    back_ns = now_ns - span_ns(policy.gpu_count_seconds)
    new = counts.due - before.due if rule and rule.shadow else counts.due
    found = [_fault(rule, counts.nodes[name], now_ns) for name in sorted(new) if rule]
    for each in counts.nodes.values():
        is_back = not each.missing and (each.falls < 2 or (each.back_ns or 0) <= back_ns)
        if each.state.record.incidents and is_back and not each.state.opted_out:
            found += [_fault(_end_of(i), each, now_ns) for i in open_incidents_of(each.state)[:1]]
    return found


def _end_of(incident: Incident) -> Finding:
    rule, said = incident.key.rule, (incident.title, incident.advice, "")
    return Finding(incident.kind, rule, Severity.INFO, *said, needs=Needs.NONE.value, clears=rule)


def _fault(finding: Finding, node: NodeGpus, now_ns: int) -> Fault:
    state = node.state
    text = f"{node.words} are allocatable (capacity {state.gpus.capacity})"
    finding = finding._replace(text=text, position=KernelPosition(state.machine.boot_id))
    return Fault(finding, Source.KERNEL, now_ns, state.name)


def _lacks_count(known: NodeGpus) -> bool:
    """Whether a node's record is to be written for the highest count alone.

    After a restart of the controller, the Node alone does not tell what it had.
    """
    record = known.state.record
    return not (record.gpus == known.expected or known.state.record_problem or _is_kept(record, known))


def with_count(record: NodeRecord, state: NodeState, counts: GpuCounts | None) -> NodeRecord:
    """Return the node's record as it is to be written, with its highest count.

    A count that a release has just accepted stays.
    """
    known = counts.nodes.get(state.name) if counts is not None else None
    if known is None or record.gpus != known.state.record.gpus or _is_kept(record, known):
        return record
    return replace(record, gpus=known.expected, gpu_layout=known.layout)


def _is_kept(record: NodeRecord, known: NodeGpus) -> bool:
    """Whether a tainted node's record keeps its count of before the reboot, or the lack of one.

    A count of after the reboot, or in another layout, does not show whether a GPU is gone.
    """
    if not known.state.tainted:
        return False
    if record.gpus is None:
        return any(i.met_by is MetBy.REBOOT for i in record.incidents)
    return record.gpu_layout != known.layout


def with_accepted(record: NodeRecord, state: NodeState) -> NodeRecord:
    """Return the record after a release: a person who releases missing GPUs accepts their loss."""
    gpus = state.gpus
    if gpus.paused or not open_incidents_of(state):
        return record
    layout = gpus.layout if gpus.capacity else record.gpu_layout
    return replace(record, gpus=gpus.allocatable, gpu_layout=layout)
