"""Times as people type them: ``30d``, ``4h``, ``22:00``, ``2026-03-01``, ``2026-03-01T12:00:00Z``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from konductor_like.cli.errors import CommandError
from konductor_like.exits import Exit

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PART = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})", re.ASCII)
_LONGEST = timedelta(days=36_500)
"""The longest span that a person may type: 100 years. Adding it to the present does not overflow."""


def is_span(text: str) -> bool:
    """Whether the text is a span of time: ``4h``, ``1d12h``."""
    return re.fullmatch(rf"(?:{_PART.pattern})+", text, re.ASCII) is not None


def span_of(text: str, option: str) -> timedelta:
    """Parse ``4h`` or ``1d12h``. Raises CommandError with the option's name."""
    parts = _PART.findall(text) if is_span(text) else []
    span = sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta(0))
    if not parts or span > _LONGEST:
        message = (
            f"{option} {text!r} is longer than 100 years"
            if parts
            else f"{option} {text!r} is no span of time"
        )
        raise CommandError(message, hint="such as 30m, 4h, 30d or 1d12h", status=Exit.USAGE)
    return span


def typed_moment(text: str, option: str, now: datetime) -> datetime:
    """Parse a span before ``now``, or a date or time (UTC unless it has an offset). Raises CommandError.

    ``22:00`` is the latest time of day that is past.
    """
    if clock := _CLOCK.fullmatch(text):
        hour, minute = map(int, clock.groups())
        if hour < 24 and minute < 60:
            today = now.astimezone(UTC).replace(hour=hour, minute=minute, second=0, microsecond=0)
            return today if today <= now else today - timedelta(days=1)
    if _PART.match(text) and text[-1] in _UNITS:
        return now - span_of(text, option)
    try:
        when = datetime.fromisoformat(text)
        return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise CommandError(
            f"{option} {text!r} is neither a span nor a time",
            hint="such as 30d, 22:00, 2026-03-01 or 2026-03-01T12:00:00Z (UTC)",
            status=Exit.USAGE,
        ) from None
