"""Pattern rules: how a fault looks in a line. Every rule proves itself on its examples when loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from konductor_like.catalog.entries import Advice, Entry
from konductor_like.catalog.tables import Record, read_toml
from konductor_like.model import FaultKind, Severity, Source

TABLES = ("xid", "sxid", "cuda")
PCI = r"(?P<gpu>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-9A-Fa-f])?"

_FIELDS = frozenset(
    {
        *("id", "kind", "table", "severity", "title", "advice", "code"),
        *("contains", "patterns", "match", "no_match"),
    }
)


@dataclass(frozen=True, slots=True)
class PatternRule:
    """How one kind of fault looks.

    Either ``entry`` says what it is, or ``table`` names the table in which the group ``code`` or ``text``
    finds it. A kernel pattern describes the message from its start; a pod's may stand anywhere in it.
    """

    id: str
    source: Source
    kind: FaultKind
    table: str | None
    entry: Entry | None
    contains: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]

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
    folder: Traversable, file: str, source: Source, advice: Mapping[str, Advice], cuda_texts: Iterable[str]
) -> Iterator[PatternRule]:
    """The rules of one file, compiled and checked. Raises CatalogError."""
    cuda_error = (
        "(?P<text>(?i:" + "|".join(map(re.escape, sorted(cuda_texts, key=len, reverse=True))) + r"))\b"
    )
    for record in read_toml(folder, file):
        rule = _read_rule(record, source, advice, {"{pci}": PCI, "{cuda_error}": cuda_error})
        _check_examples(record, rule)
        yield rule


def _read_rule(
    record: Record, source: Source, advice: Mapping[str, Advice], placeholders: Mapping[str, str]
) -> PatternRule:
    record.only(_FIELDS)
    name = record.text("id")
    kind = record.one_of("kind", FaultKind)
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
        entry = Entry(name, kind, severity, record.text("title"), advice[key], code)
    elif table not in TABLES:
        raise record.error("table", f"{table!r} is not one of {', '.join(TABLES)}")
    return PatternRule(
        name,
        source,
        kind,
        table,
        entry,
        record.texts("contains"),
        tuple(_compile(record, pattern, placeholders) for pattern in record.texts("patterns")),
        record.texts("match"),
        record.texts("no_match"),
    )


def _compile(record: Record, pattern: str, placeholders: Mapping[str, str]) -> re.Pattern[str]:
    for placeholder, expression in placeholders.items():
        pattern = pattern.replace(placeholder, expression)
    try:
        # ASCII: RE2's \d, \w and \s know nothing else, and a pattern must mean the same in Loki.
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise record.error("patterns", f"{pattern!r}: {error}") from error


def _check_examples(record: Record, rule: PatternRule) -> None:
    for example in rule.examples:
        if rule.find(example) is None:
            raise record.error("match", f"no pattern fits {example!r}")
        if not any(literal in example for literal in rule.contains):
            raise record.error("contains", f"nothing of it is in {example!r}")
    for example in rule.counterexamples:
        if rule.find(example) is not None:
            raise record.error("no_match", f"a pattern fits {example!r}")
