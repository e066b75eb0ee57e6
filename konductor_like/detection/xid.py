"""Reading Xid and SXid lines: which GPU, which process, and what the text behind the code changes.

An SXid is an error of an NVSwitch, told by the driver or repeated by Fabric Manager. One event prints up to
three lines: text, ``Severity …`` and ``Data {…}``. All three make the same finding (rule and switch), so that
they are one incident. A ``Data`` line of a code for which the word Fatal decides has no such word, and is
never more than suspect by itself; ``multiline`` gives it the word of its first line.

NVLink Xids have numbers behind them: the registers of Xid 74, and INTRINFO and ERRORSTATUS of Xid 144 to 150.
"""

from __future__ import annotations

import re
from dataclasses import replace

from konductor_like.catalog import Catalog, Detail, LinkRule, SxidEntry, XidEntry
from konductor_like.detection.finding import Verdict, kernel_finding, normal_pci
from konductor_like.detection.kernel_record import KernelRecord
from konductor_like.model import FaultKind, Finding, Severity

NO_RECOVERY_ACTION = 0
# The words changed between driver branches; the number is what counts. What follows it proves it complete.
_RECOVERY_TARGET = re.compile(
    r"changed from .{1,80}? to 0x([0-9A-Fa-f]{1,8}) ?\((?:([^()]{1,40})\))?", re.ASCII
)
# The last of several counts, behind the driver's own word: a process, named in front, may be called anything.
_RESET_NOW = re.compile(r".*ontained\b.*[^-\w]RST: (?:(Yes)|No)\b", re.ASCII | re.DOTALL)
_RESET_AFTER_DRAIN = re.compile(r".*ontained\b.*\bD-RST: (?:(Yes)|No)\b", re.ASCII | re.DOTALL)
_CAUSE = re.compile(r"\bcaused by previous Xid (\d{1,5})\b", re.ASCII)
_MIG = re.compile(r" GPU-I:(\d{1,8})(?: GPU-CI:(\d{1,8}))?", re.ASCII)
_REGISTERS = re.compile(r"link -?\d{1,3} ?\((0x[0-9A-Fa-f]{1,8}(?:, ?0x[0-9A-Fa-f]{1,8}){6})\)", re.ASCII)
# Behind the last comma: the name of a process, in front, may hold any words and commas of its own.
_WORD = re.compile(r"(?:.*,)?\W*([A-Z][A-Z0-9_/]{1,64})\s+(Fatal|Non-?fatal)(?:\s|$)", re.ASCII)
_STATUS = re.compile(r"\(0x([0-9A-Fa-f]{8})(?:\s|$)(?:\s*0x([0-9A-Fa-f]{8})(?:[\s)]|$))?", re.ASCII)
# Link has two digits, so that one at the very end is the half of it. -1 stands for no link.
_LINK = re.compile(r"\b(?:Link +(\d{2,3}|\d(?=\D))|link +(\d{1,3}))", re.ASCII)
_LINK_EVENT = "NETIR_LINK_EVT"
_ELSEWHERE = ("INVESTIGATE_PEER_DEVICE", "SYMPATHETIC_REPORT_SOLO")
"""Actions of NVIDIA's table for a link that went down because of its other end."""


def read_xid(catalog: Catalog, record: KernelRecord, match: re.Match[str]) -> Finding:
    """The finding that a matched Xid line is."""
    entry = catalog.xid(int(match["code"]))
    verdict = _verdict(catalog, entry, match)
    process = match["process"]
    pid = match["pid"]
    finding = kernel_finding(
        record,
        entry,
        verdict=verdict,
        gpu=normal_pci(match["gpu"]),
        pid=None if pid is None else int(pid),
        process=None if process is None or process.startswith(("<", "'<")) else process.strip(),
        mig=_mig_instance(match) if " GPU-I:" in match.string else None,
    )
    if verdict is not None and verdict.over and not finding.severity.taints:
        return finding._replace(clears=entry.rule)
    return finding if entry.clears is None else finding._replace(clears=f"xid.{entry.clears}")


def _mig_instance(match: re.Match[str]) -> str | None:
    """``5/1``: GPU instance 5, compute instance 1, as ``nvidia-smi`` numbers them."""
    found = _MIG.search(match.string, match.end("gpu"), match.start("code"))
    return found and "/".join(str(int(part)) for part in found.groups() if part)


def _verdict(catalog: Catalog, entry: XidEntry, match: re.Match[str]) -> Verdict | None:
    detail = match["detail"]
    if match.end("code") == len(match.string) and entry.severity.taints:
        if entry.code is not None and catalog.may_continue(entry.code):
            return Verdict(Severity.SUSPECT, f"{entry.title} (or another Xid, cut)", entry.advice)
    elif entry.detail is Detail.RECOVERY_ACTION:
        return _recovery_action(catalog, detail)
    elif entry.detail is Detail.CONTAINMENT:
        return _containment(catalog, entry, detail)
    elif entry.detail is Detail.NVLINK_REGISTERS:
        return read_registers(catalog, entry, detail)
    elif entry.detail is Detail.NVLINK5:
        return read_nvlink5(catalog, entry, detail)
    elif "caused by" in detail:
        return _consequence(catalog, entry, detail)
    return None


def _recovery_action(catalog: Catalog, detail: str) -> Verdict | None:
    target = _RECOVERY_TARGET.search(detail)
    action = catalog.recovery_actions.get(int(target[1], 16)) if target else None
    if action is None or target is None:
        return None
    over = action.code == NO_RECOVERY_ACTION
    return Verdict(action.severity, action.title, action.advice, sub_code=target[2], over=over)


def _consequence(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """An Xid that names the one before it as its cause is no new fault: what the cause is, decides.

    It never taints by itself, since its cause has a line of its own.
    """
    cause = _CAUSE.search(detail)
    if cause is None or entry.severity.taints:
        return None
    severity = catalog.xid(int(cause[1])).severity
    if severity not in (Severity.APPLICATION, Severity.INFO):
        severity = Severity.SUSPECT
    title = f"{entry.title} (caused by Xid {int(cause[1])})"
    return Verdict(severity, title, catalog.advice["root_cause"])


def _containment(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """Xid 94 and 95: a reset wanted now is fatal whatever the code; one after a drain is not."""
    now, after_drain = _RESET_NOW.match(detail), _RESET_AFTER_DRAIN.match(detail)
    if now is not None and now[1]:
        return Verdict(Severity.FATAL, entry.title, catalog.advice["memory_error"])
    if not entry.severity.taints and after_drain is not None and after_drain[1]:
        return Verdict(entry.severity, entry.title, catalog.advice["contained_drain"])
    return None


def read_sxid(catalog: Catalog, record: KernelRecord, match: re.Match[str]) -> Finding:
    """The finding that a matched SXid line is; its address is the switch's."""
    entry = catalog.sxid(int(match["code"]))
    if "severity" not in match.re.groupindex:
        return _repeated(catalog, entry, record, match)
    fatal = match["word"] == "Fatal" or match["severity"] == "1"
    verdict = sxid_verdict(catalog, entry, fatal=fatal, port=read_link(match.string, match.end("code")))
    return kernel_finding(record, entry, verdict=verdict, gpu=normal_pci(match["gpu"]))


def sxid_verdict(catalog: Catalog, entry: SxidEntry, *, fatal: bool, port: int | None) -> Verdict:
    """The meaning of an SXid that is, or is not, called fatal."""
    if entry.word_decides and entry.severity.taints and not fatal:
        return Verdict(Severity.SUSPECT, entry.title, catalog.advice["switch_watch"], port=port)
    return Verdict(entry.severity, entry.title, entry.advice, port=port)


def _repeated(catalog: Catalog, entry: SxidEntry, record: KernelRecord, match: re.Match[str]) -> Finding:
    """Fabric Manager's line about an SXid: ``fm.20034``, which means what the SXid means."""
    port = None if match["port"] is None else int(match["port"])
    verdict = sxid_verdict(catalog, entry, fatal=match["word"] == "fatal", port=port)
    told = replace(entry, rule=f"fm.{entry.code}", kind=FaultKind.FM)
    return kernel_finding(record, told, verdict=verdict, gpu=normal_pci(match["gpu"]))


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
