"""The audit trail: each write and each refusal to taint is one line of the log, always with the same fields.

``docs/use/audit-trail.md`` describes the fields. The field ``act`` names the write; the record and the Event
have the same ``act``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from konductor_like.controller import logs
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.model import Change, Fault, Incident, IncidentKey, SkippedTaint, SkipReason

SCHEMA = "v1"
FIELDS = (
    *("audit", "act", "node", "by", "verb", "outcome", "rule", "gpu", "code", "severity", "count"),
    *("escalated_because", "failure_group", "rules", "evidence", "why", "needs"),
)
REMEMBERED = 10_000
"""Refusals remembered as logged. Beyond that the oldest are forgotten, and may be logged again."""
ENDED = timedelta(minutes=10)
"""Time without repetition after which a refusal has ended; after that it is logged again."""


class Audit:
    """Writes the audit trail, and remembers which refusals are in it."""

    def __init__(self, metrics: Metrics, *, dry_run: bool = False) -> None:
        self._metrics = metrics
        self._applied = "dry-run" if dry_run else "applied"
        self._logged: dict[tuple[str, IncidentKey, SkipReason], datetime] = {}
        """Each logged refusal, and when it last occurred; the oldest first."""

    def written(self, change: Change, outcome: str, why: str = "") -> None:
        """Log one write and its outcome: ``applied``, ``failed``, ``gone``, ``conflict`` or ``under way``."""
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
            "needs": change.needs,
        }
        _log(facts, quietly=outcome == "conflict")  # after a conflict the node is decided again at once

    def refused(self, refused: Iterable[SkippedTaint], rules: str, now: datetime) -> None:
        """Log the nodes that were not tainted, each once while the refusal lasts."""
        for item in refused:
            refusal = (item.node, item.key, item.why)
            before = self._logged.pop(refusal, None)
            self._logged[refusal] = now  # a repeated refusal moves to the end
            if before is not None and now - before <= ENDED:
                continue
            why = f"{item.why.value}: {item.detail}" if item.detail else item.why.value
            facts = _facts(item.node, item.key, item.about)
            _log(facts | {"verb": "taint", "outcome": "refused", "rules": rules or None, "why": why})
            self._metrics.refusals.labels(item.why.value).inc()
        while self._logged:
            oldest = next(iter(self._logged))
            if now - self._logged[oldest] <= ENDED and len(self._logged) <= REMEMBERED:
                return
            del self._logged[oldest]


def control_applied(verb: str, *, by: str | None, act: str, why: str) -> None:
    """Log that the controller applied an operator control: ``pause``, ``resume`` or ``brake-reset``.

    ``by`` names the person; it is None for a pause that expired.
    """
    facts = _facts(None, None, None) | {"act": act or None, "verb": verb, "outcome": "applied"}
    _log(facts | {"by": by, "why": why or None})


def _facts(node: str | None, key: IncidentKey | None, about: Incident | Fault | None) -> dict[str, Any]:
    """Return every field of the schema; an unknown one is None."""
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
    """Return the incident that the write taints for, else the newest that opened, else one that has grown."""
    if change.incident is not None or change.record is None:
        return change.incident
    keys = [fault.key for fault in change.news] or [grown.latest.key for grown in change.grown]
    return change.record.incident(keys[-1]) if keys else None


def _log(facts: dict[str, Any], *, quietly: bool = False) -> None:
    of_node = f" of node {facts['node']}" if facts["node"] else ""
    message = f"audit: {facts['verb']}{of_node} {facts['outcome']}"
    (logs.debug if quietly else logs.info)(message, **facts)
