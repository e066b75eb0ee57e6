"""``metadata.managedFields``: who wrote which field, and when (the API server's ``Update`` half of it).

A writer becomes the owner of the fields that it sets or changes; the former owners lose them. A removed field
has no owner: after the last taint was removed, nothing shows who removed it. An apply is recorded as an
apply, but takes over fields as an update does, without conflicts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from konductor_like_sandbox.kubernetes.patches import MERGE_KEYS, MERGED_SETS

Path = tuple[str, ...]
Fields = dict[Path, Any]

_SERVER_OWNED = frozenset(
    {
        *("name", "namespace", "creationTimestamp", "selfLink", "uid", "generation"),
        *("managedFields", "resourceVersion"),
    }
)
_ATOMIC = frozenset({("involvedObject",), ("regarding",), ("related",)})
_PRESENT = object()


def record_write(
    old: Mapping[str, Any],
    new: dict[str, Any],
    manager: str,
    subresource: str,
    time: str,
    operation: str = "Update",
) -> None:
    """Bring ``new``'s managedFields up to date with the change from ``old``; ``time`` is RFC 3339.

    For a new object, ``old`` is the empty object of its kind. If nothing changed, managedFields stay as they
    are.
    """
    before, after = _fields_that_differ(old, new)
    touched = {path for path, value in after.items() if path not in before or before[path] != value}
    removed = before.keys() - after.keys()
    entries = new["metadata"].get("managedFields", [])
    if touched or removed:
        writer = (manager, operation, new["apiVersion"], subresource)
        entries = _merge(entries, touched, removed, writer, time)
    if entries:
        new["metadata"]["managedFields"] = entries
    else:
        new["metadata"].pop("managedFields", None)


def _merge(
    entries: list[dict[str, Any]], touched: set[Path], removed: set[Path], writer: Path, time: str
) -> list[dict[str, Any]]:
    result = []
    own: set[Path] = set(touched)
    for entry in entries:
        owned = _paths(entry["fieldsV1"])
        if _writer(entry) == writer and touched:
            own |= owned - removed
            continue
        kept = owned - touched - removed
        if kept:
            result.append(entry if kept == owned else {**entry, "fieldsV1": _nested(kept)})
    if touched:
        manager, operation, api_version, subresource = writer
        result.append(
            {
                "manager": manager,
                "operation": operation,
                "apiVersion": api_version,
                "time": time,
                "fieldsType": "FieldsV1",
                "fieldsV1": _nested(own),
                **({"subresource": subresource} if subresource else {}),
            }
        )
    return sorted(result, key=lambda entry: (entry.get("time", ""), entry["manager"]))


def _writer(entry: Mapping[str, Any]) -> Path:
    return entry["manager"], entry["operation"], entry["apiVersion"], entry.get("subresource", "")


def _fields_that_differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Fields, Fields]:
    before: Fields = {}
    after: Fields = {}
    for key in (old.keys() | new.keys()) - {"kind", "apiVersion"}:
        left, right = old.get(key), new.get(key)
        if left != right:
            _flatten(left, (key,), (f"f:{key}",), before)
            _flatten(right, (key,), (f"f:{key}",), after)
    return before, after


def _flatten(value: Any, names: tuple[str, ...], path: Path, into: Fields) -> None:
    if value is None:
        return
    if isinstance(value, Mapping) and names not in _ATOMIC:
        if len(path) > 1:
            into[path] = _PRESENT
        skipped = _SERVER_OWNED if names == ("metadata",) else frozenset()
        for key, member in value.items():
            if key not in skipped:
                _flatten(member, (*names, key), (*path, f"f:{key}"), into)
    elif isinstance(value, list) and names in MERGE_KEYS:
        into[path] = _PRESENT
        for item in value:
            key = MERGE_KEYS[names]
            identity = json.dumps({key: item.get(key)}, separators=(",", ":"))
            _flatten(item, (*names, ""), (*path, f"k:{identity}"), into)
    elif isinstance(value, list) and names in MERGED_SETS:
        into[path] = _PRESENT
        into.update({(*path, f"v:{json.dumps(item)}"): _PRESENT for item in value})
    else:
        into[path] = value


def _paths(fields: Mapping[str, Any], prefix: Path = ()) -> set[Path]:
    if not fields:
        return {prefix}
    found: set[Path] = set()
    for key, member in fields.items():
        found |= {prefix} if key == "." else _paths(member, (*prefix, key))
    return found


def _nested(paths: set[Path]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    parents = {path[:length] for path in paths for length in range(len(path))}
    for path in sorted(paths):
        node = root
        for part in path:
            node = node.setdefault(part, {})
        if path in parents:
            node["."] = {}
    return root
