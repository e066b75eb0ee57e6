"""What the brake must know that no node's record says: people's word, and Nodes that are gone.

The Lease carries it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from konductor_like.model.nodes import Machine


@dataclass(frozen=True, slots=True)
class Pause:
    """No taint is added meanwhile; releases and records go on."""

    at: datetime
    by: str
    reason: str
    until: datetime | None = None
    """None: until somebody resumes."""
    act: str = ""
    """The name of the write; empty where somebody wrote it by other means than ours."""

    def holds(self, now: datetime) -> bool:
        """Whether it lasts at this moment."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Rearm:
    """The brake was reset by a person: what tripped it before counts no more, its bound always does."""

    at: datetime
    by: str
    reason: str = ""
    act: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """Who ended the latest pause by hand."""

    at: datetime
    by: str
    act: str = ""


@dataclass(frozen=True, slots=True)
class Purge:
    """So many nodes were let go lately with every trace of us, so that no record of theirs can say it."""

    at: datetime
    """Of the latest."""
    by: str
    nodes: int


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
class Steering:
    """All of it."""

    pause: Pause | None = None
    rearm: Rearm | None = None
    resume: Resume | None = None
    purge: Purge | None = None
    tainted: tuple[TaintedNode, ...] = ()
    """The Nodes that bear our taint, as last noted, and those that were deleted with it lately."""
