"""Detection over files: gigabytes as a stream, in constant memory.

Nearly all lines are without an anchor. RE2 looks for the anchors in many lines at once, and only a line with
an anchor is read as the controller reads it. A line of a kernel log in which nothing is found is read again
without what grep or pdsh put before it, and without a byte order mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from io import RawIOBase
from typing import BinaryIO, NamedTuple

from konductor_like.catalog.patterns import finder_in_bytes
from konductor_like.detection.detector import Detector, packaged
from konductor_like.detection.entry import kernel_lines
from konductor_like.detection.kernel_record import RECORD_START
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.detection.why_not import goes_on, is_unparsed
from konductor_like.detection.wrapper import BYTES_ANCHORS
from konductor_like.model import Finding, Source

LINE_BYTES = 256 * 1024
"""Bytes after which a line is cut; the rest is not read."""
_CHUNK_BYTES = 96 * 1024
"""Bytes per read: they fit the processor's cache, and malloc need not map and zero pages for each."""

_GREP = re.compile(r"(?:(?P<file>[\w@%+=~./-]{1,255}):)?(?:\d{1,9}[:-])?(?=\S)", re.ASCII)
"""The words of grep before a line, with ``-H`` and ``-n``. A program puts a blank behind its name."""
_PDSH = re.compile(r"[\w.-]{1,253}: " + RECORD_START)
"""The word of pdsh before a line: the node."""

_BLANKS = (b" ", b"\t")
_EARLIER_BYTES = 8 * 1024
"""Bytes before a line in which its record is looked for, if the line goes on one."""

Progress = Callable[[int], object]
"""Called with the number of bytes that were read since the last call."""
UnparsedLine = Callable[[int], object]
"""Called with the number of a line that names an Xid in a form that detection does not understand."""


class Hit(NamedTuple):
    """A line that reports a fault; ``line_number`` counts from 1, ``line`` has no line end."""

    line_number: int
    finding: Finding
    line: bytes


def scan(
    stream: BinaryIO | RawIOBase,
    source: Source,
    progress: Progress | None = None,
    unparsed: UnparsedLine | None = None,
) -> Iterator[Hit]:
    """Yield the faults in a binary file, in order."""
    detector = packaged()
    logs = MultilineDetector(detector)
    of_kernel = source is Source.KERNEL
    anchors = detector.catalog.scan_anchors(source)
    find_anchor = finder_in_bytes((*anchors, *BYTES_ANCHORS) if of_kernel else anchors)
    number = 1
    # ``read`` would wait for a whole chunk of a pipe; ``read1`` returns what is there.
    read = getattr(stream, "read1", stream.read)
    earlier = b""
    for block in _blocks(iter(lambda: read(_CHUNK_BYTES), b""), progress):
        at, before = 0, _LinesBefore(earlier, block)
        while True:
            if of_kernel and block[at : at + 1] in _BLANKS and logs.goes_on():
                first = end = at
            elif (anchor := find_anchor(block, at)) is not None:
                first, end = block.rfind(b"\n", at, anchor.start()) + 1 or at, anchor.end()
            else:
                break
            end = block.find(b"\n", end)
            last = len(block) if end < 0 else end
            number += block.count(b"\n", at, first)
            line = block[first : min(last, first + LINE_BYTES)].removesuffix(b"\r")
            text = line.decode("utf-8", "replace")
            before.end, found = first, False
            for each in kernel_lines(text) if of_kernel and b"\\n" in line else (text,):
                if not of_kernel:
                    finding = detector.find_in_pod_log(each)
                elif (finding := logs.find(each, before=before)) is None:
                    bare = _without_prefix(each)
                    finding = logs.find(bare) if bare != each else None
                if finding is not None:
                    found = True
                    yield Hit(number, finding, line)
            if unparsed and of_kernel and not found and _is_unparsed(detector, text):
                unparsed(number)
            number += 1
            at = last + 1
        number += block.count(b"\n", at)
        earlier = block[-_EARLIER_BYTES:]


def _is_unparsed(detector: Detector, text: str) -> bool:
    return is_unparsed(detector.catalog, text) or goes_on(detector.find_in_kernel_log, text)


class _LinesBefore:
    """The lines before a place in a block; ``earlier`` is the end of the block before."""

    def __init__(self, earlier: bytes, block: bytes) -> None:
        self.end = 0
        self._earlier = earlier
        self._block = block

    def __call__(self) -> Iterator[str]:
        """Yield the lines before ``end``, the nearest first."""
        start = max(0, self.end - _EARLIER_BYTES)
        lines = ((b"" if start else self._earlier) + self._block[start : self.end]).split(b"\n")
        # The text ends with a newline, and the first line of it may be cut.
        for line in lines[-2 : 0 if start or len(self._earlier) == _EARLIER_BYTES else None : -1]:
            yield line.decode("utf-8", "replace")


def _without_prefix(text: str) -> str:
    """Return a line without a byte order mark and without the prefix of grep or pdsh.

    A file's name has a dot or a slash, and a node's name has a digit; names of programs have neither.
    """
    text = text.removeprefix("\ufeff")
    node = _PDSH.match(text)
    if node is not None and any(map(str.isdigit, node[0])):
        return text[node.end() :]
    grep = _GREP.match(text)
    if grep is None or (grep["file"] and not {".", "/"} & set(grep["file"]) and not grep["file"].isdigit()):
        return text
    return text[grep.end() :]


def _blocks(chunks: Iterable[bytes], progress: Progress | None) -> Iterator[bytes]:
    """Yield blocks of whole lines; a line that is longer than the limit may be cut to its start."""
    begun = b""  # the start of a line whose end has not come yet
    for chunk in chunks:
        if progress is not None:
            progress(len(chunk))
        end = chunk.rfind(b"\n") + 1
        if end:
            yield begun + chunk[:end]
            begun = b""
        begun = (begun + chunk[end:])[:LINE_BYTES]
    if begun:
        yield begun
