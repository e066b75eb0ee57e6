"""What a server's headers say of time: its clock against ours, and when to ask again."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

CLOCKS_AGREE_SECONDS = 10.0
"""Whole seconds in the header and a slow answer make smaller differences meaningless."""
CLOCK_TRUSTED_SECONDS = 600.0
"""Where two clocks differ more, either may be the wrong one; the other may even be a gateway's."""
LONGEST_WAIT_SECONDS = 300.0
"""Of a longer ``Retry-After`` so much is obeyed: nobody sees a fault meanwhile."""


def seconds_ahead(date: str | None, now_seconds: float) -> float | None:
    """The difference in seconds, 0 while the two agree well enough; None where the header tells no time.

    ``date`` is as RFC 9110 has it, ``now_seconds`` our wall time since the epoch.
    """
    try:
        theirs = parsedate_to_datetime(date or "").timestamp()
    except (ValueError, OverflowError):
        return None
    ahead = theirs - now_seconds
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
