"""Lines of logs, what their text means (findings), and faults: findings of a known source, node and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

NAMELESS = "boot "
"""Stands before a boot id in place of a node's name, which has no blank."""
EVIDENCE_CHARS = 512
"""Number of characters of its line that a fault keeps at most; a Node's record keeps fewer."""


class Source(StrEnum):
    """Where a line comes from. The stream decides this, never the text."""

    KERNEL = "kernel"
    POD = "pod"


class Severity(StrEnum):
    """What a fault means for the node (rule 16)."""

    FATAL = "fatal"
    """The hardware failed: the node is tainted at once."""
    TEST = "test"
    """Taints like fatal, and is reported as a test (Xid 14, the driver's own fake error)."""
    SUSPECT = "suspect"
    """Recorded; does not taint by itself."""
    APPLICATION = "application"
    """The job's own fault; recorded only."""
    INFO = "info"
    """Worth knowing; nothing needs to be done."""

    taints: bool
    """Whether one such fault taints its node. No property, because it is read for every line."""

    def __init__(self, value: str) -> None:
        self.taints = value in ("fatal", "test")


class FaultKind(StrEnum):
    """The family of a fault."""

    XID = "xid"
    SXID = "sxid"
    NVRM = "nvrm"
    """The NVIDIA kernel driver, with no Xid in the line: GPU lost, failed initialisation."""
    PEERMEM = "peermem"
    NVLINK = "nvlink"
    """NVLink trouble that the driver reports without an Xid."""
    AER = "aer"
    """PCIe Advanced Error Reporting."""
    IB = "ib"
    """InfiniBand and RoCE adapters."""
    FM = "fm"
    """NVIDIA's Fabric Manager, in its own log."""
    AMD = "amd"
    NEURON = "neuron"
    """This and ``AMD``: other vendors' accelerators, only in records of an earlier version."""
    CUDA = "cuda"
    NCCL = "nccl"
    NODE = "node"
    """What the Node itself shows, such as missing GPUs; no line of a log reports it."""
    CONDITION = "condition"
    """A Node condition that another program wrote; no line of a log reports it."""
    ALERT = "alert"
    """An alert of Prometheus; no line of a log reports it."""
    CUSTOM = "custom"
    """A user's own rule."""

    @property
    def proves_gpu(self) -> bool:
        """Whether a line of this kind in a node's own kernel log proves that the node has a GPU (rule 20)."""
        return self in (FaultKind.XID, FaultKind.SXID, FaultKind.NVRM)

    @property
    def has_line(self) -> bool:
        """Whether a line of a log reports faults of this kind."""
        return self not in (FaultKind.NODE, FaultKind.CONDITION, FaultKind.ALERT)


APPLICATION_XIDS = frozenset({"xid.13", "xid.31", "xid.43", "xid.45"})
"""Rules of Xids that the end of a job prints on healthy nodes: by default a single one never taints (rule
16)."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One entry of Loki, with the labels that show where it comes from.

    ``labels`` has stream labels and structured metadata together, as Loki returns them. ``node``,
    ``namespace``, ``pod`` and ``container`` are the labels that the settings name for them; None if the
    collector did not set one.
    """

    source: Source
    timestamp_ns: int
    text: str
    labels: Mapping[str, str]
    node: str | None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class KernelPosition:
    """The place of a record in a machine's kernel log, or how far the log was read; any part may be unknown.

    ``sequence`` is the kernel's own record number, ``stamp_us`` its printk stamp. Both only increase within
    one boot. The kernel-log reader gives both and the boot. A plain ``dmesg -w`` gives the stamp alone; a
    pod's line gives neither.

    A line without a boot id may be of another boot than it seems, so its stamp is kept apart in ``plain_us``
    once the line is counted for a boot. For example a log that was read up to a line with boot id at 120 s,
    and up to a line without one at 9,000 s, has both numbers. The second hides no line that names the boot.
    """

    boot_id: str | None = None
    sequence: int | None = None
    stamp_us: int | None = None
    plain_us: int | None = None

    @property
    def known(self) -> bool:
        """Whether the position can be compared with others of its boot."""
        return self.sequence is not None or self.newest_us is not None

    @property
    def newest_us(self) -> int | None:
        """The higher one of the two stamps: lines without a boot id are compared with it."""
        if self.stamp_us is None or self.plain_us is None:
            return self.plain_us if self.stamp_us is None else self.stamp_us
        return max(self.stamp_us, self.plain_us)

    @property
    def names_boot(self) -> bool:
        """Whether a line that names its boot is at this place, or has raised it."""
        return self.boot_id is not None and (self.sequence is not None or self.stamp_us is not None)

    def plain(self, boot_id: str | None) -> KernelPosition:
        """Return the place of a line without a boot id, counted for this boot."""
        return KernelPosition(boot_id, plain_us=self.newest_us)

    def at_or_before(self, other: KernelPosition) -> bool | None:
        """Whether this position is not after ``other`` in the same boot; None if the two cannot be compared.

        A line that names its boot is compared with such lines alone: by sequence numbers if both have one,
        else by stamps. A line without a boot id is compared with the highest stamp of all lines.
        """
        orders: list[bool | None] = []
        if self.names_boot:
            orders.append(self._named_at_or_before(other))
        plain_us = self.newest_us if self.boot_id is None else self.plain_us
        if plain_us is not None:
            orders.append(None if other.newest_us is None else plain_us <= other.newest_us)
        if not orders or None in orders:
            return False if False in orders else None
        return all(orders)

    def _named_at_or_before(self, other: KernelPosition) -> bool | None:
        if not other.names_boot:
            return None
        if self.sequence is not None and other.sequence is not None:
            return self.sequence <= other.sequence
        if self.stamp_us is not None and other.stamp_us is not None:
            return self.stamp_us <= other.stamp_us
        return None

    def later(self, other: KernelPosition) -> KernelPosition:
        """Return how far a log was read after both, of the same boot: the highest of each number."""
        if not self.known:
            return other
        stamp_us, plain_us = _higher(self.stamp_us, other.stamp_us), _higher(self.plain_us, other.plain_us)
        if stamp_us is not None and plain_us is not None and plain_us <= stamp_us:
            plain_us = None
        found = KernelPosition(self.boot_id, _higher(self.sequence, other.sequence), stamp_us, plain_us)
        return self if found == self else found

    def capped(self, uptime_us: int) -> KernelPosition:
        """Return the position without the part that the boot had not reached at this uptime."""
        newest_us = self.newest_us
        if newest_us is None or newest_us <= uptime_us:
            return self
        stamps = (None if us is None else min(us, uptime_us) for us in (self.stamp_us, self.plain_us))
        return KernelPosition(self.boot_id, self.sequence, *stamps)


def _higher(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


NOWHERE = KernelPosition()
"""The position of a line without one."""


class Needs(StrEnum):
    """The repair that a machine needs before a fault counts as repaired. A later member outweighs an earlier.

    The values are values of the label ``trainy.konduktor.ai/needs``, so they contain no blanks.
    """

    NONE = "none"
    APPLICATION_RESTART = "application-restart"
    SOFTWARE_UPDATE = "software-update"
    GPU_RESET = "gpu-reset"
    FABRIC_RESET = "fabric-reset"
    """GPUs and NVSwitches (of the node or of its NVLink domain) are reset together."""
    REBOOT = "reboot"
    SUPPORT = "support"
    """Only the vendor can find the repair."""
    INSPECTION = "inspection"
    REPLACEMENT = "replacement"

    @classmethod
    def _missing_(cls, value: object) -> Needs | None:
        """Read the old spelling too, which records and rules files may have: ``gpu reset``, ``nothing``."""
        before = "none" if value == "nothing" else str(value).replace(" ", "-")
        return next((each for each in cls if each.value == before != value), None)


MET_BY_REBOOT = frozenset(
    {Needs.NONE, Needs.APPLICATION_RESTART, Needs.GPU_RESET, Needs.FABRIC_RESET, Needs.REBOOT}
)
"""The needs that a reboot of the machine meets."""


class Finding(NamedTuple):
    """The meaning of one line's text, before it is known where the line comes from.

    ``rule`` names the catalogue entry (``xid.79``, ``sxid.12028``, ``nvrm.fallen_off_bus``). ``gpu`` is the
    PCI bus id ``dddd:bb:dd`` in lower case; for an SXid it is the switch's. ``text`` is the line without its
    prefixes (stamps, syslog header, CRI fields); de-duplication compares this text, and people read it.
    ``sub_code`` is what a line adds to its code (the target of an Xid 154, the unit of an Xid 145), ``mig``
    the MIG instance ``GI/CI``, ``port`` the NVLink or switch port, ``needs`` what the machine needs before
    the fault is gone (a value of ``Needs``).

    A named tuple, because one is made for every line that reports a fault: seven times as fast as a frozen
    dataclass.
    """

    kind: FaultKind
    rule: str
    severity: Severity
    title: str
    advice: str
    text: str
    code: int | None = None
    gpu: str | None = None
    pid: int | None = None
    process: str | None = None
    position: KernelPosition = NOWHERE
    user_written: bool = False
    """The kmsg record was written from user space (``echo … > /dev/kmsg``), not by the driver."""
    sub_code: str | None = None
    mig: str | None = None
    port: int | None = None
    needs: str = ""
    shadow: bool = False
    """The rule is on trial: its faults are reported, and nothing else is done."""
    clears: str | None = None
    """The rule whose incident on the same GPU the line closes: the driver reports that the state has ended.

    For an Xid 154 "to None" this is its own rule.
    """
    severity_by_user: bool = False
    """Whether a user's rule set the severity, so that even a pod's line may taint (rule 17)."""
    remote: bool = False
    """Whether the line itself blames another device: an NVLink peer, not this GPU."""
    uuid: str = ""
    serial: str = ""
    """UUID and serial number of the GPU, if the driver named them in the same boot; else empty."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding with its source, node, stream and time."""

    finding: Finding
    source: Source
    timestamp_ns: int
    node: str | None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    before_install: bool = False
    """Older than the span that the first start acts on (rule 5): recorded, and never acted upon."""
    job: str | None = None
    """The job of its pod, ``namespace/Kind/name``; None for a kernel line."""
    times: int = 1
    """Number of occurrences: more than 1 if similar faults just before it were merged into it."""

    @property
    def nameless_boot(self) -> str | None:
        """The boot id of a line of the kernel-log reader that names no node; None for any other line.

        Only the reader's lines have both boot id and number, and only a container's stream counts.
        """
        position = self.finding.position
        of_reader = position.sequence is not None and self.namespace and self.container
        return position.boot_id if self.node is None and self.source is Source.KERNEL and of_reader else None

    @property
    def named(self) -> str:
        """The name of its node; of a line without one, the boot: ``boot 0b6f3c1e-…``."""
        return f"{NAMELESS}{self.nameless_boot}" if self.node is None else self.node

    @property
    def key(self) -> IncidentKey:
        """The key of its incident. A node has one incident per key, per boot and per whether it taints."""
        return IncidentKey(self.finding.rule, self.finding.gpu)

    def order(self) -> tuple[int, int, int]:
        """Sort key: by time; at the same time in the order in which the kernel printed them."""
        position = self.finding.position
        return (self.timestamp_ns, position.sequence or 0, position.stamp_us or 0)

    @property
    def severity(self) -> Severity:
        """The finding's severity, but suspect at most where it may not taint.

        A pod's line taints only if a user's rule sets the severity (rule 17). A line from before the first
        start never taints (rule 5).
        """
        severity = self.finding.severity
        accuses = self.source is Source.KERNEL or self.finding.severity_by_user
        if severity.taints and (self.before_install or not accuses):
            return Severity.SUSPECT
        return severity


class IncidentKey(NamedTuple):
    """The rule and the GPU: faults of one node with the same key belong to one incident."""

    rule: str
    gpu: str | None
