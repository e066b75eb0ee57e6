"""Lines that go on the record before them, in streams of lines.

The kernel's text may have newlines. dmesg and journalctl print the rest of such a text as lines without a
stamp, indented. Some of these lines are the driver's; in others the words of the driver are the name of a
file that a tenant chose. So a line that goes on a record is read together with the record, and the whole is a
fault only if the record begins as the driver's records do. Loki returns only lines with certain words, so the
record is often not read: then the line is no fault.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from konductor_like.detection.kernel_record import BEGINS_RECORD, Begin, begin_of, open_record, strip_colours
from konductor_like.detection.wrapper import unwrap_output
from konductor_like.model import Finding
from konductor_like.model.time import SECOND_NS

STREAMS_MOST = 10_000
"""Streams that are followed at once; beyond it the stream that has been silent longest is forgotten."""
CONTINUED_ANCHORS = (" Fatal ", "RST: Yes")
"""Words of a fault that a newline in the name of a process may cut off. Loki is asked for these lines too."""
_SOON_NS = SECOND_NS
"""Nanoseconds between a record and the lines that go on it at most: they are printed at once."""
_DRIVER = "NVRM: "
_WHOLE = "kmsg/1 boot="
"""The beginning of a record that the kernel-log reader printed: no line ever goes on it."""
_LINES_MOST = 64
"""Lines of one record that are read together."""
_CUT = re.compile(r", name=[^,]{0,15}$", re.ASCII)
"""The end of a record that was cut in the name of a process."""

Find = Callable[[str], Finding | None]
LinesBefore = Callable[[], Iterable[str]]
"""Returns the lines of a stream before the present one, the nearest first."""


@dataclass(slots=True)
class _Stream:
    stamped: bool
    """Whether the records of the stream begin with a stamp, or with what syslog and the journal print."""
    blanks: int = 0
    """The blanks before them."""
    record: tuple[str, ...] = ()
    """The latest record and the lines that go on it; empty unless it is the driver's."""
    at_ns: int | None = None


class Continuations:
    """Follows streams of kernel lines. For one thread."""

    def __init__(self) -> None:
        self._streams: OrderedDict[Hashable, _Stream] = OrderedDict()

    def goes_on(self, key: Hashable) -> bool:
        """Whether the latest record of a stream is the driver's, so that further lines may go on it."""
        stream = self._streams.get(key)
        return stream is not None and bool(stream.record)

    def judged(
        self,
        find: Find,
        text: str,
        key: Hashable,
        at_ns: int | None = None,
        before: LinesBefore | None = None,
    ) -> Finding | None:
        """Return the finding of the next line of a stream; ``find`` returns that of a text alone.

        ``at_ns`` is the line's time in Loki. ``before`` is for a file, where every line can be read.
        """
        if text.startswith(_WHOLE):
            return find(text)
        finding, stream = find(text), self._streams.get(key)
        if BEGINS_RECORD.match(text):  # the usual line
            if stream is not None:
                stream.stamped, stream.blanks, stream.at_ns = True, 0, at_ns
                stream.record = (text,) if _DRIVER in text else ()
            elif finding is not None or _DRIVER in text:
                self._note(key, None, text, at_ns, blanks=0)
            return finding
        if finding is None and _DRIVER not in text and (stream is None or not stream.record):
            return None
        begin = begin_of(text)
        if before is not None and (begin.indented or not (begin.of_record or _is_bare(stream))):
            stream = self._looked_back(key, stream, begin, before())
        at_most = 1 if stream is None else max(1, stream.blanks)
        if begin.of_record and (begin.blanks <= at_most or _is_bare(stream)):
            self._note(key, stream, text, at_ns, blanks=begin.blanks)
            return finding
        if not begin.of_record and (_is_bare(stream) or (stream is None and not begin.indented)):
            if stream is None:
                self._add(key, _Stream(stamped=False))
            return finding
        if stream is None or not stream.record or not _is_soon(stream, at_ns):
            return None
        if begin.indented or _CUT.search(stream.record[-1]):
            return _joined(find, stream, text)
        return None

    def _looked_back(
        self, key: Hashable, stream: _Stream | None, begin: Begin, before: Iterable[str]
    ) -> _Stream | None:
        """Return the stream as the lines before a line show it: with the record that the line goes on."""
        between: list[str] = []
        for text in before:
            if len(between) >= _LINES_MOST:
                break
            earlier = begin_of(text)
            if earlier.of_record and (not earlier.indented or earlier.blanks < begin.blanks):
                self._note(key, stream, text, None, blanks=earlier.blanks)
                found = self._streams[key]
                found.record = found.record and (text, *reversed(between))
                return found
            if not earlier.indented:
                break
            between.append(_bare(text))
        else:
            return stream or self._add(key, _Stream(stamped=False))  # nothing is before the line
        if stream is None and len(between) < _LINES_MOST:
            return self._add(key, _Stream(stamped=False))
        if stream is not None:
            stream.record = ()
        return stream

    def _note(
        self, key: Hashable, stream: _Stream | None, text: str, at_ns: int | None, *, blanks: int
    ) -> None:
        if stream is None:
            stream = self._add(key, _Stream(stamped=True))
        self._streams.move_to_end(key)
        stream.stamped, stream.blanks, stream.at_ns = True, blanks, at_ns
        stream.record = (text,) if _DRIVER in text else ()

    def _add(self, key: Hashable, stream: _Stream) -> _Stream:
        self._streams[key] = stream
        if len(self._streams) > STREAMS_MOST:
            self._streams.popitem(last=False)
        return stream


def _is_bare(stream: _Stream | None) -> bool:
    return stream is not None and not stream.stamped


def _is_soon(stream: _Stream, at_ns: int | None) -> bool:
    return at_ns is None or stream.at_ns is None or 0 <= at_ns - stream.at_ns <= _SOON_NS


def _joined(find: Find, stream: _Stream, text: str) -> Finding | None:
    """Return the finding of the record with this line; None if the line adds nothing."""
    line = _bare(text)
    if line not in stream.record[1:]:
        if len(stream.record) > _LINES_MOST:
            return None
        stream.record = (*stream.record, line)
    upto = stream.record.index(line, 1)  # the same line again, if it is read again
    if not (opened := open_record(stream.record[0])) or not opened[0].startswith(_DRIVER):
        return None
    before, after = find("\n".join(stream.record[:upto])), find("\n".join(stream.record[: upto + 1]))
    if after is None or (before and _meaning(before) == _meaning(after)):
        return None
    return after


def _bare(text: str) -> str:
    return unwrap_output(strip_colours(text)).strip()


def _meaning(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.severity, finding.title, finding.gpu
