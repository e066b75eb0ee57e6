"""Which jobs run on the nodes that speak up, asked of the API server beside the reconcile."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

from konductor_like.cluster.errors import KubeError, KubeForbidden, KubeNotFound
from konductor_like.cluster.pods import NodeJobs
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics

FRESH_SECONDS = 120.0
"""How long an answer is told, and a question is worth asking: by then the line has been decided on."""
AGAIN_SECONDS = 60.0
"""A node is asked about at most this often."""
MINUTE_MOST = 120
"""Nodes a minute, so that those of a large job are known while that still matters."""
NODES_MOST = 1000
"""More than this neither wait nor are remembered."""
DENIED_SECONDS = 600.0
"""After a refusal nothing is asked for so long."""
TOO_LARGE = (
    "were looked at for their jobs: they are too large. Jobs of the others are known by the labels in Loki "
    "and by pods' names."
)


class PodJobs:
    """Asks about nodes that are wanted, one at a time, in a thread of its own."""

    def __init__(
        self,
        ask: Callable[[str], NodeJobs],
        metrics: Metrics,
        *,
        answered: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ask`` is :func:`konductor_like.cluster.pods.jobs_on` of a node; ``answered`` hears of answers."""
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
        self._said = ""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="pods", daemon=True)

    def start(self) -> None:
        """Begin asking."""
        self._thread.start()

    def close(self) -> None:
        """Ask nothing more; a request under way is left to its own time-out."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def want(self, nodes: Iterable[str]) -> None:
        """Their jobs are of interest now; never waits."""
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
        """The answers of the last minutes, by node."""
        since = self._clock() - FRESH_SECONDS
        with self._changed:
            self._known = {node: (at, jobs) for node, (at, jobs) in self._known.items() if at >= since}
            return {node: jobs for node, (_, jobs) in self._known.items()}

    def _run(self) -> None:
        while (node := self._next()) is not None:
            try:
                jobs = self._ask(node)
            except KubeError as error:
                self._failed(error)
            except Exception:  # noqa: BLE001  # one answer must not be the last; logged in full
                logs.LOGGER.exception("The pods of a node could not be read. Please report this.")
            else:
                with self._changed:
                    self._known[node] = (self._clock(), jobs)
                if not jobs.complete and self._said != TOO_LARGE:
                    logs.warning(f"Not all running pods of node {node} {TOO_LARGE}", node=node)
                self._said = "" if jobs.complete else TOO_LARGE
                self._answered()

    def _next(self) -> str | None:
        """The node that has waited longest, once another request is due; None when it is over."""
        with self._changed:
            while not self._closed:
                now = self._clock()
                while self._wanted and next(iter(self._wanted.values())) < now - FRESH_SECONDS:
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
            if self._said != str(error):
                self._said = str(error)
                logs.warning(
                    f"{error}. Jobs are known by the labels in Loki and by pods' names until the ClusterRole "
                    'has {apiGroups: [""], resources: [pods], verbs: [list]}; KONDUCTOR_ASK_FOR_PODS=false '
                    "asks no more."
                )
