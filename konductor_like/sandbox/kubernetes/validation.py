"""Rules that an object must keep to be stored: the part of Kubernetes' validation that Node writers meet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from konductor_like.sandbox.kubernetes.errors import Cause
from konductor_like.sandbox.kubernetes.naming import (
    dns_label_problems,
    label_key_problems,
    label_value_problems,
    subdomain_problems,
)
from konductor_like.sandbox.kubernetes.resources import (
    EVENTS,
    LEASES,
    NAMESPACES,
    NEW_EVENTS,
    NODES,
    Resource,
)

ANNOTATIONS_BYTES = 256 * 1024
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
EVENT_TEXT_CHARS = {"reportingInstance": 128, "action": 128, "reason": 128}
EVENT_MESSAGE_CHARS = 1024


def problems(resource: Resource, item: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Cause]:
    """Everything that keeps ``item`` from being stored; ``old`` is what it would replace, if anything."""
    found = _metadata(resource, item["metadata"])
    if resource is NODES:
        found += _node(item, old)
    elif resource is LEASES:
        found += _lease(item["spec"])
    elif resource in (EVENTS, NEW_EVENTS):
        found += _event(resource, item)
    if old is not None:
        found += _immutable(item["metadata"], old["metadata"])
    return found


def _metadata(resource: Resource, meta: Mapping[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    name = meta.get("name", "")
    if not name:
        found.append(Cause.required("metadata.name", "name or generateName is required"))
    elif resource is not EVENTS:  # core events take any name that fits into a path
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
        place = f"metadata.taints[{index}]"  # spec.taints; the server itself calls it so
        identity = (taint["key"], taint["effect"])
        found += _taint(taint, place)
        if identity in seen:
            value = {
                "Key": taint["key"],
                "Value": taint.get("value", ""),
                "Effect": taint["effect"],
                "TimeAdded": taint.get("timeAdded"),
            }
            said = json.dumps(value, separators=(",", ":"))
            why = f"Duplicate value: {said}: taints must be unique by key and effect pair"
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


def _event(resource: Resource, event: Mapping[str, Any]) -> list[Cause]:
    """``event`` in its core form, whichever group it came in through."""
    namespace = event["metadata"].get("namespace", "")
    about = event["involvedObject"].get("namespace", "")
    new_style = bool(event["eventTime"])
    allowed = (about,) if about else ("default", "kube-system") if new_style else ("default",)
    found = []
    if namespace not in allowed and not (new_style and about):
        why = "does not match event.namespace"
        found.append(Cause.invalid("involvedObject.namespace", f'"{about}"', why))
    if new_style:
        found += _new_style_event(resource, event)
    if resource is NEW_EVENTS:
        if not new_style:
            found.append(Cause.required("eventTime"))
        if event.get("type") not in ("Normal", "Warning"):
            found.append(Cause.invalid("type", '""', f"has invalid value: {event.get('type', '')}"))
    return found


def _new_style_event(resource: Resource, event: Mapping[str, Any]) -> list[Cause]:
    controller = "reportingController" if resource is NEW_EVENTS else "reportingComponent"
    found = []
    if not event["reportingComponent"]:
        found.append(Cause.required(controller))
    named = f'"{event["reportingComponent"]}"'
    found += [
        Cause.invalid(controller, named, why) for why in label_key_problems(event["reportingComponent"])
    ]
    for field, limit in EVENT_TEXT_CHARS.items():
        if not event.get(field):
            found.append(Cause.required(field))
        elif len(event[field].encode()) > limit:
            found.append(Cause.invalid(field, '""', f"can have at most {limit} characters"))
    if len(event.get("message", "").encode()) > EVENT_MESSAGE_CHARS:
        found.append(Cause.invalid("message", '""', f"can have at most {EVENT_MESSAGE_CHARS} characters"))
    return found
