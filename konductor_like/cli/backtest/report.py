"""The result of a backtest: as text, and as JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Any

import typer

from konductor_like.backtest.result import Difference, HeldSpan, Outage, Result, Verdicts
from konductor_like.cli.columns import age, columns, count, fault_name, stamp_of_ns
from konductor_like.cli.output import (
    API_VERSION,
    colourful,
    fields_of,
    is_terminal,
    say,
    say_paragraphs,
)
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS

HEADERS = ("NODE", "FROM", "FOR", "FAULT", "GPU", "REASON", "EVIDENCE")
HELD_HEADERS = ("NODE", "FROM", "FOR", "FAULT", "WHY")
_DAY_NS = 86_400 * SECOND_NS
_COLOURS = {"+": "red", "-": "green"}


def show(result: Result) -> None:
    """Print the totals, then the tables; on a terminal each row is cut at the terminal's width."""
    say_paragraphs((label, sentences) for label, sentences in summary(result).items() if sentences)
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    colours = colourful(sys.stdout)
    for line in tables(result):
        cut = line if width is None or len(line) <= width else f"{line[: width - 1]}…"
        say([typer.style(cut, fg=_COLOURS.get(line[:1])) if colours else cut])


def summary(result: Result) -> dict[str, list[str]]:
    """Return the totals, the assumptions and the missing parts of a run: sentences by their label."""
    history, verdicts = result.history, result.verdicts
    lines = ", ".join(f"{count(history.lines[source], source.value + ' line')}" for source in Source)
    if history.waited_seconds >= 1:
        lines += f"; waited {age(history.waited_seconds)} to spare Loki"
    nodes = count(len({outage.node for outage in verdicts.outages}), "node")
    out_ns = sum((outage.end_ns or history.read_upto_ns) - outage.start_ns for outage in verdicts.outages)
    hours = out_ns / 3.6e12
    tainted = f"{nodes}, {count(len(verdicts.outages), 'outage')}, {hours:.1f} node hours"
    if peak := verdicts.peak:
        share = f"{peak.out} of {verdicts.gpu_nodes} ({verdicts.share(peak.out):.1%})"
        tainted += f"; most at once {share} at {stamp_of_ns(peak.at_ns)}"
    return {
        "History": [
            f"{stamp_of_ns(history.asked.start_ns)} to {stamp_of_ns(history.read_upto_ns)}; {lines}",
        ],
        "Tainted": [tainted],
        "Held back": [count(len({span.node for span in verdicts.held}), "node")],
        "Assumed": assumptions(result),
        "Missing": missing(result),
    }


def assumptions(result: Result) -> list[str]:
    """Return sentences about what the backtest assumes because a history does not contain it."""
    after = result.release_after_seconds
    back = (
        "nobody releases a node"
        if after is None
        else f"a node is released {age(after)} after its taint, or later because of its earlier outages"
    )
    proven = "and all others whose kernel log shows a GPU"
    nodes = {
        "cluster": f"the fleet is the cluster's nodes of today, with today's labels, {proven}",
        "file": f"the fleet is the nodes in the file, {proven}",
        "lines": "the fleet is the nodes that the lines name; the brake counts each from its first line on",
    }[result.nodes_from]
    counted = "no GPU was missing: Loki does not have the GPU counts of the past (rule node.gpus_missing)"
    polled = f"each line arrived at its timestamp, and polls are {age(result.poll_seconds)} apart"
    sentences = [back, nodes, polled, counted]
    if result.history.without_boot:
        sentences.append(
            f"{count(result.history.without_boot, 'fault')} without a boot id: the backtest treats them as "
            "one boot, and a line with an earlier stamp counts as printed again"
        )
    return sentences


def missing(result: Result) -> list[str]:
    """Return sentences about missing parts of the history."""
    history, sentences = result.history, []
    if history.oldest_ns is None:
        sentences.append(
            "Loki has no line with a fault's words in this time; check the retention and the selector, "
            "unless the fleet was healthy"
        )
    elif history.oldest_ns - history.asked.start_ns > _DAY_NS:
        sentences.append(
            f"the oldest line found is of {stamp_of_ns(history.oldest_ns)}; either Loki kept no older lines "
            "(retention_period, max_query_lookback), or there were none"
        )
    if history.read_upto_ns < history.asked.end_ns:
        sentences.append(f"lines after {stamp_of_ns(history.read_upto_ns)} were not read: {result.ended_by}")
    if history.incomplete:
        sentences.append(
            f"{count(history.incomplete, 'nanosecond')} with more lines than Loki returns in one answer"
        )
    return sentences


def tables(result: Result) -> Iterator[str]:
    """Yield the tables: outages, held nodes, and what rules in shadow mode would change."""
    verdicts = result.verdicts
    if verdicts.outages:
        rows = [_outage_row(outage, result) for outage in verdicts.outages]
        yield from ("", "Outages:", *columns(HEADERS, rows))
    if verdicts.held:
        held = [
            (*_when(span, result), fault_name(span.incident.key.rule), span.why.value)
            for span in verdicts.held
        ]
        yield from ("", "Held back:", *columns(HELD_HEADERS, held))
    if result.shadow is not None:
        yield from _shadow(result.shadow, result)


def _shadow(change: Difference, result: Result) -> Iterator[str]:
    yield from ("", "Changes if the rules in shadow mode were enforced:")
    added = f"{len(change.added)} more {'outage' if len(change.added) == 1 else 'outages'}"
    yield f"{added}, {len(change.gone)} fewer, {change.same} unchanged."
    rows = [
        (sign, *_outage_row(outage, result))
        for sign, outages in (("+", change.added), ("-", change.gone))
        for outage in outages
    ]
    if rows:
        yield from columns(("", *HEADERS), rows)


def _outage_row(one: Outage, result: Result) -> tuple[str, ...]:
    incident = one.incident
    return (
        *_when(one, result),
        fault_name(incident.key.rule),
        incident.key.gpu or "",
        incident.escalated_because,
        incident.evidence,
    )


def _when(one: Outage | HeldSpan, result: Result) -> tuple[str, str, str]:
    lasted = age(((one.end_ns or result.history.read_upto_ns) - one.start_ns) / SECOND_NS)
    return one.node, stamp_of_ns(one.start_ns) or "", lasted if one.end_ns else f"{lasted}+"


def document(result: Result) -> dict[str, Any]:
    """Return the JSON that docs/reference/json.md describes; within ``v1`` fields are only ever added."""
    history = result.history
    return {
        "apiVersion": API_VERSION,
        "kind": "Backtest",
        "from": stamp_of_ns(history.asked.start_ns),
        "to": stamp_of_ns(history.asked.end_ns),
        "readUpTo": stamp_of_ns(history.read_upto_ns),
        "complete": not result.ended_by,
        "assumed": {
            "releaseAfterSeconds": result.release_after_seconds,
            "nodes": result.nodes_from,
            "pollSeconds": result.poll_seconds,
            "sentences": assumptions(result),
        },
        "history": {
            "lines": {source.value: history.lines[source] for source in Source},
            "oldestLine": stamp_of_ns(history.oldest_ns),
            "newestLine": stamp_of_ns(history.newest_ns),
            "keptLines": 0,  # of the cache of an earlier version
            **fields_of(history, "queries", "bytes_processed"),
            "waitedSeconds": round(history.waited_seconds),
            "missing": missing(result),
        },
        "verdicts": _verdicts_document(result.verdicts, result),
        "shadow": _difference_document(result.shadow, result),
        "compared": None,
        "difference": None,
    }


def _verdicts_document(verdicts: Verdicts, result: Result) -> dict[str, Any]:
    peak = verdicts.peak
    return {
        **fields_of(verdicts, "rules", "faults", "gpu_nodes"),
        "peak": peak
        and {"at": stamp_of_ns(peak.at_ns), "out": peak.out, "share": round(verdicts.share(peak.out), 4)},
        "outages": [_outage_document(outage, result) for outage in verdicts.outages],
        "held": [{**_span_document(span, result), "why": span.why.value} for span in verdicts.held],
    }


def _difference_document(change: Difference | None, result: Result) -> dict[str, Any] | None:
    if change is None:
        return None
    return {
        "added": [_outage_document(outage, result) for outage in change.added],
        "gone": [_outage_document(outage, result) for outage in change.gone],
        "same": change.same,
    }


def _outage_document(outage: Outage, result: Result) -> dict[str, Any]:
    return {
        **_span_document(outage, result),
        "severity": outage.incident.severity.value,
        "escalatedBecause": outage.incident.escalated_because or None,
        **fields_of(outage.incident, "job", "failure_group", "title", "evidence"),
        "keptOutBecause": outage.why_longer or None,
    }


def _span_document(span: Outage | HeldSpan, result: Result) -> dict[str, Any]:
    end_ns = span.end_ns or result.history.read_upto_ns
    return {
        "node": span.node,
        "from": stamp_of_ns(span.start_ns),
        "to": stamp_of_ns(span.end_ns),
        "seconds": round((end_ns - span.start_ns) / SECOND_NS),
        "rule": span.incident.key.rule,
        "gpu": span.incident.key.gpu,
    }
