"""Cut one large list into small ones while it arrives, so that it is never in memory as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LIST_BYTES = 4 << 20
"""Bytes of a small list, about. They are 200 Nodes of 20 KB."""
_HEAD = re.compile(rb'\{"kind":"\w+List","apiVersion":"[\w./]+","metadata":\{[^][{}]*\},"items":\[')
_BETWEEN = b'},{"metadata":{'
"""The end of an object and the start of the next. No text contains these bytes: there each quotation mark has
a backslash before it."""


def small_lists(pieces: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """Yield small lists that together have the objects of the list in ``pieces``, in order.

    The API server writes lists without blanks, and of each object the metadata first. It is cut between two
    objects; the objects must not contain lists of objects with metadata, as Nodes do not. Any other answer,
    also one that is cut off, is yielded as it is. Raises ValueError if that is more than ``most_bytes``.
    """
    head, rest, enough = b"", bytearray(), LIST_BYTES
    for piece in pieces:
        rest += piece
        if len(rest) < enough:
            continue
        found = None if head else _HEAD.match(rest)
        cut = rest.rfind(_BETWEEN) if head or found else -1
        if cut < 0 and len(rest) > most_bytes:
            raise ValueError(f"it has more than {most_bytes >> 20} MiB in one piece")
        enough = len(rest) + LIST_BYTES if cut < 0 else LIST_BYTES
        if cut >= 0:
            yield head + bytes(rest[:cut]) + b"}]}"
            head = found[0] if found else head
            del rest[: cut + 2]
    yield head + bytes(rest)
