"""What is known of nodes: incidents, releases, the record on the node, and the Node itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from konductor_like.model.faults import NOWHERE, FaultKind, IncidentKey, KernelPosition, Severity, Source

TAINT_KEY = "trainy.konduktor.ai/faulty"
TAINT_VALUE = "true"
TAINT_EFFECT = "NoSchedule"
SUSPECT_TAINT_KEY = "trainy.konduktor.ai/suspect"
SUSPECT_TAINT_EFFECT = "PreferNoSchedule"
"""The softer taint of suspects, of the same value; only where the settings ask for it."""
HEALTH_LABEL = "trainy.konduktor.ai/health"
RECORD_ANNOTATION = "trainy.konduktor.ai/record"
OPT_OUT_LABEL = "trainy.konduktor.ai/ignore"
OPERATOR_RULE = "operator"
"""The rule of the incident that a person's taint stands for; no line of a log is of it."""


class IncidentState(StrEnum):
    """Where an incident stands."""

    ACTIVE = "active"
    """It holds: the taint stands for it, or (not tainting) it is simply recorded."""
    HELD = "held"
    """It would taint; the brake holds it back."""
    PENDING = "pending"
    """It names another boot than the Node's; decided again when the Node's boot changes."""
    RELEASED = "released"
    """Covered by a release: evidence up to ``last`` never taints again."""


class Role(StrEnum):
    """What an incident is in a failure group."""

    ROOT_CAUSE = "root-cause"
    """The hardware that failed first; all else followed from it."""
    COLLATERAL = "collateral"
    """It was in the wake of a root cause elsewhere and accuses nobody."""
    UNCLEAR = "unclear"
    """Part of the failure group; no root cause is in sight."""


@dataclass(frozen=True, slots=True)
class Ack:
    """A person has seen an incident and deals with it."""

    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Incident:
    """All evidence of one key on one node, folded together."""

    key: IncidentKey
    kind: FaultKind
    severity: Severity
    state: IncidentState
    count: int
    first_ns: int
    last_ns: int
    last: KernelPosition
    """The latest kernel position that was folded in; a replay at or before it counts for nothing."""
    code: int | None = None
    evidence: str = ""
    title: str = ""
    advice: str = ""
    source: Source = Source.KERNEL
    before_install: bool = False
    released_ns: int | None = None
    user_written: bool = False
    """Nothing stands for it but kernel-log records that were written from user space."""
    job: str | None = None
    """The job that it came from or disturbed, ``namespace/Kind/name``, as far as that is known."""
    failure_group: str | None = None
    """The name of the failure group that it is part of; the same on all its nodes."""
    role: Role | None = None
    """What it is in that group."""
    root_cause: str | None = None
    """For what is collateral: the node that the failure began on, or one of them."""
    needs: str = ""
    """What the machine needs before it can be called gone (the catalogue's ``Needs``); empty if unknown."""
    escalated_because: str = ""
    """Why it taints although its severity alone does not: a threshold, or what it came together with."""
    ack: Ack | None = None
    ended_ns: int | None = None
    """When the driver said that this has ended (Xid 154 "to None"); it stands until a release even so."""
    unknown: tuple[tuple[str, str], ...] = ()
    """See :attr:`NodeRecord.unknown`."""

    @property
    def taints(self) -> bool:
        """Whether it is reason enough to taint the node."""
        return self.severity.taints or bool(self.escalated_because)

    @property
    def urgency(self) -> tuple[bool, int]:
        """Sorts what taints: fatal before a test, then the oldest first."""
        return (self.severity is not Severity.FATAL, self.first_ns)

    @property
    def by_person(self) -> bool:
        """Whether a person tainted the node for a reason of their own; no line says so."""
        return self.key.rule == OPERATOR_RULE


@dataclass(frozen=True, slots=True)
class Release:
    """Who let the node go, when, why, and up to where evidence is covered (rule 4)."""

    at: datetime
    by: str
    reason: str
    how: str
    """``reset`` (our command) or ``taint removed`` (by hand)."""
    read: KernelPosition = NOWHERE
    """Kernel evidence of the boot in it is covered up to here, whatever its key."""
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Evidence without a kernel position is covered before this Loki timestamp, per source."""
    warning: str | None = None
    """What the advice still asks for (a reboot) although the node was let go."""
    unknown: tuple[tuple[str, str], ...] = ()
    """See :attr:`NodeRecord.unknown`."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What stands behind a Node's name: a change of any part means that old lines may not be its own."""

    node_uid: str
    system_id: str | None = None
    boot_id: str | None = None

    def same_boot(self, other: Machine) -> bool:
        """Whether both are known to be one machine in one boot, whatever the Node's UID."""
        known = None not in (self.system_id, self.boot_id)
        return known and (self.system_id, self.boot_id) == (other.system_id, other.boot_id)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """One time that the node was out of service by us and came back."""

    tainted_at: datetime
    released_at: datetime
    rule: str
    """The rule of the gravest incident it was out for."""


@dataclass(frozen=True, slots=True)
class Act:
    """The latest write of ours: its name in log, Event and record, when it was, and under which rules."""

    id: str
    at: datetime
    rules: str = ""
    """Digest of the rules in force; empty for a person's write."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """Our memory of a node, kept on the node itself in one annotation.

    ``tainted_at`` is set exactly while the record claims the taint as ours. ``read`` is the high-water mark
    of the kernel positions folded in, in the boot it names. ``past_boots`` were once the Node's own and then
    replaced: a line from one of them is history.
    """

    machine: Machine | None = None
    tainted_at: datetime | None = None
    incidents: tuple[Incident, ...] = ()
    releases: tuple[Release, ...] = ()
    read: KernelPosition = NOWHERE
    past_boots: tuple[str, ...] = ()
    booted_after_ns: int | None = None
    """See :attr:`NodeState.booted_after_ns`; of ``machine``'s boot, so that a restart of ours keeps it."""
    quarantines: tuple[Quarantine, ...] = ()
    """Earlier times out of service, the latest first; how repeat offenders are known."""
    hold_until: datetime | None = None
    """While it is tainted: nothing but a person brings it back before this."""
    replace_since: datetime | None = None
    """It failed too often: marked for replacement, and nothing but a person brings it back."""
    contested_at: datetime | None = None
    """When somebody last fought over our taint (rule 23)."""
    act: Act | None = None
    unknown: tuple[tuple[str, str], ...] = ()
    """Fields on the node that this version does not know, each with its JSON: they are written back."""

    @property
    def empty(self) -> bool:
        """Nothing worth keeping on the node."""
        return not (self.tainted_at or self.incidents or self.releases or self.quarantines)

    def incident(self, key: IncidentKey) -> Incident | None:
        """The incident of that key, if there is one."""
        return next((incident for incident in self.incidents if incident.key == key), None)


@dataclass(frozen=True, slots=True)
class Taint:
    """A Node's taint."""

    key: str
    value: str | None
    effect: str

    @property
    def ours(self) -> bool:
        """Exactly our key, value and effect (Konduktor's own taint is the same one)."""
        return (self.key, self.value, self.effect) == (TAINT_KEY, TAINT_VALUE, TAINT_EFFECT)

    @property
    def suspects(self) -> bool:
        """Exactly our softer taint."""
        softer = (SUSPECT_TAINT_KEY, TAINT_VALUE, SUSPECT_TAINT_EFFECT)
        return (self.key, self.value, self.effect) == softer

    @property
    def foreign_twin(self) -> bool:
        """Our key under another value or effect: somebody else's, reported and left alone."""
        return self.key == TAINT_KEY and not self.ours


@dataclass(frozen=True, slots=True)
class AsRead:
    """The parts of the Node object that a write must find unchanged, exactly as the server sent them."""

    uid: str
    resource_version: str
    taints: tuple[Mapping[str, str], ...] | None
    """None where ``spec.taints`` is absent; the mappings are the server's own, unknown fields included."""
    record: str | None
    health: str | None
    has_annotations: bool
    has_labels: bool


@dataclass(frozen=True, slots=True)
class NodeState:
    """What we know of one Node, decoded once when it changes."""

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
    """Whether the include selector, if there is one, takes it in."""
    pool: str | None = None
    """Its node pool, by the label that the settings name."""
    domain: str | None = None
    """Its multi-node NVLink domain, by the label that the settings name."""
    record_problem: str | None = None
    """Why our annotation could not be read, if a person mangled it."""
    last_writer: str | None = None
    """Who last updated the Node's spec or metadata, from ``managedFields``, when it was not us."""
    reported_ns: int | None = field(default=None, compare=False)
    """When its kubelet last reported, by the node's own clock, in nanoseconds since the Unix epoch."""
    booted_after_ns: int | None = None
    """Its present boot began later than this; known where we watched the boot before it end."""

    @property
    def tainted(self) -> bool:
        """Whether the node carries our taint."""
        return bool(self.taints) and any(
            taint.ours for taint in self.taints
        )  # every reconcile asks it of every node

    @property
    def suspect_tainted(self) -> bool:
        """Whether it carries our softer taint, which takes it out of nothing."""
        return bool(self.taints) and any(taint.suspects for taint in self.taints)

    @property
    def blocked(self) -> bool:
        """Whether another's taint stands where ours would go: there is one place per key and effect."""
        return any(taint.foreign_twin and taint.effect == TAINT_EFFECT for taint in self.taints)
