"""Text that people read: safe to print, and short."""

from __future__ import annotations

import re
from collections.abc import Sequence

EXCERPT_CHARS = 256
"""Characters of a server's answer that a message quotes at most."""
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def printable(text: str) -> str:
    """Return the text on one line, control and format characters spelt out (``\\x1b``, ``\\u202e``).

    Such characters could control a terminal, or reverse the order in which the text is read.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def clipped(text: str, most: int) -> str:
    """Return the text, cut to ``most`` characters; the last one is ``…`` if something was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def excerpt(text: str) -> str:
    """Return the beginning of a text on one line, without control characters, as a message quotes it."""
    words = _UNPRINTABLE.sub(" ", text[: 4 * EXCERPT_CHARS]).split()
    return clipped(" ".join(words), EXCERPT_CHARS)


def span_text(seconds: int) -> str:
    """Return a span as ``24h``, ``10m`` or ``90s``."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first ``most`` names and the number of the others: ``a, b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
