"""Asks the API server which jobs run on the nodes that have faults, in a thread beside the reconcile."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

from konductor_like.cluster.errors import KubeError, KubeForbidden, KubeNotFound
from konductor_like.cluster.pods import NodeJobs
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics

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
        answered: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ask`` is :func:`konductor_like.cluster.pods.jobs_on`. Each answer calls ``answered``."""
        self._ask = ask
        self._metrics = metrics
        self._answered = answered
        self._clock = clock
        self._changed = threading.Condition()
        self._wanted: OrderedDict[str, float] = OrderedDict()
        self._asked: dict[str, float] = {}
        self._known: dict[str, tuple[float, NodeJobs]] = {}
        self._sent: deque[float] = deque()
        self._denied_until = float("-inf")
        self._logged = ""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="pods", daemon=True)

    def start(self) -> None:
        """Begin asking."""
        self._thread.start()

    def close(self) -> None:
        """Ask nothing more. A request under way ends by its own time-out."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def want(self, nodes: Iterable[str]) -> None:
        """Ask about these nodes soon. It never waits."""
        now = self._clock()
        with self._changed:
            if now < self._denied_until:
                return
            for node in nodes:
                lately = now - self._asked.get(node, float("-inf")) < AGAIN_SECONDS
                if not lately and len(self._wanted) < NODES_MOST:
                    self._wanted.setdefault(node, now)
            self._changed.notify()

    def known(self) -> Mapping[str, NodeJobs]:
        """Return the answers of the last two minutes, by node."""
        since = self._clock() - ANSWER_SECONDS
        with self._changed:
            self._known = {node: (at, jobs) for node, (at, jobs) in self._known.items() if at >= since}
            return {node: jobs for node, (_, jobs) in self._known.items()}

    def _run(self) -> None:
        while (node := self._next()) is not None:
            try:
                jobs = self._ask(node)
            except KubeError as error:
                self._failed(error)
            except Exception:  # noqa: BLE001  # the thread must go on with the next node; logged in full
                logs.LOGGER.exception("Reading the pods of a node failed. Please report this.")
            else:
                with self._changed:
                    self._known[node] = (self._clock(), jobs)
                if not jobs.complete and self._logged != TOO_LARGE:
                    logs.warning(f"node {node}: {TOO_LARGE}", node=node)
                self._logged = "" if jobs.complete else TOO_LARGE
                self._answered()

    def _next(self) -> str | None:
        """Wait until the next question is allowed and return its node, the one that waits longest.

        Return None after :meth:`close`.
        """
        with self._changed:
            while not self._closed:
                now = self._clock()
                while self._wanted and next(iter(self._wanted.values())) < now - QUESTION_SECONDS:
                    self._wanted.popitem(last=False)
                while self._sent and self._sent[0] <= now - 60.0:
                    self._sent.popleft()
                if self._wanted and len(self._sent) < MINUTE_MOST:
                    node, _ = self._wanted.popitem(last=False)
                    self._asked = {name: at for name, at in self._asked.items() if now - at < AGAIN_SECONDS}
                    self._asked[node] = now
                    self._sent.append(now)
                    return node
                self._changed.wait(self._sent[0] + 60.0 - now if self._wanted else None)
            return None

    def _failed(self, error: KubeError) -> None:
        self._metrics.kube_errors.labels(type(error).__name__).inc()
        if isinstance(error, (KubeForbidden, KubeNotFound)):
            with self._changed:
                self._denied_until = self._clock() + DENIED_SECONDS
                self._wanted.clear()
            if self._logged != str(error):
                self._logged = str(error)
                logs.warning(
                    f"{error}. The controller takes jobs from the labels in Loki and from pod names until "
                    "the "
                    'ClusterRole has {apiGroups: [""], resources: [pods], verbs: [list]}. '
                    "KONDUCTOR_ASK_FOR_PODS=false turns these requests off."
                )
