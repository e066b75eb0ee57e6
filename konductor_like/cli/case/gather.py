"""Reads what a case needs: the Node, the history of the node, and its kernel log."""

from __future__ import annotations

import time
from contextlib import closing

from konductor_like.cli import session
from konductor_like.cli.history.gather import Sources, choose, read_cluster, read_history, span_of_options
from konductor_like.cli.history.text import gaps
from konductor_like.cli.output import warn
from konductor_like.cluster.api.client import ReadOnlyKubeClient, node_path
from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.lenient_json import Fields
from konductor_like.detection.detector import packaged
from konductor_like.history.case import Case, NodeFacts, identities, incident_of
from konductor_like.history.kernel import KernelReader, KernelReading, KernelSpan, spans_around
from konductor_like.history.outages import Outage
from konductor_like.history.read import History
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.window_query import ByteBudget
from konductor_like.model import NodeRecord


def gather(
    name: str, number: int, since: str, kubeconfig: str | None, context: str | None
) -> tuple[Case, bool]:
    """Return the case of a node's outage, and whether all sources could be read.

    Raises CommandError, KubeError or LokiMisconfigured.
    """
    sources = read_cluster(kubeconfig, context)
    start, end = span_of_options(since, None, sources.now)
    history = read_history(sources, start, end, [name])
    outage = choose(history, sources, name, number)
    state = sources.states.get(name)
    record = state.record if state is not None else NodeRecord()
    fault = incident_of(outage, record)
    kernel = read_kernel(sources, history, name, spans_around(outage, fault, sources.now))
    found = Case(
        node=NodeFacts(name) if state is None else _node_facts(name, kubeconfig, context),
        outage=outage,
        number=number,
        title=fault.title if fault is not None else _title(outage),
        fault=fault,
        identities=identities(outage, kernel, record),
        kernel=kernel,
        others=tuple(each for each in reversed(history.outages) if each.since != outage.since),
        made_at=sources.now,
    )
    for message in (*gaps(history), *([kernel.problem] if kernel.problem else [])):
        warn(message)
    whole = history.trail.is_whole and not (sources.problem or kernel.problem)
    return found, whole


def read_kernel(
    sources: Sources, history: History, name: str, spans: tuple[KernelSpan, ...]
) -> KernelReading:
    """Read the node's kernel log, unless Loki did not even answer for the trail."""
    if history.trail.problem and history.trail.read_until is None:
        return KernelReading(spans, problem=history.trail.problem)
    bound = sources.settings.loki_budget_mib_per_minute * 2**20
    budget = ByteBudget(bound)
    budget.spend(min(history.trail.bytes_processed, bound))  # as if all of it had been read just now
    with closing(LokiClient(sources.settings)) as loki:
        reader = KernelReader(loki, sources.settings, packaged(), budget, pause=time.sleep, tell=warn)
        return reader.read(name, spans)


def _title(outage: Outage) -> str:
    """Return what the built-in rules say of the fault; empty for a rule that they do not have."""
    entry = packaged().catalog.entry_or_unknown(outage.rule)
    return entry.title if entry is not None else ""


def _node_facts(name: str, kubeconfig: str | None, context: str | None) -> NodeFacts:
    try:
        with session.connected(ReadOnlyKubeClient, kubeconfig, context) as (client, _):
            node = client.get(node_path(name))
    except KubeError as error:
        warn(f"the Node {name} cannot be read: {error}")
        return NodeFacts(name)
    spec, info = Fields(node, "", []).inner("spec"), Fields(node, "", []).inner("status").inner("nodeInfo")
    return NodeFacts(
        name,
        exists=True,
        provider_id=spec.get("providerID", str) or "",
        system_uuid=info.get("systemUUID", str) or "",
        kernel=info.get("kernelVersion", str) or "",
        os=info.get("osImage", str) or "",
        boot_id=info.get("bootID", str) or "",
    )
