"""The objects of a list, one at a time out of an answer of any size.

The API server's cache has no pages: with ``resourceVersion=0`` the server ignores ``limit``, and without it
every pod of the cluster is read from etcd. So the answer is read in small pieces, and of its objects, which
may have 1.5 MiB each, only one is held.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from konductor_like.cluster.parsing import parsed

FRAME_BYTES_MOST = 1 << 20
"""Of what stands around the objects: kind, metadata, and a comma each."""
_BETWEEN = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+', re.DOTALL)
"""Everything up to a bracket, or up to a string that does not end in this piece."""
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_QUOTE, _BACKSLASH = b'"\\'
_OPENING, _CLOSING = b"{[", b"}]"
_IN_ITEMS = b"{["
"""What is open between two objects of a list: the list itself, and its array of items."""
_IN_OBJECT = b"{[{"


class Objects:
    """Iterate over it for the objects. Raises ValueError or RecursionError for what is no list in JSON."""

    def __init__(self, pieces: Iterable[bytes], *, object_bytes: int, total_bytes: int) -> None:
        """Objects larger than ``object_bytes`` are passed over; nothing is read after ``total_bytes``."""
        self.passed_over = 0
        """How many objects were too large."""
        self.complete = False
        """Whether the answer was read to its end."""
        self._pieces = pieces
        self._object_bytes = object_bytes
        self._total_bytes = total_bytes
        self._frame = bytearray()
        """The answer with a 0 in place of each object."""
        self._object = bytearray()
        self._too_large = False
        self._open = bytearray()
        """The brackets that are open."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        read, rest, in_string = 0, b"", False
        for piece in self._pieces:
            read += len(piece)
            data, start, at = rest + piece, 0, 0
            rest = b""
            while at < len(data):
                if in_string:
                    at = _match_end(_IN_STRING, data, at)
                    if at == len(data):
                        break
                    if data[at] == _BACKSLASH:  # the character that it escapes is in the next piece
                        data, rest = data[:at], data[at:]
                        break
                    in_string, at = False, at + 1
                    continue
                at = _match_end(_BETWEEN, data, at)
                if at == len(data):
                    break
                mark, at = data[at], at + 1
                if mark == _QUOTE:
                    in_string = True
                elif mark in _OPENING:
                    if self._open == _IN_ITEMS and mark == _OPENING[0]:
                        self._keep(data[start : at - 1])
                        start = at - 1
                    self._open.append(mark)
                else:
                    self._close(mark)
                    if self._open == _IN_ITEMS and mark == _CLOSING[0]:
                        self._keep(data[start:at], inside=True)
                        start = at
                        yield from self._taken()
            self._keep(data[start:], inside=self._open.startswith(_IN_OBJECT))
            if read > self._total_bytes:
                return
        self._end()

    def _close(self, mark: int) -> None:
        if not self._open or _OPENING.index(self._open.pop()) != _CLOSING.index(mark):
            raise ValueError("brackets do not match")

    def _keep(self, data: bytes, *, inside: bool = False) -> None:
        if not inside:
            self._frame += data
            if len(self._frame) > FRAME_BYTES_MOST:
                raise ValueError("too much around the objects")
        elif len(self._object) + len(data) > self._object_bytes:
            self._too_large = True
            self._object.clear()
        elif not self._too_large:
            self._object += data

    def _taken(self) -> Iterator[dict[str, Any]]:
        """The object that just ended, unless it was too large."""
        self._frame += b"0"
        if self._too_large:
            self.passed_over += 1
        else:
            yield parsed(self._object)
        self._object.clear()
        self._too_large = False

    def _end(self) -> None:
        found = parsed(self._frame)
        if not (isinstance(found, dict) and str(found.get("kind", "")).endswith("List")):
            raise ValueError("it is not a list")
        self.complete = True


def _match_end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)  # which may be empty
    return at if found is None else found.end()
