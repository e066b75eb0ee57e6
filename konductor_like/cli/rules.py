"""``konductor-like rules``: list the rules in force, show one rule in full, check a rules file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from konductor_like.cli.columns import columns, count
from konductor_like.cli.completion import complete_rules
from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import examples
from konductor_like.cli.options import FormatOption, Verbose, not_empty
from konductor_like.cli.output import say, say_document, say_json, say_table, tell, warn, yaml_lines
from konductor_like.exits import Exit
from konductor_like.model import NO_ESCALATION, Fault, FaultKind, Finding, Source
from konductor_like.model.text import clipped

if TYPE_CHECKING:
    from konductor_like.catalog import Advice, Catalog, Entry, Mode, PatternRule, UserRules

RULES_VARIABLE = "KONDUCTOR_RULES_FILE"
COLUMNS = ("rule", "source", "severity", "mode", "from", "title")
Row = tuple[str, str, str, str, str, str]
BY_CODE = "by code"
"""Shown as the severity of a rule whose codes each have their own severity."""
STDIN = "-"
_FINAL = "# Keep only the fields that you change. A severity is final: details in the line are then ignored."
_MODES = ("enforce", "shadow", "off")
File = Annotated[
    Path | None,
    typer.Option(
        "-f",
        "--file",
        metavar="FILE",
        envvar=RULES_VARIABLE,
        show_envvar=True,
        help="A rules file of your own, laid over the built-in rules.",
    ),
]


@examples("rules list", "rules list --file rules.yaml -o json")
def list_rules(*, file: File = None, output: FormatOption = "table", _verbose: Verbose = False) -> None:
    """List every rule: severity, mode, and where it comes from."""
    rows = list(_rows(load(file).catalog))
    if output == "table":
        say_table([name.upper() for name in COLUMNS], rows)
    elif output == "name":
        say(row[0] for row in rows)
    else:
        say_document({"rules": [dict(zip(COLUMNS, row, strict=True)) for row in rows]}, output)


@examples("rules show xid 94", "rules show --file rules.yaml nccl.socket")
def show_rule(
    rule: Annotated[
        list[str],
        typer.Argument(
            metavar="RULE",
            help="Its name: xid 94, 94, nccl.socket.",
            callback=not_empty,
            autocompletion=complete_rules,
        ),
    ],
    *,
    file: File = None,
    output: FormatOption = "yaml",
    _verbose: Verbose = False,
) -> None:
    """Show one rule as YAML that can be pasted into a rules file."""
    import yaml  # slow

    from konductor_like.catalog.fault_names import parse_fault_name

    catalog, text = load(file).catalog, " ".join(rule)
    name, meant = parse_fault_name(text, catalog)
    lines = rule_yaml(catalog, name) if name else None
    if name is None or lines is None:
        known = "`konductor-like rules list` lists all rules"
        hint = f"did you mean {' or '.join(meant)}?" if meant else known
        raise CommandError(f"there is no rule {clipped(text, 80)!r}", hint=hint, status=Exit.USAGE)
    match output:
        case "yaml":
            say(lines)
        case "json":
            say_json(yaml.safe_load("\n".join(lines)))  # without the comments
        case "name":
            say([name])
        case "table":
            entry = catalog.entry_or_unknown(name)
            rows = [row for row in _rows(catalog) if row[0] == name]
            unknown = [_row(entry, Source.KERNEL, entry.mode)] if entry else []
            say_table([column.upper() for column in COLUMNS], rows or unknown)


@examples("rules test rules.yaml", "rules test rules.yaml /var/log/kern.log")
def check_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The rules file to check.")],
    lines: Annotated[
        str | None,
        typer.Argument(metavar="[LOG]", help="A log file (- for standard input) to compare the rules on."),
    ] = None,
    *,
    source: Annotated[
        Source, typer.Option("--source", help="Whether the log is the kernel's or a pod's.")
    ] = Source.KERNEL,
    _verbose: Verbose = False,
) -> None:
    """Check a rules file of your own, and try it on a log.

    Every problem names its line of the file. With a log, the command shows each line for which the file
    changes the result. It exits with 2 if the controller would refuse the file; a warning is not an error.
    """
    rules = load(file)
    for warning in rules.warnings:
        warn(warning)
    tell(f"{file.name} is good: {in_short(rules)}.")
    if lines is not None:
        _compare(rules, lines, source)


def load(file: Path | None) -> UserRules:
    """Load the built-in rules with the file's changes. Raises CommandError with all problems of the file."""
    from konductor_like.catalog import RulesError
    from konductor_like.detection.validate_rules import load_rules

    if file is not None and not file.exists():
        if str(file) != os.environ.get(RULES_VARIABLE):  # the controller waits for the file of its setting
            raise CommandError(f"{file}: No such file or directory", status=Exit.USAGE)
        warn(f"{file}: no such file; these are the built-in rules.")
    try:
        rules = load_rules(file)
    except RulesError as error:
        problems = map(str, error.problems)
        hint = "the controller would refuse this file"
        raise CommandError(*problems, hint=hint, status=Exit.USAGE) from error
    return rules


def digest_of(file: Path | None) -> str:
    """Return the digest of the built-in rules with the file's changes; empty if the file has an error."""
    from konductor_like.catalog import RulesError
    from konductor_like.detection.validate_rules import load_rules

    try:
        return load_rules(file).digest
    except RulesError:
        return ""


def in_short(rules: UserRules) -> str:
    """Return ``2 overrides, 1 rule``."""
    return f"{count(len(rules.overrides), 'override')}, {count(len(rules.own), 'rule')}"


def _compare(rules: UserRules, log: str, source: Source) -> None:
    """Print the lines of a log whose result differs between these rules and the built-in rules."""
    from konductor_like.detection import Detector, packaged

    detectors = packaged(), Detector(rules.catalog)
    rows: list[tuple[str, str, str, str]] = []
    number = 0
    with nullcontext(sys.stdin.buffer) if log == STDIN else Path(log).open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            before, after = (_result(each.find(line, source), source) for each in detectors)
            if before != after:
                rows.append((str(number), before, after, line))
    if rows:
        say(columns(("LINE", "BUILT-IN", "WITH THE FILE", "TEXT"), rows))
    differ = "differs" if len(rows) == 1 else "differ"
    tell(f"{count(number, 'line')} of {source} log: {len(rows)} {differ} from the built-in rules.")


def _result(finding: Finding | None, source: Source) -> str:
    """Return the fault of a line and its severity: ``xid.94 fatal``, ``xid.94 fatal (shadow)``, or ``-``."""
    if finding is None:
        return "-"
    severity = Fault(finding, source, 0, None).severity
    return f"{finding.rule} {severity}{' (shadow)' if finding.shadow else ''}"


def _rows(catalog: Catalog) -> Iterator[Row]:
    tables = {rule.id: rule.mode for rule in catalog.kernel_rules if rule.id == rule.table}
    for code in (*catalog.xids.values(), *catalog.sxids.values()):
        modes = (code.mode, tables[code.kind.value])  # the mode that does less applies
        yield _row(code, Source.KERNEL, max(modes, key=_MODES.index))
    for entry in dict.fromkeys(catalog.named_entries.values()):
        yield _row(entry, Source.POD if entry.kind.has_line else "node", entry.mode)
    for rule in (*catalog.kernel_rules, *catalog.pod_rules):
        if rule.entry is not None:
            yield _row(rule.entry, rule.source, rule.mode)
        elif rule.id not in tables:
            title = f"finds the codes of {rule.table}"
            yield (rule.id, rule.source.value, BY_CODE, rule.mode.value, "built-in", title)


def _row(entry: Entry, source: str, mode: Mode) -> Row:
    return (entry.rule, str(source), entry.severity.value, mode.value, entry.origin, entry.title)


def rule_yaml(catalog: Catalog, name: str) -> list[str] | None:
    """Return the YAML of a whole rule; None if there is no rule of this name.

    The YAML of a built-in rule lists its overrides with the values in force: a user changes one of them and
    removes the others.
    """
    rule = next((each for each in (*catalog.kernel_rules, *catalog.pod_rules) if each.id == name), None)
    if rule is not None and rule.entry is not None and rule.entry.kind is FaultKind.CUSTOM:
        return yaml_lines({"rules": [_own(catalog, rule, rule.entry)]})
    entry = catalog.entry_or_unknown(name)
    if entry is not None:
        overrides = {**_of_entry(catalog, entry, entry.mode), **_escalation(catalog, name)}
    elif rule is not None:
        overrides = {"mode": rule.mode.value}
    else:
        return None
    lines = yaml_lines({"overrides": {f"{name}.{field}": value for field, value in overrides.items()}})
    if entry is not None and entry.line_decides:
        # A pasted severity would be final, so that the line no longer decides: comment it out.
        severity = f"{name}.severity:"
        lines = [line.replace(severity, f"# {severity}", 1) for line in lines]
    lines.insert(0, _FINAL)
    if rule is not None:
        lines += ["# How the rule finds its lines; this cannot be overridden."]
        lines += [f"# {line}" for line in yaml_lines(_search(rule))]
    return lines


def _own(catalog: Catalog, rule: PatternRule, entry: Entry) -> dict[str, Any]:
    fields = _of_entry(catalog, entry, rule.mode)
    return {
        "id": rule.id,
        "source": rule.source.value,
        **fields,
        **({"needs": entry.advice.needs.value} if fields["advice"] == entry.advice.text else {}),
        **({"link": entry.link} if entry.link else {}),
        **_escalation(catalog, rule.id),
        **_search(rule),
    }


def _of_entry(catalog: Catalog, entry: Entry, mode: Mode) -> dict[str, str]:
    return {
        "severity": entry.severity.value,
        "mode": mode.value,
        "title": entry.title,
        "advice": _advice(catalog, entry.advice),
    }


def _search(rule: PatternRule) -> dict[str, Any]:
    return {
        "source": rule.source.value,
        "contains": list(rule.contains),
        **({"anchor": list(rule.anchors)} if rule.anchors != rule.contains else {}),
        "patterns": list(rule.written),
        "match": list(rule.examples),
        "no_match": list(rule.counterexamples),
    }


def _escalation(catalog: Catalog, name: str) -> Mapping[str, str]:
    from konductor_like.catalog import Advice, Needs
    from konductor_like.catalog.escalation_text import texts_of

    escalation = catalog.escalations.get(name, NO_ESCALATION)
    if not escalation.advice:
        return texts_of(escalation)
    advice = _advice(catalog, Advice(escalation.advice, Needs(escalation.needs)))
    return {**texts_of(escalation), "escalated_advice": advice}


def _advice(catalog: Catalog, advice: Advice) -> str:
    """Return the key of a built-in advice, or the user's own text."""
    return next((key for key, known in catalog.advice.items() if known == advice), advice.text)
