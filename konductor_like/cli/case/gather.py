"""Reads what a case needs: the Node, the history of the node, and its kernel log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from konductor_like.cli import session
from konductor_like.cli.columns import count
from konductor_like.cli.errors import FIND_NODE, CommandError
from konductor_like.cli.history.gather import Sources, read_cluster, read_history, span_of_options
from konductor_like.cli.history.text import gaps
from konductor_like.cli.output import warn
from konductor_like.cluster.api.client import ReadOnlyKubeClient, node_path
from konductor_like.cluster.api.errors import KubeError, KubeNotFound
from konductor_like.detection.detector import packaged
from konductor_like.history.case import Case, NodeFacts, acts, identities, incident_of, missing
from konductor_like.history.kernel import KernelReader, KernelReading, KernelSpan, spans_around
from konductor_like.history.outages import Outage
from konductor_like.history.read import History
from konductor_like.history.trail import TrailLine
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.window_query import ByteBudget
from konductor_like.model import IncidentState, NodeRecord


def gather(
    name: str, number: int, since: str, kubeconfig: str | None, context: str | None
) -> tuple[Case, bool]:
    """Return the case of a node's outage, and whether all sources could be read.

    Raises CommandError, KubeError or LokiMisconfigured.
    """
    sources = read_cluster(kubeconfig, context)
    start, end = span_of_options(since, None, sources.now)
    trail: list[TrailLine] = []
    history = read_history(
        sources, start, end, [name], also=lambda line: trail.append(line) if line.node == name else None
    )
    outage = choose(history, sources, name, number)
    state = sources.states.get(name)
    record = state.record if state is not None else NodeRecord()
    fault = incident_of(outage, record)
    kernel = read_kernel(sources, history, name, spans_around(outage, fault, sources.now))
    told = outage
    if state is not None:
        today = state.hardware
        told = replace(
            outage,
            model=outage.model or today.model,
            driver=outage.driver or today.driver,
            rack=outage.rack or today.rack,
            gpus=outage.gpus or record.gpus or state.gpus.capacity or None,
        )
    if state is not None:
        node = _node_facts(name, kubeconfig, context)
    else:
        node = NodeFacts(name, deleted=not sources.problem)
    found = Case(
        node=node,
        outage=told,
        number=number,
        title=fault.title if fault is not None else _title(outage),
        fault=fault,
        identities=identities(outage, kernel, record),
        kernel=kernel,
        acts=tuple(acts(outage, trail, record, sources.now)),
        others=tuple(each for each in reversed(history.outages) if each.since != outage.since),
        missing=(),
        made_at=sources.now,
        labelled_now=(told.model, told.driver) != (outage.model, outage.driver),
    )
    for message in (*gaps(history), *([kernel.problem] if kernel.problem else [])):
        warn(message)
    gaps_of_case = missing(found, state, history.trail)
    whole = history.trail.is_whole and not (sources.problem or kernel.problem)
    return replace(found, missing=tuple(gaps_of_case)), whole


def choose(history: History, sources: Sources, name: str, number: int) -> Outage:
    """Return the node's outage with this number, 1 for the latest. Raises CommandError."""
    outages = [each for each in history.outages if each.node == name]
    if number <= len(outages):
        return outages[-number]
    unread = f"; {history.trail.problem}" if history.trail.problem else ""
    back = "--since 90d looks further back" if not unread else "the record of a Node keeps ten outages"
    since = f"{history.start:%Y-%m-%dT%H:%MZ}"
    if outages:
        raise CommandError(
            f"{name} has {count(len(outages), 'outage')} since {since}, so no outage {number}{unread}",
            hint=f"`konductor-like history {name}` lists them, the latest last; {back}",
        )
    if name not in sources.states and not sources.problem:
        raise CommandError(
            f"node/{name} not found, and no outage of it since {since}{unread}", hint=FIND_NODE
        )
    state = sources.states.get(name)
    if state is not None and any(each.state is not IncidentState.RELEASED for each in state.record.incidents):
        back = (
            f"it has a fault that did not take it out of service: `konductor-like explain {name}` says why, "
            f"and `konductor-like incident save {name} --outage 0 -o {name}.json` saves its lines"
        )
    raise CommandError(f"{name} was not out of service since {since}{unread}", hint=back)


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
    except KubeNotFound:
        return NodeFacts(name, deleted=True)
    except KubeError as error:
        warn(f"the Node {name} cannot be read: {error}")
        return NodeFacts(name)
    spec, info = _inner(node, "spec"), _inner(_inner(node, "status"), "nodeInfo")
    return NodeFacts(
        name,
        exists=True,
        provider_id=_text(spec, "providerID"),
        system_uuid=_text(info, "systemUUID"),
        kernel=_text(info, "kernelVersion"),
        os=_text(info, "osImage"),
        boot_id=_text(info, "bootID"),
    )


def _inner(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = found.get(name)
    return inner if isinstance(inner, Mapping) else {}


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""
