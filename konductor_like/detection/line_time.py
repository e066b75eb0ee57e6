"""The time at the head of a log line, as people read it: in UTC, or with a note that its zone is unknown."""

from __future__ import annotations

import re
from datetime import datetime

from konductor_like.model import KernelPosition
from konductor_like.model.time import moment_of, stamp

_HEAD_CHARS = 120
"""Characters in which the time of a line is looked for, unless the line is JSON."""
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?:(Z| UTC\b)|([+-]\d\d:?\d\d)| ([A-Z]{2,4}T)\b)?",
    re.ASCII,
)
_DATE = re.compile(r"\b[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?", re.ASCII)
_SECONDS = re.compile(r"\s*(\d{9,10})\.\d{3,9} ", re.ASCII)
_JOURNAL = re.compile(r'"__REALTIME_TIMESTAMP"\s*:\s*"(\d{12,17})"', re.ASCII)


def time_text(line: str, position: KernelPosition) -> str:
    """Return the line's time, such as ``2026-05-06T11:56:48Z`` or ``81234s after boot``; empty without one.

    A time without a zone stays as it is written: ``May  6 11:56:48 (no zone)``.
    """
    json = line.startswith("{")
    if json and (journal := _JOURNAL.search(line)):
        return stamp(moment_of(int(journal[1]) * 1000))
    if seconds := _SECONDS.match(line):
        return stamp(moment_of(int(seconds[1]) * 10**9))
    head = line if json else line[:_HEAD_CHARS]
    if iso := _ISO.search(head):
        return _of_iso(iso)
    if date := _DATE.search(head):
        return f"{date[0]} (no zone)"
    return "" if position.stamp_us is None else f"{position.stamp_us // 1_000_000}s after boot"


def _of_iso(found: re.Match[str]) -> str:
    date, time, utc, offset, zone = found.groups()
    written = f"{date} {time} {zone or '(no zone)'}"
    if not (utc or offset):
        return written
    try:
        return stamp(datetime.fromisoformat(f"{date}T{time}{offset or '+00:00'}"))
    except (ValueError, OverflowError):  # such as month 13
        return written
