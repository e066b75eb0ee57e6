"""Objects as versioned bytes, and the history that watches are served from.

An object is kept as the JSON that lists and watches send, so that reading 5,000 Nodes of 20 KB costs one join
and nobody can change a stored object by accident. Every write takes the next resourceVersion.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from konductor_like_sandbox.kubernetes.resources import selectable_fields

FIRST_VERSION = 100


class Key(NamedTuple):
    """The key of an object; ``namespace`` is empty for cluster-wide objects. Lists are in this order."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of one object."""

    key: Key
    uid: str
    version: int
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    json: bytes
    """The object in its stored form, without ``kind`` and ``apiVersion``, as a list's items are sent."""

    def load(self) -> dict[str, Any]:
        """Return a copy of the object."""
        item: dict[str, Any] = json.loads(self.json)
        return item


class ChangeType(StrEnum):
    """A kind of change, named like the watch events."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """One write."""

    type: ChangeType
    new: Stored
    """After a deletion: the last state of the object, with the deletion's resourceVersion."""
    old: Stored | None


@dataclass(frozen=True, slots=True)
class Backup:
    """The content of a store at one version."""

    version: int
    tables: Mapping[str, Mapping[Key, Stored]]


def dump(value: Any) -> bytes:
    """Write JSON as Go does: without spaces, in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


class Store:
    """All tables. ``lock`` guards everything, and is notified after every change."""

    def __init__(self, history_limit: int = 4096) -> None:
        self.lock = threading.Condition(threading.RLock())
        self.version = FIRST_VERSION
        self._tables: dict[str, dict[Key, Stored]] = {}
        self._history: dict[str, list[Change]] = {}
        self._history_limit = history_limit
        self._trimmed: dict[str, int] = {}
        self._forgotten = 0

    def get(self, table: str, key: Key) -> Stored | None:
        """Return the object, if it exists."""
        with self.lock:
            return self._tables.get(table, {}).get(key)

    def objects(self, table: str, namespace: str = "") -> tuple[int, list[Stored]]:
        """Return the present resourceVersion and the objects (of one namespace), in order."""
        with self.lock:
            stored = self._tables.get(table, {}).values()
            found = [item for item in stored if not namespace or item.key.namespace == namespace]
            return self.version, sorted(found, key=lambda item: item.key)

    def put(self, table: str, item: dict[str, Any]) -> Stored:
        """Store ``item`` under the next resourceVersion, which is written into its metadata."""
        with self.lock:
            meta = item["metadata"]
            key = Key(meta.get("namespace", ""), meta["name"])
            old = self.get(table, key)
            new = self._next(table, key, item)
            self._tables.setdefault(table, {})[key] = new
            self._remember(table, Change(ChangeType.MODIFIED if old else ChangeType.ADDED, new, old))
            return new

    def delete(self, table: str, key: Key) -> Stored:
        """Remove the object. Raises ``KeyError`` if it does not exist."""
        with self.lock:
            old = self._tables.get(table, {}).pop(key)
            gone = self._next(table, key, old.load())
            self._remember(table, Change(ChangeType.DELETED, gone, old))
            return gone

    def _next(self, table: str, key: Key, item: dict[str, Any]) -> Stored:
        self.version += 1
        meta = item["metadata"]
        meta["resourceVersion"] = str(self.version)
        return Stored(
            key=key,
            uid=meta["uid"],
            version=self.version,
            labels=meta.get("labels", {}),
            fields=selectable_fields(table, item),
            json=dump({name: value for name, value in item.items() if name not in ("kind", "apiVersion")}),
        )

    def _remember(self, table: str, change: Change) -> None:
        history = self._history.setdefault(table, [])
        history.append(change)
        if len(history) > 2 * self._history_limit:
            self._trimmed[table] = history[-self._history_limit - 1].new.version
            del history[: -self._history_limit]
        self.lock.notify_all()

    def backup(self) -> Backup:
        """Return all objects as they are now."""
        with self.lock:
            return Backup(self.version, {table: dict(items) for table, items in self._tables.items()})

    def restore(self, backup: Backup) -> None:
        """Restore all objects of a backup, without history. Later versions are given out a second time."""
        with self.lock:
            self.version = self._forgotten = backup.version
            self._tables = {table: dict(items) for table, items in backup.tables.items()}
            self._history.clear()
            self._trimmed.clear()
            self.lock.notify_all()

    def compact(self) -> None:
        """Forget all history: every resourceVersion before the present one is too old."""
        with self.lock:
            self._history.clear()
            self._forgotten = self.version

    def oldest(self, table: str) -> int:
        """The lowest resourceVersion that a watch may start from."""
        with self.lock:
            return max(self._forgotten, self._trimmed.get(table, 0))

    def changes_since(self, table: str, version: int) -> list[Change]:
        """Return every change after ``version``, which must not be lower than ``oldest``."""
        with self.lock:
            history = self._history.get(table, [])
            return history[bisect_right(history, version, key=lambda change: change.new.version) :]
