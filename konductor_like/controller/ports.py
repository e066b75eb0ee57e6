"""The interfaces through which a reconcile reads and writes the cluster, and their stand-ins for a dry run.

A dry run uses other objects instead of a flag (rule 26): they read the cluster and keep the writes in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from konductor_like.cluster.events import events_of
from konductor_like.cluster.node.writer import WriteResult
from konductor_like.controller import logs
from konductor_like.model import Change, EventReason, NodeState, Standing

FleetEvent = Callable[[EventReason, str], None]
"""Sends an Event about the fleet; returns at once and raises nothing."""


class Nodes(Protocol):
    """The cluster's nodes as the controller knows them."""

    def snapshot(self) -> Mapping[str, NodeState]:
        """All nodes, as one consistent view."""

    def apply(self, state: NodeState) -> None:
        """Fold in a newer state of one node."""

    @property
    def problem(self) -> Exception | None:
        """Why the view may be stale right now."""


class WatchedNodes(Nodes, Protocol):
    """Nodes that are watched as long as the controller runs."""

    def standing(self, names: Iterable[str]) -> Mapping[str, Standing]:
        """For how long these Nodes have not changed; none of them while they cannot be watched."""


class Writer(Protocol):
    """Writes changes to nodes."""

    @property
    def labels_needs(self) -> bool:
        """Whether the API server accepts the label for what a node needs, as far as known."""

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        """Write all pairs. Return one result per pair, in order; a failed write raises nothing."""


class KnownNodes:
    """The nodes with the records that are known of them, where their annotations have less."""

    def __init__(
        self, nodes: Nodes, over: Callable[[Mapping[str, NodeState]], Mapping[str, NodeState]]
    ) -> None:
        self._nodes = nodes
        self._over = over

    def snapshot(self) -> Mapping[str, NodeState]:
        """Return all nodes, as one consistent view."""
        return self._over(self._nodes.snapshot())

    def apply(self, state: NodeState) -> None:
        """Fold in a newer state of one node."""
        self._nodes.apply(state)

    @property
    def problem(self) -> Exception | None:
        """Why the view may be stale right now."""
        return self._nodes.problem


class EventSink(Protocol):
    """Sends Events as far as possible; an Event may be lost."""

    def announce(self, state: NodeState, change: Change) -> None:
        """Send the Event of an applied change, if it has one."""


class Onlooker(Protocol):
    """Takes facts that notifications tell and no Event of the controller does.

    The methods return at once and raise nothing.
    """

    def counted(self, out: int, gpu_nodes: int) -> None:
        """Take how many nodes are out of service, of the GPU nodes."""

    def reset(self, state: NodeState) -> None:
        """Take a node that a person has released from a fault: the command itself has sent the Event."""


class NoOnlooker:
    """An onlooker that does nothing."""

    def counted(self, _out: int, _gpu_nodes: int) -> None:
        """Do nothing."""

    def reset(self, _state: NodeState) -> None:
        """Do nothing."""


class DryRunNodes:
    """The live nodes, with the taints and records that a real run would have written."""

    def __init__(self, live: WatchedNodes) -> None:
        self._live = live
        self._written: dict[str, NodeState] = {}

    def snapshot(self) -> Mapping[str, NodeState]:
        """Return all nodes as they would be after the writes."""
        nodes = dict(self._live.snapshot())
        for name, written in list(self._written.items()):  # a scrape may read while a reconcile writes
            live = nodes.get(name)
            if live is not None and live.as_read.uid == written.as_read.uid:
                seen = replace(written.as_read, resource_version=live.as_read.resource_version)
                nodes[name] = replace(live, taints=written.taints, record=written.record, as_read=seen)
        return nodes

    @property
    def problem(self) -> Exception | None:
        """Why the view may be stale right now."""
        return self._live.problem

    def standing(self, names: Iterable[str]) -> Mapping[str, Standing]:
        """Return for how long the live Nodes have not changed: no dry run changes readiness or GPUs."""
        return self._live.standing(names)

    def apply(self, state: NodeState) -> None:
        """Remember the state that a real run would have written."""
        self._written[state.name] = state


class DryRunEvents:
    """Logs Events instead of sending them."""

    def announce(self, state: NodeState, change: Change) -> None:
        """Log the Events that would have been sent."""
        for reason, message, _ in events_of(change):
            logs.info(
                f"would send Event {reason} for node {state.name}: {message}", node=state.name, event=reason
            )


def dry_run_fleet_event(reason: EventReason, message: str, _act: str = "") -> None:
    """Log the Event about the fleet that would have been sent."""
    logs.info(f"would send Event {reason} on the Lease: {message}", event=reason)
