"""Pattern rules: how a fault looks in a line. Every rule proves itself on its examples when loaded.

The package's own patterns run in Python's ``re``. Those of users run in RE2: its time is linear in the text,
whatever they say, and they mean what Loki reads.
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

PCI = r"(?P<gpu>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-9A-Fa-f])?"
PATTERN_CHARS_MOST = 1000
_LOOKS = ("contains", "anchor", "patterns", "match", "no_match")
RULE_FIELDS = frozenset({"id", "source", "severity", "mode", "title", "advice", *_LOOKS})
"""The fields that packaged rules and a user's have in common."""
_MEMORY_BYTES = 128 * 1024
"""Memory that RE2 may use for one pattern; a larger one, which would also be a slow one, is refused."""


class LinearPattern:
    """An RE2 pattern that finds what a Python one would. Raises ValueError where RE2 cannot use it."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARS_MOST:
            raise ValueError(f"is longer than {PATTERN_CHARS_MOST} characters")
        self._compiled = _compile(pattern, max_mem=_MEMORY_BYTES)
        self.pattern = pattern

    def match(self, text: str, pos: int = 0, endpos: int = sys.maxsize, /) -> re.Match[str] | None:
        """Where it fits at ``pos``."""
        return self._find(self._compiled.match, text, pos, endpos)

    def search(self, text: str, pos: int = 0, endpos: int = sys.maxsize, /) -> re.Match[str] | None:
        """Where it fits first."""
        return self._find(self._compiled.search, text, pos, endpos)

    @staticmethod
    def _find(method: Any, text: str, pos: int, endpos: int) -> re.Match[str] | None:
        # RE2 encodes all that it is given, so it gets the part in question, and the character before it, by
        # which it knows whether a line or a word begins there.
        first = max(0, pos - 1)
        part = text[first:endpos].encode("utf-8", "replace").decode("utf-8")
        found = method(part, pos - first, len(part))
        return None if found is None else cast("re.Match[str]", _Match(found, first))


Pattern = re.Pattern[str] | LinearPattern


@dataclass(frozen=True, slots=True)
class PatternRule:
    """How one kind of fault looks.

    Either ``entry`` says what it is, or ``table`` names the table in which the group ``code`` or ``text``
    finds it. A kernel pattern describes the message from its start; a pod's may stand anywhere in it.
    ``anchors`` are the literals that Loki is asked for, one of which stands in every match.
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
    """The patterns as the file has them, before placeholders were filled in."""
    scan_only: bool = False
    """No collected source has such lines: only ``scan`` looks for them, and Loki is not asked."""

    def find(self, text: str, start: int = 0, end: int | None = None) -> re.Match[str] | None:
        """Where the rule fits ``text[start:end]``, if it does."""
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
    """The rule in a record; ``compiled`` makes its patterns of their numbers and texts.

    The rule has to prove itself: raises CatalogError at the example that it gets wrong.
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
                raise record.error(field, f"nothing of it is in {quoted(example)}")
    for number, example in enumerate(rule.counterexamples):
        if rule.find(example) is not None:
            raise record.error("no_match", f"a pattern fits {quoted(example)}", number)
    return rule


@lru_cache(maxsize=64)
def fits_whole(pattern: str) -> Callable[[str], bool]:
    """Whether an expression fits a whole label value, as Loki's ``=~`` reads it: the dot fits a newline, too.

    Raises ValueError where RE2 cannot use it.
    """
    compiled = _compile(pattern, dot_nl=True)
    return lambda text: compiled.fullmatch(text) is not None


def finder_in_bytes(literals: Iterable[str]) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Gives a function that finds the first of some literals in bytes, from a place on, with RE2."""
    import re2

    compiled = re2.compile("|".join(map(re.escape, literals)).encode())
    return cast("Callable[[bytes, int], re.Match[bytes] | None]", compiled.search)


def _compile(pattern: str, **wanted: Any) -> Any:
    import re2  # only what a user wrote needs it, and most installations have none of it

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
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(short(told)) from error
    except UnicodeEncodeError as error:
        raise ValueError("holds half a character") from error


@dataclass(frozen=True, slots=True)
class _Match:
    """The part of a match that detection uses, with places in the whole text."""

    _found: Any
    _first: int

    def start(self) -> int:
        return int(self._found.start()) + self._first

    def end(self) -> int:
        return int(self._found.end()) + self._first

    def groupdict(self) -> dict[str, str | None]:
        return cast("dict[str, str | None]", self._found.groupdict())
