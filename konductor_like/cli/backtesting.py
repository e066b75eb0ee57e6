"""The work of ``backtest``: what is asked for, whose nodes, which rules; then the run and its report."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from konductor_like.backtest.fleet import Fleet, node
from konductor_like.backtest.play import Player
from konductor_like.backtest.run import INTERRUPTED, run
from konductor_like.backtest.simulation import Assumed, moment, ns_of
from konductor_like.backtest.svg import drawing
from konductor_like.backtest.values import Result, Span
from konductor_like.catalog import UserRules
from konductor_like.cli import clock
from konductor_like.cli.backtest import Format
from konductor_like.cli.backtest_document import document
from konductor_like.cli.backtest_reading import heard, pasts
from konductor_like.cli.backtest_view import text
from konductor_like.cli.configuration import load_settings
from konductor_like.cli.exits import Exit
from konductor_like.cli.failures import CommandError
from konductor_like.cli.observation import reading_client
from konductor_like.cli.progress import through_time
from konductor_like.cli.ruling import load
from konductor_like.cli.spans import moment_of, span_of
from konductor_like.cli.streams import is_terminal, say, tell, warn
from konductor_like.cluster.errors import KubeConfigError, KubeError
from konductor_like.cluster.node_decoder import node_decoder
from konductor_like.cluster.node_store import list_nodes, listed_slices
from konductor_like.detection import Detector
from konductor_like.loki.client import LokiClient
from konductor_like.model import NodeState
from konductor_like.settings import Settings

NEVER = "never"
CLUSTER, LINES = "cluster", "lines"


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line."""

    since: str
    until: str | None
    rules: Path | None
    compare: Path | None
    release_after: str
    nodes: str
    output: Format
    svg: Path | None
    cache: Path | None
    use_cache: bool
    mib_per_minute: int | None
    context: str | None
    kubeconfig: str | None


def carry_out(asked: Asked) -> Exit:
    """Run it and print the report. Raises CommandError, LokiError, KubeConfigError."""
    settings = load_settings()
    span = _span(asked)
    release_after = None if asked.release_after == NEVER else span_of(asked.release_after, "--release-after")
    books = [_rules(asked.rules or settings.rules_file, given=asked.rules is not None)]
    if asked.compare is not None:
        books.append(_rules(asked.compare, given=True))
    detectors = [Detector(book.catalog) for book in books]
    states, nodes_from = _nodes(asked, settings)
    grid_ns = round(min(settings.poll_interval_seconds, settings.pod_poll_interval_seconds) * 1e9)
    seconds = None if release_after is None else release_after.total_seconds()
    assumed = Assumed(None if seconds is None else round(seconds * 1e9), grid_ns)
    players = [
        Player(
            detector,
            settings.rules().under(book.catalog.escalations, book.digest),
            assumed,
            Fleet(states, complete=nodes_from != LINES),
        )
        for detector, book in zip(detectors, books, strict=True)
    ]
    with closing(LokiClient(settings)) as loki, through_time(span.start_ns, span.end_ns) as progress:
        result = run(
            pasts(loki, settings, detectors, asked),
            players,
            span,
            settings,
            release_after_seconds=seconds,
            nodes_from=nodes_from,
            progress=progress,
        )
        if not result.ended_by:
            result = replace(result, silence=heard(loki, settings, result.history.read, asked))
    return _report(result, asked)


def _report(result: Result, asked: Asked) -> Exit:
    if asked.output is Format.JSON:
        say([json.dumps(document(result), indent=2)])
    elif is_terminal(sys.stdout):
        from konductor_like.cli.backtest_terminal import show  # a pipe never needs rich

        show(result)
    else:
        say(text(result))
    if asked.svg is not None:
        asked.svg.write_text(drawing(result), "utf-8")
        tell(f"The timeline is in {asked.svg}.")
    if not result.ended_by:
        return Exit.OK
    upto = f"{moment(result.history.read.end_ns):%Y-%m-%dT%H:%M:%SZ}"
    warn(f"ended early, and the report goes up to {upto}: {result.ended_by}")
    if asked.use_cache:
        tell("hint: the same command goes on from there; what was read so far is kept.")
    return Exit.INTERRUPTED if result.ended_by == INTERRUPTED else Exit.PARTLY


def _span(asked: Asked) -> Span:
    now = clock.now()
    start = moment_of(asked.since, "--since", now)
    end = now if asked.until is None else min(now, moment_of(asked.until, "--until", now))
    if start >= end:
        raise CommandError("--since is not before --until, or in the future", status=Exit.USAGE)
    if ns_of(start) < 0:
        raise CommandError(f"--since {asked.since!r} is before there were logs", status=Exit.USAGE)
    return Span(ns_of(start), ns_of(end))


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
        with reading_client(settings, asked.kubeconfig, asked.context) as client:
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
        return [node(name) for name in names if name and not name.startswith("#")]
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
