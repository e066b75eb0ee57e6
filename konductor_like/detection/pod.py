"""Faults in a pod's own output: suspect at most, and never from a quotation.

The phrase must be where a log puts its message: at the start of a line, or behind a delimiter, a level or a
number. Inside quotation marks, source code, a table, a list or a conversation the phrase is a quotation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from konductor_like.catalog import Catalog, Mode, PatternRule
from konductor_like.detection.heartbeat import HEARTBEAT_ANCHOR
from konductor_like.detection.kernel_record import (
    evidence,
    normal_pci,
    one_line,
    strip_colours,
)
from konductor_like.detection.wrapper import unwrap_pod_record
from konductor_like.model import EVIDENCE_CHARS, Finding, Source

_WINDOW_CHARS = 600
"""Characters around a literal in which its rule is tried; patterns reach half as far behind the literal."""
_OCCURRENCES_MOST = 16
"""Tries of one rule on one entry: bounds the time for an entry that repeats a literal for ever."""
_DELIMITER_CHARS = 64
"""Characters before a phrase in which its delimiter is looked for."""

_QUOTED = ("NVRM", "Xid (", HEARTBEAT_ANCHOR, "trainy.konduktor.ai/")
"""Words of the kernel log and of our own annotation: a pod that prints them repeats them."""
_OUR_LOG = re.compile(r"\bnode `[^`]{1,253}` has ")
_DELIMITERS = ("]", ")", ">", ":", ";", "-")
_LEVEL = re.compile(r"\b(?:ERROR|ERR|FATAL|CRITICAL|WARN|WARNING|Error|E|F|W)\Z")
_LEVEL_CHARS = 8
_PYTHON_LOGGING = re.compile(r"(?:WARNING|ERROR|CRITICAL):[\w.-]{1,50}:")
_REPEATED = re.compile(
    r"</\w|::test_|\.log:\d+:"  # markup, a test's name, grep's output
    # the start of a string, except of a field that a program logs as JSON
    r"|(?<!\w\":)(?<!\w\": )[\"'](?:\[[\w:. -]{1,20}\]:? ?)?(?:[\w.]{1,60}(?:Error|Exception): )?$"
    r'|"(?:stdout|stderr|line|value|input|output)": ?"[^"]{0,40}$'
)
_REPETITION_MARKS = ('"', "'", "</", "::test_", ".log:")
"""Every text that ``_REPEATED`` fits has one of these; they only save time."""
_NO_LOG = re.compile(
    r"""\s*+(?:
        [|`"'*+$\#]|>\s|-\s|//|\d+[.)]\s   # tables, lists, shells, comments, differences
      | <!--|<\||\[/?INST\]   # markup, chat templates
      | --\w|\w{0,3}sh:\s|(?:not\s)?ok\s\d|E\s{3}   # options, shells, test output
      | (?:assistant|user|human|system|q|a|question|answer|prompt)\s*:   # conversations
      | (?:if|elif|return|raise|assert|print|printf|echo|grep|rg|def|case|when|expect)\b   # source code
      | e\.g\.|(?:example|note|hint|tip|fix|symptom|problem|issue|title|see|how|why)\b[^\[\]]{0,80}$
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_TRAINING_DATA = re.compile(
    r'\s*+.{0,400}"(?:role|content|prompt|completion|instruction|question|answer|messages|from)"\s*:',
    re.IGNORECASE,
)


def pod_finder(catalog: Catalog) -> Callable[[str], Finding | None]:
    """Return the function that finds a fault in a pod's line or entry of lines. It raises nothing."""
    anchors = catalog.scan_anchors(Source.POD)
    literals = [(literal, rule) for rule in catalog.rules(Source.POD) for literal in rule.contains]
    # A text without the earlier anchors has no literal that contains one of them.
    tried = tuple(
        (
            anchor,
            tuple(
                (literal, rule)
                for literal, rule in literals
                if not any(absent in literal for absent in anchors[:number])
            ),
        )
        for number, anchor in enumerate(anchors)
    )

    def find(text: str) -> Finding | None:
        for anchor, rules in tried:  # noqa: B007  # the rules of the first anchor found are tried below
            if anchor in text:
                break
        else:
            return None
        message = None
        for literal, rule in rules:
            if literal not in text:
                continue
            if message is None:
                message = strip_colours(unwrap_pod_record(text))
                if _quotes(message):
                    return None
            for match in _matches(rule, literal, message):
                if _is_statement(message, match.start()):
                    return _finding(catalog, rule, message, match)
        return None

    return find


def _quotes(message: str) -> bool:
    """Whether the line repeats a kernel line or a log line of the controller."""
    for phrase in _QUOTED:
        if phrase in message:
            return True
    return "node `" in message and _OUR_LOG.search(message, 0, 4096) is not None


def _matches(rule: PatternRule, literal: str, message: str) -> Iterator[re.Match[str]]:
    seen = 0
    position = message.find(literal)
    for _ in range(_OCCURRENCES_MOST):
        if position < 0:
            return
        match = rule.find(message, max(seen, position - _WINDOW_CHARS), position + _WINDOW_CHARS)
        if match is None:
            seen = position + _WINDOW_CHARS // 2
        else:
            yield match
            seen = match.end()
        position = message.find(literal, seen)


def _is_statement(message: str, start: int) -> bool:
    """Whether the phrase at ``start`` is the program's own statement."""
    first = message.rfind("\n", 0, start) + 1
    before = message[max(first, start - _DELIMITER_CHARS) : start]
    if not before.strip():
        return True
    if not _is_delimited(before) or _NO_LOG.match(message, first, start) is not None:
        return False
    if message.find('"', first, start) >= 0 and _TRAINING_DATA.match(message, first, start) is not None:
        return False
    for mark in _REPETITION_MARKS:
        if mark in before:
            return _REPEATED.search(before) is None
    return True


def _is_delimited(before: str) -> bool:
    """Whether the text ends with a delimiter, a number or a level, and blanks behind it."""
    words = before.rstrip()
    if len(words) == len(before):
        return _PYTHON_LOGGING.fullmatch(before) is not None
    if words.endswith(_DELIMITERS) or words[-1].isdecimal():
        return True
    return _LEVEL.search(words[-_LEVEL_CHARS - 1 :]) is not None


def _finding(catalog: Catalog, rule: PatternRule, message: str, match: re.Match[str]) -> Finding | None:
    groups = match.groupdict()
    entry = rule.entry or catalog.named_entries[groups["text"].lower()]
    if entry.mode is Mode.OFF:
        return None
    code = entry.code
    if rule.entry is not None and code is None and "code" in groups:
        code = int(groups["code"])
    return Finding(
        entry.kind,
        entry.rule,
        entry.severity,
        entry.title,
        entry.advice.text,
        _line_of(message, match),
        code,
        normal_pci(groups.get("gpu")),
        needs=entry.advice.needs.value,
        shadow=entry.mode is Mode.SHADOW or rule.mode is Mode.SHADOW,
        severity_by_user="severity" in entry.fixed,
    )


def _line_of(message: str, match: re.Match[str]) -> str:
    """Return the line with the match; of a very long line, the part around the match."""
    start = message.rfind("\n", 0, match.start()) + 1
    if match.end() - start > EVIDENCE_CHARS:
        start = max(0, match.start() - 64)
    end = message.find("\n", match.end())
    return evidence(one_line(message[start : end if end >= 0 else start + 2 * EVIDENCE_CHARS]))
