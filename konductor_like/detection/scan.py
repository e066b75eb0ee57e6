"""Detection over files: gigabytes as a stream, in constant memory.

Nearly all lines hold no anchor, so many lines are searched for the anchors at once, and only the lines around
a hit are looked at. The two halves of the work are apart so that several processes can share the first:
``parts`` finds the lines with an anchor, in any stretch of whole lines; ``judge`` looks at them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from konductor_like.detection.detector import packaged
from konductor_like.detection.joining import Joiner
from konductor_like.model import Finding, Source

LINE_BYTES = 256 * 1024
"""A longer line is cut here; what was cut off is not looked at."""
CHUNK_BYTES = 96 * 1024
"""Fits the processor's cache, and stays below what malloc maps anew, page fault by page fault, each time."""
_WIDE_CHARS = 8192
_NARROW_CHARS = 1024
"""About how much goes through the sieve at once, and again of what was held back, before it is lines."""

Sieve = Callable[[str], object]
"""Whether a text, decoded as Latin-1, holds any anchor; it may say yes where there is none, never no."""
Progress = Callable[[int], object]
"""Is told how many more bytes were read."""


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
    literals = [anchor.decode("latin-1") for anchor in anchors(source)]

    def sieve(text: str) -> bool:
        return any(literal in text for literal in literals)

    return judge(parts(chunks(stream), sieve, progress), source)


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


def parts(chunks: Iterable[bytes], sieve: Sieve, progress: Progress | None = None) -> Iterator[Part]:
    """The lines that the sieve holds back, in consecutive pieces of a file."""
    for block, start, end in _spans(chunks, progress):
        lines = 0
        counted = start
        anchored = []
        for first, last in _held_back(block.decode("latin-1"), start, end, sieve):
            lines += _line_ends(block[counted:first])
            counted = first
            anchored.append((lines, block[first : min(last, first + LINE_BYTES)].removesuffix(b"\r")))
        yield Part(lines + _line_ends(block[counted:end]), anchored)


def _line_ends(text: bytes) -> int:
    # CPython 3.11 counts byte by byte; replacing looks for the next as the C library does, in half the time.
    return len(text) - len(text.replace(b"\n", b""))


def _held_back(text: str, start: int, end: int, sieve: Sieve) -> Iterator[tuple[int, int]]:
    """Where the lines begin and end that do not pass the sieve, in order."""
    for wide, wide_end in _stretches(text, start, end, _WIDE_CHARS):
        if not sieve(text[wide:wide_end]):
            continue
        for first, last in _stretches(text, wide, wide_end, _NARROW_CHARS):
            if not sieve(text[first:last]):
                continue
            for line in text[first:last].split("\n"):
                if sieve(line):
                    yield first, first + len(line)
                first += len(line) + 1


def _stretches(text: str, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Whole lines, so many that they have up to that size, but at least one."""
    while start < end:
        stop = text.rfind("\n", start, min(start + size, end)) + 1 or text.find("\n", start, end) + 1 or end
        yield start, stop
        start = stop


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
