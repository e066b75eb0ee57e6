"""Faults in a kernel log: the driver's own words, at the start of the record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from konductor_like.catalog import Catalog, PatternRule
from konductor_like.detection.clean import normal_pci
from konductor_like.detection.finding import kernel_finding
from konductor_like.detection.glance import first_look
from konductor_like.detection.record import BEFORE_MESSAGE, TO_BE_OPENED, KernelRecord, open_record
from konductor_like.detection.ruled import as_ruled, ruled_entries
from konductor_like.detection.sxid import read_sxid
from konductor_like.detection.xid import read_xid
from konductor_like.model import Finding, Source


def kernel_finder(catalog: Catalog) -> Callable[[str], Finding | None]:
    """What finds a fault in a line of a kernel log by the catalogue's rules. It raises nothing."""
    rules = catalog.rules(Source.KERNEL)
    may_report = first_look(rules, BEFORE_MESSAGE, TO_BE_OPENED)
    anchors = catalog.scan_anchors(Source.KERNEL)
    tried = tuple((literal, _anchors_of(rule, anchors), rule) for rule in rules for literal in rule.contains)
    literals = tuple(dict.fromkeys(literal for literal, _, _ in tried))
    ruled = ruled_entries(catalog)

    def find(text: str) -> Finding | None:
        if text.isascii() and not may_report(text):
            return None
        # Most of the rest is the driver's talk around a fault: passed over before the costly part.
        if not (_any_in(anchors, text) and _any_in(literals, text)):
            return None
        record = open_record(text)
        return None if record is None else judge(record, text)

    def judge(record: KernelRecord, text: str) -> Finding | None:
        message = record.message
        for literal, needed, rule in tried:
            if literal in message:
                match = rule.find(message)
                if match is not None and _any_in(needed, text):
                    return as_ruled(_finding(catalog, rule, record, match), rule, ruled)
        return None

    return find


def _any_in(words: tuple[str, ...], text: str) -> bool:
    for word in words:  # noqa: SIM110  a generator takes three times as long
        if word in text:
            return True
    return False


def _anchors_of(rule: PatternRule, anchors: Iterable[str]) -> tuple[str, ...]:
    """The anchors that may find the rule's lines: one is in the line as it came, or Loki does not send it."""
    words = (*rule.anchors, *rule.contains)
    return tuple(anchor for anchor in anchors if any(anchor in word for word in words))


def _finding(catalog: Catalog, rule: PatternRule, record: KernelRecord, match: re.Match[str]) -> Finding:
    if rule.table == "xid":
        return read_xid(catalog, record, match)
    if rule.entry is None:
        return read_sxid(catalog, record, match)
    return kernel_finding(record, rule.entry, gpu=normal_pci(match.groupdict().get("gpu")))
