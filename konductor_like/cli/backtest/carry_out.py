"""The work of ``backtest``: whose nodes, which rules, which span; then the run and its report."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from konductor_like.backtest.cache import HistoryCache, cache_name
from konductor_like.backtest.history import HistoryReader
from konductor_like.backtest.nodes import healthy_node
from konductor_like.backtest.result import Result, TimeSpan
from konductor_like.backtest.run import INTERRUPTED, RuleSet, run
from konductor_like.catalog import UserRules
from konductor_like.cli import session
from konductor_like.cli.backtest.report import document, show, text
from konductor_like.cli.columns import stamp_of_ns
from konductor_like.cli.durations import span_of, typed_moment
from konductor_like.cli.errors import CommandError, describe
from konductor_like.cli.output import is_terminal, say, say_json, tell, warn
from konductor_like.cli.progress import through_time
from konductor_like.cli.rules import load
from konductor_like.cli.session import connected, load_settings
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.errors import KubeConfigError, KubeError
from konductor_like.cluster.node_decoder import node_decoder
from konductor_like.cluster.node_store import list_nodes, listed_slices
from konductor_like.detection import Detector
from konductor_like.exits import Exit
from konductor_like.loki.client import LokiClient
from konductor_like.loki.logql import kernel_query, pod_query
from konductor_like.loki.window_query import ByteBudget
from konductor_like.model import NodeState, Source
from konductor_like.model.time import SECOND_NS, unix_ns
from konductor_like.settings import Settings

NEVER = "never"
CLUSTER, LINES = "cluster", "lines"
CACHED_AFTER_NS = 6 * 3600 * SECOND_NS
"""Younger lines are read anew each time: collectors that were cut off deliver late."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line."""

    since: str
    until: str | None
    rules: Path | None
    compare: Path | None
    release_after: str
    nodes: str
    cache: Path | None
    use_cache: bool
    mib_per_minute: int | None
    context: str | None
    kubeconfig: str | None


def carry_out(asked: Asked, *, as_json: bool) -> Exit:
    """Run it and print the report. Raises CommandError, LokiError, KubeConfigError."""
    settings = load_settings()
    span = _span(asked)
    release_after = None if asked.release_after == NEVER else span_of(asked.release_after, "--release-after")
    users = [_rules(asked.rules or settings.rules_file, given=asked.rules is not None)]
    if asked.compare is not None:
        users.append(_rules(asked.compare, given=True))
    rule_sets = [
        RuleSet(Detector(each.catalog), settings.rules().under(each.catalog.escalations, each.digest))
        for each in users
    ]
    states, nodes_from = _nodes(asked, settings)
    with closing(LokiClient(settings)) as loki, through_time(span.start_ns, span.end_ns) as progress:
        result = run(
            _readers(loki, settings, rule_sets, asked),
            rule_sets,
            states,
            span,
            settings,
            release_after_seconds=None if release_after is None else release_after.total_seconds(),
            nodes_from=nodes_from,
            progress=progress,
        )
    if as_json:
        say_json(document(result))
    elif is_terminal(sys.stdout):
        show(result)
    else:
        say(text(result))
    return _status(result, asked)


def _status(result: Result, asked: Asked) -> Exit:
    if not result.ended_by:
        return Exit.OK
    upto = stamp_of_ns(result.history.read.end_ns)
    warn(f"ended early, and the report goes up to {upto}: {result.ended_by}")
    if asked.use_cache:
        tell("hint: the same command goes on from there; what was read so far is kept.")
    return Exit.INTERRUPTED if result.ended_by == INTERRUPTED else Exit.PARTLY


def _span(asked: Asked) -> TimeSpan:
    now = session.now()
    start = typed_moment(asked.since, "--since", now)
    end = now if asked.until is None else min(now, typed_moment(asked.until, "--until", now))
    if start >= end:
        raise CommandError("--since is not before --until, or in the future", status=Exit.USAGE)
    if unix_ns(start) < 0:
        raise CommandError(f"--since {asked.since!r} is before there were logs", status=Exit.USAGE)
    return TimeSpan(unix_ns(start), unix_ns(end))


def _rules(file: Path | None, *, given: bool) -> UserRules:
    if given and file is not None and not file.exists():
        raise CommandError(f"{file}: No such file or directory", status=Exit.USAGE)
    return load(file)


def _nodes(asked: Asked, settings: Settings) -> tuple[list[NodeState], str]:
    """The nodes that there were, as far as one knows, and whence."""
    if asked.nodes == LINES:
        return [], LINES
    if asked.nodes != CLUSTER:
        return _nodes_in(Path(asked.nodes), settings), "file"
    try:
        with connected(ReadOnlyKubeClient, asked.kubeconfig, asked.context) as (client, _):
            return list(list_nodes(client, node_decoder(settings, listed_slices(client))).values()), CLUSTER
    except (KubeConfigError, KubeError) as error:
        if asked.context or asked.kubeconfig:
            raise
        warn(f"no cluster can be asked for its nodes ({error}); going by the names in the lines.")
        return [], LINES


def _nodes_in(file: Path, settings: Settings) -> list[NodeState]:
    content = file.read_text("utf-8", "replace")
    if not content.lstrip().startswith("{"):
        names = dict.fromkeys(line.strip().removeprefix("node/") for line in content.splitlines())
        return [healthy_node(name) for name in names if name and not name.startswith("#")]
    try:
        listed = json.loads(content)
        decode = node_decoder(settings)
        return [decode(item) for item in listed.get("items", [listed])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(
            f"{file} is no list of nodes: {error}",
            hint="a name per line, or what `kubectl get nodes -o json` prints",
            status=Exit.USAGE,
        ) from error


def _readers(
    loki: LokiClient, settings: Settings, rule_sets: list[RuleSet], asked: Asked
) -> dict[Source, HistoryReader]:
    """Each source's lines that any of the rules may need, in one query. Raises OSError for ``--cache``."""
    anchors = {
        source: tuple(dict.fromkeys(a for each in rule_sets for a in each.detector.anchors(source)))
        for source in Source
    }
    budget = ByteBudget((asked.mib_per_minute or settings.loki_budget_mib_per_minute) * 2**20)
    queries = {
        Source.KERNEL: kernel_query(settings, anchors[Source.KERNEL]),
        Source.POD: pod_query(settings, anchors[Source.POD]),
    }
    upto_ns = unix_ns(session.now()) - CACHED_AFTER_NS
    return {
        source: HistoryReader(
            source, loki, query, settings, budget, time.sleep, warn, _cache(asked, settings, query), upto_ns
        )
        for source, query in queries.items()
        if query is not None
    }


def _cache(asked: Asked, settings: Settings, query: str) -> HistoryCache | None:
    if not asked.use_cache:
        return None
    address = urlsplit(settings.log_endpoint)
    place = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"
    name = cache_name(place, settings.loki_tenant or "", query)
    if asked.cache is not None:
        return HistoryCache(asked.cache, name)
    try:
        return HistoryCache(_users_cache() / "konductor-like" / "backtest", name)
    except (OSError, RuntimeError) as error:  # a home that is read-only, or none: nobody asked for it
        warn(f"nothing is kept for another run: {describe(error)}")
        return None


def _users_cache() -> Path:
    """Raises RuntimeError where the user has no home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
