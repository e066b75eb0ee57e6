"""Reads the history for the commands ``history``, ``case`` and ``report``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from konductor_like.cli import session
from konductor_like.cli.columns import count
from konductor_like.cli.durations import typed_moment
from konductor_like.cli.errors import FIND_NODE, CommandError
from konductor_like.cli.output import is_terminal, tell, warn
from konductor_like.cli.session import ControllerReport
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import list_nodes, listed_slices
from konductor_like.exits import Exit
from konductor_like.history.outages import Outage
from konductor_like.history.read import Collector, History, TrailReader, TrailReading
from konductor_like.history.trail import TrailLine
from konductor_like.loki.query.client import LokiClient
from konductor_like.model import IncidentState, NodeState
from konductor_like.model.time import EPOCH, moment_of
from konductor_like.policy.fleet.known_nodes import known_nodes
from konductor_like.settings import Settings

TELL_SECONDS = 10.0
"""Time between two lines about the progress."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a history comes from. ``problem`` says why the Nodes cannot be read; there are no states then."""

    settings: Settings
    """With the controller's labels, as far as this shell does not set others."""
    controller: ControllerReport
    states: Mapping[str, NodeState]
    now: datetime
    problem: str = ""


def span_of_options(since: str, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    """Return the span that a person typed. Raises CommandError."""
    start = typed_moment(since, "--since", now)
    end = now if until is None else min(now, typed_moment(until, "--until", now))
    if not EPOCH <= start < end:
        raise CommandError("--since must be before --until, and in the past", status=Exit.USAGE)
    return start, end


def read_cluster(kubeconfig: str | None, context: str | None) -> Sources:
    """Read Nodes and Lease. Without a cluster the history has the trail alone, unless one was asked for.

    Raises KubeError.
    """
    try:
        with session.connected(ReadOnlyKubeClient, kubeconfig, context) as (client, settings):
            controller = session.known_controller(client, settings)
            decode = node_decoder(controller.settings or settings, listed_slices(client))
            states = known_nodes(list_nodes(client, decode, cached=True), controller.controls)
            settings = session.like_the_controller(settings, controller.settings)
            return Sources(settings, controller, states, session.cluster_now(client))
    except KubeError as error:
        if context or kubeconfig:
            raise
        settings = session.load_settings()
        lease = f"{settings.lease_namespace(None)}/{settings.lease_name}"
        return Sources(settings, ControllerReport(lease), {}, session.now(), str(error))


def read_history(
    sources: Sources,
    start: datetime,
    end: datetime,
    names: Sequence[str] = (),
    *,
    also: Callable[[TrailLine], object] = lambda _: None,
) -> History:
    """Read the trail from Loki, and put the history together. ``also`` gets each line of the trail, too.

    A failure of Loki is told in the history. Raises CommandError if neither trail nor Nodes can be read.
    """
    reading = TrailReading(start, end)
    collector = Collector(reading)
    with closing(LokiClient(sources.settings)) as loki:
        reader = TrailReader(
            *(loki, sources.settings, sources.controller.namespace, reading),
            pause=time.sleep,
            tell=warn,
            progress=progress(start, end),
        )
        for line in reader.lines():
            collector.ledger.add(line)
            also(line)
    if reading.problem and sources.problem:
        raise CommandError(
            f"the audit trail cannot be read: {reading.problem}",
            f"the Nodes cannot be read: {sources.problem}",
            hint="set LOG_ENDPOINT to your Loki, and choose the cluster with --context",
        )
    return collector.history(sources.states, names, sources.problem, is_up_to_now=end >= sources.now)


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


def progress(start: datetime, end: datetime) -> Callable[[int], None]:
    """Return a function that tells a person at a terminal how far the reading is."""
    due = time.monotonic() + TELL_SECONDS

    def show(at_ns: int) -> None:
        nonlocal due
        if time.monotonic() >= due and is_terminal(sys.stderr):
            due = time.monotonic() + TELL_SECONDS
            share = (moment_of(at_ns) - start) / (end - start)
            tell(f"read up to {moment_of(at_ns):%Y-%m-%dT%H:%MZ}, {share:.0%}")

    return show
