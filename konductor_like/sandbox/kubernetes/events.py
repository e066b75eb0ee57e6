"""The two faces of an Event: ``v1`` as it is stored, and ``events.k8s.io/v1``."""

from __future__ import annotations

from typing import Any

_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _NAMES.items()}


def to_core(event: dict[str, Any]) -> dict[str, Any]:
    """An ``events.k8s.io/v1`` Event as a ``v1`` one."""
    return {**{_NAMES.get(name, name): value for name, value in event.items()}, "apiVersion": "v1"}


def from_core(event: dict[str, Any]) -> dict[str, Any]:
    """A ``v1`` Event as an ``events.k8s.io/v1`` one."""
    renamed = {_BACK.get(name, name): value for name, value in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}
