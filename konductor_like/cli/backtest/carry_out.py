"""The work of ``backtest``: collect the nodes, the rules and the span, then run it."""

from __future__ import annotations

import gc
import time
from contextlib import closing
from pathlib import Path

import typer

from konductor_like.backtest.history import HistoryReader
from konductor_like.backtest.result import History, Result
from konductor_like.backtest.run import INTERRUPTED, run
from konductor_like.backtest.simulation import healthy_node
from konductor_like.cli import session
from konductor_like.cli.columns import stamp_of_ns
from konductor_like.cli.durations import span_of
from konductor_like.cli.errors import CommandError, describe
from konductor_like.cli.history.gather import progress, span_of_options
from konductor_like.cli.options import node_names
from konductor_like.cli.output import warn
from konductor_like.cli.rules import load
from konductor_like.cli.session import connected, load_settings
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import list_nodes, listed_slices
from konductor_like.detection import Detector
from konductor_like.exits import Exit
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.logql import kernel_query, pod_query
from konductor_like.loki.query.window_query import ByteBudget, TimeWindow
from konductor_like.model import NodeState, Source
from konductor_like.model.time import unix_ns
from konductor_like.settings import Settings

NEVER = "never"
CLUSTER, LINES = "cluster", "lines"
_GC_THRESHOLDS = (20_000, 50, 100)
"""Arguments of ``gc.set_threshold`` for the run, which makes millions of small values and few cycles.

With Python's own (700, 10, 10), collections took a quarter of the CPU time. The memory is the same.
"""


def carry_out(
    *,
    since: str,
    until: str | None,
    rules: Path | None,
    release_after: str,
    nodes: str,
    context: str | None,
    kubeconfig: str | None,
) -> Result:
    """Play the history. Raises CommandError, LokiError, KubeConfigError."""
    settings = load_settings()
    start, end = span_of_options(since, until, session.now())
    span = TimeWindow(unix_ns(start), unix_ns(end))
    release = None if release_after == NEVER else span_of(release_after, "--release-after").total_seconds()
    users = load(rules or settings.rules_file)
    detector = Detector(users.catalog)
    states, nodes_from = _nodes(nodes, settings, kubeconfig, context)
    history = History(span)
    gc.set_threshold(*_GC_THRESHOLDS)
    with closing(LokiClient(settings)) as loki:
        return run(
            _readers(loki, settings, detector, history),
            detector,
            settings.policy().with_escalations(users.catalog.escalations, users.digest),
            states,
            history,
            settings,
            release_after_seconds=release,
            nodes_from=nodes_from,
            progress=progress(start, end),
        )


def exit_status(result: Result) -> Exit:
    """Return the exit status; warn if the run ended early."""
    if not result.ended_by:
        return Exit.OK
    upto = stamp_of_ns(result.history.read_upto_ns)
    warn(f"ended early, and the report goes up to {upto}: {result.ended_by}")
    return Exit.INTERRUPTED if result.ended_by == INTERRUPTED else Exit.PARTLY


def _nodes(
    nodes: str, settings: Settings, kubeconfig: str | None, context: str | None
) -> tuple[list[NodeState], str]:
    """Return the nodes of the replay, and their origin: ``cluster``, ``file`` or ``lines``."""
    if nodes == LINES:
        return [], LINES
    if nodes != CLUSTER:
        return _nodes_in(Path(nodes)), "file"
    try:
        with connected(ReadOnlyKubeClient, kubeconfig, context) as (client, _):
            return list(list_nodes(client, node_decoder(settings, listed_slices(client))).values()), CLUSTER
    except KubeError as error:
        if context or kubeconfig:
            raise
        warn(f"the cluster's nodes cannot be read ({error}); using the names in the lines instead.")
        return [], LINES


def _nodes_in(file: Path) -> list[NodeState]:
    """Read a file of names. Raises CommandError."""
    try:
        content = file.read_text("utf-8", "replace")
    except OSError as error:
        raise CommandError(describe(error), status=Exit.USAGE) from error
    lines = [(number, line.strip()) for number, line in enumerate(content.splitlines(), 1)]
    named = [(number, line) for number, line in lines if line and not line.startswith("#")]
    hint = "write one name a line, as `kubectl get nodes -o name` prints them"
    if not named:
        raise CommandError(f"{file} has no names of nodes", hint=hint, status=Exit.USAGE)
    names: dict[str, None] = {}
    for number, line in named:
        try:
            names[node_names(line)] = None
        except typer.BadParameter as error:
            raise CommandError(f"{file}:{number}: {error.message}", hint=hint, status=Exit.USAGE) from error
    return [healthy_node(name) for name in names]


def _readers(
    loki: LokiClient, settings: Settings, detector: Detector, history: History
) -> dict[Source, HistoryReader]:
    """Return a reader per source."""
    queries = {
        Source.KERNEL: kernel_query(settings, detector.anchors(Source.KERNEL)),
        Source.POD: pod_query(settings, detector.anchors(Source.POD)),
    }
    budget = ByteBudget(settings.loki_budget_mib_per_minute * 2**20)
    return {
        source: HistoryReader(*(source, loki, query, settings, history, budget), pause=time.sleep, tell=warn)
        for source, query in queries.items()
        if query is not None
    }
