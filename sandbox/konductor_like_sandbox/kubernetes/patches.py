"""The three kinds of patches: JSON Patch, merge patch (RFC 7386) and the API server's strategic merge patch.

JSON Patch (RFC 6902) behaves as the library in the API server (evanphx/json-patch, version 4), which departs
from the RFC: ``test`` of null passes on an absent member, ``replace`` of an absent member sets it, negative
array indices count from the end, and ``test`` compares strings in their written form, so that ``<`` is not
equal to the ``\\u003c`` that the server writes for it. ``move`` and ``copy`` are refused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

_ABSENT = object()
_UNEQUAL = object()


class MalformedPatchError(Exception):
    """The patch is not a JSON Patch."""


class PatchFailedError(Exception):
    """An operation that cannot be applied, such as a ``test`` that fails."""


class MergeFailedError(Exception):
    """A strategic merge patch that the server can read but not merge; it answers with 500."""


def apply_json_patch(document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Patch ``document`` in place, and return it: pass a copy that nobody else uses.

    Raises ``MalformedPatchError`` if ``patch`` is not a list of objects, ``PatchFailedError`` if it fails.
    """
    if not isinstance(patch, list) or not all(isinstance(operation, Mapping) for operation in patch):
        raise MalformedPatchError(
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
            if isinstance(patch, Mapping)
            else "json: cannot unmarshal value into Go value of type jsonpatch.Operation"
        )
    for operation in patch:
        _step(document, operation)
    return document


def as_sent(patch: Any, body: bytes) -> Any:
    """Return the patch, with each tested value that ``body`` does not write as Go would replaced by one that
    never matches."""
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
    """Write text as Go does: UTF-8 stays, and characters that could end a script in HTML are escaped."""
    written = json.dumps(text, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written


def _step(document: Any, operation: Mapping[str, Any]) -> None:
    kind = operation.get("op")
    path = operation.get("path")
    if not isinstance(path, str):
        raise PatchFailedError("operation missing path field")
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
    else:
        raise PatchFailedError(f"Unexpected kind: {kind}")


def equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: true is not 1, and 1 is not "1"."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


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


Path = tuple[str, ...]

MERGE_KEYS: dict[Path, str] = {
    ("status", "conditions"): "type",
    ("status", "addresses"): "type",
    ("metadata", "ownerReferences"): "uid",
}
"""Lists of objects that a strategic merge merges by a key. Others, such as ``spec.taints``, are replaced."""

MERGED_SETS: frozenset[Path] = frozenset({("metadata", "finalizers"), ("spec", "podCIDRs")})
"""Lists of plain values that a strategic merge adds to."""

_PASSED_OVER = ("$setElementOrder/", "$retainKeys")


def merge_patch(document: Any, patch: Any) -> Any:
    """Return a copy of ``document`` with ``patch`` merged in; null removes a member, lists are replaced."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge_patch(document: Any, patch: Any, path: Path = ()) -> Any:
    """Return a copy of ``document`` with ``patch`` merged in by the rules of the object's type.

    The directive that orders elements, which kubelets send, is ignored; any other directive is refused.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if key.startswith(_PASSED_OVER):
            continue
        if key.startswith("$"):
            raise PatchFailedError(f"the stand-in does not know the directive {key}")
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_member(result.get(key), value, (*path, key))
    return result


def _merge_member(old: Any, new: Any, path: Path) -> Any:
    if not isinstance(new, list):
        return strategic_merge_patch(old, new, path)
    if path in MERGED_SETS:
        kept = old or []
        return [*kept, *(item for item in new if item not in kept)]
    if path in MERGE_KEYS:
        return _merge_list(old or [], new, MERGE_KEYS[path], path)
    return copy.deepcopy(new)


def _merge_list(old: list[Any], new: list[Any], key: str, path: Path) -> list[Any]:
    """Merge by key. A new item comes before the old ones, as on a real server."""
    merged = {item.get(key): item for item in old}
    for item in new:
        if not isinstance(item, dict) or key not in item:
            raise MergeFailedError(f"map: {item} does not contain declared merge key: {key}")
        directive, identity = item.get("$patch"), item[key]
        if directive == "delete":
            merged.pop(identity, None)
        elif directive is not None:
            raise MergeFailedError(f"unknown patch type: {directive} in map: {item}")
        else:
            merged[identity] = strategic_merge_patch(merged.get(identity), item, path)
    known = {item.get(key) for item in old}
    return sorted(merged.values(), key=lambda item: item.get(key) in known)
