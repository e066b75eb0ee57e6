"""Time: the one place that converts nanoseconds, datetimes, RFC 3339 and the times in a server's headers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

SECOND_NS = 1_000_000_000
CLOCKS_AGREE_SECONDS = 10.0
"""Two clocks differ by nothing below this: a server's Date has whole seconds, and its answer may be slow."""
CLOCK_TRUSTED_SECONDS = 600.0
"""Where two clocks differ more, either may be the wrong one; the other may even be a gateway's."""
LONGEST_WAIT_SECONDS = 300.0
"""Of a longer ``Retry-After`` so much is obeyed: nobody sees a fault meanwhile."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SECOND = 253_402_300_799  # 9999-12-31T23:59:59Z, the last one that a datetime can say
_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d{2}:\d{2})"
)


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
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def text_of_ns(ns: int) -> str | int:
    """Nanoseconds since the epoch as RFC 3339, with as many decimals as needed; a number beyond year 9999."""
    seconds, rest = divmod(ns, SECOND_NS)
    if not 0 <= seconds <= _LAST_SECOND:
        return ns
    decimals = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{(EPOCH + timedelta(seconds=seconds)).isoformat()[:19]}{decimals}Z"


def ns_of_text(text: str) -> int:
    """The inverse of :func:`text_of_ns` for any RFC 3339 time. Raises ValueError."""
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no time such as 2026-01-31T12:00:00Z")
    numbers = [int(part) for part in match.groups()[:6]]
    moment = datetime(*numbers[:6], tzinfo=UTC)  # type: ignore[arg-type, misc]  # six ints, as the pattern says
    zone = match[8]
    offset = timedelta() if zone in "Zz" else timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[4:]))
    since = moment - EPOCH - offset
    return (since.days * 86_400 + since.seconds) * SECOND_NS + int((match[7] or "").ljust(9, "0"))


def text_of(moment: datetime) -> str:
    """An aware datetime as RFC 3339 in UTC, to the microsecond where it has any."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def moment_of_text(text: str) -> datetime:
    """The inverse of :func:`text_of`. Raises ValueError."""
    try:
        return moment_of(ns_of_text(text))
    except OverflowError as error:
        raise ValueError(f"{text[:40]!r} is out of range") from error


def micro_time(moment: datetime) -> str:
    """Kubernetes' MicroTime: always six decimals, or the API server refuses it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_ahead(date: str | None, now_seconds: float) -> float | None:
    """How far a server's clock is ahead of ours: 0 while the two agree, None where its header tells no time.

    ``date`` is its ``Date`` header as RFC 9110 has it, ``now_seconds`` our wall time since the epoch.
    """
    try:
        theirs = datetime.strptime(date or "", "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None
    ahead = theirs.timestamp() - now_seconds
    return 0.0 if abs(ahead) < CLOCKS_AGREE_SECONDS else ahead


def retry_after_seconds(header: str | None) -> float | None:
    """A server's ``Retry-After`` as far as it is obeyed; None without one, or where it is no number.

    A date counts as none: neither Loki nor Kubernetes sends one.
    """
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return min(seconds, LONGEST_WAIT_SECONDS) if seconds >= 0 else None
