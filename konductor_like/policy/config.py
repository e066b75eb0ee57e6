"""The numbers that decisions depend on, from the settings and the rules' data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from konductor_like.model import NO_ESCALATION, Escalation

LONGEST_SECONDS = 86_400
"""No rule looks further back: that much of Loki is read again at a start."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Bounds and spans of the policy: the settings give them, and the rules' data."""

    brake_max_percent: float = 20.0
    """Share of the GPU nodes, 0 to 100, that may be out by us."""
    brake_max_nodes: int | None = None
    """Absolute cap beside it; None for none."""
    brake_pool_max_percent: float | None = None
    """Share of a pool's GPU nodes, 0 to 100, that may be out by us; None for no bound of its own."""
    brake_rate_nodes: int | None = None
    """How many nodes may be tainted within ``brake_rate_window_seconds``; None for any number."""
    brake_rate_window_seconds: float = 3600.0
    brake_count_unavailable: bool = False
    """Whether nodes that are cordoned or not Ready count as out too."""
    brake_cooldown_seconds: float = 300.0
    """Once the brake holds something, the room that a release makes is not used for so long."""
    hold_base_seconds: float = 1800.0
    """A node that failed before does not come back by itself for so long, doubled with each further time."""
    hold_max_seconds: float = 86_400.0
    """It is never held longer than this."""
    repeat_days: float = 7.0
    """How long an earlier time out counts."""
    repeat_count: int = 3
    """The time out within ``repeat_days`` that marks a node for replacement; 0 for none."""
    record_interval_seconds: float = 600.0
    """Growing counts reach a node at most this often."""
    suspect_taint: bool = False
    """Whether nodes that are merely suspect get the softer taint."""
    version: str = ""
    """Digest of the catalogue and the user's rules in force, for records and log lines."""
    count_user_written: bool = True
    """Whether a kernel-log record that was written from user space counts as a fault."""
    escalations: Mapping[str, Escalation] = field(default_factory=dict)
    """By rule, what makes more of it than its severity."""
    correlation_seconds: float = 30.0
    """Nodes that share a job or an NVLink domain and report within so long tell of one failure."""
    common_node_jobs: int = 4
    """A node that alone is common to so many failed jobs of a day is a suspect; 0 for never."""

    def under(self, escalations: Mapping[str, Escalation], version: str) -> Self:
        """The same under a catalogue's escalations, and with its name."""
        return replace(self, escalations=escalations, version=version)

    def escalation(self, rule: str) -> Escalation:
        """What makes more of that rule than its severity."""
        return self.escalations.get(rule, NO_ESCALATION)

    @property
    def window_seconds(self) -> int:
        """How far back evidence is kept: as far as any rule looks, an hour at least."""
        longest = max((each.longest_seconds for each in self.escalations.values()), default=0)
        common = LONGEST_SECONDS if self.common_node_jobs else 0
        return min(LONGEST_SECONDS, max(longest, common, 3600))
