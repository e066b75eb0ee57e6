"""A backtest's result as JSON (schema ``konductor-like/v1``, docs/backtest.md). Pure."""

from __future__ import annotations

from typing import Any

from konductor_like.backtest.values import Difference, HeldBack, Outage, Result, Silence, Verdicts
from konductor_like.cli.backtest_view import assumptions, missing
from konductor_like.cli.columns import moment, stamp
from konductor_like.cli.output import API_VERSION
from konductor_like.model import Source

LISTED_MOST = 100
"""Silent nodes; of more only the number is told."""


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
            "silence": result.silence and _silence(result.silence),
            "missing": missing(result),
        },
        "verdicts": _verdicts(result.verdicts, result),
        "shadow": _difference_document(result.shadow, result),
        "compared": None if result.compared is None else _verdicts(result.compared, result),
        "difference": _difference_document(result.difference, result),
    }


def _silence(found: Silence) -> dict[str, Any]:
    return {
        "everySeconds": round(found.every_seconds),
        "heardNodes": found.heard,
        "silentNodes": len(found.silent),
        "longest": [
            {"node": name, "seconds": round(seconds)} for name, seconds in found.silent[:LISTED_MOST]
        ],
        "nobodySeconds": round(found.nobody_seconds),
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
