"""Asks the API server which jobs run on the nodes that have faults, in a thread beside the reconcile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from konductor_like.cluster.api.errors import KubeError, KubeForbidden, KubeNotFound
from konductor_like.cluster.pods import NodeJobs
from konductor_like.controller import logs
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.work import Rate, SideQueue

ANSWER_SECONDS = 120.0
"""Seconds for which an answer is used."""
QUESTION_SECONDS = 120.0
"""Seconds that a question may wait. Later the controller has decided on the fault without the answer."""
AGAIN_SECONDS = 60.0
"""Seconds between two questions about the same node."""
MINUTE_MOST = 120
"""Questions in a minute: enough for the nodes of a large job before the controller decides."""
NODES_MOST = 1000
"""Nodes that may wait; further ones are not asked about."""
DENIED_SECONDS = 600.0
"""Seconds without questions after the API server has denied one."""
TOO_LARGE = (
    "the list of running pods is too large, so the controller read only a part. For the other pods it takes "
    "jobs from the labels in Loki and from pod names."
)


class PodJobs:
    """Asks about the wanted nodes, one at a time, in a thread of its own."""

    def __init__(
        self,
        ask: Callable[[str], NodeJobs],
        metrics: Metrics,
        *,
        answered: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ask`` is :func:`konductor_like.cluster.pods.jobs_on`. Each answer calls ``answered``."""
        self._ask = ask
        self._metrics = metrics
        self.answered = answered
        self._clock = clock
        self._asked: dict[str, float] = {}
        self._known: dict[str, tuple[float, NodeJobs]] = {}
        self._logged = ""
        self.queue = SideQueue[str](
            name="pods",
            handle=self._handle,
            what="questions about the jobs of nodes",
            most=NODES_MOST,
            patience_seconds=QUESTION_SECONDS,
            rate=Rate(MINUTE_MOST, 60.0, clock),
            close_seconds=0.0,  # a request under way ends by its own time-out
            clock=clock,
        )

    def want(self, nodes: Iterable[str]) -> None:
        """Ask about these nodes soon. It never waits."""
        now = self._clock()
        for node in nodes:
            lately = now - self._asked.get(node, float("-inf")) < AGAIN_SECONDS
            if not lately and len(self.queue) < NODES_MOST:
                self.queue.put(node, key=node)

    def known(self) -> Mapping[str, NodeJobs]:
        """Return the answers of the last two minutes, by node."""
        return {node: jobs for node, (_, jobs) in self._fresh().items()}

    def of(self, node: str) -> NodeJobs:
        """Return the jobs of one node, by a recent answer or a new one. Raises a KubeError."""
        return self.known().get(node) or self._ask(node)

    def _fresh(self) -> dict[str, tuple[float, NodeJobs]]:
        since = self._clock() - ANSWER_SECONDS
        return {node: known for node, known in self._known.items() if known[0] >= since}

    def _handle(self, node: str) -> None:
        if self.queue.closing.is_set():
            return
        now = self._clock()
        self._asked = {name: at for name, at in self._asked.items() if now - at < AGAIN_SECONDS} | {node: now}
        try:
            jobs = self._ask(node)
        except KubeError as error:
            self._failed(error)
            return
        # A new dict, because another thread may be reading the old one.
        self._known = {**self._fresh(), node: (self._clock(), jobs)}
        if not jobs.complete and self._logged != TOO_LARGE:
            logs.warning(f"node {node}: {TOO_LARGE}", node=node)
        self._logged = "" if jobs.complete else TOO_LARGE
        self.answered()

    def _failed(self, error: KubeError) -> None:
        self._metrics.kube_errors.labels(type(error).__name__).inc()
        if isinstance(error, (KubeForbidden, KubeNotFound)):
            self.queue.pause(DENIED_SECONDS)
            if self._logged != str(error):
                self._logged = str(error)
                logs.warning(
                    f"{error}. The controller takes jobs from the labels in Loki and from pod names until "
                    'the ClusterRole has {apiGroups: [""], resources: [pods], verbs: [list]}. '
                    "KONDUCTOR_ASK_FOR_PODS=false turns these requests off."
                )
