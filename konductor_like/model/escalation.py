"""What makes more of a fault than one line says, rule by rule; the rules' data say it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from konductor_like.model.text import span_text

DEFER_SECONDS_MOST = 60.0
"""No rule defers its faults for longer than this."""


class Same(StrEnum):
    """What evidence must have in common to be counted together."""

    GPU = "gpu"
    NODE = "node"


class Distinct(StrEnum):
    """What must differ for two occurrences to count as two."""

    JOBS = "jobs"
    PODS = "pods"


@dataclass(frozen=True, slots=True)
class Threshold:
    """So many occurrences within a span: ``3 in 24h on one gpu from distinct jobs``."""

    count: int
    within_seconds: int
    same: Same
    distinct: Distinct | None = None
    """None: occurrences a minute and more apart."""

    def __str__(self) -> str:
        distinct = f" from distinct {self.distinct}" if self.distinct else ""
        return f"{self.count} in {span_text(self.within_seconds)} on one {self.same}{distinct}"


@dataclass(frozen=True, slots=True)
class Together:
    """Another rule's evidence close by: ``xid.63, xid.64 within 24h on one gpu``; one of ``rules`` is enough.

    Each may be a family, ``xid.*``: then what is suspect or worse counts. A rule named in full counts
    whatever its severity.
    """

    rules: tuple[str, ...]
    within_seconds: int
    same: Same

    def __str__(self) -> str:
        return f"{', '.join(self.rules)} within {span_text(self.within_seconds)} on one {self.same}"


@dataclass(frozen=True, slots=True)
class Escalation:
    """All that a rule's data say about when it is more, or less, than its severity."""

    threshold: Threshold | None = None
    together_with: Together | None = None
    defer_seconds: float = 0.0
    """A fatal fault of the rule is deferred for so long; another node may then be known as the root cause."""
    advice: str = ""
    """What to do about a node that is tainted for the threshold or the companion; empty for a general one."""
    needs: str = ""
    """What the machine needs then (the catalogue's ``Needs``)."""

    @property
    def longest_seconds(self) -> int:
        """How far back it looks."""
        parts = (self.threshold, self.together_with)
        return max((part.within_seconds for part in parts if part is not None), default=0)


NO_ESCALATION = Escalation()
