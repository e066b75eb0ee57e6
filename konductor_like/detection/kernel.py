"""Faults in a kernel log: the driver's own words, at the start of the record."""

from __future__ import annotations

import re
from collections.abc import Callable

from konductor_like.catalog import Catalog, PatternRule
from konductor_like.detection.finding import kernel_finding, mode_applier, normal_pci
from konductor_like.detection.kernel_record import KernelRecord, open_record
from konductor_like.detection.xid import read_sxid, read_xid
from konductor_like.model import Finding, Source


def kernel_finder(catalog: Catalog) -> Callable[[str], Finding | None]:
    """Gives the function that finds a fault in a line of a kernel log. It raises nothing."""
    anchors = catalog.scan_anchors(Source.KERNEL)
    tried = tuple(
        (literal, _anchors_of(rule, anchors), rule)
        for rule in catalog.rules(Source.KERNEL)
        for literal in rule.contains
    )
    apply_mode = mode_applier(catalog)

    def find(text: str) -> Finding | None:
        if not _any_in(anchors, text):
            return None
        record = None
        for literal, needed, rule in tried:
            if literal not in text:
                continue
            if record is None:
                record = open_record(text)
                if record is None:
                    return None
            match = rule.find(record.message)
            if match is not None and _any_in(needed, text):
                return apply_mode(_finding(catalog, rule, record, match), rule)
        return None

    return find


def _any_in(words: tuple[str, ...], text: str) -> bool:
    for word in words:  # noqa: SIM110  a generator takes three times as long
        if word in text:
            return True
    return False


def _anchors_of(rule: PatternRule, anchors: tuple[str, ...]) -> tuple[str, ...]:
    """The anchors that may find the rule's lines: one is in the line as it came, or Loki does not send it."""
    words = (*rule.anchors, *rule.contains)
    return tuple(anchor for anchor in anchors if any(anchor in word for word in words))


def _finding(catalog: Catalog, rule: PatternRule, record: KernelRecord, match: re.Match[str]) -> Finding:
    if rule.table == "xid":
        return read_xid(catalog, record, match)
    if rule.entry is None:
        return read_sxid(catalog, record, match)
    return kernel_finding(record, rule.entry, gpu=normal_pci(match.groupdict().get("gpu")))
