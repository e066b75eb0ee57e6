"""The progress of reading: what the Lease stores about cursors, coverage and losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from konductor_like.model.faults import Source
from konductor_like.model.nodes import NodeRecord


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The cursors: how far every source was read *and acted upon*; the Lease stores them (rule 9).

    ``act_from_ns`` was fixed at the first start: older lines are recorded, and never acted upon.
    """

    read_ns: Mapping[Source, int]
    act_from_ns: int
    released: tuple[NodeRecord, ...] = ()
    """What the releases of the last day cover: a record for each machine, the newest first. A deleted Node's
    own record is deleted with it."""


class CoverageState(StrEnum):
    """Whether the heartbeats of a node's kernel-log reader arrive: without them, silence proves nothing."""

    MEASURED = "measured"
    UNKNOWN = "unknown"
    """Heartbeats arrived earlier and have stopped."""
    NOT_MEASURED = "not measured"
    """No heartbeat ever arrived."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A span of Loki time in which the kernel logs of some nodes did not arrive (rule 8).

    The gap is removed when heartbeats of that time are read after all, or when it is too old.
    """

    start_ns: int
    """Loki timestamp of the last heartbeat before the gap, or earlier."""
    end_ns: int | None
    """Loki timestamp of the first heartbeat after the gap, or later; None while the silence lasts."""
    nodes: frozenset[str] | None
    """The nodes; None for any GPU node, if there was no space for their names."""

    def concerns(self, node: str) -> bool:
        """Whether the node's kernel log is missing in this gap."""
        return self.nodes is None or node in self.nodes


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of one kernel log that the kernel overwrote before they were read; they cannot be recovered."""

    records: int
    at_ns: int
    """Loki timestamp of the latest line that reported such a loss."""
    boot_id: str = ""
    """The boot of that line; empty if an older version wrote it."""


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Lines of one kernel log with an Xid in a form that the detection does not understand."""

    lines: int
    """Number of lines, at least: a line that arrived late cannot be told from a line that was read twice."""
    at_ns: int
    """Loki timestamp of the latest."""


@dataclass(frozen=True, slots=True)
class Misnamed:
    """Kernel faults under a name that no Node has; the controller waited for such a Node and gave up."""

    faults: int
    at_ns: int
    """Loki timestamp of the latest."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which nodes' kernel logs arrive, as the controller last saw it, and what is missing.

    Usually nearly all nodes are measured or nearly none, so only exceptions are listed:
    ``listed_are_measured`` gives the state of the nodes in ``listed``; all other nodes except the ``unknown``
    have the opposite state.
    """

    at: datetime
    unknown: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    listed_are_measured: bool = True
    gaps: tuple[Gap, ...] = ()
    """One gap per node, but nodes with the same minutes share one; the oldest first."""
    ambiguous: frozenset[str] = frozenset()
    """Names under which two machines report at once; such nodes are never tainted (rule 3)."""
    lost: Mapping[str, Loss] = field(default_factory=dict)
    """By node, for as long as a gap would be kept."""
    unparsed: Mapping[str, Unparsed] = field(default_factory=dict)
    """By node, for as long as a gap would be kept."""
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """Per source, the Loki timestamp up to which it was read in full; a source that is not read is missing.

    The cursor is earlier while lines that were read wait to be acted upon.
    """
    misnamed: Mapping[str, Misnamed] = field(default_factory=dict)
    """By name; kept for a day or until a Node has the name."""
    backfill_ns: int | None = None
    """When the oldest of the Nodes was made whose earlier kernel lines are still to be read (rule 3).

    None if there is no such Node. The next controller reads the lines of all Nodes that were made since.
    """

    @property
    def lost_boots(self) -> Mapping[str, str]:
        """Return, by node, the last boot of which the kernel overwrote records before they were read."""
        return {name: loss.boot_id for name, loss in self.lost.items() if loss.boot_id}

    def of(self, node: str) -> CoverageState:
        """Return the coverage of one node."""
        if node in self.unknown:
            return CoverageState.UNKNOWN
        measured = (node in self.listed) == self.listed_are_measured
        return CoverageState.MEASURED if measured else CoverageState.NOT_MEASURED
