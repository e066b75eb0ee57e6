"""Read the events of one watch, line by line, from an answer that does not end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, Self

from konductor_like.cluster.api.errors import KubeBadAnswer, KubeError, error_of
from konductor_like.cluster.api.transport import parsed

_PIECE = 1 << 16
_GATHER_SECONDS = 0.2
"""Seconds to wait after the first event that follows a silence, so that more events gather and are read at
once. Thousands of kubelets report all the time, and reading events one by one costs more than twice as
much."""
_SILENCE_SECONDS = 0.01
"""Seconds without data that count as a silence."""


class WatchEvent(NamedTuple):
    """One change: its kind (``ADDED``, ``MODIFIED``, ``DELETED``, ``BOOKMARK``) and its object."""

    kind: str
    object: dict[str, Any]


class WatchStream:
    """An iterator over the events, for use inside a ``with``. It ends when the server ends the watch or
    ``close`` is called.

    An ``ERROR`` event is raised as its KubeError (KubeGone if the resourceVersion is too old), silence beyond
    the read timeout as KubeTimeout. Any thread may call ``close``.
    """

    def __init__(
        self, answer: Any, what: str, reading: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self._answer = answer
        self._what = what
        self._reading = reading
        self._closed = threading.Event()

    def close(self) -> None:
        """End the watch. A thread that waits for the next event stops waiting at once."""
        self._closed.set()
        with suppress(OSError, ValueError, RuntimeError):  # the watch may have ended just now
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
        # A last line without a newline was cut off; the next watch will bring its event again.

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
                return b""  # the error comes from close
            raise

    def _event(self, line: bytes) -> WatchEvent:
        try:
            event = parsed(line)
            kind, found = event["type"], event["object"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise KubeBadAnswer(f"cannot {self._what}: the stream has a line that is not an event") from error
        if not isinstance(found, dict):
            raise KubeBadAnswer(f"cannot {self._what}: the stream has an event without an object")
        if kind == "ERROR":
            code = found.get("code")
            raise error_of(self._what, code if isinstance(code, int) else 500, json.dumps(found).encode())
        return WatchEvent(str(kind), found)
