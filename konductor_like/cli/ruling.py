"""The work of ``rules``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from konductor_like.catalog import Catalog, Entry, Mode, PatternRule, RulesError, UserRules
from konductor_like.cli.columns import columns, count
from konductor_like.cli.failures import CommandError
from konductor_like.cli.rulesheet import sheet
from konductor_like.cli.streams import is_terminal, say, tell, warn
from konductor_like.controller.rulebook import load_rules
from konductor_like.detection import Detector, packaged
from konductor_like.exits import Exit
from konductor_like.model import Fault, Finding, Source

BY_CODE = "by code"
"""The severity of a rule whose table says it for each code."""
STDIN = "-"
_LINE_BYTES = 256 * 1024


class Row(NamedTuple):
    """One line of ``rules list``."""

    rule: str
    source: str
    severity: str
    mode: str
    origin: str
    title: str


def load(file: Path | None) -> UserRules:
    """The rules with the file over them. Raises CommandError, the other problems told before it."""
    try:
        rules = load_rules(file)
    except RulesError as error:
        told = [str(problem) for problem in error.problems]
        for problem in told[:-1]:
            tell(f"error: {problem}")
        raise CommandError(
            told[-1], hint="the controller would refuse this file", status=Exit.USAGE
        ) from error
    if file is not None and not file.exists():
        warn(f"{file}: no such file; these are the built-in rules.")
    return rules


def digest_of(file: Path | None) -> str:
    """What names the rules with the file over them; empty where the file would be refused."""
    try:
        return load_rules(file).digest
    except RulesError:
        return ""


def checked(file: Path) -> UserRules:
    """The same for a file that must be there; says what it holds, and what deserves a second look."""
    if not file.exists():
        raise CommandError(f"{file}: No such file or directory", status=Exit.USAGE)
    rules = load(file)
    for warning in rules.warnings:
        warn(warning)
    tell(f"{file.name} is good: {in_short(rules)}.")
    return rules


def in_short(rules: UserRules) -> str:
    """``2 overrides, 1 rule``."""
    return f"{count(len(rules.overrides), 'override')}, {count(len(rules.own), 'rule')}"


def show_list(rules: UserRules, *, as_json: bool) -> None:
    """Print every rule."""
    rows = list(_rows(rules.catalog))
    if as_json:
        names = ("rule", "source", "severity", "mode", "from", "title")
        say([json.dumps({"rules": [dict(zip(names, row, strict=True)) for row in rows]}, indent=2)])
        return
    headers = ("RULE", "SOURCE", "SEVERITY", "MODE", "FROM", "TITLE")
    if is_terminal(sys.stdout):
        from konductor_like.cli.terminal import console, table_view

        console().print(table_view(headers, rows))
    else:
        say(columns(headers, rows))


def show_one(rules: UserRules, name: str) -> None:
    """Print one rule in full. Raises CommandError where there is none of that name."""
    lines = sheet(rules.catalog, name)
    if lines is None:
        raise CommandError(
            f"there is no rule {name!r}", hint="`konductor-like rules list` names them all", status=Exit.USAGE
        )
    say(lines)


def compare(rules: UserRules, log: str, source: Source) -> None:
    """Print the lines of a log that the rules judge otherwise than the built-in ones do."""
    before, after = packaged(), Detector(rules.catalog)
    rows: list[tuple[str, str, str, str]] = []
    number = 0
    with _opened(log) as stream:
        for number, raw in enumerate(iter(lambda: stream.readline(_LINE_BYTES), b""), 1):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            old, new = (_verdict(detector.find(line, source), source) for detector in (before, after))
            if old != new:
                rows.append((str(number), old, new, line))
    if rows:
        say(columns(("LINE", "BUILT-IN", "WITH THE FILE", "TEXT"), rows))
    tell(f"{count(number, 'line')} of {source} log: {len(rows)} judged otherwise than by the built-in rules.")


def _verdict(finding: Finding | None, source: Source) -> str:
    """What a line leads to: ``xid.94 fatal``, with ``shadow`` where it leads to nothing."""
    if finding is None:
        return "-"
    severity = Fault(finding, source, 0, None).severity
    return f"{finding.rule} {severity}{' (shadow)' if finding.shadow else ''}"


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STDIN:
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as stream:
        yield stream


def _rows(catalog: Catalog) -> Iterator[Row]:
    tables = {rule.id: rule.mode for rule in catalog.kernel_rules if rule.id == rule.table}
    for code in (*catalog.xids.values(), *catalog.sxids.values()):
        yield _row(code, Source.KERNEL, _both(code.mode, tables[code.kind.value]))
    for rule in catalog.kernel_rules:
        if rule.id not in tables:
            yield _rule_row(rule)
    for entry in dict.fromkeys(catalog.cuda_errors.values()):
        yield _row(entry, Source.POD, entry.mode)
    for rule in catalog.pod_rules:
        yield _rule_row(rule)


def _both(code: Mode, table: Mode) -> Mode:
    """The mode of a code whose table has a mode as well: the one that does less."""
    order = (Mode.ENFORCE, Mode.SHADOW, Mode.OFF)
    return max(code, table, key=order.index)


def _row(entry: Entry, source: Source, mode: Mode) -> Row:
    return Row(entry.rule, source.value, entry.severity.value, mode.value, entry.origin, entry.title)


def _rule_row(rule: PatternRule) -> Row:
    if rule.entry is not None:
        return _row(rule.entry, rule.source, rule.mode)
    title = f"finds the codes of {rule.table}"
    return Row(rule.id, rule.source.value, BY_CODE, rule.mode.value, "built-in", title)
