"""Write changes to Nodes: each is one JSON Patch, with retries, and never after the write deadline.

A bounded number of patches is sent at once. After a conflict the writer only reads the node again and returns
its state: the caller must decide again on that state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Protocol

from konductor_like.backoff import Backoff
from konductor_like.cluster.api.client import KubeClient, node_path
from konductor_like.cluster.api.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
    refused_right,
)
from konductor_like.cluster.api.transport import STRATEGIC_MERGE_PATCH, JsonObject
from konductor_like.cluster.node import patch as node_patch
from konductor_like.cluster.node.condition import patch_of
from konductor_like.cluster.node.decoder import NodeDecoder
from konductor_like.model import NEEDS_LABEL, Change, Condition, NodeState, Verb

_PATIENCE_SECONDS = 30.0
"""Seconds for all tries of one write."""
LABEL_REFUSED_SECONDS = 600.0
"""Seconds for which no label for needs is written after an admission policy refused one."""
REFUSED_SECONDS = 120.0
"""Seconds for which a Node that had no room for its record is written without it."""
LINGER_SECONDS = 1.0
"""Seconds that ``write_all`` waits for a slow write; after that the write continues in its own thread."""


class Outcome(StrEnum):
    """The result of a write."""

    APPLIED = "applied"
    """The node is as the change wants it."""
    CONFLICT = "conflict"
    """Somebody else changed the node first: decide again on the new state."""
    GONE = "gone"
    """The Node does not exist any more."""
    FAILED = "failed"
    """The write failed; see the error."""
    UNDER_WAY = "under way"
    """The server is slow: the write continues, and the node is not written again before its end."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """One write and its outcome. ``state`` is the present state of the node, if known."""

    change: Change
    outcome: Outcome
    state: NodeState | None = None
    error: KubeError | None = None
    outcome_unknown: bool = False
    """No usable answer came, but the server may have made the change: the next event or read shows it."""
    form: node_patch.Form = node_patch.WHOLE
    """What was written of the change."""
    refusal: KubeError | None = None
    """Why the change was not written whole; None if it was, or if the reason is known from a write before."""

    @property
    def has_record(self) -> bool:
        """Whether the Node has the whole record now."""
        return self.form.record is node_patch.RecordForm.FULL


class WriteDeadline(Protocol):
    """A limit of time for writes, such as the Lease's renew deadline (rule 24)."""

    def budget_seconds(self) -> float:
        """Return the seconds that a write may take now. Raises LeadershipLost if no write may start."""
        ...


class NoDeadline:
    """The deadline of the command line: a person writes, and only the patch's tests guard the write."""

    def budget_seconds(self) -> float:
        """Return infinity."""
        return math.inf


class _WritePool:
    """Runs jobs in threads. A job that takes long is *late*: it continues, and ``do`` returns without it.

    For one thread, except ``finish``.
    """

    def __init__(self, size: int, linger_seconds: float) -> None:
        """After all jobs have begun, ``do`` returns if no job ends within ``linger_seconds``."""
        self._size = size
        self._linger_seconds = linger_seconds
        self._late: dict[str, Future[WriteResult]] = {}

    def collect(self, name: str) -> WriteResult | None:
        """Return the result of the late job with this name, once; None if no such job has ended."""
        late = self._late.get(name)
        return self._late.pop(name).result() if late is not None and late.done() else None

    def do(self, jobs: Mapping[str, Callable[[], WriteResult]]) -> dict[str, WriteResult]:
        """Run all jobs; return the results by name. A job must not raise.

        Late jobs have no result yet. A job is not started while a late job with its name runs.
        """
        if not jobs:
            return {}
        pool = ThreadPoolExecutor(min(self._size, len(jobs)), thread_name_prefix="write")
        futures = {name: pool.submit(job) for name, job in jobs.items() if name not in self._late}
        pool.shutdown(wait=False)  # each thread ends after its last job, a late job too
        left = set(futures.values())
        while left:
            done, left = wait(left, self._linger_seconds, FIRST_COMPLETED)
            if not done and all(future.running() or future.done() for future in left):
                break
        self._late |= {name: future for name, future in futures.items() if not future.done()}
        return {name: future.result() for name, future in futures.items() if name not in self._late}

    def finish(self, timeout_seconds: float) -> bool:
        """Wait for the late jobs. Return whether all have ended. Any thread may call it."""
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
        on_label_refused: Callable[[str], object] = lambda _message: None,
        keep: Callable[[NodeState, Change, node_patch.Form], object] = lambda _state, _change, _form: None,
        backoff: Backoff | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``patience_seconds`` bounds all tries of one write. No more tries once ``sleep`` returns true.

        ``on_state`` is called from any thread with the node's state from each answer, and the state that we
        wanted to write (None after a read). The controller gives ``NodeStore.apply``: so the store also gets
        the answers to late writes, which no result of ``write_all`` has. The reconciler applies the results'
        states too, because the writers of dry run and backtest have no ``on_state``; of a ``NodeWriter`` the
        store knows those states already.

        ``on_label_refused`` is called with a message when the API server begins to refuse the label for what
        a node needs, and again every :data:`LABEL_REFUSED_SECONDS` while it does.

        ``keep`` is called before a change is written without the whole record. If it raises a KubeError, the
        change is not written.
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
        self._on_label_refused = on_label_refused
        self._keep = keep
        self._label_refused_until = -math.inf
        self._refused: dict[str, tuple[node_patch.RecordForm, float]] = {}
        """By UID, the form in which a Node takes records, and until when no larger one is tried."""

    @property
    def labels_needs(self) -> bool:
        """Whether the label for what a node needs is written; not for a while after it was refused."""
        return self._clock() >= self._label_refused_until

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        """Write all changes, several at once. Return one result per node, in the order of ``pairs``.

        A slow write does not delay the others: its outcome is UNDER_WAY. If it fails later, the next call for
        its node returns that failure, without a new write.
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
        """Wait for the writes under way. Return whether all have ended."""
        return self._pool.finish(timeout_seconds)

    def write(self, state: NodeState, change: Change) -> WriteResult:
        """Write one change that was decided on ``state``. Errors are in the result and never raised.

        If the Node has no room for the record, or the API server refuses a part of the write, the same write
        is tried with less of it; see ``patch.LADDER``. The result's ``form`` says what was written.
        """
        give_up_at = self._clock() + self._patience_seconds
        first: KubeError | None = None
        label_refusal: KubeError | None = None
        least, sent = node_patch.RecordForm.FULL, list[node_patch.Operations]()
        for form in self._forms(state, change):
            operations = node_patch.build(state, change, form)
            if form.record < least or operations in sent:
                continue
            denied = first is not None and not first.no_room
            leaves_record = form.record > least is node_patch.RecordForm.FULL
            if denied and leaves_record and not self._takes_taint(state, change):
                break
            least = max(least, form.record)
            sent.append(operations)
            if form.record is not node_patch.RecordForm.FULL:
                try:
                    self._keep(state, change, form)
                except KubeError as kept_nowhere:
                    return WriteResult(change, Outcome.FAILED, error=kept_nowhere)
            result = self._in_form(state, change, form, operations, give_up_at)
            error, first = result.refusal, first or result.refusal
            if error is None:
                if label_refusal is not None and not form.needs and result.outcome is Outcome.APPLIED:
                    self._note_refused(label_refusal)
                return self._noted(state, replace(result, refusal=first))
            if error.no_room:
                least = node_patch.RecordForm(min(form.record + 1, node_patch.RecordForm.NONE))
            label_refusal = error if form.needs and not error.no_room else None
        return WriteResult(change, Outcome.FAILED, error=first)

    def _forms(self, state: NodeState, change: Change) -> Iterator[node_patch.Form]:
        """Return the forms to try: not those that this Node has just refused, nor a label that all refuse."""
        least, until = self._refused.get(state.as_read.uid, (node_patch.RecordForm.FULL, -math.inf))
        if self._clock() >= until:
            least = node_patch.RecordForm.FULL
        # A write that is not urgent waits until its whole change is allowed.
        ways = (False, True) if node_patch.removes_more(state, change) and not change.upkeep else (False,)
        for form in node_patch.LADDER:
            is_whole_purge = change.verb is not Verb.PURGE or form.record is node_patch.RecordForm.FULL
            if is_whole_purge and form.record >= least and (self.labels_needs or not form.needs):
                # A policy may refuse to take a taint with another key or effect off: then ours is beside it.
                yield from (replace(form, beside=beside) for beside in ways)

    def _takes_taint(self, state: NodeState, change: Change) -> bool:
        """Whether the server would take the taint alone; asked before a denied write leaves out more."""
        alone = node_patch.build(state, change, replace(node_patch.TAINT_ALONE, beside=True))
        try:
            if alone:
                budget = min(self._deadline.budget_seconds(), self._timeout_seconds)
                self._client.try_patch(node_path(change.node), alone, budget)
        except KubeError:
            return False
        return True

    def _noted(self, state: NodeState, result: WriteResult) -> WriteResult:
        """Remember for a while in which form this Node takes writes."""
        uid, now = state.as_read.uid, self._clock()
        if result.outcome is Outcome.APPLIED and result.form.record is not node_patch.RecordForm.FULL:
            if result.refusal is not None:
                self._refused = {each: till for each, till in self._refused.items() if till[1] > now}
                self._refused[uid] = (result.form.record, now + REFUSED_SECONDS)
        elif result.form.record is node_patch.RecordForm.FULL:
            self._refused.pop(uid, None)
        return result

    def _in_form(
        self,
        state: NodeState,
        change: Change,
        form: node_patch.Form,
        operations: node_patch.Operations,
        give_up_at: float,
    ) -> WriteResult:
        """Send one form of a change, again after errors that pass."""
        if not operations:
            return WriteResult(change, Outcome.APPLIED, state, form=form)
        failures, unknown = 0, False
        while True:
            try:
                budget = self._deadline.budget_seconds()
                answer = self._client.patch(
                    node_path(change.node), operations, timeout_seconds=min(budget, self._timeout_seconds)
                )
                written = node_patch.applied(state, change, form)
                return WriteResult(change, Outcome.APPLIED, self._decoded(answer, written), form=form)
            except KubeNotFound:
                return WriteResult(change, Outcome.GONE)
            except KubeError as error:
                if _is_refusal(error):
                    return WriteResult(change, Outcome.FAILED, error=error, refusal=error)
                if isinstance(error, KubeConflict | KubeInvalid):
                    return self._read_again(state, change, form, error, unknown)
                unknown = unknown or error.outcome_unknown
                failures += 1
                wait = self._backoff.seconds(failures, error.retry_after_seconds)
                hopeless = not error.transient or self._clock() + wait > give_up_at
                if hopeless or not self._may_wait(wait) or self._sleep(wait):
                    return WriteResult(change, Outcome.FAILED, error=error, outcome_unknown=unknown)

    def write_condition(self, state: NodeState, condition: Condition | None, now: datetime) -> NodeState:
        """Write our condition, or with None remove it; return the node's state then. Raises a KubeError."""
        patch = patch_of(state, condition, now)
        timeout_seconds = min(self._deadline.budget_seconds(), self._timeout_seconds)
        path = f"{node_path(state.name)}/status"
        return self._decode(self._client.patch(path, patch, timeout_seconds, STRATEGIC_MERGE_PATCH))

    def _decoded(self, answer: JsonObject, written: NodeState | None = None) -> NodeState:
        state = self._decode(answer)
        self._on_state(state, written)
        return state

    def _note_refused(self, error: KubeError) -> None:
        """Write no such label for a while, and tell once which manifest allows the label."""
        if not self.labels_needs:
            return
        self._label_refused_until = self._clock() + LABEL_REFUSED_SECONDS
        self._on_label_refused(
            f"the API server refuses the label {NEEDS_LABEL}, so Nodes are written without the label. "
            "Install the admission policy of this version, which allows the label: `helm upgrade`, or "
            f"manifests/controller_deployment.yaml ({error})"
        )

    def _may_wait(self, seconds: float) -> bool:
        try:
            return self._deadline.budget_seconds() > seconds
        except KubeError:
            return False

    def _read_again(
        self, state: NodeState, change: Change, form: node_patch.Form, refusal: KubeError, unknown: bool
    ) -> WriteResult:
        """Read the node after a refusal, to tell a lost race from an invalid change."""
        try:
            fresh = self._decoded(self._client.get(node_path(change.node)))
        except KubeNotFound:
            return WriteResult(change, Outcome.GONE)
        except KubeError as error:
            return WriteResult(change, Outcome.FAILED, error=error, outcome_unknown=unknown)
        again = node_patch.build(fresh, change, form)
        if fresh.as_read.uid == state.as_read.uid and not again:
            # An earlier try took effect although its answer was lost.
            return WriteResult(change, Outcome.APPLIED, fresh, form=form)
        if isinstance(refusal, KubeInvalid) and again == node_patch.build(state, change, form):
            return WriteResult(
                change, Outcome.FAILED, fresh, refusal
            )  # the node is unchanged, so the patch itself is invalid
        return WriteResult(change, Outcome.CONFLICT, fresh)


def _is_refusal(error: KubeError) -> bool:
    """Whether the server refuses what was written, and might take less; a missing right refuses it all."""
    denied = error.by_admission or (isinstance(error, KubeForbidden) and not refused_right(error))
    return denied or error.no_room


class DryRunWriter:
    """The writer of a dry run: returns the results that a ``NodeWriter`` would, and has no client."""

    labels_needs = True

    def __init__(self, *, shorten: bool = True) -> None:
        """``shorten=False`` saves the time that cutting the records to the size of an annotation takes."""
        self._shorten = shorten

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        """Return what ``NodeWriter.write_all`` would return if nobody else wrote."""
        return [self.write(state, change) for state, change in pairs]

    def write(self, state: NodeState, change: Change) -> WriteResult:
        """Return what ``NodeWriter.write`` would return if nobody else wrote."""
        return WriteResult(change, Outcome.APPLIED, node_patch.applied(state, change, shorten=self._shorten))
