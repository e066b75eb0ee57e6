"""The jobs that run on broken nodes now, from the pods that the caller may read."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from konductor_like.cli.columns import count
from konductor_like.cli.status.node import NodeReport
from konductor_like.cli.status.report import StatusReport
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.pods import jobs_now

NODES_ASKED = 50
"""Nodes whose pods are listed, at most: one request each, and the worst nodes first."""


def with_jobs(report: StatusReport, client: ReadOnlyKubeClient, states: Set[str]) -> StatusReport:
    """Return the report with the jobs of its broken nodes; of all ``states`` if it is empty.

    The first refusal ends the asking: a right that is missing for one node is missing for all.
    """
    broken = [each.name for each in report.nodes if each.is_broken and (not states or each.words & states)]
    found: dict[str, tuple[str, ...]] = {}
    problem = ""
    try:
        for name in broken[:NODES_ASKED]:
            found[name] = jobs_now(client, name)
    except KubeError as error:
        problem = f"jobs not shown: {error}"
    if not problem and len(broken) > NODES_ASKED:
        problem = f"jobs shown for the first {NODES_ASKED} of {count(len(broken), 'node')} only"

    def told(node: NodeReport) -> NodeReport:
        return replace(node, jobs=found[node.name]) if node.name in found else node

    return replace(report, nodes=tuple(map(told, report.nodes)), jobs_problem=problem)
