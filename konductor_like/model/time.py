"""Time: the one place that converts nanoseconds, seconds, datetimes and RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

SECOND_NS = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STAMP = "%Y-%m-%dT%H:%M:%SZ"


def unix_ns(moment: datetime) -> int:
    """An aware datetime as integer nanoseconds since the epoch, without passing through a float."""
    since = moment - EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000


def span_ns(seconds: float) -> int:
    """A span of so many seconds in nanoseconds."""
    return round(seconds * SECOND_NS)


def moment_of(ns: int) -> datetime:
    """Nanoseconds since the epoch as a datetime in UTC, cut to the microsecond."""
    return EPOCH + timedelta(microseconds=ns // 1000)


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second: ``2026-05-06T14:00:00Z``."""
    return moment.astimezone(UTC).strftime(_STAMP)


def parsed_stamp(text: str) -> datetime:
    """The inverse of :func:`stamp`. Raises ValueError."""
    return datetime.strptime(text, _STAMP).replace(tzinfo=UTC)
