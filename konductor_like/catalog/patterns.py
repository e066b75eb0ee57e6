"""Pattern rules: how a fault appears in a line. Loading a rule tries it on its own examples.

Packaged patterns run in Python's ``re``. Users' patterns run in RE2: whatever the pattern, RE2's time is
linear in the text, and a pattern has the same meaning in Loki.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import Any, cast

from konductor_like.catalog.entries import Entry, Mode
from konductor_like.catalog.rules_file import Record, quoted, short
from konductor_like.model import Source

PCI = r"(?P<gpu>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-9A-Fa-f])?"
"""The placeholder ``{pci}``: a PCI address; old drivers leave out the domain."""
PATTERN_CHARS_MOST = 1000
_LOOKS = ("contains", "anchor", "patterns", "match", "no_match")
RULE_FIELDS = frozenset({"id", "source", "severity", "mode", "title", "advice", *_LOOKS})
"""The fields that packaged rules and users' rules have in common."""
_MEMORY_BYTES = 128 * 1024
"""Bytes that RE2 may use for one pattern. A pattern that needs more would also be slow, and is refused."""


class LinearPattern:
    """An RE2 pattern with the interface of a Python one. Raises ValueError where RE2 cannot use it."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARS_MOST:
            raise ValueError(f"is longer than {PATTERN_CHARS_MOST} characters")
        self._compiled = _compile(pattern, max_mem=_MEMORY_BYTES)
        self.pattern = pattern

    def match(self, text: str, pos: int = 0, endpos: int = sys.maxsize, /) -> re.Match[str] | None:
        """Return the match that begins at ``pos``."""
        return self._find(self._compiled.match, text, pos, endpos)

    def search(self, text: str, pos: int = 0, endpos: int = sys.maxsize, /) -> re.Match[str] | None:
        """Return the first match."""
        return self._find(self._compiled.search, text, pos, endpos)

    @staticmethod
    def _find(method: Any, text: str, pos: int, endpos: int) -> re.Match[str] | None:
        # RE2 encodes all of the text that it gets, so it gets only the part to search. The character before
        # that part comes with it: from it RE2 knows whether a line or a word begins there.
        first = max(0, pos - 1)
        part = text[first:endpos].encode("utf-8", "replace").decode("utf-8")
        found = method(part, pos - first, len(part))
        return None if found is None else cast("re.Match[str]", _Match(found, first))


Pattern = re.Pattern[str] | LinearPattern


@dataclass(frozen=True, slots=True)
class PatternRule:
    """How one kind of fault appears in a line.

    ``entry`` is the fault's entry. It is None in a table rule, whose ``table`` names the table, and whose
    pattern finds the row by its group ``code`` or ``text``. A kernel pattern fits from the start of the
    message; a pod pattern may fit anywhere in it. ``anchors`` are the literals that Loki is asked for; every
    match contains one.
    """

    id: str
    source: Source
    table: str | None
    entry: Entry | None
    contains: tuple[str, ...]
    anchors: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]
    mode: Mode = Mode.ENFORCE
    written: tuple[str, ...] = ()
    """The patterns as written in the file, with placeholders."""
    scan_only: bool = False
    """Whether only ``scan`` looks for the rule, because no collected source has such lines."""

    def find(self, text: str, start: int = 0, end: int | None = None) -> re.Match[str] | None:
        """Return the first pattern's match in ``text[start:end]``; None where no pattern fits."""
        stop = len(text) if end is None else end
        kernel = self.source is Source.KERNEL
        for pattern in self.patterns:
            match = pattern.match(text, start, stop) if kernel else pattern.search(text, start, stop)
            if match is not None:
                return match
        return None


def read_rule(
    record: Record,
    source: Source,
    entry: Entry | None,
    compiled: Callable[[int, str], Pattern],
    table: str | None = None,
) -> PatternRule:
    """Return the rule in a record; ``compiled`` makes a pattern from its number and text.

    Raises CatalogError at the first example that the rule gets wrong.
    """
    contains, written = record.texts("contains"), record.texts("patterns")
    rule = PatternRule(
        id=record.text("id"),
        source=source,
        table=table,
        entry=entry,
        contains=contains,
        anchors=record.optional_texts("anchor") or contains,
        patterns=tuple(starmap(compiled, enumerate(written))),
        examples=record.texts("match"),
        counterexamples=record.texts("no_match"),
        mode=record.mode(),
        written=written,
        scan_only=record.flag("scan_only"),
    )
    for number, example in enumerate(rule.examples):
        if rule.find(example) is None:
            raise record.error("match", f"no pattern fits {quoted(example)}", number)
        for field, literals in (("contains", rule.contains), ("anchor", rule.anchors)):
            if not any(literal in example for literal in literals):
                raise record.error(field, f"no literal of it is in {quoted(example)}")
    for number, example in enumerate(rule.counterexamples):
        if rule.find(example) is not None:
            raise record.error("no_match", f"a pattern fits {quoted(example)}", number)
    return rule


@lru_cache(maxsize=64)
def fits_whole(pattern: str) -> Callable[[str], bool]:
    """Return a function: does the expression fit a whole label value, as in Loki's ``=~``?

    As in Loki, the dot fits a newline too. Raises ValueError where RE2 cannot use the expression.
    """
    compiled = _compile(pattern, dot_nl=True)
    return lambda text: compiled.fullmatch(text) is not None


def finder_in_bytes(literals: Iterable[str]) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Return a function that finds the first of some literals in bytes, from a position on, with RE2."""
    import re2

    compiled = re2.compile("|".join(map(re.escape, literals)).encode())
    return cast("Callable[[bytes, int], re.Match[bytes] | None]", compiled.search)


def _compile(pattern: str, **wanted: Any) -> Any:
    import re2  # only a user's patterns need it, and most installations have none

    if "\\C" in pattern:
        raise ValueError(r"\C fits half a character")
    options = re2.Options()
    options.log_errors = False
    for name, value in wanted.items():
        setattr(options, name, value)
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        message = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(short(message)) from error
    except UnicodeEncodeError as error:
        raise ValueError("contains half a character") from error


@dataclass(frozen=True, slots=True)
class _Match:
    """The part of a match that detection uses, with positions in the whole text."""

    _found: Any
    _first: int

    def start(self) -> int:
        return int(self._found.start()) + self._first

    def end(self) -> int:
        return int(self._found.end()) + self._first

    def groupdict(self) -> dict[str, str | None]:
        return cast("dict[str, str | None]", self._found.groupdict())
