"""The values that every part of konductor-like speaks in.

Frozen data and nothing else: no I/O, no clock, no logging. Loki timestamps are integer nanoseconds since the
Unix epoch and end in ``_ns``; kernel stamps are integer microseconds since boot and end in ``_us``; datetimes
are aware and UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

TAINT_KEY = "trainy.konduktor.ai/faulty"
TAINT_VALUE = "true"
TAINT_EFFECT = "NoSchedule"
HEALTH_LABEL = "trainy.konduktor.ai/health"
RECORD_ANNOTATION = "trainy.konduktor.ai/record"
OPT_OUT_LABEL = "trainy.konduktor.ai/ignore"

EVIDENCE_CHARS = 512
"""A fault keeps at most this much of its line; a Node's record keeps less."""


class Source(StrEnum):
    """Where a line comes from. Only the stream decides this, never the text."""

    KERNEL = "kernel"
    POD = "pod"


class Severity(StrEnum):
    """What a fault means for the node (design rule 16)."""

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

    @property
    def taints(self) -> bool:
        """Whether one such fault is reason enough to taint its node."""
        return self in (Severity.FATAL, Severity.TEST)


class FaultKind(StrEnum):
    """The family of a fault."""

    XID = "xid"
    SXID = "sxid"
    NVRM = "nvrm"
    """The NVIDIA kernel driver, with no Xid in the line: GPU lost, failed initialisation."""
    PEERMEM = "peermem"
    CUDA = "cuda"
    NCCL = "nccl"

    @property
    def proves_gpu(self) -> bool:
        """Whether such a line in a node's own kernel log proves that it has a GPU (design rule 20)."""
        return self in (FaultKind.XID, FaultKind.SXID, FaultKind.NVRM)


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


@dataclass(frozen=True, slots=True)
class Finding:
    """What the text of one line says, before anybody asked where the line comes from.

    ``rule`` names the catalogue entry (``xid.79``, ``sxid.12028``, ``nvrm.fallen_off_bus``). ``gpu`` is the
    PCI bus id ``dddd:bb:dd`` in lower case; of an SXid it is the switch's. ``text`` is the line without its
    prefixes (stamps, syslog header, CRI fields), which is what de-duplication compares and people read.
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
    position: KernelPosition = KernelPosition()
    user_written: bool = False
    """The kmsg record was written from user space (``echo … > /dev/kmsg``), not by the driver."""


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
    """Older than the span that the first start acts on (design rule 5): recorded, never acted upon."""

    @property
    def key(self) -> IncidentKey:
        """Faults with one key on one node are one incident (per boot, and per whether they taint)."""
        return IncidentKey(self.finding.rule, self.finding.gpu)

    @property
    def severity(self) -> Severity:
        """The finding's severity, capped: a pod accuses nobody by itself (design rule 17), and what predates
        the first start is only remembered (rule 5)."""
        severity = self.finding.severity
        if severity.taints and (self.source is Source.POD or self.before_install):
            return Severity.SUSPECT
        return severity


@dataclass(frozen=True, slots=True, order=True)
class IncidentKey:
    """What makes two faults of one node the same incident: the rule and the GPU."""

    rule: str
    gpu: str | None


class IncidentState(StrEnum):
    """Where an incident stands."""

    ACTIVE = "active"
    """It holds: the taint stands for it, or (not tainting) it is simply recorded."""
    HELD = "held"
    """It would taint; the brake holds it back."""
    PENDING = "pending"
    """It names another boot than the Node's; judged again when the Node's boot changes."""
    RELEASED = "released"
    """Covered by a release: evidence up to ``last`` never taints again."""


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
    """The latest kernel position that was judged; a replay at or before it counts for nothing."""
    code: int | None = None
    evidence: str = ""
    title: str = ""
    advice: str = ""
    source: Source = Source.KERNEL
    before_install: bool = False
    released_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Who let the node go, when, why, and up to where evidence is covered (design rule 4)."""

    at: datetime
    by: str
    reason: str
    how: str
    """``reset`` (our command) or ``taint removed`` (by hand)."""
    read: KernelPosition = KernelPosition()
    """Kernel evidence of the boot in it is covered up to here, whatever its key."""
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Evidence without a kernel position is covered before this Loki timestamp, per source."""
    warning: str | None = None
    """What the advice still asks for (a GPU reset, a reboot) although the node was let go."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What stands behind a Node's name: a change of any part means that old lines may not be its own."""

    node_uid: str
    system_id: str | None = None
    boot_id: str | None = None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """Our memory of a node, kept on the node itself in one annotation.

    ``tainted_at`` is set exactly while the record claims the taint as ours. ``read`` is the high-water mark
    of the kernel positions judged in the boot it names. ``past_boots`` were once seen as the Node's own and
    then replaced: a line from one of them is history.
    """

    machine: Machine | None = None
    tainted_at: datetime | None = None
    incidents: tuple[Incident, ...] = ()
    releases: tuple[Release, ...] = ()
    read: KernelPosition = KernelPosition()
    past_boots: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Nothing worth keeping on the node."""
        return not (self.tainted_at or self.incidents or self.releases)

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
    record_problem: str | None = None
    """Why our annotation could not be read, if a person mangled it."""
    last_writer: str | None = None
    """Who last updated the Node's spec or metadata, from ``managedFields``, when it was not us."""

    @property
    def tainted(self) -> bool:
        """Whether the node carries our taint."""
        return any(taint.ours for taint in self.taints)

    @property
    def blocked(self) -> bool:
        """Whether another's taint stands where ours would go: there is one place per key and effect."""
        return any(taint.foreign_twin and taint.effect == TAINT_EFFECT for taint in self.taints)


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


@dataclass(frozen=True, slots=True)
class Change:
    """One Node write, complete: what to set, what to say, and why."""

    node: str
    verb: Verb
    record: NodeRecord | None
    """The record to write; None removes the annotation and the label."""
    health: str | None
    """The value of the health label; None removes it."""
    event: EventReason | None = None
    message: str = ""
    incident: Incident | None = None
    """The incident that a taint stands for."""
    evidence: Fault | None = None
    """The line that led to it just now; None for a taint that the brake had held."""
    news: tuple[Fault, ...] = ()
    """All that opened or reopened an incident on the node, ``evidence`` among them."""


@dataclass(frozen=True, slots=True)
class Held:
    """An incident that would taint but for the brake."""

    node: str
    incident: Incident


@dataclass(frozen=True, slots=True)
class Ignored:
    """A fault that led to nothing, and why: nothing is dropped in silence."""

    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True)
class BrakeState:
    """The brake at one moment (design rule 19)."""

    gpu_nodes: int
    out: int
    """Nodes that carry our taint, writes in flight included."""
    bound: int
    """How many may be out by us."""
    held: tuple[Held, ...] = ()

    @property
    def holding(self) -> bool:
        """Whether it holds anything back right now."""
        return bool(self.held)


TallyKey = tuple[IncidentKey, bool, str | None]
"""Which incident a tally belongs to: its key, whether it taints, and the boot."""


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Evidence counted in memory but not yet on the node: writes are rare (design rule 22)."""

    count: int
    latest: Fault
    since: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision may look at."""

    nodes: Mapping[str, NodeState]
    in_flight: frozenset[str] = frozenset()
    """Nodes whose taint may have been written although no answer came."""
    unwritable: frozenset[str] = frozenset()
    """Nodes that could not be tainted just now: they must not keep others from the brake's room."""
    unsettled: Mapping[str, Mapping[TallyKey, Unsettled]] = field(default_factory=dict)
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Up to where each source had been judged before the faults at hand, for releases seen now."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: the one value that log, metrics, Events, dry run and the writes are rendered from."""

    changes: tuple[Change, ...]
    brake: BrakeState
    counted: tuple[Fault, ...] = ()
    """The new occurrences, as opposed to what was seen before or says nothing about its node."""
    ignored: tuple[Ignored, ...] = ()
    waiting: tuple[Fault, ...] = ()
    """Faults of Nodes that the cluster does not know (yet)."""
    unsettled: Mapping[str, Mapping[TallyKey, Unsettled]] = field(default_factory=dict)
    """What to carry to the next decision once the changes are applied."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far every source was read *and acted upon*; the Lease carries it (design rule 9).

    ``act_from_ns`` was fixed at the very first start: older lines are recorded, never acted upon.
    """

    read_ns: Mapping[Source, int]
    act_from_ns: int


class CoverageState(StrEnum):
    """Whether silence of a node means anything."""

    MEASURED = "measured"
    UNKNOWN = "unknown"
    """Its heartbeat was seen and has stopped."""
    NOT_MEASURED = "not measured"
    """No heartbeat of it was ever seen."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which nodes' kernel logs arrive, as the controller last saw it.

    Fleets are nearly all measured or nearly all not, so only the exceptions are listed:
    ``listed_are_measured`` says what the nodes in ``listed`` are; all others but the ``unknown`` are the
    opposite.
    """

    at: datetime
    unknown: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    listed_are_measured: bool = True

    def of(self, node: str) -> CoverageState:
        """The coverage of one node."""
        if node in self.unknown:
            return CoverageState.UNKNOWN
        measured = (node in self.listed) == self.listed_are_measured
        return CoverageState.MEASURED if measured else CoverageState.NOT_MEASURED
