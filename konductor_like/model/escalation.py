"""Escalation: the settings of a rule that change what its faults mean, from the rules' data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from konductor_like.model.text import span_text

DEFER_SECONDS_MOST = 60.0
"""Seconds for which a rule may defer its faults at most."""


class Same(StrEnum):
    """What occurrences must have in common to be counted together."""

    GPU = "gpu"
    NODE = "node"


class Distinct(StrEnum):
    """What must differ for two occurrences to count as two."""

    JOBS = "jobs"
    PODS = "pods"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number of occurrences within a span: ``3 in 24h on one gpu from distinct jobs``."""

    count: int
    within_seconds: int
    same: Same
    distinct: Distinct | None = None
    """None: two occurrences are a minute or more apart."""

    def __str__(self) -> str:
        distinct = f" from distinct {self.distinct}" if self.distinct else ""
        return f"{self.count} in {span_text(self.within_seconds)} on one {self.same}{distinct}"


@dataclass(frozen=True, slots=True)
class Together:
    """Another rule's evidence close by: ``xid.63, xid.64 within 24h on one gpu``; one of ``rules`` is enough.

    An entry may be a family, ``xid.*``: then only suspect or fatal evidence counts. Evidence of a rule named
    in full counts whatever its severity.
    """

    rules: tuple[str, ...]
    within_seconds: int
    same: Same

    def __str__(self) -> str:
        return f"{', '.join(self.rules)} within {span_text(self.within_seconds)} on one {self.same}"


@dataclass(frozen=True, slots=True)
class Escalation:
    """When a rule's faults taint although their severity does not, and how long fatal ones are deferred."""

    threshold: Threshold | None = None
    together_with: Together | None = None
    defer_seconds: float = 0.0
    """Seconds for which a fatal fault is deferred; another node may turn out to be the root cause."""
    advice: str = ""
    """Advice for a node tainted by ``threshold`` or ``together_with``; empty for the default advice."""
    needs: str = ""
    """The machine's need in this case (a value of ``Needs``)."""

    @property
    def longest_seconds(self) -> int:
        """Return the seconds that the rule looks back."""
        parts = (self.threshold, self.together_with)
        return max((part.within_seconds for part in parts if part is not None), default=0)


NO_ESCALATION = Escalation()
