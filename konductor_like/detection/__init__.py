"""Detection: a line in, a fault or None out. Pure: no clock, no I/O.

``find`` looks at a text alone, ``detect`` adds where and when. The anchors are the literals that Loki filters
by; a line without any of its source's anchors is never a fault.
"""

from __future__ import annotations

from konductor_like.detection.anchors import HEARTBEAT_ANCHOR, KERNEL_ANCHORS, POD_ANCHORS
from konductor_like.detection.heartbeat import Heartbeat, parse_heartbeat
from konductor_like.detection.kernel import find_in_kernel_log
from konductor_like.detection.pod import find_in_pod_log
from konductor_like.model import Fault, Finding, LogLine, Source

__all__ = [
    "HEARTBEAT_ANCHOR",
    "KERNEL_ANCHORS",
    "POD_ANCHORS",
    "Heartbeat",
    "detect",
    "find",
    "parse_heartbeat",
]


def find(text: str, source: Source) -> Finding | None:
    """What the text of one line says, if it is a fault. Raises nothing, whatever the text."""
    return find_in_kernel_log(text) if source is Source.KERNEL else find_in_pod_log(text)


def detect(line: LogLine) -> Fault | None:
    """The fault that a line of Loki reports, with its place and time; None where it reports none."""
    finding = find(line.text, line.source)
    if finding is None:
        return None
    return Fault(finding, line.source, line.timestamp_ns, line.node, line.namespace, line.pod, line.container)
