"""Faults by driver: how many nodes failed of those that have a driver, and which shares are conspicuous.

Both numbers are of today's nodes, by the labels of today, within one GPU model and one pool, so that nodes
are compared that differ in the driver and in little else. Nodes are counted, not outages. This is a count: it
tests no hypothesis, and it does not say that a driver causes a fault.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from konductor_like.history.outages import End, Kind, Outage
from konductor_like.model import NodeState

NODES_LEAST = 5
"""Failed nodes with the driver from which on a share is conspicuous."""
FOLD_LEAST = 4
"""How many times as frequent the driver must be among the failed nodes as among all."""


@dataclass(frozen=True, slots=True, order=True)
class Cohort:
    """Nodes with one GPU model in one pool."""

    model: str
    pool: str
    """Empty for nodes without a pool."""


@dataclass(frozen=True, slots=True)
class DriverShare:
    """One fault and one driver within one cohort. A failure group counts as one failed node."""

    rule: str
    cohort: Cohort
    driver: str
    failed: int
    """Nodes with this driver that had the fault."""
    have: int
    """Nodes with this driver."""
    failed_all: int
    """Nodes of the cohort, with any driver, that had the fault."""
    have_all: int
    """Nodes of the cohort whose driver is known."""

    @property
    def conspicuous(self) -> bool:
        """Whether at least five nodes failed, and the driver is four times as frequent among the failed."""
        is_fourfold = self.failed * self.have_all >= FOLD_LEAST * self.failed_all * self.have
        return self.failed >= NODES_LEAST and is_fourfold


@dataclass(frozen=True, slots=True)
class DriverTable:
    """The table, and what could not be counted."""

    shares: tuple[DriverShare, ...]
    """Of the cohorts with several drivers, for each fault that occurred there: one for each driver."""
    left_out: int
    """Failures of the span that do not count: the Node is gone or has another label now, its driver or
    model is not known, or only the record tells of the failure, which names no failure group."""
    uniform: int
    """Cohorts that are not in the table because all their nodes have one driver."""


def driver_table(
    outages: Iterable[Outage], start: datetime, end: datetime, fleet: Mapping[str, NodeState]
) -> DriverTable:
    """Return the table of the failures that began in the span; ``fleet`` has the GPU nodes of today."""
    have: defaultdict[Cohort, Counter[str]] = defaultdict(Counter)
    for state in fleet.values():
        if state.hardware.model and state.hardware.driver:
            have[_cohort(state)][state.hardware.driver] += 1
    failed: defaultdict[tuple[str, Cohort], Counter[str]] = defaultdict(Counter)
    seen: set[tuple[str, str]] = set()
    left_out = 0
    for each in sorted(outages, key=lambda each: (each.since, each.node)):
        if each.kind is not Kind.FAILURE or not start <= each.since < end:
            continue
        node = fleet.get(each.node)
        if node is None or not _counts(each, node):
            left_out += 1
            continue
        once = {(each.rule, f"node {each.node}")}
        if each.failure_group:
            once.add((each.rule, f"group {each.failure_group}"))
        if seen.isdisjoint(once):
            failed[each.rule, _cohort(node)][each.driver] += 1
            seen |= once
    made = [
        DriverShare(rule, cohort, driver, found[driver], number, found.total(), have[cohort].total())
        for (rule, cohort), found in failed.items()
        if len(have[cohort]) > 1
        for driver, number in have[cohort].items()
    ]
    made.sort(key=lambda each: (-each.failed_all, each.rule, each.cohort, -each.failed, each.driver))
    return DriverTable(tuple(made), left_out, uniform=sum(len(each) == 1 for each in have.values()))


def _cohort(state: NodeState) -> Cohort:
    return Cohort(state.hardware.model, state.pool or "")


def _counts(outage: Outage, node: NodeState) -> bool:
    """Whether the driver of the failure is known and is the node's driver of today."""
    labels = node.hardware
    is_same = (outage.model, outage.driver) == (labels.model, labels.driver)
    knows_group = outage.in_trail or outage.end is End.OUT
    return bool(is_same and labels.model and labels.driver and outage.rule and knows_group)
