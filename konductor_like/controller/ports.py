"""What a reconcile needs of the cluster: the real thing, or what stands in for it in a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from konductor_like.cluster.node_writer import WriteResult
from konductor_like.cluster.pods import NodeJobs
from konductor_like.model import Change, Controls, LogLine, NodeRecord, NodeState


class Nodes(Protocol):
    """The cluster's nodes as we know them."""

    def snapshot(self) -> Mapping[str, NodeState]:
        """All nodes, as one consistent view."""

    def apply(self, state: NodeState) -> None:
        """Fold in a newer state of one node."""

    @property
    def problem(self) -> Exception | None:
        """Why the view may be stale right now."""


class Writer(Protocol):
    """Writes changes to nodes."""

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        """One result per pair, in order; never raises for what went wrong with one of them."""


class EventSink(Protocol):
    """Takes Events; best effort."""

    def announce(self, state: NodeState, change: Change) -> None:
        """Tell about an applied change."""


class ReadControls(Protocol):
    """What people told us, as the Lease carries it."""

    def __call__(self, now: datetime, *, at_once: bool = False) -> Controls:
        """As known lately, or as it is right now."""


class Fleet(Protocol):
    """What the readers of the kernel logs say about themselves."""

    @property
    def ambiguous(self) -> frozenset[str]:
        """Names under which two machines report at once."""

    @property
    def left(self) -> Mapping[str, frozenset[str]]:
        """By node, the boots that are over although faults wait for them."""

    def returned(self, nodes: Mapping[str, NodeState]) -> Mapping[str, NodeRecord]:
        """Nodes made anew since the last call for a known machine, with what was on the Node before."""

    def count_unparsed(self, lines: Iterable[LogLine]) -> None:
        """Take note of lines that detection made no fault of."""


class Jobs(Protocol):
    """Which jobs run on nodes, known a little later than asked for."""

    def want(self, nodes: Iterable[str]) -> None:
        """They are of interest now."""

    def known(self) -> Mapping[str, NodeJobs]:
        """What is known by now."""
