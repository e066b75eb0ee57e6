"""Spans and moments as people type them: ``90s``, ``2h``, ``1d12h``; ``2026-05-06T18:00:00Z``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+[smhdw])+")


def span_of(text: str) -> timedelta:
    """A span longer than nothing. Raises ValueError with a sentence."""
    if not _SPAN.fullmatch(text):
        raise ValueError(f"{text!r} is not a span such as 90s, 30m, 2h or 1d12h")
    seconds = sum(int(number) * _UNIT_SECONDS[unit] for number, unit in re.findall(r"(\d+)([smhdw])", text))
    if not 0 < seconds <= 10 * 365 * 86_400:
        raise ValueError(f"{text!r} is not between a second and ten years")
    return timedelta(seconds=seconds)


def moment_of(text: str) -> datetime:
    """An RFC 3339 time, with its zone. Raises ValueError with a sentence."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(f"{text!r} is not a time with its zone, such as 2026-05-06T18:00:00Z")
    return found.astimezone(UTC)
