"""The brake as it stands: how many nodes are out, how many may be, and what is held back and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from konductor_like.model.controls import ControlAct
from konductor_like.model.nodes import Incident


class SkipReason(StrEnum):
    """Why a node is not tainted although something stands against it."""

    BRAKE = "brake"
    """The bound on nodes out of service, fleet or pool."""
    RATE = "rate"
    """Too many taints in too short a time."""
    COOLDOWN = "cool-down"
    """The brake has tripped and is not armed again yet."""
    PAUSED = "paused"
    OPTED_OUT = "opted out"
    NOT_SELECTED = "not selected"
    """The include selector leaves the node out."""
    BLOCKED = "blocked"
    """Another's taint stands where ours would go."""
    AMBIGUOUS = "ambiguous"
    """Two machines report under its name."""
    DEFERRED = "deferred"
    """Its rule defers the taint by a few seconds, to tell the root cause from collateral."""
    COLLATERAL = "collateral"
    """It fails in the wake of a root cause elsewhere."""
    PENDING = "pending"
    """Its line names another boot than the Node's."""
    NO_GPU = "no GPU"
    """Nothing shows that the node has one."""
    USER_WRITTEN = "user written"
    """A user wrote the line into the kernel log, and the settings say that such lines do not count."""
    SHADOW = "shadow"
    """Its rule is on trial."""


@dataclass(frozen=True, slots=True)
class Held:
    """An incident that would taint but for the brake."""

    node: str
    incident: Incident
    why: SkipReason | None = SkipReason.BRAKE
    """None: nothing is in its way any more, and the next reconcile taints it."""
    pool: str | None = None
    """The node's."""


@dataclass(frozen=True, slots=True)
class PoolBrake:
    """The bound of one node pool, where pools have one."""

    pool: str
    gpu_nodes: int
    out: int
    bound: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How many taints there were lately, where that is bounded."""

    taints: int
    most: int
    window_seconds: float
    frees_at: datetime | None
    """When the oldest of them counts no more; None where there was none."""


@dataclass(frozen=True, slots=True)
class BrakeState:
    """The brake at one moment (rule 19)."""

    gpu_nodes: int
    out: int
    """Nodes that carry our taint, writes in flight included."""
    bound: int
    """How many may be out by us."""
    held: tuple[Held, ...] = ()
    unavailable: int = 0
    """Further nodes that are out for other reasons, where the settings count these."""
    pools: tuple[PoolBrake, ...] = ()
    pace: Pace | None = None
    cooling: int = 0
    """Nodes whose release or deletion made room that is not used yet."""
    deleted: int = 0
    """How many of these were deleted while they bore our taint."""
    rearms_at: datetime | None = None
    """When it will be, unless more are released."""
    pause: ControlAct | None = None
    """The one that holds now."""

    @property
    def holding(self) -> bool:
        """Whether it holds anything back right now."""
        return bool(self.held)
