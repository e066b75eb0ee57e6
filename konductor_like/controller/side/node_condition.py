"""Keeps the Node condition of every node as it should be, in a thread beside the reconcile (rules 33 and 40).

Once a second the thread compares what the Nodes have with what they should have, and writes five Nodes at
most, faulty ones first. When nothing is left to write, it looks again after five seconds. It remembers
little: what a Node has comes from the watch. While nothing changes, it sends nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from konductor_like.backoff import Backoff
from konductor_like.cluster.api.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
    LeadershipLost,
)
from konductor_like.cluster.node.condition import significant, standing, wanted
from konductor_like.controller import logs
from konductor_like.controller.ports import Nodes
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.work import SideThread
from konductor_like.model import Condition, Coverage, CoverageState, NodeState
from konductor_like.model.text import listed
from konductor_like.model.time import stamp

ROUND_SECONDS = 1.0
IDLE_SECONDS = 5.0
"""Seconds to the next round after one that found nothing to write: looking at 5,000 Nodes costs 10 ms."""
WRITES_A_ROUND = 5
CLOSE_SECONDS = 5.0
"""Seconds for which the end of a leadership waits for the write under way."""
AGAIN_SECONDS = 60.0
"""Seconds until the same condition of a node is written again: another writer may remove it each time."""
DENIED_SECONDS = 600.0
"""Seconds until a write is tried again that the API server refused for good. A missing right stops all nodes;
what an admission policy refuses stops one node: its kubelet may write conditions that look like ours."""

BACKOFF = Backoff()

WriteCondition = Callable[[NodeState, Condition | None, datetime], NodeState]
"""Writes a node's condition (None removes it) and returns its state then, or raises a KubeError."""


class NodeConditions(SideThread):
    """Writes the conditions of one leadership."""

    def __init__(
        self,
        kind: str,
        nodes: Nodes,
        write: WriteCondition,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``kind`` is the condition's type. If it is empty, conditions that stand are removed.

        ``clock`` returns seconds.
        """
        super().__init__(name="conditions", what="Node conditions", close_seconds=CLOSE_SECONDS)
        self._kind = kind
        self._nodes = nodes
        self._write = write
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._heard: tuple[Coverage, frozenset[str]] | None = None
        self._sent: dict[str, tuple[float, Condition | None]] = {}
        """By UID, when a condition was last sent, and which: another writer may have removed it since."""
        self._refused: dict[tuple[str, bool], float] = {}
        """By UID, and whether old conditions were to be removed: until when that write is not tried again.
        An entry stays for ten minutes more, because the next try may be refused too."""
        self._old: set[str] = set()
        """The conditions whose removal was logged."""
        self._paused_until = float("-inf")
        self._failures = 0
        self._idle, self._wait_seconds = False, ROUND_SECONDS

    def hear(self, coverage: Coverage, silent: frozenset[str]) -> None:
        """Take over whose kernel log arrives; ``silent`` are the nodes that fell silent alone."""
        self._heard = (coverage, silent)

    def step(self) -> None:
        """Wait, and write the next few conditions."""
        if not self.closing.wait(self._wait_seconds):
            self._wait_seconds = AGAIN_SECONDS  # after a bug
            self.round()
            self._wait_seconds = IDLE_SECONDS if self._idle else ROUND_SECONDS

    def round(self) -> None:
        """Write the next few conditions."""
        if self._heard is None or self._clock() < self._paused_until:
            return
        waiting = [*self._waiting(*self._heard)]
        self._idle = not waiting
        self._metrics.conditions_waiting.set(len(waiting))
        old = {each.type for state, _ in waiting for each in state.conditions} - {self._kind}
        if not old <= self._old:
            self._old |= old
            names = listed(sorted(old), 5)
            logs.info(f"By its settings, the controller removes the Node condition {names} of before.")
        may_send = sorted(filter(self._may_send, waiting), key=self._turn)
        for state, condition in may_send[:WRITES_A_ROUND]:
            if self.closing.is_set() or not self._send(state, condition):
                return

    def _waiting(
        self, coverage: Coverage, silent: frozenset[str]
    ) -> Iterator[tuple[NodeState, Condition | None]]:
        """Return the nodes that need a write, each with its condition (None removes it)."""
        nodes = self._nodes.snapshot().values()
        states = {state.as_read.uid: state for state in nodes if self._kind or state.conditions}
        self._sent = {uid: sent for uid, sent in self._sent.items() if uid in states}
        old = self._clock() - DENIED_SECONDS
        self._refused = {key: till for key, till in self._refused.items() if key[0] in states and till > old}
        for uid, state in states.items():
            if self._is_refused(uid, removing=True):
                ours = tuple(each for each in state.conditions if each.type == self._kind)
                state = replace(state, conditions=ours)  # the others are not ours to remove
            stands = standing(self._kind, state)
            heard = coverage.of(state.name) is CoverageState.MEASURED
            condition = wanted(self._kind, state, silent=state.name in silent, heard=heard)
            is_old = any(each.type != self._kind for each in state.conditions)
            if significant(condition) == significant(stands) and not is_old:
                continue
            if condition is not None:
                before = stands or self._sent.get(uid, (0.0, None))[1]
                since = before.since if before and before.status == condition.status else ""
                condition = replace(condition, since=since or stamp(self._now()))
            yield state, condition

    def _may_send(self, due: tuple[NodeState, Condition | None]) -> bool:
        state, condition = due
        sent_at, sent = self._sent.get(state.as_read.uid, (float("-inf"), None))
        if self._is_refused(state.as_read.uid, removing=False):
            return False
        return self._clock() - sent_at >= AGAIN_SECONDS or significant(sent) != significant(condition)

    def _is_refused(self, uid: str, *, removing: bool) -> bool:
        return self._clock() < self._refused.get((uid, removing), float("-inf"))

    def _turn(self, due: tuple[NodeState, Condition | None]) -> tuple[bool, bool]:
        """Sort nodes: one whose writes were refused before delays no other, and urgent ones go first."""
        uid = due[0].as_read.uid
        return any((uid, removing) in self._refused for removing in (True, False)), _is_not_urgent(due)

    def _send(self, state: NodeState, condition: Condition | None) -> bool:
        """Write one condition. Return whether the next one may be written now."""
        try:
            self._nodes.apply(self._write(state, condition, self._now()))
        except LeadershipLost:
            return False
        except (KubeNotFound, KubeConflict, KubeInvalid):
            pass  # the Node was deleted, or created again: the watch will show it
        except KubeError as error:
            self._failed(error, state)
            return False
        uid = state.as_read.uid
        self._sent[uid] = (self._clock(), condition)
        self._refused.pop((uid, False), None)
        self._failures = 0
        return True

    def _failed(self, error: KubeError, state: NodeState) -> None:
        """Make a pause, and log the first of several failures."""
        self._metrics.kube_errors.labels(type(error).__name__).inc()
        self._failures += 1
        backoff_seconds = BACKOFF.seconds(self._failures, error.retry_after_seconds)
        all_are_denied = isinstance(error, KubeForbidden) and not error.by_admission
        self._paused_until = self._clock() + (DENIED_SECONDS if all_are_denied else backoff_seconds)
        is_new = self._failures == 1
        if not (all_are_denied or error.transient):
            removing = any(each.type != self._kind for each in state.conditions)
            refused = (state.as_read.uid, removing)
            is_new = is_new and refused not in self._refused
            self._refused[refused] = self._clock() + DENIED_SECONDS
        if is_new:
            logs.warning(
                f"{error}. The controller taints nodes as before, and tries this again later. If a right is "
                "missing, apply manifests/node_condition.yaml: its policy must name every condition that the "
                "controller writes or removes."
            )


def _is_not_urgent(due: tuple[NodeState, Condition | None]) -> bool:
    """Whether the condition neither becomes True nor must not stay True: other tools act on that."""
    return all(each is None or each.status != "True" for each in (*due[0].conditions, due[1]))
