"""Detection over files: gigabytes as a stream, in constant memory.

Nearly all lines hold no anchor, so many lines are searched for the anchors at once, and only the lines around
a hit are looked at. The two halves of the work are apart so that several processes can share the first:
``parts`` finds the lines with an anchor, in any stretch of whole lines; ``judge`` looks at them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from konductor_like.detection.detector import packaged
from konductor_like.detection.joining import Joiner
from konductor_like.model import Finding, Source

LINE_BYTES = 256 * 1024
"""A longer line is cut here; what was cut off is not looked at."""
CHUNK_BYTES = 96 * 1024
"""Fits the processor's cache, and stays below what malloc maps anew, page fault by page fault, each time."""
_WIDE_BYTES = 4096
_NARROW_BYTES = 256
"""The two meshes of the sieve: at one hit in a thousand lines the first lets 95 % of the text pass unseen."""

Progress = Callable[[int], object]
"""Is told how many more bytes were read."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for: the anchors, and a quick look at whether a text may hold any of them.

    The sieve must never say no where there is an anchor; it may say yes where there is none. Its text is
    decoded as Latin-1, so that there is a character for each byte.
    """

    anchors: tuple[bytes, ...]
    sieve: Callable[[str], object] = bool


class Part(NamedTuple):
    """What a stretch of whole lines holds.

    ``anchored`` has each line with an anchor, without its line end, behind the number of lines before it.
    """

    lines: int
    anchored: list[tuple[int, bytes]]


class Hit(NamedTuple):
    """A line that reports a fault; ``line_number`` counts from 1, ``line`` has no line end."""

    line_number: int
    finding: Finding
    line: bytes


class _Span(NamedTuple):
    """Whole lines, ``block[start:end]``."""

    block: bytes
    start: int
    end: int


def anchors(source: Source) -> tuple[bytes, ...]:
    """What every line has of which ``judge`` can make anything."""
    return tuple(anchor.encode() for anchor in packaged().catalog.scan_anchors(source))


def scan(stream: Iterable[bytes], source: Source, progress: Progress | None = None) -> Iterator[Hit]:
    """The faults in a binary file or in an iterable of lines, in order."""
    return judge(parts(chunks(stream), Search(anchors(source)), progress), source)


def judge(parts: Iterable[Part], source: Source) -> Iterator[Hit]:
    """The faults in the consecutive parts of one log."""
    detector = packaged()
    find = Joiner(lambda: detector).find if source is Source.KERNEL else detector.find_in_pod_log
    number = 1
    for part in parts:
        for before, line in part.anchored:
            finding = find(line.decode("utf-8", "replace"))
            if finding is not None:
                yield Hit(number + before, finding, line)
        number += part.lines


def parts(chunks: Iterable[bytes], search: Search, progress: Progress | None = None) -> Iterator[Part]:
    """The lines with an anchor in consecutive pieces of a file."""
    for block, start, end in _spans(chunks, progress):
        lines = 0
        counted = start
        anchored = []
        for first, last in _candidates(block, start, end, search):
            lines += _line_ends(block[counted:first])
            counted = first
            anchored.append((lines, block[first : min(last, first + LINE_BYTES)].removesuffix(b"\r")))
        yield Part(lines + _line_ends(block[counted:end]), anchored)


def _line_ends(text: bytes) -> int:
    # CPython 3.11 counts byte by byte; replacing looks for the next as the C library does, in half the time.
    return len(text) - len(text.replace(b"\n", b""))


def _candidates(block: bytes, start: int, end: int, search: Search) -> Iterator[tuple[int, int]]:
    """Where the lines with an anchor begin and end, in order."""
    done = start
    for window, stop in _windows(block, start, end, search):
        found: set[tuple[int, int]] = set()
        for anchor in search.anchors:
            position = block.find(anchor, max(window, done), stop)
            while position >= 0:
                first = block.rfind(b"\n", start, position) + 1 or start
                last = block.find(b"\n", position, end)
                last = end if last < 0 else last
                found.add((first, last))
                position = block.find(anchor, last, stop)
        yield from sorted(found)
        done = max(found)[1] if found else done


def _windows(block: bytes, start: int, end: int, search: Search) -> Iterator[tuple[int, int]]:
    """The stretches that may hold an anchor; they overlap by as much as one may be cut."""
    text = block.decode("latin-1")
    beyond = max(map(len, search.anchors), default=0)
    for wide in range(start, end, _WIDE_BYTES):
        wide_end = min(wide + _WIDE_BYTES, end)
        if search.sieve(text[wide : min(wide_end + beyond, end)]):
            for narrow in range(wide, wide_end, _NARROW_BYTES):
                stop = min(narrow + _NARROW_BYTES + beyond, end)
                if search.sieve(text[narrow:stop]):
                    yield narrow, stop


def _spans(chunks: Iterable[bytes], progress: Progress | None) -> Iterator[_Span]:
    """Whole lines, of which an overlong one is cut and ends where the next begins."""
    begun = b""  # the start of a line whose end has not come yet
    for chunk in chunks:
        if progress is not None:
            progress(len(chunk))
        first_end = chunk.find(b"\n") + 1
        if not first_end:
            begun = (begun + chunk)[:LINE_BYTES]
            continue
        if begun:
            line = (begun + chunk[: first_end - 1])[:LINE_BYTES] + b"\n"
            yield _Span(line, 0, len(line))
        last_end = chunk.rfind(b"\n") + 1
        yield _Span(chunk, first_end if begun else 0, last_end)
        begun = chunk[last_end:][:LINE_BYTES]
    if begun:
        yield _Span(begun, 0, len(begun))


def chunks(stream: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of a binary file, large ones of a file and of a pipe what is in it; or whole lines, as given."""
    read = getattr(stream, "read1", None) or getattr(stream, "read", None)
    if read is None:
        for line in stream:
            yield line if line.endswith(b"\n") else line + b"\n"
        return
    while chunk := read(CHUNK_BYTES):
        yield chunk
