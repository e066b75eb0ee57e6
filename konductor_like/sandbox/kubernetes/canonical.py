"""What the server's typed decoding does to an object: wrong types are refused, empty values vanish."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from konductor_like.sandbox.kubernetes.resources import Resource

_TAINT_FIELDS = ("key", "value", "effect", "timeAdded")
_MICRO_TIME_FIELDS = (("spec", "acquireTime"), ("spec", "renewTime"), ("eventTime",))
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


class DecodeError(Exception):
    """A value of the wrong type; the message is Go's."""


def canonical(resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
    """``body`` as the server would hold it: fields in the server's order, nulls and empty values gone.

    Raises ``DecodeError`` if a value has a type that the kind does not allow.
    """
    content = _without_nulls(body)
    _check_kind(resource, content)
    meta = _member(content, "metadata")
    for name in ("labels", "annotations"):
        _check_string_map(meta, name)
    for path in _MICRO_TIME_FIELDS:
        _check_micro_time(content, path)
    if resource.plural == "nodes":
        _check_node_spec(_member(content, "spec"))
    known = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    return {
        **known,
        **_with_skeleton(resource.skeleton, {k: v for k, v in content.items() if k not in known}),
    }


def empty(resource: Resource) -> dict[str, Any]:
    """The object of this kind that says nothing."""
    return canonical(resource, {})


def _with_skeleton(skeleton: Any, content: dict[str, Any]) -> dict[str, Any]:
    result = dict(content)
    for key, default in skeleton.items():
        present = result.get(key)
        if isinstance(default, dict):
            result[key] = _with_skeleton(default, present or {})
        elif present is None:
            result[key] = default
    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _check_kind(resource: Resource, content: dict[str, Any]) -> None:
    found = (content.get("apiVersion", resource.api_version), content.get("kind", resource.kind))
    if found != (resource.api_version, resource.kind):
        raise DecodeError(
            f"the API version in the data ({found[0]}) does not match"
            f" the expected API version ({resource.api_version})"
            if found[0] != resource.api_version
            else f'no kind "{found[1]}" is registered for version "{found[0]}"'
        )


def _member(content: dict[str, Any], name: str) -> dict[str, Any]:
    member = content.setdefault(name, {})
    if not isinstance(member, dict):
        raise DecodeError(_wrong_type(member, name, "an object"))
    return member


def _check_string_map(meta: dict[str, Any], name: str) -> None:
    values = meta.get(name, {})
    if not isinstance(values, dict):
        raise DecodeError(_wrong_type(values, f"ObjectMeta.metadata.{name}", "map[string]string"))
    for value in values.values():
        if not isinstance(value, str):
            raise DecodeError(_wrong_type(value, f"ObjectMeta.metadata.{name}", "string"))
    if not values:
        meta.pop(name, None)
    else:
        meta[name] = dict(sorted(values.items()))


def _check_node_spec(spec: dict[str, Any]) -> None:
    taints = spec.get("taints", [])
    if not isinstance(taints, list):
        raise DecodeError(_wrong_type(taints, "NodeSpec.spec.taints", "[]v1.Taint"))
    decoded = [_taint(taint) for taint in taints]
    spec.pop("taints", None)
    if decoded:
        spec["taints"] = decoded
    if not spec.get("unschedulable", True):
        del spec["unschedulable"]


def _taint(taint: Any) -> dict[str, str]:
    if not isinstance(taint, dict):
        raise DecodeError(_wrong_type(taint, "NodeSpec.spec.taints", "v1.Taint"))
    for field in _TAINT_FIELDS:
        if not isinstance(taint.get(field, ""), str):
            raise DecodeError(_wrong_type(taint[field], f"Taint.spec.taints.{field}", "string"))
    kept = {field: taint[field] for field in _TAINT_FIELDS if taint.get(field)}
    return {"key": "", **kept, "effect": taint.get("effect", "")}


def _check_micro_time(content: dict[str, Any], path: Iterable[str]) -> None:
    value: Any = content
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if value is None or (isinstance(value, str) and _MICRO_TIME.fullmatch(value)):
        return
    rest = re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "", str(value))
    raise DecodeError(
        f'parsing time "{value}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "{rest}" as ".000000"'
    )


def _wrong_type(value: Any, field: str, wanted: str) -> str:
    named = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return f"json: cannot unmarshal {named[type(value)]} into Go struct field {field} of type {wanted}"
