"""Tells the owners of jobs that a node of theirs was tainted, in a thread beside the reconcile (rule 33).

The thread sends few Events a second, and nothing waits for it. Events may be lost: when the process ends,
when very many nodes are tainted at once, and when the API server does not take them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from konductor_like.cluster.api.errors import KubeError, KubeForbidden
from konductor_like.cluster.events import event_name, event_subject
from konductor_like.cluster.pods import NodeJobs, Owner
from konductor_like.controller import logs
from konductor_like.controller.ports import EventSink
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.work import SideQueue
from konductor_like.model import Change, EventReason, NodeState, Severity, Verb
from konductor_like.model.time import moment_of, stamp
from konductor_like.policy.wording import name_of

OWNERS_MOST = 20
"""Owners of jobs on one node that get an Event."""
BETWEEN_SECONDS = 0.2
"""Seconds between two Events."""
NODES_MOST = 200
"""Tainted nodes that may wait; the jobs of further ones are not told."""
WAIT_SECONDS = 600.0
"""Seconds that a node may wait. After that, its jobs are not told."""
DENIED_SECONDS = 600.0
"""Seconds without Events in a namespace after the API server has denied one there."""
CLOSE_SECONDS = 2.0
Send = Callable[[Owner, str, str, str], KubeError | None]
"""Sends one Event: ``JobEvents.send`` of :mod:`konductor_like.cluster.events`."""


class _Tainted(NamedTuple):
    """A node whose jobs are to be told."""

    state: NodeState
    change: Change
    message: str


class JobOwners:
    """Passes Events about Nodes on to another sink, and tells the jobs of tainted nodes."""

    def __init__(
        self,
        events: EventSink,
        ask: Callable[[str], NodeJobs],
        send: Send,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        between_seconds: float = BETWEEN_SECONDS,
    ) -> None:
        """``ask`` returns the jobs of a node, or raises a KubeError. ``clock`` returns seconds."""
        self._events = events
        self._ask = ask
        self._send = send
        self._metrics = metrics
        self._clock = clock
        self._between_seconds = between_seconds
        self._denied: dict[str, float] = {}
        """By namespace, until when no Event is sent there."""
        self._logged_denial = False
        self.queue = SideQueue[_Tainted](
            name="job-events",
            handle=self._handle,
            what="tainted nodes whose jobs were to be told",
            most=NODES_MOST,
            patience_seconds=WAIT_SECONDS,
            close_seconds=CLOSE_SECONDS,
            clock=clock,
        )

    def announce(self, state: NodeState, change: Change) -> None:
        """Send the Events of an applied change; if it tainted the node for a fault, tell the jobs there."""
        self._events.announce(state, change)
        if message := message_to_jobs(change):
            self.queue.put(_Tainted(state, change, message))

    def _handle(self, node: _Tainted) -> None:
        if self.queue.closing.is_set():
            return
        try:
            self._tell(node)
        except KubeError as error:
            self._failed(error, f"Could not read the jobs of node {node.state.name}")

    def _tell(self, node: _Tainted) -> None:
        name = node.state.name
        owners = self._ask(name).owners
        subject = event_name(node.state, EventReason.JOBS_NODE, event_subject(node.change))
        sent = 0
        for owner in owners[:OWNERS_MOST]:
            if self._denied.get(owner.namespace, float("-inf")) > self._clock():
                continue
            error = self._send(owner, node.message, subject, node.change.act_id)
            if error is None:
                sent += 1
            else:
                if isinstance(error, KubeForbidden):
                    self._denied[owner.namespace] = self._clock() + DENIED_SECONDS
                self._failed(error, f"The {owner.kind} {owner.namespace}/{owner.name} gets no Event")
            if self.queue.closing.wait(self._between_seconds):
                return
        if owners:
            logs.info(f"Node {name}: {sent} of {len(owners)} owners of jobs there have an Event.", node=name)

    def _failed(self, error: KubeError, what: str) -> None:
        """Count an error, and log it; a denial only once."""
        self._metrics.kube_errors.labels(type(error).__name__).inc()
        if not isinstance(error, KubeForbidden):
            logs.debug(f"{what}: {error}")
        elif not self._logged_denial:
            self._logged_denial = True
            logs.warning(
                f"{what}: {error}. Apply manifests/job_events.yaml, or set KONDUCTOR_JOB_EVENTS=false. The "
                "controller taints nodes as before and does not log this again."
            )


def message_to_jobs(change: Change) -> str:
    """Return the text for the owners of the jobs on a tainted node; empty if they are not to be told.

    They are told of faults of the machine only: not of a test, not of a fault that programs cause, not of a
    line that a person wrote, and not of a person's own taint.
    """
    fault = change.incident
    if change.verb is not Verb.TAINT or fault is None or fault.user_written or fault.by_person:
        return ""
    if fault.severity not in (Severity.FATAL, Severity.SUSPECT):
        return ""
    verdict = "failed at" if fault.severity is Severity.FATAL else "is probably faulty since"
    since = stamp(moment_of(fault.first_ns))
    return (
        f"Node {change.node} {verdict} {since}: {name_of(fault)}, {fault.title}. New pods go to other nodes. "
        "This job had pods with a GPU there. If they have failed since then, the likely cause is the node, "
        "not the program."
    )
