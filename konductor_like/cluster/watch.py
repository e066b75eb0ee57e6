"""The events of one watch, read line by line from an answer that does not end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, Self

from konductor_like.cluster.errors import KubeBadAnswer, KubeError, error_of
from konductor_like.cluster.transport import parsed

_PIECE = 1 << 16
_GATHER_SECONDS = 0.2
"""What comes after a silence is left to gather for so long: thousands of kubelets report all the time, and
events one by one cost more than twice of what they cost in a row."""
_SILENCE_SECONDS = 0.01


class WatchEvent(NamedTuple):
    """What happened (``ADDED``, ``MODIFIED``, ``DELETED``, ``BOOKMARK``), and to which object."""

    kind: str
    object: dict[str, Any]


class WatchStream:
    """Iterate over it for the events, inside a ``with``; it ends when the server ends it, or by ``close``.

    An ``ERROR`` event is raised as the error that it stands for (KubeGone when the resourceVersion is too
    old); silence beyond the read timeout is KubeTimeout. ``close`` may be called from any thread.
    """

    def __init__(
        self, answer: Any, what: str, reading: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self._answer = answer
        self._what = what
        self._reading = reading
        self._closed = threading.Event()

    def close(self) -> None:
        """End the watch; a thread that waits for the next event comes back at once."""
        self._closed.set()
        with suppress(OSError, ValueError, RuntimeError):  # it may have ended by itself just now
            self._answer.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._answer.close()

    def __iter__(self) -> Iterator[WatchEvent]:
        for line in self._lines():
            if line.strip():
                yield self._event(line)

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        pieces: list[bytes] = []
        while piece := self._next():
            *lines, rest = piece.split(b"\n")
            if lines:
                yield b"".join((*pieces, lines[0]))
                yield from lines[1:]
                pieces = []
            pieces.append(rest)
        # A last line without its end was cut off; what it says will come again with the next watch.

    def _next(self) -> bytes:
        began = time.monotonic()
        piece = self._piece()
        if time.monotonic() - began > _SILENCE_SECONDS:
            self._closed.wait(_GATHER_SECONDS)
        return piece

    def _piece(self) -> bytes:
        try:
            with self._reading(self._what):
                return b"" if self._closed.is_set() else self._answer.read1(_PIECE) or b""
        except (KubeError, OSError, ValueError):
            if self._closed.is_set():
                return b""  # closing it is what broke it
            raise

    def _event(self, line: bytes) -> WatchEvent:
        try:
            event = parsed(line)
            kind, found = event["type"], event["object"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise KubeBadAnswer(f"cannot {self._what}: the stream holds a line that is no event") from error
        if not isinstance(found, dict):
            raise KubeBadAnswer(f"cannot {self._what}: the stream holds an event without an object")
        if kind == "ERROR":
            code = found.get("code")
            raise error_of(self._what, code if isinstance(code, int) else 500, json.dumps(found).encode())
        return WatchEvent(str(kind), found)
