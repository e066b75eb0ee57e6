"""The numbers behind NVLink Xids: the registers of Xid 74, and INTRINFO and ERRORSTATUS of Xid 144 to 150."""

from __future__ import annotations

import re

from konductor_like.catalog import Catalog, LinkRule, XidEntry
from konductor_like.detection.finding import Verdict
from konductor_like.model import Severity

_REGISTERS = re.compile(r"link -?\d{1,3} ?\((0x[0-9A-Fa-f]{1,8}(?:, ?0x[0-9A-Fa-f]{1,8}){6})\)", re.ASCII)
# Behind the last comma: the name of a process, in front, may hold any words and commas of its own.
_WORD = re.compile(r"(?:.*,)?\W*([A-Z][A-Z0-9_/]{1,64})\s+(Fatal|Non-?fatal)(?:\s|$)", re.ASCII)
_STATUS = re.compile(r"\(0x([0-9A-Fa-f]{8})(?:\s|$)(?:\s*0x([0-9A-Fa-f]{8})(?:[\s)]|$))?", re.ASCII)
# Link has two digits, so that one at the very end is the half of it. -1 stands for no link.
_LINK = re.compile(r"\b(?:Link +(\d{2,3}|\d(?=\D))|link +(\d{1,3}))", re.ASCII)
_LINK_EVENT = "NETIR_LINK_EVT"
_ELSEWHERE = ("INVESTIGATE_PEER_DEVICE", "SYMPATHETIC_REPORT_SOLO")
"""What NVIDIA's table says to look into where the link went down because of the other end."""


def read_link(detail: str, start: int = 0) -> int | None:
    """The first NVLink or switch port that a text names."""
    match = _LINK.search(detail, start)
    return None if match is None else int(match[1] or match[2])


def read_registers(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict:
    """Xid 74: less than fatal where every bit that is set is known to be harmless alone."""
    port = read_link(detail)
    as_listed = Verdict(entry.severity, entry.title, entry.advice, port=port)
    match = _REGISTERS.search(detail)
    if match is None:
        return as_listed
    meanings = [
        catalog.register_bits.get((register, bit))
        for register, value in enumerate(int(text, 16) for text in match[1].split(","))
        for bit in range(value.bit_length())
        if value >> bit & 1
    ]
    known = [meaning for meaning in meanings if meaning is not None]
    if not known or len(known) < len(meanings) or any(meaning.severity.taints for meaning in known):
        return as_listed
    title = f"{entry.title}: {known[0].meaning}"
    return Verdict(Severity.SUSPECT, title, catalog.advice["nvlink_harmless"], port=port)


def read_nvlink5(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """Xid 144 to 150: by the decode table; by the driver's word where the line is cut or no row fits.

    The word may disagree with the table, and then the table is right. A line with neither says nothing.
    """
    word = _WORD.match(detail)
    numbers = _STATUS.search(detail)
    rule = None if numbers is None else _row(catalog.link_rules.get(entry.code or 0, ()), numbers)
    if rule is not None:
        severity, title = rule.severity, f"{entry.title}: {_name(rule)}"
    elif word is not None:
        severity, title = (Severity.FATAL if word[2] == "Fatal" else Severity.SUSPECT), entry.title
    else:
        return None
    advice = catalog.advice["nvlink" if severity.taints else "nvlink5_watch"]
    remote = rule is not None and rule.investigate in _ELSEWHERE
    return Verdict(severity, title, advice, _sub_code(word, numbers), read_link(detail), remote)


def _row(rules: tuple[LinkRule, ...], numbers: re.Match[str]) -> LinkRule | None:
    """The row that fits. Where the status is cut off, any row will do if all that fit agree."""
    intrinfo = int(numbers[1], 16)
    if numbers[2] is not None:
        status = int(numbers[2], 16)
        return next((rule for rule in rules if rule.status == status and rule.fits(intrinfo)), None)
    fitting = [rule for rule in rules if rule.fits(intrinfo)]
    return fitting[0] if len({rule.severity for rule in fitting}) == 1 else None


def _sub_code(word: re.Match[str] | None, numbers: re.Match[str] | None) -> str | None:
    """``RLW_REMAP``, or ``NETIR_LINK_EVT.38`` with the reason why the link went down."""
    if word is None:
        return None
    if numbers is None or not word[1].startswith(_LINK_EVENT):
        return word[1]
    return f"{word[1]}.{_reason(int(numbers[1], 16))}"


def _reason(intrinfo: int) -> int:
    return intrinfo >> 20 & 0x3F


def _name(rule: LinkRule) -> str:
    unit = rule.unit.rpartition("/")[2]
    reason = _reason(rule.values[0])
    return f"{unit}, reason {reason}" if reason else unit
