"""Pattern rules: how a fault looks in a line. Every rule proves itself on its examples when loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Protocol

from konductor_like.catalog.entries import Advice, Entry, Mode
from konductor_like.catalog.errors import RulesError, quoted
from konductor_like.catalog.rulefile import read_rule_file
from konductor_like.catalog.tables import Record, read_text
from konductor_like.model import FaultKind, Severity, Source

_FIRST_FILES = ("kernel_rules.yaml", "pod_rules.yaml")
TABLES = ("xid", "sxid", "cuda")
PCI = r"(?P<gpu>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-9A-Fa-f])?"
_BUS = r"(?P<gpu>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-9A-Fa-f])?"
"""A PCI address where it may lack its domain: between the parentheses of an Xid."""

_FIELDS = frozenset(
    {
        *("id", "source", "kind", "table", "severity", "mode", "title", "advice", "code", "scan_only"),
        *("contains", "anchor", "patterns", "match", "no_match"),
    }
)


class Pattern(Protocol):
    """A compiled pattern: Python's own, or an RE2 one in the same clothes."""

    @property
    def pattern(self) -> str:
        """What it was compiled from."""

    def match(self, text: str, pos: int = 0, endpos: int = ..., /) -> re.Match[str] | None:
        """Where it fits at ``pos``."""

    def search(self, text: str, pos: int = 0, endpos: int = ..., /) -> re.Match[str] | None:
        """Where it fits first."""


@dataclass(frozen=True, slots=True)
class PatternRule:
    """How one kind of fault looks.

    Either ``entry`` says what it is, or ``table`` names the table in which the group ``code`` or ``text``
    finds it. A kernel pattern describes the message from its start; a pod's may stand anywhere in it.
    ``anchors`` are the literals that Loki is asked for, one of which stands in every match.
    """

    id: str
    source: Source
    kind: FaultKind
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


def read_rules(
    folder: Traversable, advice: Mapping[str, Advice], cuda_texts: Iterable[str]
) -> Iterator[PatternRule]:
    """The rules of every ``*_rules.yaml``, compiled and checked. Raises CatalogError.

    Where two rules fit one line the first decides.
    """
    texts = "|".join(map(re.escape, sorted(cuda_texts, key=len, reverse=True)))
    placeholders = {"{pci}": PCI, "{bus}": _BUS, "{cuda_error}": rf"(?P<text>(?i:{texts}))\b"}
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith("_rules.yaml"))
    for name in dict.fromkeys((*_FIRST_FILES, *names)):
        try:
            records = read_rule_file(read_text(folder, name), name).rules
        except RulesError as error:
            raise error.problems[0] from error
        for record in records:
            rule = _read_rule(record, advice, placeholders)
            check_examples(record, rule)
            yield rule


def _read_rule(record: Record, advice: Mapping[str, Advice], placeholders: Mapping[str, str]) -> PatternRule:
    record.only(_FIELDS)
    name = record.text("id")
    source = record.one_of("source", Source)
    kind = record.one_of("kind", FaultKind)
    mode = read_mode(record)
    table = record.optional_text("table") or None
    entry = None
    if table is None:
        severity = record.one_of("severity", Severity)
        if source is Source.POD and severity.taints:
            raise record.error("severity", "a pod's line is never more than suspect (design rule 17)")
        key = record.text("advice")
        if key not in advice:
            raise record.error("advice", f"{key!r} is not in advice.toml")
        code = record.optional_integer("code")
        entry = Entry(name, kind, severity, record.text("title"), advice[key], code, mode=mode)
    elif table not in TABLES:
        raise record.error("table", f"{table!r} is not one of {', '.join(TABLES)}")
    contains = record.texts("contains")
    return PatternRule(
        name,
        source,
        kind,
        table,
        entry,
        contains,
        record.optional_texts("anchor") or contains,
        tuple(
            _compile(record, number, pattern, placeholders)
            for number, pattern in enumerate(record.texts("patterns"))
        ),
        record.texts("match"),
        record.texts("no_match"),
        mode,
        record.texts("patterns"),
        read_flag(record, "scan_only"),
    )


def read_mode(record: Record, field: str = "mode") -> Mode:
    """The mode of a rule; YAML's bare ``off`` and ``false`` are the word."""
    value = record.optional_text(field)
    if not value:
        return Mode.ENFORCE
    return Mode.OFF if value == "false" else record.one_of(field, Mode)


def read_flag(record: Record, field: str) -> bool:
    """``true``, or ``false`` where the field is missing."""
    value = record.optional_text(field)
    if value not in ("", "true", "false"):
        raise record.error(field, f"{quoted(value)} is neither true nor false")
    return value == "true"


def _compile(record: Record, number: int, pattern: str, placeholders: Mapping[str, str]) -> re.Pattern[str]:
    for placeholder, expression in placeholders.items():
        pattern = pattern.replace(placeholder, expression)
    try:
        # ASCII: RE2's \d, \w and \s know nothing else, and a pattern must mean the same in Loki.
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise record.error("patterns", f"{quoted(pattern)}: {error}", number) from error


def check_examples(record: Record, rule: PatternRule) -> None:
    """Let the rule prove itself. Raises CatalogError at the example that it gets wrong."""
    for number, example in enumerate(rule.examples):
        if rule.find(example) is None:
            raise record.error("match", f"no pattern fits {quoted(example)}", number)
        for field, literals in (("contains", rule.contains), ("anchor", rule.anchors)):
            if not any(literal in example for literal in literals):
                raise record.error(field, f"nothing of it is in {quoted(example)}")
    for number, example in enumerate(rule.counterexamples):
        if rule.find(example) is not None:
            raise record.error("no_match", f"a pattern fits {quoted(example)}", number)
