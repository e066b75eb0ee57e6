"""Carrying out changes: one JSON Patch each, a bounded number at once, patient, and never past the fence.

A conflict is not resolved here: the node is read again and handed back, because what to write is decided
anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from konductor_like.cluster import patch, paths
from konductor_like.cluster.backoff import Backoff
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.crew import Crew
from konductor_like.cluster.decode import JsonObject, NodeDecoder
from konductor_like.cluster.errors import KubeConflict, KubeError, KubeInvalid, KubeNotFound
from konductor_like.cluster.fence import Fence
from konductor_like.model import Change, NodeState

_PATIENCE_SECONDS = 30.0
LINGER_SECONDS = 1.0
"""How long a write holds up the others' next ones; what takes longer goes on by itself."""


class Outcome(StrEnum):
    """How a write ended."""

    APPLIED = "applied"
    """The node is as the change wants it."""
    CONFLICT = "conflict"
    """Somebody was faster: decide again on the fresh state."""
    GONE = "gone"
    """There is no such Node any more."""
    FAILED = "failed"
    """It could not be written; see the error."""
    UNDER_WAY = "under way"
    """The server is slow: the write goes on, and the node is not written again before it has ended."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """One write and how it ended. ``state`` is the node as it is now, where that is known."""

    change: Change
    outcome: Outcome
    state: NodeState | None = None
    error: KubeError | None = None
    outcome_unknown: bool = False
    """FAILED, but the change may have been made: the next watch event or read will tell."""


class NodeWriter:
    """Writes to Nodes. Thread-safe."""

    def __init__(
        self,
        client: KubeClient,
        decode: NodeDecoder,
        fence: Fence,
        *,
        timeout_seconds: float,
        write_concurrency: int = 8,
        patience_seconds: float = _PATIENCE_SECONDS,
        linger_seconds: float = LINGER_SECONDS,
        on_state: Callable[[NodeState], object] = lambda _: None,
        backoff: Backoff | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``patience_seconds`` bounds all tries of one write; a true ``sleep`` ends them (``Event.wait``).

        ``on_state`` is told at once, from any thread, what an answer says of a node.
        """
        self._client = client
        self._decode = decode
        self._fence = fence
        self._timeout_seconds = timeout_seconds
        self._crew: Crew[WriteResult] = Crew(write_concurrency, linger_seconds)
        self._on_state = on_state
        self._patience_seconds = patience_seconds
        self._backoff = backoff or Backoff()
        self._sleep = sleep
        self._clock = clock

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        """Write all of them, some at once; the results are in the order of ``pairs``, one per node.

        A node that the server is slow with holds up nobody: its write is UNDER_WAY, and how that ended is
        told when the node is to be written again, unless it went well.
        """
        results: dict[str, WriteResult] = {}
        for _, change in pairs:
            before = self._crew.collect(change.node)
            if before is not None and before.outcome is Outcome.FAILED:
                results[change.node] = replace(before, change=change)
            elif self._crew.is_late(change.node):
                results[change.node] = WriteResult(change, Outcome.UNDER_WAY, outcome_unknown=True)
        jobs = {pair[1].node: partial(self.write, *pair) for pair in pairs if pair[1].node not in results}
        results |= self._crew.do(jobs)
        return [
            results.get(change.node) or WriteResult(change, Outcome.UNDER_WAY, outcome_unknown=True)
            for _, change in pairs
        ]

    def finish(self, timeout_seconds: float) -> bool:
        """Wait until no write is under way; whether that was reached."""
        return self._crew.finish(timeout_seconds)

    def write(self, state: NodeState, change: Change) -> WriteResult:
        """Write one change that was decided on ``state``. What goes wrong is in the result, never raised."""
        operations = patch.build(state, change)
        if not operations:
            return WriteResult(change, Outcome.APPLIED, state)
        give_up_at = self._clock() + self._patience_seconds
        failures, unknown = 0, False
        while True:
            try:
                budget = self._fence.budget_seconds()
                answer = self._client.patch(
                    paths.node(change.node), operations, timeout_seconds=min(budget, self._timeout_seconds)
                )
                return WriteResult(change, Outcome.APPLIED, self._noticed(answer))
            except KubeNotFound:
                return WriteResult(change, Outcome.GONE)
            except (KubeConflict, KubeInvalid) as error:
                return self._look_again(state, change, error, unknown)
            except KubeError as error:
                unknown = unknown or error.outcome_unknown
                failures += 1
                wait = self._backoff.seconds(failures, error.retry_after_seconds)
                hopeless = not error.transient or self._clock() + wait > give_up_at
                if hopeless or not self._may_wait(wait) or self._sleep(wait):
                    return WriteResult(change, Outcome.FAILED, error=error, outcome_unknown=unknown)

    def _noticed(self, answer: JsonObject) -> NodeState:
        state = self._decode(answer)
        self._on_state(state)
        return state

    def _may_wait(self, seconds: float) -> bool:
        try:
            return self._fence.budget_seconds() > seconds
        except KubeError:
            return False

    def _look_again(self, state: NodeState, change: Change, refusal: KubeError, unknown: bool) -> WriteResult:
        """The server refused: read the node, to tell a lost race from a change that is not valid."""
        try:
            fresh = self._noticed(self._client.get(paths.node(change.node)))
        except KubeNotFound:
            return WriteResult(change, Outcome.GONE)
        except KubeError as error:
            return WriteResult(change, Outcome.FAILED, error=error, outcome_unknown=unknown)
        if fresh.as_read.uid == state.as_read.uid and not patch.build(fresh, change):
            return WriteResult(change, Outcome.APPLIED, fresh)  # an earlier try got through after all
        if isinstance(refusal, KubeInvalid) and patch.same_ground(state, fresh):
            return WriteResult(change, Outcome.FAILED, fresh, refusal)
        return WriteResult(change, Outcome.CONFLICT, fresh)


class DryRunWriter:
    """Stands in for a ``NodeWriter`` in a dry run: says what would come of it, and has no client."""

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        """What ``NodeWriter.write_all`` would give if nobody else wrote."""
        return [self.write(state, change) for state, change in pairs]

    def write(self, state: NodeState, change: Change) -> WriteResult:
        """What ``NodeWriter.write`` would give if nobody else wrote."""
        return WriteResult(change, Outcome.APPLIED, patch.applied(state, change))
