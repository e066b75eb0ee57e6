"""Conditions that other programs write into a Node's status (rule 42), and work that they announce."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from konductor_like.model.faults import Finding


@dataclass(frozen=True, slots=True)
class ReportedCondition:
    """A condition that another program wrote. Its texts are cut to ``EVIDENCE_CHARS``.

    Two states of a Node differ only if the status or the time of its last change differs: agents write a new
    heartbeat every few minutes, and some a new message.
    """

    type: str
    status: str
    """``True``, ``False`` or ``Unknown``; ``Unknown`` too if the Node has two conditions of the type."""
    reason: str = field(default="", compare=False)
    message: str = field(default="", compare=False)
    since_ns: int | None = None
    """Its ``lastTransitionTime``, in nanoseconds since the Unix epoch by the writer's clock; None without."""
    beat_ns: int | None = field(default=None, compare=False)
    """Its ``lastHeartbeatTime``, likewise."""


@dataclass(frozen=True, slots=True)
class ConditionRule:
    """What a condition of one type means by the rules in force."""

    bad: str
    """The status that reports a fault, ``True`` or ``False``; the other one of the two is healthy."""
    reasons: re.Pattern[str] | None = None
    """What the whole reason must look like; None for any."""
    finding: Finding | None = None
    """The fault, without its text; None if the rule is off."""


@dataclass(frozen=True, slots=True)
class ConditionsSeen:
    """What the next decision has to know of the conditions that were seen."""

    act_from_ns: int
    """Conditions that changed before are from before the first start (rule 5)."""
    shadowed: frozenset[tuple[str, str, int]] = frozenset()
    """What rules in shadow mode found, and still find: node, type, and the time of the change."""


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """Work on the machine that its provider announces on the Node, such as a maintenance."""

    name: str
    """The type of the condition, or the label."""
    in_progress: bool = False
    at_ns: int | None = None
    """When the work begins, if the Node tells it."""
    since_ns: int | None = None
    """Since when the condition announces it."""
    text: str = field(default="", compare=False)
    """Reason and message of the condition."""
