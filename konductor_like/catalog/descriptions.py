"""Faults described for people: an entry of the catalogue with the words of ``explanations.toml``.

A code that has words of its own uses them; any other code uses the words of its range or family.
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
    """The usual cause of a fault."""

    APPLICATION = "application"
    DRIVER = "driver"
    """The vendor's software: driver, firmware, libraries."""
    HARDWARE = "hardware"
    FABRIC = "fabric"
    """NVLink, NVSwitch or the network between nodes."""
    OTHER_EVENT = "other event"
    """The fault only follows from something else: another fault, or a test."""


@dataclass(frozen=True, slots=True)
class Words:
    """The file's words about some rules.

    ``look_for`` has rules, or families such as ``ib.*``. ``link`` and ``vendor`` are empty where the table of
    the family or class has them.
    """

    text: str
    blame: Blame | None
    look_for: tuple[str, ...] = ()
    link: str = ""
    vendor: str = ""


_NO_WORDS = Words("", None)
"""For a rule of the user's own, about which the file has nothing."""


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The whole file: ``rules`` by rule (``xid.79``) or family (``aer.*``), ``tables`` by name and key."""

    rules: Mapping[str, Words]
    tables: Mapping[str, Mapping[str, str]]

    def find(self, rule: str) -> Words:
        """Return the words for a rule, or else for its family."""
        family = rule.partition(".")[0]
        return self.rules.get(rule) or self.rules.get(f"{family}.*") or _NO_WORDS


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is known about one rule; a field is empty where nothing is known.

    ``vendor_now`` and ``vendor_later`` are what the vendor advises, in our words. ``details`` describes how a
    line's own text changes the severity. ``look_for`` has pairs of rule and title; a family has no title.
    """

    entry: Entry
    in_catalog: bool
    """False for a code that is in no table."""
    only_scan: bool
    """True where no log that the controller reads has such lines."""
    text: str
    blame: Blame | None
    vendor_now: str
    vendor_later: str
    details: str
    look_for: tuple[tuple[str, str], ...]
    link: str


def explain(catalog: Catalog, rule: str) -> Explanation | None:
    """Explain a rule (``xid.79``, ``cuda.719``, ``nccl.socket``) by this catalogue.

    An Xid or SXid that is in no table is explained as an unknown one; any other unknown rule gives None.
    """
    entry = catalog.entry_or_unknown(rule)
    if entry is None:
        return None
    family = rule.partition(".")[0]
    if family == "fm":  # an SXid that Fabric Manager repeats keeps its rule
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
    """Whether only ``scan`` finds the rule, by its own pattern rule or by the table rule of its family.

    For example, ``fm.20034`` is found by the table rule ``fm.nvswitch_error``.
    """
    family = rule.partition(".")[0]
    return any(
        each.scan_only and (each.id == rule or (bool(each.table) and each.id.startswith(f"{family}.")))
        for each in (*catalog.kernel_rules, *catalog.pod_rules)
    )


def _details(table: Mapping[str, str], entry: Entry) -> str:
    """Describe how a line's own text changes the severity; empty where it does not."""
    if not entry.line_decides:
        return ""
    if isinstance(entry, XidEntry) and entry.detail is not None:
        return table.get(entry.detail.value, "")
    return table.get("word", "") if entry.severity.taints else ""


@cache
def load_descriptions() -> Descriptions:
    """Return the packaged words, read once. Tests check their form."""
    return descriptions_of(read_toml(files("konductor_like.catalog") / "data", "explanations.toml"))


def descriptions_of(document: Mapping[str, Any]) -> Descriptions:
    """Return the file's words by rule. A range (``xid.1-7``) becomes its codes; the narrowest one counts."""
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
    """Return ``xid.1``, ``xid.2`` and ``xid.3`` for ``xid.1-3``, and any other name unchanged."""
    span = _RANGE.fullmatch(name)
    return [f"{span[1]}.{code}" for code in range(int(span[2]), int(span[3]) + 1)] if span else [name]
