"""The node that failed jobs have in common: a suspect that is told of and ranked first, and never tainted.

Jobs fail for many reasons, and pods' words alone accuse nobody. But a node that is part of one failure after
the other, each time with different others, is worth a look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from konductor_like.model import Incident, Source, span_text
from konductor_like.policy.correlate import DOMAIN, Cluster, job_key
from konductor_like.policy.rules import LONGEST_SECONDS, Rules

JobsOf = Mapping[str, frozenset[str]]
"""By node, jobs (:func:`job_key`)."""


def failed_jobs(events: Iterable[Cluster]) -> JobsOf:
    """The jobs that failed with each node while no origin was in sight."""
    jobs: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        # A job that is cancelled prints Xid 45 and is none that failed: its pods would say so.
        failed = any(each.source is Source.POD for each in event.members)
        if failed and not event.origins and not event.shared.startswith(DOMAIN):
            for node in event.nodes:
                jobs[node].add(job_key(event.shared))
    return {node: frozenset(names) for node, names in jobs.items()}


def is_common_node(node: str, failed: JobsOf, rules: Rules) -> bool:
    """Whether enough jobs failed with this node, and no other node was part of more than half of them."""
    mine = failed.get(node, frozenset())
    if not 0 < rules.common_node_jobs <= len(mine):
        return False
    return all(len(mine & theirs) * 2 <= len(mine) for other, theirs in failed.items() if other != node)


def suspected(incident: Incident, rules: Rules) -> Incident:
    """The incident of a common node, which says so from now on."""
    jobs, within = rules.common_node_jobs, span_text(LONGEST_SECONDS)
    advice = (
        f"It is the only node common to {jobs} or more jobs that failed within {within}: "
        "run diagnostics on its GPUs and network."
    )
    return replace(incident, advice=advice, needs="inspection")
