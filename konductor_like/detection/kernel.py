"""Faults in a kernel log: the driver's own words, at the start of the record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from konductor_like.catalog import Catalog, PatternRule
from konductor_like.catalog.heads import heads_of
from konductor_like.detection.clean import normal_pci
from konductor_like.detection.finding import kernel_finding
from konductor_like.detection.record import KernelRecord, open_record
from konductor_like.detection.ruled import as_ruled, ruled_entries
from konductor_like.detection.sxid import read_sxid
from konductor_like.detection.xid import read_xid
from konductor_like.model import Finding, Source


@dataclass(frozen=True, slots=True)
class _Group:
    """The rules whose lines an anchor may find, each with its literals, in the order in which they decide.

    ``heads``: every line that one of them fits begins with one of these.
    """

    rules: tuple[tuple[str, PatternRule], ...]
    literals: tuple[str, ...]
    heads: tuple[str, ...]


def kernel_finder(catalog: Catalog) -> Callable[[str], Finding | None]:  # noqa: C901  two short loops a line
    """What finds a fault in a line of a kernel log by the catalogue's rules. It raises nothing."""
    anchors = catalog.scan_anchors(Source.KERNEL)
    bits = tuple((anchor, 1 << bit) for bit, anchor in enumerate(anchors))
    group_of = _groups(catalog.rules(Source.KERNEL), bits)
    ruled = ruled_entries(catalog)

    def find(text: str) -> Finding | None:
        for anchor in anchors:
            if anchor in text:
                break
        else:
            return None
        found = 0
        for anchor, bit in bits:
            if anchor in text:
                found |= bit
        group = group_of(found)
        # Most lines with an anchor are the driver's talk around a fault: passed over before the costly part.
        for literal in group.literals:
            if literal in text:
                break
        else:
            return None
        record = open_record(text)
        return None if record is None else judge(record, group)

    def judge(record: KernelRecord, group: _Group) -> Finding | None:
        message = record.message
        if message.startswith(group.heads):
            for literal, rule in group.rules:
                if literal in message:
                    match = rule.find(message)
                    if match is not None:
                        return as_ruled(_finding(catalog, rule, record, match), rule, ruled)
        return None

    return find


def _groups(rules: tuple[PatternRule, ...], anchors: Iterable[tuple[str, int]]) -> Callable[[int], _Group]:
    """What gives the rules for a line that has the anchors of these bits."""

    @cache
    def group_of(found: int) -> _Group:
        there = [anchor for anchor, bit in anchors if bit & found]
        return _group(rule for rule in rules if any(_found_by(anchor, rule) for anchor in there))

    return group_of


def _found_by(anchor: str, rule: PatternRule) -> bool:
    return any(anchor in literal for literal in (*rule.anchors, *rule.contains))


def _group(rules: Iterable[PatternRule]) -> _Group:
    pairs = tuple((literal, rule) for rule in rules for literal in rule.contains)
    heads = [heads_of(pattern.pattern) for _, rule in pairs for pattern in rule.patterns]
    told = [head for head in heads if head is not None]
    known = len(told) == len(heads)
    return _Group(
        pairs,
        tuple(dict.fromkeys(literal for literal, _ in pairs)),
        tuple(frozenset().union(*told)) if known else ("",),
    )


def _finding(catalog: Catalog, rule: PatternRule, record: KernelRecord, match: re.Match[str]) -> Finding:
    if rule.table == "xid":
        return read_xid(catalog, record, match)
    if rule.entry is None:
        return read_sxid(catalog, record, match)
    return kernel_finding(record, rule.entry, gpu=normal_pci(match.groupdict().get("gpu")))
