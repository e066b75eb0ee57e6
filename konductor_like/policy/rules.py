"""The numbers that decisions depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Bounds and spans of the policy; the settings give them."""

    brake_max_percent: float = 20.0
    """Share of the GPU nodes, 0 to 100, that may be out by us."""
    brake_max_nodes: int | None = None
    """Absolute cap beside it; None for none."""
    record_interval_seconds: float = 600.0
    """Growing counts reach a node at most this often."""
    settle_seconds: float = 60.0
    """Counts that did not grow for this long have settled, and need not wait for the interval."""
    version: str = ""
    """Digest of the catalogue and the user's rules in force, for records and log lines."""
    count_user_written: bool = True
    """Whether a kernel-log record that was written from user space counts as a fault."""
