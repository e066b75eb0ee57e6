"""The fleet in numbers: how many nodes are in each state, and how many each fault has. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from konductor_like.cli.columns import count, fault_name
from konductor_like.cli.status.node import NodeReport
from konductor_like.cli.status.report import StatusReport
from konductor_like.model import Needs, Severity
from konductor_like.model.time import moment_of
from konductor_like.policy.node.gpu_counts import short_words
from konductor_like.policy.node.health import WORST_FIRST, Health, marks
from konductor_like.policy.node.needs import RANK
from konductor_like.policy.recovery.verdict import GRAVEST_FIRST

ADVICES_SHOWN = 3
"""Different advices on one fault: two nodes with one fault may need different things."""


@dataclass(frozen=True, slots=True)
class FaultGroup:
    """All nodes whose fault (:attr:`NodeReport.fault`) is of one rule."""

    rule: str
    title: str
    severity: Severity
    nodes: Sequence[NodeReport]
    needs: str
    """The needs of its nodes, the gravest first: ``inspection, reboot``; ``none`` only if none needs more."""
    since: datetime
    """When the first of these faults was seen."""
    also: int = 0
    """The number of further nodes with such a fault, which count for another one with a graver need."""

    @property
    def text(self) -> str:
        """The title, and how many further nodes have such a fault."""
        return self.title + (f" (also on {count(self.also, 'further node')})" if self.also else "")

    @property
    def counts(self) -> Mapping[Health, int]:
        """The number of its nodes in each state."""
        return Counter(node.health for node in self.nodes)


def state_counts(report: StatusReport) -> Mapping[Health, int]:
    """Return the number of chosen nodes in each state."""
    return Counter(node.health for node in report.nodes)


def counts_text(report: StatusReport) -> list[tuple[Health, str]]:
    """Return ``60 faulty``, ``240 healthy (2 released with a need)`` and so on, each with its state."""
    further: defaultdict[Health, Counter[str]] = defaultdict(Counter)
    for node in report.nodes:
        words = {
            "short of GPUs": bool(short_words(node.state)),
            "released with a need": bool(node.released_with),
            "failed too often": bool(node.failures),
        }
        further[node.health].update([*(word for word, holds in words.items() if holds), *marks(node.state)])
    return [
        (health, f"{number} {health.value}{_in_brackets(further[health])}")
        for health, number in sorted(state_counts(report).items(), key=lambda each: WORST_FIRST[each[0]])
    ]


def _in_brackets(words: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{number} {word}' for word, number in words.items())})" if words else ""


def fleet_text(report: StatusReport) -> str:
    """Return ``300 GPU nodes``, or ``2 of 300 GPU nodes`` if the person chose some."""
    chosen, fleet = len(report.nodes), max(report.fleet_size, len(report.nodes))
    noun = "GPU node" if all(node.state.is_gpu_node for node in report.nodes) else "node"
    return (f"{chosen} of " if chosen < fleet else "") + count(fleet, noun)


def fault_groups(nodes: Iterable[NodeReport]) -> list[FaultGroup]:
    """Return the faults of these nodes, the gravest and then the most frequent first.

    A node counts once, for the fault with the gravest need, so that the numbers add up to the states'.
    """
    by_rule: defaultdict[str, list[NodeReport]] = defaultdict(list)
    further: Counter[str] = Counter()
    for node in nodes:
        if node.fault is not None:
            rule = node.fault.key.rule
            by_rule[rule].append(node)
            further.update({each.key.rule for each in node.accusing} - {rule})
    groups = [replace(_group(rule, members), also=further[rule]) for rule, members in by_rule.items()]
    return sorted(
        groups,
        key=lambda group: (
            *(-group.counts[health] for health in (Health.FAULTY, Health.HELD)),
            GRAVEST_FIRST[group.severity],
            -len(group.nodes),
            group.rule,
        ),
    )


def _group(rule: str, nodes: Sequence[NodeReport]) -> FaultGroup:
    faults = [node.fault for node in nodes if node.fault is not None]
    # A record in short may have lost its title.
    gravest = min(faults, key=lambda fault: (GRAVEST_FIRST[fault.severity], not fault.title))
    all_needs = {node.verdict.needs for node in nodes if node.verdict.needs is not None}
    all_needs = all_needs - {Needs.NONE} or all_needs
    needs = ", ".join(each.value for each in sorted(all_needs, key=RANK.__getitem__, reverse=True))
    since = moment_of(min(fault.first_ns for fault in faults))
    return FaultGroup(rule, gravest.title, gravest.severity, nodes, needs, since)


def advice_by_fault(groups: Sequence[FaultGroup], nodes: Iterable[NodeReport]) -> list[tuple[str, list[str]]]:
    """Return what to do, once for each fault; then for the states of nodes without a fault."""
    told = [(fault_name(group.rule), _advices(group.nodes)) for group in groups]
    others: defaultdict[str, list[NodeReport]] = defaultdict(list)
    for node in nodes:
        if node.fault is None and node.verdict.advice:
            others[node.health.value].append(node)
    return [*told, *((state, _advices(members)) for state, members in others.items())]


def _advices(nodes: Sequence[NodeReport]) -> list[str]:
    """Return the different advices, the most frequent first, with the nodes that the rarer ones are for."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if advice := node.verdict.advice:
            if node.fault and node.fault.by_person:
                advice += f" Reason: {node.fault.evidence}"
            names[advice].append(node.name)
    ordered = sorted(names.items(), key=lambda item: -len(item[1]))
    if len(ordered) == 1:
        return [ordered[0][0]]
    lines = [f"{_nodes(members)}: {advice}" for advice, members in ordered[:ADVICES_SHOWN]]
    more = sum(len(members) for _, members in ordered[ADVICES_SHOWN:])
    return [*lines, f"{more} more: see `konductor-like explain NODE`"] if more else lines


def _nodes(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} nodes"
