"""What was read of Loki's past, kept in files, so that another run needs no second reading of it.

Lines are kept as Loki gave them, and not the faults found in them: other rules, brakes and nodes are then
tried on the very same history, and an interrupted run goes on where it was. One directory per Loki, tenant
and query (:func:`cache_name`), in it one file for each window that was proven complete, named by its ends. A
file is written whole or not at all, is known by its digest, and nobody else may read it; a damaged one goes,
and its window is read again. Of all directories together the files used longest ago go beyond
:data:`BYTES_MOST`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path

from konductor_like.loki.response import Entry
from konductor_like.loki.window_query import Window

BYTES_MOST = 512 * 2**20
"""Of all histories under one directory: about 20 million lines."""
_HEAD = b"konductor-like history 1\n"
_DIGEST_BYTES = 32
_DIRECTORY = re.compile(r"[0-9a-f]{20}")
_FILE = re.compile(r"\d+-\d+|\.\d+\.part")
_START, _END = attrgetter("start_ns"), attrgetter("end_ns")


def cache_name(*parts: str) -> str:
    """The directory of what these parts (address, tenant, query) tell apart."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


class HistoryCache:
    """The windows of one history. For one thread; other processes may use the same directory."""

    def __init__(self, root: Path, name: str, bytes_most: int = BYTES_MOST) -> None:
        """Makes the directory. Raises OSError where that cannot be, and where it is somebody else's."""
        self._root, self._directory, self._bytes_most = root, root / name, bytes_most
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._directory.stat().st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "belongs to another user", str(self._directory))
        self._windows = sorted(self._found(), key=attrgetter("start_ns", "end_ns"))
        self._bytes = sum(size for _, size, _ in _files(root))

    def window_at(self, at_ns: int) -> tuple[Window, list[Entry]] | None:
        """The kept window that holds this moment, with its lines; None where none does."""
        while True:
            place = bisect_right(self._windows, at_ns, key=_START)
            holding = [window for window in self._windows[:place] if window.end_ns > at_ns]
            if not holding:
                return None
            window = max(holding, key=_END)
            try:
                return window, _unpacked(self._used(window).read_bytes())
            except (OSError, ValueError):  # gone, or damaged: as if it had never been kept
                self._windows.remove(window)
                self._file(window).unlink(missing_ok=True)

    def next_ns(self, at_ns: int) -> int | None:
        """Where the next kept window after this moment begins."""
        place = bisect_right(self._windows, at_ns, key=_START)
        return self._windows[place].start_ns if place < len(self._windows) else None

    def store(self, window: Window, entries: Iterable[Entry]) -> None:
        """Keep what a window holds. Raises OSError where that cannot be."""
        content = _packed(entries)
        if len(content) > self._bytes_most // 2:
            return
        part = self._directory / f".{os.getpid()}.part"
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
            part.replace(self._file(window))
        except OSError:
            part.unlink(missing_ok=True)
            raise
        self._windows.insert(bisect_right(self._windows, window.start_ns, key=_START), window)
        self._bytes += len(content)
        if self._bytes > self._bytes_most:
            self._make_room()

    def _make_room(self) -> None:
        """Down to nine tenths, the ones used longest ago first; so it is not done for every window."""
        files = sorted(_files(self._root))
        self._bytes = sum(size for _, size, _ in files)
        for _, size, path in files:
            if self._bytes <= self._bytes_most * 9 // 10:
                return
            path.unlink(missing_ok=True)
            self._bytes -= size

    def _used(self, window: Window) -> Path:
        """Its file, marked as used just now."""
        path = self._file(window)
        os.utime(path)
        return path

    def _file(self, window: Window) -> Path:
        return self._directory / f"{window.start_ns}-{window.end_ns}"

    def _found(self) -> Iterator[Window]:
        for path in self._directory.iterdir():
            start, _, end = path.name.partition("-")
            if start.isdecimal() and end.isdecimal() and int(start) < int(end):
                yield Window(int(start), int(end))


def _files(root: Path) -> Iterator[tuple[float, int, Path]]:
    """When each file was used last, its size, and where it is."""
    for path in root.glob("*/*"):
        if not (_DIRECTORY.fullmatch(path.parent.name) and _FILE.fullmatch(path.name)):
            continue  # whose directory this is besides is none of our business
        try:
            found = path.stat()
        except FileNotFoundError:
            continue  # another process made room
        yield found.st_mtime, found.st_size, path


def _packed(entries: Iterable[Entry]) -> bytes:
    """Labels are many lines' own; each set of them is written once."""
    places: dict[tuple[tuple[str, str], ...], int] = {}
    lines = [
        (entry.timestamp_ns, entry.text, places.setdefault(tuple(entry.labels.items()), len(places)))
        for entry in entries
    ]
    content = json.dumps([[dict(labels) for labels in places], lines], separators=(",", ":")).encode()
    packed = zlib.compress(content, 1)
    return b"".join((_HEAD, hashlib.sha256(packed).digest(), packed))


def _unpacked(content: bytes) -> list[Entry]:
    """Raises ValueError for anything that :func:`_packed` did not make."""
    head, rest = content[: len(_HEAD)], content[len(_HEAD) :]
    digest, packed = rest[:_DIGEST_BYTES], rest[_DIGEST_BYTES:]
    if head != _HEAD or hashlib.sha256(packed).digest() != digest:
        raise ValueError("no history, or a damaged one")
    labels, lines = json.loads(zlib.decompress(packed))
    return [Entry(timestamp_ns, text, labels[place]) for timestamp_ns, text, place in lines]
