"""What is found in logs: lines, what their text says, and faults with their place in the world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

EVIDENCE_CHARS = 512
"""A fault keeps at most this much of its line; a Node's record keeps less."""


class Source(StrEnum):
    """Where a line comes from. Only the stream decides this, never the text."""

    KERNEL = "kernel"
    POD = "pod"


class Severity(StrEnum):
    """What a fault means for the node (rule 16)."""

    FATAL = "fatal"
    """Hardware: the node is tainted at once."""
    TEST = "test"
    """Acts like fatal and says that it is a test (Xid 14, the driver's own fake error)."""
    SUSPECT = "suspect"
    """Recorded; not enough by itself."""
    APPLICATION = "application"
    """The job's own fault; recorded only."""
    INFO = "info"
    """Worth knowing, nothing to do."""

    taints: bool
    """Whether one such fault is reason enough to taint its node. No property: it is asked for every line."""

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
    """NVLink trouble that the driver tells without an Xid."""
    AER = "aer"
    """PCIe Advanced Error Reporting."""
    IB = "ib"
    """InfiniBand and RoCE adapters."""
    FM = "fm"
    """NVIDIA's Fabric Manager, in its own log."""
    AMD = "amd"
    NEURON = "neuron"
    CUDA = "cuda"
    NCCL = "nccl"
    CUSTOM = "custom"
    """A rule of the user's own."""

    @property
    def proves_gpu(self) -> bool:
        """Whether such a line in a node's own kernel log proves that it has a GPU (rule 20)."""
        return self in (FaultKind.XID, FaultKind.SXID, FaultKind.NVRM)


APPLICATION_XIDS = frozenset({"xid.13", "xid.31", "xid.43", "xid.45"})
"""What a job's end prints on healthy nodes: by default nothing taints on a single one (rule 16)."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One entry of Loki, with the labels that say where it comes from.

    ``labels`` holds stream labels and structured metadata together, as Loki returns them. ``node``,
    ``namespace``, ``pod`` and ``container`` are those labels under the names that the settings give;
    None where the collector did not set one.
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
    """Where in a machine's kernel log a record stands; any part may be unknown.

    ``sequence`` is the kernel's own record number, ``stamp_us`` its printk stamp. Both only grow within one
    boot. A plain ``dmesg -w`` gives the stamp alone; a line out of a pod gives nothing.
    """

    boot_id: str | None = None
    sequence: int | None = None
    stamp_us: int | None = None

    @property
    def known(self) -> bool:
        """Whether two such positions of one boot can be ordered at all."""
        return self.sequence is not None or self.stamp_us is not None

    def at_or_before(self, other: KernelPosition) -> bool | None:
        """Order within one boot: by sequence when both have one, else by stamp; None when neither works."""
        if self.sequence is not None and other.sequence is not None:
            return self.sequence <= other.sequence
        if self.stamp_us is not None and other.stamp_us is not None:
            return self.stamp_us <= other.stamp_us
        return None

    def later(self, other: KernelPosition) -> KernelPosition:
        """The later of the two; ``self`` when they cannot be ordered and ``self`` is known."""
        if not self.known:
            return other
        return other if self.at_or_before(other) else self


NOWHERE = KernelPosition()
"""The position of a line that tells none."""


class Finding(NamedTuple):
    """What the text of one line says, before anybody asked where the line comes from.

    ``rule`` names the catalogue entry (``xid.79``, ``sxid.12028``, ``nvrm.fallen_off_bus``). ``gpu`` is the
    PCI bus id ``dddd:bb:dd`` in lower case; of an SXid it is the switch's. ``text`` is the line without its
    prefixes (stamps, syslog header, CRI fields), which is what de-duplication compares and people read.
    ``sub_code`` is what a line adds to its code (the target of an Xid 154, the unit of an Xid 145), ``mig``
    the MIG instance ``GI/CI``, ``port`` the NVLink or switch port, ``needs`` what the machine needs before
    the fault can be called gone (the catalogue's ``Needs``).

    A named tuple: one of every line that reports a fault is made, seven times as fast as a frozen dataclass.
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
    """Its rule is on trial: reported, and never acted upon."""
    clears: str | None = None
    """The rule that it takes back on its GPU: the driver says that the state it told of has ended.

    Of an Xid 154 "to None" that is its own rule.
    """
    severity_by_user: bool = False
    """A user's rule set the severity, so that even a pod's line may taint (rule 17)."""
    remote: bool = False
    """The line itself says that another device is at fault: an NVLink peer, not this GPU."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding with its place in the world: which source, node, stream and time."""

    finding: Finding
    source: Source
    timestamp_ns: int
    node: str | None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    before_install: bool = False
    """Older than the span that the first start acts on (rule 5): recorded, never acted upon."""
    job: str | None = None
    """The job that its pod belongs to, ``namespace/Kind/name``; None for a kernel line."""
    times: int = 1
    """How often it was seen: more than once where like faults just before it were let go to save room."""

    @property
    def key(self) -> IncidentKey:
        """Faults with one key on one node are one incident (per boot, and per whether they taint)."""
        return IncidentKey(self.finding.rule, self.finding.gpu)

    def order(self) -> tuple[int, int, int]:
        """Sorts faults by time; those of one time as the kernel printed them."""
        position = self.finding.position
        return (self.timestamp_ns, position.sequence or 0, position.stamp_us or 0)

    @property
    def severity(self) -> Severity:
        """The finding's severity, capped: a pod accuses nobody by itself unless a user's rule says so (design
        rule 17), and what predates the first start is only remembered (rule 5)."""
        severity = self.finding.severity
        accuses = self.source is Source.KERNEL or self.finding.severity_by_user
        if severity.taints and (self.before_install or not accuses):
            return Severity.SUSPECT
        return severity


class IncidentKey(NamedTuple):
    """What makes two faults of one node the same incident: the rule and the GPU."""

    rule: str
    gpu: str | None
