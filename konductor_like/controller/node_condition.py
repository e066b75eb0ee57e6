"""Keeps the Node condition of every node as it should be, in a thread beside the reconcile (rules 33 and 39).

Once a second the thread compares what the Nodes have with what they should have, and writes five Nodes at
most, faulty ones first. It remembers little: what a Node has comes from the watch. While nothing changes, it
sends nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from konductor_like.cluster.errors import (
    Backoff,
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
    LeadershipLost,
)
from konductor_like.cluster.node_condition import significant, standing, wanted
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.ports import Nodes
from konductor_like.model import Condition, Coverage, CoverageState, NodeState
from konductor_like.model.text import listed
from konductor_like.model.time import stamp

ROUND_SECONDS = 1.0
WRITES_A_ROUND = 5
AGAIN_SECONDS = 60.0
"""Seconds until the same condition of a node is written again: another writer may remove it each time."""
DENIED_SECONDS = 600.0
"""Seconds without writes after the API server has refused one for good."""

BACKOFF = Backoff()

WriteCondition = Callable[[NodeState, Condition | None, datetime], NodeState]
"""Writes a node's condition (None removes it) and returns its state then, or raises a KubeError."""


class NodeConditions:
    """Writes the conditions of one leadership."""

    def __init__(
        self,
        kind: str,
        nodes: Nodes,
        write: WriteCondition,
        metrics: Metrics,
        *,
        close_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``kind`` is the condition's type. If it is empty, conditions that stand are removed.

        ``clock`` returns seconds. ``close_seconds`` bounds the wait for the write under way.
        """
        self._kind = kind
        self._nodes = nodes
        self._write = write
        self._metrics = metrics
        self._close_seconds = close_seconds
        self._clock = clock
        self._now = now
        self._heard: tuple[Coverage, frozenset[str]] | None = None
        self._settled_by: tuple[Coverage, frozenset[str]] | None = None
        """The heartbeats by which ``_settled`` was found."""
        self._settled: dict[str, NodeState] = {}
        """By UID, the states that need no write as long as the same nodes are heard."""
        self._stood: dict[str, Condition] = {}
        """By UID, the condition that the Node had last: another writer may have removed it since."""
        self._sent: dict[str, tuple[float, tuple[str, ...]]] = {}
        """By UID, when a condition was last sent, and which."""
        self._paused_until = float("-inf")
        self._failures = 0
        self._told = ""
        """The error that was last logged."""
        self._began = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="conditions", daemon=True)

    def start(self) -> None:
        """Begin to write, once heartbeats are known."""
        self._thread.start()

    def close(self) -> None:
        """Begin no more writes, and wait for the one under way."""
        self._closing.set()
        self._thread.join(self._close_seconds)

    def hear(self, coverage: Coverage, silent: frozenset[str]) -> None:
        """Take over whose kernel log arrives; ``silent`` are the nodes that fell silent alone."""
        self._heard = (coverage, silent)

    def _run(self) -> None:
        while not self._closing.wait(ROUND_SECONDS):
            try:
                self.round()
            except Exception:  # noqa: BLE001  # the thread must go on with the next round; logged in full
                logs.LOGGER.exception("Writing Node conditions failed. Please report this.")
                self._paused_until = self._clock() + AGAIN_SECONDS

    def round(self) -> None:
        """Write the next few conditions."""
        heard = self._heard
        if heard is None or self._clock() < self._paused_until:
            return
        states, waiting = self._nodes.snapshot(), []
        if heard is not self._settled_by:
            self._settled_by = heard
            self._settled.clear()
            uids = {state.as_read.uid for state in states.values()}
            self._stood = {uid: each for uid, each in self._stood.items() if uid in uids}
            self._sent = {uid: each for uid, each in self._sent.items() if uid in uids}
        for state in states.values():
            if self._settled.get(state.as_read.uid) is state:
                continue
            due = self._due(state, *heard)
            if due is None:
                self._settled[state.as_read.uid] = state
            else:
                waiting.append(due)
        self._metrics.conditions_waiting.set(len(waiting))
        if waiting and not self._began:
            self._began = True
            self._log_old(waiting)
        may_send = [each for each in waiting if self._may_send(*each)]
        may_send.sort(key=lambda each: not _is_urgent(*each))
        for state, condition in may_send[:WRITES_A_ROUND]:
            if self._closing.is_set() or not self._send(state, condition):
                return

    def _due(
        self, state: NodeState, coverage: Coverage, silent: frozenset[str]
    ) -> tuple[NodeState, Condition | None] | None:
        """Return the node with the condition to write (None removes it); None if the node needs no write."""
        kind, uid, stands = self._kind, state.as_read.uid, standing(self._kind, state)
        if stands is not None:
            self._stood[uid] = stands
        heard = coverage.of(state.name) is CoverageState.MEASURED
        condition = wanted(kind, state, silent=state.name in silent, heard=heard)
        is_old = any(each.type != kind for each in state.conditions)
        if significant(condition) == significant(stands) and not is_old:
            return None
        if condition is not None:
            before = self._stood.get(uid)
            since = before.since if before and before.status == condition.status else ""
            condition = replace(condition, since=since or stamp(self._now()))
        return state, condition

    def _may_send(self, state: NodeState, condition: Condition | None) -> bool:
        sent_at, sent = self._sent.get(state.as_read.uid, (float("-inf"), None))
        return sent != significant(condition) or self._clock() - sent_at >= AGAIN_SECONDS

    def _send(self, state: NodeState, condition: Condition | None) -> bool:
        """Write one condition. Return whether the next one may be written now."""
        uid, result = state.as_read.uid, "written"
        self._sent[uid] = (self._clock(), significant(condition))
        try:
            self._nodes.apply(self._write(state, condition, self._now()))
        except LeadershipLost:
            return False
        except (KubeNotFound, KubeConflict, KubeInvalid):
            result = "failed"  # the Node was deleted, or created again: the watch will show it
        except KubeError as error:
            del self._sent[uid]
            self._failed(error)
            return False
        self._metrics.condition_writes.labels(result).inc()
        self._failures, self._told = 0, ""
        return True

    def _failed(self, error: KubeError) -> None:
        denied = isinstance(error, KubeForbidden)
        self._metrics.condition_writes.labels("denied" if denied else "failed").inc()
        self._metrics.kube_errors.labels(type(error).__name__).inc()
        self._failures += 1
        wait_seconds = DENIED_SECONDS
        if error.transient:
            wait_seconds = BACKOFF.seconds(self._failures, error.retry_after_seconds)
        self._paused_until = self._clock() + wait_seconds
        if self._told == type(error).__name__:
            return
        self._told = type(error).__name__
        todo = ""
        if denied:
            todo = (
                " Apply manifests/node_condition.yaml. Its policy must name every condition that the "
                "controller writes or removes."
            )
        logs.warning(f"{error}. The controller taints nodes as before, and tries this again later.{todo}")

    def _log_old(self, waiting: list[tuple[NodeState, Condition | None]]) -> None:
        """Log which conditions are removed because the setting has changed."""
        old = {each.type for state, _ in waiting for each in state.conditions if each.type != self._kind}
        if old:
            setting = f"KONDUCTOR_NODE_CONDITION is {self._kind or 'empty'}"
            logs.info(
                f"{setting}: the controller removes the Node condition {listed(sorted(old), 5)} of before."
            )


def _is_urgent(state: NodeState, condition: Condition | None) -> bool:
    """Whether the condition becomes True, or is True and must not stay so: other tools act on that."""
    return any(each.status == "True" for each in (*state.conditions, condition) if each)
