"""The node that failed jobs have in common. Pods' words alone may taint it, so it must stand out clearly.

Jobs fail for many reasons, and on a large fleet every node takes part in some that do. What counts against a
node is only what nothing else explains: not a program that fails elsewhere too, not what failed all at once.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from konductor_like.jobs import stem
from konductor_like.model import NodeState, Source, span_text
from konductor_like.policy.correlate import DOMAIN, Cluster, job_key, longest_ns
from konductor_like.policy.rules import LONGEST_SECONDS, Rules

CHANCE_MOST = 0.05
"""A node is accused only if so few (so rarely one) would be in as many jobs had they been placed by lot."""
_NUMBERED = re.compile(r"[-._][^-._]*\d[^-._]*|\d+$")


@dataclass(frozen=True, slots=True)
class Failures:
    """The events of the last day in which a job failed with no origin in sight."""

    jobs: Mapping[str, frozenset[str]]
    """By node, the jobs (:func:`job_key`) that failed with it."""
    events: Mapping[str, tuple[Cluster, ...]]
    """By job."""
    rules: Rules

    @classmethod
    def of(cls, events: Iterable[Cluster], rules: Rules) -> Failures:
        """Those among ``events``."""
        jobs: defaultdict[str, set[str]] = defaultdict(set)
        by_job: defaultdict[str, list[Cluster]] = defaultdict(list)
        for event in events:
            # A job that is cancelled prints Xid 45 and is none that failed: its pods would say so.
            failed = any(each.source is Source.POD for each in event.members)
            if event.origins or event.shared.startswith(DOMAIN) or not failed:
                continue
            job = job_key(event.shared)
            by_job[job].append(event)
            for node in event.nodes:
                jobs[node].add(job)
        return cls(
            {node: frozenset(names) for node, names in jobs.items()},
            {job: tuple(ends) for job, ends in by_job.items()},
            rules,
        )

    def count(self, node: str) -> int:
        """In how many jobs that failed it took part."""
        return len(self.jobs.get(node, ()))

    def might_accuse(self, node: str) -> bool:
        """Whether there were enough of them at all."""
        return 0 < self.rules.common_node_jobs <= self.count(node)

    def grounds(self, node: str, fleet: Fleet) -> str:
        """Why they accuse this node, if they do: no other took part in most of them, or in half as many."""
        mine = self._against(node, fleet) if self.might_accuse(node) else []
        if not mine or len(mine) < self.rules.common_node_jobs:
            return ""
        sharing = Counter(
            name for job in mine for name in frozenset().union(*(end.nodes for end in self.events[job]))
        )
        del sharing[node]
        if max(fleet.most_jobs_beside(node), *sharing.values()) * 2 > len(mine):
            return ""
        if fleet.by_chance(len(mine)) > CHANCE_MOST:
            return ""
        return f"the only node common to {len(mine)} jobs that failed within {span_text(LONGEST_SECONDS)}"

    def _against(self, node: str, fleet: Fleet) -> list[str]:
        """Jobs that failed at different times, and only with this node."""
        ends = {job: self.events[job] for job in self.jobs[node]}
        first_ns = {job: events[0].start_ns for job, events in ends.items()}
        counted: list[str] = []
        last_ns: int | None = None
        for job in sorted(ends, key=lambda job: (first_ns[job], job)):
            without = any(node not in event.nodes for event in ends[job])
            if without or fleet.runs_elsewhere(job, node):
                continue
            # What ends many jobs at once is no node: a network, a file system, a person.
            if last_ns is None or first_ns[job] - last_ns > longest_ns(self.rules):
                counted.append(job)
                last_ns = first_ns[job]
        return counted


class Fleet:
    """What else is known of jobs that complained lately, on all nodes."""

    def __init__(self, jobs_of: Mapping[str, frozenset[str]], states: Mapping[str, NodeState]) -> None:
        """``jobs_of`` are the jobs (:func:`job_key`) by node."""
        self._jobs_of = jobs_of
        sizes = Counter(job for jobs in jobs_of.values() for job in jobs)
        self._families: defaultdict[str, set[str]] = defaultdict(set)
        for job in sizes:
            self._families[family(job)].add(job)
        shared = {
            name: sum(sizes[job] > 1 for job in jobs)
            for name, jobs in jobs_of.items()
            # One that was found to be at fault has its share in many, and is no measure.
            if name in states and not states[name].tainted and not states[name].record.stints
        }
        several = [size for size in sizes.values() if size > 1]
        self._jobs, self._nodes = len(several), len(states)
        self._share = min(1.0, sum(several) / max(1, len(several)) / max(1, len(states)))
        self._most = Counter(shared).most_common(2)

    def most_jobs_beside(self, node: str) -> int:
        """In how many jobs of several nodes any other one took part at most."""
        return next((count for name, count in self._most if name != node), 0)

    def by_chance(self, jobs: int) -> float:
        """How many nodes were in so many of the jobs if each of these had its nodes by lot."""
        if self._share >= 1:
            return float(self._nodes)
        odds = self._share / (1 - self._share)
        term, fewer = (1 - self._share) ** self._jobs, 0.0
        for n in range(jobs):
            fewer += term
            term *= odds * (self._jobs - n) / (n + 1)
        return self._nodes * max(0.0, 1 - fewer)

    def runs_elsewhere(self, job: str, node: str) -> bool:
        """Whether another run of the same program complained where this node had no part in it."""
        return not self._families[family(job)] <= self._jobs_of.get(node, frozenset())


@lru_cache(maxsize=4096)
def family(job: str) -> str:
    """What runs of one program have in common by their names: ``ml//run-7`` is of ``ml//run``.

    A name that is a number, such as Slurm's, says nothing of its program, and stands for itself.
    """
    space, _, name = job_key(job).rpartition("/")
    return f"{space}/{_NUMBERED.sub('', stem(name)) or name}"
