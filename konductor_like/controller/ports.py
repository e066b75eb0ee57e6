"""What a reconcile needs of the cluster, and what stands in for it in a dry run.

Dry run is another object graph, not a flag (rule 26): it reads the cluster and keeps its writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from konductor_like.cluster.node_writer import WriteResult
from konductor_like.controller import logs
from konductor_like.model import Change, EventReason, NodeState

FleetEvent = Callable[[EventReason, str], None]
"""Sends an Event about the fleet; returns at once and raises nothing."""


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


class DryRunNodes:
    """The live nodes, with the taints and records that would have been written laid over them."""

    def __init__(self, live: Nodes) -> None:
        self._live = live
        self._written: dict[str, NodeState] = {}

    def snapshot(self) -> Mapping[str, NodeState]:
        """All nodes as they would be."""
        nodes = dict(self._live.snapshot())
        for name, written in self._written.items():
            live = nodes.get(name)
            if live is not None and live.as_read.uid == written.as_read.uid:
                then = written.as_read
                seen = replace(live.as_read, taints=then.taints, record=then.record, health=then.health)
                nodes[name] = replace(live, taints=written.taints, record=written.record, as_read=seen)
        return nodes

    @property
    def problem(self) -> Exception | None:
        """Why the view may be stale right now."""
        return self._live.problem

    def apply(self, state: NodeState) -> None:
        """Remember what would have been written."""
        self._written[state.name] = state


class DryRunEvents:
    """Tells the log instead of the cluster."""

    def announce(self, state: NodeState, change: Change) -> None:
        """Log the Event that would have been sent."""
        if change.event is None:
            return
        logs.info(
            f"would send Event {change.event} for node {state.name}: {change.message}",
            node=state.name,
            event=change.event,
        )


def dry_run_fleet_event(reason: EventReason, message: str, _act: str = "") -> None:
    """Log the Event about the fleet that would have been sent."""
    logs.info(f"would send Event {reason} on the Lease: {message}", event=reason)
