"""Reads what a saved incident needs: history, Nodes, lines, rules and settings."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from konductor_like.backtest.incident import (
    LINES_MOST,
    OtherNodes,
    OtherOutage,
    SavedIncident,
    SavedNode,
    SavedOutage,
    without_names,
)
from konductor_like.build import this_program
from konductor_like.catalog import UserRules
from konductor_like.cli.columns import count, stamp
from konductor_like.cli.errors import FIND_NODE, CommandError, describe
from konductor_like.cli.history.gather import Sources, choose, read_cluster, read_history, span_of_options
from konductor_like.cli.output import warn
from konductor_like.cli.rules import load
from konductor_like.cluster.published import Published, published
from konductor_like.detection import Detector
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.exits import Exit
from konductor_like.history.outages import End, Kind, Outage
from konductor_like.history.read import History
from konductor_like.history.trail import TrailLine
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.logql import kernel_query, of_nodes, pod_query
from konductor_like.loki.query.patient import WIDEST_NS, PatientReader
from konductor_like.loki.query.response import log_lines
from konductor_like.loki.query.window_query import ByteBudget, TimeWindow, WindowQuery
from konductor_like.model import OPERATOR_RULE, LogLine, NodeRecord, Source
from konductor_like.model.time import unix_ns
from konductor_like.policy.config import PolicyConfig

AFTER = timedelta(minutes=10)
"""Time after the begin of an outage of which lines are saved."""
LAST_DAY = timedelta(days=1)
NODES_MOST = 200
"""Nodes of a failure group whose lines are saved, at most."""
_SAME = timedelta(seconds=1)


@dataclass(slots=True)
class _Account:
    queries: int = 0
    bytes_processed: int = 0
    waited_seconds: float = 0.0
    incomplete: int = 0


@dataclass(slots=True)
class _Groups:
    """The nodes of each failure group, from the trail and the records."""

    nodes: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def take(self, line: TrailLine) -> None:
        if line.failure_group and line.node:
            self.nodes[line.failure_group].add(line.node)


def gather(
    name: str, number: int, since: str, kubeconfig: str | None, context: str | None, *, with_pods: bool
) -> SavedIncident:
    """Return the incident. Raises CommandError, LokiError, KubeError."""
    sources = read_cluster(kubeconfig, context)
    if sources.problem:
        raise CommandError(f"the Nodes cannot be read: {sources.problem}")
    back, now = span_of_options(since, None, sources.now)
    groups = _Groups()
    history = read_history(sources, back, now, also=groups.take)
    if history.trail.problem:
        warn(f"the audit trail cannot be read: {history.trail.problem}")
    outage = _outage(history, sources, name, number)
    rules, rules_text, missing = _rules(sources)
    settings = _settings(sources, rules, missing)
    policy = settings.policy.with_escalations(rules.catalog.escalations, rules.digest)
    start, end = span_of(history, name, outage, policy, sources.now)
    names = _names(name, outage, groups, sources, missing)
    lines = _lines(sources, history, rules, names, (start, end), missing, with_pods=with_pods)
    if not lines and (outage is None or outage.kind is not Kind.PERSON):
        missing.append("Loki has no line with a fault of this time: it may be past Loki's retention.")
    return SavedIncident(
        *(name, start, end, sources.now),
        program=str(this_program()),
        controller=str(sources.controller.program or ""),
        settings=without_names(settings),
        rules=rules_text,
        with_pods=with_pods,
        nodes=tuple(_saved_node(each, sources, start, policy) for each in names),
        others=tuple(_others(history, names, start, end)),
        outages=tuple(_outages(history, names, start, end)),
        lines=tuple(lines),
        missing=tuple(missing),
    )


def _outage(history: History, sources: Sources, name: str, number: int) -> Outage | None:
    if number:
        outage = choose(history, sources, name, number)
        if not outage.rule and outage.kind is Kind.FAILURE:
            raise CommandError(f"for which fault {name} was tainted at {stamp(outage.since)} is not known")
        return outage
    if name not in sources.states:
        raise CommandError(f"node/{name} not found", hint=FIND_NODE)
    if out := next((e for e in history.outages if e.node == name and e.end is End.OUT), None):
        since = stamp(out.since)
        raise CommandError(
            f"{name} is out of service since {since}", hint="that is --outage 1", status=Exit.USAGE
        )
    return None


def span_of(
    history: History, name: str, outage: Outage | None, policy: PolicyConfig, now: datetime
) -> tuple[datetime, datetime]:
    """Return the span of the lines: as far back as rules look, but not into the node's last outage."""
    begin = now if outage is None else outage.since
    end = now if outage is None else min(now, outage.since + AFTER)
    start = begin - (LAST_DAY if outage is None else timedelta(seconds=policy.window_seconds))
    before = [
        each.until for each in history.outages if each.node == name and each.until and each.until <= begin
    ]
    return max([start, *before]), end


def _names(
    name: str, outage: Outage | None, groups: _Groups, sources: Sources, missing: list[str]
) -> tuple[str, ...]:
    """Return the node, and the nodes of its failure group."""
    state = sources.states.get(name)
    found = {outage.failure_group} if outage is not None and outage.failure_group else set()
    for each in state.record.incidents if state is not None else ():
        if each.failure_group and (outage is None or each.key == (outage.rule, outage.gpu)):
            found.add(each.failure_group)
    members = {node for group in found for node in groups.nodes.get(group, ())}
    for other in sources.states.values():
        if any(each.failure_group in found for each in other.record.incidents):
            members.add(other.name)
    others = sorted(members - {name})
    if len(others) >= NODES_MOST:
        missing.append(
            f"Only {NODES_MOST} of the {len(others) + 1} nodes of the failure group are in the file."
        )
    return (name, *others[: NODES_MOST - 1])


def _rules(sources: Sources) -> tuple[UserRules, str | None, list[str]]:
    """Return the rules of this shell, the text of their file, and what is wrong with them."""
    path = sources.settings.rules_file
    rules = load(path)
    theirs = sources.controller.settings.rules_digest if sources.controller.settings else ""
    missing = []
    if theirs and theirs != rules.digest:
        own = f"those of KONDUCTOR_RULES_FILE ({rules.digest})" if path else "the built-in ones"
        message = f"The controller runs other rules ({theirs}) than the file has: {own}."
        warn(message)
        missing.append(message)
    try:
        text = path.read_text("utf-8", "replace") if path is not None and path.exists() else None
    except OSError as error:
        raise CommandError(describe(error), status=Exit.USAGE) from error
    return rules, text, missing


def _settings(sources: Sources, rules: UserRules, missing: list[str]) -> Published:
    if sources.controller.settings is not None:
        return sources.controller.settings
    missing.append("The controller's settings are not known: the file has those of the shell that saved it.")
    version = this_program().version
    return published(sources.settings, by="", version=version, rules_digest=rules.digest)


def _lines(
    sources: Sources,
    history: History,
    rules: UserRules,
    names: Sequence[str],
    span: tuple[datetime, datetime],
    missing: list[str],
    *,
    with_pods: bool,
) -> list[LogLine]:
    """Return the lines that the controller's own queries find, of these nodes. Raises a LokiError."""
    settings, detector = sources.settings, Detector(rules.catalog)
    queries: dict[Source, str | None] = {
        Source.KERNEL: kernel_query(settings, detector.anchors(Source.KERNEL)),
        Source.POD: pod_query(settings, detector.anchors(Source.POD)) if with_pods else None,
    }
    budget = ByteBudget(bound := settings.loki_budget_mib_per_minute * 2**20)
    budget.spend(min(history.trail.bytes_processed, bound))  # as if all of it had been read just now
    window = TimeWindow(unix_ns(span[0]), unix_ns(span[1]))
    joiner, account, found = MultilineDetector(lambda: detector), _Account(), list[LogLine]()
    with closing(LokiClient(settings)) as loki:
        for source, query in queries.items():
            if query is None:
                continue
            text = of_nodes(query, settings.node_label, names)
            asking = WindowQuery(loki, text, settings, WIDEST_NS, source=source)
            for piece in PatientReader(asking, budget, account, time.sleep, warn).pieces(window):
                for line in log_lines(piece.entries, source, settings):
                    if line.node in names and (source is Source.KERNEL or joiner.detect(line) is not None):
                        found.append(line)
                if len(found) > LINES_MOST:
                    break
    if len(found) > LINES_MOST or account.incomplete:
        missing.append(f"There are more lines: the file has {count(LINES_MOST, 'line')} at most.")
    return sorted(found[:LINES_MOST], key=lambda line: line.timestamp_ns)


def _saved_node(name: str, sources: Sources, start: datetime, policy: PolicyConfig) -> SavedNode:
    state = sources.states.get(name)
    if state is None:
        return SavedNode(name)
    return SavedNode(name, state.pool, state.domain, record_before(state.record, start, policy))


def record_before(record: NodeRecord, start: datetime, policy: PolicyConfig) -> NodeRecord:
    """Return what a record told at a time, as far as it still does, without names and reasons of persons."""
    upto = start + _SAME
    past = tuple(each for each in record.life.quarantines if each.released_at <= upto)
    releases = tuple(
        replace(each, by="", reason="", warning=None, unknown=())
        for each in record.releases
        if each.at <= upto
    )
    probation = None
    if past and past[0].how.on_probation:
        until = past[0].released_at + timedelta(seconds=policy.probation_seconds)
        probation = until if until > start else None
    life = replace(NodeRecord().life, quarantines=past, probation_until=probation)
    covers = tuple(each for each in record.part_covers if each.at <= upto)
    return NodeRecord(life=life, releases=releases, part_covers=covers)


def _outages(history: History, names: Sequence[str], start: datetime, end: datetime) -> Iterator[SavedOutage]:
    for each in history.outages:
        if each.node in names and start <= each.since <= end and (each.rule or each.begun_by):
            rule = OPERATOR_RULE if each.kind is Kind.PERSON else each.rule
            yield SavedOutage(each.node, each.since, rule, each.gpu)


def _others(history: History, names: Sequence[str], start: datetime, end: datetime) -> Iterator[OtherNodes]:
    """Yield the other GPU nodes by pool, with their times out of service in the span."""
    pools: defaultdict[str | None, int] = defaultdict(int)
    pool_of: Mapping[str, str | None] = {name: state.pool for name, state in history.fleet.items()}
    for name in pool_of:
        pools[pool_of[name]] += name not in names
    out: defaultdict[str | None, list[OtherOutage]] = defaultdict(list)
    for each in history.outages:
        is_over = (each.until is not None and each.until < start) or each.end is End.UNKNOWN
        if each.node in pool_of and each.node not in names and each.since <= end and not is_over:
            out[pool_of[each.node]].append(OtherOutage(each.since, each.until))
    for pool, number in pools.items():
        yield OtherNodes(number, pool, tuple(out[pool]))
