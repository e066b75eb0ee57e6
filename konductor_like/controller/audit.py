"""The audit trail: every write and every refusal to act as one line of the log, always of the same fields.

``docs/audit.md`` describes the fields. What joins a line with the record on the node and with its Event is
``act``, the name of the write.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.model import Change, Fault, Incident, IncidentKey, SkippedTaint, SkipReason

SCHEMA = "v1"
FIELDS = (
    *(
        "audit",
        "act",
        "node",
        "by",
        "verb",
        "outcome",
        "rule",
        "gpu",
        "code",
        "severity",
        "count",
        "escalated_because",
    ),
    *("failure_group", "rules", "evidence", "why"),
)
REMEMBERED = 10_000
"""Refusals that are known to have been said; beyond that the oldest are forgotten, and may be said again."""
ENDED = timedelta(minutes=10)
"""A refusal that was not repeated for so long has ended; when it comes again, it is said again."""


class Audit:
    """Writes the trail, and remembers which refusals it holds already."""

    def __init__(self, metrics: Metrics, *, dry_run: bool = False) -> None:
        self._metrics = metrics
        self._applied = "dry-run" if dry_run else "applied"
        self._said: dict[tuple[str, IncidentKey, SkipReason], datetime] = {}
        """What was said, and when it was last repeated; the oldest first."""

    def written(self, change: Change, outcome: str, why: str = "") -> None:
        """One write and what became of it: ``applied``, ``failed``, ``gone``, ``conflict``, ``under way``."""
        act = None if change.record is None else change.record.act
        incident = _incident(change)
        key = incident.key if incident else None
        other = "counts" if change.counts_only else "bookkeeping"
        cause = other if change.event is None else change.event.value
        facts = _facts(change.node, key, incident) | {
            "act": change.act_id or None,
            "verb": change.verb.value,
            "outcome": self._applied if outcome == "applied" else outcome,
            "rules": (act.rules if act else "") or None,
            "why": why or cause,
        }
        _say(facts, quietly=outcome == "conflict")  # which is decided again at once

    def refused(self, refused: Iterable[SkippedTaint], rules: str, now: datetime) -> None:
        """Nodes that were not tainted, each said once for as long as it stays so."""
        for item in refused:
            said = (item.node, item.key, item.why)
            before = self._said.pop(said, None)
            self._said[said] = now  # what is repeated moves to the end
            if before is not None and now - before <= ENDED:
                continue
            why = f"{item.why.value}: {item.detail}" if item.detail else item.why.value
            facts = _facts(item.node, item.key, item.about)
            _say(facts | {"verb": "taint", "outcome": "refused", "rules": rules or None, "why": why})
            self._metrics.refusals.labels(item.why.value).inc()
        while self._said:
            oldest = next(iter(self._said))
            if now - self._said[oldest] <= ENDED and len(self._said) <= REMEMBERED:
                return
            del self._said[oldest]


def heeded(verb: str, *, by: str | None, act: str, why: str) -> None:
    """What a person wrote on the Lease is acted upon from now on: ``pause``, ``resume``, ``brake-reset``.

    ``by`` is None for a pause that ended by itself.
    """
    facts = _facts(None, None, None) | {"act": act or None, "verb": verb, "outcome": "heeded"}
    _say(facts | {"by": by, "why": why or None})


def _facts(node: str | None, key: IncidentKey | None, about: Incident | Fault | None) -> dict[str, Any]:
    """Every field of the schema; what is not known is None."""
    facts: dict[str, Any] = dict.fromkeys(FIELDS)
    facts |= {"audit": SCHEMA, "node": node, "rule": key and key.rule, "gpu": key and key.gpu}
    if about is None:
        return facts
    facts["severity"] = about.severity.value
    if isinstance(about, Fault):
        finding = about.finding
        return facts | {"code": finding.code, "count": 1, "evidence": finding.text}
    return facts | {
        "code": about.code,
        "count": about.count,
        "escalated_because": about.escalated_because or None,
        "failure_group": about.failure_group,
        "evidence": about.evidence,
    }


def _incident(change: Change) -> Incident | None:
    """What the write is about: what it taints for, else the newest that opened, else what has grown."""
    if change.incident is not None or change.record is None:
        return change.incident
    keys = [fault.key for fault in change.news] or [grown.latest.key for grown in change.grown]
    return change.record.incident(keys[-1]) if keys else None


def _say(facts: dict[str, Any], *, quietly: bool = False) -> None:
    of_node = f" of node {facts['node']}" if facts["node"] else ""
    message = f"audit: {facts['verb']}{of_node} {facts['outcome']}"
    (logs.debug if quietly else logs.info)(message, **facts)
