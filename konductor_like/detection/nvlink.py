"""The numbers behind NVLink Xids: the registers of Xid 74, and INTRINFO and ERRORSTATUS of Xid 144 to 150."""

from __future__ import annotations

import re

from konductor_like.catalog import Catalog, LinkRule, XidEntry
from konductor_like.detection.finding import Verdict
from konductor_like.model import Severity

_REGISTERS = re.compile(r"link -?\d{1,3} ?\((0x[0-9A-Fa-f]{1,8}(?:, ?0x[0-9A-Fa-f]{1,8}){6})\)", re.ASCII)
_WORD = re.compile(r"\W*[A-Z][A-Z0-9_/]{1,64}\s+(Fatal|Non-?fatal)(?:\s|$)", re.ASCII)
_STATUS = re.compile(r"\(0x([0-9A-Fa-f]{8})(?:\s|$)(?:\s*0x([0-9A-Fa-f]{8})(?:[\s)]|$))?", re.ASCII)


def read_registers(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """Xid 74: less than fatal where every bit that is set is known to be harmless alone."""
    match = _REGISTERS.search(detail)
    if match is None:
        return None
    meanings = [
        catalog.register_bits.get((register, bit))
        for register, value in enumerate(int(text, 16) for text in match[1].split(","))
        for bit in range(value.bit_length())
        if value >> bit & 1
    ]
    known = [meaning for meaning in meanings if meaning is not None]
    if not known or len(known) < len(meanings) or any(meaning.severity.taints for meaning in known):
        return None
    title = f"{entry.title}: {known[0].meaning}"
    return Verdict(Severity.SUSPECT, title, catalog.advice["nvlink_harmless"])


def read_nvlink5(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """Xid 144 to 150: by the decode table; by the driver's word where the line is cut or no row fits.

    The word may disagree with the table, and then the table is right. A line with neither says nothing.
    """
    numbers = _STATUS.search(detail)
    if numbers is not None:
        rule = _row(catalog.link_rules.get(entry.code or 0, ()), numbers)
        if rule is not None:
            return _verdict(catalog, rule.severity, f"{entry.title}: {_name(rule)}")
    word = _WORD.match(detail)
    if word is None:
        return None
    severity = Severity.FATAL if word[1] == "Fatal" else Severity.SUSPECT
    return _verdict(catalog, severity, entry.title)


def _row(rules: tuple[LinkRule, ...], numbers: re.Match[str]) -> LinkRule | None:
    """The row that fits. Where the status is cut off, any row will do if all that fit agree."""
    fitting = [rule for rule in rules if rule.fits(int(numbers[1], 16))]
    if numbers[2] is not None:
        status = int(numbers[2], 16)
        return next((rule for rule in fitting if rule.status == status), None)
    return fitting[0] if len({rule.severity for rule in fitting}) == 1 else None


def _verdict(catalog: Catalog, severity: Severity, title: str) -> Verdict:
    return Verdict(severity, title, catalog.advice["nvlink" if severity.taints else "nvlink5_watch"])


def _name(rule: LinkRule) -> str:
    """``RLW_REMAP``, or ``NETIR_LINK_DOWN, reason 37``: bits 25 to 20 say why a link went down."""
    unit = rule.unit.rpartition("/")[2]
    reason = rule.values[0] >> 20 & 0x3F
    return f"{unit}, reason {reason}" if reason else unit
