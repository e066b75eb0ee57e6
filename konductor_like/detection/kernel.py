"""Faults in a kernel log: the driver's own words, at the start of the record.

Details follow the code of an Xid or SXid: the GPU, the process, and words and numbers that change the meaning
of the code. For example, Xid 74 has the registers of an NVLink, and Xid 144 to 150 have INTRINFO and
ERRORSTATUS.

An SXid is an error of an NVSwitch, printed by the driver or repeated by Fabric Manager. One error prints up
to four lines: text, ``Severity …`` and ``Data {…}`` once or twice. All of them make the same finding (rule
and switch); ``multiline`` drops the lines behind the first. Some codes are fatal only with the word Fatal.
Their ``Data`` line does not have the word, so it alone is suspect at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from konductor_like.catalog import Advice, Catalog, Detail, Entry, LinkRule, Mode, PatternRule, XidEntry
from konductor_like.catalog.patterns import Pattern
from konductor_like.detection.kernel_record import (
    KernelRecord,
    evidence,
    normal_pci,
    open_record,
    origin,
    without_process_name,
)
from konductor_like.detection.wrapper import with_text_message
from konductor_like.model import FaultKind, Finding, Severity, Source

_NO_ACTION = 0
# Driver branches use different words, so the number counts; the bracket behind it proves it complete. Words
# without a number, at the end of the line, count where they are known.
_RECOVERY_TARGET = re.compile(
    r"recovery action changed (?:from .{1,80}? )?to "
    r"(?:0x(?P<number>[0-9A-Fa-f]{1,8}) ?\((?:(?P<named>[^()]{1,40})\))?"
    r"|[\"(]?(?P<words>[A-Za-z][\w ]{1,40})[\").]{0,2}\s*$)",
    re.ASCII,
)
# The last of several counts, behind the driver's own word: the process, named before, may have any name.
_RESET_NOW = re.compile(r".*ontained\b.*[^-\w]RST: (?:(Yes)|No)\b", re.ASCII | re.DOTALL)
_RESET_AFTER_DRAIN = re.compile(r".*ontained\b.*\bD-RST: (?:(Yes)|No)\b", re.ASCII | re.DOTALL)
_CAUSE = re.compile(r"\bcaused by previous Xid (\d{1,5})\b", re.ASCII)
_MIG = re.compile(r" GPU-I:(\d{1,8})(?: GPU-CI:(\d{1,8}))?", re.ASCII)
_REGISTERS = re.compile(r"link -?\d{1,3} ?\((0x[0-9A-Fa-f]{1,8}(?:, ?0x[0-9A-Fa-f]{1,8}){6})\)", re.ASCII)
# Behind the last comma: the name of a process, before it, may contain any words and commas.
_WORD = re.compile(r"(?:.*,)?\W*([A-Z][A-Z0-9_/]{1,64}(?: degraded)?)\s+(Fatal|Non-?fatal)(?:\s|$)", re.ASCII)
_STATUS = re.compile(r"\(0x([0-9A-Fa-f]{8})(?:\s|$)(?:\s*0x([0-9A-Fa-f]{8})(?:[\s)]|$))?", re.ASCII)
# The driver prints two digits behind "Link", so one digit at the very end is a number that was cut. A link
# of -1, which means no link, does not fit.
_LINK = re.compile(r"\b(?:Link +(\d{2,3}|\d(?=\D))|link +(\d{1,3}))", re.ASCII)
_LINK_EVENT = "NETIR_LINK_EVT"
_ELSEWHERE = ("INVESTIGATE_PEER_DEVICE", "SYMPATHETIC_REPORT_SOLO")
"""NVIDIA's later actions for a link that went down because of a fault at its other end."""

_LITERAL = re.compile(r"[\w: -]*(?![?*+{])")

_Match = re.Match[str]
_Reader = Callable[[Catalog, PatternRule, KernelRecord, _Match], Finding | None]
"""Makes the finding of a record that a rule fits; returns None where the rule's entry is off."""
_Tried = tuple[str, PatternRule, _Reader]
"""A literal, the rule that is tried on lines that contain it, and the function that reads those lines."""


class Verdict(NamedTuple):
    """The meaning of a line by its details, when they change the meaning of its entry."""

    severity: Severity
    title: str
    advice: Advice
    sub_code: str | None = None
    remote: bool = False
    """Whether the line blames another device."""
    over: bool = False
    """Whether the line reports that the fault of earlier lines of its rule is over."""


def kernel_finder(catalog: Catalog) -> Callable[[str], Finding | None]:
    """Return the function that finds a fault in a line of a kernel log. That function raises nothing."""
    anchors = catalog.scan_anchors(Source.KERNEL)
    groups = _by_anchor(catalog.rules(Source.KERNEL), anchors)

    def find(text: str) -> Finding | None:
        text = with_text_message(text)
        for anchor in anchors:
            if anchor in text:
                break
        else:
            return None
        record, message = None, ""
        for anchor, begin, rules in groups:
            if anchor not in text or (record is not None and not message.startswith(begin)):
                continue
            for literal, rule, read in rules:
                if literal not in text:
                    continue
                if record is None:
                    record = open_record(text)
                    if record is None:
                        return None
                    message = without_process_name(record[0])
                for pattern in rule.patterns:
                    match = pattern.match(message)
                    if match is not None:
                        return read(catalog, rule, record, match)
        return None

    return find


def _by_anchor(rules: Iterable[PatternRule], anchors: tuple[str, ...]) -> list[tuple[str, str, list[_Tried]]]:
    """Group the rules by anchor, in their order: each rule with its literals, under the anchors of its lines.

    Loki only sends lines with an anchor, and most lines have one or two, so the rules of all other anchors
    are skipped at once. So is a group when the message does not begin as all its matches do.
    """

    def anchors_of(rule: PatternRule) -> tuple[str, ...]:
        words = (*rule.anchors, *rule.contains)
        return tuple(anchor for anchor in anchors if any(anchor in word for word in words))

    groups = []
    for shared, group in groupby(rules, anchors_of):
        alike = list(group)
        tried: list[_Tried] = [
            (literal, rule, _read_xid if rule.table == "xid" else _read_other)
            for rule in alike
            for literal in rule.contains
        ]
        begins = [_begin(pattern) for rule in alike for pattern in rule.patterns]
        shortest = min(begins, key=len)
        begin = shortest if all(each.startswith(shortest) for each in begins) else ""
        groups += [(anchor, begin, tried) for anchor in shared]
    return groups


def _begin(pattern: Pattern) -> str:
    """Return a literal that every match of a packaged pattern begins with; it may be empty.

    A packaged pattern has no alternatives outside of brackets. A user's may have some: it gives nothing.
    """
    literal = _LITERAL.match(pattern.pattern) if isinstance(pattern, re.Pattern) else None
    return literal[0] if literal else ""


def kernel_finding(
    rule: PatternRule,
    entry: Entry,
    record: KernelRecord,
    *,
    verdict: Verdict | None = None,
    gpu: str | None = None,
    pid: int | None = None,
    process: str | None = None,
    mig: str | None = None,
    port: int | None = None,
    clears: str | None = None,
) -> Finding | None:
    """Return the finding of a kernel record; None where its entry is off.

    A field that a user's file has set is final, whatever the details are.
    """
    if entry.mode is Mode.OFF:
        return None
    meaning: Verdict | Entry = verdict or entry
    fixed = entry.fixed
    severity = entry.severity if "severity" in fixed else meaning.severity
    advice = entry.advice if "advice" in fixed else meaning.advice
    sub_code, remote = None, False
    if verdict is not None:
        sub_code, remote = verdict.sub_code, verdict.remote
        if verdict.over and not severity.taints:
            clears = entry.rule
    message, around = record
    position, user_written = origin(around)
    return Finding(
        entry.kind,
        entry.rule,
        severity,
        entry.title if "title" in fixed else meaning.title,
        advice.text,
        evidence(message),
        entry.code,
        gpu,
        pid,
        process,
        position,
        user_written,
        sub_code,
        mig,
        port,
        advice.needs.value,
        entry.mode is Mode.SHADOW or rule.mode is Mode.SHADOW,
        clears,
        "severity" in fixed,
        remote,
    )


def _read_other(catalog: Catalog, rule: PatternRule, record: KernelRecord, match: _Match) -> Finding | None:
    """Read an SXid, or a line whose rule already has the whole meaning."""
    if rule.entry is None:
        return _read_sxid(catalog, rule, record, match)
    return kernel_finding(rule, rule.entry, record, gpu=normal_pci(match.groupdict().get("gpu")))


def _read_xid(catalog: Catalog, rule: PatternRule, record: KernelRecord, match: _Match) -> Finding | None:
    gpu, code, pid, process, detail = match.group("gpu", "code", "pid", "process", "detail")
    entry = catalog.xid(int(code))
    verdict, port = None, None
    if match.end("code") == len(match.string) and entry.severity.taints:
        if catalog.may_continue(int(code)):
            verdict = Verdict(Severity.SUSPECT, f"{entry.title} (or another Xid, cut)", entry.advice)
    elif entry.detail is not None:
        verdict = _DETAILS[entry.detail](catalog, entry, detail)
        if entry.detail in (Detail.NVLINK_REGISTERS, Detail.NVLINK5):
            port = _read_link(detail)
    elif "caused by" in detail:
        verdict = _consequence(catalog, entry, detail)
    return kernel_finding(
        rule,
        entry,
        record,
        verdict=verdict,
        gpu=normal_pci(gpu),
        pid=None if pid is None else int(pid),
        process=None if process is None or process.startswith(("<", "'<")) else process.strip(),
        mig=_mig_instance(match) if " GPU-I:" in match.string else None,
        port=port,
        clears=None if entry.clears is None else f"xid.{entry.clears}",
    )


def _mig_instance(match: re.Match[str]) -> str | None:
    """Return ``5/1`` for GPU instance 5, compute instance 1, as ``nvidia-smi`` numbers them."""
    found = _MIG.search(match.string, match.end("gpu"), match.start("code"))
    return found and "/".join(str(int(part)) for part in found.groups() if part)


def _recovery_action(catalog: Catalog, _: XidEntry, detail: str) -> Verdict | None:
    target = _RECOVERY_TARGET.search(detail)
    if target is None:
        return None
    number, words = target["number"], target["named"] or target["words"]
    code = catalog.recovery_words.get(words) if number is None else int(number, 16)
    action = None if code is None else catalog.recovery_actions.get(code)
    if action is None:
        return None
    return Verdict(action.severity, action.title, action.advice, words, over=action.code == _NO_ACTION)


def _consequence(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """Return the meaning of an Xid that names an earlier Xid as its cause: the cause decides.

    It is no new fault and never taints by itself, since the cause has a line of its own. For example, an Xid
    caused by a fatal one is suspect.
    """
    cause = _CAUSE.search(detail)
    if cause is None or entry.severity.taints:
        return None
    severity = catalog.xid(int(cause[1])).severity
    if severity not in (Severity.APPLICATION, Severity.INFO):
        severity = Severity.SUSPECT
    return Verdict(severity, f"{entry.title} (caused by Xid {int(cause[1])})", catalog.advice["root_cause"])


def _containment(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """Read Xid 94 and 95: a reset wanted now is fatal whatever the code; a reset after a drain is not."""
    now, after_drain = _RESET_NOW.match(detail), _RESET_AFTER_DRAIN.match(detail)
    if now is not None and now[1]:
        return Verdict(Severity.FATAL, entry.title, catalog.advice["memory_error"])
    if not entry.severity.taints and after_drain is not None and after_drain[1]:
        return Verdict(entry.severity, entry.title, catalog.advice["contained_drain"])
    return None


def _read_sxid(catalog: Catalog, rule: PatternRule, record: KernelRecord, match: _Match) -> Finding | None:
    """Read an SXid. Its address is the switch's; a line of Fabric Manager becomes a finding ``fm.20034``."""
    groups = match.groupdict()
    entry = catalog.sxid(int(groups["code"]))
    if "severity" in groups:
        port = _read_link(match.string, match.end("code"))
    else:
        port = None if groups["port"] is None else int(groups["port"])
        entry = replace(entry, rule=f"fm.{entry.code}", kind=FaultKind.FM)
    verdict = None
    fatal = groups["word"] in ("Fatal", "fatal") or groups.get("severity") == "1"
    if entry.word_decides and entry.severity.taints and not fatal:
        verdict = Verdict(Severity.SUSPECT, entry.title, catalog.advice["switch_watch"])
    return kernel_finding(rule, entry, record, verdict=verdict, gpu=normal_pci(groups["gpu"]), port=port)


def _read_link(detail: str, start: int = 0) -> int | None:
    """Return the first NVLink or switch port that a text names."""
    match = _LINK.search(detail, start)
    return None if match is None else int(match[1] or match[2])


def _registers(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """Read Xid 74: it is not fatal where every bit that is set is known to be harmless alone."""
    match = _REGISTERS.search(detail)
    if match is None:
        return None
    bits = [
        catalog.register_bits.get((register, bit))
        for register, value in enumerate(int(text, 16) for text in match[1].split(","))
        for bit in range(value.bit_length())
        if value >> bit & 1
    ]
    harmless = [bit[1] for bit in bits if bit is not None and not bit[0].taints]
    if not harmless or len(harmless) < len(bits):
        return None
    return Verdict(Severity.SUSPECT, f"{entry.title}: {harmless[0]}", catalog.advice["nvlink_harmless"])


def _nvlink5(catalog: Catalog, entry: XidEntry, detail: str) -> Verdict | None:
    """Read Xid 144 to 150 by the decode table; where the line is cut or no row fits, by the driver's word.

    The table is right where the word disagrees with it. A line with neither keeps its entry's meaning.
    """
    word = _WORD.match(detail)
    numbers = _STATUS.search(detail)
    rows = catalog.link_rules.get(entry.code or 0, ())
    rule = None if numbers is None else _row(rows, numbers, "" if word is None else word[1])
    if rule is not None:
        severity, title = rule.severity, f"{entry.title}: {rule.unit.rpartition('/')[2]}"
        if reason := _reason(rule.values[0]):
            title += f", reason {reason}"
    elif word is not None:
        severity, title = (Severity.FATAL if word[2] == "Fatal" else Severity.SUSPECT), entry.title
    else:
        return None
    sub_code = None if word is None else word[1]
    if sub_code is not None and numbers is not None and sub_code.startswith(_LINK_EVENT):
        sub_code += f".{_reason(int(numbers[1], 16))}"
    advice = catalog.advice["nvlink" if severity.taints else "nvlink5_watch"]
    return Verdict(severity, title, advice, sub_code, rule is not None and rule.investigate in _ELSEWHERE)


def _row(rules: tuple[LinkRule, ...], numbers: _Match, unit: str) -> LinkRule | None:
    """Return the row that fits, of the unit that the line names if several fit.

    Where the status is cut off, any row will do if all rows that fit agree.
    """
    fitting = [rule for rule in rules if rule.fits(int(numbers[1], 16))]
    if numbers[2] is not None:
        status = int(numbers[2], 16)
        fitting = [rule for rule in fitting if rule.status == status]
        return next((rule for rule in fitting if rule.unit == unit), fitting[0] if fitting else None)
    return fitting[0] if len({rule.severity for rule in fitting}) == 1 else None


def _reason(intrinfo: int) -> int:
    """Return the number of the reason why a link went down."""
    return intrinfo >> 20 & 0x3F


_DETAILS: dict[Detail, Callable[[Catalog, XidEntry, str], Verdict | None]] = {
    Detail.RECOVERY_ACTION: _recovery_action,
    Detail.CONTAINMENT: _containment,
    Detail.NVLINK_REGISTERS: _registers,
    Detail.NVLINK5: _nvlink5,
}
