"""What the controller remembers from one decision to the next, and stores nowhere.

After a restart it reads the lines from Loki again, and begins to count the GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from konductor_like.model.faults import Fault, KernelPosition, Severity, Source
from konductor_like.model.nodes import NodeState


class TraceKey(NamedTuple):
    """The key of a trace among the traces of one node."""

    rule: str
    gpu: str | None
    taints: bool
    """Whether the faults taint; a rule may report both kinds, and neither hides the other."""
    boot_id: str | None
    """None for evidence without a boot, such as a pod's line."""
    job: str | None
    """The job of its pod; None for a kernel line."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One occurrence: lines of one trace that follow each other within a minute."""

    start_ns: int
    end_ns: int
    """Loki timestamps of the first and the last line are ``start_ns`` and ``end_ns``."""
    first: KernelPosition
    last: KernelPosition
    """``first`` and ``last`` are these lines' places in the kernel log; they reveal a replay."""
    heard_ns: int | None = None
    """When, by our clock, this process first assessed it as new; None if it is from before our start."""
    pods: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()
    """The jobs that ran on the node then; for a kernel line, if the API server was asked."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The recent episodes of one trace key on one node, the oldest first."""

    source: Source
    severity: Severity
    code: int | None
    remote: bool
    """Whether the lines themselves blame another device."""
    episodes: tuple[Episode, ...]

    @property
    def end_ns(self) -> int:
        """Loki timestamp of the last line."""
        return self.episodes[-1].end_ns


@dataclass(frozen=True, slots=True)
class RecentEvidence:
    """Recent evidence: traces by node. :mod:`konductor_like.policy.fleet.recent_evidence` has its limits."""

    traces: Mapping[str, Mapping[TraceKey, Trace]] = field(default_factory=dict)
    heard_ns: Mapping[str, int] = field(default_factory=dict)
    """By node, when (by our clock) the latest new evidence was read."""
    jobs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node, the jobs that its traces name, as :func:`konductor_like.jobs.job_key` returns them."""
    pruned_ns: int = 0
    """When, by our clock, evidence that is too old was last removed."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth: occurrences of a known incident that are counted but not written to the Node yet (rule 22).

    It is carried from decision to decision until the next write of the record.
    """

    count: int
    """The incident's total count with these occurrences: a total cannot be added twice."""
    latest: Fault
    """The latest occurrence; its ``times`` is the number of unwritten ones. Its position is the latest of
    them all, and ``user_written`` is set only if a user wrote all of them."""
    counted_ns: int
    """When the latest occurrence was counted, by the controller's clock: before or after a release."""
    first_us: int | None = None
    """The lowest kernel stamp of the incident's lines without a boot id (:attr:`Incident.first_us`)."""


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """What is known of the GPUs of one node, and of its machine."""

    state: NodeState
    expected: int
    """The most GPUs that the machine had, by this memory and by the record, or that it should have."""
    layout: str
    """The last ``GpuCount.layout`` with a GPU."""
    since_ns: int | None
    """When the node, in service and in its present boot, began to have fewer GPUs than expected; None if it
    never had. A later fall goes on where the one before ended, if the GPUs were not back for long."""
    back_ns: int | None = None
    """Since when no GPU is missed in service after such a fall; None while one is, and without a fall."""
    falls: int = 0
    """Number of such falls since ``since_ns``."""

    @property
    def missing(self) -> int:
        """Return how many GPUs are missing now, whether in service or not."""
        return self.expected - self.state.gpus.allocatable

    @property
    def words(self) -> str:
        """Return ``7 of 8 GPUs``."""
        return f"{self.state.gpus.allocatable} of {self.expected} GPUs"


@dataclass(frozen=True, slots=True)
class GpuCounts:
    """The counts of all nodes with GPUs (rule 38)."""

    nodes: Mapping[str, NodeGpus] = field(default_factory=dict)
    short: Mapping[str, str] = field(default_factory=dict)
    """By node, ``7 of 8 GPUs``: the nodes that miss GPUs now, in service or not."""
    falls: Mapping[str, int] = field(default_factory=dict)
    """By node, since when GPUs have been missing; without the nodes in ``together``, and without those whose
    record says so already."""
    together: frozenset[str] = frozenset()
    """Nodes that lost GPUs at about the same time, and too many of them to be a fault of each."""
    due: frozenset[str] = frozenset()
    """The nodes in ``falls`` whose GPUs have been missing for so long that it is a fault."""
    unnoted: frozenset[str] = frozenset()
    """The nodes in ``falls`` whose record does not say yet how many GPUs they had."""
