"""Opening a line of a kernel log: the driver's message, where it stood, and who wrote it.

What remains after all wrappers and prefixes must begin with the driver's own words to be a fault: a quotation
stands behind words that are no prefix (design rule 15).
"""

from __future__ import annotations

from typing import NamedTuple

from konductor_like.detection.clean import decode_kmsg_escapes, one_line, strip_colours
from konductor_like.detection.prefix import Origin, strip_prefixes
from konductor_like.detection.wrappers import WRAPPERS_MOST, is_wrapped, unwrap
from konductor_like.model import KernelPosition

_MESSAGE_CHARS = 4096
"""A kernel record is 1 KiB or so; what is behind this is not looked at."""
_HEAD_CHARS = 16_384


class KernelRecord(NamedTuple):
    """One record of a kernel log. ``message`` is a single line without prefixes."""

    message: str
    position: KernelPosition
    user_written: bool
    """A program wrote it into /dev/kmsg: its facility is not the kernel's."""


def open_record(text: str) -> KernelRecord | None:
    """Take a kernel line apart; None for JSON that is no record of the kernel's."""
    origin = Origin()
    for _ in range(WRAPPERS_MOST):
        text = text.lstrip()
        if not text.startswith("{"):
            # Only a JSON wrapper has to be whole to be read.
            head = text if "{" in text[:256] else text[:_HEAD_CHARS]
            text = strip_prefixes(strip_colours(head), origin)
            if not is_wrapped(text):
                break
        inner = unwrap(text)
        if inner is None and text.startswith("{"):
            return None
        if inner is None:
            break  # a program's logfmt is a message like any other
        text = inner.text
        if inner.position is not None:
            origin.place(inner.position)
            origin.own(inner.facility)
    message = one_line(strip_colours(decode_kmsg_escapes(text[:_MESSAGE_CHARS])))
    return KernelRecord(message, origin.position, bool(origin.facility))
