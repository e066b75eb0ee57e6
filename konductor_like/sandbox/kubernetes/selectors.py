"""Label and field selectors: parsed, refused in the server's words, and matched."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from konductor_like.sandbox.kubernetes.errors import bad_request
from konductor_like.sandbox.kubernetes.naming import label_key_problems

LabelTest = Callable[[Mapping[str, str]], bool]
FieldTest = Callable[[Mapping[str, str]], bool]

_TOKENS = re.compile(r"\s*(?:(?P<symbol>==|!=|[=!(),<>])|(?P<word>[^\s=!(),<>]+)|(?P<end>$))")
_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_SYMBOLS = ("", ",", "=", "==", "!=", "(", ")", "<", ">")
_FIELD_TERM = re.compile(r"(?P<name>.*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)


def parse_labels(text: str) -> LabelTest:
    """A test for ``labelSelector``. Raises ``ApiError`` (400) if it cannot be read."""
    return _LabelParser(text).parse()


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [match.group().strip() for match in _TOKENS.finditer(text)]
        if self._tokens[-1] != "":
            self._tokens.append("")

    def parse(self) -> LabelTest:
        tests: list[LabelTest] = []
        while self._peek() != "":
            if self._peek() in _SYMBOLS:
                raise bad_request(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
            tests.append(self._requirement())
            following = self._next()
            if following == "":
                break
            if following != ",":
                raise bad_request(f"found '{following}', expected: ',' or 'end of string'")
            if self._peek() in _SYMBOLS:
                raise bad_request(f"found '{self._peek()}', expected: identifier after ','")
        return lambda labels: all(test(labels) for test in tests)

    def _peek(self) -> str:
        return self._tokens[0]

    def _next(self) -> str:
        return self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]

    def _requirement(self) -> LabelTest:
        negated = self._peek() == "!"
        if negated:
            self._next()
        key = self._next()
        if key in _SYMBOLS:
            raise _unreadable(f"found '{key}', expected: identifier")
        problems = label_key_problems(key)
        if problems:
            raise _unreadable(f'<nil>: Invalid value: "{key}": {"; ".join(problems)}')
        if self._peek() in ("", ","):
            return (lambda labels: key not in labels) if negated else (lambda labels: key in labels)
        operator = self._next()
        if operator in ("in", "notin"):
            values = self._values()
            if operator == "in":
                return lambda labels: labels.get(key) in values
            return lambda labels: labels.get(key) not in values
        if operator in ("=", "=="):
            value = self._value()
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            value = self._value()
            return lambda labels: labels.get(key) != value
        if operator in ("<", ">"):
            return _comparison(key, operator, self._value())
        raise _unreadable(f"found '{operator}', expected: {_OPERATORS}")

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._next()
        if not re.fullmatch(r"[^=!(),<>]+", value):
            raise _unreadable(f"found '{value}', expected: identifier")
        return value

    def _values(self) -> Collection[str]:
        if (opening := self._next()) != "(":
            raise _unreadable(f"found '{opening}' expected: '('")
        if self._peek() in _SYMBOLS and self._peek() not in (",", ")"):
            raise _unreadable(f"found '{self._peek()}', expected: ',', ')' or identifier")
        values = {self._value() if self._peek() != ")" else ""}
        while (following := self._next()) == ",":
            values.add(self._value() if self._peek() != ")" else "")
        if following != ")":
            raise _unreadable(f"found '{following}', expected: ',' or ')'")
        return values


def _unreadable(why: str) -> Exception:
    return bad_request(f"unable to parse requirement: {why}")


def _comparison(key: str, operator: str, bound: str) -> LabelTest:
    if not re.fullmatch(r"-?\d+", bound):
        raise _unreadable(
            f"values[0]: Invalid value: \"{bound}\": for 'Gt', 'Lt' operators, the value must be an integer"
        )

    def test(labels: Mapping[str, str]) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?\d+", value):
            return False
        return int(value) > int(bound) if operator == ">" else int(value) < int(bound)

    return test


_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
FIELDS: dict[str, tuple[str, ...]] = {
    "nodes": ("metadata.name", "spec.unschedulable"),
    "namespaces": ("metadata.name", "status.phase"),
    "leases": ("metadata.name", "metadata.namespace"),
    "resourceslices": ("metadata.name", "spec.nodeName", "spec.driver"),
    "pods": (
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    "events": (
        "metadata.name",
        "metadata.namespace",
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}
"""What each table may be selected by."""


def selectable_fields(table: str, item: Mapping[str, Any]) -> dict[str, str]:
    """The values that ``item`` is selected by."""
    return {field: _field_text(item, field) for field in FIELDS.get(table, _COMMON_FIELDS)}


def _field_text(item: Mapping[str, Any], field: str) -> str:
    value: Any = item
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if field == "source":
        value = (value or {}).get("component") or item.get("reportingComponent")
    if field == "spec.unschedulable":
        return "true" if value else "false"
    return str(value or "")


def parse_fields(text: str, table: str) -> FieldTest:
    """A test for ``fieldSelector``. Raises ``ApiError`` (400) if it cannot be read or names another field."""
    tests: list[FieldTest] = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        match = _FIELD_TERM.fullmatch(term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        tests.append(_field_test(match["name"], match["operator"], match["value"], table))
    return lambda fields: all(test(fields) for test in tests)


def _field_test(name: str, operator: str, value: str, table: str) -> FieldTest:
    if name not in FIELDS.get(table, _COMMON_FIELDS):
        raise bad_request(f"field label not supported: {name}")
    wanted = re.sub(r"\\([\\,=])", r"\1", value)
    if operator == "!=":
        return lambda fields: fields[name] != wanted
    return lambda fields: fields[name] == wanted
