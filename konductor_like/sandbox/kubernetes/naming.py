"""What Kubernetes accepts as a name, a label and an annotation key; problems in the server's words."""

from __future__ import annotations

import re

_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def _regex_problem(text: str, expression: str, rule: str, *examples: str) -> list[str]:
    if re.fullmatch(expression, text):
        return []
    said = " or ".join(f"'{example}', " for example in examples)
    return [f"{rule} (e.g. {said}regex used for validation is '{expression}')"]


def _length_problem(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} bytes"] if len(text.encode()) > limit else []


def subdomain_problems(text: str) -> list[str]:
    """A DNS subdomain: the name of a Node, a Lease, an Event."""
    rule = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _length_problem(text, 253) + _regex_problem(text, _SUBDOMAIN, rule, "example.com")


def dns_label_problems(text: str) -> list[str]:
    """A DNS label: the name of a Namespace."""
    rule = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        "and must start and end with an alphanumeric character"
    )
    return _length_problem(text, 63) + _regex_problem(text, _DNS_LABEL, rule, "my-name", "123-abc")


def label_key_problems(text: str) -> list[str]:
    """The key of a label, an annotation or a taint."""
    rule = (
        "must consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    examples = ("MyName", "my.name", "123-abc")
    parts = text.split("/")
    if len(parts) > 2:
        problem = _regex_problem("", _QUALIFIED, rule, *examples)[0]
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {problem} {optional}"]
    problems: list[str] = []
    if len(parts) == 2:
        found = subdomain_problems(parts[0]) if parts[0] else ["must be non-empty"]
        problems += [f"prefix part {problem}" for problem in found]
    name = parts[-1]
    found = _length_problem(name, 63) if name else ["must be non-empty"]
    found += _regex_problem(name, _QUALIFIED, rule, *examples)
    return problems + [f"name part {problem}" for problem in found]


def label_value_problems(text: str) -> list[str]:
    """The value of a label or a taint; it may be empty."""
    rule = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    expression = f"({_QUALIFIED})?"
    return _length_problem(text, 63) + _regex_problem(text, expression, rule, "MyValue", "my_value", "12345")
