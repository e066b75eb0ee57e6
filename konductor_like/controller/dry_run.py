"""Dry run is another object graph, not a flag (rule 26): it reads the cluster and keeps its writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from konductor_like.controller import logs
from konductor_like.model import Change, EventReason, NodeState


class _Live(Protocol):
    def snapshot(self) -> Mapping[str, NodeState]:
        """The cluster's nodes."""

    @property
    def problem(self) -> Exception | None:
        """Why the view may be stale right now."""


class DryRunNodes:
    """The live nodes, with the taints and records that would have been written laid over them."""

    def __init__(self, live: _Live) -> None:
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


def dry_run_fleet_event(reason: EventReason, message: str, act: str = "") -> None:
    """Log the Event about the fleet that would have been sent."""
    del act
    logs.info(f"would send Event {reason} on the Lease: {message}", event=reason)
