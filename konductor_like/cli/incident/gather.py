"""Saves an incident: what the controller saw and did around one outage, as one JSON file.

The file has the kernel lines with faults of the node and of the nodes of its failure group, what the record
told of these nodes before, the numbers of the policy, the rules, and which of the nodes were tainted, when
and for which fault. It has no names of persons, of jobs and of namespaces; lines of pods only if somebody
asked for them. A digest shows whether somebody has changed the file. ``tools/replay_incident.py`` reads it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from konductor_like.backtest.history import HistoryReader
from konductor_like.backtest.result import History as LinesRead
from konductor_like.build import this_program
from konductor_like.catalog import UserRules
from konductor_like.cli.columns import count, stamp
from konductor_like.cli.errors import FIND_NODE, CommandError, describe
from konductor_like.cli.history.gather import Sources, choose, read_cluster, read_history, span_of_options
from konductor_like.cli.output import warn
from konductor_like.cli.rules import load
from konductor_like.cluster.node import record as records
from konductor_like.cluster.published import Published, encode_settings, published
from konductor_like.detection import Detector
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.exits import Exit
from konductor_like.history.outages import End, Kind, Outage
from konductor_like.history.read import History
from konductor_like.history.trail import TrailLine
from konductor_like.loki.query.client import LokiClient
from konductor_like.loki.query.logql import kernel_query, of_nodes, pod_query
from konductor_like.loki.query.window_query import ByteBudget, TimeWindow
from konductor_like.model import OPERATOR_RULE, LogLine, NodeRecord, Source
from konductor_like.model.time import text_of, text_of_ns, unix_ns
from konductor_like.policy.config import PolicyConfig

API_VERSION, KIND, VERSION = "konductor-like/v1", "SavedIncident", 1
LINES_MOST = 20_000
"""Lines of one file, at most."""
AFTER = timedelta(minutes=10)
"""Time after the begin of an outage of which lines are saved."""
LAST_DAY = timedelta(days=1)
NODES_MOST = 200
"""Nodes of a failure group whose lines are saved, at most."""
_SAME = timedelta(seconds=1)


def gather(
    name: str, number: int, since: str, kubeconfig: str | None, context: str | None, *, with_pods: bool
) -> dict[str, Any]:
    """Return the file's content. Raises CommandError, LokiError, KubeError."""
    sources = read_cluster(kubeconfig, context)
    if sources.problem:
        raise CommandError(f"the Nodes cannot be read: {sources.problem}")
    back, now = span_of_options(since, None, sources.now)
    members: defaultdict[str, set[str]] = defaultdict(set)

    def take(line: TrailLine) -> None:
        if line.failure_group and line.node:
            members[line.failure_group].add(line.node)

    history = read_history(sources, back, now, also=take)
    if history.trail.problem:
        warn(f"the audit trail cannot be read: {history.trail.problem}")
    outage = _outage(history, sources, name, number)
    rules, rules_text, missing = _rules(sources)
    settings = _settings(sources, rules, missing)
    policy = settings.policy.with_escalations(rules.catalog.escalations, rules.digest)
    start, end = _span(history, name, outage, policy, sources.now)
    names = _names(name, outage, members, sources, missing)
    lines = _lines(sources, history, rules, names, (start, end), missing, with_pods=with_pods)
    if not lines and (outage is None or outage.kind is not Kind.PERSON):
        missing.append("Loki has no line with a fault of this time: it may be past Loki's retention.")
    found = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "version": VERSION,
        "node": name,
        "from": text_of(start),
        "to": text_of(end),
        "savedAt": text_of(sources.now),
        "program": str(this_program()),
        "controller": str(sources.controller.program or ""),
        "settings": json.loads(encode_settings(without_names(settings))),
        "rules": rules_text,
        "withPods": with_pods,
        "missing": missing,
        "outages": list(_outages(history, names, start, end)),
        "nodes": [_node(each, sources, start, policy) for each in names],
        "others": list(_others(history, names, start, end)),
        "lines": [_line(each) for each in lines],
    }
    return {**found, "sha256": digest(found)}


def digest(found: Mapping[str, Any]) -> str:
    """Return the digest of all other fields."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def without_names(settings: Published) -> Published:
    """Return settings without what names a site: the pod, its namespaces, selectors."""
    return replace(
        settings,
        by="",
        namespaces=(),
        further_namespaces=0,
        validation_namespace="",
        gpu_node_selector="",
        node_selector="",
        recovery_node_selector="",
        kernel_selector="",
        extra_matchers="",
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


def _span(
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
    name: str,
    outage: Outage | None,
    members: Mapping[str, set[str]],
    sources: Sources,
    missing: list[str],
) -> tuple[str, ...]:
    """Return the node, and the nodes of its failure group, from the trail and the records."""
    state = sources.states.get(name)
    found = {outage.failure_group} if outage is not None and outage.failure_group else set()
    for each in state.record.incidents if state is not None else ():
        if each.failure_group and (outage is None or each.key == (outage.rule, outage.gpu)):
            found.add(each.failure_group)
    told = {node for group in found for node in members.get(group, ())}
    for other in sources.states.values():
        if any(each.failure_group in found for each in other.record.incidents):
            told.add(other.name)
    others = sorted(told - {name})
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
        missing.append(f"The controller runs other rules ({theirs}) than the file has: {own}.")
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
    read = LinesRead(TimeWindow(unix_ns(span[0]), unix_ns(span[1])))
    joiner, found = MultilineDetector(detector), list[LogLine]()
    with closing(LokiClient(settings)) as loki:
        for source, query in queries.items():
            if query is None:
                continue
            text = of_nodes(query, settings.node_label, names)
            reader = HistoryReader(source, loki, text, settings, read, budget, pause=time.sleep, tell=warn)
            for page in reader.pages():
                for line in page.lines:
                    if line.node in names and (source is Source.KERNEL or joiner.detect(line) is not None):
                        found.append(line)
                if len(found) > LINES_MOST:
                    break
    if len(found) > LINES_MOST or read.incomplete:
        missing.append(f"There are more lines: the file has {count(LINES_MOST, 'line')} at most.")
    return sorted(found[:LINES_MOST], key=lambda line: line.timestamp_ns)


def _line(line: LogLine) -> dict[str, Any]:
    found: dict[str, Any] = {"at": text_of_ns(line.timestamp_ns), "node": line.node, "text": line.text}
    if line.source is Source.POD:
        found |= {"labels": dict(line.labels), "namespace": line.namespace}
        found |= {"pod": line.pod, "container": line.container}
    return found


def _node(name: str, sources: Sources, start: datetime, policy: PolicyConfig) -> dict[str, Any]:
    state = sources.states.get(name)
    record = NodeRecord() if state is None else record_before(state.record, start, policy)
    where = {"pool": None, "domain": None} if state is None else {"pool": state.pool, "domain": state.domain}
    return {"name": name, **where, "record": json.loads(records.encode(record))}


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
    return NodeRecord(life=life, releases=releases)


def _outages(
    history: History, names: Sequence[str], start: datetime, end: datetime
) -> Iterator[dict[str, Any]]:
    for each in history.outages:
        if each.node in names and start <= each.since <= end and (each.rule or each.begun_by):
            rule = OPERATOR_RULE if each.kind is Kind.PERSON else each.rule
            yield {"node": each.node, "at": text_of(each.since), "rule": rule, "gpu": each.gpu}


def _others(
    history: History, names: Sequence[str], start: datetime, end: datetime
) -> Iterator[dict[str, Any]]:
    """Yield the other GPU nodes by pool, with their times out of service in the span."""
    pool_of = {name: state.pool for name, state in history.fleet.items()}
    out: defaultdict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for each in history.outages:
        is_over = (each.until is not None and each.until < start) or each.end is End.UNKNOWN
        if each.node in pool_of and each.node not in names and each.since <= end and not is_over:
            until = text_of(each.until) if each.until else None
            out[pool_of[each.node]].append({"since": text_of(each.since), "until": until})
    for pool in dict.fromkeys(pool_of.values()):
        number = sum(its == pool and name not in names for name, its in pool_of.items())
        yield {"gpuNodes": number, "pool": pool, "outages": out[pool]}
