"""A first look at a line: whether it may report a fault at all, in a tenth of a microsecond.

A message begins with the head of a rule's pattern, and only certain things may stand before it. Both make one
pattern, which may fit too much and never too little: it turns most lines away before they are taken apart,
those that quote a fault above all. Rust's regex engine looks for it, in time linear in the text and about ten
times as fast as Python's; it comes with pydantic, which can only say whether a pattern fits somewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from pydantic_core import SchemaValidator, core_schema

from konductor_like.catalog import PatternRule
from konductor_like.catalog.heads import heads_of

_AS_ASCII = {
    r"[^\W\d_]": "[A-Za-z]",
    r"\w": "[0-9A-Za-z_]",
    r"\d": "[0-9]",
    r"\s": r"[\t-\r\x1c- ]",
    r"\S": "[!-~]",
}
_UP_TO = re.compile(r"\{(\d+),\d+\}")
_LOOK_AHEAD = re.compile(r"\(\?=[^()]*\)")
_NAMED = re.compile(r"\(\?P<\w+>")


def fits_in(pattern: str) -> Callable[[str], bool]:
    """Whether a pattern fits somewhere in a text; False for a text that is no Unicode (half a character)."""
    schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    return SchemaValidator(schema).isinstance_python


def either(literals: Iterable[str]) -> str:
    """The pattern that fits any of these literals."""
    return "|".join(re.escape(literal) for literal in sorted(literals))


def first_look(rules: Iterable[PatternRule], before: str, unclear: Iterable[str]) -> Callable[[str], bool]:
    """Whether a text of ASCII alone may report a fault by one of the rules.

    ``before`` fits whatever may stand in front of a fault's message, ``unclear`` what only a closer look can
    judge.
    """
    heads, literals = set[str](), set[str]()
    for rule in rules:
        told = [heads_of(pattern.pattern) for pattern in rule.patterns]
        known = [head for head in told if head is not None]
        if len(known) == len(told):
            heads.update(*known)
        else:
            literals.update(rule.contains)
    patterns = [*unclear]
    if heads:
        patterns.append(f"(?:{before})(?:{either(heads)})")
    if literals:
        patterns.append(either(literals))
    return fits_in("|".join(patterns))


def loosened(pattern: str) -> str:
    """One of our own patterns, so that it fits the same ASCII texts and more, and soon becomes an automaton.

    Counting is what makes automata large: many times for up to so many times.
    """
    pattern = _NAMED.sub("(?:", _LOOK_AHEAD.sub("", pattern))
    for written, ascii_only in _AS_ASCII.items():
        pattern = pattern.replace(written, ascii_only)
    return _UP_TO.sub(lambda counts: "+" if int(counts[1]) else "*", pattern)
