"""Validation of objects: the part of Kubernetes' rules that concerns writers of Nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from konductor_like_sandbox.kubernetes import job_objects
from konductor_like_sandbox.kubernetes.errors import Cause
from konductor_like_sandbox.kubernetes.resources import EVENTS, JOBS, LEASES, NAMESPACES, NODES, Resource

ANNOTATIONS_BYTES = 256 * 1024
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def problems(resource: Resource, item: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Cause]:
    """Return the errors of ``item``; ``old`` is the object that it would replace, if any."""
    found = _metadata(resource, item["metadata"])
    if resource is NODES:
        found += _node(item, old)
    elif resource is LEASES:
        found += _lease(item["spec"])
    elif resource is EVENTS:
        found += _event(item)
    elif resource is JOBS and old is None:
        found += job_objects.problems(item)
    if old is not None:
        found += _immutable(item["metadata"], old["metadata"])
    return found


def _metadata(resource: Resource, meta: Mapping[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    name = meta.get("name", "")
    if not name:
        found.append(Cause.required("metadata.name", "name or generateName is required"))
    elif resource is not EVENTS:  # core Events accept any name that can be part of a path
        check = dns_label_problems if resource is NAMESPACES else subdomain_problems
        found += [Cause.invalid("metadata.name", f'"{name}"', problem) for problem in check(name)]
    for key, value in meta.get("labels", {}).items():
        for problem in label_key_problems(key):
            found.append(Cause.invalid("metadata.labels", f'"{key}"', problem))
        for problem in label_value_problems(value):
            found.append(Cause.invalid("metadata.labels", f'"{value}"', problem))
    annotations = meta.get("annotations", {})
    for key in annotations:
        for problem in label_key_problems(key.lower()):
            found.append(Cause.invalid("metadata.annotations", f'"{key}"', problem))
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_BYTES:
        message = f"Too long: may not be more than {ANNOTATIONS_BYTES} bytes"
        found.append(Cause("metadata.annotations", "FieldValueTooLong", message))
    return found


def _immutable(meta: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    return [
        Cause.invalid(f"metadata.{field}", f'"{meta.get(field, "")}"', "field is immutable")
        for field in ("namespace", "uid")
        if meta.get(field) != old.get(field)
    ]


def _node(node: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Cause]:
    found: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node["spec"].get("taints", [])):
        place = f"metadata.taints[{index}]"  # of spec.taints; the server uses this name
        identity = (taint["key"], taint["effect"])
        found += _taint(taint, place)
        if identity in seen:
            value = {
                "Key": taint["key"],
                "Value": taint.get("value", ""),
                "Effect": taint["effect"],
                "TimeAdded": taint.get("timeAdded"),
            }
            detail = json.dumps(value, separators=(",", ":"))
            why = f"Duplicate value: {detail}: taints must be unique by key and effect pair"
            found.append(Cause(place, "FieldValueDuplicate", why))
        seen.add(identity)
    if old is not None:
        was, now = (n["spec"].get("providerID", "") for n in (old, node))
        if was and was != now:
            why = 'node updates may not change providerID except from "" to valid'
            found.append(Cause.forbidden("spec.providerID", why))
    return found


def _taint(taint: Mapping[str, str], place: str) -> list[Cause]:
    key, value, effect = taint["key"], taint.get("value", ""), taint["effect"]
    found = [Cause.invalid(f"{place}.key", f'"{key}"', problem) for problem in label_key_problems(key)]
    found += [
        Cause.invalid(f"{place}.value", f'"{value}"', problem) for problem in label_value_problems(value)
    ]
    if not effect:
        found.append(Cause.required(f"{place}.effect"))
    elif effect not in TAINT_EFFECTS:
        supported = ", ".join(f'"{effect}"' for effect in TAINT_EFFECTS)
        message = f'Unsupported value: "{effect}": supported values: {supported}'
        found.append(Cause(f"{place}.effect", "FieldValueNotSupported", message))
    return found


def _lease(spec: Mapping[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        found.append(Cause.invalid("spec.leaseDurationSeconds", str(duration), "must be greater than 0"))
    if transitions is not None and transitions < 0:
        why = "must be greater than or equal to 0"
        found.append(Cause.invalid("spec.leaseTransitions", str(transitions), why))
    return found


def _event(event: Mapping[str, Any]) -> list[Cause]:
    namespace, about = event["metadata"].get("namespace", ""), event["involvedObject"].get("namespace", "")
    if namespace == (about or "default"):
        return []
    why = "does not match event.namespace"
    return [Cause.invalid("involvedObject.namespace", f'"{about}"', why)]


_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def _regex_problem(text: str, expression: str, rule: str, *examples: str) -> list[str]:
    if re.fullmatch(expression, text):
        return []
    detail = " or ".join(f"'{example}', " for example in examples)
    return [f"{rule} (e.g. {detail}regex used for validation is '{expression}')"]


def _length_problem(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} bytes"] if len(text.encode()) > limit else []


def subdomain_problems(text: str) -> list[str]:
    """Return what is wrong with a DNS subdomain: the name of a Node, a Lease, an Event."""
    rule = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _length_problem(text, 253) + _regex_problem(text, _SUBDOMAIN, rule, "example.com")


def dns_label_problems(text: str) -> list[str]:
    """Return what is wrong with a DNS label: the name of a Namespace."""
    rule = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        "and must start and end with an alphanumeric character"
    )
    return _length_problem(text, 63) + _regex_problem(text, _DNS_LABEL, rule, "my-name", "123-abc")


def label_key_problems(text: str) -> list[str]:
    """Return what is wrong with the key of a label, an annotation or a taint."""
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
    """Return what is wrong with the value of a label or a taint; it may be empty."""
    rule = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    expression = f"({_QUALIFIED})?"
    return _length_problem(text, 63) + _regex_problem(text, expression, rule, "MyValue", "my_value", "12345")
