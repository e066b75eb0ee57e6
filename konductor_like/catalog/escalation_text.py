"""Thresholds, corroboration and deferral, as a rules file writes them: one text per field, read strictly."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from konductor_like.catalog.entries import Advice
from konductor_like.catalog.rules_file import Record, quoted
from konductor_like.model import Distinct, Escalation, Same, Threshold, Together
from konductor_like.model.escalation import DEFER_SECONDS_MOST

FIELDS = ("threshold", "together_with", "defer_seconds", "escalated_advice")
COUNT_LEAST, COUNT_MOST = 2, 16
"""Occurrences that a threshold may ask for; more than 16 are not remembered one by one."""
SPAN_SECONDS_MOST = 86_400
"""Seconds that a rule may look back; when the controller starts, Loki is read again over this span."""
_UNITS = {"s": 1, "m": 60, "h": 3600}
_SPAN = r"(?P<number>[1-9][0-9]{0,4})(?P<unit>[smh])"
_THRESHOLD = re.compile(
    rf"(?P<count>[1-9][0-9]?) in {_SPAN} on one (?P<same>gpu|node)(?: from distinct (?P<distinct>jobs|pods))?"
)
_RULE = r"(?:[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*\.(?:[a-z0-9_]+|\*)|(?:condition|alert)\.[A-Za-z0-9]+)"
_TOGETHER = re.compile(rf"(?P<rules>{_RULE}(?:, {_RULE}){{0,15}}) within {_SPAN} on one (?P<same>gpu|node)")
_SECONDS = re.compile(r"[0-9]{1,2}(?:\.[0-9])?")


def read_escalation(record: Record, read_advice: Callable[[str], Advice]) -> Escalation:
    """Return the escalation in a rule's own fields. Raises CatalogError."""
    escalation = Escalation()
    for field in FIELDS:
        if record.optional_text(field):
            escalation = with_field(escalation, field, record, field, read_advice)
    return escalation


def with_field(
    escalation: Escalation, field: str, record: Record, key: str, read_advice: Callable[[str], Advice]
) -> Escalation:
    """Return the escalation with one of ``FIELDS``, read from ``record`` under ``key``. Raises CatalogError.

    ``read_advice`` reads the advice under a key.
    """
    text = record.text(key)
    off = text in ("none", "off", "false")  # YAML reads a bare ``off`` as false
    match field:
        case "threshold":
            return replace(escalation, threshold=None if off else _threshold(record, key, text))
        case "together_with":
            return replace(escalation, together_with=None if off else _together(record, key, text))
        case "defer_seconds":
            return replace(escalation, defer_seconds=0.0 if off else _deferral(record, key, text))
        case _:
            advice = read_advice(key)
            return replace(escalation, advice=advice.text, needs=advice.needs.value)


def texts_of(escalation: Escalation) -> Mapping[str, str]:
    """Return the fields as a rules file writes them, without the advice; unset fields are missing."""
    defer = f"{escalation.defer_seconds:g}" if escalation.defer_seconds else None
    values = (escalation.threshold, escalation.together_with, defer)
    return {field: str(value) for field, value in zip(FIELDS, values, strict=False) if value is not None}


def _threshold(record: Record, key: str, text: str) -> Threshold:
    match = _THRESHOLD.fullmatch(text)
    if match is None:
        raise record.error(key, f"{quoted(text)} must be like: 3 in 24h on one gpu from distinct jobs")
    count = int(match["count"])
    if not COUNT_LEAST <= count <= COUNT_MOST:
        raise record.error(key, f"counts {count}; it must be {COUNT_LEAST} to {COUNT_MOST}")
    distinct = Distinct(match["distinct"]) if match["distinct"] else None
    return Threshold(count, _seconds(record, key, match), Same(match["same"]), distinct)


def _together(record: Record, key: str, text: str) -> Together:
    match = _TOGETHER.fullmatch(text)
    if match is None:
        raise record.error(key, f"{quoted(text)} must be like: xid.64 within 24h on one gpu")
    return Together(tuple(match["rules"].split(", ")), _seconds(record, key, match), Same(match["same"]))


def _deferral(record: Record, key: str, text: str) -> float:
    seconds = float(text) if _SECONDS.fullmatch(text) else -1.0
    if not 0 <= seconds <= DEFER_SECONDS_MOST:
        raise record.error(key, f"{quoted(text)} must be seconds, 0 to {DEFER_SECONDS_MOST:g}")
    return seconds


def _seconds(record: Record, key: str, match: re.Match[str]) -> int:
    seconds = int(match["number"]) * _UNITS[match["unit"]]
    if seconds > SPAN_SECONDS_MOST:
        raise record.error(key, "looks back more than 24h")
    return seconds
