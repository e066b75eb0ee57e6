"""Faults in a kernel log: the driver's own words, at the start of the record."""

from __future__ import annotations

import re
from collections.abc import Callable

from konductor_like.catalog import Catalog, PatternRule
from konductor_like.detection.clean import normal_pci
from konductor_like.detection.finding import kernel_finding
from konductor_like.detection.record import KernelRecord, open_record
from konductor_like.detection.ruled import as_ruled, ruled_entries
from konductor_like.detection.sxid import read_sxid
from konductor_like.detection.xid import read_xid
from konductor_like.model import Finding, Source


def kernel_finder(catalog: Catalog) -> Callable[[str], Finding | None]:
    """What finds a fault in a line of a kernel log by the catalogue's rules. It raises nothing."""
    anchors = catalog.scan_anchors(Source.KERNEL)
    rules = tuple((literal, rule) for rule in catalog.rules(Source.KERNEL) for literal in rule.contains)
    literals = tuple(dict.fromkeys(literal for literal, _ in rules))
    ruled = ruled_entries(catalog)

    def find(text: str) -> Finding | None:
        for anchor in anchors:
            if anchor in text:
                break
        else:
            return None
        # Most lines with an anchor are the driver's talk around a fault: passed over before the costly part.
        for literal in literals:
            if literal in text:
                break
        else:
            return None
        record = open_record(text)
        return None if record is None else judge(record)

    def judge(record: KernelRecord) -> Finding | None:
        message = record.message
        for literal, rule in rules:
            if literal in message:
                match = rule.find(message)
                if match is not None:
                    return as_ruled(_finding(catalog, rule, record, match), rule, ruled)
        return None

    return find


def _finding(catalog: Catalog, rule: PatternRule, record: KernelRecord, match: re.Match[str]) -> Finding:
    if rule.table == "xid":
        return read_xid(catalog, record, match)
    if rule.entry is None:
        return read_sxid(catalog, record, match)
    return kernel_finding(record, rule.entry, gpu=normal_pci(match.groupdict().get("gpu")))
