"""Recent evidence of the whole fleet, limited in time and number.

The controller does not store it: after a restart it reads the lines from Loki again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from konductor_like.model.faults import KernelPosition, Severity, Source


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
    """Recent evidence: traces by node. Its limits are in :mod:`konductor_like.policy.recent_evidence`."""

    traces: Mapping[str, Mapping[TraceKey, Trace]] = field(default_factory=dict)
    heard_ns: Mapping[str, int] = field(default_factory=dict)
    """By node, when (by our clock) the latest new evidence was read."""
    jobs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node, the jobs that its traces name, as :func:`konductor_like.jobs.job_key` returns them."""
    dropped: int = 0
    """Number of traces dropped because of the limits."""
    pruned_ns: int = 0
    """When, by our clock, evidence that is too old was last removed."""
