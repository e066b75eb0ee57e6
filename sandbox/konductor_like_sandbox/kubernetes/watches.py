"""Watches: changes as they happen, bookmarks, and the ways in which a watch may end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from konductor_like_sandbox.kubernetes import errors
from konductor_like_sandbox.kubernetes.lists import Selection
from konductor_like_sandbox.kubernetes.resources import Resource
from konductor_like_sandbox.kubernetes.store import Change, ChangeType, Store, Stored, dump

ITEMS_AT_ONCE = 64
"""Events in one chunk of the answer, at most: a chunk for each event would be slow, one for all large."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The parameters of a watch. A ``version`` of 0 first gets every object as ADDED."""

    resource: Resource
    selection: Selection
    version: int
    timeout_seconds: float
    bookmarks: bool = False


class _Fate(Enum):
    CUT = auto()
    SILENT = auto()
    EXPIRED = auto()


class _Watch:
    """One open watch; ``fate`` is the end that a test has chosen for it."""

    def __init__(self) -> None:
        self.fate: _Fate | None = None


Encode = Callable[[Stored], bytes]
"""Writes an object inside an event: as itself, or as a row of a table."""


class Watches:
    """All open watches on one store."""

    def __init__(self, store: Store, bookmark_seconds: float) -> None:
        self._store = store
        self._bookmark_seconds = bookmark_seconds
        self._open: set[_Watch] = set()
        self._closed = False

    @property
    def open(self) -> int:
        """The number of open watches."""
        with self._store.lock:
            return len(self._open)

    def cut(self) -> None:
        """End every open watch, as the server does now and then."""
        self._decree(_Fate.CUT)

    def silence(self) -> None:
        """Make every open watch silent: the connection stays open, and no event comes. New watches work."""
        self._decree(_Fate.SILENT)

    def expire(self) -> None:
        """End every open watch with an ERROR event of 410 Gone."""
        self._decree(_Fate.EXPIRED)

    def set_closed(self, closed: bool) -> None:
        """End all watches, and new ones at once, while ``closed``; for the server's stop and start."""
        with self._store.lock:
            self._closed = closed
            self._store.lock.notify_all()

    def _decree(self, fate: _Fate) -> None:
        with self._store.lock:
            for watch in self._open:
                watch.fate = watch.fate or fate
            self._store.lock.notify_all()

    def stream(self, request: WatchRequest, encode: Encode) -> Iterator[bytes]:
        """Return the chunks of the answer, until the time is over or a test ends the watch."""
        past = self._store.changes_since(request.resource.plural, request.version)
        return self._run(request, encode, past[-1].new.version if past else request.version)

    def _run(self, request: WatchRequest, encode: Encode, start: int) -> Iterator[bytes]:
        watch = _Watch()
        with self._store.lock:
            self._open.add(watch)
        try:
            yield from self._events(watch, request, encode, start)
        finally:
            with self._store.lock:
                self._open.discard(watch)

    def _events(self, watch: _Watch, request: WatchRequest, encode: Encode, start: int) -> Iterator[bytes]:
        """``start`` is the table's version when the watch began: no bookmark repeats it."""
        deadline = time.monotonic() + request.timeout_seconds
        version = request.version
        if not version:
            version, items = self._store.objects(request.resource.plural, request.selection.namespace)
            chosen = [item for item in items if request.selection.takes(item)]
            yield from _batches(_event(ChangeType.ADDED, encode(item)) for item in chosen)
        oldest = self._store.oldest(request.resource.plural)
        if version < oldest:
            yield _error(errors.expired(f"too old resource version: {version} ({oldest})"))
            return
        while not self._over(watch, deadline):
            changes, version = self._wait(watch, request, version, deadline)
            yield from _batches(_changes(changes, request.selection, encode))
            if (
                request.bookmarks
                and request.resource.cached
                and not changes
                and version > start
                and self._lives(watch)
            ):
                yield _bookmark(request.resource, version)
        if watch.fate is _Fate.EXPIRED:
            yield _error(errors.expired("The resourceVersion for the provided watch is too old."))

    def _lives(self, watch: _Watch) -> bool:
        return watch.fate is None and not self._closed

    def _over(self, watch: _Watch, deadline: float) -> bool:
        with self._store.lock:
            return self._closed or time.monotonic() >= deadline or watch.fate in (_Fate.CUT, _Fate.EXPIRED)

    def _wait(
        self, watch: _Watch, request: WatchRequest, version: int, deadline: float
    ) -> tuple[list[Change], int]:
        """Wait for changes. Return none if a bookmark is due, at the deadline, or at the watch's end."""
        table = request.resource.plural
        until = min(deadline, time.monotonic() + self._bookmark_seconds)
        with self._store.lock:
            while not self._closed and watch.fate in (None, _Fate.SILENT):
                changes = self._store.changes_since(table, version) if watch.fate is None else []
                if changes:
                    return changes, changes[-1].new.version
                left = (until if watch.fate is None else deadline) - time.monotonic()
                if left <= 0:
                    break
                self._store.lock.wait(left)
            return [], max(version, self._store.version) if watch.fate is None else version


def _changes(changes: list[Change], selection: Selection, encode: Encode) -> Iterator[bytes]:
    """Return events as one selection sees them: DELETED if an object leaves it, ADDED if one enters it."""
    for change in changes:
        before = change.old is not None and selection.takes(change.old)
        after = change.type is not ChangeType.DELETED and selection.takes(change.new)
        if after:
            yield _event(ChangeType.MODIFIED if before else ChangeType.ADDED, encode(change.new))
        elif before:
            yield _event(ChangeType.DELETED, encode(change.new))


def _batches(events: Iterator[bytes]) -> Iterator[bytes]:
    batch: list[bytes] = []
    for event in events:
        batch.append(event)
        if len(batch) == ITEMS_AT_ONCE:
            yield b"".join(batch)
            batch.clear()
    if batch:
        yield b"".join(batch)


def _event(kind: str, item: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), item)


def _error(error: errors.ApiError) -> bytes:
    return _event("ERROR", dump(error.status()))


def _bookmark(resource: Resource, version: int) -> bytes:
    meta = {"resourceVersion": str(version)}
    item = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta, **resource.skeleton}
    return _event("BOOKMARK", dump(item))
