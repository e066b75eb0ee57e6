"""The lines that the kernel-log reader prints about itself.

A heartbeat reports how far the reader has read; an overrun (``gap`` on the wire) what it could not read:

``kmsg/1 heartbeat boot=<uuid> seq=<last seq> uptime=<seconds.micros> wall=<RFC 3339>``
``kmsg/1 gap boot=<uuid> from=<first seq> to=<last seq> lost=<n>``
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from konductor_like.detection.kernel_record import stamp_us
from konductor_like.detection.wrapper import unwrap_output
from konductor_like.model.time import unix_ns

HEARTBEAT_ANCHOR = "kmsg/1 heartbeat"
OVERRUN_ANCHOR = "kmsg/1 gap"  # the wire word for an overrun is "gap"; elsewhere a gap is one of heartbeats
"""Short literals that Loki looks for."""

_LINE = re.compile(
    re.escape(HEARTBEAT_ANCHOR) + r" boot=([0-9a-fA-F-]{32,36}) seq=(\d{1,19})"
    r" uptime=(\d{1,12})\.(\d{1,6}) wall=(\S{1,40})\s*",
    re.ASCII,
)
_OVERRUN = re.compile(
    re.escape(OVERRUN_ANCHOR) + r" boot=([0-9a-fA-F-]{32,36}) from=(\d{1,19})"
    r" to=(\d{1,19}) lost=(\d{1,19})\s*",
    re.ASCII,
)
_OF_READER = re.compile(r"kmsg/1 (?:heartbeat |gap )?boot=([0-9a-fA-F-]{32,36}) ", re.ASCII)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The reader has read the kernel log up to record ``sequence`` of boot ``boot_id``, at ``uptime_us``."""

    boot_id: str
    sequence: int
    uptime_us: int
    wall: datetime

    @property
    def boot_ns(self) -> int:
        """Return when that boot began by the node's own clock, in nanoseconds since the Unix epoch."""
        return unix_ns(self.wall) - self.uptime_us * 1_000


@dataclass(frozen=True, slots=True)
class Overrun:
    """The kernel overwrote ``lost`` records of a boot, ``first`` to ``last``, before they were read."""

    boot_id: str
    first: int
    last: int
    lost: int


def reader_boot(text: str) -> str | None:
    """Return the boot id in a line of the reader, which may be in a runtime's or collector's record.

    None for any other line: where something else begins the line, the rest may be what a process chose.
    """
    match = _OF_READER.match(unwrap_output(text)) if "kmsg/1 " in text else None
    return None if match is None else match[1].lower()


def parse_heartbeat(text: str) -> Heartbeat | None:
    """Return the line's heartbeat; it may be in a runtime's or collector's record. None for other lines."""
    match = _LINE.fullmatch(unwrap_output(text).strip()) if HEARTBEAT_ANCHOR in text else None
    if match is None:
        return None
    boot, sequence, seconds, micros, wall = match.groups()
    try:
        at = datetime.fromisoformat(wall)
        if at.tzinfo is None:
            return None
        return Heartbeat(boot.lower(), int(sequence), stamp_us(seconds, micros), at.astimezone(UTC))
    except (ValueError, OverflowError):
        return None


def parse_overrun(text: str) -> Overrun | None:
    """Return the line's overrun; it may be in a runtime's or collector's record. None for other lines."""
    match = _OVERRUN.fullmatch(unwrap_output(text).strip()) if OVERRUN_ANCHOR in text else None
    if match is None:
        return None
    boot, first, last, lost = match.groups()
    return Overrun(boot.lower(), int(first), int(last), int(lost))
