"""A fault described for people: an entry of the catalogue with the words that belong to it.

The words are in ``explanations.toml``: by rule where one code has words of its own, else by range or family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from konductor_like.catalog.catalog import Catalog
from konductor_like.catalog.entries import Entry, SxidEntry, XidEntry
from konductor_like.catalog.load import read_toml
from konductor_like.model import FaultKind

_RANGE = re.compile(r"(\w+)\.(\d+)-(\d+)")


class Blame(StrEnum):
    """Whose fault it usually is."""

    APPLICATION = "application"
    DRIVER = "driver"
    """The vendor's software: driver, firmware, libraries."""
    HARDWARE = "hardware"
    FABRIC = "fabric"
    """NVLink, NVSwitch or the network between nodes."""
    OTHER_EVENT = "other event"
    """Something else is behind it: another fault, or a test."""


@dataclass(frozen=True, slots=True)
class Words:
    """The file's words about some rules; ``look_for`` are rules, or families such as ``ib.*``.

    ``link`` and ``vendor`` are empty where what holds for the family or class holds for them.
    """

    text: str
    blame: Blame | None
    look_for: tuple[str, ...] = ()
    link: str = ""
    vendor: str = ""


_NO_WORDS = Words("", None)
"""The words on a rule of the user's own: none."""


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The whole file: ``rules`` by rule (``xid.79``) or family (``aer.*``), ``tables`` by name and word."""

    rules: Mapping[str, Words]
    tables: Mapping[str, Mapping[str, str]]

    def find(self, rule: str) -> Words:
        """The narrowest words that speak for a rule."""
        family = rule.partition(".")[0]
        return self.rules.get(rule) or self.rules.get(f"{family}.*") or _NO_WORDS


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is known about one rule; what is not known is empty.

    ``vendor_now`` and ``vendor_later`` are what the vendor says to do, in our words; ``details`` says how a
    line's own text changes the severity; ``look_for`` are (rule, title), the title empty for a family.
    """

    entry: Entry
    in_catalog: bool
    """False for a code that no table knows."""
    only_scan: bool
    """No log that the controller reads has such lines."""
    text: str
    blame: Blame | None
    vendor_now: str
    vendor_later: str
    details: str
    look_for: tuple[tuple[str, str], ...]
    link: str


def explain(catalog: Catalog, rule: str) -> Explanation | None:
    """Explain a rule (``xid.79``, ``cuda.719``, ``nccl.socket``), as this catalogue has it.

    A code of an Xid or SXid that no table knows is explained as such; None for any other unknown rule.
    """
    entry = catalog.entry_or_unknown(rule)
    if entry is None:
        return None
    family = rule.partition(".")[0]
    if family == "fm":  # an SXid that Fabric Manager repeats keeps its name
        entry = replace(entry, rule=rule, kind=FaultKind.FM)
    descriptions = load_descriptions()
    words, tables = descriptions.find(rule), descriptions.tables
    now = later = ""
    if isinstance(entry, XidEntry):
        now, later = (
            tables["vendor_now"].get(entry.bucket, ""),
            tables["vendor_later"].get(entry.investigate, ""),
        )
    elif isinstance(entry, SxidEntry):
        now = tables["vendor_switch"].get(entry.guide or entry.group, "")
    titles = {name: catalog.entry(name) for name in words.look_for if name != rule}
    return Explanation(
        entry,
        in_catalog=catalog.entry(rule) is not None,
        only_scan=_only_scan(catalog, rule),
        text=words.text,
        blame=words.blame,
        vendor_now=words.vendor or now,
        vendor_later=later,
        details=_details(tables["details"], entry),
        look_for=tuple((name, other.title if other else "") for name, other in titles.items()),
        link=entry.link or words.link or tables["links"].get(family, ""),
    )


def _only_scan(catalog: Catalog, rule: str) -> bool:
    """Whether ``scan`` alone finds it. The table's code ``fm.20034`` is found by a rule of its family."""
    family = rule.partition(".")[0]
    return any(
        each.scan_only and (each.id == rule or (bool(each.table) and each.id.startswith(f"{family}.")))
        for each in (*catalog.kernel_rules, *catalog.pod_rules)
    )


def _details(table: Mapping[str, str], entry: Entry) -> str:
    """How a line's own text changes the severity; empty where it does not."""
    if not entry.line_decides:
        return ""
    if isinstance(entry, XidEntry) and entry.detail is not None:
        return table.get(entry.detail.value, "")
    return table.get("word", "") if entry.severity.taints else ""


@cache
def load_descriptions() -> Descriptions:
    """The package's own words, read once. Their form is held by tests."""
    return descriptions_of(read_toml(files("konductor_like.catalog") / "data", "explanations.toml"))


def descriptions_of(document: Mapping[str, Any]) -> Descriptions:
    """The words of the file. A range (``xid.1-7``) is spelt out, the widest first: the narrowest stay."""
    rules: dict[str, Words] = {}
    found = [(_codes(name), entry) for entry in document["explain"] for name in entry["rules"]]
    for names, entry in sorted(found, key=lambda each: -len(each[0])):
        words = Words(
            entry["text"],
            Blame(entry["blame"]),
            tuple(entry.get("look_for", ())),
            entry.get("link", ""),
            entry.get("vendor", ""),
        )
        rules |= dict.fromkeys(names, words)
    return Descriptions(rules, {name: table for name, table in document.items() if name != "explain"})


def _codes(name: str) -> list[str]:
    """``xid.1-3`` is ``xid.1``, ``xid.2`` and ``xid.3``; any other name is itself."""
    span = _RANGE.fullmatch(name)
    return [f"{span[1]}.{code}" for code in range(int(span[2]), int(span[3]) + 1)] if span else [name]
