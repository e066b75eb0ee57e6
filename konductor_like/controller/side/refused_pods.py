"""Finds pods that kubelets refuse, in two threads beside the reconcile, so that no taint waits (rule 45).

One thread watches the Events of refused pods. Each of them names a node. The other thread looks at the pods
of these nodes, at few nodes a minute, and at those whose fault is open, to see whether pods are admitted
there again. What it saw last is in memory only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from konductor_like.backoff import Backoff
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError, KubeForbidden, KubeGone
from konductor_like.cluster.api.transport import json_object
from konductor_like.cluster.api.watch import WatchStream
from konductor_like.cluster.refused_pods import look_at_pods, node_of_event, present_version, watch_refusals
from konductor_like.controller import logs
from konductor_like.controller.ports import Nodes
from konductor_like.controller.reporting.attempts import AttemptLog
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.work import Rate, SideThread
from konductor_like.model import PodsSeen, RefusedPods
from konductor_like.model.attempts import Doing
from konductor_like.model.time import SECOND_NS
from konductor_like.policy.node.refused_pods import SPAN_NS, refusals_of

DELAY_SECONDS = 5.0
"""Seconds from the first Event about a node to the look: the pod's status is written after its Event."""
AGAIN_SECONDS = 60.0
"""Seconds between two looks at one node, at least."""
OPEN_SECONDS = 600.0
"""Seconds between two looks at a node with an open fault, if no Event names it."""
LOOKS_A_MINUTE = 10
DENIED_SECONDS = 300.0
"""Seconds until the next try after the API server denied one."""
SHORT_SECONDS = 10.0
"""Seconds. After a watch that was shorter than this, the wait before the next one grows."""
CLOSE_SECONDS = 2.0
BACKOFF = Backoff(first_seconds=1.0, most_seconds=60.0)


class RefusalEvents(SideThread):
    """Watches the Events of refused pods, and tells the node of each."""

    def __init__(
        self,
        client: ReadOnlyKubeClient,
        found: Callable[[str], object],
        metrics: Metrics,
        attempts: AttemptLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``found`` is called with the name that an Event gives its node. ``clock`` returns seconds."""
        super().__init__(name="refusal-events", what="Events of refused pods", close_seconds=CLOSE_SECONDS)
        self._client = client
        self._found = found
        self._metrics = metrics
        self._attempts = attempts
        self._clock = clock
        self._version = ""
        self._failures = 0
        """Watches in a row that failed, or ended at once."""
        self._stream: WatchStream | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Tell the thread to end, and end its watch."""
        super().close()
        with self._lock:
            if self._stream is not None:
                self._stream.close()

    def step(self) -> None:
        """Follow the Events until the watch ends, and wait before the next one."""
        seconds = DENIED_SECONDS
        try:
            seconds = self.follow()
        finally:
            self.closing.wait(seconds)

    def follow(self) -> float:
        """Watch until the watch ends. Return the seconds to wait until the next one."""
        began = self._clock()
        try:
            self._watch()
        except KubeGone:
            self._version = ""  # the Events since then are lost; the next one leads to a look all the same
        except KubeError as error:
            self._metrics.kube_errors.labels(type(error).__name__).inc()
            self._attempts.note(Doing.REFUSED_PODS, error)
            if isinstance(error, KubeForbidden):
                return DENIED_SECONDS
        self._failures = self._failures + 1 if self._clock() - began < SHORT_SECONDS else 1
        return BACKOFF.seconds(self._failures)

    def _watch(self) -> None:
        """Resume the watch where it ended. After etcd was restored, begin at its version, which is lower."""
        present = present_version(self._client)
        if not self._version or not _is_at_most(self._version, present):
            self._version = present
        with watch_refusals(self._client, self._version) as stream:
            self._attempts.note(Doing.REFUSED_PODS)
            with self._lock:
                self._stream = stream
            try:
                for event in stream if not self.closing.is_set() else ():
                    version = json_object(event.object, "metadata").get("resourceVersion")
                    self._version = str(version or self._version)
                    if event.kind in ("ADDED", "MODIFIED"):
                        self._found(node_of_event(event.object))
            finally:
                with self._lock:
                    self._stream = None


def _is_at_most(version: str, other: str) -> bool:
    return version.isdigit() and other.isdigit() and int(version) <= int(other)


class PodLooks(SideThread):
    """Looks at the pods of the nodes that Events name, and remembers what it saw."""

    def __init__(
        self,
        look: Callable[[str], PodsSeen],
        nodes: Nodes,
        metrics: Metrics,
        *,
        changed: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``look`` returns what is seen of a node's pods, or raises a KubeError.

        ``changed`` is called when the decision has something new to see. ``clock`` returns seconds.
        """
        super().__init__(name="pod-looks", what="looks at refused pods", close_seconds=CLOSE_SECONDS)
        self.changed = changed
        self._look = look
        self._nodes = nodes
        self._metrics = metrics
        self._clock = clock
        self._rate = Rate(LOOKS_A_MINUTE, 60.0, clock)
        self._lock = threading.Lock()
        self._due: dict[str, float] = {}
        """By node, when to look; the clock's seconds. Only GPU nodes that exist are in it."""
        self._looked: dict[str, tuple[float, PodsSeen]] = {}
        """By node, when it was last looked at within half an hour, and what was seen there last."""
        self._logged = ""

    def seen(self) -> RefusedPods:
        """Return what was seen last. Any thread may call it."""
        with self._lock:
            return RefusedPods({name: pods for name, (_, pods) in self._looked.items()})

    def want(self, node: str) -> None:
        """Look at the node soon, because an Event names it. Any thread may call it."""
        self._want(node, DELAY_SECONDS, AGAIN_SECONDS)

    def step(self) -> None:
        """Wait a second, and look at a node if that is due."""
        if not self.closing.wait(1.0):
            self.round()

    def round(self) -> None:
        """Look at the nodes that are due, as many as the rate allows."""
        now = self._clock()
        with self._lock:
            oldest = now - SPAN_NS / SECOND_NS
            self._looked = {name: each for name, each in self._looked.items() if each[0] >= oldest}
        for name, state in self._nodes.snapshot().items():
            if state.record.incidents and refusals_of(state):
                self._want(name, 0.0, OPEN_SECONDS)
        with self._lock:
            due = sorted((at, name) for name, at in self._due.items() if at <= now)
        for _, name in due[: self._rate.left()]:
            if self.closing.is_set():
                return
            self._rate.use()
            self._look_at(name)

    def _want(self, node: str, delay_seconds: float, again_seconds: float) -> None:
        state = self._nodes.snapshot().get(node)
        if state is None or not state.is_gpu_node:
            return
        with self._lock:
            now, last = self._clock(), self._looked.get(node)
            at = now + delay_seconds if last is None else max(now + delay_seconds, last[0] + again_seconds)
            self._due[node] = min(at, self._due.get(node, at))

    def _look_at(self, name: str) -> None:
        _, before = self._looked.get(name, (0.0, PodsSeen()))
        again = None
        with self._lock:  # an Event that comes during the look leads to another one
            self._due.pop(name, None)
        try:
            seen = _as_first_seen(self._look(name), before)
            self._logged = ""
        except KubeError as error:
            seen, again = before, DENIED_SECONDS if isinstance(error, KubeForbidden) else AGAIN_SECONDS
            self._metrics.kube_errors.labels(type(error).__name__).inc()
            if str(error) != self._logged:
                self._logged = str(error)
                logs.warning(
                    f"Node {name}: cannot look for refused pods: {error}. Tainting goes on.", node=name
                )
        with self._lock:
            self._looked[name] = (self._clock(), seen)
            if again is not None:
                self._due[name] = self._clock() + again
        if seen != before:
            self.changed()


def _as_first_seen(seen: PodsSeen, before: PodsSeen) -> PodsSeen:
    """Return the pods with the earliest time that was seen of each.

    While the start of a pod is in the future, by the clock of its node, its creation counts.
    """
    known = {pod.uid: pod.at_ns for pod in before.refused if pod.uid}
    refused = (pod._replace(at_ns=min(pod.at_ns, known.get(pod.uid, pod.at_ns))) for pod in seen.refused)
    return replace(seen, refused=tuple(sorted(refused, key=lambda pod: pod.at_ns)))


@dataclass(frozen=True, slots=True)
class RefusalThreads:
    """The two threads of one leadership."""

    events: RefusalEvents
    looks: PodLooks


def refusal_threads(
    client: ReadOnlyKubeClient, nodes: Nodes, metrics: Metrics, attempts: AttemptLog
) -> RefusalThreads:
    """Build the threads. Building sends no request."""
    looks = PodLooks(lambda node: look_at_pods(client, node, datetime.now(UTC)), nodes, metrics)
    return RefusalThreads(RefusalEvents(client, looks.want, metrics, attempts), looks)
