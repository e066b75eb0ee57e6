"""Whether a write may start now, and how long it may take (design rule 24)."""

from __future__ import annotations

import math
from typing import Protocol


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
