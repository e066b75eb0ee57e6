"""Text for people, the way kubectl lays it out: columns, ages, and nothing that could drive a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from konductor_like.model import time
from konductor_like.model.text import printable

NONE = "<none>"
_GAP = "   "
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
"""Below how many seconds a span is written in which unit, and its rest in which smaller one."""


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of left-aligned columns as wide as their widest cell; the last column is not padded.

    No headers, no header line. Empty cells read ``<none>``, so that every row has as many fields.
    """
    table = [[printable(cell) or NONE for cell in row] for row in rows]
    if headers:
        table.insert(0, list(headers))
    if not table:
        return []
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        _GAP.join([*map(str.ljust, row[:-1], widths[:-1]), row[-1]]).rstrip()
        for row in table
    ]  # fmt: skip


def age(seconds: float) -> str:
    """A span as kubectl writes it: at most two units, fewer as it grows (apimachinery's HumanDuration)."""
    if seconds < -1:
        return "<invalid>"  # a clock disagrees
    whole = max(0, int(seconds))
    _, size, unit, rest_size, rest_unit = next(each for each in _AGES if whole < each[0])
    rest = whole % size // rest_size if rest_size else 0
    return f"{whole // size}{unit}" + (f"{rest}{rest_unit}" if rest else "")


def age_of(then: datetime, now: datetime) -> str:
    """The time from then to now, as :func:`age` writes it."""
    return age((now - then).total_seconds())


def stamp(when: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the second."""
    return None if when is None else time.stamp(when)


def stamp_of_ns(ns: int | None) -> str | None:
    """Nanoseconds since the epoch as :func:`stamp` writes them."""
    return None if ns is None else time.stamp(time.moment_of(ns))


def count(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def fault_name(rule: str) -> str:
    """A rule as people say it: ``xid 79``, ``nvrm fallen off bus`` (``nvrm.fallen_off_bus``)."""
    return rule.replace(".", " ").replace("_", " ")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts ``gpu-9`` before ``gpu-10``."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))
