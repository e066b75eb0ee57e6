"""The state of the brake: how many nodes are tainted, how many may be, and which nodes it holds and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from konductor_like.model.controls import ControlAct
from konductor_like.model.faults import Severity
from konductor_like.model.nodes import Incident


class SkipReason(StrEnum):
    """Why a node is not tainted although an incident or a line is a reason for a taint."""

    BRAKE = "brake"
    """The limit of tainted nodes, of the fleet or of a pool."""
    RATE = "rate"
    """The limit of taints per time."""
    COOLDOWN = "cool-down"
    """Nodes were released or deleted a moment ago, and the brake keeps their places empty."""
    PAUSED = "paused"
    OPTED_OUT = "opted out"
    NOT_SELECTED = "not selected"
    """The node selector does not include the node."""
    BLOCKED = "blocked"
    """Somebody else's taint has our key and effect."""
    AMBIGUOUS = "ambiguous"
    """Two machines report under the node's name."""
    DEFERRED = "deferred"
    """The rule defers the taint for a few seconds, until the root cause can be told from collateral."""
    COLLATERAL = "collateral"
    """The incident followed from a root cause on another node."""
    PENDING = "pending"
    """The line names another boot than the Node's."""
    NO_GPU = "no GPU"
    """Neither the Node nor a line of its kernel log shows a GPU."""
    USER_WRITTEN = "user written"
    """A user wrote the line into the kernel log, and the settings exclude such lines."""
    COVERED = "covered"
    """A release covers the line, but only a clock shows that it is old, or a later line overtook it."""
    SHADOW = "shadow"
    """The rule is on trial."""


@dataclass(frozen=True, slots=True)
class Held:
    """An incident whose taint the brake holds back."""

    node: str
    incident: Incident
    why: SkipReason | None = SkipReason.BRAKE
    """None: the brake holds it no longer, and the next reconcile taints the node."""
    pool: str | None = None
    """The node's pool."""

    @property
    def is_test(self) -> bool:
        """Whether it is held for a test (Xid 14), and no fault waits."""
        return self.incident.severity is Severity.TEST


@dataclass(frozen=True, slots=True)
class PoolBrake:
    """The limit of one node pool, if the settings limit pools."""

    pool: str
    gpu_nodes: int
    out: int
    bound: int
    tests: int = 0
    """See :attr:`BrakeState.tests`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The recent taints and their limit, if the settings limit the rate."""

    taints: int
    most: int
    window_seconds: float
    frees_at: datetime | None
    """When the oldest recent taint counts no longer; None without one."""
    tests: int = 0
    """Number of ``taints`` for a test (Xid 14) alone. They keep no fault waiting, only further tests."""


@dataclass(frozen=True, slots=True)
class BrakeState:
    """The brake at one moment (rule 19)."""

    gpu_nodes: int
    out: int
    """Nodes that carry our taint, or may carry it because a write had no answer."""
    bound: int
    """Number of nodes that the controller may have tainted at a time."""
    held: tuple[Held, ...] = ()
    unavailable: int = 0
    """Number of nodes unavailable for other reasons, if the settings count these."""
    pools: tuple[PoolBrake, ...] = ()
    pace: Pace | None = None
    cooling: int = 0
    """Nodes in the cool-down: they were released or deleted a moment ago, and their places stay empty."""
    deleted: int = 0
    """Number of the nodes in ``cooling`` that were deleted while they carried our taint."""
    rearms_at: datetime | None = None
    """When the cool-down ends, unless further nodes are released or deleted."""
    pause: ControlAct | None = None
    """The pause in effect now."""
    tests: int = 0
    """Number of the nodes in ``out`` that are there for a test (Xid 14) alone. They take no place from a
    fault, only from further tests."""

    @property
    def holding(self) -> bool:
        """Whether the brake holds any node now."""
        return bool(self.held)
