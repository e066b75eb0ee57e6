"""A node's life: when and why it is out of service, how it returned, and what follows from both.

The record on the Node holds it. ``policy.lifecycle`` has the table of what becomes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from konductor_like.model.faults import NOWHERE, KernelPosition, Source

HOW_REBOOT = "reboot"
"""The ``how`` of a release by the controller: a reboot met all needs of the node."""
HOW_TIME = "time"
"""The ``how`` of a release by the controller: a test (Xid 14) ended."""
HOW_PART = "reset of "
"""The beginning of the ``how`` of a release in part; the names of the released incidents follow."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release: who returned the node to service, when and why, and what evidence is covered (rule 4)."""

    at: datetime
    by: str
    reason: str
    how: str
    """``reset`` (our command), ``reset of NAMES`` (in part), ``taint removed`` (by hand), ``reboot``
    or ``time`` (the controller)."""
    read: KernelPosition = NOWHERE
    """Kernel evidence of this position's boot is covered up to the position, whatever its key."""
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Per source, the Loki timestamp before which evidence without a kernel position is covered."""
    warning: str | None = None
    """What the advice still asks for (a reboot) although the node was released."""
    unknown: tuple[tuple[str, str], ...] = ()
    """See :attr:`NodeRecord.unknown`."""

    @property
    def by_controller(self) -> bool:
        """Whether the controller itself took the taint off. Such a release covers no unread evidence."""
        return self.how in (HOW_REBOOT, HOW_TIME)

    @property
    def in_part(self) -> bool:
        """Whether a person released some incidents only. Such a release covers no other evidence."""
        return self.how.startswith(HOW_PART)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """One past time out of service: the node was tainted by the controller for a failure, and returned.

    The time for which a failing node may not return by itself is the hold, :attr:`Life.hold_until`.
    """

    tainted_at: datetime
    released_at: datetime
    rule: str
    """The rule of the gravest incident of that time."""
    how: str = ""
    """How it ended (:attr:`Release.how`); empty if an older version wrote it."""
    relapse: bool = False
    """Whether the node failed again while it was on probation after this time out."""


@dataclass(frozen=True, slots=True)
class Life:
    """What a node is to the controller: our claim on it, probation, contest, marks, hold, and its past.

    These parts are independent: a node may be tainted for a test while it is on probation, and a contest
    begins with a release.
    """

    tainted_at: datetime | None = None
    """The claim: set exactly while the record claims the node's taint as the controller's, so a claim without
    a taint shows that somebody removed the taint."""
    failed_rule: str | None = None
    """The rule of this time out's gravest failure, if one was released in part and the taint stays."""
    hold_until: datetime | None = None
    """The hold of a tainted node: before this time only a person releases it."""
    replace_since: datetime | None = None
    """When the node was marked for replacement because it failed too often; only a person releases it."""
    contested_at: datetime | None = None
    """When somebody last removed our taint in a contest (rule 23)."""
    probation_until: datetime | None = None
    """When the probation ends of a node that returned by itself; None for no probation."""
    quarantines: tuple[Quarantine, ...] = ()
    """Past times out of service, the latest first; they show which nodes keep failing."""


NEVER_OUT = Life()
"""The life of a node that was never out of service."""
