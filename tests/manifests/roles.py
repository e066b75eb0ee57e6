"""The shipped roles as rules of the stand-in: the rights that a file's bindings grant to a user or group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from konductor_like_sandbox.kubernetes import Rule
from tools.manifests.manifests import only

CONTROLLER = "system:serviceaccount:konductor-like:konductor-like"


def rules_of(docs: Sequence[Mapping[str, Any]], user: str = CONTROLLER) -> tuple[Rule, ...]:
    """Return every rule bound to ``user`` (or a group); rules of a RoleBinding have its namespace."""
    return tuple(rule for binding in docs if _binds(binding, user) for rule in _granted(docs, binding))


def single(rules: Sequence[Rule]) -> Iterator[Rule]:
    """Split the rules: one verb on one resource each."""
    for rule in rules:
        for verb in rule.verbs:
            for resource in rule.resources:
                yield replace(rule, verbs=(verb,), resources=(resource,))


def _binds(doc: Mapping[str, Any], user: str) -> bool:
    return doc["kind"] in ("ClusterRoleBinding", "RoleBinding") and any(
        _name(subject) == user for subject in doc["subjects"]
    )


def _name(subject: Mapping[str, Any]) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return str(subject["name"])


def _granted(docs: Sequence[Mapping[str, Any]], binding: Mapping[str, Any]) -> Iterator[Rule]:
    reference = binding["roleRef"]
    namespace = binding["metadata"].get("namespace", "")
    candidates = [doc for doc in docs if doc["metadata"].get("namespace", "") in ("", namespace)]
    for rule in only([dict(doc) for doc in candidates], reference["kind"], reference["name"])["rules"]:
        assert set(rule) <= {"verbs", "resources", "apiGroups", "resourceNames"}, rule
        yield Rule(
            tuple(rule["verbs"]),
            tuple(rule["resources"]),
            tuple(rule["apiGroups"]),
            tuple(rule.get("resourceNames", ())),
            (namespace,) if namespace else (),
        )
