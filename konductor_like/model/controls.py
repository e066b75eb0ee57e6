"""Operators' controls (pause, brake reset), and the tainted Nodes that were deleted; both are on the
Lease."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from konductor_like.model.kept import KeptRecord
from konductor_like.model.nodes import Machine

NAMES_MOST = 50
"""Names of purged nodes on the Lease."""


class Control(StrEnum):
    """The kinds of commands that a person may give the controller."""

    PAUSE = "pause"
    """The controller adds no taint; releases and records go on."""
    RESUME = "resume"
    """Ends the pause, and the stop of automatic returns."""
    BRAKE_RESET = "brake-reset"
    """Ends the cool-down: earlier releases, deletions and taints no longer count; the limit stays."""
    PURGE = "purge"
    """Somebody removed everything of ours from Nodes, so no record of theirs shows the release."""

    @property
    def replaces(self) -> frozenset[Control]:
        """Return the kinds of earlier acts that an act of this kind replaces."""
        return frozenset({Control.PAUSE, self}) if self is Control.RESUME else frozenset({self})


@dataclass(frozen=True, slots=True)
class ReturnedNode:
    """One return of a node by the controller, and whether the node relapsed."""

    name: str
    returned_at: datetime
    relapsed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ControlAct:
    """One command that a person gave the controller."""

    control: Control
    at: datetime
    by: str
    reason: str = ""
    until: datetime | None = None
    """When a pause ends; None for a pause until somebody resumes."""
    nodes: int = 0
    """Number of nodes that a purge released."""
    names: tuple[str, ...] = ()
    """The first :data:`NAMES_MOST` nodes that a purge and those shortly before it were about."""
    relapses: tuple[ReturnedNode, ...] = ()
    """The relapses that no longer count after a resume: this resume, or an earlier one, ended their stop."""
    act: str = ""
    """The id of the write; empty if somebody wrote the control by other means."""

    def holds(self, now: datetime) -> bool:
        """Whether the pause is in effect at this moment."""
        return self.until is None or now < self.until

    def may_name(self, node: str) -> bool:
        """Whether a purge was about the node, or names so many nodes that it may have been about any."""
        return node in self.names or len(self.names) >= NAMES_MOST


@dataclass(frozen=True, slots=True)
class TaintedNode:
    """A Node that carries our taint, or carried it when it was deleted (its record was deleted with it)."""

    name: str
    machine: Machine
    tainted_at: datetime
    pool: str | None = None
    deleted_at: datetime | None = None
    """When the Node was first seen to be deleted; None while it exists."""
    why: str = ""
    """The faults for which it is out of service, in words; empty if these are tests only, or unknown."""
    needs: str = ""
    """The need of the node at that time (a value of ``Needs``); empty if unknown."""
    rule: str = ""
    gpu: str = ""
    """The rule and the PCI bus id of the fault with that need; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Controls:
    """The facts that the brake needs and that no node's record contains."""

    acts: tuple[ControlAct, ...] = ()
    """The latest act of each kind."""
    tainted: tuple[TaintedNode, ...] = ()
    """The Nodes that carry our taint, as last noted, and those recently deleted with it."""
    returned: tuple[ReturnedNode, ...] = ()
    """The last ten nodes that the controller returned, the latest first; each node once."""
    kept: tuple[KeptRecord, ...] = ()
    """The records of Nodes whose annotation could not be written."""

    @property
    def pause(self) -> ControlAct | None:
        """The pause that nobody has ended; it may have expired."""
        return self._latest(Control.PAUSE)

    @property
    def resume(self) -> ControlAct | None:
        """The latest resume; a later pause does not remove it."""
        return self._latest(Control.RESUME)

    @property
    def brake_reset(self) -> ControlAct | None:
        """The latest end of the brake's cool-down by a person."""
        return self._latest(Control.BRAKE_RESET)

    @property
    def purge(self) -> ControlAct | None:
        """The latest purge."""
        return self._latest(Control.PURGE)

    def with_act(self, act: ControlAct) -> Controls:
        """Return these controls after one more act."""
        kept = (each for each in self.acts if each.control not in act.control.replaces)
        return replace(self, acts=(*kept, act))

    def _latest(self, control: Control) -> ControlAct | None:
        return next((act for act in reversed(self.acts) if act.control is control), None)
