"""The audit trail as values: one line of the controller's log is one :class:`TrailLine`, or none.

Any pod can print a line that looks like one of the trail. So only lines of the controller's own namespace are
read (:func:`trail_query`), and a line whose fields have not the documented types is no line of the trail.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from konductor_like.loki.query.logql import log_query
from konductor_like.loki.query.response import Entry
from konductor_like.model import EventReason
from konductor_like.model.text import clipped, printable
from konductor_like.model.time import moment_of, moment_of_text
from konductor_like.selectors import Matcher, parse_matchers

ANCHOR = '"audit": "v1"'
"""What Loki looks for in each line. The controller's log writes JSON with a blank behind each colon."""
DELETE = "delete"
"""The verb of the line about a Node that was deleted with the taint."""
SILENT = ("counts", "bookkeeping", "conflict")
"""Reasons of lines that tell nothing of a node."""
ACKNOWLEDGED = "GPUFaultAcknowledged"
"""What an earlier version wrote of a person who had seen a fault."""
WORDS: Mapping[str, str] = {
    EventReason.RECORDED: "fault recorded",
    EventReason.READ_LATE: "fatal line read after a release, not tainted",
    EventReason.RELEASED: "fault released",
    EventReason.WORSENED: "needs more than before",
    EventReason.RELAPSED: "failed again on probation, tainted",
    EventReason.REBOOTED: "rebooted",
    EventReason.ENDED: "fault ended",
    EventReason.HELD: "held back",
    ACKNOWLEDGED: "acknowledged",
    EventReason.REMOVED: "taint removed without a release",
    EventReason.PUT_BACK: "taint put back",
    EventReason.CONTESTED: "taint removed again and again, so it stays off",
    EventReason.VALIDATING: "validation of the GPUs begins",
    EventReason.VALIDATED: "validation of the GPUs passed",
    EventReason.NOT_VALIDATED: "validation of the GPUs failed, or its result is unknown",
}
"""Words on a line, by its ``why``, if that is the reason of an Event."""
_TEXT_CHARS = 500
"""Characters that are kept of a text: a person's reason may have this many."""


@dataclass(frozen=True, slots=True)
class TrailLine:
    """One line of the audit trail. ``docs/use/audit-trail.md`` describes the fields."""

    logged_at: datetime
    """The time of the line in Loki."""
    verb: str
    outcome: str
    node: str | None = None
    by: str | None = None
    rule: str | None = None
    gpu: str | None = None
    uuid: str | None = None
    serial: str | None = None
    severity: str | None = None
    failure_group: str | None = None
    evidence: str | None = None
    why: str | None = None
    needs: str | None = None
    reason: str | None = None
    how: str | None = None
    model: str | None = None
    driver: str | None = None
    rack: str | None = None
    gpus: int | None = None
    at: datetime | None = None
    out_since: datetime | None = None
    is_older: bool = False
    """Whether a controller of an earlier build wrote it: it names no time out of service."""

    @property
    def applied(self) -> bool:
        """Whether the line tells what was done; else a write failed, was refused or is under way."""
        return self.outcome == "applied"

    @property
    def happened_at(self) -> datetime:
        """When it happened, as far as the line says it."""
        return self.at or self.logged_at


_TIMES = ("at", "out_since")
_OTHERS = ("logged_at", "gpus", "is_older")
_TEXTS = tuple(each.name for each in fields(TrailLine) if each.name not in (*_TIMES, *_OTHERS))


def trail_query(namespace_label: str, namespace: str, extra_matchers: str) -> str:
    """Return the query for the trail of the controller in this namespace."""
    return log_query((Matcher(namespace_label, "=", namespace), *parse_matchers(extra_matchers)), (ANCHOR,))


def parse(entry: Entry) -> TrailLine | None:
    """Return the line of the trail; None for any other line."""
    try:
        found = json.loads(entry.text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("audit") != "v1":
        return None
    texts = {name: _text(found, name) for name in _TEXTS}
    if texts["verb"] is None or texts["outcome"] is None:
        return None
    gpus = found.get("gpus")
    is_count = isinstance(gpus, int) and not isinstance(gpus, bool) and 0 < gpus <= 1000
    known: dict[str, Any] = {**texts, **{name: _time(found, name) for name in _TIMES}}
    return TrailLine(
        moment_of(entry.timestamp_ns),
        gpus=gpus if is_count else None,
        is_older="out_since" not in found,
        **known,
    )


def _text(found: Mapping[str, Any], name: str) -> str | None:
    value = found.get(name)
    return clipped(printable(value), _TEXT_CHARS) if isinstance(value, str) and value else None


def _time(found: Mapping[str, Any], name: str) -> datetime | None:
    value = found.get(name)
    try:
        return moment_of_text(value) if isinstance(value, str) else None
    except ValueError:
        return None
