"""The machines and their kernel lines: ring buffers, boots, and every fault that occurred."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

FATAL = (48, 62, 64, 74, 79, 95, 119)
"""Xids that taint at once."""
HARMLESS = (13, 31, 43, 63, 92, 94)
"""Xids that are recorded and do not taint by themselves."""
GPUS = ("0000:1b:00", "0000:4e:00", "0000:9a:00")
KMSG, PLAIN = "kmsg", "plain"


@dataclass(slots=True)
class Occurrence:
    """One kernel record, which may be shipped several times. Times are ns since the epoch."""

    node: str
    machine: str
    boot: str
    sequence: int
    stamp_us: int
    text: str
    printed_ns: int
    rule: str = ""
    gpu: str = ""
    tainting: bool = False
    accepted_ns: int | None = None
    """When Loki first accepted it; None if it was not shipped."""

    def line(self, form: str) -> str:
        seconds, micros = divmod(self.stamp_us, 1_000_000)
        stamped = f"[{seconds:5d}.{micros:06d}] {self.text}"
        if form == PLAIN:
            return stamped
        return f"kmsg/1 boot={self.boot} seq={self.sequence} facility=0 priority=4 {stamped}"


@dataclass(slots=True)
class Machine:
    """One machine in one boot. ``ring`` is its ring buffer, ``form`` how its log is shipped."""

    node: str
    form: str
    uptime_seconds: float
    system: str = field(default_factory=lambda: str(uuid.uuid4()))
    boot: str = field(default_factory=lambda: str(uuid.uuid4()))
    ring: list[Occurrence] = field(default_factory=list)
    reboots: int = 0
    shipped_plain: bool = False
    """Whether some of its lines were shipped without their boot, so that their boot is unknown."""
    _booted: float = field(default_factory=time.monotonic)

    def print_line(self, text: str, rule: str = "", gpu: str = "", *, tainting: bool = False) -> Occurrence:
        """The kernel writes one record."""
        elapsed = self.uptime_seconds + time.monotonic() - self._booted
        sequence = self.ring[-1].sequence + 1 if self.ring else 700
        printed_ns = time.time_ns()
        occurrence = Occurrence(
            self.node,
            self.system,
            self.boot,
            sequence,
            int(elapsed * 1e6),
            text,
            printed_ns,
            rule,
            gpu,
            tainting,
        )
        self.ring.append(occurrence)
        return occurrence

    def xid(self, code: int, gpu: str) -> Occurrence:
        text = f"NVRM: Xid (PCI:{gpu}): {code}, pid=2201, name=python3, printed by the driver"
        return self.print_line(text, f"xid.{code}", gpu, tainting=code in FATAL)

    def reboot(self) -> None:
        """Start another boot with an empty ring buffer."""
        self.boot = str(uuid.uuid4())
        self.ring = []
        self.reboots += 1
        self.uptime_seconds = 20.0
        self._booted = time.monotonic()

    def heartbeat(self) -> str:
        last = self.ring[-1].sequence if self.ring else 699
        uptime = self.uptime_seconds + time.monotonic() - self._booted
        wall = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return f"kmsg/1 heartbeat boot={self.boot} seq={last} uptime={uptime:.6f} wall={wall}"
