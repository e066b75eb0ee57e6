"""Faults in a pod's own output: never more than suspect, and never a quotation.

The phrase must stand where a log puts its message: at the start of a line, or behind a delimiter, a level
or a number. Inside quotation marks, in source code, a table, a list or a conversation it is a quotation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from konductor_like.catalog import PatternRule, load_catalog
from konductor_like.detection.anchors import HEARTBEAT_ANCHOR, POD_ANCHORS
from konductor_like.detection.clean import evidence, normal_pci, one_line, strip_colours
from konductor_like.detection.wrappers import unwrap_pod_record
from konductor_like.model import EVIDENCE_CHARS, Finding

_CATALOG = load_catalog()
_RULES = tuple((literal, rule) for rule in _CATALOG.pod_rules for literal in rule.contains)
_WINDOW_CHARS = 600
"""How far around its literal a rule looks; no pattern reaches further than half of it behind its literal."""
_OCCURRENCES_MOST = 16
"""How often one rule is tried on one entry: bounds the time for an entry that repeats a literal for ever."""
_DELIMITER_CHARS = 64
"""How far in front of a phrase its delimiter is looked for."""

_QUOTED_KERNEL = ("NVRM", "Xid (", HEARTBEAT_ANCHOR)
_OUR_LOG = re.compile(r"\bnode `[^`]{1,253}` has ")
_DELIMITED = re.compile(r"(?:[\])>:;-]|\d|\b(?:ERROR|ERR|FATAL|CRITICAL|WARN|WARNING|Error|E|F|W))\s+$")
_NO_LOG = re.compile(
    r"""\s*(?:
        [|`"'*+$\#]|>\s|-\s|//|\d+\.\s   # tables, lists, shells, comments, differences
      | (?:assistant|user|human|system|q|a|question|answer)\s*:   # conversations
      | (?:if|elif|return|raise|assert|print|printf|echo|grep|rg|def|case|when|expect)\b   # source code
      | e\.g\.|(?:example|note|hint|tip|fix|symptom|problem|issue|title|see|how|why)\b[^\[\]]{0,80}$
      | .{0,400}"(?:role|content|prompt|completion|instruction|question|answer|messages)"\s*:   # training
    )""",
    re.VERBOSE | re.IGNORECASE,
)


def find_in_pod_log(text: str) -> Finding | None:
    """What a line, or a whole entry of several lines, of a pod says, if it is a fault."""
    for anchor in POD_ANCHORS:
        if anchor in text:
            break
    else:
        return None
    message = None
    for literal, rule in _RULES:
        if literal not in text:
            continue
        if message is None:
            message = strip_colours(unwrap_pod_record(text))
            if _quotes(message):
                return None
        for match in _matches(rule, literal, message):
            if _is_said(message, match.start()):
                return _finding(rule, message, match)
    return None


def _quotes(message: str) -> bool:
    """Whether the line repeats a kernel line or a log line of ours."""
    for phrase in _QUOTED_KERNEL:
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


def _is_said(message: str, start: int) -> bool:
    """Whether what starts there is the program's own statement."""
    first = message.rfind("\n", 0, start) + 1
    before = message[max(first, start - _DELIMITER_CHARS) : start]
    if not before.strip():
        return True
    return _DELIMITED.search(before) is not None and _NO_LOG.match(message, first, start) is None


def _finding(rule: PatternRule, message: str, match: re.Match[str]) -> Finding:
    groups = match.groupdict()
    entry = rule.entry or _CATALOG.cuda_errors[groups["text"].lower()]
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
    )


def _line_of(message: str, match: re.Match[str]) -> str:
    """The line that says it; of a very long one, the part around."""
    start = message.rfind("\n", 0, match.start()) + 1
    if match.end() - start > EVIDENCE_CHARS:
        start = max(0, match.start() - 64)
    end = message.find("\n", match.end())
    return evidence(one_line(message[start : end if end >= 0 else start + 2 * EVIDENCE_CHARS]))
