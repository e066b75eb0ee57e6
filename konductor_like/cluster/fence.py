"""Whether a write may start now, and how long it may take (design rule 24)."""

from __future__ import annotations

import math
import time
from typing import Protocol


def suspend_aware_seconds() -> float:
    """A clock that nobody sets and that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Fence(Protocol):
    """Guards every write of the controller; the Lease is one."""

    def budget_seconds(self) -> float:
        """How long a write that starts now may take. Raises LeadershipLost when none may start."""
        ...


class NoFence:
    """For the command line: a person writes, guarded by the patch's own tests."""

    def budget_seconds(self) -> float:
        """No limit."""
        return math.inf
