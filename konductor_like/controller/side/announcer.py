"""Sends Events about Nodes and about the fleet after their writes, beside the reconcile."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from konductor_like.cluster.events import LeaseEvents, NodeEvents, events_of
from konductor_like.controller import logs
from konductor_like.controller.side.work import SideQueue
from konductor_like.model import Change, EventReason, NodeState

NODES_MOST = 2000
"""Events about Nodes that may wait. The log has all of them."""
SENDERS = 3
"""Threads that send Events about Nodes. With 3, the last of 1,000 waits for about 333 round trips."""
FLEET_MOST = 100
"""Events about the fleet that may wait."""
CLOSE_SECONDS = 5.0
FLEET_CLOSE_SECONDS = 2.0


class Announcer:
    """Queues Events and sends them from a few threads. Its methods return at once and raise nothing."""

    def __init__(self, nodes: NodeEvents, fleet: LeaseEvents, lease: Callable[[], Mapping[str, str]]) -> None:
        """``lease`` returns the Lease as an Event's ``involvedObject``."""
        self._nodes = SideQueue[tuple[NodeState, EventReason, str, str, str]](
            name="events",
            handle=lambda item: _check(nodes.send(*item), item[2]),
            what="Events about Nodes",
            most=NODES_MOST,
            threads=SENDERS,
            close_seconds=CLOSE_SECONDS,
        )
        self._fleet = SideQueue[tuple[EventReason, str, str]](
            name="lease-events",
            handle=lambda item: _check(fleet.send(lease(), *item), item[1]),
            what="Events about the fleet",
            most=FLEET_MOST,
            close_seconds=FLEET_CLOSE_SECONDS,
        )
        self.threads = (self._nodes, self._fleet)

    def announce(self, state: NodeState, change: Change) -> None:
        """Queue the change's Events, if it has any."""
        for reason, message, subject in events_of(change):
            self._nodes.put((state, reason, message, subject, change.act_id))

    def fleet(self, reason: EventReason, message: str, act: str = "") -> None:
        """Queue an Event about the fleet. ``act`` is the id of the act that it reports, if any."""
        self._fleet.put((reason, message, act))


def _check(sent: bool, message: str) -> None:  # what ``send`` returned
    if not sent:
        logs.debug(f"This Event could not be sent: {message}")
