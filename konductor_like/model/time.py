"""Conversions between nanoseconds, datetimes, RFC 3339 and the times in HTTP headers; no other module has
any."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

SECOND_NS = 1_000_000_000
CLOCKS_AGREE_SECONDS = 10.0
"""Seconds below which two clocks count as equal: a ``Date`` header has whole seconds, and an answer may be
slow."""
CLOCK_TRUSTED_SECONDS = 600.0
"""Seconds beyond which neither of two clocks is trusted: either may be wrong, or the header a gateway's."""
LONGEST_WAIT_SECONDS = 300.0
"""Seconds that a ``Retry-After`` delays a request at most: the controller sees no fault meanwhile."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SECOND = 253_402_300_799  # 9999-12-31T23:59:59Z, the last second of a datetime
_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d{2}:\d{2})"
)


def unix_ns(moment: datetime) -> int:
    """Return an aware datetime as integer nanoseconds since the epoch, without passing through a float."""
    since = moment - EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000


def span_ns(seconds: float) -> int:
    """Return a span in nanoseconds."""
    return round(seconds * SECOND_NS)


def moment_of(ns: int) -> datetime:
    """Return nanoseconds since the epoch as a datetime in UTC, cut to the microsecond."""
    return EPOCH + timedelta(microseconds=ns // 1000)


def stamp(moment: datetime) -> str:
    """Return RFC 3339 in UTC, to the second: ``2026-05-06T14:00:00Z``."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def text_of_ns(ns: int) -> str | int:
    """Return nanoseconds as RFC 3339 with as many decimals as needed; after year 9999 the number itself."""
    seconds, rest = divmod(ns, SECOND_NS)
    if not 0 <= seconds <= _LAST_SECOND:
        return ns
    decimals = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{(EPOCH + timedelta(seconds=seconds)).isoformat()[:19]}{decimals}Z"


@lru_cache(maxsize=1024)  # thousands of Nodes report within the same few seconds
def ns_of_text(text: str) -> int:
    """Parse any RFC 3339 time into nanoseconds since the epoch. Raises ValueError."""
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no time such as 2026-01-31T12:00:00Z")
    numbers = [int(part) for part in match.groups()[:6]]
    moment = datetime(*numbers[:6], tzinfo=UTC)  # type: ignore[arg-type, misc]  # six ints, as in the pattern
    zone = match[8]
    offset = timedelta() if zone in "Zz" else timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[4:]))
    since = moment - EPOCH - offset
    return (since.days * 86_400 + since.seconds) * SECOND_NS + int((match[7] or "").ljust(9, "0"))


def text_of(moment: datetime) -> str:
    """Return an aware datetime as RFC 3339 in UTC, to the microsecond if it has any."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def moment_of_text(text: str) -> datetime:
    """Parse any RFC 3339 time into a datetime. Raises ValueError."""
    try:
        return moment_of(ns_of_text(text))
    except OverflowError as error:
        raise ValueError(f"{text[:40]!r} is out of range") from error


def micro_time(moment: datetime) -> str:
    """Return Kubernetes' MicroTime: always six decimals, because the API server refuses fewer."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_ahead(date: str | None, now_seconds: float) -> float | None:
    """Return the seconds that a server's clock is ahead of ours: 0 if they agree, None if unknown.

    ``date`` is the server's ``Date`` header (RFC 9110), ``now_seconds`` our wall time since the epoch.
    """
    try:
        theirs = datetime.strptime(date or "", "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None
    ahead = theirs.timestamp() - now_seconds
    return 0.0 if abs(ahead) < CLOCKS_AGREE_SECONDS else ahead


def retry_after_seconds(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, limited; None without a number.

    A date is not understood: neither Loki nor Kubernetes sends one.
    """
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return min(seconds, LONGEST_WAIT_SECONDS) if seconds >= 0 else None
