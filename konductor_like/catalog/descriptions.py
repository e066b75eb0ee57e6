"""A fault described for people: an entry of the catalogue with the words that belong to it.

The words are in ``explanations.toml``: by rule where a code has a story of its own, else by range or family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from konductor_like.catalog.catalog import Catalog
from konductor_like.catalog.entries import Entry, SxidEntry, XidEntry
from konductor_like.catalog.load import read_toml
from konductor_like.catalog.rules_file import CatalogError, Record
from konductor_like.model import FaultKind

_FILE = "explanations.toml"
_TABLES = ("links", "vendor_now", "vendor_later", "vendor_switch", "details")
_SPAN = re.compile(r"(\d+)-(\d+)")


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
    look_for: tuple[str, ...]
    link: str
    vendor: str


_NO_WORDS = Words("", None, (), "", "")
"""The words on a rule of the user's own: none."""


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The whole file: ``ranges`` by family, first and last code; ``tables`` by name and the vendor's word."""

    rules: Mapping[str, Words]
    ranges: Mapping[tuple[str, int, int], Words]
    families: Mapping[str, Words]
    tables: Mapping[str, Mapping[str, str]]

    def find(self, rule: str) -> Words:
        """The narrowest words that speak for a rule."""
        family, _, name = rule.partition(".")
        code = int(name) if name.isdecimal() else -1
        spans = [span for span in self.ranges if span[0] == family and span[1] <= code <= span[2]]
        if rule in self.rules or not spans:
            return self.rules.get(rule) or self.families.get(family, _NO_WORDS)
        return self.ranges[min(spans, key=lambda span: span[2] - span[1])]


@dataclass(frozen=True, slots=True)
class Explanation:
    """All there is to say about one rule; what is not known is empty.

    ``vendor_now`` and ``vendor_later`` are what the vendor says to do, in our words; ``details`` says how a
    line's own text changes the severity; ``look_for`` are (rule, title), the title empty for a family.
    """

    entry: Entry
    in_catalog: bool
    """False for a code that no table knows."""
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
    if rule.startswith("fm."):  # an SXid that Fabric Manager repeats keeps its name
        entry = replace(entry, rule=rule, kind=FaultKind.FM)
    descriptions = load_descriptions()
    words = descriptions.find(rule)
    now, later = _vendor(descriptions, entry)
    family_link = descriptions.tables["links"].get(rule.partition(".")[0], "")
    titles = {name: catalog.entry(name) for name in words.look_for if name != rule}
    return Explanation(
        entry,
        catalog.entry(rule) is not None,
        words.text,
        words.blame,
        words.vendor or now,
        later,
        _details(descriptions, entry),
        tuple((name, other.title if other else "") for name, other in titles.items()),
        entry.link or words.link or family_link,
    )


@cache
def load_descriptions() -> Descriptions:
    """The package's own words, read once. Raises CatalogError where the file is broken."""
    return read_descriptions(files("konductor_like.catalog") / "data")


def read_descriptions(folder: Traversable) -> Descriptions:
    """The words in ``folder``. Raises CatalogError with entry and field."""
    document = read_toml(folder, _FILE)
    tables = {name: document.pop(name, {}) for name in _TABLES}
    rules: dict[str, Words] = {}
    ranges: dict[tuple[str, int, int], Words] = {}
    families: dict[str, Words] = {}
    for record, name, words in _entries(document.pop("explain", [])):
        family, _, which = name.partition(".")
        span = _SPAN.fullmatch(which)
        if which == "*":
            kept = families.setdefault(family, words)
        elif span:
            kept = ranges.setdefault((family, int(span[1]), int(span[2])), words)
        else:
            kept = rules.setdefault(name, words)
        if kept is not words:
            raise record.error("rules", f"{name} stands there twice")
    if document:
        raise CatalogError(_FILE, "the file", next(iter(document)), "is not a known table")
    return Descriptions(rules, ranges, families, tables)


def _entries(members: list[dict[str, object]]) -> Iterator[tuple[Record, str, Words]]:
    for number, fields in enumerate(members, 1):
        record = Record(_FILE, f"explain {number}", fields)
        record.only(frozenset({"rules", "text", "blame", "look_for", "link", "vendor"}))
        words = Words(
            record.text("text"),
            record.one_of("blame", Blame),
            record.optional_texts("look_for"),
            record.optional_text("link"),
            record.optional_text("vendor"),
        )
        for name in record.texts("rules"):
            yield record, name, words


def _vendor(descriptions: Descriptions, entry: Entry) -> tuple[str, str]:
    if isinstance(entry, XidEntry):
        now, later = descriptions.tables["vendor_now"], descriptions.tables["vendor_later"]
        return now.get(entry.bucket, entry.bucket), later.get(entry.investigate, entry.investigate)
    if isinstance(entry, SxidEntry):
        group = entry.guide or entry.group
        return descriptions.tables["vendor_switch"].get(group, group), ""
    return "", ""


def _details(descriptions: Descriptions, entry: Entry) -> str:
    if not entry.line_decides:
        return ""
    table = descriptions.tables["details"]
    if isinstance(entry, XidEntry) and entry.detail is not None:
        return table.get(entry.detail.value, "")
    return table.get("word", "") if entry.severity.taints else ""
