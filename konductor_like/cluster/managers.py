"""Who last wrote to a Node, out of its ``managedFields``.

This can only name a suspect: the server keeps one entry per manager, with whole seconds, and none for a
manager that only ever removed things. So an entry older than our own last write is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from konductor_like.cluster import times

FIELD_MANAGER = "konductor-like"
"""The name that every write of ours carries."""
_ROUTINE = frozenset(
    {"kubelet", "kube-controller-manager", "cloud-controller-manager", "kubelite", "k3s", "rke2"}
)
"""Managers that write to every Node all the time: kubelets, node controllers, programs that hold both."""


def last_writer(managed_fields: object) -> str | None:
    """The manager that last updated spec or metadata, unless that was us or routine; None when unknown."""
    entries = [e for e in managed_fields if isinstance(e, dict)] if isinstance(managed_fields, list) else []
    ours_ns = max((_ns(e) for e in entries if e.get("manager") == FIELD_MANAGER), default=0)
    others = [e for e in entries if _counts(e) and _ns(e) >= ours_ns]
    newest = max(others, key=_ns, default=None)
    return None if newest is None else str(newest["manager"])


def _counts(entry: Mapping[str, Any]) -> bool:
    manager = entry.get("manager")
    if not isinstance(manager, str) or not manager or manager == FIELD_MANAGER or manager in _ROUTINE:
        return False
    fields = entry.get("fieldsV1")
    touched = fields if isinstance(fields, dict) else {"f:spec": {}}
    return not entry.get("subresource") and ("f:spec" in touched or "f:metadata" in touched)


def _ns(entry: Mapping[str, Any]) -> int:
    try:
        return times.ns_of_text(str(entry.get("time", "")))
    except ValueError:
        return -1
