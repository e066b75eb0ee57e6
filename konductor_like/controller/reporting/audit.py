"""The audit trail: writes, refusals to taint, and acts of people as lines of the log with the same fields.

``docs/use/audit-trail.md`` describes the fields. The field ``act`` names the write; the record and the Event
have the same ``act``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from konductor_like.controller import logs
from konductor_like.controller.reporting.metrics import HOWS, Metrics
from konductor_like.model import (
    Change,
    EventReason,
    Fault,
    Incident,
    IncidentKey,
    NodeRecord,
    NodeState,
    Quarantine,
    Release,
    ReleaseHow,
    SkippedTaint,
    SkipReason,
    TaintedNode,
    Verb,
)
from konductor_like.model.time import text_of
from konductor_like.policy.node.lifecycle import time_out_ended
from konductor_like.policy.operator import PersonsAct

SCHEMA = "v1"
FIELDS = (
    *("audit", "act", "node", "by", "verb", "outcome", "rule", "gpu", "code", "severity", "count"),
    *("escalated_because", "failure_group", "rules", "evidence", "why", "needs", "at", "reason"),
    *("out_since", "how", "model", "driver", "rack", "gpus", "uuid", "serial"),
)
DELETE = "delete"
"""The verb of the line about a Node that somebody deleted with our taint."""
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
        """Log one write and its outcome: ``applied``, ``failed``, ``gone``, ``conflict`` or ``under way``.

        If somebody removed the taint by hand and the write taints again, the end has a line of its own.
        """
        act, state = None if change.record is None else change.record.act, change.read
        incident = _incident(change)
        other = "counts" if change.counts_only else "bookkeeping"
        cause = other if change.event is None else change.event.value
        facts = _facts(change.node, incident.key if incident else None, incident) | {
            "act": change.act_id or None,
            "verb": change.verb.value,
            "outcome": self._applied if outcome == "applied" else outcome,
            "rules": (act.rules if act else "") or None,
            "why": why or cause,
            "needs": change.needs,
        }
        if state is not None and change.record is not None and act is not None and outcome == "applied":
            facts |= _of_node(state, change.record)
            before, claimed = state.record.life, change.record.life.claimed
            if claimed and not before.claimed and state.tainted:
                facts |= {"by": state.last_writer}  # somebody put our taint on the Node by other means
            ended = time_out_ended(state.record, change.record, act.at)
            mark = change.record.release_at(ended.released_at) if ended else None
            if ended is not None and mark is not None:  # else the record was of another machine
                key = IncidentKey(ended.rule, ended.gpu)
                about = _facts(change.node, key, _newest(change.record, key))
                told = ("act", "verb", "outcome", "rules", "why", "needs", "rack", "gpus")
                end = about | {name: facts[name] for name in told} | _of_end(ended, mark)
                if change.verb is Verb.TAINT:
                    _log(end | {"verb": Verb.RECORD.value, "why": EventReason.RELEASED.value})
                else:
                    facts = end
                self._measure(ended)
        _log(facts, quietly=outcome == "conflict")  # after a conflict the node is decided again at once

    def done_by_person(self, state: NodeState, act: PersonsAct, act_id: str | None, *, is_new: bool) -> None:
        """Log what a person did to a node. ``is_new``: no earlier controller can have measured it."""
        facts = _facts(state.name, act.incident.key if act.incident else None, act.incident) | {
            "act": act_id,
            "by": act.by,
            "verb": act.verb.value,
            "outcome": "applied",
            "why": act.why or None,
            "at": text_of(act.at),
            "reason": act.reason or None,
        }
        facts |= _of_node(state, state.record)
        since = state.record.life.tainted_at
        if not is_new and since is not None and act.at < since:
            facts["out_since"] = None  # an act of before this time out, told once more
        if act.verb is Verb.UNTAINT and act.how is not None:
            facts["how"] = act.how.value
        if act.ended is not None:
            facts |= _of_end(act.ended)
            if is_new:
                self._measure(act.ended)
        _log(facts)

    def deleted(self, gone: TaintedNode, at: datetime) -> None:
        """Log that somebody deleted a Node with our taint; ``reason`` has its faults in words."""
        facts = _facts(gone.name, None, None) | {"verb": DELETE, "outcome": self._applied}
        ended = Quarantine(gone.tainted_at, at, "", ReleaseHow.DELETED)
        _log(facts | _of_end(ended) | {"needs": gone.needs or None, "reason": gone.why or None})
        self._measure(ended)

    def _measure(self, ended: Quarantine) -> None:
        seconds = (ended.released_at - ended.tainted_at).total_seconds()
        how = ended.how if ended.how in HOWS else "other"
        self._metrics.out_of_service.labels(how).observe(max(0.0, seconds))

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
        "uuid": about.uuid or None,
        "serial": about.serial or None,
        "evidence": about.evidence,
    }


def _of_node(state: NodeState, record: NodeRecord) -> dict[str, Any]:
    """Return what the Node's labels say, and since when it is out of service; ``record`` is the new one."""
    life, hardware = record.life, state.hardware
    return {
        "out_since": text_of(life.tainted_at) if life.tainted_at else None,
        "model": (life.model if life.claimed else hardware.model) or None,
        "driver": (life.driver if life.claimed else hardware.driver) or None,
        "rack": hardware.rack or None,
        "gpus": record.gpus,
    }


def _of_end(ended: Quarantine, mark: Release | None = None) -> dict[str, Any]:
    """Return the end of a time out of service; ``mark`` is the release that ended it, if a record has it."""
    facts = {
        "out_since": text_of(ended.tainted_at),
        "at": text_of(ended.released_at),
        "how": ended.how.value or None,
        "model": ended.model or None,
        "driver": ended.driver or None,
    }
    if ended.rule:
        facts |= {"rule": ended.rule, "gpu": ended.gpu}
    if mark is not None:
        facts |= {"by": None if mark.how.by_controller else mark.by, "reason": mark.reason or None}
    return facts


def _incident(change: Change) -> Incident | None:
    """Return the incident that the write taints for, else the newest that opened, else one that has grown."""
    if change.incident is not None or change.record is None:
        return change.incident
    keys = [fault.key for fault in change.news] or [grown.latest.key for grown in change.grown]
    return _newest(change.record, keys[-1]) if keys else None


def _newest(record: NodeRecord, key: IncidentKey) -> Incident | None:
    """Return the incident of the key with the latest line: after a reboot, a key may have several."""
    found = (each for each in record.incidents if each.key == key)
    return max(found, key=lambda each: each.last_ns, default=None)


def _log(facts: dict[str, Any], *, quietly: bool = False) -> None:
    of_node = f" of node {facts['node']}" if facts["node"] else ""
    message = f"audit: {facts['verb']}{of_node} {facts['outcome']}"
    (logs.debug if quietly else logs.info)(message, **facts)
