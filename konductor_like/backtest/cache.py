"""The cache of Loki's history: a later run reads these files, and asks Loki only for the rest.

The cache keeps Loki's lines, not the faults found in them, so that a person can try other rules, brakes and
nodes on the same history, and an interrupted run continues where it ended. Each Loki, tenant and query has a
directory (:func:`cache_name`) with a file for each window that was proven complete; the file's name is the
window's start and end. A file is written whole or not at all, and only its owner may read it. A damaged file
(zlib checks this) is removed, and its window is read again. If all directories together exceed
:data:`BYTES_MOST`, the cache removes the files that were used longest ago.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from konductor_like.loki.query.response import Entry
from konductor_like.loki.query.window_query import TimeWindow

BYTES_MOST = 512 * 2**20
"""Bytes of all histories under one directory: about 20 million lines."""
_FORMAT = "history 2"


def cache_name(*parts: str) -> str:
    """Return the name of the directory for this address, tenant and query."""
    return hashlib.sha256("\0".join((_FORMAT, *parts)).encode()).hexdigest()[:20]


class HistoryCache:
    """The cached windows of one history. Not thread-safe; other processes may use the same directory."""

    def __init__(self, root: Path, name: str, bytes_most: int = BYTES_MOST) -> None:
        """Make the directory. Raises OSError if this fails."""
        self._root, self._directory, self._bytes_most = root, root / name, bytes_most
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._windows: set[TimeWindow] = set()
        for path in self._directory.glob("[0-9]*-*"):
            start, _, end = path.name.partition("-")
            self._windows.add(TimeWindow(int(start), int(end)))
        self._bytes = sum(status.st_size for status in self._files().values())

    def window_at(self, at_ns: int) -> tuple[TimeWindow, list[Entry]] | None:
        """Return the cached window around this moment that ends last, with its lines; None without one."""
        while around := [window for window in self._windows if window.start_ns <= at_ns < window.end_ns]:
            window = max(around, key=lambda each: each.end_ns)
            path = self._file(window)
            try:
                os.utime(path)  # the time of the last use
                return window, _unpacked(path.read_bytes())
            except (OSError, ValueError, zlib.error):  # removed or damaged: forget the window
                self._windows.remove(window)
                path.unlink(missing_ok=True)
        return None

    def next_ns(self, at_ns: int) -> int | None:
        """Return the start of the next cached window after this moment; None without one."""
        return min((window.start_ns for window in self._windows if window.start_ns > at_ns), default=None)

    def store(self, window: TimeWindow, entries: Iterable[Entry]) -> None:
        """Write a window's lines to the cache. Raises OSError if this fails."""
        content = _packed(entries)
        part = self._directory / f".{os.getpid()}.part"
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
            part.replace(self._file(window))
        except OSError:
            part.unlink(missing_ok=True)
            raise
        self._windows.add(window)
        self._bytes += len(content)
        if self._bytes > self._bytes_most:
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        """Remove the files used longest ago, down to nine tenths of the limit.

        Below the limit, the next windows can be stored without another removal.
        """
        found = self._files()
        self._bytes = sum(status.st_size for status in found.values())
        for path in sorted(found, key=lambda each: found[each].st_mtime):
            if self._bytes <= self._bytes_most * 9 // 10:
                return
            path.unlink(missing_ok=True)
            self._bytes -= found[path].st_size

    def _files(self) -> dict[Path, os.stat_result]:
        """Return the files of all histories; another process may remove some meanwhile."""
        found = {}
        for path in self._root.glob("*/*"):
            with suppress(FileNotFoundError):
                found[path] = path.stat()
        return found

    def _file(self, window: TimeWindow) -> Path:
        return self._directory / f"{window.start_ns}-{window.end_ns}"


def _packed(entries: Iterable[Entry]) -> bytes:
    lines = [(entry.timestamp_ns, entry.text, dict(entry.labels)) for entry in entries]
    return zlib.compress(json.dumps(lines, separators=(",", ":")).encode(), 1)


def _unpacked(content: bytes) -> list[Entry]:
    """Return the lines of a file. Raises ValueError or zlib.error if :func:`_packed` did not write it."""
    return [Entry(*line) for line in json.loads(zlib.decompress(content))]
