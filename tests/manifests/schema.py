"""Checks the fields of an object by the official client's models, which are generated from the OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from kubernetes.client import models

from konductor_like_sandbox.kubernetes import FieldProblem, Flaw

_PLAIN: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "bytes": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "datetime": (str, datetime),
}

_NAMED_APART = {("v1", "Event"): "CoreV1Event", ("events.k8s.io/v1", "Event"): "EventsV1Event"}


def problems(item: Mapping[str, Any]) -> list[FieldProblem]:
    """Return all wrong fields of an object. Raises KeyError for an unknown kind."""
    identity = item["apiVersion"], item["kind"]
    model = _NAMED_APART.get(identity) or f"{identity[0].rpartition('/')[2].capitalize()}{identity[1]}"
    if not hasattr(models, model):
        raise KeyError(identity)
    return list(_check(item, model, ""))


def _check(value: Any, kind: str, place: str) -> Iterator[FieldProblem]:
    if value is None or kind == "object":  # an absent field, or one of any type, such as a port
        return
    if kind in _PLAIN:
        if not isinstance(value, _PLAIN[kind]) or (isinstance(value, bool) and kind != "bool"):
            yield _wrong(place, kind, value)
    elif listed := re.fullmatch(r"List\[(.*)\]", kind):
        if not isinstance(value, list):
            yield _wrong(place, "list", value)
            return
        for index, member in enumerate(value):
            yield from _check(member, listed[1], f"{place}[{index}]")
    elif mapped := re.fullmatch(r"Dict\[str, (.*)\]", kind):
        if not isinstance(value, Mapping):
            yield _wrong(place, "map", value)
            return
        for name, member in value.items():
            yield from _check(member, mapped[1], f"{place}.{name}")
    else:
        yield from _object(value, kind, place)


def _object(value: Any, kind: str, place: str) -> Iterator[FieldProblem]:
    if not isinstance(value, Mapping):
        yield _wrong(place, "map", value)
        return
    model = getattr(models, kind)
    attributes = {field: name for name, field in model.attribute_map.items()}
    prefix = f"{place}." if place else ""
    for field, member in value.items():
        if field not in attributes:
            yield FieldProblem(Flaw.UNKNOWN, f"{prefix}{field}")
        else:
            yield from _check(member, model.openapi_types[attributes[field]], f"{prefix}{field}")
    for name, field in model.model_fields.items():
        if field.is_required() and value.get(field.serialization_alias or name) is None:
            yield FieldProblem(Flaw.MISSING, f"{prefix}{field.serialization_alias or name}")


def _wrong(place: str, kind: str, value: Any) -> FieldProblem:
    return FieldProblem(Flaw.WRONG_TYPE, place, f"expected {kind}, got {type(value).__name__}")
