"""One rule as YAML that a rules file may hold as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from konductor_like.catalog import Advice, Catalog, Entry, Needs, PatternRule
from konductor_like.catalog.escalation_text import ADVICE_FIELD, texts_of
from konductor_like.model import NO_ESCALATION, FaultKind


def sheet(catalog: Catalog, name: str) -> list[str] | None:
    """The lines that say all of a rule; None where there is none of that name.

    A built-in rule is shown by its overrides, with the values in force: change one, and drop the rest.
    """
    rule = next((each for each in (*catalog.kernel_rules, *catalog.pod_rules) if each.id == name), None)
    if rule is not None and rule.entry is not None and rule.kind is FaultKind.CUSTOM:
        return _yaml({"rules": [_own(catalog, rule, rule.entry)]})
    entry = catalog.entry_or_unknown(name)
    if entry is not None:
        overrides = {
            "severity": entry.severity.value,
            "mode": entry.mode.value,
            "title": entry.title,
            "advice": _advice(catalog, entry.advice),
            **_escalation(catalog, name),
        }
    elif rule is not None:
        overrides = {"mode": rule.mode.value}
    else:
        return None
    lines = [
        "# A severity that stands here is final, whatever else the line says: keep only what you change."
    ]
    written = _yaml({"overrides": {f"{name}.{field}": value for field, value in overrides.items()}})
    if entry is not None and entry.line_decides:
        # Pasted as it stands, it would take that from the line.
        severity = f"{name}.severity:"
        written = [line.replace(severity, f"# {severity}", 1) for line in written]
    lines += written
    if rule is not None:
        lines += ["# How it looks; this cannot be overridden."]
        lines += [f"# {line}" for line in _yaml(_looks(rule))]
    return lines


def _own(catalog: Catalog, rule: PatternRule, entry: Entry) -> dict[str, Any]:
    advice = _advice(catalog, entry.advice)
    return {
        "id": rule.id,
        "source": rule.source.value,
        "severity": entry.severity.value,
        "mode": rule.mode.value,
        "title": entry.title,
        "advice": advice,
        **({"needs": entry.advice.needs.value} if advice == entry.advice.text else {}),
        **({"link": entry.link} if entry.link else {}),
        **_escalation(catalog, rule.id),
        **_looks(rule),
    }


def _looks(rule: PatternRule) -> dict[str, Any]:
    return {
        "source": rule.source.value,
        "contains": list(rule.contains),
        **({"anchor": list(rule.anchors)} if rule.anchors != rule.contains else {}),
        "patterns": list(rule.written),
        "match": list(rule.examples),
        "no_match": list(rule.counterexamples),
    }


def _escalation(catalog: Catalog, name: str) -> Mapping[str, str]:
    escalation = catalog.escalations.get(name, NO_ESCALATION)
    if not escalation.advice:
        return texts_of(escalation)
    advice = _advice(catalog, Advice(escalation.advice, Needs(escalation.needs)))
    return {**texts_of(escalation), ADVICE_FIELD: advice}


def _advice(catalog: Catalog, advice: Advice) -> str:
    """The key of our advice, or the user's own words."""
    return next((key for key, known in catalog.advice.items() if known == advice), advice.text)


def _yaml(document: Mapping[str, Any]) -> list[str]:
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=4096)
    return text.rstrip("\n").split("\n")
