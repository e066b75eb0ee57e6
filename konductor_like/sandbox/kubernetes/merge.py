"""Merge patch (RFC 7386) and the API server's strategic merge patch."""

from __future__ import annotations

import copy
from typing import Any

Path = tuple[str, ...]

MERGE_KEYS: dict[Path, str] = {
    ("status", "conditions"): "type",
    ("status", "addresses"): "type",
    ("metadata", "ownerReferences"): "uid",
}
"""Lists of objects that a strategic merge merges by a key. Others, ``spec.taints`` too, are replaced."""

MERGED_SETS: frozenset[Path] = frozenset({("metadata", "finalizers"), ("spec", "podCIDRs")})
"""Lists of plain values that a strategic merge adds to."""

_DIRECTIVES = ("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys")


def merge_patch(document: Any, patch: Any) -> Any:
    """A copy of ``document`` with ``patch`` merged in; null removes a member, lists are replaced."""
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
    """A copy of ``document`` with ``patch`` merged in by the rules of the object's type.

    Understands ``$patch`` (delete, replace) and ``$deleteFromPrimitiveList``; element order is left as is.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    content = {k: v for k, v in patch.items() if k != "$patch" and not k.startswith(_DIRECTIVES)}
    result = {} if directive == "replace" or not isinstance(document, dict) else dict(document)
    for key, value in patch.items():
        name = key.removeprefix("$deleteFromPrimitiveList/")
        if name != key and isinstance(result.get(name), list):
            result[name] = [item for item in result[name] if item not in value]
    for key, value in content.items():
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
    if any(item.get("$patch") == "replace" for item in new):
        return [copy.deepcopy(item) for item in new if "$patch" not in item]
    merged = {item.get(key): item for item in old}
    for item in new:
        identity = item.get(key)
        if item.get("$patch") == "delete":
            merged.pop(identity, None)
        else:
            merged[identity] = strategic_merge_patch(merged.get(identity), item, path)
    return list(merged.values())
