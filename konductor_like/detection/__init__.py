"""Detection: from a line to a fault, or to None. Pure: no clock, no I/O.

A :class:`Detector` has one set of rules; the functions ``find`` and ``detect`` use the packaged rules.
``find`` reads a text only; ``detect`` reads a line of Loki and adds its place and time.
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
    """Return the finding in the text of one line, by the packaged rules. It raises nothing."""
    return packaged().find(text, source)


def detect(line: LogLine) -> Fault | None:
    """Return the fault that a line of Loki reports, by the packaged rules; None where it reports none."""
    return packaged().detect(line)
