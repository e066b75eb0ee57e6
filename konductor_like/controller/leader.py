"""Leading and standing by: everything around a leadership.

Nothing here throws out of the loop: what a dependency refuses is said, backed off from with jitter, and
visible in readiness (rule 27). Only a definite denial or a wrong setting, found at the start, ends the
process, with code 2.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from konductor_like.cluster.errors import KubeError
from konductor_like.cluster.lease import LeaderLease, LeaseKeeper
from konductor_like.cluster.node_store import NodeStore
from konductor_like.controller import logs
from konductor_like.controller.leadership import Leadership
from konductor_like.controller.metrics import Metrics
from konductor_like.exits import Exit
from konductor_like.model import Checkpoint, Coverage
from konductor_like.model.time import moment_of, stamp

STANDBY_SECONDS = 2.0
SYNC_SECONDS = 1.0
BACKOFF_CAP_SECONDS = 30.0
STUCK_SECONDS = 180.0
"""A loop that has not turned for so long is not alive."""


MakeLeadership = Callable[[Checkpoint | None, Coverage | None, threading.Event], Leadership]
"""Builds a leadership: from where reading begins (None on the very first start), and what ends it."""


class Controller:
    """Leads when it may, stands by when another does, until told to stop."""

    def __init__(
        self,
        store: NodeStore,
        lease: LeaderLease | None,
        make_leadership: MakeLeadership,
        prepare: Callable[[], list[str]],
        metrics: Metrics,
        *,
        once: bool,
        finish_writes: Callable[[], object] = lambda: None,
    ) -> None:
        """``lease`` is None for a dry run; ``prepare`` gives what is missing for good or raises KubeError.

        ``finish_writes`` returns once no write is under way, so that none of ours meets the next leader's.
        """
        self._store = store
        self._lease = lease
        self._make_leadership = make_leadership
        self._prepare = prepare
        self._metrics = metrics
        self._once = once
        self._finish_writes = finish_writes
        self._leadership: Leadership | None = None
        self._alive_seconds = time.monotonic()
        self._obstacle = "starting"
        self._failures = 0

    def run(self, stop: threading.Event) -> int:
        """Run until ``stop``; gives the exit code."""
        self._store.start()
        try:
            if not self._prepared(stop):
                return Exit.OK if stop.is_set() else Exit.USAGE
            if not self._synced(stop):
                return Exit.OK
            if self._lease is None:
                return self._lead(stop)
            return self._lead_or_stand_by(self._lease, stop)
        finally:
            self._store.stop()

    def alive(self) -> list[str]:
        """Why we are stuck; empty while the loop turns."""
        leadership = self._leadership
        reconciled_seconds = float("-inf") if leadership is None else leadership.last_reconcile_seconds
        idle_seconds = time.monotonic() - max(self._alive_seconds, reconciled_seconds)
        return [f"the loop has not turned for {idle_seconds:.0f} s"] if idle_seconds > STUCK_SECONDS else []

    def ready(self) -> list[str]:
        """Why we could not do the work; standing by, able to take over, counts as ready."""
        reasons = [self._obstacle] if self._obstacle else []
        if self._store.problem is not None:
            reasons.append(f"the API server: {self._store.problem}")
        leadership = self._leadership
        if leadership is not None:
            reasons.extend(
                f"{name} lines: {loop.problem}"
                for name, loop in leadership.loops.items()
                if loop.problem is not None
            )
            if (since_ns := leadership.unread_since_ns()) is not None:
                reasons.append(
                    f"kernel lines: read in full up to {stamp(moment_of(since_ns))} and no further, "
                    "so every node that nothing stands against counts as unknown"
                )
        return reasons

    def nodes_changed(self) -> None:
        """The nodes are not as they were; may be called from another thread."""
        leadership = self._leadership
        if leadership is not None:
            leadership.wake()

    def _prepared(self, stop: threading.Event) -> bool:
        while not stop.is_set():
            try:
                missing = self._prepare()
            except KubeError as error:
                if not error.transient:
                    logs.error(logs.told(error))
                    return False
                self._trouble(error, stop)
                continue
            for sentence in missing:
                logs.error(sentence)
            self._well()
            return not missing
        return False

    def _synced(self, stop: threading.Event) -> bool:
        self._obstacle = "the nodes are not listed yet"
        said: str | None = None
        while not self._store.wait_synced(SYNC_SECONDS):
            self._alive_seconds = time.monotonic()
            if stop.is_set():
                return False
            problem = self._store.problem
            if problem is not None and str(problem) != said:
                said = str(problem)
                logs.error(f"{logs.told(problem)} Trying again.")
        self._obstacle = ""
        return True

    def _lead_or_stand_by(self, lease: LeaderLease, stop: threading.Event) -> int:
        said: str | None = None
        answered = False
        while not stop.is_set():
            self._alive_seconds = time.monotonic()
            try:
                status = lease.try_acquire()
            except KubeError as error:
                if not (error.transient or answered):
                    logs.error(f"The Lease cannot be taken. {logs.told(error)}")
                    return Exit.USAGE
                self._trouble(error, stop)
                continue
            answered = True
            self._well()
            if status.is_ours:
                said = None
                if status.problem:
                    logs.warning(f"What the Lease carries cannot be read in full: {status.problem}.")
                code = self._lead(stop, status.checkpoint, status.coverage)
                if self._once or stop.is_set():
                    return code
                continue
            if status.holder != said:
                said = status.holder
                logs.warning(
                    f"The Lease is held by {status.holder}: standing by. "
                    "To look without acting, use --dry-run.",
                    holder=status.holder,
                )
            if self._once:
                return Exit.FAILED
            stop.wait(STANDBY_SECONDS)
        return Exit.OK

    def _lead(
        self, stop: threading.Event, checkpoint: Checkpoint | None = None, coverage: Coverage | None = None
    ) -> int:
        """One leadership; ends when told to stop, or when the Lease is lost."""
        lease, ended, lost = self._lease, threading.Event(), threading.Event()
        self._leadership = leadership = self._make_leadership(checkpoint, coverage, ended)
        self._obstacle = ""
        self._metrics.leader.set(1 if lease else 0)
        _say_start(checkpoint, dry_run=lease is None)

        def on_loss(why: str) -> None:
            lost.set()
            logs.error(f"The Lease is lost: {why} Nothing is written from now on.")
            ended.set()
            leadership.wake()

        watcher = threading.Thread(target=_link, args=(stop, ended, leadership), name="stop", daemon=True)
        watcher.start()
        keeper = LeaseKeeper(lease, leadership.carried, on_loss) if lease else None
        if keeper:
            keeper.start()
        try:
            if self._once:
                return Exit.OK if leadership.run_once() else Exit.FAILED
            leadership.run()
            return Exit.OK
        finally:
            ended.set()
            watcher.join()
            self._finish_writes()
            if keeper and lease:
                keeper.stop()
                if not lease.release(leadership.carried()) and not lost.is_set():
                    logs.warning(
                        "The Lease could not be released; the next controller waits for it to expire."
                    )
            self._metrics.leader.set(0)
            self._leadership = None

    def _trouble(self, error: KubeError, stop: threading.Event) -> None:
        self._failures += 1
        self._metrics.kube_errors.labels(type(error).__name__).inc()
        if self._obstacle != str(error):
            logs.error(f"{logs.told(error)} Trying again.")
        self._obstacle = str(error)
        self._alive_seconds = time.monotonic()
        longest = min(BACKOFF_CAP_SECONDS, 2.0 ** min(self._failures, 16))
        stop.wait(random.uniform(0.5, longest))  # noqa: S311  # jitter

    def _well(self) -> None:
        self._failures, self._obstacle = 0, ""


def _link(stop: threading.Event, ended: threading.Event, leadership: Leadership) -> None:
    """Let ``stop`` end the leadership too, at once; returns when the leadership has ended by itself."""
    while not ended.is_set():
        if stop.wait(0.2):
            ended.set()
            leadership.wake()


def _say_start(checkpoint: Checkpoint | None, *, dry_run: bool) -> None:
    where = "for the first time: no cursor is saved yet."
    if dry_run:
        where = "as on a first start: a dry run has no cursor of its own."
    elif checkpoint is not None:
        cursors = [
            f"{source.value} lines from {stamp(moment_of(ns))}" for source, ns in checkpoint.read_ns.items()
        ]
        where = f"from the saved cursor: {', '.join(cursors)}."
    logs.info(f"Reading Loki {where}")
