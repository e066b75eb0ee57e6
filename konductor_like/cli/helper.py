"""A second process that helps to search one large file.

The file is cut into regions of whole lines. The helper has up to two to search; meanwhile this process
searches the next, and hands everything on in order. Judging stays here, since it goes by the order of lines.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

from konductor_like.detection.scan import CHUNK_BYTES, Part, Progress, Sieve, parts

WORTH_HELP_BYTES = 32 * 2**20
"""Less is searched before two could have shared it."""
REGION_BYTES = 4 * 2**20
_REGIONS_HELPED = 2
_REGIONS_AHEAD = 6
"""How many regions may wait for an earlier one: bounds the memory."""
_GONE = (EOFError, BrokenPipeError, ConnectionResetError)


class _Region(NamedTuple):
    """Whole lines of the file, from byte ``start`` up to before byte ``end``."""

    start: int
    end: int


def is_of_use(size: int | None) -> bool:
    """Whether a file of that many bytes is better searched by two."""
    return sys.platform == "linux" and size is not None and size >= WORTH_HELP_BYTES and os.cpu_count() != 1


class Helper:
    """An open file, and the process that helps to search it."""

    def __init__(self, file: int, sieve: Sieve, connection: Connection) -> None:
        self._file = file
        self._sieve = sieve
        self._connection = connection
        self._helping = 0

    def parts(self, size: int, progress: Progress) -> Iterator[Part]:
        """What the first ``size`` bytes of the file hold, in order. Raises OSError where one cannot read."""
        ahead: deque[tuple[_Region, list[Part] | None]] = deque()  # None: the helper has it
        for region in chain(_regions(self._file, size), (None,)):
            if region is not None:
                ahead.append((region, self._begun(region)))
            while ahead and (region is None or len(ahead) > _REGIONS_AHEAD or self._is_ready(ahead[0][1])):
                done, found = ahead.popleft()
                progress(done.end - done.start)
                yield from self._answer() if found is None else found

    def _begun(self, region: _Region) -> list[Part] | None:
        """What the region holds, or None where the helper was free to search it."""
        if self._helping == _REGIONS_HELPED:
            return _found(self._file, region, self._sieve)
        with suppress(*_GONE):  # which is told when its answer is due
            self._connection.send(region)
        self._helping += 1
        return None

    def _is_ready(self, found: list[Part] | None) -> bool:
        return found is not None or self._connection.poll()

    def _answer(self) -> list[Part]:
        try:
            answer: list[Part] | OSError = self._connection.recv()
        except _GONE:
            raise ChildProcessError("the process that helped to read it is gone") from None
        if isinstance(answer, OSError):
            raise answer
        self._helping -= 1
        return answer


@contextmanager
def helper(file: int, sieve: Sieve) -> Iterator[Helper]:
    """Runs a helper for this open file until the context is left, however that happens.

    It is forked: start no thread before.
    """
    context = get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_help, args=(file, sieve, ours, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Helper(file, sieve, ours)
    finally:
        ours.close()
        process.join()


def _help(file: int, sieve: Sieve, parents: Connection, connection: Connection) -> None:
    parents.close()  # or the end of the parent would not be seen
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    with suppress(*_GONE):  # the parent wants no more
        while True:
            region = connection.recv()
            try:
                connection.send(_found(file, region, sieve))
            except BrokenPipeError:
                return
            except OSError as error:
                connection.send(error)


def _regions(file: int, size: int) -> Iterator[_Region]:
    start = 0
    while start < size:
        end = start + REGION_BYTES
        while end < size:
            piece = os.pread(file, CHUNK_BYTES, end)
            line_end = piece.find(b"\n") + 1
            end += line_end or len(piece)
            if line_end or not piece:
                break
        yield _Region(start, min(end, size))
        start = end


def _found(file: int, region: _Region, sieve: Sieve) -> list[Part]:
    return list(parts(_chunks(file, region), sieve))


def _chunks(file: int, region: _Region) -> Iterator[bytes]:
    # Not read(): both processes share one position in the file.
    at, end = region
    while at < end and (piece := os.pread(file, min(CHUNK_BYTES, end - at), at)):
        at += len(piece)
        yield piece
