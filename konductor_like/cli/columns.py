"""Text in kubectl's layout: columns and ages, without characters that control a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime

from konductor_like.model import time
from konductor_like.model.text import printable

NONE = "<none>"
GAP = "   "
_NARROW = 20
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


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Return lines of left-aligned columns as wide as their widest cell; the last column is not padded.

    Without headers there is no header line. An empty cell reads ``<none>``, so that every row has the same
    number of fields. With a ``width``, the last cell of a row that is wider continues on the next line, below
    its column. No other cell is folded.
    """
    table = [[printable(cell) or NONE for cell in row] for row in rows]
    if headers:
        table.insert(0, list(headers))
    if not table:
        return []
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    indent = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    lines = []
    for row in table:
        first, *further = folded(row[-1], width and width - indent)
        lines.append(GAP.join([*map(str.ljust, row[:-1], widths[:-1]), first]).rstrip())
        lines += [" " * indent + part for part in further]
    return lines


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
    return rule.replace(".", " ").replace("_", " ")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts ``gpu-9`` before ``gpu-10``."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))
