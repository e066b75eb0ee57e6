"""The cache of Loki's past: another run reads files, and Loki only for the rest.

The cache keeps lines as Loki gave them, and not the faults found in them: other rules, brakes and nodes are
then tried on the very same history, and an interrupted run goes on where it was. Each Loki, tenant and query
has a directory (:func:`cache_name`) with a file for each window that was proven complete, named by its ends.
A file is written whole or not at all, and nobody else may read it. A damaged file, which zlib's checksum
tells, is removed, and its window is read again. Beyond :data:`BYTES_MOST` in all directories together, the
files used longest ago are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from konductor_like.loki.response import Entry
from konductor_like.loki.window_query import Window

BYTES_MOST = 512 * 2**20
"""Of all histories under one directory: about 20 million lines."""
_FORMAT = "history 2"


def cache_name(*parts: str) -> str:
    """The directory of what these parts (address, tenant, query) tell apart."""
    return hashlib.sha256("\0".join((_FORMAT, *parts)).encode()).hexdigest()[:20]


class HistoryCache:
    """The windows of one history. For one thread; other processes may use the same directory."""

    def __init__(self, root: Path, name: str, bytes_most: int = BYTES_MOST) -> None:
        """Makes the directory. Raises OSError where that cannot be."""
        self._root, self._directory, self._bytes_most = root, root / name, bytes_most
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._windows: set[Window] = set()
        for path in self._directory.glob("[0-9]*-*"):
            start, _, end = path.name.partition("-")
            self._windows.add(Window(int(start), int(end)))
        self._bytes = sum(status.st_size for status in self._files().values())

    def window_at(self, at_ns: int) -> tuple[Window, list[Entry]] | None:
        """The kept window that holds this moment and reaches furthest, with its lines; None without one."""
        while holding := [window for window in self._windows if window.start_ns <= at_ns < window.end_ns]:
            window = max(holding, key=lambda each: each.end_ns)
            path = self._file(window)
            try:
                os.utime(path)  # used just now
                return window, _unpacked(path.read_bytes())
            except (OSError, ValueError, zlib.error):  # gone, or damaged: as if it had never been kept
                self._windows.remove(window)
                path.unlink(missing_ok=True)
        return None

    def next_ns(self, at_ns: int) -> int | None:
        """The start of the next kept window after this moment."""
        return min((window.start_ns for window in self._windows if window.start_ns > at_ns), default=None)

    def store(self, window: Window, entries: Iterable[Entry]) -> None:
        """Keep what a window holds. Raises OSError where that cannot be."""
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
            self._make_room()

    def _make_room(self) -> None:
        """Down to nine tenths, the ones used longest ago first; so it is not done for every window."""
        found = self._files()
        self._bytes = sum(status.st_size for status in found.values())
        for path in sorted(found, key=lambda each: found[each].st_mtime):
            if self._bytes <= self._bytes_most * 9 // 10:
                return
            path.unlink(missing_ok=True)
            self._bytes -= found[path].st_size

    def _files(self) -> dict[Path, os.stat_result]:
        """The files of all histories; another process may remove some meanwhile."""
        found = {}
        for path in self._root.glob("*/*"):
            with suppress(FileNotFoundError):
                found[path] = path.stat()
        return found

    def _file(self, window: Window) -> Path:
        return self._directory / f"{window.start_ns}-{window.end_ns}"


def _packed(entries: Iterable[Entry]) -> bytes:
    lines = [(entry.timestamp_ns, entry.text, dict(entry.labels)) for entry in entries]
    return zlib.compress(json.dumps(lines, separators=(",", ":")).encode(), 1)


def _unpacked(content: bytes) -> list[Entry]:
    """Raises ValueError or zlib.error for anything that :func:`_packed` did not make."""
    return [Entry(*line) for line in json.loads(zlib.decompress(content))]
