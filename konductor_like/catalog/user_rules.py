"""Checking a user's rules file and laying it over the packaged catalogue (rule 18).

An override changes one field of one built-in rule: ``xid.94.severity: fatal``. A user's own rules are tried
after the built-in ones, so a new rule adds findings and hides none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from konductor_like.catalog.catalog import CODE, Catalog
from konductor_like.catalog.entries import Advice, Entry, Mode, Needs
from konductor_like.catalog.escalation_text import FIELDS as ESCALATION_FIELDS
from konductor_like.catalog.escalation_text import read_escalation, with_field
from konductor_like.catalog.patterns import PCI, RULE_FIELDS, LinearPattern, PatternRule, read_rule
from konductor_like.catalog.rules_file import (
    WHOLE_FILE,
    CatalogError,
    Override,
    Record,
    RuleFile,
    RulesError,
    quoted,
    read_rule_file,
    short,
)
from konductor_like.model import APPLICATION_XIDS, Distinct, Escalation, FaultKind, Severity, Source

T = TypeVar("T", bound=Entry)
OVERRIDABLE = ("severity", "mode", "title", "advice", *ESCALATION_FIELDS)
TITLE_CHARS_MOST = 80
ADVICE_CHARS_MOST = 120
"""Title and advice must both fit into the record on the Node."""

ANCHORS_MOST = 18
"""Literals that Loki may be asked for per source; each costs time on every byte that Loki scans (rule 11)."""
RULES_MOST = 100
PATTERNS_MOST = 8
LITERAL_CHARS_LEAST, LITERAL_CHARS_MOST = 4, 100
"""Length of a literal in characters; with a shorter one Loki would return nearly every line."""

_OWN = "write rules of your own, as docs/use/own-rules.md does for amdgpu"
REMOVED: Mapping[str, str] = {
    "amd": _OWN,
    "neuron": _OWN,
    "node.refuses_pods": "manifests/gpu_alerts.yaml has an alert for such nodes",
}
"""By a family, a rule or a field that an earlier version knew, what to do instead.

A file that names one is valid without it, and comes with a warning.
"""

_ID = re.compile(r"[a-z][a-z0-9_]{0,31}(?:\.[a-z0-9_]{1,32})+")
_FIELDS = RULE_FIELDS | {"needs", "link", *ESCALATION_FIELDS}
_CODES = ("xid", "sxid")
_NO_TAINT = "a fault of this rule taints by default; now it taints no node."
_CONDITION = "another program's word alone taints its node."
_POD = "one line of a pod taints its node, and any pod in a watched namespace can print it."


@dataclass(frozen=True, slots=True)
class UserRules:
    """A valid rules file: the resulting catalogue, and the file's contents."""

    catalog: Catalog
    overrides: Mapping[str, str] = field(default_factory=dict)
    """The overrides by key: ``xid.94.severity`` to ``fatal``."""
    own: Mapping[str, str] = field(default_factory=dict)
    """The user's rules: ``site.nic_down`` to all its fields as one text, which differs when the rule
    changed."""
    warnings: tuple[str, ...] = ()
    digest: str = "built-in"
    """The start of the SHA-256 of the file's content."""
    records: Mapping[str, Record] = field(default_factory=dict, compare=False, repr=False)
    """The record of each rule in ``own``, with its place in the file."""


def read_user_rules(text: str, file: str, base: Catalog) -> UserRules:
    """Check a file and lay it over ``base``. Raises RulesError with every error in it."""
    content, removed = _without_removed(read_rule_file(text, file))
    names = [str(record.fields.get("id")) for record in content.rules]
    problems = list(content.problems)
    catalog = base
    for override in content.overrides:
        try:
            catalog = _overridden(catalog, override, file, base, names)
        except CatalogError as problem:
            problems.append(problem)
    own: dict[str, PatternRule] = {}
    escalations: dict[str, Escalation] = {}
    records: dict[str, Record] = {}
    for record in content.rules[:RULES_MOST]:
        try:
            rule = _read_rule(record, base, own)
            escalation = read_escalation(record, partial(_read_advice, record, base.advice))
            _check_together(record, "together_with", escalation, base, names)
        except CatalogError as problem:
            problems.append(problem)
        else:
            own[rule.id], records[rule.id] = rule, record
            if escalation != Escalation():
                escalations[rule.id] = escalation
    catalog = replace(
        catalog,
        pattern_rules=(*catalog.pattern_rules, *own.values()),
        escalations={**catalog.escalations, **escalations},
    )
    problems += _check_whole_file(content, catalog)
    if problems:
        raise RulesError(problems)
    return UserRules(
        catalog,
        {f"{each.rule}.{each.field}": each.value for each in content.overrides},
        {
            name: repr((r.source, r.entry, r.contains, r.anchors, r.written, escalations.get(name)))
            for name, r in own.items()
        },
        (*removed, *_warnings(content, base, catalog)),
        hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12],
        records,
    )


def removed_names(text: str, file: str) -> list[str]:
    """Return a warning about each removed name in a rules file; none about a file that is no rules file."""
    try:
        return _without_removed(read_rule_file(text, file))[1]
    except RulesError:
        return []


def _without_removed(content: RuleFile) -> tuple[RuleFile, list[str]]:
    """Return the file without the names that an earlier version knew, and a warning about each of them."""
    warnings: list[str] = []

    def keeps(line: int | None, place: str, *names: str) -> bool:
        for name in names:
            if instead := REMOVED.get(name) or REMOVED.get(name.partition(".")[0]):
                warnings.append(f"{content.file}:{line}, {place}: this version has no {name}; {instead}.")
                return False
        return True

    def kept(line: int | None, place: str, name: str, value: Any) -> Any:
        if name != "together_with" or not isinstance(value, str):
            return value
        rules, within, span = value.partition(" within ")
        left = [each for each in rules.split(", ") if keeps(line, place, each.removesuffix(".*"))]
        return ", ".join(left) + within + span if left else "none"

    overrides = [
        replace(each, value=kept(each.line, f"{each.rule}.{each.field}", each.field, each.value))
        for each in content.overrides
        if keeps(each.line, f"{each.rule}.{each.field}", each.rule, each.field)
    ]
    rules = [
        replace(
            each,
            fields={
                name: kept(each.line, each.name, name, value)
                for name, value in each.fields.items()
                if keeps(each.line, each.name, name)
            },
        )
        for each in content.rules
    ]
    return replace(content, rules=tuple(rules), overrides=tuple(overrides)), warnings


def _overridden(catalog: Catalog, override: Override, file: str, base: Catalog, own: list[str]) -> Catalog:
    """Return the catalogue with one field of one rule changed. Raises CatalogError at the override's line."""
    rule, name = override.rule, override.field
    key = f"{rule}.{name}"
    record = Record(file, "overrides", {key: override.value}, override.line)
    if name not in OVERRIDABLE:
        raise record.error(key, f"only {', '.join(OVERRIDABLE)} can be overridden")
    family, _, code = rule.partition(".")
    is_code = family in _CODES and CODE.fullmatch(code) is not None
    pattern = next((each for each in base.pattern_rules if each.id == rule), None)
    if not is_code and pattern is None and all(each.rule != rule for each in base.named_entries.values()):
        raise record.error(key, f"there is no built-in rule {quoted(rule)}")
    if pattern is not None and pattern.table is not None and name != "mode":
        raise record.error(key, "covers a table of codes: only its mode can be set, the rest for each code")
    if name in ESCALATION_FIELDS:
        before = catalog.escalations.get(rule, Escalation())
        after = with_field(before, name, record, key, partial(_read_advice, record, base.advice))
        _check_together(record, key, after, base, own)
        return replace(catalog, escalations={**catalog.escalations, rule: after})
    value = _read_field(name, record, base, key)

    def changed(entry: T) -> T:
        fixed = entry.fixed if name == "mode" else entry.fixed | {name}
        values: dict[str, Any] = {name: value}
        return replace(entry, origin=file, fixed=fixed, **values)

    def changed_rule(each: PatternRule) -> PatternRule:
        if each.id != rule:
            return each
        mode = value if isinstance(value, Mode) else each.mode
        return replace(each, entry=each.entry and changed(each.entry), mode=mode)

    if is_code and family == "xid":
        return replace(catalog, xids={**catalog.xids, int(code): changed(catalog.xid(int(code)))})
    if is_code:
        return replace(catalog, sxids={**catalog.sxids, int(code): changed(catalog.sxid(int(code)))})
    return replace(
        catalog,
        pattern_rules=tuple(map(changed_rule, catalog.pattern_rules)),
        named_entries={
            text: changed(entry) if entry.rule == rule else entry
            for text, entry in catalog.named_entries.items()
        },
    )


def _read_field(name: str, record: Record, base: Catalog, key: str) -> Severity | Mode | Advice | str:
    if name == "severity":
        return record.one_of(key, Severity)
    if name == "mode":
        return record.mode(key)
    if name == "title":
        return _read_words(record, key, TITLE_CHARS_MOST)
    return _read_advice(record, base.advice, key)


def _check_whole_file(content: RuleFile, catalog: Catalog) -> Iterator[CatalogError]:
    if len(content.rules) > RULES_MOST:
        yield content.rules[RULES_MOST].error(
            "id", f"is one more than the {RULES_MOST} rules that a file may contain"
        )
    for source in Source:
        anchors = catalog.anchors(source)
        if len(anchors) > ANCHORS_MOST:
            reason = f"{len(anchors)} literals for {source} lines: Loki is asked for {ANCHORS_MOST} at most"
            yield CatalogError(content.file, "rules", "anchor", f"{reason} ({', '.join(map(repr, anchors))})")
        if not anchors:
            way_out = "; set WATCHED_NAMESPACES to nothing instead" if source is Source.POD else ""
            reason = f"every rule for {source} lines is off, so no fault would be found{way_out}"
            yield CatalogError(content.file, WHOLE_FILE, "mode", reason)


def _check_together(record: Record, key: str, escalation: Escalation, base: Catalog, own: list[str]) -> None:
    """Raise CatalogError where ``together_with`` names a rule that does not exist, usually a typing error."""
    families = {rule.partition(".")[0] for rule in (*own, *(rule.id for rule in base.pattern_rules))}
    families |= {FaultKind.CONDITION, FaultKind.ALERT}
    for rule in escalation.together_with.rules if escalation.together_with else ():
        whole_family = rule.endswith(".*") and rule.removesuffix(".*") in families
        if not (whole_family or rule in own or base.entry_or_unknown(rule)):
            raise record.error(key, f"there is no rule {quoted(rule)}")


def _read_rule(record: Record, base: Catalog, others: Mapping[str, PatternRule]) -> PatternRule:
    record.only(_FIELDS)
    name = _read_id(record, base, others)
    source = record.one_of("source", Source)
    entry = Entry(
        name,
        FaultKind.CUSTOM,
        record.one_of("severity", Severity),
        _read_words(record, "title", TITLE_CHARS_MOST),
        _read_advice(record, base.advice),
        mode=record.mode(),
        link=_read_link(record),
        origin=record.file,
        fixed=frozenset({"severity", "title", "advice"}),
    )
    _check_literals(record, "contains", source)
    _check_literals(record, "anchor", source)
    if len(patterns := record.texts("patterns")) > PATTERNS_MOST:
        raise record.error("patterns", f"are {len(patterns)}; {PATTERNS_MOST} at most", PATTERNS_MOST)
    return read_rule(record, source, entry, partial(_compile, record))


def _read_id(record: Record, base: Catalog, others: Mapping[str, PatternRule]) -> str:
    name = record.text("id")
    family = name.partition(".")[0]
    families = {rule.id.partition(".")[0] for rule in base.pattern_rules}
    # Rules named ``node.…`` of users are older than the family, and a removed family is free for them.
    families |= {kind.value for kind in FaultKind} - {FaultKind.CUSTOM, FaultKind.NODE, *REMOVED}
    if family in families:
        raise record.error("id", f"{quoted(family)} is a built-in family; change its rules under overrides")
    if not _ID.fullmatch(name):
        raise record.error("id", f"{quoted(name)} must be like site.nic_down: small letters, with a dot")
    if name in others or name in base.named_entries:
        raise record.error("id", f"{name!r} is defined twice")
    return name


def _read_link(record: Record) -> str:
    link = record.optional_text("link")
    if link and not (re.fullmatch(r"https?://\S{1,300}", link) and link.isprintable()):
        raise record.error("link", f"{quoted(link)} is no http:// or https:// address")
    return link


def _check_literals(record: Record, name: str, source: Source) -> None:
    for number, literal in enumerate(record.optional_texts(name)):
        if not LITERAL_CHARS_LEAST <= len(literal.strip()) <= len(literal) <= LITERAL_CHARS_MOST:
            lengths = f"{LITERAL_CHARS_LEAST} to {LITERAL_CHARS_MOST} characters"
            raise record.error(name, f"{quoted(literal)} must have {lengths}", number)
        if not literal.isprintable():
            raise record.error(name, f"{quoted(literal)} must be printable", number)
        if source is Source.KERNEL and ("\\" in literal or not literal.isascii()):
            reason = (
                f"{quoted(literal)} never occurs in a kernel line: the kernel writes such characters as \\x.."
            )
            raise record.error(name, reason, number)


def _compile(record: Record, number: int, pattern: str) -> LinearPattern:
    if "?P<gpu>" in pattern or "?<gpu>" in pattern:
        raise record.error("patterns", "the group gpu is reserved: write {pci} for an address", number)
    try:
        compiled = LinearPattern(pattern.replace("{pci}", PCI))
    except ValueError as error:
        raise record.error("patterns", f"'{short(pattern)}': {error}", number) from error
    if compiled.search("", 0, 0) is not None:
        raise record.error(
            "patterns", f"'{short(pattern)}' matches an empty text, so it matches every line", number
        )
    return compiled


def _read_words(record: Record, field: str, most: int) -> str:
    """Return a text in the user's words, which goes into log lines and onto the Node."""
    text = record.text(field)
    if len(text) > most:
        raise record.error(field, f"is longer than {most} characters")
    if not text.isprintable():
        raise record.error(field, f"{quoted(text)} must be printable, on one line")
    return text


def _read_advice(record: Record, known: Mapping[str, Advice], field: str = "advice") -> Advice:
    """Return the packaged advice of that key, or the user's own words with what the machine ``needs``."""
    text = record.text(field)
    needs = record.one_of("needs", Needs) if record.optional_text("needs") else None
    if not re.fullmatch(r"[a-z0-9_]+", text):
        return Advice(_read_words(record, field, ADVICE_CHARS_MOST), needs or Needs.INSPECTION)
    if text not in known:
        keys = ", ".join(sorted(known))
        raise record.error(field, f"{quoted(text)} is neither a sentence nor one of {keys}")
    return known[text] if needs is None else Advice(known[text].text, needs)


def _warnings(content: RuleFile, base: Catalog, catalog: Catalog) -> Iterator[str]:
    """Yield warnings about what is allowed but mostly a mistake; ``catalog`` is ``base`` with the file."""
    for override in content.overrides:
        for warning in _override_warnings(override, base, catalog):
            yield f"{content.file}:{override.line}, {override.rule}.{override.field}: {warning}"
    for record in content.rules:
        entry = catalog.entry(record.text("id"))
        if entry is not None and entry.severity.taints and record.text("source") == Source.POD:
            yield f"{content.file}:{record.line}, {entry.rule}: {_POD}"
    for source in Source:
        before = base.anchors(source)
        for anchor in catalog.anchors(source):
            if anchor not in before:
                yield (
                    f"{content.file}: Loki is asked for one more literal in {source} lines, {anchor!r}; "
                    "every poll costs a little more."
                )


def _override_warnings(override: Override, base: Catalog, catalog: Catalog) -> Iterator[str]:
    rule = override.rule
    before, now = base.entry_or_unknown(rule), catalog.entry_or_unknown(rule)
    is_kernel_rule = any(rule == each.id for each in base.kernel_rules)
    if override.field == "severity" and now is not None and now.severity.taints:
        if rule in APPLICATION_XIDS:
            yield "a bug in a job can cause this Xid, and then taints a healthy node."
        elif rule.partition(".")[0] in (FaultKind.CONDITION, FaultKind.ALERT):
            yield _CONDITION
        elif rule.partition(".")[0] not in (*_CODES, FaultKind.NODE) and not is_kernel_rule:
            yield _POD
    if override.field == "severity" and before is not None and now is not None:
        if before.severity is Severity.FATAL and not now.severity.taints:
            yield _NO_TAINT
        if before.line_decides:
            yield "this severity is final; details in the line (RST, registers, Fatal) are ignored."
    if override.field == "threshold" and override.rule in APPLICATION_XIDS:
        threshold = catalog.escalations[override.rule].threshold
        if threshold is not None and threshold.distinct is not Distinct.JOBS:
            yield "one job that fails often enough taints a healthy node; count `from distinct jobs`."
    if override.field == "defer_seconds" and catalog.escalations[override.rule].defer_seconds:
        yield "a fatal line waits, and taints no node if another node seems to be the root cause."
    acted_on = before is not None and before.severity is Severity.FATAL and before.mode is Mode.ENFORCE
    if override.field == "mode" and override.value != Mode.ENFORCE and (acted_on or rule in _CODES):
        yield _NO_TAINT
