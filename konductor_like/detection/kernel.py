"""Faults in a kernel log: the driver's own words, at the start of the record."""

from __future__ import annotations

from konductor_like.catalog import load_catalog
from konductor_like.detection.anchors import KERNEL_ANCHORS
from konductor_like.detection.clean import normal_pci
from konductor_like.detection.finding import kernel_finding
from konductor_like.detection.record import KernelRecord, open_record
from konductor_like.detection.sxid import read_sxid
from konductor_like.detection.xid import read_xid
from konductor_like.model import Finding

_CATALOG = load_catalog()
_RULES = tuple((literal, rule) for rule in _CATALOG.kernel_rules for literal in rule.contains)
_LITERALS = tuple(dict.fromkeys(literal for literal, _ in _RULES))


def find_in_kernel_log(text: str) -> Finding | None:
    """What a line of a kernel log says, if it is a fault."""
    for anchor in KERNEL_ANCHORS:
        if anchor in text:
            break
    else:
        return None
    # Most lines with an anchor are the driver's talk around a fault: pass them over before the costly part.
    for literal in _LITERALS:
        if literal in text:
            break
    else:
        return None
    record = open_record(text)
    return None if record is None else _judge(record)


def _judge(record: KernelRecord) -> Finding | None:
    message = record.message
    for literal, rule in _RULES:
        if literal not in message:
            continue
        match = rule.find(message)
        if match is None:
            continue
        if rule.table == "xid":
            return read_xid(_CATALOG, record, match)
        if rule.table == "sxid":
            return read_sxid(_CATALOG, record, match)
        if rule.entry is not None:
            return kernel_finding(record, rule.entry, gpu=normal_pci(match.groupdict().get("gpu")))
    return None
