"""Every write that took effect, in the order of the effects.

The stand-in API server calls its admission hook under the same lock under which it stores. So the journal has
the order of effects, even if the network delays requests and answers.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from konductor_like.model import HEALTH_LABEL, RECORD_ANNOTATION, TAINT_EFFECT, TAINT_KEY, TAINT_VALUE
from konductor_like_sandbox.kubernetes.access import Review

Object = Mapping[str, Any]
_OURS = {"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}


@dataclass(frozen=True, slots=True)
class Entry:
    """One write: its time (ns since the epoch), user and object, before and after."""

    at_ns: int
    user: str
    operation: str
    resource: str
    name: str
    old: Object | None
    new: Object | None

    def __str__(self) -> str:
        at = f"{datetime.fromtimestamp(self.at_ns / 1e9).astimezone():%H:%M:%S.%f}"
        return f"{at} {self.user} {self.operation} {self.resource}/{self.name}: {_shown(self.new)}"


class Journal:
    """The stand-in's admission hook, which allows every write. Thread-safe."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._there: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def __call__(self, review: Review) -> str:
        """Note a write, except an update without a change and a creation of an existing object."""
        identity = (review.resource, review.name)
        with self._lock:
            if (review.operation == "CREATE" and identity in self._there) or (
                review.operation == "UPDATE" and review.object == review.old_object
            ):
                return ""
            (self._there.discard if review.operation == "DELETE" else self._there.add)(identity)
            new = copy.copy(review.object)
            self._entries.append(
                Entry(time.time_ns(), review.user, review.operation, *identity, review.old_object, new)
            )
        return ""

    def entries(self, resource: str = "") -> list[Entry]:
        """Return all writes, or those to one resource."""
        with self._lock:
            return [entry for entry in self._entries if resource in ("", entry.resource)]


def is_tainted(node: Object | None) -> bool:
    return node is not None and any(_is_ours(taint) for taint in node["spec"].get("taints", ()))


def record_of(node: Object | None) -> dict[str, Any]:
    """Return our record on the Node; empty if it has none."""
    text = (node or {}).get("metadata", {}).get("annotations", {}).get(RECORD_ANNOTATION, "{}")
    record: dict[str, Any] = json.loads(text)
    return record


def health_of(node: Object) -> str:
    return str(node["metadata"].get("labels", {}).get(HEALTH_LABEL, ""))


def machine_of(node: Object) -> tuple[str, str]:
    info = node["status"]["nodeInfo"]
    return info["systemUUID"], info["bootID"]


def _shown(thing: Object | None) -> str:
    if thing is None:
        return "gone"
    if thing["kind"] == "Lease":
        return f"{thing['spec'].get('holderIdentity')} since {thing['spec'].get('acquireTime')}"
    if thing["kind"] != "Node":
        return str(thing.get("reason", ""))
    record = record_of(thing)
    incidents = [
        f"{each['rule']} {each['gpu'][5:7]} {each['state']} x{each['count']} at {each.get('at')}"
        for each in record.get("incidents", ())
    ]
    taints = [taint["key"].rpartition("/")[2] for taint in thing["spec"].get("taints", ())]
    releases = [each["at"] for each in record.get("releases", ())]
    return f"{taints} {health_of(thing) or '-'} {incidents} released {releases}"


def _is_ours(taint: Mapping[str, str]) -> bool:
    return {name: taint.get(name) for name in _OURS} == _OURS
