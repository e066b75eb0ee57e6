"""The controller's outer loop: take the Lease and lead, or stand by while another controller leads.

No error of Loki or of the API server ends this loop. The controller logs the error, waits with jitter, tries
again, and reports itself as not ready meanwhile (rule 27). Only an error at the start that waiting cannot
cure ends the process, with code 2: the API server denies access, or a setting is wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from konductor_like.backoff import Backoff
from konductor_like.build import Program, this_program
from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.lease.election import LeaderLease, LeaseKeeper
from konductor_like.cluster.node.store import NodeStore
from konductor_like.controller import logs
from konductor_like.controller.loop.leadership import Leadership
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.exits import Exit
from konductor_like.model import Checkpoint, Coverage
from konductor_like.model.time import moment_of, stamp

STANDBY_SECONDS = 2.0
"""Seconds between two attempts to take the Lease."""
SYNC_SECONDS = 1.0
BACKOFF = Backoff(first_seconds=2.0)
STUCK_SECONDS = 180.0
"""Seconds without a reconcile or an attempt to lead after which ``/healthz`` fails."""


MakeLeadership = Callable[[Checkpoint | None, Coverage | None, threading.Event], Leadership]
"""Builds a leadership from the checkpoint and the coverage on the Lease, and from the Event that ends it.

On the very first start checkpoint and coverage are None.
"""


class Controller:
    """Leads while it has the Lease and stands by while another controller has it, until ``stop`` is set."""

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
        """Prepare to run.

        ``lease`` is None for a dry run. ``prepare`` returns sentences about missing permissions or objects,
        for which waiting is no cure, or raises a KubeError. ``finish_writes`` waits until no write is under
        way, so that no write of this controller can collide with a write of the next leader.
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
        """Run until ``stop`` is set. Return the exit code."""
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
        """Return why the controller is stuck: one sentence, or none while it works."""
        leadership = self._leadership
        reconciled_seconds = float("-inf") if leadership is None else leadership.last_reconcile_seconds
        idle_seconds = time.monotonic() - max(self._alive_seconds, reconciled_seconds)
        return (
            [f"the control loop has been stuck for {idle_seconds:.0f} s"]
            if idle_seconds > STUCK_SECONDS
            else []
        )

    def ready(self) -> list[str]:
        """Return the reasons why the controller cannot do its work. A standby that can take over is ready."""
        reasons = [self._obstacle] if self._obstacle else []
        if self._store.problem is not None:
            reasons.append(f"the API server: {self._store.problem}")
        leadership = self._leadership
        if leadership is not None:
            reasons.extend(
                f"{name} lines: {poller.problem}"
                for name, poller in leadership.pollers.items()
                if poller.problem is not None
            )
            if (since_ns := leadership.unread_since_ns()) is not None:
                reasons.append(
                    f"kernel lines: all read only up to {stamp(moment_of(since_ns))}, "
                    "so every node without a recorded fault is UNKNOWN"
                )
        return reasons

    def nodes_changed(self) -> None:
        """Reconcile soon, because a Node changed. May be called from any thread."""
        leadership = self._leadership
        if leadership is not None:
            leadership.wake()

    def _prepared(self, stop: threading.Event) -> bool:
        while not stop.is_set():
            try:
                missing = self._prepare()
            except KubeError as error:
                if not error.transient:
                    logs.error(logs.error_text(error))
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
        logged: str | None = None
        while not self._store.wait_synced(SYNC_SECONDS):
            self._alive_seconds = time.monotonic()
            if stop.is_set():
                return False
            problem = self._store.problem
            if problem is not None and str(problem) != logged:
                logged = str(problem)
                logs.error(f"{logs.error_text(problem)} The controller retries.")
        self._obstacle = ""
        return True

    def _lead_or_stand_by(self, lease: LeaderLease, stop: threading.Event) -> int:
        logged: str | None = None
        answered = False
        while not stop.is_set():
            self._alive_seconds = time.monotonic()
            try:
                status = lease.try_acquire()
            except KubeError as error:
                if not (error.transient or answered):
                    logs.error(f"The controller cannot take the Lease. {logs.error_text(error)}")
                    return Exit.USAGE
                self._trouble(error, stop)
                continue
            answered = True
            self._well()
            if status.is_ours:
                logged = None
                if status.problem:
                    logs.warning(
                        f"The controller cannot read all annotations of the Lease: {status.problem}."
                    )
                _log_other_build(status.program)
                code = self._lead(stop, status.checkpoint, status.coverage)
                if self._once or stop.is_set():
                    return code
                continue
            if status.holder != logged:
                logged = status.holder
                logs.warning(
                    f"Another controller, {status.holder}, has the Lease; this one stands by. "
                    "To run beside it without writing, use --dry-run.",
                    holder=status.holder,
                )
            if self._once:
                return Exit.FAILED
            stop.wait(STANDBY_SECONDS)
        return Exit.OK

    def _lead(
        self, stop: threading.Event, checkpoint: Checkpoint | None = None, coverage: Coverage | None = None
    ) -> int:
        """Lead until ``stop`` is set or the Lease is lost. Return the exit code."""
        lease, ended, lost = self._lease, threading.Event(), threading.Event()
        self._leadership = leadership = self._make_leadership(checkpoint, coverage, ended)
        self._obstacle = ""
        self._metrics.leader.set(1 if lease else 0)
        _log_start(checkpoint, dry_run=lease is None)

        def on_loss(why: str) -> None:
            lost.set()
            logs.error(f"This controller lost the Lease: {why} It writes nothing from now on.")
            ended.set()
            leadership.wake()

        watcher = threading.Thread(target=_link, args=(stop, ended, leadership), name="stop", daemon=True)
        watcher.start()
        keeper = LeaseKeeper(lease, leadership.lease_content, on_loss) if lease else None
        if keeper:
            leadership.renew_soon = keeper.renew_soon
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
                if not lease.release(leadership.lease_content()) and not lost.is_set():
                    logs.warning(
                        "The controller could not release the Lease; the next controller waits until it "
                        "expires."
                    )
            self._metrics.leader.set(0)
            self._leadership = None

    def _trouble(self, error: KubeError, stop: threading.Event) -> None:
        self._failures += 1
        self._metrics.kube_errors.labels(type(error).__name__).inc()
        if self._obstacle != str(error):
            logs.error(f"{logs.error_text(error)} The controller retries.")
        self._obstacle = str(error)
        self._alive_seconds = time.monotonic()
        stop.wait(BACKOFF.seconds(self._failures))

    def _well(self) -> None:
        self._failures, self._obstacle = 0, ""


def _link(stop: threading.Event, ended: threading.Event, leadership: Leadership) -> None:
    """End the leadership at once when ``stop`` is set. Return when the leadership has ended."""
    while not ended.is_set():
        if stop.wait(0.2):
            ended.set()
            leadership.wake()


def _log_other_build(before: Program | None) -> None:
    """Warn if the leader before this controller was another build of the same version."""
    program = this_program()
    if before is not None and before != program and before.version == program.version:
        logs.warning(
            f"Same version, other build: the last leader was {before}, this controller is {program}. "
            "The image of this tag has changed."
        )


def _log_start(checkpoint: Checkpoint | None, *, dry_run: bool) -> None:
    where = "for the first time: no cursor is saved yet."
    if dry_run:
        where = "as on a first start: a dry run has no saved cursor."
    elif checkpoint is not None:
        cursors = [
            f"{source.value} lines from {stamp(moment_of(ns))}" for source, ns in checkpoint.read_ns.items()
        ]
        where = f"from the saved cursor: {', '.join(cursors)}."
    logs.info(f"Reading Loki {where}")
