"""Times as Loki reads and writes them: integer nanoseconds in here, Go's notations outside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from konductor_like.sandbox.loki.limits import SECOND_NS

_UNITS = {
    "ms": 10**6,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
    "d": 24 * 3600 * SECOND_NS,
    "w": 7 * 24 * 3600 * SECOND_NS,
    "y": 365 * 24 * 3600 * SECOND_NS,
}
_DURATION = re.compile(r"(?:(\d+)(y|w|d|h|ms|m|s))")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time_ns(text: str) -> int:
    """A point in time: up to 10 digits are seconds, more are nanoseconds; with a dot seconds, rounded to ms.

    Raises ``ValueError`` in Go's words. Source: pkg/loghttp/params.go.
    """
    if "." in text:
        try:
            whole, fraction = divmod(Decimal(text), 1)
        except InvalidOperation:
            pass
        else:
            milliseconds = (fraction * 1000).quantize(Decimal(1), ROUND_HALF_UP)
            return int(whole) * SECOND_NS + int(milliseconds) * 10**6
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text) * SECOND_NS if len(text) <= 10 else int(text)
    if match := _RFC3339.fullmatch(text):
        seconds = (datetime.fromisoformat(match[1] + match[3]) - _EPOCH) // timedelta(seconds=1)
        return seconds * SECOND_NS + int((match[2] or "").ljust(9, "0"))
    raise ValueError(f'strconv.ParseInt: parsing "{text}": invalid syntax')


def parse_duration_ns(text: str) -> int:
    """A duration in Prometheus' notation (``5m``, ``1h30m``). Raises ``ValueError`` in its words."""
    if text == "0":
        return 0
    if not text:
        raise ValueError("empty duration string")
    unknown = re.fullmatch(r"\d+([a-zA-Z]+)", text)
    if unknown and unknown[1] not in _UNITS:
        raise ValueError(f'unknown unit "{unknown[1]}" in duration "{text}"')
    if not re.fullmatch(f"({_DURATION.pattern})+", text):
        raise ValueError(f'not a valid duration string: "{text}"')
    return sum(int(count) * _UNITS[unit] for count, unit in _DURATION.findall(text))


def parse_step_ns(text: str) -> int:
    """A number of seconds or a duration. Raises ``ValueError`` in Loki's words."""
    try:
        return int(Decimal(text) * SECOND_NS)
    except (InvalidOperation, OverflowError):
        pass
    try:
        return parse_duration_ns(text)
    except ValueError:
        raise ValueError(f'cannot parse "{text}" to a valid duration') from None


def rfc3339(time_ns: int) -> str:
    """Whole seconds, UTC: ``2026-11-21T02:14:08Z``."""
    return f"{_EPOCH + timedelta(seconds=time_ns // SECOND_NS):%Y-%m-%dT%H:%M:%SZ}"


def go_time(time_ns: int) -> str:
    """How Go prints a time: ``2026-11-21 01:14:05.5 +0000 UTC``."""
    fraction = f"{time_ns % SECOND_NS:09d}".rstrip("0")
    moment = _EPOCH + timedelta(seconds=time_ns // SECOND_NS)
    return f"{moment:%Y-%m-%d %H:%M:%S}{'.' if fraction else ''}{fraction} +0000 UTC"


def go_duration(duration_ns: int) -> str:
    """How Go prints a duration of a second or more: ``799h59m1s``, ``1.5s``."""
    seconds, rest = divmod(duration_ns, SECOND_NS)
    fraction = f"{rest:09d}".rstrip("0")
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{seconds}{'.' if fraction else ''}{fraction}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def model_duration(duration_ns: int) -> str:
    """How Prometheus prints a duration: ``30d1h``."""
    text, rest = "", duration_ns
    for unit in ("w", "d", "h", "m", "s", "ms"):
        if unit == "w" and rest % _UNITS["w"]:
            continue  # weeks only when nothing is left over
        count, rest = divmod(rest, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0s"
