"""The state of nodes: incidents, the record on the Node, and the Node itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from konductor_like.model.conditions import PlannedWork, ReportedCondition
from konductor_like.model.faults import NOWHERE, FaultKind, IncidentKey, KernelPosition, Severity, Source
from konductor_like.model.gpus import Gpu, SeenGpu
from konductor_like.model.life import NEVER_OUT, UNLABELLED, Covers, Hardware, Life, Release, Stage
from konductor_like.model.validation import Validation

TAINT_KEY = "trainy.konduktor.ai/faulty"
TAINT_VALUE = "true"
TAINT_EFFECT = "NoSchedule"
SUSPECT_TAINT_KEY = "trainy.konduktor.ai/suspect"
SUSPECT_TAINT_EFFECT = "PreferNoSchedule"
"""Key and effect of the taint that earlier versions gave to suspect nodes; its value is that of the other."""
HEALTH_LABEL = "trainy.konduktor.ai/health"
NEEDS_LABEL = "trainy.konduktor.ai/needs"
RECORD_ANNOTATION = "trainy.konduktor.ai/record"
OPT_OUT_LABEL = "trainy.konduktor.ai/ignore"
CONDITION_MARK = "konductor-like: "
"""The beginning of the message of every Node condition that the controller writes; it shows whose it is."""
UNSHARED = "replicas=1"
"""The layout (:attr:`GpuCount.layout`) of GPUs that the device plugin does not share."""
OPERATOR_RULE = "operator"
"""The rule of the incident of a person's own taint; no line of a log has this rule."""
REFUSES_PODS_RULE = "node.refuses_pods"
"""The rule of GPU pods that a node's kubelet refused; only records of an earlier build have it."""
PERSONS_TAINT = "a person's taint"
"""The name of that incident for people, everywhere."""


class IncidentState(StrEnum):
    """The state of an incident."""

    ACTIVE = "active"
    """Open: the node is tainted for it, or it is only recorded because it does not taint."""
    HELD = "held"
    """The incident would taint; the brake holds it back."""
    PENDING = "pending"
    """Its lines name another boot than the Node's; decided again when the Node's boot changes."""
    RELEASED = "released"
    """Closed, in general by a release: evidence up to ``last`` never taints again."""


class Role(StrEnum):
    """The role of an incident in a failure group."""

    ROOT_CAUSE = "root-cause"
    """The hardware that failed first, and caused everything else."""
    COLLATERAL = "collateral"
    """A root cause on another node explains it; it is no reason to taint."""
    UNCLEAR = "unclear"
    """Part of the failure group; the root cause is unknown."""


class MetBy(StrEnum):
    """How an incident's need was met, or why a suspicion or a test ended."""

    REBOOT = "reboot"
    """The machine has booted since."""
    HEALTHY_LINE = "healthy-line"
    """A later line reported the end of the fault, such as Xid 154 "to None"."""
    QUIET = "quiet"
    """The kernel log was heard for ``suspect_days`` without the fault."""
    TIME = "time"
    """A test (Xid 14) ends by itself after some time."""


class Doubt(StrEnum):
    """Why a fatal line that was first read after a release taints nothing."""

    MAY_BE_NEW = "may be new"
    """It has no boot id, and no heartbeat tells whether this boot had reached its stamp at the release."""
    BEFORE_RELEASE = "before the release"
    """It was printed before the release."""


@dataclass(frozen=True, slots=True)
class Incident:
    """All faults of one key on one node."""

    key: IncidentKey
    kind: FaultKind
    severity: Severity
    state: IncidentState
    count: int
    first_ns: int
    last_ns: int
    last: KernelPosition
    """The latest kernel position that was folded in; a replayed line at or before it is not counted."""
    code: int | None = None
    evidence: str = ""
    title: str = ""
    advice: str = ""
    source: Source = Source.KERNEL
    before_install: bool = False
    first_us: int | None = None
    """The lowest kernel stamp of its lines without a boot id; None if it has none, or for an older record."""
    doubt: Doubt | None = None
    """Why its fatal lines taint nothing, if they were first read after a release; it is suspect then."""
    released_ns: int | None = None
    """Up to when a release covers it; None while it is open."""
    user_written: bool = False
    """Whether all its lines are kernel-log records written from user space."""
    job: str | None = None
    """The job that it came from or disturbed, ``namespace/Kind/name``, if known."""
    failure_group: str | None = None
    """The name of its failure group, the same on all nodes of the group."""
    role: Role | None = None
    """Its role in the failure group."""
    root_cause: str | None = None
    """For a collateral incident: the node on which the failure began, or one of them."""
    needs: str = ""
    """What the machine needs before the fault is gone (a value of ``Needs``); empty if unknown."""
    escalated_because: str = ""
    """Why it taints although its severity does not: a threshold, or another rule's evidence."""
    ended_ns: int | None = None
    """When the driver reported its end (Xid 154 "to None"); it stays open until a release all the same."""
    met_ns: int | None = None
    """When its need was met; the taint stays all the same. A suspicion or a test ended then."""
    met_by: MetBy | None = None
    """By what its need was met; set together with ``met_ns``."""
    uuid: str = ""
    serial: str = ""
    """UUID and serial number of the GPU that was at the PCI bus id of ``key`` in that boot; empty if unknown.

    No decision depends on them (rule 43).
    """
    unknown: tuple[tuple[str, str], ...] = ()
    """See :attr:`NodeRecord.unknown`."""

    @property
    def seen_gpu(self) -> Gpu | None:
        """The GPU that failed, as it was identified; None if it was not."""
        return Gpu(self.key.gpu or "", self.uuid, self.serial) if self.uuid else None

    @property
    def taints(self) -> bool:
        """Whether it is a reason to taint the node."""
        return self.severity.taints or bool(self.escalated_because)

    @property
    def urgency(self) -> tuple[int, int]:
        """Sort key of incidents that taint: fatal ones first, tests last; of each kind the oldest first."""
        rank = {Severity.FATAL: 0, Severity.TEST: 2}.get(self.severity, 1)
        return (rank, self.first_ns)

    @property
    def lowest_us(self) -> int:
        """The lowest kernel stamp of its lines without a boot id; 0 if an older record does not tell it."""
        is_single = self.first_us is None and self.count == 1
        return (self.last.plain_us if is_single else self.first_us) or 0

    @property
    def by_person(self) -> bool:
        """Whether it is a person's own taint, without a line of a log."""
        return self.key.rule == OPERATOR_RULE

    @property
    def has_line(self) -> bool:
        """Whether a line of a log reports it; a person's taint and a fact about the Node have none."""
        return not self.by_person and self.kind.has_line

    @property
    def is_fact(self) -> bool:
        """Whether the controller sees it on the Node itself; nobody else tells of it."""
        return self.kind is FaultKind.NODE and not self.by_person

    @property
    def is_count(self) -> bool:
        """Whether it is about missing GPUs: it ends when they are back, and only then."""
        return self.is_fact and self.key.rule != REFUSES_PODS_RULE


_PLACEHOLDERS = frozenset(
    {
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "03020100-0504-0706-0809-0a0b0c0d0e0f",
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "4c4c4544-0000-2010-8020-80c04f202020",
        "not settable",
        "not present",
        "not specified",
        "default string",
        "to be filled by o.e.m.",
    }
)
"""What firmware tells for a system UUID that nobody has set, in both orders of bytes."""
_ONE_BYTE = re.compile(r"([0-9a-f]{2})(?:-?\1){15}", re.ASCII)
"""A UUID of one byte, such as only zeros, or only F."""


@lru_cache(20_000)
def proper_system_id(system_id: str | None) -> str | None:
    """Return a system UUID or provider id in small letters; None for a placeholder of the firmware."""
    known = (system_id or "").strip().lower()
    return None if not known or known in _PLACEHOLDERS or _ONE_BYTE.fullmatch(known) else known


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine behind a Node's name: after a change of any part, old lines may be another machine's."""

    node_uid: str
    system_id: str | None = None
    """The system UUID, or the provider id, as the Node has it; compare :attr:`system`."""
    boot_id: str | None = None

    @property
    def system(self) -> str | None:
        """Return what names this machine and no other one, in small letters; None if nothing does."""
        return proper_system_id(self.system_id)

    def same_machine(self, other: Machine) -> bool:
        """Whether both are certainly one machine, whatever its boot and the Node's UID."""
        return self.system is not None and self.system == other.system

    def same_boot(self, other: Machine) -> bool:
        """Whether both are certainly one machine in one boot, whatever the Node's UID."""
        return self.boot_id is not None and self.boot_id == other.boot_id and self.same_machine(other)

    def rebooted_since(self, before: Machine) -> bool:
        """Whether both are certainly one machine under one Node, and the boot is another one."""
        is_same = (self.node_uid, self.system) == (before.node_uid, before.system)
        return is_same and None not in (self.boot_id, before.boot_id) and self.boot_id != before.boot_id


@dataclass(frozen=True, slots=True)
class Act:
    """The controller's latest write: its id in log, Event and record, its time, and the rules in force."""

    id: str
    at: datetime
    rules: str = ""
    """Digest of the rules; empty for a person's write."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The record: what the controller knows of a node, in one annotation on the Node.

    ``read`` is the highest kernel position that was folded in, of the boot that it names. ``past_boots`` are
    earlier boots of the Node: their lines are history.
    """

    machine: Machine | None = None
    life: Life = NEVER_OUT
    incidents: tuple[Incident, ...] = ()
    releases: tuple[Release, ...] = ()
    read: KernelPosition = NOWHERE
    past_boots: tuple[str, ...] = ()
    booted_after_ns: int | None = None
    """See :attr:`NodeState.booted_after_ns`; of ``machine``'s boot, kept across our restarts."""
    gpus: int | None = None
    """The highest number of GPUs that this machine had."""
    gpu_layout: str = UNSHARED
    """The layout (:attr:`GpuCount.layout`) in which ``gpus`` were counted."""
    quiet_since: datetime | None = None
    """When the clock of quiet last started, after a gap of the kernel log that was given up."""
    validation: Validation | None = None
    """The validation that is wished or under way, or the last one."""
    act: Act | None = None
    unknown: tuple[tuple[str, str], ...] = ()
    """Fields of the annotation that this version does not know, each with its JSON; they are written back."""

    @property
    def empty(self) -> bool:
        """Whether the record has nothing worth keeping on the Node."""
        return not (self.life.tainted_at or self.incidents or self.releases or self.life.quarantines)

    def release_at(self, at: datetime) -> Release | None:
        """Return the release of that moment, such as the end of a past time out; None if it is forgotten."""
        return next((mark for mark in self.releases if mark.at == at), None)

    @property
    def last_by_person(self) -> Release | None:
        """The latest release of the whole node by a person."""
        return next((mark for mark in self.releases if mark.how.covers is Covers.READ), None)

    def incident(self, key: IncidentKey) -> Incident | None:
        """Return the incident of the key; None without one."""
        return next((incident for incident in self.incidents if incident.key == key), None)


@dataclass(frozen=True, slots=True)
class GpuCount:
    """The whole GPUs of a Node, as its status or its ResourceSlices tell them."""

    allocatable: int
    capacity: int
    kind: str = ""
    """The instance type; empty if no label names one. Nodes of one kind have equally many GPUs."""
    layout: str = UNSHARED
    """What the numbers are made of: after it changed, they cannot be compared with earlier ones."""
    comparable: bool = True
    """Whether the numbers are whole GPUs; MIG devices are parts of GPUs."""
    paused: bool = False
    """Whether fewer GPUs are no fault now: the GPU operator is about to replace the driver or the MIG layout,
    or the device plugin has not registered yet."""
    by_slices: bool = False
    """Whether ResourceSlices tell the numbers: pods get these GPUs by claims (DRA), not by the plugin."""


NO_GPUS = GpuCount(0, 0, layout="", paused=True)
"""What a Node has that tells of no GPU."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A Node's taint."""

    key: str
    value: str | None
    effect: str

    @property
    def ours(self) -> bool:
        """Whether it has our key and value, whatever its effect (Konduktor's own taint is the same one)."""
        return (self.key, self.value) == (TAINT_KEY, TAINT_VALUE)

    @property
    def exact(self) -> bool:
        """Whether it is our taint with the effect that we write."""
        return self.ours and self.effect == TAINT_EFFECT

    @property
    def suspects(self) -> bool:
        """Whether it is the taint that an earlier version gave to suspect nodes; it is taken off."""
        suspect = (SUSPECT_TAINT_KEY, TAINT_VALUE, SUSPECT_TAINT_EFFECT)
        return (self.key, self.value, self.effect) == suspect

    @property
    def foreign_twin(self) -> bool:
        """Whether it has our key with another value: somebody else's, reported and left alone."""
        return self.key == TAINT_KEY and not self.ours

    @property
    def text(self) -> str:
        """The taint as kubectl writes it: ``KEY=VALUE:EFFECT``."""
        return f"{self.key}={self.value or ''}:{self.effect}"


@dataclass(frozen=True, slots=True)
class AsRead:
    """The parts of the Node object that a write must find unchanged, exactly as the server sent them."""

    uid: str
    resource_version: str
    taints: tuple[Mapping[str, str], ...] | None
    """None if ``spec.taints`` is absent; the mappings are the server's own, unknown fields included."""
    record: str | None
    health: str | None
    has_annotations: bool
    has_labels: bool
    needs: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in a Node's status, as the API server has it."""

    type: str
    status: str
    """``True`` (faulty), ``False`` or ``Unknown``."""
    reason: str
    message: str
    since: str = ""
    """Its ``lastTransitionTime``, as RFC 3339 text; empty if unknown."""


class Writer(NamedTuple):
    """One entry of a Node's ``managedFields``, without the fields that it owns."""

    manager: str
    operation: str
    """``Update`` or ``Apply``."""
    written_ns: int
    """When the manager last wrote, in whole seconds, as nanoseconds since the Unix epoch; -1 if unknown."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of one Node, decoded once when the Node changes."""

    name: str
    machine: Machine
    created_ns: int
    is_gpu_node: bool
    ready: bool
    unschedulable: bool
    taints: tuple[Taint, ...]
    record: NodeRecord
    as_read: AsRead
    opted_out: bool = False
    selected: bool = True
    """Whether the node selector, if there is one, includes the node."""
    recovery_selected: bool = True
    """Whether the selector of the nodes that the controller validates and returns unasked includes it."""
    pool: str | None = None
    """The node pool, from the label that the settings name."""
    domain: str | None = None
    """The multi-node NVLink domain, from the label that the settings name."""
    record_problem: str | None = None
    """Why our annotation cannot be read, if somebody damaged it."""
    last_writer: str | None = None
    """Who last updated the Node's spec or metadata, from ``managedFields``; None if the controller did."""
    writers: tuple[Writer, ...] = field(default=(), compare=False)
    """The Node's ``managedFields`` in short; the store keeps them of Nodes with our taint only."""
    removed_by: str | None = None
    """The field manager whose entry changed in the step in which our taint went; None if no entry changed
    then, if nobody saw that step, and while a taint with our key is on the Node."""
    reported_ns: int | None = field(default=None, compare=False)
    """When its kubelet last reported, by the node's own clock, in nanoseconds since the Unix epoch."""
    booted_after_ns: int | None = None
    """Loki timestamp after which the present boot began; known if we saw the boot before it end."""
    conditions: tuple[Condition, ...] = field(default=(), compare=False)
    """The Node's conditions that a controller of ours wrote. No decision depends on them."""
    gpus: GpuCount = NO_GPUS
    hardware: Hardware = UNLABELLED
    ready_since_ns: int | None = None
    """When it last became Ready or not Ready, in nanoseconds since the Unix epoch; None if unknown."""
    reported: tuple[ReportedCondition, ...] = ()
    """Conditions of other programs, of the types that the catalogue has a rule for; one for each type."""
    planned: tuple[PlannedWork, ...] = ()
    """Work on the machine that its provider announces."""
    seen_gpus: tuple[SeenGpu, ...] = field(default=(), compare=False)
    """The GPUs that its ResourceSlices name. No decision depends on them."""
    record_kept: bool = False
    """Whether the annotation does not contain the whole record, which the Lease keeps in short."""

    @property
    def tainted(self) -> bool:
        """Whether the node carries our taint."""
        return bool(self.taints) and any(
            taint.ours for taint in self.taints
        )  # every reconcile asks it of every node

    @property
    def wrong_effect(self) -> Taint | None:
        """Our taint with another effect than ours, if it is there without ours; else None."""
        own = [taint for taint in self.taints if taint.ours] if self.taints else []
        return None if any(taint.exact for taint in own) else next(iter(own), None)

    @property
    def has_key(self) -> bool:
        """Whether the node has a taint with our key, whatever its value and effect."""
        return bool(self.taints) and any(taint.key == TAINT_KEY for taint in self.taints)

    @property
    def faulty(self) -> bool:
        """Whether the node is faulty: it has our taint, or the claim stays although the taint is off."""
        return self.tainted or (self.record.life.claimed and not self.opted_out)

    @property
    def labelled(self) -> bool:
        """Whether the node carries a label of ours."""
        return self.as_read.health is not None or self.as_read.needs is not None

    @property
    def lost_record(self) -> bool:
        """Whether the record claims the taint, and the Node does not have the record any more."""
        return self.as_read.record is None and self.record.life.claimed and not self.record_kept

    @property
    def kept_out_by(self) -> Taint | None:
        """The taint with our key and another value that stands in place of ours; None without one."""
        if self.tainted or not self.record.life.claimed:
            return None
        return next((taint for taint in self.taints if taint.foreign_twin), None)

    @property
    def stage(self) -> Stage:
        """The stage of the node's life, as the record and the taint have it."""
        return self.record.life.stage(tainted=self.tainted)

    @property
    def suspect_tainted(self) -> bool:
        """Whether the node carries the suspect taint of an earlier version; it still counts as in service."""
        return bool(self.taints) and any(taint.suspects for taint in self.taints)

    @property
    def blocked(self) -> bool:
        """Whether somebody else's taint has our key and effect: a Node can have only one of these."""
        return any(taint.foreign_twin and taint.effect == TAINT_EFFECT for taint in self.taints)
