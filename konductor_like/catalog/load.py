"""Reading the catalogue's files, checking them, and putting them together."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from konductor_like.catalog.catalog import Catalog
from konductor_like.catalog.entries import Advice, Detail, Entry, LinkRule, Needs, SxidEntry, XidEntry
from konductor_like.catalog.escalation_text import FIELDS as ESCALATION_FIELDS
from konductor_like.catalog.escalation_text import read_escalation
from konductor_like.catalog.patterns import PCI, RULE_FIELDS, PatternRule, read_rule
from konductor_like.catalog.rules_file import (
    WHOLE_FILE,
    CatalogError,
    Record,
    RulesError,
    quoted,
    read_rule_file,
)
from konductor_like.model import AlertRule, ConditionRule, Escalation, FaultKind, Severity, Source

_FIRST_FILES = ("kernel_rules.yaml", "pod_rules.yaml")
_ALERT_NAME = re.compile(r"Konductor[A-Z][A-Za-z0-9]{1,60}")
"""The names of our alerts: no rule of somebody else begins with this word by accident."""
_TABLES = ("xid", "sxid", "cuda")
_CONDITIONS, _ALERTS = "conditions.toml", "alerts.toml"

_FABRIC_MANAGER = (
    r"(?:(?:[\w.-]{1,254} )?(?:nv-fabricmanager|nvidia-fabricmanager-start\.sh)(?:\[\d{1,10}\])?: "
    r"(?:\[ERROR\] (?:\[tid \d{1,10}\] )?)?"
    r"|(?:\[\w{3} +\d{1,2} \d{4} [\d:]{8}\] )?\[ERROR\] (?:\[tid \d{1,10}\] )?)"
)
"""The placeholder ``{fm}``: what is before a message of Fabric Manager."""

_FIELDS = RULE_FIELDS | {"kind", "table", "code", "scan_only"}


@cache
def load_catalog() -> Catalog:
    """Return the packaged catalogue, read once. Raises CatalogError where one of its files is broken."""
    return read_catalog(files("konductor_like.catalog") / "data")


def read_catalog(folder: Traversable) -> Catalog:
    """Return the catalogue in ``folder``. Raises CatalogError with file, entry and field."""
    advice = dict(_advice(folder))
    cuda = dict(_cuda_errors(folder, advice))
    return Catalog(
        xids=dict(_xids(folder, advice)),
        sxids=dict(_sxids(folder, advice)),
        recovery_actions={
            code: Entry("xid.154", FaultKind.XID, *_meaning(record, advice), code)
            for code, record in _by_code(folder, "recovery_actions.csv", "value")
        },
        recovery_words={
            words: code
            for code, record in _by_code(folder, "recovery_actions.csv", "value")
            for words in record.optional_text("words").split("|")
        },
        link_rules=_link_rules(folder),
        register_bits=dict(_register_bits(folder)),
        named_entries={
            **cuda,
            **dict(_node_facts(folder, advice)),
            **dict(_entries_of_others(folder, advice, _CONDITIONS, FaultKind.CONDITION)),
            **dict(_entries_of_others(folder, advice, _ALERTS, FaultKind.ALERT)),
        },
        pattern_rules=tuple(_rules(folder, advice, cuda)),
        advice=advice,
        escalations=dict(_escalations(folder, advice)),
        conditions=dict(_condition_rules(folder)),
        alerts=dict(_alert_rules(folder)),
    )


@cache
def condition_rules() -> Mapping[str, ConditionRule]:
    """Return by type the packaged rules for other programs' conditions, without their findings.

    Only one file is read, because every decoder of Nodes needs the types. Raises CatalogError.
    """
    return dict(_condition_rules(files("konductor_like.catalog") / "data"))


def _advice(folder: Traversable) -> Iterator[tuple[str, Advice]]:
    for record in _toml_tables(folder, "advice.toml"):
        record.only(frozenset({"text", "needs"}))
        yield record.name, Advice(record.text("text"), record.one_of("needs", Needs))


def _xids(folder: Traversable, advice: Mapping[str, Advice]) -> Iterator[tuple[int, XidEntry]]:
    for code, record in _by_code(folder, "xid.csv"):
        entry = XidEntry(
            f"xid.{code}",
            FaultKind.XID,
            *_meaning(record, advice),
            code,
            detail=record.one_of("detail", Detail) if record.optional_text("detail") else None,
            mnemonic=record.text("mnemonic"),
            bucket=record.optional_text("bucket"),
            investigate=record.optional_text("investigate"),
            generations=tuple(record.optional_text("generations").split()),
            recovery_since=record.optional_text("recovery_since"),
            clears=record.optional_integer("clears"),
        )
        yield code, entry


def _sxids(folder: Traversable, advice: Mapping[str, Advice]) -> Iterator[tuple[int, SxidEntry]]:
    for code, record in _by_code(folder, "sxid.csv"):
        word = record.optional_text("word")
        if word not in ("", "decides"):
            raise record.error("word", f"{word!r} is neither empty nor 'decides'")
        entry = SxidEntry(
            f"sxid.{code}",
            FaultKind.SXID,
            *_meaning(record, advice),
            code,
            word_decides=word == "decides",
            name=record.optional_text("name"),
            group=record.text("class"),
            guide=record.optional_text("guide"),
        )
        yield code, entry


def _cuda_errors(folder: Traversable, advice: Mapping[str, Advice]) -> Iterator[tuple[str, Entry]]:
    for record in _read_csv(folder, "cuda_errors.csv"):
        severity = _severity_of(record, Source.POD)
        code = record.optional_integer("code")
        texts = record.text("texts").split("|")
        rule = f"cuda.{record.text('name') if code is None else code}"
        entry = Entry(rule, FaultKind.CUDA, severity, f"CUDA: {texts[0]}", _advice_of(record, advice), code)
        for text in texts:
            yield text.lower(), entry


def _link_rules(folder: Traversable) -> dict[int, tuple[LinkRule, ...]]:
    rules: dict[int, list[LinkRule]] = {}
    for record in _read_csv(folder, "nvlink5.csv"):
        masks = (record.integer("mask_before"), record.integer("mask_since"))
        values = (record.integer("value_before"), record.integer("value_since"))
        for mask, value in zip(masks, values, strict=True):
            if value & ~mask:
                raise record.error("value", f"{value:#x} has bits outside its mask {mask:#x}: never true")
        rule = LinkRule(
            unit=record.text("unit"),
            masks=masks,
            values=values,
            status=record.integer("status"),
            bucket=record.text("bucket"),
            investigate=record.text("investigate"),
        )
        rules.setdefault(record.integer("xid"), []).append(rule)
    return {code: tuple(rows) for code, rows in rules.items()}


def _register_bits(folder: Traversable) -> Iterator[tuple[tuple[int, int], tuple[Severity, str]]]:
    for record in _read_csv(folder, "xid74_registers.csv"):
        bit = record.integer("register"), record.integer("bit")
        yield bit, (record.one_of("severity", Severity), record.text("meaning"))


def _node_facts(folder: Traversable, advice: Mapping[str, Advice]) -> Iterator[tuple[str, Entry]]:
    for record in _toml_tables(folder, "node_facts.toml"):
        record.only(frozenset({"severity", "title", "advice"}))
        yield record.name, Entry(record.name, FaultKind.NODE, *_meaning(record, advice))


def _entries_of_others(
    folder: Traversable, advice: Mapping[str, Advice], file: str, kind: FaultKind
) -> Iterator[tuple[str, Entry]]:
    for record in _toml_tables(folder, file):
        family, _, name = record.name.partition(".")
        if family != kind or not name:
            raise record.error("name", f"is not like {kind}.GPUProblem")
        severity, title, how = _meaning(record, advice)
        if severity.taints:
            raise record.error("severity", "another program's word is never more than suspect (rule 42)")
        yield record.name, Entry(record.name, kind, severity, title, how)


def _condition_rules(folder: Traversable) -> Iterator[tuple[str, ConditionRule]]:
    for record in _toml_tables(folder, _CONDITIONS):
        record.only(frozenset({"severity", "title", "advice", "bad", "reasons"}))
        kind = record.name.partition(".")[2]
        bad, reasons = record.text("bad"), record.optional_text("reasons")
        if bad not in ("True", "False"):
            raise record.error("bad", f"{quoted(bad)} is neither 'True' nor 'False'")
        try:
            yield kind, ConditionRule(bad, re.compile(reasons, re.ASCII) if reasons else None)
        except re.error as error:
            raise record.error("reasons", f"{quoted(reasons)}: {error}") from error


def _alert_rules(folder: Traversable) -> Iterator[tuple[str, AlertRule]]:
    for record in _toml_tables(folder, _ALERTS):
        record.only(frozenset({"severity", "title", "advice", "exporter"}))
        name, exporter = record.name.partition(".")[2], record.text("exporter")
        if not _ALERT_NAME.fullmatch(name):
            raise record.error("name", f"{quoted(name)} is not like KonductorGPULost")
        if not exporter.isalpha():
            raise record.error("exporter", f"{quoted(exporter)} is no name of an exporter, such as dcgm")
        yield name, AlertRule(exporter)


def _escalations(folder: Traversable, advice: Mapping[str, Advice]) -> Iterator[tuple[str, Escalation]]:
    for record in _toml_tables(folder, "escalations.toml"):
        record.only(frozenset(ESCALATION_FIELDS))
        yield record.name, read_escalation(record, partial(_advice_of, record, advice))


def _rules(
    folder: Traversable, advice: Mapping[str, Advice], cuda_texts: Iterable[str]
) -> Iterator[PatternRule]:
    """Yield the rules of every ``*_rules.yaml``, compiled and checked. Raises CatalogError.

    When two rules fit one line, the first one decides. The order is that of ``_FIRST_FILES``, then of the
    other files' names.
    """
    texts = "|".join(map(re.escape, sorted(cuda_texts, key=len, reverse=True)))
    cuda_error = rf"(?P<text>(?i:{texts}))\b"
    placeholders = {"{pci}": PCI, "{fm}": _FABRIC_MANAGER, "{cuda_error}": cuda_error}
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith("_rules.yaml"))
    for name in dict.fromkeys((*_FIRST_FILES, *names)):
        try:
            content = read_rule_file(_read_text(folder, name), name)
        except RulesError as error:
            raise error.problems[0] from error
        if content.problems:
            raise content.problems[0]
        for record in content.rules:
            yield _read_rule(record, advice, placeholders)


def _read_rule(record: Record, advice: Mapping[str, Advice], placeholders: Mapping[str, str]) -> PatternRule:
    record.only(_FIELDS)
    source = record.one_of("source", Source)
    table = record.optional_text("table") or None
    entry = None
    if table is None:
        entry = Entry(
            record.text("id"),
            record.one_of("kind", FaultKind),
            _severity_of(record, source),
            record.text("title"),
            _advice_of(record, advice),
            record.optional_integer("code"),
            mode=record.mode(),
        )
    elif table not in _TABLES:
        raise record.error("table", f"{table!r} is not one of {', '.join(_TABLES)}")
    return read_rule(record, source, entry, partial(_compile, record, placeholders), table)


def _compile(record: Record, placeholders: Mapping[str, str], number: int, pattern: str) -> re.Pattern[str]:
    for placeholder, expression in placeholders.items():
        pattern = pattern.replace(placeholder, expression)
    try:
        # ASCII: RE2's \d, \w and \s are ASCII, and a pattern must mean the same in Loki.
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise record.error("patterns", f"{quoted(pattern)}: {error}", number) from error


def _advice_of(record: Record, advice: Mapping[str, Advice], field: str = "advice") -> Advice:
    key = record.text(field)
    if key not in advice:
        raise record.error(field, f"{key!r} is not in advice.toml")
    return advice[key]


def _severity_of(record: Record, source: Source) -> Severity:
    severity = record.one_of("severity", Severity)
    if source is Source.POD and severity.taints:
        raise record.error("severity", "a pod's line is never more than suspect (rule 17)")
    return severity


def _meaning(record: Record, advice: Mapping[str, Advice]) -> tuple[Severity, str, Advice]:
    return record.one_of("severity", Severity), record.text("title"), _advice_of(record, advice)


def _by_code(folder: Traversable, file: str, field: str = "code") -> Iterator[tuple[int, Record]]:
    """Yield the rows of a table with their codes; a code may occur once."""
    seen: set[int] = set()
    for record in _read_csv(folder, file):
        code = record.integer(field)
        if code in seen:
            raise record.error(field, f"{code} is defined twice")
        seen.add(code)
        yield code, record


def _read_csv(folder: Traversable, file: str) -> Iterator[Record]:
    """Yield the rows of a table; lines that start with ``#`` are comments. Raises CatalogError."""
    lines = _read_text(folder, file).splitlines()
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    rows = csv.reader(line for _, line in numbered)
    header = next(rows, None)
    if header is None:
        raise CatalogError(file, "line 1", "header", "the file is empty")
    for (number, _), row in zip(numbered[1:], rows, strict=False):
        name = f"line {number} ({row[0]})"
        if len(row) != len(header):
            raise CatalogError(file, name, "columns", f"{len(row)} instead of {len(header)}")
        yield Record(file, name, dict(zip(header, row, strict=True)))


def _toml_tables(folder: Traversable, file: str) -> Iterator[Record]:
    """Yield the tables ``[name]`` of a TOML file, in order. Raises CatalogError."""
    for name, fields in read_toml(folder, file).items():
        if not isinstance(fields, dict):
            raise CatalogError(file, name, "content", "is not a table")
        yield Record(file, name, fields)


def read_toml(folder: Traversable, file: str) -> dict[str, Any]:
    """Return the content of a TOML file. Raises CatalogError."""
    try:
        return tomllib.loads(_read_text(folder, file))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(file, WHOLE_FILE, "syntax", str(error)) from error


def _read_text(folder: Traversable, file: str) -> str:
    """Return the text of a file. Raises CatalogError."""
    try:
        return folder.joinpath(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError(file, WHOLE_FILE, "content", str(error)) from error
