"""JSON Patch (RFC 6902) with the habits of the library in the API server (evanphx/json-patch, version 4).

Where it strays from the RFC, this does too: ``test`` of null holds on an absent member, ``replace`` of an
absent member sets it, negative array indices count from the end, and ``test`` compares strings as they are
written, so that a ``<`` is not the ``\\u003c`` that the server writes it as.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_OPERATIONS = 10_000
_ABSENT = object()
_UNEQUAL = object()


class MalformedPatchError(Exception):
    """Not a JSON Patch at all."""


class PatchFailedError(Exception):
    """An operation that does not apply; a ``test`` that does not hold is one."""


def apply(document: Any, patch: Any) -> Any:
    """The patched document. ``document`` itself is changed on the way: pass one that nobody else holds.

    Raises ``MalformedPatchError`` if ``patch`` is not a list of objects, ``PatchFailedError`` if it fails.
    """
    if not isinstance(patch, list) or not all(isinstance(operation, Mapping) for operation in patch):
        raise MalformedPatchError(
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
            if isinstance(patch, Mapping)
            else "json: cannot unmarshal value into Go value of type jsonpatch.Operation"
        )
    for operation in patch:
        document = _step(document, operation)
    return document


def as_sent(patch: Any, body: bytes) -> Any:
    """The patch, with every tested value that ``body`` does not write as Go would made equal to nothing."""
    if not isinstance(patch, list):
        return patch
    return [
        {**operation, "value": _UNEQUAL}
        if isinstance(operation, dict)
        and operation.get("op") == "test"
        and not all(_as_go_writes(text).encode() in body for text in _strings(operation.get("value")))
        else operation
        for operation in patch
    ]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _strings(member)
    elif isinstance(value, list):
        for member in value:
            yield from _strings(member)


def _as_go_writes(text: str) -> str:
    """``encoding/json`` leaves UTF-8 as it is, and escapes what could end a script in HTML."""
    written = json.dumps(text, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written


def _step(document: Any, operation: Mapping[str, Any]) -> Any:
    kind = operation.get("op")
    path = _pointer(operation, "path")
    if path == "" and kind in ("replace", "test"):
        return _whole(document, kind, operation.get("value"))
    parent, key = _locate(document, path)
    if kind == "add":
        _add(parent, key, copy.deepcopy(operation.get("value")))
    elif kind == "remove":
        _remove(parent, key)
    elif kind == "replace":
        _replace(parent, key, copy.deepcopy(operation.get("value")))
    elif kind == "test":
        found = _get(parent, key)
        if not equal(None if found is _ABSENT else found, operation.get("value")):
            raise PatchFailedError(f"testing value {path} failed")
    elif kind in ("move", "copy"):
        source, source_key = _locate(document, _pointer(operation, "from"))
        value = _get(source, source_key)
        if kind == "move":
            _remove(source, source_key)
            parent, key = _locate(document, path)
        _add(parent, key, None if value is _ABSENT else copy.deepcopy(value))
    else:
        raise PatchFailedError(f"Unexpected kind: {kind}")
    return document


def _whole(document: Any, kind: Any, value: Any) -> Any:
    if kind == "replace":
        return copy.deepcopy(value)
    if not equal(document, value):
        raise PatchFailedError("testing value  failed")
    return document


def equal(left: Any, right: Any) -> bool:
    """Equality of JSON values: true is not 1, and 1 is not "1"."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def _pointer(operation: Mapping[str, Any], member: str) -> str:
    path = operation.get(member)
    if not isinstance(path, str):
        raise PatchFailedError(f"operation missing {member} field")
    return path


def _locate(document: Any, path: str) -> tuple[Any, str]:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    if len(parts) < 2:
        raise PatchFailedError(f'doc is missing path: "{path}"')
    parent = document
    for part in parts[1:-1]:
        parent = _get(parent, part)
        if not isinstance(parent, (dict, list)):
            raise PatchFailedError(f'doc is missing path: "{path}"')
    return parent, parts[-1]


def _get(parent: Any, key: str) -> Any:
    if isinstance(parent, dict):
        return parent.get(key, _ABSENT)
    return parent[_index(key, len(parent))]


def _index(key: str, length: int) -> int:
    try:
        index = int(key)
    except ValueError as error:
        raise PatchFailedError(f"not an array index: {key}") from error
    if not -length <= index < length:
        raise PatchFailedError(f"Unable to access invalid index: {index}")
    return index % length


def _add(parent: Any, key: str, value: Any) -> None:
    if isinstance(parent, dict):
        parent[key] = value
    elif key == "-":
        parent.append(value)
    else:
        parent.insert(_index(key, len(parent) + 1), value)


def _remove(parent: Any, key: str) -> None:
    if isinstance(parent, dict):
        if key not in parent:
            raise PatchFailedError(f"Unable to remove nonexistent key: {key}")
        del parent[key]
    else:
        del parent[_index(key, len(parent))]


def _replace(parent: Any, key: str, value: Any) -> None:
    if isinstance(parent, dict):
        parent[key] = value
    else:
        parent[_index(key, len(parent))] = value
