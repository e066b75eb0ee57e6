"""What a reconcile needs of the cluster: the real thing, or what stands in for it in a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from konductor_like.cluster.node_writer import WriteResult
from konductor_like.cluster.pods import NodeJobs
from konductor_like.model import Change, Controls, NodeState


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


class Jobs(Protocol):
    """Which jobs run on nodes, known a little later than asked for."""

    def want(self, nodes: Iterable[str]) -> None:
        """They are of interest now."""

    def known(self) -> Mapping[str, NodeJobs]:
        """What is known by now."""
