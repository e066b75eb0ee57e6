"""A decision's input (Snapshot) and its outcome (Plan, with a Change for each Node to write)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from konductor_like.model.brake import BrakeState, SkipReason
from konductor_like.model.controls import Controls
from konductor_like.model.faults import Fault, IncidentKey, Source
from konductor_like.model.nodes import Incident, NodeRecord, NodeState
from konductor_like.model.window import Window


class Verb(StrEnum):
    """What one change does to a Node."""

    TAINT = "taint"
    UNTAINT = "untaint"
    RECORD = "record"
    PURGE = "purge"


class EventReason(StrEnum):
    """The closed list of reasons that our Events use."""

    TAINTED = "GPUFaultTainted"
    RELEASED = "GPUFaultReleased"
    HELD = "GPUFaultHeldByBrake"
    RECORDED = "GPUFaultRecorded"
    ACKNOWLEDGED = "GPUFaultAcknowledged"
    """A person has seen it and deals with it."""
    SILENT = "KernelLogSilent"
    """A node's kernel log stopped arriving; on the Lease where it is much of the fleet."""
    OVERRUN = "KernelLogOverrun"
    """The kernel overwrote records of its log before they were read."""
    SHADOW = "GPUFaultShadow"
    """A rule on trial would have acted."""
    CONTESTED = "GPUTaintContested"
    """Somebody else keeps taking our taint off."""
    PAUSED = "GPUTaintingPaused"
    """A person has paused tainting; on the Lease."""
    RESUMED = "GPUTaintingResumed"
    """A pause has ended; on the Lease."""
    BRAKE_RESET = "GPUBrakeReset"
    """A person has reset the brake; on the Lease."""
    HOLDING = "GPUBrakeHolding"
    """The brake has begun to hold nodes back; on the Lease."""
    FREE = "GPUBrakeReleased"
    """It holds none any more; on the Lease."""
    DELETED = "GPUTaintedNodeDeleted"
    """Nodes were deleted while they bore our taint; on the Lease."""
    AMBIGUOUS = "NodeNameAmbiguous"
    """Two machines report under one name."""
    MISNAMED = "NodeNameUnknown"
    """Kernel faults come under a name that no Node has; on the Lease."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Occurrences of a known incident that its node does not tell of yet: writes are rare (rule 22)."""

    count: int
    """How often the incident was seen in all. It is no sum to be added, so that nothing can count twice."""
    latest: Fault
    """The latest occurrence, for ``times`` of them that are not written yet. Its position is the
    furthest of theirs, and a user wrote it only if a user wrote all."""


@dataclass(frozen=True, slots=True)
class Change:
    """One Node write, complete: what to set, what to say, and why."""

    node: str
    verb: Verb
    record: NodeRecord | None
    """The record to write; None removes the annotation and the label."""
    health: str | None
    """The value of the health label; None removes it."""
    suspect_taint: bool = field(default=False, kw_only=True)
    """Whether the node bears our softer taint afterwards."""
    event: EventReason | None = None
    message: str = ""
    incident: Incident | None = None
    """The incident that a taint stands for."""
    evidence: Fault | None = None
    """The line that led to it just now; None for a taint that the brake had held."""
    news: tuple[Fault, ...] = ()
    """All that opened or reopened an incident on the node, ``evidence`` among them."""
    grown: tuple[Growth, ...] = ()
    """Further occurrences of known incidents that the record now counts too."""

    @property
    def act_id(self) -> str:
        """The write's name in log, Event and record; empty where nothing stays on the node (a purge)."""
        return self.record.act.id if self.record is not None and self.record.act is not None else ""

    @property
    def counts_only(self) -> bool:
        """Whether it only brings counts up to date: such writes are rare (rule 22)."""
        return self.verb is Verb.RECORD and bool(self.grown) and not self.news and self.event is None


@dataclass(frozen=True, slots=True)
class DroppedFault:
    """A fault that led to nothing, and why: nothing is dropped in silence."""

    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True)
class SkippedTaint:
    """One node that is not tainted, for what, and why not; reported once for as long as it stays so."""

    node: str
    key: IncidentKey
    why: SkipReason
    detail: str = ""
    about: Incident | Fault | None = field(default=None, compare=False)
    """What stands against it; the line itself where that is all there is."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision depends on."""

    nodes: Mapping[str, NodeState]
    in_flight: frozenset[str] = frozenset()
    """Nodes whose taint may have been written although no answer came."""
    unwritable: frozenset[str] = frozenset()
    """Nodes that could not be tainted just now: they must not keep others from the brake's room."""
    grown: Mapping[str, tuple[Growth, ...]] = field(default_factory=dict)
    """By node, what was counted earlier and is not written yet."""
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Up to where each source had been acted upon before the faults at hand, for releases seen now."""
    ambiguous: frozenset[str] = frozenset()
    """Names under which two machines report at once: never tainted (rule 3)."""
    left: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node, the boots that its present boot's heartbeats have shown to be over."""
    controls: Controls = field(default_factory=Controls)
    window: Window = field(default_factory=Window)
    """Recent evidence of the whole fleet, for thresholds and for telling root cause from collateral."""
    replaying: bool = False
    """The window has yet to be read again in full: what nobody else did in it cannot be known."""
    jobs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node, the jobs that ran there lately, as far as the API server was asked."""
    pods: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By node, of each pod (``namespace/name``) the job that it is of, as far as that server was asked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: the one value that log, metrics, Events, dry run and the writes are rendered from."""

    changes: tuple[Change, ...]
    brake: BrakeState
    counted: tuple[Fault, ...] = ()
    """The new occurrences, as opposed to what was seen before or says nothing about its node."""
    ignored: tuple[DroppedFault, ...] = ()
    of_unknown_nodes: tuple[Fault, ...] = ()
    """Faults of Nodes that the cluster does not know (yet)."""
    grown: Mapping[str, tuple[Growth, ...]] = field(default_factory=dict)
    """By node, what is counted and not written yet, to be carried to the next decision."""
    window: Window = field(default_factory=Window)
    """Recent evidence, to be carried to the next decision."""
    refused: tuple[SkippedTaint, ...] = ()
    """Nodes that are not tainted although something stands against them."""
