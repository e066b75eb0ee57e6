"""Text in kubectl's layout: columns and ages, without characters that control a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from konductor_like.model import OPERATOR_RULE, PERSONS_TAINT, time
from konductor_like.model.text import printable

NONE = "<none>"
GAP = "   "
_NARROW = 20
_INDENT = 4
"""Blanks before the second and later lines of a row."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_AGES: Sequence[tuple[float, int, str, int, str]] = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (float("inf"), _DAY, "d", 0, ""),
)
"""How a span is written: upper limit in seconds, seconds of the unit, unit, seconds of the unit for the
rest (0: the rest is dropped), that unit. For example, a span below 10 minutes is ``3m12s``."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a table are written: all in the same way, and no cell is broken except the last."""

    widths: Sequence[int]
    gap: str = GAP
    folds_at: int | None = None
    """Characters of a line of the last cell; None if it stays whole."""
    lines: Sequence[Sequence[int]] = ()
    """The columns of each line of a row, if a row takes several; the later lines are indented."""

    @classmethod
    def of(cls, widths: Sequence[int], width: int | None) -> Layout:
        """Return the first that fits in ``width``.

        These are: a last cell that is folded, columns nearer to each other, and rows of several lines.
        """
        before_last = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
        if width is None or before_last + widths[-1] <= width or width - before_last >= _NARROW:
            return cls(widths, folds_at=width and width - before_last)
        for gap in ("  ", " "):
            if sum(widths) + len(gap) * (len(widths) - 1) <= width:
                return cls(widths, gap)
        lines: list[list[int]] = [[0], []]
        for column in range(1, len(widths)):
            used = sum(widths[each] + len(GAP) for each in lines[-1])
            if lines[-1] and _INDENT + used + widths[column] > width:
                lines.append([])
            lines[-1].append(column)
        return cls(widths, lines=lines)

    @property
    def second(self) -> tuple[int, int]:
        """The line and the place in it at which the second cell of a row begins."""
        return (1, _INDENT) if self.lines else (0, self.widths[0] + len(self.gap))

    def row(self, cells: Sequence[str]) -> list[str]:
        """Return the lines of one row."""
        if self.lines:
            padded = [*map(str.ljust, cells, self.widths)]
            lines = [self.gap.join(padded[column] for column in line).rstrip() for line in self.lines]
            return [lines[0], *(" " * _INDENT + line for line in lines[1:])]
        first, *further = folded(cells[-1], self.folds_at)
        line = self.gap.join([*map(str.ljust, cells[:-1], self.widths), first]).rstrip()
        indent = sum(self.widths[:-1]) + len(self.gap) * (len(cells) - 1)
        return [line, *(" " * indent + part for part in further)]


def columns(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    widths: Sequence[int] | None = None,
) -> list[str]:
    """Return lines of left-aligned columns as wide as their widest cell; the last column is not padded.

    Without headers there is no header line. An empty cell reads ``<none>``, so that every row has the same
    number of fields. :class:`Layout` says what becomes of a table that is wider than ``width``.
    """
    table = cells_of(headers, rows)
    layout = Layout.of(widths or widths_of(table), width) if table else None
    return [line for row in table for line in layout.row(row)] if layout else []


def cells_of(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the cells as they are printed; the headers, if there are any, come first."""
    table = [[printable(cell) or NONE for cell in row] for row in rows]
    return [list(headers), *table] if headers else table


def widths_of(table: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column's widest cell."""
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def folded(text: str, width: int | None) -> list[str]:
    """Return the text in lines of this width, broken at blanks only; a longer word stays whole.

    Without a width, or with one that is too narrow to read, the text stays one line.
    """
    if width is None or width < _NARROW or len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def age(seconds: float) -> str:
    """Return a span as kubectl writes it (apimachinery's HumanDuration): ``3m12s``, ``25m``, ``5d3h``."""
    if seconds < -1:
        return "<invalid>"  # two clocks disagree
    whole = max(0, int(seconds))
    _, size, unit, rest_size, rest_unit = next(each for each in _AGES if whole < each[0])
    rest = whole % size // rest_size if rest_size else 0
    return f"{whole // size}{unit}" + (f"{rest}{rest_unit}" if rest else "")


def age_of(then: datetime, now: datetime) -> str:
    """Return the time from then to now, as :func:`age` writes it."""
    return age((now - then).total_seconds())


def stamp(when: datetime | None) -> str | None:
    """Return the moment in RFC 3339, in UTC, to the second."""
    return None if when is None else time.stamp(when)


def stamp_of_ns(ns: int | None) -> str | None:
    """Return nanoseconds since the epoch as :func:`stamp` writes a moment."""
    return None if ns is None else time.stamp(time.moment_of(ns))


def count(number: int, noun: str) -> str:
    """Return ``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def fault_name(rule: str) -> str:
    """Return a rule's name as people write it: ``nvrm fallen off bus`` for ``nvrm.fallen_off_bus``."""
    if rule == OPERATOR_RULE:
        return PERSONS_TAINT
    return rule.replace(".", " ").replace("_", " ")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts ``gpu-9`` before ``gpu-10``."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))
