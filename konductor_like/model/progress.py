"""How far the work has come, as the Lease carries it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from konductor_like.model.faults import Source


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far every source was read *and acted upon*; the Lease carries it (design rule 9).

    ``act_from_ns`` was fixed at the very first start: older lines are recorded, never acted upon.
    """

    read_ns: Mapping[Source, int]
    act_from_ns: int


class CoverageState(StrEnum):
    """Whether silence of a node means anything."""

    MEASURED = "measured"
    UNKNOWN = "unknown"
    """Its heartbeat was seen and has stopped."""
    NOT_MEASURED = "not measured"
    """No heartbeat of it was ever seen."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which nodes' kernel logs arrive, as the controller last saw it.

    Fleets are nearly all measured or nearly all not, so only the exceptions are listed:
    ``listed_are_measured`` says what the nodes in ``listed`` are; all others but the ``unknown`` are the
    opposite.
    """

    at: datetime
    unknown: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    listed_are_measured: bool = True

    def of(self, node: str) -> CoverageState:
        """The coverage of one node."""
        if node in self.unknown:
            return CoverageState.UNKNOWN
        measured = (node in self.listed) == self.listed_are_measured
        return CoverageState.MEASURED if measured else CoverageState.NOT_MEASURED
