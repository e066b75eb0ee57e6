"""A node's kernel log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Kernel:
    """One node's kernel log, as our reader of ``/dev/kmsg`` prints it."""

    boot_id: str
    booted_ns: int
    sequence: int = 1000

    def line(self, text: str, now_ns: int) -> str:
        """The record of something that the kernel says now."""
        self.sequence += 1
        stamp_us = (now_ns - self.booted_ns) // 1000
        stamp = f"[{stamp_us // 1_000_000:5d}.{stamp_us % 1_000_000:06d}]"
        return f"kmsg/1 boot={self.boot_id} seq={self.sequence} facility=0 priority=3 {stamp} {text}"

    def heartbeat(self, now_ns: int, wall: str) -> str:
        """What the reader prints once a minute."""
        stamp_us = (now_ns - self.booted_ns) // 1000
        return (
            f"kmsg/1 heartbeat boot={self.boot_id} seq={self.sequence} "
            f"uptime={stamp_us // 1_000_000}.{stamp_us % 1_000_000:06d} wall={wall}"
        )
