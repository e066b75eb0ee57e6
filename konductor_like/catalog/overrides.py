"""One field of one built-in rule at a time: ``xid.94.severity: fatal``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from konductor_like.catalog.catalog import Catalog
from konductor_like.catalog.entries import Advice, Entry, Mode, Needs, SxidEntry, XidEntry
from konductor_like.catalog.errors import quoted
from konductor_like.catalog.escalations import ADVICE_FIELD, with_advice, with_field
from konductor_like.catalog.escalations import FIELDS as ESCALATION_FIELDS
from konductor_like.catalog.patterns import PatternRule, read_mode
from konductor_like.catalog.rulefile import Override
from konductor_like.catalog.tables import Record
from konductor_like.model import NO_ESCALATION, Escalation, Severity

T = TypeVar("T", bound=Entry)
_CODE = re.compile(r"[1-9][0-9]{0,4}")
FIELDS = ("severity", "mode", "title", "advice", *ESCALATION_FIELDS, ADVICE_FIELD)
TITLE_CHARS_MOST = 80
ADVICE_CHARS_MOST = 120
"""Both have to fit into the record on the node."""


@dataclass(frozen=True, slots=True)
class Change:
    """A checked override: the new value of an entry's field."""

    rule: str
    field: str
    value: Severity | Mode | str | Advice | Escalation


def checked(override: Override, file: str, catalog: Catalog) -> Change:
    """What an override says. Raises CatalogError at its line where it says nothing that can be done."""
    key = f"{override.rule}.{override.field}"
    record = Record(file, "overrides", {key: override.value}, override.line)
    if override.field not in FIELDS:
        raise record.error(key, f"only {', '.join(FIELDS)} can be overridden")
    kind = _what_is(override.rule, catalog)
    if kind is None:
        raise record.error(key, f"there is no built-in rule {quoted(override.rule)}")
    if kind == "table" and override.field != "mode":
        raise record.error(key, "its table says that for each code; only mode can be set here")
    value: Severity | Mode | str | Advice | Escalation
    match override.field:
        case "severity":
            value = record.one_of(key, Severity)
        case "mode":
            value = read_mode(record, key)
        case "title":
            value = read_title(record, key)
        case "threshold" | "together_with" | "settle_seconds":
            value = with_field(NO_ESCALATION, override.field, record, key)
        case "escalated_advice":
            value = with_advice(NO_ESCALATION, read_advice(record, catalog.advice, key))
        case _:
            value = read_advice(record, catalog.advice, key)
    return Change(override.rule, override.field, value)


def apply(change: Change, catalog: Catalog, origin: str) -> Catalog:
    """The catalogue with that one change."""
    if isinstance(change.value, Escalation):
        return _escalated(change, change.value, catalog)
    family, _, code = change.rule.partition(".")
    if family == "xid" and code:
        entry = catalog.xid(int(code))
        return replace(catalog, xids={**catalog.xids, int(code): _changed(entry, change, origin)})
    if family == "sxid" and code:
        switch = catalog.sxid(int(code))
        return replace(catalog, sxids={**catalog.sxids, int(code): _changed(switch, change, origin)})
    return replace(
        catalog,
        kernel_rules=tuple(_changed_rule(rule, change, origin) for rule in catalog.kernel_rules),
        pod_rules=tuple(_changed_rule(rule, change, origin) for rule in catalog.pod_rules),
        cuda_errors={
            text: _changed(entry, change, origin) if entry.rule == change.rule else entry
            for text, entry in catalog.cuda_errors.items()
        },
    )


def _escalated(change: Change, value: Escalation, catalog: Catalog) -> Catalog:
    before = catalog.escalations.get(change.rule, NO_ESCALATION)
    if change.field == ADVICE_FIELD:
        after = replace(before, advice=value.advice, needs=value.needs)
    else:
        after = replace(before, **{change.field: getattr(value, change.field)})
    return replace(catalog, escalations={**catalog.escalations, change.rule: after})


def read_title(record: Record, field: str = "title") -> str:
    """A title of a user's own."""
    title = record.text(field)
    if len(title) > TITLE_CHARS_MOST:
        raise record.error(field, f"is longer than {TITLE_CHARS_MOST} characters")
    return _printable(record, field, title)


def read_advice(record: Record, known: Mapping[str, Advice], field: str = "advice") -> Advice:
    """A key of the advice that we have, or a user's own words with what the machine ``needs``."""
    text = record.text(field)
    needs = record.one_of("needs", Needs) if record.optional_text("needs") else None
    if re.fullmatch(r"[a-z0-9_]+", text):
        if text not in known:
            keys = ", ".join(sorted(known))
            raise record.error(field, f"{quoted(text)} is neither a sentence nor one of {keys}")
        return known[text] if needs is None else Advice(known[text].text, needs)
    if len(text) > ADVICE_CHARS_MOST:
        raise record.error(field, f"is longer than {ADVICE_CHARS_MOST} characters")
    return Advice(_printable(record, field, text), needs or Needs.INSPECTION)


def entry_of(catalog: Catalog, rule: str) -> Entry | None:
    """The entry behind a rule; of a code that the catalogue does not list, the one that holds for such."""
    family, _, code = rule.partition(".")
    if family in ("xid", "sxid") and _CODE.fullmatch(code):
        return catalog.xid(int(code)) if family == "xid" else catalog.sxid(int(code))
    return catalog.entry(rule)


def line_decides(entry: Entry) -> bool:
    """Whether what else its line says changes the severity, unless a user's file has set it."""
    if "severity" in entry.fixed:
        return False
    return (isinstance(entry, XidEntry) and entry.detail is not None) or (
        isinstance(entry, SxidEntry) and entry.word_decides
    )


def _printable(record: Record, field: str, text: str) -> str:
    if not text.isprintable():  # it goes into log lines and onto the node
        raise record.error(field, f"{quoted(text)} must be printable, on one line")
    return text


def _what_is(rule: str, catalog: Catalog) -> str | None:
    """``entry`` or ``table``; None where there is no such rule."""
    family, _, code = rule.partition(".")
    if family in ("xid", "sxid") and _CODE.fullmatch(code):
        return "entry"
    for pattern in (*catalog.kernel_rules, *catalog.pod_rules):
        if pattern.id == rule:
            return "entry" if pattern.table is None else "table"
    return "entry" if any(entry.rule == rule for entry in catalog.cuda_errors.values()) else None


def _changed(entry: T, change: Change, origin: str) -> T:
    fixed = entry.fixed if change.field == "mode" else entry.fixed | {change.field}
    values: dict[str, Any] = {change.field: change.value}
    return replace(entry, origin=origin, fixed=fixed, **values)


def _changed_rule(rule: PatternRule, change: Change, origin: str) -> PatternRule:
    if rule.id != change.rule:
        return rule
    entry = rule.entry and _changed(rule.entry, change, origin)
    mode = change.value if isinstance(change.value, Mode) else rule.mode
    return replace(rule, entry=entry, mode=mode)
