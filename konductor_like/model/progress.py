"""How far the work has come, as the Lease carries it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from konductor_like.model.faults import Source
from konductor_like.model.nodes import NodeRecord


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far every source was read *and acted upon*; the Lease carries it (rule 9).

    ``act_from_ns`` was fixed at the very first start: older lines are recorded, never acted upon.
    """

    read_ns: Mapping[Source, int]
    act_from_ns: int
    released: tuple[NodeRecord, ...] = ()
    """What the releases of the last day cover, a record for each machine, the newest first: a Node that is
    deleted takes its own record along."""


class CoverageState(StrEnum):
    """Whether silence of a node means anything."""

    MEASURED = "measured"
    UNKNOWN = "unknown"
    """Its heartbeat was seen and has stopped."""
    NOT_MEASURED = "not measured"
    """No heartbeat of it was ever seen."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A span of Loki time in which kernel logs were not heard, and whose (rule 8).

    It is open until heartbeats of that time were read after all, or until it is too old to be closed.
    """

    start_ns: int
    """The last heartbeat before it, or earlier."""
    end_ns: int | None
    """The first heartbeat after it, or later; None while the silence lasts."""
    nodes: frozenset[str] | None
    """None: any GPU node, where there was no room for their names."""

    def concerns(self, node: str) -> bool:
        """Whether the node's log is missing for this span."""
        return self.nodes is None or node in self.nodes


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of one kernel log that the kernel overwrote before they were read; nothing brings them back."""

    records: int
    at_ns: int
    """Loki timestamp of the latest line that told of some."""


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Lines of one kernel log that name an Xid in a form that is not understood."""

    lines: int
    """At least so many: a line that came late is not told from one that was read again."""
    at_ns: int
    """Loki timestamp of the latest."""


@dataclass(frozen=True, slots=True)
class Misnamed:
    """Kernel faults under a name that no Node has; they waited for one and were given up."""

    faults: int
    at_ns: int
    """Loki timestamp of the latest."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which nodes' kernel logs arrive, as the controller last saw it, and what is missing of them.

    Fleets are nearly all measured or nearly all not, so only the exceptions are listed:
    ``listed_are_measured`` says what the nodes in ``listed`` are; all others but the ``unknown`` are the
    opposite.
    """

    at: datetime
    unknown: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    listed_are_measured: bool = True
    gaps: tuple[Gap, ...] = ()
    """One per node, nodes of the same minutes together; the oldest first."""
    ambiguous: frozenset[str] = frozenset()
    """Names under which two machines report at once: never tainted (rule 3)."""
    lost: Mapping[str, Loss] = field(default_factory=dict)
    """By node, for as long as a gap would be kept."""
    unparsed: Mapping[str, Unparsed] = field(default_factory=dict)
    """By node, for as long as a gap would be kept."""
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Up to where each source was read in full, in Loki's ns; a source that is not read is missing.

    The cursor is behind it while something that was read waits to be acted upon.
    """
    misnamed: Mapping[str, Misnamed] = field(default_factory=dict)
    """By name, for a day or until a Node has it."""

    def of(self, node: str) -> CoverageState:
        """The coverage of one node."""
        if node in self.unknown:
            return CoverageState.UNKNOWN
        measured = (node in self.listed) == self.listed_are_measured
        return CoverageState.MEASURED if measured else CoverageState.NOT_MEASURED
