"""Text that people read: safe to print, and short."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """The text on one line, every control and format character spelt out (``\\x1b``, ``\\u202e``).

    A log line must neither drive a terminal nor turn around the order in which its characters are read.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def clipped(text: str, most: int) -> str:
    """At most so many characters, the last of them ``…`` where some are left out."""
    return text if len(text) <= most else text[: most - 1] + "…"


def span_text(seconds: int) -> str:
    """``24h``, ``10m``, ``90s``."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: at most so many of the names, and how many are left out."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
