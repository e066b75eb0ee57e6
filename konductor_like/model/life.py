"""A node's life: when and why it is out of service, how it returned, and what follows from both.

The record on the Node holds it. ``policy.node.lifecycle`` has the table of what becomes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum, auto

from konductor_like.model.faults import NOWHERE, KernelPosition, Source


class Covers(Enum):
    """What evidence a release covers (rule 4)."""

    READ = auto()
    """All that had been read. Such a release is of the whole node."""
    MET = auto()
    """The incidents whose needs are met, and no line that is read later: nobody looked at the machine."""
    TESTED = auto()
    """What had been read when a validation began."""


class ReleaseHow(StrEnum):
    """How a node was released. The value is the text in the record.

    The text of a newer version reads as UNKNOWN: a person's release of the whole node, and never an automatic
    return. That is safe, because the release itself says up to where it covers evidence
    (:attr:`Release.read`), and one by a controller covers none.
    """

    RESET = "reset"
    """``konductor-like reset``."""
    PART = "reset of faults"
    """A person released some faults with an earlier build; the mark itself covers nothing."""
    BY_HAND = "taint removed"
    """A person removed our taint by other means."""
    REBOOT = "reboot"
    """The controller: a reboot met all needs of the node."""
    TEST_ENDED = "time"
    """The controller: a test (Xid 14) ended."""
    VALIDATED = "validated"
    """The controller: the node's GPUs passed a validation after all needs were met."""
    PURGED = "purged"
    """``konductor-like reset --purge``: only the audit trail has it, because no record is left."""
    DELETED = "deleted"
    """Somebody deleted the Node: only the audit trail has it."""
    UNKNOWN = ""
    """An older version wrote none."""

    @classmethod
    def _missing_(cls, value: object) -> ReleaseHow:
        """An earlier build wrote the names of the faults: ``reset of xid 79 on GPU 0000:4e:00``."""
        return cls.PART if str(value).startswith("reset of ") else cls.UNKNOWN

    @property
    def by_controller(self) -> bool:
        """Whether the controller itself took the taint off; else a person did, or another tool."""
        return self in (ReleaseHow.REBOOT, ReleaseHow.TEST_ENDED, ReleaseHow.VALIDATED)

    @property
    def on_probation(self) -> bool:
        """Whether a probation begins with the release."""
        return self in (ReleaseHow.REBOOT, ReleaseHow.VALIDATED)

    @property
    def is_reset(self) -> bool:
        """Whether a person used our command."""
        return not self.by_controller and self is not ReleaseHow.BY_HAND

    @property
    def covers(self) -> Covers:
        """What the release covers."""
        if self is ReleaseHow.VALIDATED:
            return Covers.TESTED
        return Covers.MET if self.by_controller or self is ReleaseHow.PART else Covers.READ


@dataclass(frozen=True, slots=True)
class Release:
    """A release: who returned the node to service, when and why, and what evidence is covered (rule 4)."""

    at: datetime
    by: str
    reason: str
    how: ReleaseHow = ReleaseHow.UNKNOWN
    read: KernelPosition = NOWHERE
    """Kernel evidence of this position's boot is covered up to the position, whatever its key."""
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Per source, the Loki timestamp before which evidence without a kernel position is covered."""
    warning: str | None = None
    """What the release left undone, in sentences; None if nothing."""
    needs: str = ""
    """What the node still needed then: values of ``Needs``, the gravest first, with blanks between them."""
    boot_id: str | None = None
    """The boot of the node with these needs; None without a need."""
    unknown: tuple[tuple[str, str], ...] = ()
    """See :attr:`NodeRecord.unknown`."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a Node's labels say of its hardware; an empty text if no label says it."""

    model: str = ""
    """The GPUs' product, such as ``NVIDIA-H100-80GB-HBM3``."""
    driver: str = ""
    """The version of NVIDIA's driver, such as ``570.172.08``."""
    rack: str = ""
    """The rack, by the label that the settings name."""


UNLABELLED = Hardware()


@dataclass(frozen=True, slots=True)
class Quarantine:
    """One past time out of service: the node was tainted by the controller for a failure, and returned.

    The time for which a failing node may not return by itself is the hold, :attr:`Life.hold_until`.
    """

    tainted_at: datetime
    released_at: datetime
    rule: str
    """The rule of the gravest incident of that time."""
    how: ReleaseHow = ReleaseHow.UNKNOWN
    """How it ended."""
    relapse: bool = False
    """Whether the node failed again while it was on probation after this time out."""
    gpu: str | None = None
    """The PCI bus id of that incident's GPU; None if it has none, or if an earlier build wrote the record."""
    model: str = ""
    driver: str = ""
    """:class:`Hardware` as it was labelled when the time out began."""
    in_service_at: datetime | None = None
    """When the node was in service again, if somebody had removed its taint before the release."""

    @property
    def returned_at(self) -> datetime:
        """When the node was in service again."""
        return self.in_service_at or self.released_at


class Stage(StrEnum):
    """Where a node is in its life. It follows from the life and from our taint, also if these disagree."""

    IN_SERVICE = "in service"
    PROBATION = "on probation"
    """The controller returned the node a short time ago (rule 37)."""
    OUT = "out of service"
    """The node has our taint, and the record claims it."""
    UNCLAIMED = "tainted by somebody"
    """The node has our taint without a claim: a person's, another tool's, or older than a damaged record."""
    REMOVED = "taint removed"
    """The record claims a taint that the node has no more: somebody removed it. The node is still faulty."""


@dataclass(frozen=True, slots=True)
class Life:
    """What a node is to the controller: our claim on it, probation, contest, marks, hold, and its past.

    These parts are independent: a node may be tainted for a test while it is on probation.
    """

    tainted_at: datetime | None = None
    """The claim: since when the node has our taint. One patch writes the taint and the claim."""
    model: str = ""
    driver: str = ""
    """:class:`Hardware` as it was labelled when the claim was made."""
    hold_until: datetime | None = None
    """The hold of a tainted node: before this time only a person releases it."""
    replace_since: datetime | None = None
    """When the node was marked for replacement because it failed too often; only a person releases it."""
    removed_at: datetime | None = None
    """Since when our taint is off although the claim stays; None while the taint is on the node (rule 23)."""
    removed_by: str = ""
    """The field manager that last removed our taint during this claim; empty if nobody knows."""
    first_removed_at: datetime | None = None
    """When our taint was first removed during this claim; the brake counts the node as returned then."""
    put_backs: int = 0
    """How often the taint was put back for the present fault, by the controller or by somebody else."""
    put_back_at: datetime | None = None
    """When it last did."""
    contested_at: datetime | None = None
    """Since when the taint stays off in a contest, although the claim stays (rule 23)."""
    probation_until: datetime | None = None
    """When the probation ends of a node that returned by itself; None for no probation."""
    quarantines: tuple[Quarantine, ...] = ()
    """Past times out of service, the latest first; they show which nodes keep failing."""

    @property
    def claimed(self) -> bool:
        """Whether the record claims the taint as the controller's."""
        return self.tainted_at is not None

    @property
    def marked(self) -> bool:
        """Whether the node is marked for replacement."""
        return self.replace_since is not None

    @property
    def on_probation(self) -> bool:
        """Whether a probation has not ended; the node may be tainted for a test meanwhile."""
        return self.probation_until is not None

    def stage(self, *, tainted: bool) -> Stage:
        """Return the stage; ``tainted``: whether the node has our taint."""
        if tainted:
            return Stage.OUT if self.claimed else Stage.UNCLAIMED
        if self.claimed:
            return Stage.REMOVED
        return Stage.PROBATION if self.on_probation else Stage.IN_SERVICE


NEVER_OUT = Life()
"""The life of a node that was never out of service."""
