"""The two protobuf bodies that kubectl insists on: ``kubectl create namespace`` and ``kubectl auth can-i``.

Everything else that kubectl does with Nodes, Events and Leases travels as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_ATTRIBUTES = {
    1: "namespace",
    2: "verb",
    3: "group",
    4: "version",
    5: "resource",
    6: "subresource",
    7: "name",
}


class UnknownMessageError(Exception):
    """A message of a kind that is not understood here, or not a message at all."""


def decode(body: bytes) -> dict[str, Any]:
    """The object in ``body``. Raises ``UnknownMessageError`` for any but the two kinds."""
    try:
        envelope = dict(_fields(body.removeprefix(_MAGIC)))
        api_version, kind = (dict(_fields(envelope[1]))[number].decode() for number in (1, 2))
        message = dict(_fields(envelope[2]))
        if kind == "Namespace":
            name = dict(_fields(message[1]))[1].decode()
            return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
        if kind == "SelfSubjectAccessReview":
            spec = dict(_fields(message[2]))
            asked = {_ATTRIBUTES[n]: value.decode() for n, value in _fields(spec[1]) if n in _ATTRIBUTES}
            return {"apiVersion": api_version, "kind": kind, "spec": {"resourceAttributes": asked}}
    except (KeyError, IndexError, UnicodeDecodeError) as error:
        raise UnknownMessageError("malformed message") from error
    raise UnknownMessageError(kind)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of every length-delimited field; numbers are skipped, no field here is one."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        value, position = _varint(message, position)
        if tag & 7 == 2:
            yield tag >> 3, message[position : position + value]
            position += value


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
