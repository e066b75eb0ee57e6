"""What people tell the controller while it runs; the Lease carries it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


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
class Steering:
    """All of it."""

    pause: Pause | None = None
    rearm: Rearm | None = None
    resume: Resume | None = None
    purge: Purge | None = None
