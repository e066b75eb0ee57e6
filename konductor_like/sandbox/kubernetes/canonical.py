"""An object as the server holds it: known fields of the right types, in the server's order, none left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from konductor_like.sandbox.kubernetes.resources import Resource
from konductor_like.sandbox.kubernetes.schema import KINDS, DecodeError, configuration


def canonical(resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
    """``body`` as the server would hold it. Raises ``DecodeError`` for another kind or a wrong type."""
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    for field, expected in head.items():
        found = body.get(field) or expected
        if found != expected:
            raise DecodeError(f"{field} is {found}, expected {expected}")
    decode = configuration if resource.configured else KINDS[resource.api_version, resource.kind]
    content = decode(dict(body), resource.kind)
    return {**head, "metadata": {}, **content, **_completed(resource.skeleton, content)}


def empty(resource: Resource) -> dict[str, Any]:
    """The object of this kind that says nothing."""
    return canonical(resource, {})


def _completed(skeleton: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with the fields that the server's own types cannot leave out."""
    result = dict(content)
    for name, default in skeleton.items():
        present = result.get(name)
        if isinstance(default, Mapping):
            result[name] = _completed(default, present or {})
        elif present is None:
            result[name] = default
    return result
