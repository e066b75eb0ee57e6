"""The heartbeat line of our own kernel-log reader: this node's log arrives, and up to here.

``kmsg/1 heartbeat boot=<uuid> seq=<last seq> uptime=<seconds.micros> wall=<RFC 3339>``
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from konductor_like.detection.anchors import HEARTBEAT_ANCHOR
from konductor_like.detection.clean import stamp_us
from konductor_like.detection.wrappers import unwrap_pod_record

_LINE = re.compile(
    re.escape(HEARTBEAT_ANCHOR) + r" boot=(?P<boot>[0-9a-fA-F-]{32,36}) seq=(?P<seq>\d{1,19})"
    r" uptime=(?P<seconds>\d{1,12})\.(?P<micros>\d{1,6}) wall=(?P<wall>\S{1,40})\s*",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A kernel log was read up to record ``sequence`` of boot ``boot_id``, ``uptime_us`` after that boot."""

    boot_id: str
    sequence: int
    uptime_us: int
    wall: datetime


def parse_heartbeat(text: str) -> Heartbeat | None:
    """The heartbeat that the line is, inside a CRI or Docker record or bare; None for anything else."""
    if HEARTBEAT_ANCHOR not in text:
        return None
    match = _LINE.fullmatch(unwrap_pod_record(text).strip())
    if match is None:
        return None
    try:
        wall = datetime.fromisoformat(match["wall"])
    except ValueError:
        return None
    if wall.tzinfo is None:
        return None
    return Heartbeat(
        match["boot"].lower(),
        int(match["seq"]),
        stamp_us(match["seconds"], match["micros"]),
        wall.astimezone(UTC),
    )
