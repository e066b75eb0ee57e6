"""Fault names as people type them: ``xid 79``, ``Xid-79``, ``xid.79``, ``79``, ``nvrm fallen off bus``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from konductor_like.catalog.catalog import CODE, Catalog

_LONGEST = 80
"""Characters of the longest text that is read as a name."""
_NEW_XID_MOST = 999
"""The highest number that names an Xid by itself even if it is in no table; SXids have five digits."""
_NUMBER = re.compile(r"(?:(xid|sxid|cuda|fm)(?:-|[\s.:#_]*))?(\d{1,9})", re.ASCII)
_MENTION = re.compile(r"\b(xid|sxid|cuda)(?:-|[\s.:#_]*)(\d{1,5})\b", re.ASCII)
_SEPARATORS = re.compile(r"[\s._:-]+", re.ASCII)


class FaultName(NamedTuple):
    """The rule that a text names, such as ``xid.79``; without one, the rules whose code the text mentions."""

    rule: str | None
    suggestions: tuple[str, ...] = ()


def parse_fault_name(text: str, catalog: Catalog) -> FaultName:
    """Return the rule that the text names.

    A number alone is an Xid, or the SXid if only an SXid has this number. An Xid or SXid that is in no table
    is a rule, too.
    """
    written = text.strip().lower()
    if len(written) > _LONGEST:
        return FaultName(None)
    if number := _NUMBER.fullmatch(written):
        return _of_number(number[1], int(number[2]), catalog)
    names = {_words(name.lower()): name for name in _names(catalog)}
    if (rule := names.get(_words(written))) is not None:
        return FaultName(rule)
    mentioned = [_of_number(family, int(code), catalog).rule for family, code in _MENTION.findall(written)]
    return FaultName(None, tuple(_words(rule) for rule in mentioned if rule is not None))


def _of_number(family: str | None, code: int, catalog: Catalog) -> FaultName:
    if family == "cuda":
        return FaultName(f"cuda.{code}" if catalog.entry(f"cuda.{code}") else None)
    if not CODE.fullmatch(str(code)):
        return FaultName(None)
    if family is None and catalog.entry(f"cuda.{code}") and code not in catalog.xids:
        return FaultName(None, (f"cuda {code}",))
    if family is None and code not in catalog.xids and code not in catalog.sxids and code > _NEW_XID_MOST:
        return FaultName(None, (f"xid {code}", f"sxid {code}"))
    if family is None:
        family = "sxid" if code in catalog.sxids and code not in catalog.xids else "xid"
    return FaultName(f"{family}.{code}")


def _names(catalog: Catalog) -> Iterator[str]:
    """Yield the names of all rules except the numbers of Xids and SXids."""
    yield from (rule.id for rule in catalog.pattern_rules)
    yield from (rule.entry.rule for rule in catalog.pattern_rules if rule.entry is not None)
    yield from (entry.rule for entry in catalog.named_entries.values())


def _words(name: str) -> str:
    return _SEPARATORS.sub(" ", name)
