"""Detection over files: gigabytes as a stream, in constant memory.

Nearly all lines hold no anchor, so a block of many lines is searched for the anchors at once, and only the
lines around a hit are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from konductor_like.detection.anchors import anchors_of
from konductor_like.detection.kernel import find_in_kernel_log
from konductor_like.detection.pod import find_in_pod_log
from konductor_like.model import Finding, Source

LINE_BYTES = 256 * 1024
"""A longer line is cut here; what was cut off is not looked at."""
_CHUNK_BYTES = 512 * 1024


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


def scan(
    stream: Iterable[bytes], source: Source, progress: Callable[[int], object] | None = None
) -> Iterator[Hit]:
    """The faults in a binary file or in an iterable of lines, in order.

    A file is read in large blocks, a pipe as it fills. ``progress`` is told how many more bytes were read.
    """
    find = find_in_kernel_log if source is Source.KERNEL else find_in_pod_log
    anchors = tuple(anchor.encode() for anchor in anchors_of(source))
    number = 1
    for block, start, end in _spans(_chunks(stream), progress):
        counted = start
        for first, last in _candidates(block, start, end, anchors):
            number += block.count(b"\n", counted, first)
            counted = first
            line = block[first : min(last, first + LINE_BYTES)].removesuffix(b"\r")
            finding = find(line.decode("utf-8", "replace"))
            if finding is not None:
                yield Hit(number, finding, line)
        number += block.count(b"\n", counted, end)


def _candidates(block: bytes, start: int, end: int, anchors: Iterable[bytes]) -> list[tuple[int, int]]:
    """Where the lines with an anchor begin and end."""
    found: set[tuple[int, int]] = set()
    for anchor in anchors:
        position = block.find(anchor, start, end)
        while position >= 0:
            first = block.rfind(b"\n", start, position) + 1 or start
            last = block.find(b"\n", position, end)
            last = end if last < 0 else last
            found.add((first, last))
            position = block.find(anchor, last, end)
    return sorted(found)


def _spans(chunks: Iterable[bytes], progress: Callable[[int], object] | None) -> Iterator[_Span]:
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


def _chunks(stream: Iterable[bytes]) -> Iterator[bytes]:
    read = getattr(stream, "read1", None) or getattr(stream, "read", None)
    if read is None:
        for line in stream:
            yield line if line.endswith(b"\n") else line + b"\n"
        return
    while chunk := read(_CHUNK_BYTES):
        yield chunk
