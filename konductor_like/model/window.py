"""Recent evidence of the whole fleet, bounded in time and number.

It is no state of its own: after a restart it is read from Loki again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from konductor_like.model.faults import KernelPosition, Severity, Source


class TraceKey(NamedTuple):
    """What one node's evidence is kept apart by."""

    rule: str
    gpu: str | None
    taints: bool
    """A rule may print what taints and what does not: the two never hide each other."""
    boot_id: str | None
    """None for evidence that is of no boot, such as a pod's line."""
    job: str | None
    """The job that its pod belongs to; None for a kernel line."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Lines of one trace that follow each other closely: they count as one occurrence."""

    start_ns: int
    end_ns: int
    """Loki timestamps of its first and last line."""
    first: KernelPosition
    last: KernelPosition
    """Their places in the kernel log, by which a replay of them is known."""
    heard_ns: int | None = None
    """When, by our clock, it was first weighed as news; None where it is only known from before our start."""
    pods: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()
    """The jobs that ran on the node then; of a kernel line, and as far as the API server was asked."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What one rule has said of one GPU, the oldest episode first."""

    source: Source
    severity: Severity
    code: int | None
    remote: bool
    """Its lines themselves blame another device."""
    episodes: tuple[Episode, ...]

    @property
    def end_ns(self) -> int:
        """Loki timestamp of the latest line."""
        return self.episodes[-1].end_ns


@dataclass(frozen=True, slots=True)
class Window:
    """Traces by node. For how many there is room: :mod:`konductor_like.policy.evidence`."""

    traces: Mapping[str, Mapping[TraceKey, Trace]] = field(default_factory=dict)
    heard_ns: Mapping[str, int] = field(default_factory=dict)
    """When, by our clock, there was last news of a node."""
    jobs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By node, the jobs that its traces name, as ``jobs.job_key`` has them."""
    dropped: int = 0
    """Traces that had to go for want of room."""
    pruned_ns: int = 0
    """When, by our clock, what is too old was last removed."""
