"""The form of a rules file: reading YAML into records with line numbers, whatever their fields mean.

The YAML node tree is read instead of plain values. So every error can name its line, a repeated key is found,
and ``mode: off`` stays the word that was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeGuard, TypeVar

import yaml

from konductor_like.catalog.entries import Mode
from konductor_like.model.text import clipped

E = TypeVar("E", bound=StrEnum)

_SHOWN_CHARS = 80
"""Characters of a user's text that a message quotes, so that the message stays readable."""
FILE_BYTES_MOST = 1024 * 1024
"""Bytes of a rules file; a ConfigMap cannot contain more."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEPTH_MOST = 8
_SECTIONS = ("source", "overrides", "rules")


def short(text: str) -> str:
    """Return a user's text for a message: on one line, and cut."""
    shown = text if text.isprintable() else repr(text)[1:-1]
    return clipped(shown, _SHOWN_CHARS)


def quoted(value: object) -> str:
    """Return the same in quotes, as Python writes a value."""
    if not isinstance(value, str):
        return short(repr(value))
    return repr(clipped(value, _SHOWN_CHARS))


WHOLE_FILE = "the file"
"""The entry of an error about a file as a whole."""


class CatalogError(ValueError):
    """One error in one file, because of which the whole file is refused. ``line`` counts from 1, if known."""

    hint = "The catalogue is part of the package: reinstall konductor-like, or undo the change to the file."

    def __init__(self, file: str, entry: str, field: str, reason: str, line: int | None = None) -> None:
        place = file if line is None else f"{file}:{line}"
        whole = entry == WHOLE_FILE
        where = [
            *([] if whole else [short(entry)]),
            *([] if whole and field == "content" else [short(field)]),
        ]
        super().__init__(f"{', '.join([place, *where])}: {reason}")
        self.line = line


class RulesError(ValueError):
    """A user's rules file is refused as a whole, because of ``problems``, in the order of their lines."""

    hint = "Correct the file and check it with `konductor-like rules test FILE`."

    def __init__(self, problems: Sequence[CatalogError]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a file: its fields, and its place for error messages."""

    file: str
    name: str
    fields: Mapping[str, Any]
    line: int | None = None
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each field, and of each item of a list under a key such as ``match 2``."""

    def error(self, field: str, reason: str, number: int | None = None) -> CatalogError:
        """Return the error about a field of this entry, or about item ``number`` of the field."""
        line = self.lines.get(field, self.line)
        return CatalogError(self.file, self.name, field, reason, self.lines.get(f"{field} {number}", line))

    def text(self, field: str) -> str:
        """Return a text that must be there."""
        value = self.optional_text(field)
        if not value:
            raise self.error(field, "is missing")
        return value

    def optional_text(self, field: str) -> str:
        """Return a text; empty where the field is missing."""
        value = self.fields.get(field, "")
        if not isinstance(value, str):
            raise self.error(field, f"{quoted(value)} is not a text")
        return value

    def integer(self, field: str) -> int:
        """Return a number, decimal or 0x…, that must be there."""
        value = self.fields.get(field, "")
        if isinstance(value, int):
            return value
        try:
            return int(value, 0)
        except (TypeError, ValueError):
            raise self.error(field, f"{quoted(value)} is not a number") from None

    def optional_integer(self, field: str) -> int | None:
        """Return a number; None where the field is missing."""
        return None if self.fields.get(field, "") == "" else self.integer(field)

    def one_of(self, field: str, kind: type[E]) -> E:
        """Return a value of a closed list, which must be there."""
        value = self.text(field)
        try:
            return kind(value)
        except ValueError:
            raise self.error(field, f"{quoted(value)} is not one of {', '.join(kind)}") from None

    def mode(self, field: str = "mode") -> Mode:
        """Return the rule's mode, by default ``enforce``; YAML's bare ``off`` is read as false."""
        value = self.optional_text(field)
        if not value:
            return Mode.ENFORCE
        return Mode.OFF if value == "false" else self.one_of(field, Mode)

    def flag(self, field: str) -> bool:
        """Return whether the field is ``true``; a missing field is false."""
        value = self.optional_text(field)
        if value not in ("", "true", "false"):
            raise self.error(field, f"{quoted(value)} is not true or false")
        return value == "true"

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of at least one text, none of them empty."""
        value = self.fields.get(field)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise self.error(field, "must be a list of texts")
        for number, item in enumerate(value):
            if not item:
                raise self.error(field, "has an empty text", number)
        return tuple(value)

    def optional_texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts, or one text as a list; empty where the field is missing."""
        value = self.fields.get(field)
        if value is None or isinstance(value, str):
            return (value,) if value else ()
        return self.texts(field)

    def only(self, known: frozenset[str]) -> None:
        """Raise CatalogError at a field that is not in ``known``, such as a misspelt one."""
        for name in self.fields:
            if name not in known:
                raise self.error(name, "is not a known field")


@dataclass(frozen=True, slots=True)
class Override:
    """``xid.94.severity: fatal``: one field of one built-in rule."""

    rule: str
    field: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The content of a file. A rule without ``source`` has the source of the file."""

    file: str
    rules: tuple[Record, ...] = ()
    overrides: tuple[Override, ...] = ()
    problems: tuple[CatalogError, ...] = ()
    """The errors in the form of the file; what they concern is neither in ``rules`` nor in ``overrides``."""


@dataclass(slots=True)
class _Reading:
    file: str
    problems: list[CatalogError] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def problem(self, node: yaml.Node, entry: str, name: str, reason: str) -> None:
        self.problems.append(CatalogError(self.file, entry, name, reason, _line(node)))

    def pairs(self, node: yaml.Node, entry: str) -> Iterator[tuple[str, yaml.Node]]:
        """Yield a mapping's keys and values; report keys that are not plain texts, and repeated keys."""
        if not isinstance(node, yaml.MappingNode):
            return self.problem(node, entry, "content", "must be fields, such as `name: value`")
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.problem(key, entry, "content", "a field's name must be a text")
            elif key.value in keys:
                self.problem(key, entry, key.value, "is defined twice")
            elif id(value) in self.seen:
                # An alias inside itself never ends, and a few of them make gigabytes.
                self.problem(key, entry, key.value, "an alias (*name) is not allowed: write the value out")
            else:
                keys.add(key.value)
                self.seen.add(id(value))
                yield key.value, value

    def rule(self, node: yaml.Node, number: int, source: str) -> Record:
        values: dict[str, str | list[str]] = {"source": source} if source else {}
        lines: dict[str, int] = {}
        fields = list(self.pairs(node, f"rule {number}"))
        written = next((value.value for key, value in fields if key == "id" and _is_text(value)), "")
        name = f"rule {number} ({written})" if written else f"rule {number}"
        for key, value in fields:
            lines[key] = _line(value)
            if _is_text(value):
                values[key] = value.value
            elif isinstance(value, yaml.SequenceNode) and all(map(_is_text, value.value)):
                values[key] = [item.value for item in value.value]
                lines |= {f"{key} {index}": _line(item) for index, item in enumerate(value.value)}
            else:
                self.problem(value, name, key, "must be a text or a list of texts")
        return Record(self.file, name, values, _line(node), lines)


def read_rule_file(text: str, file: str) -> RuleFile:
    """Read one file. Raises RulesError for a text that is no YAML, or too large; else see ``problems``."""
    reading = _Reading(file)
    if len(text.encode("utf-8", "replace")) > FILE_BYTES_MOST:
        raise RulesError([CatalogError(file, WHOLE_FILE, "size", "is more than 1 MiB")])
    try:
        _check_depth(text, file)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise RulesError([_syntax(file, error)]) from error
    if root is None or _empty(root):
        return RuleFile(file)
    sections: dict[str, yaml.Node] = {}
    for name, node in reading.pairs(root, WHOLE_FILE):
        if name in _SECTIONS:
            sections[name] = node
        else:
            reading.problem(node, WHOLE_FILE, name, f"is not one of {', '.join(_SECTIONS)}")
    source = sections.get("source")
    default = source.value if _is_text(source) else ""
    listed = sections.get("rules")
    nodes = listed.value if isinstance(listed, yaml.SequenceNode) else ()
    if listed is not None and not (isinstance(listed, yaml.SequenceNode) or _empty(listed)):
        reading.problem(listed, WHOLE_FILE, "rules", "must be a list")
    rules = []
    for number, rule_node in enumerate(nodes, 1):
        known, record = len(reading.problems), reading.rule(rule_node, number, default)
        rules += [record] if len(reading.problems) == known else []
    overrides = list(_overrides(reading, sections["overrides"])) if "overrides" in sections else []
    return RuleFile(file, tuple(rules), tuple(overrides), tuple(reading.problems))


def _overrides(reading: _Reading, node: yaml.Node) -> Iterator[Override]:
    if _empty(node):
        return
    for key, value in reading.pairs(node, "overrides"):
        rule, dot, name = key.rpartition(".")
        if not dot or not rule:
            reading.problem(value, "overrides", key, "must be RULE.FIELD, such as xid.94.severity")
        elif not _is_text(value):
            reading.problem(value, "overrides", key, "must be a text")
        else:
            yield Override(rule, name, value.value, _line(value))


def _check_depth(text: str, file: str) -> None:
    """Refuse a file so deeply nested that building its tree would end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEPTH_MOST:
                reason = f"more than {_DEPTH_MOST} levels deep"
                raise RulesError([CatalogError(file, WHOLE_FILE, "content", reason, _line(event))])
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _syntax(file: str, error: yaml.YAMLError) -> CatalogError:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error).splitlines()[0]
    if "cannot start any token" in reason:
        reason += " (a tab?)"
    if mark is None:
        return CatalogError(file, WHOLE_FILE, "syntax", reason)
    return CatalogError(file, f"column {mark.column + 1}", "syntax", reason, mark.line + 1)


def _line(node: yaml.Node | yaml.Event) -> int:
    mark = node.start_mark
    return 1 if mark is None else int(mark.line) + 1


def _is_text(node: yaml.Node | None) -> TypeGuard[yaml.ScalarNode]:
    return isinstance(node, yaml.ScalarNode) and not _empty(node)


def _empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
