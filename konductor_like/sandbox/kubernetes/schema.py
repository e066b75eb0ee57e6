"""The types of the fields that the stand-in knows, and what Go's decoding makes of them.

A decoder takes a value and its place in the object. It refuses a wrong type with ``DecodeError`` and gives
the value as the server would keep it, or ``None`` where nothing is kept (of null, of an empty map).
Fields that nobody knows are dropped in silence, as the server does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Decoder = Callable[[Any, str], Any]


class DecodeError(Exception):
    """A value of the wrong type; the message is Go's."""


_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
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
    """True or nothing: false is what an absent flag means."""
    return _flag(value, place) or None


def anything(value: Any, _place: str) -> Any:
    """A part that the stand-in does not look into; nulls in it vanish."""
    if isinstance(value, dict):
        return {name: anything(member, "") for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [anything(item, "") for item in value]
    return value


def objects(value: Any, place: str) -> Any:
    """A list; an empty one is nothing."""
    return anything(_list(value, place), place) or None


def strings(value: Any, place: str) -> Any:
    """A map of strings, in order; an empty one is nothing. A null in it is an empty string."""
    members = sorted(_object(value, place).items())
    return {name: "" if member is None else text(member, place) for name, member in members} or None


def micro_time(value: Any, place: str) -> str:
    """A time with exactly six digits after the second."""
    if not isinstance(value, str) or not _MICRO_TIME.fullmatch(value):
        rest = re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "", text(value, place))
        layout = "2006-01-02T15:04:05.000000Z07:00"
        raise DecodeError(f'parsing time "{value}" as "{layout}": cannot parse "{rest}" as ".000000"')
    return value


def struct(**fields: Decoder) -> Decoder:
    """An object with these fields and no other."""

    def decode(value: Any, place: str) -> dict[str, Any]:
        known = {n: v for n, v in _object(value, place).items() if n in fields and v is not None}
        decoded = {name: fields[name](member, f"{place}.{name}") for name, member in known.items()}
        return {name: member for name, member in decoded.items() if member is not None}

    return decode


_taint = struct(key=text, value=text, effect=text, timeAdded=text)


def taints(value: Any, place: str) -> Any:
    """A list of taints; an empty one is nothing, an empty value too."""
    decoded = [_taint(taint, place) for taint in _list(value, place)]
    kept = [{name: member for name, member in taint.items() if member} for taint in decoded]
    return [{"key": "", **taint, "effect": taint.get("effect", "")} for taint in kept] or None


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
_EVENT = {"metadata": METADATA, "type": text, "reason": text, "action": text, "reportingInstance": text}
_EVENT |= {"eventTime": micro_time, "series": anything, "related": _REFERENCE}

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
        status=anything,
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
        **_EVENT,
        involvedObject=_REFERENCE,
        message=text,
        source=struct(component=text, host=text),
        firstTimestamp=text,
        lastTimestamp=text,
        count=number,
        reportingComponent=text,
    ),
    ("events.k8s.io/v1", "Event"): struct(
        **_EVENT,
        regarding=_REFERENCE,
        note=text,
        reportingController=text,
        deprecatedSource=struct(component=text, host=text),
        deprecatedFirstTimestamp=text,
        deprecatedLastTimestamp=text,
        deprecatedCount=number,
    ),
}
"""By apiVersion and kind."""
