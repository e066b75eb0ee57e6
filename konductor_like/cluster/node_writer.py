"""Carrying out changes: one JSON Patch each, a bounded number at once, patient, and never past the deadline.

A conflict is not resolved here: the node is read again and handed back, because what to write is decided
anew.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Protocol

from konductor_like.cluster import node_patch
from konductor_like.cluster.client import KubeClient, node_path
from konductor_like.cluster.errors import Backoff, KubeConflict, KubeError, KubeInvalid, KubeNotFound
from konductor_like.cluster.node_decoder import NodeDecoder
from konductor_like.cluster.transport import JsonObject
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
    """FAILED, but the change may have been made: the next watch event or read will show it."""


class WriteDeadline(Protocol):
    """Says whether a write may start now, and how long it may take; the Lease is one (rule 24)."""

    def budget_seconds(self) -> float:
        """How long a write that starts now may take. Raises LeadershipLost when none may start."""
        ...


class NoDeadline:
    """For the command line: a person writes, guarded by the patch's own tests."""

    def budget_seconds(self) -> float:
        """No limit."""
        return math.inf


class _WritePool:
    """Does jobs in threads. One that takes long goes on by itself: it is *late*.

    For one thread, except ``finish``.
    """

    def __init__(self, size: int, linger_seconds: float) -> None:
        """``linger_seconds`` is the longest wait for the next job to end, once all have begun."""
        self._size = size
        self._linger_seconds = linger_seconds
        self._late: dict[str, Future[WriteResult]] = {}

    def collect(self, name: str) -> WriteResult | None:
        """How the late job of that name ended, given once; None where none has ended."""
        late = self._late.get(name)
        return self._late.pop(name).result() if late is not None and late.done() else None

    def do(self, jobs: Mapping[str, Callable[[], WriteResult]]) -> dict[str, WriteResult]:
        """Do them all; a job must not raise.

        Those that are late are missing from the answer, and not begun where one of that name is under way.
        """
        if not jobs:
            return {}
        pool = ThreadPoolExecutor(min(self._size, len(jobs)), thread_name_prefix="write")
        futures = {name: pool.submit(job) for name, job in jobs.items() if name not in self._late}
        pool.shutdown(wait=False)  # its threads end with their jobs, late ones too
        left = set(futures.values())
        while left:
            done, left = wait(left, self._linger_seconds, FIRST_COMPLETED)
            if not done and all(future.running() or future.done() for future in left):
                break
        self._late |= {name: future for name, future in futures.items() if not future.done()}
        return {name: future.result() for name, future in futures.items() if name not in self._late}

    def finish(self, timeout_seconds: float) -> bool:
        """Wait until nothing is under way; whether that was reached. May be called from another thread."""
        return not wait(list(self._late.values()), timeout_seconds).not_done


class NodeWriter:
    """Writes to Nodes. Thread-safe."""

    def __init__(
        self,
        client: KubeClient,
        decode: NodeDecoder,
        deadline: WriteDeadline,
        *,
        timeout_seconds: float,
        write_concurrency: int = 8,
        patience_seconds: float = _PATIENCE_SECONDS,
        linger_seconds: float = LINGER_SECONDS,
        on_state: Callable[[NodeState, NodeState | None], object] = lambda _state, _written: None,
        backoff: Backoff | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``patience_seconds`` bounds all tries of one write; a true ``sleep`` ends them (``Event.wait``).

        ``on_state`` gets, at once and from any thread, the node's state by each answer, and the state that we
        meant to write; None where the answer is to a read.
        """
        self._client = client
        self._decode = decode
        self._deadline = deadline
        self._timeout_seconds = timeout_seconds
        self._pool = _WritePool(write_concurrency, linger_seconds)
        self._on_state = on_state
        self._patience_seconds = patience_seconds
        self._backoff = backoff or Backoff()
        self._sleep = sleep
        self._clock = clock

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        """Write all of them, some at once; the results are in the order of ``pairs``, one per node.

        A node that the server is slow with delays no other: its write is UNDER_WAY. How that ended is the
        result when the node is to be written again, unless it went well.
        """
        results: dict[str, WriteResult] = {}
        for _, change in pairs:
            before = self._pool.collect(change.node)
            if before is not None and before.outcome is Outcome.FAILED:
                results[change.node] = replace(before, change=change)
        jobs = {
            change.node: partial(self.write, state, change)
            for state, change in pairs
            if change.node not in results
        }
        results |= self._pool.do(jobs)
        return [
            results.get(change.node) or WriteResult(change, Outcome.UNDER_WAY, outcome_unknown=True)
            for _, change in pairs
        ]

    def finish(self, timeout_seconds: float) -> bool:
        """Wait until no write is under way; whether that was reached."""
        return self._pool.finish(timeout_seconds)

    def write(self, state: NodeState, change: Change) -> WriteResult:
        """Write one change that was decided on ``state``. What goes wrong is in the result, never raised."""
        operations = node_patch.build(state, change)
        if not operations:
            return WriteResult(change, Outcome.APPLIED, state)
        give_up_at = self._clock() + self._patience_seconds
        failures, unknown = 0, False
        while True:
            try:
                budget = self._deadline.budget_seconds()
                answer = self._client.patch(
                    node_path(change.node), operations, timeout_seconds=min(budget, self._timeout_seconds)
                )
                written = node_patch.applied(state, change)
                return WriteResult(change, Outcome.APPLIED, self._decoded(answer, written))
            except KubeNotFound:
                return WriteResult(change, Outcome.GONE)
            except (KubeConflict, KubeInvalid) as error:
                return self._read_again(state, change, error, unknown)
            except KubeError as error:
                unknown = unknown or error.outcome_unknown
                failures += 1
                wait = self._backoff.seconds(failures, error.retry_after_seconds)
                hopeless = not error.transient or self._clock() + wait > give_up_at
                if hopeless or not self._may_wait(wait) or self._sleep(wait):
                    return WriteResult(change, Outcome.FAILED, error=error, outcome_unknown=unknown)

    def _decoded(self, answer: JsonObject, written: NodeState | None = None) -> NodeState:
        state = self._decode(answer)
        self._on_state(state, written)
        return state

    def _may_wait(self, seconds: float) -> bool:
        try:
            return self._deadline.budget_seconds() > seconds
        except KubeError:
            return False

    def _read_again(self, state: NodeState, change: Change, refusal: KubeError, unknown: bool) -> WriteResult:
        """The server refused: read the node: was the race lost, or is the change not valid?"""
        try:
            fresh = self._decoded(self._client.get(node_path(change.node)))
        except KubeNotFound:
            return WriteResult(change, Outcome.GONE)
        except KubeError as error:
            return WriteResult(change, Outcome.FAILED, error=error, outcome_unknown=unknown)
        again = node_patch.build(fresh, change)
        if fresh.as_read.uid == state.as_read.uid and not again:
            return WriteResult(change, Outcome.APPLIED, fresh)  # an earlier try got through after all
        if isinstance(refusal, KubeInvalid) and again == node_patch.build(state, change):
            return WriteResult(change, Outcome.FAILED, fresh, refusal)  # the same patch, refused for itself
        return WriteResult(change, Outcome.CONFLICT, fresh)


class DryRunWriter:
    """Stands in for a ``NodeWriter`` in a dry run: gives what would come of it, and has no client."""

    def __init__(self, *, shorten: bool = True) -> None:
        """Without ``shorten`` records are not cut to the size of an annotation, which takes time."""
        self._shorten = shorten

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        """What ``NodeWriter.write_all`` would give if nobody else wrote."""
        return [self.write(state, change) for state, change in pairs]

    def write(self, state: NodeState, change: Change) -> WriteResult:
        """What ``NodeWriter.write`` would give if nobody else wrote."""
        return WriteResult(change, Outcome.APPLIED, node_patch.applied(state, change, shorten=self._shorten))
