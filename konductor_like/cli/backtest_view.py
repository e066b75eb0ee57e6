"""A backtest's result as text and as JSON (schema ``konductor-like/v1``, docs/backtest.md). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from konductor_like.backtest.timeline import rows
from konductor_like.backtest.values import Difference, HeldBack, Outage, Result, Verdicts
from konductor_like.cli.columns import age, columns, count, fault_name, moment
from konductor_like.cli.document import API_VERSION, stamp
from konductor_like.model import Source

WIDTH = 100
HEADERS = ("NODE", "FROM", "FOR", "FAULT", "GPU", "GROUNDS", "EVIDENCE")
HELD_HEADERS = ("NODE", "FROM", "FOR", "FAULT", "WHY")
_DAY_NS = 86_400 * 10**9


def text(result: Result, width: int = WIDTH) -> list[str]:
    """The report for people: the sum first, then each outage, what was held back, the timeline."""
    verdicts = result.verdicts
    lines = [f"{label + ':':<12} {said}" for label, said in _summary(result)]
    if verdicts.outages:
        lines += ["", *columns(HEADERS, [_outage_row(one, result) for one in verdicts.outages])]
    if verdicts.held:
        lines += ["", "Held back:", *columns(HELD_HEADERS, [_held_row(one, result) for one in verdicts.held])]
    for title, found in (
        ("What the rules in shadow mode would have added", result.shadow),
        ("What the other rules would do", result.difference),
    ):
        if found is not None:
            lines += ["", f"{title}:", *_difference(found, result)]
    drawn = rows(verdicts, result.history.asked, width, result.history.read)
    if drawn:
        lines += ["", "Timeline (# out, / held back):", *drawn]
    return lines


def _summary(result: Result) -> list[tuple[str, str]]:
    history, verdicts = result.history, result.verdicts
    found = ", ".join(f"{count(number, source.value + ' line')}" for source, number in history.lines.items())
    if history.kept_lines:
        found += f", {history.kept_lines} of them kept by an earlier run"
    if history.waited_seconds >= 1:
        found += f"; waited {age(history.waited_seconds)} to spare Loki"
    peak = verdicts.peak
    most = (
        f"; most at once {peak.out} of {verdicts.gpu_nodes} ({verdicts.share(peak.out):.1%}) "
        f"at {stamp(moment(peak.at_ns))}"
        if peak
        else ""
    )
    nodes = len({one.node for one in verdicts.outages})
    hours = sum(((o.end_ns or history.read.end_ns) - o.start_ns) for o in verdicts.outages) / 3.6e12
    return [
        (
            "History",
            f"{stamp(moment(history.asked.start_ns))} to {stamp(moment(history.read.end_ns))}; {found}",
        ),
        (
            "Tainted",
            f"{count(nodes, 'node')}, {count(len(verdicts.outages), 'time')}, {hours:.1f} node hours{most}",
        ),
        ("Held back", f"{count(len({h.node for h in verdicts.held}), 'node')}"),
        *(("Assumed", sentence) for sentence in assumptions(result)),
        *(("Missing", sentence) for sentence in missing(result)),
    ]


def assumptions(result: Result) -> list[str]:
    """What no history tells, in sentences."""
    after = result.release_after_seconds
    back = (
        "nobody brings a node back"
        if after is None
        else f"a node comes back {age(after)} after its taint, unless it is held longer as a repeat offender"
    )
    nodes = {
        "cluster": "the nodes are the cluster's of today, with today's labels",
        "file": "the nodes are the file's",
        "lines": "the nodes are those that the lines name, and the brake counts each from its first line on",
    }[result.nodes_from]
    said = [back, nodes, "lines came when their timestamps say"]
    if result.history.without_boot:
        said.append(
            f"no reboot, where kernel lines name no boot ({count(result.history.without_boot, 'fault')}): a "
            "stamp that runs backwards is a replay"
        )
    return said


def missing(result: Result) -> list[str]:
    """What of the history is not there."""
    history, said = result.history, []
    if history.oldest_ns is None:
        said.append(
            "Loki has no line with a fault's words in this time: retention, selector, or a healthy fleet"
        )
    elif history.oldest_ns - history.asked.start_ns > _DAY_NS:
        said.append(
            f"the oldest line found is of {stamp(moment(history.oldest_ns))}: before that Loki kept none "
            "(retention_period, max_query_lookback), or there was none"
        )
    if history.read.end_ns < history.asked.end_ns:
        said.append(f"what is after {stamp(moment(history.read.end_ns))} was not read: {result.ended_by}")
    if history.incomplete:
        said.append(f"{count(history.incomplete, 'nanosecond')} with more lines than Loki gives out at once")
    if result.verdicts.dropped:
        said.append(f"{count(result.verdicts.dropped, 'span')} beyond what is listed")
    return said


def document(result: Result) -> dict[str, Any]:
    """Plain dicts, lists, strings, numbers and None; within ``v1`` fields are only ever added."""
    history = result.history
    return {
        "apiVersion": API_VERSION,
        "kind": "Backtest",
        "from": stamp(moment(history.asked.start_ns)),
        "to": stamp(moment(history.asked.end_ns)),
        "readUpTo": stamp(moment(history.read.end_ns)),
        "complete": not result.ended_by,
        "assumed": {
            "releaseAfterSeconds": result.release_after_seconds,
            "nodes": result.nodes_from,
            "sentences": assumptions(result),
        },
        "history": {
            "lines": {source.value: history.lines.get(source, 0) for source in Source},
            "oldestLine": None if history.oldest_ns is None else stamp(moment(history.oldest_ns)),
            "newestLine": None if history.newest_ns is None else stamp(moment(history.newest_ns)),
            "keptLines": history.kept_lines,
            "queries": history.queries,
            "bytesProcessed": history.bytes_processed,
            "waitedSeconds": round(history.waited_seconds),
            "missing": missing(result),
        },
        "verdicts": _verdicts(result.verdicts, result),
        "shadow": _difference_document(result.shadow, result),
        "compared": None if result.compared is None else _verdicts(result.compared, result),
        "difference": _difference_document(result.difference, result),
    }


def _verdicts(verdicts: Verdicts, result: Result) -> dict[str, Any]:
    peak = verdicts.peak
    return {
        "rules": verdicts.rules,
        "faults": verdicts.faults,
        "gpuNodes": verdicts.gpu_nodes,
        "peak": peak
        and {"at": stamp(moment(peak.at_ns)), "out": peak.out, "share": round(verdicts.share(peak.out), 4)},
        "outages": [_outage(one, result) for one in verdicts.outages],
        "held": [_held(one, result) for one in verdicts.held],
    }


def _outage(one: Outage, result: Result) -> dict[str, Any]:
    incident = one.incident
    return {
        **_span(one, result),
        "rule": incident.key.rule,
        "gpu": incident.key.gpu,
        "severity": incident.severity.value,
        "grounds": incident.grounds or None,
        "job": incident.job,
        "event": incident.event,
        "title": incident.title,
        "evidence": incident.evidence,
        "keptOutBecause": one.why_longer or None,
    }


def _held(one: HeldBack, result: Result) -> dict[str, Any]:
    return {
        **_span(one, result),
        "rule": one.incident.key.rule,
        "gpu": one.incident.key.gpu,
        "why": one.why.value,
    }


def _span(one: Outage | HeldBack, result: Result) -> dict[str, Any]:
    end_ns = one.end_ns or result.history.read.end_ns
    return {
        "node": one.node,
        "from": stamp(moment(one.start_ns)),
        "to": None if one.end_ns is None else stamp(moment(one.end_ns)),
        "seconds": round((end_ns - one.start_ns) / 1e9),
    }


def _difference_document(found: Difference | None, result: Result) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "added": [_outage(one, result) for one in found.added],
        "gone": [_outage(one, result) for one in found.gone],
        "same": found.same,
    }


def _outage_row(one: Outage, result: Result) -> Sequence[str]:
    incident = one.incident
    return (
        *_when(one, result),
        fault_name(incident.key.rule),
        incident.key.gpu or "",
        incident.grounds,
        incident.evidence,
    )


def _held_row(one: HeldBack, result: Result) -> Sequence[str]:
    return (*_when(one, result), fault_name(one.incident.key.rule), one.why.value)


def _when(one: Outage | HeldBack, result: Result) -> tuple[str, str, str]:
    lasted = age(((one.end_ns or result.history.read.end_ns) - one.start_ns) / 1e9)
    return one.node, stamp(moment(one.start_ns)) or "", lasted if one.end_ns else f"{lasted}+"


def _difference(found: Difference, result: Result) -> list[str]:
    said = [f"{count(len(found.added), 'outage')} more, {len(found.gone)} fewer, {found.same} the same."]
    listed = [("+", one) for one in found.added] + [("-", one) for one in found.gone]
    return said + columns((), [(sign, *_outage_row(one, result)) for sign, one in listed])
