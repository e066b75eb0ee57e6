"""A decision's input (Snapshot) and its outcome (Plan, with a Change for each Node to write)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from konductor_like.model.alerts import AlertsAnswer, AlertsSeen
from konductor_like.model.brake import BrakeState, SkipReason
from konductor_like.model.conditions import ConditionsSeen
from konductor_like.model.controls import Controls
from konductor_like.model.faults import Fault, IncidentKey, Source
from konductor_like.model.gpus import SeenGpu
from konductor_like.model.memory import GpuCounts, Growth, RecentEvidence
from konductor_like.model.nodes import Incident, NodeRecord, NodeState
from konductor_like.model.validation import ValidationJobs


class Verb(StrEnum):
    """What one change does to a Node."""

    TAINT = "taint"
    UNTAINT = "untaint"
    RECORD = "record"
    PURGE = "purge"


class EventReason(StrEnum):
    """All reasons that our Events use."""

    TAINTED = "GPUFaultTainted"
    RELEASED = "GPUFaultReleased"
    HELD = "GPUFaultHeldByBrake"
    RECORDED = "GPUFaultRecorded"
    SILENT = "KernelLogSilent"
    """A node's kernel log stopped arriving; on the Lease if many nodes are affected."""
    RESTORED = "KernelLogRestored"
    """After such an Event the kernel log arrives again, or only one machine reports under the name."""
    READ_LATE = "GPUFaultReadLate"
    """A fatal line was read for the first time after a release that seems to cover it; it taints nothing."""
    OVERRUN = "KernelLogOverrun"
    """The kernel overwrote records of its log before they were read."""
    SHADOW = "GPUFaultShadow"
    """A rule on trial would have tainted the node."""
    WORSENED = "GPUFaultWorsened"
    """A tainted node has a new fault with which it needs more than before, or that a reboot had repaired."""
    REMOVED = "GPUTaintRemoved"
    """Somebody who is not known as a person removed our taint: the node stays faulty."""
    PUT_BACK = "GPUTaintPutBack"
    """The controller put our taint back, or its effect right."""
    CONTESTED = "GPUTaintContested"
    """Somebody else keeps removing our taint: it stays off, and the node stays faulty."""
    OVERRULED = "GPUTaintsNotPutBack"
    """One writer removed our taint from so many nodes that it is put back no more; on the Lease."""
    PAUSED = "GPUTaintingPaused"
    """A person has paused tainting; on the Lease."""
    RESUMED = "GPUTaintingResumed"
    """A pause has ended; on the Lease."""
    BRAKE_RESET = "GPUBrakeReset"
    """A person has ended the brake's cool-down; on the Lease."""
    HOLDING = "GPUBrakeHolding"
    """The brake has begun to hold nodes back; on the Lease."""
    FREE = "GPUBrakeReleased"
    """The brake holds no node any more; on the Lease."""
    DELETED = "GPUTaintedNodeDeleted"
    """Nodes were deleted while they carried our taint; on the Lease."""
    REBOOTED = "GPUNodeRebooted"
    """A machine has booted: which needs of its faults that meets, or that nobody had asked for a reboot; on
    the Lease if many machines boot together."""
    ENDED = "GPUFaultEnded"
    """A suspicion or a test has ended."""
    RETURNED = "GPUNodeReturned"
    """The controller itself removed its taint: after a reboot or a validation, with probation, or at the end
    of a test."""
    RELAPSED = "GPUNodeRelapsed"
    """A node failed on probation and is tainted again."""
    VALIDATING = "GPUNodeValidating"
    """A validation of the node's GPUs begins."""
    VALIDATED = "GPUNodeValidated"
    """The node's GPUs passed a validation."""
    NOT_VALIDATED = "GPUNodeNotValidated"
    """A validation failed, or its result is unknown."""
    RETURNS_STOPPED = "GPUReturnsStopped"
    """Too many returned nodes relapsed: no node returns by itself until a person resumes; on the Lease."""
    RETURNS_RESUMED = "GPUReturnsResumed"
    """A person lets nodes return by themselves again; on the Lease."""
    JOBS_NODE = "GPUNodeFaulty"
    """A node was tainted on which pods of a job ran; on the owner of these pods."""
    AMBIGUOUS = "NodeNameAmbiguous"
    """Two machines report under one name."""
    MISNAMED = "NodeNameUnknown"
    """Kernel faults arrive under a name that no Node has; on the Lease."""


@dataclass(frozen=True, slots=True)
class Change:
    """One complete Node write: the fields to set, the Event, and the reason."""

    node: str
    verb: Verb
    record: NodeRecord | None
    """The record to write; None removes the annotation and the label."""
    health: str | None
    """The value of the health label; None removes it."""
    needs: str | None = field(default=None, kw_only=True)
    """The value of the label for what the node needs; None removes it."""
    upkeep: bool = field(default=False, kw_only=True)
    """Whether the write is not urgent: the controller makes a limited number of these a minute."""
    event: EventReason | None = None
    message: str = ""
    is_own_end: bool = field(default=False, kw_only=True)
    """Whether the Event is the end of a person's own taint, and of no fault."""
    also: tuple[tuple[EventReason, str], ...] = field(default=(), kw_only=True)
    """Further Events of the write, with their messages."""
    incident: Incident | None = None
    """The incident for which the node is tainted; on a tainted node, the one with which it needs more."""
    evidence: Fault | None = None
    """The new fault that led to the write; None for a taint that the brake had held."""
    news: tuple[Fault, ...] = ()
    """All faults that opened or reopened an incident of the node, ``evidence`` among them."""
    grown: tuple[Growth, ...] = ()
    """Growth that the write brings to the record: further occurrences of known incidents."""
    read: NodeState | None = field(default=None, compare=False, kw_only=True)
    """The Node as the controller read it; None for a person's write."""

    @property
    def act_id(self) -> str:
        """The write's id in log, Event and record; empty if nothing stays on the Node (a purge)."""
        return self.record.act.id if self.record is not None and self.record.act is not None else ""

    @property
    def ends_claim(self) -> bool:
        """Whether the node is out of service by its record before the write, and not after it."""
        was = self.read is not None and self.read.record.life.claimed
        return was and not (self.record is not None and self.record.life.claimed)

    @property
    def counts_only(self) -> bool:
        """Whether the write only brings counts up to date (rule 22)."""
        return self.verb is Verb.RECORD and bool(self.grown) and not self.news and self.event is None


@dataclass(frozen=True, slots=True)
class DroppedFault:
    """A fault that led to nothing, and why: no fault is dropped without a reason."""

    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True)
class SkippedTaint:
    """One node that is not tainted for an incident, and why; reported once while it stays so."""

    node: str
    key: IncidentKey
    why: SkipReason
    detail: str = ""
    about: Incident | Fault | None = field(default=None, compare=False)
    """The incident, or the fault if there is no incident."""


@dataclass(frozen=True, slots=True)
class Hearing:
    """The heartbeats of one node whose kernel log is heard now."""

    boot_id: str
    """The boot of the latest heartbeat."""
    first_ns: int
    last_ns: int
    """Loki timestamps of the first and the last heartbeat of that boot that this controller heard."""
    has_gap: bool = False
    """Whether heartbeats of that boot are missing that may still arrive, or are still to be read."""
    has_any_gap: bool = False
    """The same for heartbeats of that boot or of the time before it, such as that of a long reboot."""


@dataclass(frozen=True, slots=True)
class Standing:
    """For how long a Node has shown what it shows now, by a watch of the Nodes without a break.

    A change that was seen, a new list of the Nodes and a new process begin both spans again.
    """

    ready_seconds: float
    """Seconds without a change of its Ready condition or of its machine's boot."""
    gpus_seconds: float
    """Seconds without a change of its count of GPUs or of its machine's boot."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All facts that a decision depends on."""

    nodes: Mapping[str, NodeState]
    in_flight: frozenset[str] = frozenset()
    """Nodes whose taint may have been written although no answer came."""
    unwritable: frozenset[str] = frozenset()
    """Nodes that cannot be tainted just now: they must not use up the brake's limit."""
    failing: Mapping[str, datetime] = field(default_factory=dict)
    """Nodes that are not written now because their writes fail, and since when; others return before them."""
    grown: Mapping[str, tuple[Growth, ...]] = field(default_factory=dict)
    """By node, the growth: occurrences that were counted and not written."""
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Per source, the Loki timestamp up to which lines were acted upon before this decision's faults.

    A release that is noticed now covers lines up to there.
    """
    ambiguous: frozenset[str] = frozenset()
    """Names under which two machines report at once; such nodes are never tainted (rule 3)."""
    left: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node, the boots that the Node has left: heartbeats of its present boot show that they are over."""
    controls: Controls = field(default_factory=Controls)
    lease_unread: bool = False
    """Whether the Lease cannot be read, so that a pause may be unknown: then no node returns by itself."""
    hearing: Mapping[str, Hearing] = field(default_factory=dict)
    """The nodes whose kernel log is heard now. A silent, unmeasured or ambiguous node is absent."""
    standing: Mapping[str, Standing] = field(default_factory=dict)
    """By faulty node, for how long its Node has not changed; empty while the Nodes cannot be watched."""
    began: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """By node, the boot of the latest heartbeat, and when that boot began by the controller's clock: arrival
    less uptime, in nanoseconds since the Unix epoch."""
    gaps_given_up: Mapping[str, int] = field(default_factory=dict)
    """By node, the end (a Loki timestamp) of the latest span whose lines may be lost for good."""
    lost_boots: Mapping[str, str] = field(default_factory=dict)
    """See :attr:`Coverage.lost_boots`."""
    gpus: GpuCounts | None = None
    """The GPUs as the last decision counted them; None if GPUs are not to be counted."""
    conditions: ConditionsSeen | None = None
    """What the last decision saw of other programs' conditions; None if they are not to be read."""
    alerts: AlertsSeen | None = None
    """What the last decision saw of alerts; None if Prometheus is not asked."""
    alerts_answer: AlertsAnswer | None = None
    """The latest answer of Prometheus; None before the first one."""
    without_record: frozenset[str] = frozenset()
    """Nodes that had no room for their record, and whose record should be tried again now."""
    labels_needs: bool = True
    """Whether the API server accepts the label for what a node needs; an older admission policy does not."""
    window: RecentEvidence = field(default_factory=RecentEvidence)
    """Recent evidence of the whole fleet, for thresholds and failure groups."""
    replaying: bool = False
    """Whether the past is still being read again after a start, so that recent evidence is incomplete."""
    jobs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node, the jobs that ran there recently, if the API server was asked."""
    pods: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By node and pod (``namespace/name``), the pod's job, if the API server was asked."""
    seen_gpus: Mapping[str, tuple[SeenGpu, ...]] = field(default_factory=dict)
    """By node, the GPUs that exporters name. They are recorded, and no decision depends on them (rule 43)."""
    validations: ValidationJobs | None = None
    """What is seen of the Jobs of validations; None if validations are off, or nothing was seen yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision: log, metrics, Events, dry run and the writes are all rendered from this value."""

    changes: tuple[Change, ...]
    brake: BrakeState
    counted: tuple[Fault, ...] = ()
    """The faults that were counted, in contrast to replays and faults that do not concern their node."""
    ignored: tuple[DroppedFault, ...] = ()
    of_unknown_nodes: tuple[Fault, ...] = ()
    """Faults of nodes that the cluster does not have (yet)."""
    grown: Mapping[str, tuple[Growth, ...]] = field(default_factory=dict)
    """By node, the growth to carry to the next decision."""
    window: RecentEvidence = field(default_factory=RecentEvidence)
    """Recent evidence, to be carried to the next decision."""
    gpus: GpuCounts | None = None
    """The GPUs as this decision counted them, to be carried to the next one."""
    conditions: ConditionsSeen | None = None
    """What this decision saw of other programs' conditions, to be carried to the next one."""
    alerts: AlertsSeen | None = None
    """What this decision saw of alerts, to be carried to the next one."""
    shadowed: tuple[Fault, ...] = ()
    """Facts of Nodes that would be a fault, but for the shadow mode of their rule."""
    refused: tuple[SkippedTaint, ...] = ()
    """Nodes that are not tainted although an incident or a line is a reason for a taint."""
    kept_out: Mapping[str, str] = field(default_factory=dict)
    """By tainted node, the code of the first guard for which the node does not return by itself now."""
