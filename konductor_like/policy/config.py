"""The numbers that decisions depend on, from the settings and the rules' data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from konductor_like.model import NO_ESCALATION, AlertRule, ConditionRule, Escalation, Finding

LONGEST_SECONDS = 86_400
"""Seconds of the longest span that a rule may look back: the controller reads this span of Loki again at a
start."""

PERSONS = (
    *("kubectl-taint", "kubectl-edit", "kubectl-patch", "kubectl-label", "kubectl-annotate"),
    *("k9s", "*lens", "mozilla", "node-fetch", "headlamp*", "curl", "oc"),
)
"""Field managers of tools with which people edit Nodes. ``kubectl-replace`` and an apply write a whole list
from a file, so their list of taints says nothing about this taint."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Limits and spans of the policy, from the settings and the rules' data."""

    brake_max_percent: float = 20.0
    """Percentage of the GPU nodes, 0 to 100, that the controller may have tainted."""
    brake_max_nodes: int | None = None
    """Number of nodes that the controller may have tainted at most; None for no such cap."""
    brake_pool_max_percent: float | None = None
    """Percentage of a pool's GPU nodes, 0 to 100, that the controller may have tainted; None for no limit."""
    brake_rate_nodes: int | None = None
    """Number of nodes that may be tainted within ``brake_rate_window_seconds``; None for no limit."""
    brake_rate_window_seconds: float = 3600.0
    brake_count_unavailable: bool = False
    """Whether nodes that are cordoned or not Ready use up the limit, too."""
    brake_cooldown_seconds: float = 300.0
    """Seconds for which the place of a released node stays empty, if the brake held a node at the release."""
    hold_base_seconds: float = 1800.0
    """Seconds of the hold at the second failure within ``repeat_days``; each further failure doubles it."""
    hold_max_seconds: float = 86_400.0
    """Seconds of the longest hold."""
    repeat_days: float = 7.0
    """Days for which an earlier time out of service counts."""
    repeat_count: int = 3
    """Number of times out within ``repeat_days`` that marks a node for replacement; 0 for never."""
    persons: tuple[str, ...] = PERSONS
    """Field managers of tools with which people edit Nodes; their removal of our taint is a release."""
    version: str = ""
    """Digest of the catalogue and the user's rules in force, for records and log lines."""
    count_user_written: bool = True
    """Whether a kernel-log record written from user space counts as a fault."""
    escalations: Mapping[str, Escalation] = field(default_factory=dict)
    """By rule, what changes the effect of its severity."""
    correlation_seconds: float = 30.0
    """Most seconds between two lines of one failure group (nodes that share a job or an NVLink domain)."""

    returns_by_reboot: bool = False
    """Whether a reboot that meets all needs of a node returns it to service."""
    returns_by_validation: bool = False
    """Whether a passed validation returns a node whose needs are met; without both only a person does."""
    validates: bool = False
    """Whether the controller can run validations at all: an image is set."""
    rehearses: bool = False
    """Whether the controller only logs and shows which nodes it would validate and return."""
    recovery_by_file: bool = False
    """Whether the file of ``KONDUCTOR_RECOVERY_FILE`` is there, which an earlier version read in place of
    ``KONDUCTOR_RETURN`` and ``KONDUCTOR_RECOVERY``. It may say ``ask``: no node returns or is validated."""
    validation_level: int = 2
    """The least level of a validation, one of ``LEVELS``; the faults may ask for more."""
    return_quiet_seconds: float = 600.0
    """Seconds for which the new boot's kernel log must be heard, and the Node be Ready with all its GPUs,
    before a node returns by itself."""
    returns_per_hour: int = 4
    """Number of nodes that may return by themselves within an hour."""
    probation_seconds: float = 86_400.0
    """Seconds of the probation of a node that returned by itself."""
    suspect_days: float = 7.0
    """Days of a heard kernel log without the fault that end a suspicion; 0 for never."""
    test_seconds: float = 3600.0
    """Seconds after which a test (Xid 14) ends, 0 for never; one by ``konductor-like test`` ends earlier."""
    gpu_count_seconds: float = 1800.0
    """Seconds for which GPUs must be missing before they are a fault; 0 for never."""
    gpus_missing: Finding | None = None
    """What missing GPUs mean by the rules in force, without a text; None if they are no fault."""
    conditions: Mapping[str, ConditionRule] = field(default_factory=dict)
    """By type, what the conditions of other programs mean by the rules in force."""
    alerts: Mapping[str, AlertRule] = field(default_factory=dict)
    """By name, what the alerts of our catalogue mean by the rules in force."""
    node_condition: str = ""
    """The type of the controller's own condition, which is no evidence."""

    @property
    def returns_unasked(self) -> bool:
        """Whether the controller itself returns nodes after failures."""
        return self.returns_by_reboot or self.returns_by_validation

    @property
    def validates_on_wish(self) -> bool:
        """Whether a person's wish for a validation leads to one."""
        return self.validates and not self.rehearses and not self.recovery_by_file

    def with_escalations(self, escalations: Mapping[str, Escalation], version: str) -> Self:
        """Return this configuration with a catalogue's escalations and its digest."""
        return replace(self, escalations=escalations, version=version)

    def escalation(self, rule: str) -> Escalation:
        """Return the rule's escalation."""
        return self.escalations.get(rule, NO_ESCALATION)

    @property
    def window_seconds(self) -> int:
        """Seconds for which recent evidence is kept: the longest span of any rule, at least an hour."""
        longest = max((each.longest_seconds for each in self.escalations.values()), default=0)
        return min(LONGEST_SECONDS, max(longest, 3600))
