"""Detection: a line in, a fault or None out. Pure: no clock, no I/O.

A :class:`Detector` has one set of rules; ``find`` and ``detect`` here use those of the package. ``find``
reads a text alone, ``detect`` adds where and when.
"""

from __future__ import annotations

from konductor_like.detection.detector import Detector, packaged
from konductor_like.detection.heartbeat import (
    HEARTBEAT_ANCHOR,
    OVERRUN_ANCHOR,
    Heartbeat,
    Overrun,
    parse_heartbeat,
    parse_overrun,
)
from konductor_like.model import Fault, Finding, LogLine, Source


def find(text: str, source: Source) -> Finding | None:
    """The finding in the text of one line, by the packaged rules. Raises nothing, whatever the text."""
    return packaged().find(text, source)


def detect(line: LogLine) -> Fault | None:
    """The fault that a line of Loki reports by the packaged rules; None where it reports none."""
    return packaged().detect(line)
