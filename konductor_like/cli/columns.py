"""Text for people, the way kubectl lays it out: columns, ages, and nothing that could drive a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from konductor_like.model import time
from konductor_like.model.text import printable

NONE = "<none>"
_GAP = "   "
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400


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
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


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


def _two(seconds: int, large: int, large_sign: str, small: int, small_sign: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{large_sign}" + (f"{rest}{small_sign}" if rest else "")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts ``gpu-9`` before ``gpu-10``."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))
