"""Why a line is not a fault, for people who expected one. Detection itself never uses this."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from konductor_like.catalog import Catalog, Entry, Mode, PatternRule
from konductor_like.detection.kernel_record import begin_of, is_crash, open_record, strip_colours
from konductor_like.detection.wrapper import has_unread_bytes, unwrap_pod_record, with_text_message
from konductor_like.model import FaultKind, Finding, Source
from konductor_like.model.text import clipped

_SHOWN_CHARS = 60
_GOES_ON = (
    "The line has no stamp of the kernel, so it goes on the record before it. That record was not read, or "
    "the driver did not write it."
)
_XID = "Xid ("
"""Every Xid and SXid contains this, whatever is around it."""
_ADDRESSED_XID = re.compile(
    r"(?:nvidia-nvswitch\d{0,3}: SXid \(|NVRM: Xid \([^()\[\]]{4}|Xid \([^()\[\]]{10})[^()\[\]]{0,64}\):"
    r"|Xid \([\w.-]{11}"
)
"""An Xid with an address, in any form. It is too long for the name of a process, which has 15 characters at
most and is in many messages: ``Out of memory: Killed process 81 (Xid (3d:00): 79) total-vm …``."""


def why_no_fault(catalog: Catalog, text: str, source: Source) -> str | None:
    """Return the reason in one sentence, for a text in which detection found nothing.

    None where nothing in the text resembles a fault of this source.
    """
    return _of_kernel_line(catalog, text) if source is Source.KERNEL else _of_pod_line(catalog, text)


def goes_on(find: Callable[[str], Finding | None], text: str) -> bool:
    """Whether a kernel line, in which detection found no fault, would be one if it stood alone.

    It goes on a record that was not read, or that the driver did not write. ``find`` reads a line alone.
    """
    begin = begin_of(text)
    if begin.of_record and not begin.indented:
        return False
    finding = find(text)
    # A line of an SXid may be no fault of its own, too: it goes on the SXid.
    return finding is not None and (begin.indented or finding.kind is FaultKind.XID)


def is_unparsed(catalog: Catalog, text: str) -> bool:
    """Whether a kernel line, in which detection finds no fault, has an Xid or SXid that it cannot parse.

    So it is with the bytes of a journal entry that cannot be read. An Xid that detection can parse, and drops
    because the rule is off, does not count.
    """
    if has_unread_bytes(text):
        return True
    text = with_text_message(text)
    if _XID not in text:
        return False
    record = open_record(text)
    if record is None:
        return _ADDRESSED_XID.search(text) is not None
    if is_crash(record[0]) or not _ADDRESSED_XID.search(record[0]):
        return False
    return not any(rule.find(record[0]) for rule in catalog.kernel_rules if rule.table in ("xid", "sxid"))


def _of_kernel_line(catalog: Catalog, text: str) -> str | None:
    text = with_text_message(text)
    rules = _resembling(catalog.kernel_rules, text)
    if not rules:
        return None
    record = open_record(text)
    if record is None:
        return (
            "The JSON around the message is cut, comes from an unknown collector, or shows that a program "
            "logged it."
        )
    message, _ = record
    found = _first(rules, message)
    if found is None:
        return _wrong_form(rules, text)
    rule, match = found
    if match.start() > 0:
        before = clipped(message[: match.start()].strip(), _SHOWN_CHARS)
        return (
            "The message is quoted: a kernel message begins with its own words, "
            f"and here {before!r} comes first."
        )
    return _turned_off(catalog, rule, match) or _GOES_ON


def _of_pod_line(catalog: Catalog, text: str) -> str | None:
    message = strip_colours(unwrap_pod_record(text))
    if _first(_resembling(catalog.kernel_rules, message), message):
        return "The line repeats a kernel message; kernel messages only count in the kernel log itself."
    rules = _resembling(catalog.pod_rules, message)
    if not rules:
        return None
    for rule in rules:
        match = rule.find(message)
        if match is not None:
            return _turned_off(catalog, rule, match) or (
                "The message is quoted: its words are where source code, a table, a conversation or a "
                "sentence about the error has them, not where a log has its message."
            )
    return _wrong_form(rules, message)


def _resembling(rules: Iterable[PatternRule], text: str) -> list[PatternRule]:
    return [rule for rule in rules if any(literal in text for literal in rule.contains)]


def _first(rules: Iterable[PatternRule], message: str) -> tuple[PatternRule, re.Match[str]] | None:
    """Return the first rule that fits anywhere in the message, with its earliest match."""
    for rule in rules:
        last = max(message.find(literal) for literal in rule.contains)
        for start in range(last + 1):  # a pattern begins at its literal, or before it
            inside_word = start > 0 and message[start - 1].isalnum()
            match = None if inside_word else rule.find(message, start)
            if match is not None:
                return rule, match
    return None


def _turned_off(catalog: Catalog, rule: PatternRule, match: re.Match[str]) -> str | None:
    entry = _entry(catalog, rule, match)
    off = Mode.OFF in (rule.mode, entry.mode if entry else rule.mode)
    return f"The rule {entry.rule if entry else rule.id} is off." if off else None


def _entry(catalog: Catalog, rule: PatternRule, match: re.Match[str]) -> Entry | None:
    if rule.table == "cuda":
        return catalog.named_entries.get(match["text"].lower())
    return rule.entry or catalog.entry_or_unknown(f"{rule.table}.{int(match['code'])}")


def _wrong_form(rules: list[PatternRule], text: str) -> str:
    literal = max((literal for rule in rules for literal in rule.contains if literal in text), key=len)
    return f"The line contains {clipped(literal, _SHOWN_CHARS)!r}, but is not in the form of any known fault."
