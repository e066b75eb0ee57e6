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

    def holds(self, now: datetime) -> bool:
        """Whether it lasts at this moment."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Rearm:
    """The brake was reset by a person: what tripped it before counts no more, its bound always does."""

    at: datetime
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Steering:
    """All of it."""

    pause: Pause | None = None
    rearm: Rearm | None = None
