"""RFC 3339 both ways: what people read in annotations, and what Kubernetes wants in its time fields."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_NS = 1_000_000_000
_LAST_SECOND = 253_402_300_799  # 9999-12-31T23:59:59Z, the last one that a datetime can say
_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d{2}:\d{2})"
)


def text_of_ns(ns: int) -> str | int:
    """Nanoseconds since the epoch as RFC 3339, with as many decimals as needed; a number beyond year 9999."""
    seconds, rest = divmod(ns, _SECOND_NS)
    if not 0 <= seconds <= _LAST_SECOND:
        return ns
    decimals = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}{decimals}Z"


def ns_of_text(text: str) -> int:
    """The inverse of ``text_of_ns`` for any RFC 3339 time. Raises ValueError."""
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no time such as 2026-01-31T12:00:00Z")
    numbers = [int(part) for part in match.groups()[:6]]
    moment = datetime(*numbers[:6], tzinfo=UTC)  # type: ignore[arg-type, misc]  # six ints, as the pattern says
    zone = match[8]
    offset = timedelta() if zone in "Zz" else timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[4:]))
    since = moment - EPOCH - offset
    return (since.days * 86_400 + since.seconds) * _SECOND_NS + int((match[7] or "").ljust(9, "0"))


def text_of(moment: datetime) -> str:
    """An aware datetime as RFC 3339 in UTC, to the microsecond where it has any."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def moment_of(text: str) -> datetime:
    """The inverse of ``text_of``. Raises ValueError."""
    try:
        return EPOCH + timedelta(microseconds=ns_of_text(text) // 1000)
    except OverflowError as error:
        raise ValueError(f"{text[:40]!r} is out of range") from error


def micro_time(moment: datetime) -> str:
    """Kubernetes' MicroTime: always six decimals, or the API server refuses it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def plain_time(moment: datetime) -> str:
    """Kubernetes' Time: whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
