"""The controls of operators (pause, brake reset), and the tainted Nodes that are gone; the Lease has both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from konductor_like.model.nodes import Machine


class Control(StrEnum):
    """What a person may tell the controller."""

    PAUSE = "pause"
    """No taint is added meanwhile; releases and records go on."""
    RESUME = "resume"
    """The pause is over."""
    BRAKE_RESET = "brake-reset"
    """What tripped the brake before counts no more; its bound always does."""
    PURGE = "purge"
    """Nodes were released with every trace of us, so that no record of theirs says it."""

    @property
    def replaces(self) -> frozenset[Control]:
        """The kinds of earlier acts that count no more after one of this kind."""
        if self in (Control.PAUSE, Control.RESUME):
            return frozenset({Control.PAUSE, Control.RESUME})
        return frozenset({self})


@dataclass(frozen=True, slots=True)
class ControlAct:
    """One thing that a person told the controller."""

    control: Control
    at: datetime
    by: str
    reason: str = ""
    until: datetime | None = None
    """When a pause ends; None: when somebody resumes."""
    nodes: int = 0
    """How many nodes a purge released."""
    act: str = ""
    """The name of the write; empty where somebody wrote it by other means than ours."""

    def holds(self, now: datetime) -> bool:
        """Whether a pause lasts at this moment."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class TaintedNode:
    """A Node that bears our taint, or bore it when it was deleted: its record went with it."""

    name: str
    machine: Machine
    tainted_at: datetime
    pool: str | None = None
    deleted_at: datetime | None = None
    """When it was first seen to be gone; None while it is there."""


@dataclass(frozen=True, slots=True)
class Controls:
    """What the brake must know that no node's record says."""

    acts: tuple[ControlAct, ...] = ()
    """The latest of each kind."""
    tainted: tuple[TaintedNode, ...] = ()
    """The Nodes that bear our taint, as last noted, and those that were deleted with it lately."""

    @property
    def pause(self) -> ControlAct | None:
        """The pause that nobody has ended; it may have expired."""
        return self._latest(Control.PAUSE)

    @property
    def resume(self) -> ControlAct | None:
        """The end of the latest pause."""
        return self._latest(Control.RESUME)

    @property
    def brake_reset(self) -> ControlAct | None:
        """The latest reset of the brake."""
        return self._latest(Control.BRAKE_RESET)

    @property
    def purge(self) -> ControlAct | None:
        """The latest purge."""
        return self._latest(Control.PURGE)

    def with_act(self, act: ControlAct) -> Controls:
        """These controls after one more act."""
        kept = (each for each in self.acts if each.control not in act.control.replaces)
        return replace(self, acts=(*kept, act))

    def _latest(self, control: Control) -> ControlAct | None:
        return next((act for act in reversed(self.acts) if act.control is control), None)
