"""The types of the fields that the stand-in knows, decoded as Go decodes them.

A decoder takes a value and its place in the object. It raises ``DecodeError`` for a wrong type, and returns
the value as the server would store it, or ``None`` if the server stores nothing (for null, or for an empty
map). Unknown fields are dropped without an error, as in the server. A ``Schema``, from whoever starts the
stand-in, lists the fields of the manifests' kinds; without a schema those fields are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from konductor_like_sandbox.kubernetes.errors import ApiError, Cause
from konductor_like_sandbox.kubernetes.resources import Resource

Decoder = Callable[[Any, str], Any]


class DecodeError(Exception):
    """A value of the wrong type; the message is Go's."""


_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_GO_NAMES = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}


def _of_type(python_type: type, go_type: str) -> Decoder:
    def decode(value: Any, place: str) -> Any:
        if type(value) is not python_type:
            found = _GO_NAMES[type(value)]
            raise DecodeError(
                f"json: cannot unmarshal {found} into Go struct field {place} of type {go_type}"
            )
        return value

    return decode


text = _of_type(str, "string")
number = _of_type(int, "int32")
_flag = _of_type(bool, "bool")
_object = _of_type(dict, "map[string]interface {}")
_list = _of_type(list, "[]interface {}")


def flag(value: Any, place: str) -> Any:
    """Return True or None: false is the same as an absent flag."""
    return _flag(value, place) or None


def anything(value: Any, _place: str) -> Any:
    """Accept a part without checking it; remove nulls in it."""
    if isinstance(value, dict):
        return {name: anything(member, "") for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [anything(item, "") for item in value]
    return value


def objects(value: Any, place: str) -> Any:
    """Decode a list; an empty list becomes None."""
    return anything(_list(value, place), place) or None


def strings(value: Any, place: str) -> Any:
    """Decode a map of strings, and sort it. An empty map becomes None, a null in it an empty string."""
    members = sorted(_object(value, place).items())
    return {name: "" if member is None else text(member, place) for name, member in members} or None


def micro_time(value: Any, place: str) -> str:
    """Decode a time with exactly six digits after the second."""
    if not isinstance(value, str) or not _MICRO_TIME.fullmatch(value):
        rest = re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "", text(value, place))
        layout = "2006-01-02T15:04:05.000000Z07:00"
        raise DecodeError(f'parsing time "{value}" as "{layout}": cannot parse "{rest}" as ".000000"')
    return value


def time(value: Any, place: str) -> str:
    """Decode a time of whole seconds, such as a condition's."""
    if not _TIME.fullmatch(text(value, place)):
        raise DecodeError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}"')
    return str(value)


def struct(**fields: Decoder) -> Decoder:
    """Return a decoder of an object that keeps only these fields."""

    def decode(value: Any, place: str) -> dict[str, Any]:
        known = {n: v for n, v in _object(value, place).items() if n in fields and v is not None}
        decoded = {name: fields[name](member, f"{place}.{name}") for name, member in known.items()}
        return {name: member for name, member in decoded.items() if member is not None}

    return decode


_condition = struct(
    type=text, status=text, lastHeartbeatTime=time, lastTransitionTime=time, reason=text, message=text
)
_EMPTY_CONDITION = {"type": "", "status": "", "lastHeartbeatTime": None, "lastTransitionTime": None}
"""The fields that the server always writes."""
_taint = struct(key=text, value=text, effect=text, timeAdded=text)


def taints(value: Any, place: str) -> Any:
    """Decode a list of taints. An empty list becomes None; an empty value of a taint is dropped."""
    decoded = [_taint(taint, place) for taint in _list(value, place)]
    kept = [{name: member for name, member in taint.items() if member} for taint in decoded]
    return [{"key": "", **taint, "effect": taint.get("effect", "")} for taint in kept] or None


def node_status(value: Any, place: str) -> Any:
    """Decode the conditions, and accept the rest of a Node's status as it is."""
    status = anything(_object(value, place), place)
    if "conditions" in status:
        found = [_condition(each, f"{place}.conditions") for each in _list(status["conditions"], place)]
        status["conditions"] = [{**_EMPTY_CONDITION, **each} for each in found]
        if not found:
            del status["conditions"]
    return status


def configuration(value: Any, place: str) -> Any:
    """An object of which only the metadata is looked into."""
    rest = {name: member for name, member in value.items() if name not in ("kind", "apiVersion", "metadata")}
    metadata = value.get("metadata")
    return {**anything(rest, place), "metadata": METADATA({} if metadata is None else metadata, place)}


METADATA = struct(
    name=text,
    generateName=text,
    namespace=text,
    uid=text,
    resourceVersion=text,
    generation=number,
    creationTimestamp=text,
    deletionTimestamp=text,
    labels=strings,
    annotations=strings,
    ownerReferences=objects,
    finalizers=objects,
    managedFields=objects,
)
_REFERENCE = struct(
    kind=text, namespace=text, name=text, uid=text, apiVersion=text, resourceVersion=text, fieldPath=text
)

KINDS: Mapping[tuple[str, str], Decoder] = {
    ("v1", "Node"): struct(
        metadata=METADATA,
        spec=struct(
            podCIDR=text,
            podCIDRs=objects,
            providerID=text,
            unschedulable=flag,
            taints=taints,
            configSource=anything,
            externalID=text,
        ),
        status=node_status,
    ),
    ("v1", "Namespace"): struct(metadata=METADATA, spec=struct(finalizers=objects), status=anything),
    ("coordination.k8s.io/v1", "Lease"): struct(
        metadata=METADATA,
        spec=struct(
            holderIdentity=text,
            leaseDurationSeconds=number,
            acquireTime=micro_time,
            renewTime=micro_time,
            leaseTransitions=number,
            strategy=text,
            preferredHolder=text,
        ),
    ),
    ("v1", "Event"): struct(
        metadata=METADATA,
        type=text,
        reason=text,
        action=text,
        reportingInstance=text,
        eventTime=micro_time,
        series=anything,
        related=_REFERENCE,
        involvedObject=_REFERENCE,
        message=text,
        source=struct(component=text, host=text),
        firstTimestamp=text,
        lastTimestamp=text,
        count=number,
        reportingComponent=text,
    ),
}
"""By apiVersion and kind."""


def canonical(resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``body`` as the server stores it. Raises ``DecodeError`` for another kind or a wrong type."""
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    for field, expected in head.items():
        found = body.get(field) or expected
        if found != expected:
            raise DecodeError(f"{field} is {found}, expected {expected}")
    decode = configuration if resource.configured else KINDS[resource.api_version, resource.kind]
    content = decode(dict(body), resource.kind)
    return {**head, "metadata": {}, **content, **_completed(resource.skeleton, content)}


def _completed(skeleton: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``content`` with the fields that the server's own types cannot leave out."""
    result = dict(content)
    for name, default in skeleton.items():
        present = result.get(name)
        if isinstance(default, Mapping):
            result[name] = _completed(default, present or {})
        elif present is None:
            result[name] = default
    return result


class Flaw(StrEnum):
    """What is wrong with a field."""

    UNKNOWN = "unknown"
    WRONG_TYPE = "wrong type"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that is wrong."""

    flaw: Flaw
    place: str
    """Such as ``spec.template.spec.containers[0].image``."""
    detail: str = ""
    """For a wrong type: the expected and the found type."""


Schema = Callable[[Mapping[str, Any]], Iterable[FieldProblem]]
"""Returns the errors in the fields of an object, ``apiVersion`` and ``kind`` included."""


def no_schema(_item: Mapping[str, Any]) -> tuple[FieldProblem, ...]:
    """Accept every field."""
    return ()


def check_decodable(schema: Schema, item: Mapping[str, Any], *, strict: bool) -> None:
    """Raise ``DecodeError`` for a wrong type and, if ``strict``, for an unknown field."""
    found = list(schema(item))
    wrong = [f"{problem.place}: {problem.detail}" for problem in found if problem.flaw is Flaw.WRONG_TYPE]
    if wrong:
        raise DecodeError(f"json: {', '.join(wrong)}")
    unknown = [f'unknown field "{problem.place}"' for problem in found if problem.flaw is Flaw.UNKNOWN]
    if strict and unknown:
        raise DecodeError(f"strict decoding error: {', '.join(unknown)}")


def check_applicable(schema: Schema, resource: Resource, item: Mapping[str, Any], where: str) -> None:
    """Check an object of a server-side apply: always strictly, and with a 500 (``ApiError``) as the refusal.

    ``where`` is namespace and name.
    """
    wrong = [
        f".{problem.place}: {problem.detail or 'field not declared in schema'}"
        for problem in schema(item)
        if problem.flaw is not Flaw.MISSING
    ]
    if wrong:
        detail = wrong[0] if len(wrong) == 1 else "\n  ".join(("errors:", *wrong))
        about = f"({where}; {resource.api_version}, Kind={resource.kind})"
        raise ApiError(500, "", f"failed to create typed patch object {about}: {detail}")


def missing(schema: Schema, item: Mapping[str, Any]) -> list[Cause]:
    """Return a cause for every required field that is missing."""
    return [Cause.required(problem.place) for problem in schema(item) if problem.flaw is Flaw.MISSING]
