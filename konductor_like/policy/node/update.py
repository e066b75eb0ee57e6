"""One node while it is decided: its record with the new evidence, and what speaks for or against a taint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from konductor_like.model import (
    DroppedFault,
    Fault,
    Growth,
    Incident,
    IncidentKey,
    NodeRecord,
    NodeState,
    ReleaseHow,
    SkipReason,
)
from konductor_like.policy.node.health import tainting
from konductor_like.policy.node.removal import Removal


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """What becomes of one node's record, and what the write for the node is derived from."""

    state: NodeState
    """The node as it was read."""
    record: NodeRecord
    """The record with the new evidence."""
    urgent: bool = False
    """Whether the record is written now."""
    has_ends: bool = False
    """Whether a need was met or an incident ended without a new line; written as :attr:`Change.upkeep`."""
    counted: tuple[Fault, ...] = ()
    ignored: tuple[DroppedFault, ...] = ()
    grown: tuple[Growth, ...] = ()
    """The growth: occurrences that ``record`` counts and the node's annotation does not."""
    news: tuple[Fault, ...] = ()
    """The faults that opened or reopened an incident."""
    to_announce: Incident | None = None
    """An incident for an Event although none opened: it ended, or makes its node a suspect."""
    released_by_hand: bool = False
    """Whether a person removed the taint."""
    removal: Removal | None = None
    """What follows for a node whose taint is off although its record claims it."""
    ambiguous: bool = False
    """Two machines report under the node's name, so a fault cannot be attributed to either (rule 3)."""
    deferred: Mapping[IncidentKey, int] = field(default_factory=dict)
    """The deferred incidents, and until when (a Loki timestamp)."""
    return_how: ReleaseHow | None = None
    """How the controller itself takes the taint off; None if it does not."""

    @property
    def gravest(self) -> Incident | None:
        """Return the incident for which the brake is asked, the most urgent; None without one."""
        candidates = [i for i in tainting(self.record) if i.key not in self.deferred]
        return min(candidates, key=lambda incident: incident.urgency, default=None)

    @property
    def excluded(self) -> SkipReason | None:
        """Return why this node is not tainted whatever its incidents are; None if it may be tainted."""
        if self.state.opted_out:
            return SkipReason.OPTED_OUT
        if not self.state.selected:
            return SkipReason.NOT_SELECTED
        if self.state.blocked:
            return SkipReason.BLOCKED
        return SkipReason.AMBIGUOUS if self.ambiguous else None
