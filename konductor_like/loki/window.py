"""Reading a span of time in windows that are each proven complete. Pure: it asks through a callable.

Loki's sharded queries may silently return fewer lines than match once more than ``limit`` do (design rule 7),
so a window is accepted only if it was not sharded, or if a count of Loki's says that nothing was cut, and is
halved otherwise. Of a full answer that was not sharded, all but its last moment is accepted: it is cut there
and nowhere else. Windows come in the order of time and touch without overlapping, so what was accepted is
always one span without a hole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from konductor_like.loki.response import Entry, QueryResult


class Direction(StrEnum):
    """From which end Loki fills an answer up to the limit."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Window:
    """The half-open span ``[start_ns, end_ns)``."""

    start_ns: int
    end_ns: int

    @property
    def width_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Piece:
    """An accepted window and its entries.

    ``complete`` is False only for a single nanosecond with more lines than Loki gives out: then ``entries``
    are what could be had.
    """

    window: Window
    entries: tuple[Entry, ...]
    complete: bool = True
    next_width_ns: int = field(default=1, compare=False)
    """How wide the next window may well be: fuller than this one, but not too full."""


_FILL = 0.85
COUNTABLE_NS = 1_000_000
"""Loki's durations know nothing finer."""

Ask = Callable[[Window, Direction], QueryResult | None]
"""Queries one window; None when the answer would be too large, which is never so for a single nanosecond."""


def is_complete(result: QueryResult) -> bool:
    """Whether nothing can have been cut from this answer.

    One that was not sharded is cut at the limit only; the count of a sharded one tells, where it is low.
    """
    if len(result.entries) >= result.limit:
        return False
    if result.shards is not None and result.shards <= 1:
        return True
    if result.post_filter_lines is None:
        return len(result.entries) <= result.limit // 2
    return result.post_filter_lines <= result.limit


def read_span(span: Window, first_ns: int, widest_ns: int, ask: Ask) -> Iterator[Piece]:
    """Read a span piece by piece, in order; the caller may stop after any piece.

    The first window is ``first_ns`` wide. Each window that was accepted makes the next one twice as wide, up
    to ``widest_ns``; each that was not is asked again with half the width or less.
    """
    start_ns, width_ns = span.start_ns, min(first_ns, widest_ns)
    while start_ns < span.end_ns:
        window = Window(start_ns, min(start_ns + width_ns, span.end_ns))
        result = ask(window, Direction.FORWARD)
        if result is not None and is_complete(result):
            piece = Piece(window, result.entries, next_width_ns=_wider(width_ns, result))
        elif result is not None and (whole_ns := _whole_before(window, result)):
            window = Window(start_ns, whole_ns)
            entries = tuple(entry for entry in result.entries if entry.timestamp_ns < whole_ns)
            piece = Piece(window, entries, next_width_ns=_wider(window.width_ns, result))
        elif window.width_ns > 1:
            width_ns = _narrower(window, result)
            continue
        else:
            piece = _one_nanosecond(window, result, ask)
        yield piece
        start_ns = window.end_ns
        width_ns = min(piece.next_width_ns, widest_ns)


def _whole_before(window: Window, result: QueryResult) -> int:
    """Up to where a full answer surely holds everything; 0 where that is nowhere."""
    if result.shards is None or result.shards > 1 or len(result.entries) < result.limit:
        return 0
    width_ns = max(entry.timestamp_ns for entry in result.entries) - window.start_ns
    width_ns = width_ns // COUNTABLE_NS * COUNTABLE_NS or width_ns  # whole milliseconds can be counted
    return window.start_ns + width_ns if width_ns else 0


def _wider(width_ns: int, result: QueryResult) -> int:
    """Up to twice as wide; less where that would hold more than one answer does, by this one's density."""
    doubled_ns = 2 * width_ns
    if 2 * len(result.entries) < _FILL * result.limit:
        return doubled_ns
    wider_ns = int(width_ns * _FILL * result.limit / len(result.entries))
    # Whole milliseconds can be counted. A window of no width would be asked for without end.
    return wider_ns // COUNTABLE_NS * COUNTABLE_NS or max(1, wider_ns)


def _narrower(window: Window, result: QueryResult | None) -> int:
    """Half as wide; or up to where a full answer ended, for a burst of lines within a moment."""
    width_ns = window.width_ns // 2
    if result is not None and len(result.entries) >= result.limit:
        last_ns = max(entry.timestamp_ns for entry in result.entries)
        width_ns = max(1, min(width_ns, last_ns - window.start_ns))
    # Whole milliseconds can be counted.
    return width_ns // COUNTABLE_NS * COUNTABLE_NS or width_ns


def _one_nanosecond(window: Window, forward: QueryResult | None, ask: Ask) -> Piece:
    """No half is left, so ask from the other end too; Loki's count, never too low, may prove it complete."""
    backward = ask(window, Direction.BACKWARD)
    results = [result for result in (forward, backward) if result is not None]
    entries = _distinct(entry for result in results for entry in result.entries)
    counts = [result.post_filter_lines for result in results if result.post_filter_lines is not None]
    return Piece(window, entries, complete=bool(counts) and max(counts) <= len(entries))


def _distinct(entries: Iterator[Entry]) -> tuple[Entry, ...]:
    return tuple({(entry.text, frozenset(entry.labels.items())): entry for entry in entries}.values())
