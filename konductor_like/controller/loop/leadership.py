"""One leadership: the time in which this process has the Lease, or the whole of a dry run, which has none.

Readers poll in threads of their own; the ``controller`` thread alone reconciles. A leadership shares no state
in memory with the next one: a process that lost the Lease and takes it again starts from the checkpoint on
the Lease, as another process would.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from konductor_like.backoff import Backoff
from konductor_like.cluster.lease.annotations import LeasePayload
from konductor_like.controller import logs
from konductor_like.controller.fleet.fleet_monitor import FleetMonitor
from konductor_like.controller.loop.reconciler import Reconciler
from konductor_like.controller.ports import Nodes
from konductor_like.controller.reading.poller import Delivery, Poller, Reader, poll_threads
from konductor_like.controller.reading.wakeups import TailWatcher
from konductor_like.controller.reporting.attempts import AttemptLog
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.node_metrics import View
from konductor_like.controller.side.alerts import Alerts
from konductor_like.controller.side.node_condition import NodeConditions
from konductor_like.controller.side.validations import Validations
from konductor_like.controller.side.work import running
from konductor_like.model import Coverage, Fault, LogLine, Source, Verb
from konductor_like.model.attempts import READS, Attempts, Doing
from konductor_like.model.time import CLOCK_TRUSTED_SECONDS
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.recovery.guards import to_publish

IDLE_SECONDS = 5.0
"""Seconds without lines and changes of nodes after which the loop reconciles anyway."""
ONCE_SECONDS = 0.05
"""The same with ``--once``."""
ONCE_TRIES = 3
BACKOFF = Backoff(first_seconds=2.0)
JOIN_SECONDS = 5.0
WAKE_SECONDS = 0.1
"""Seconds in which further changes of nodes are gathered into one reconcile."""
COVERAGE_SECONDS = 30.0
"""Seconds between two updates of the coverage."""

SOURCE_BY_READER = {"kernel": Source.KERNEL, "pod": Source.POD}
"""The readers with a saved cursor. The other readers are ``heartbeat``, ``backfill`` and ``warmup``."""


class Leadership:
    """Runs the pollers and the reconciler until ``stop`` is set."""

    def __init__(
        self,
        reconciler: Reconciler,
        nodes: Nodes,
        readers: Mapping[str, Reader],
        metrics: Metrics,
        fleet: FleetMonitor,
        *,
        intervals: Mapping[str, float],
        stale_seconds: float,
        now_ns: Callable[[], int],
        stop: threading.Event,
        clock_ahead_seconds: Callable[[], float] = lambda: 0.0,
        policy: Callable[[], PolicyConfig] | None = None,
        tail: TailWatcher | None = None,
        conditions: NodeConditions | None = None,
        validations: Validations | None = None,
        alerts: Alerts | None = None,
        attempts: AttemptLog | None = None,
        identity: str = "",
    ) -> None:
        """Prepare to poll and reconcile.

        ``now_ns`` is Loki's time, by which windows are chosen and heartbeats age. ``clock_ahead_seconds``
        returns how far Loki's clock is ahead of ours; 0 while the two agree.

        ``intervals`` are the seconds between two polls of each reader; ``tail`` nudges the kernel poller.
        After ``stale_seconds`` without kernel logs every node without a recorded fault is unknown.

        ``policy`` returns the policy of each reconcile; without it the reconciler's own stays.
        ``conditions`` is None in a dry run, which writes none, and ``validations`` also without an image;
        ``alerts`` is None without an endpoint.
        ``attempts`` remembers how requests went, and ``identity`` is the controller's on the Lease.
        """
        self.last_reconcile_seconds = time.monotonic()
        self.renew_soon: Callable[[], object] = lambda: None
        """Renews the Lease soon. It is called when the records change that are only on the Lease."""
        self._policy = policy
        self._reconciler = reconciler
        self._nodes = nodes
        self._readers = readers
        self._tail = tail
        self._conditions = conditions
        self._validations = validations
        self._alerts = alerts
        self._attempts, self._identity = attempts or AttemptLog(), identity
        self._metrics = metrics
        self._fleet = fleet
        self._stale_seconds = stale_seconds
        self._now_ns = now_ns
        self._clock_ahead_seconds = clock_ahead_seconds
        self._stop = stop
        self._inbox: queue.Queue[Delivery | None] = queue.Queue()
        self._coverage: Coverage | None = None
        self._covered_seconds = float("-inf")
        """When the coverage was last updated, by the monotonic clock."""
        self._clocks_wrong = 0
        self._failures = 0
        self._present_ns: dict[Source, int] = {}
        self._replaying = "warmup" in readers
        self.pollers = {
            name: Poller(
                name,
                reader,
                self._inbox.put,
                metrics,
                interval_seconds=intervals[name],
                now_ns=now_ns,
                stop=stop,
                **({"attempted": partial(self._attempts.note, Doing(name))} if name in READS else {}),
            )
            for name, reader in readers.items()
        }

    def run(self) -> None:
        """Reconcile until ``stop`` is set. A reconcile that fails does not end the leadership (rule 27)."""
        with self._polling(), ExitStack() as exits:
            if self._tail is not None:
                self._tail.start(self.pollers["kernel"].nudge)
                exits.callback(self._tail.close, JOIN_SECONDS)
            if self._conditions is not None:
                exits.enter_context(running(self._conditions))
            for worker in (self._validations, self._alerts):
                if worker is not None:
                    worker.changed = self.wake
                    exits.enter_context(running(worker))
            while not self._stop.is_set():
                self._reconcile(self._next_deliveries(IDLE_SECONDS))

    def run_once(self) -> bool:
        """Read every source up to the present and act. Return whether all of it could be read and written."""
        with self._polling():
            while not self._stop.is_set() and self._failures < ONCE_TRIES:
                self._reconcile(self._next_deliveries(ONCE_SECONDS))
                pollers = self.pollers.values()
                if self._inbox.empty() and all(
                    each.caught_up or each.problem is not None for each in pollers
                ):
                    self._log_once()
                    return all(each.problem is None for each in pollers) and not self._reconciler.unfinished
        return False

    def _log_once(self) -> None:
        """Log how many GPU nodes are heard. Without this a run that heard none looks like a healthy fleet."""
        nodes = self._nodes.snapshot()
        self._fleet.update(nodes, self.unread_since_ns())
        gpu_nodes = [state for state in nodes.values() if state.is_gpu_node]
        tainted, heard = sum(state.tainted for state in gpu_nodes), len(self._fleet.hearing)
        words = f"Read once: {heard} of {len(gpu_nodes)} GPU nodes are heard, {tainted} tainted."
        if heard:
            logs.info(words)
        else:
            logs.warning(f"{words} `konductor-like doctor` finds the link that is broken.")

    def wake(self) -> None:
        """Reconcile soon, because something other than a line changed. May be called from any thread."""
        self._inbox.put(None)

    def lease_content(self) -> LeasePayload:
        """Return what the next renewal writes on the Lease. May be called from any thread."""
        coverage = self._coverage and replace(self._coverage, read_ns=self._read_ns())
        reconciler = self._reconciler
        return LeasePayload(
            *(reconciler.checkpoint(), coverage, reconciler.tainted(), reconciler.returned()),
            self._tried(),
            reconciler.kept(),
        )

    def _tried(self) -> Attempts:
        self._attempts.note(Doing.NODES, self._nodes.problem)
        reconciler = self._reconciler
        write, unwritten = reconciler.writes()
        taints = sum(each.verb is Verb.TAINT for each in unwritten)
        return Attempts(
            self._identity,
            {**self._attempts.latest(), Doing.WRITE: write},
            unwritten,
            taints,
            len(unwritten) - taints,
            len(self._fleet.hearing),
            to_publish(reconciler.kept_out()),
        )

    def unread_since_ns(self) -> int | None:
        """Return up to when the kernel logs were read, if that is more than ``stale_seconds`` ago, else None.

        As long as they are not read, no node counts as healthy, even if its heartbeats arrive. May be called
        from any thread.
        """
        read_ns = self._read_ns().get(Source.KERNEL)
        if read_ns is None or self._now_ns() - read_ns <= self._stale_seconds * 1e9:
            return None
        return read_ns

    @contextmanager
    def _polling(self) -> Iterator[None]:
        """Run the threads that poll. At the end wait a few seconds in all until the threads have ended."""
        self._metrics.nodes.view = self._view
        threads = poll_threads(self.pollers, self._stop)
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._metrics.unread.clear()
            self._metrics.nodes.view = None
            deadline_seconds = time.monotonic() + JOIN_SECONDS
            for thread in threads:
                thread.join(max(0.0, deadline_seconds - time.monotonic()))

    def _next_deliveries(self, patience_seconds: float) -> list[Delivery]:
        """Wait for work, then return everything that the pollers have delivered."""
        try:
            items = [self._inbox.get(timeout=patience_seconds)]
        except queue.Empty:
            return []
        end = time.monotonic() + WAKE_SECONDS
        while items[-1] is None and (left := end - time.monotonic()) > 0:
            # A delivery ends the wait, because a taint must not wait for further changes of nodes.
            with suppress(queue.Empty):
                items.append(self._inbox.get(timeout=left))
        with suppress(queue.Empty):
            while True:
                items.append(self._inbox.get_nowait())
        return [item for item in items if item is not None]

    def _reconcile(self, deliveries: list[Delivery]) -> None:
        """Reconcile. If that raises, the readers do not commit, so their lines come again."""
        self.last_reconcile_seconds = time.monotonic()
        try:
            self._act_on(deliveries)
            self._failures = 0
        except Exception:  # noqa: BLE001  # the loop outlives any mistake (rule 27); logged in full
            self._failures += 1
            logs.LOGGER.exception(
                "This reconcile failed; the controller reads its lines again. Please report this."
            )
            self._stop.wait(BACKOFF.longest_seconds(self._failures))
        self._measure_positions()
        for delivery in deliveries:
            delivery.done.set()
        if self._reconciler.more_to_write:
            self.wake()

    def _act_on(self, deliveries: list[Delivery]) -> None:
        """Reconcile with the deliveries and, if that worked, accept them so that their readers move on."""
        lines: list[LogLine] = []
        past: Sequence[Fault] | None = None
        replaying = self._replaying
        read_ns: dict[Source, int] = {}
        received_ns: dict[Source, int] = {}
        if self._policy is not None:
            self._reconciler.policy = self._policy()
        for delivery in deliveries:
            source, batch = SOURCE_BY_READER.get(delivery.name), delivery.batch
            if delivery.name == "heartbeat":
                beats = self._fleet.boot_names.named(batch.lines, self._nodes.snapshot())
                self._fleet.hear(beats, batch.upto_ns)
                self._covered_seconds = float("-inf")
            elif delivery.name == "warmup":
                past, replaying = batch.past, batch.more
            else:
                lines.extend(batch.lines)
            if source is not None:
                read_ns[source], received_ns[source] = batch.upto_ns, delivery.received_ns
        now, kept = datetime.now(UTC), self._reconciler.kept().records
        with self._metrics.reconcile_seconds.time():
            self._reconciler.run(lines, read_ns, now, past, replaying=replaying, received_ns=received_ns)
        if self._reconciler.kept().records != kept:
            self.renew_soon()
        self._replaying = replaying
        if time.monotonic() - self._covered_seconds >= COVERAGE_SECONDS:
            self._update_coverage()
        for delivery in deliveries:
            delivery.accepted = True
            source, present_ns = SOURCE_BY_READER.get(delivery.name), delivery.batch.read_ns
            if source is not None and present_ns is not None:
                self._present_ns[source] = present_ns

    def _update_coverage(self) -> None:
        self._covered_seconds = time.monotonic()
        self._log_clock_difference()
        coverage = self._fleet.update(self._nodes.snapshot(), self.unread_since_ns())
        self._coverage = replace(coverage, misnamed=self._reconciler.misnamed(datetime.now(UTC)))
        if self._conditions is not None:
            self._conditions.hear(coverage, self._fleet.silent_alone)

    def _view(self) -> View:
        """Return the fleet for the metrics of single nodes. Each scrape calls it, in a thread of its own."""
        return View(self._nodes.snapshot(), self._coverage, self.unread_since_ns() is not None)

    def _read_ns(self) -> dict[Source, int]:
        """Return up to when each polled source was read."""
        found = {
            source: self._reconciler.read_ns(source)
            for name, source in SOURCE_BY_READER.items()
            if name in self.pollers
        }
        # A cursor may wait for a sweep or for one node's storm. The other nodes' lines are read further then.
        return {
            source: max(ns, self._present_ns.get(source, 0)) for source, ns in found.items() if ns is not None
        }

    def _measure_positions(self) -> None:
        for source, until_ns in self._reconciler.checkpoint().read_ns.items():
            self._metrics.read_until.labels(source.value).set(until_ns / 1e9)
        for source, ns in self._read_ns().items():
            self._metrics.unread.labels(source.value).set(max(0, self._now_ns() - ns) / 1e9)

    def _log_clock_difference(self) -> None:
        """Log once when Loki's clock and this machine's differ, and again when they differ too much."""
        ahead_seconds = self._clock_ahead_seconds()
        wrong = (abs(ahead_seconds) > 0) + (abs(ahead_seconds) > CLOCK_TRUSTED_SECONDS)
        if wrong > self._clocks_wrong:
            difference = f"Loki's clock differs by {ahead_seconds:+.0f} s from this machine's"
            logs.warning(
                f"{difference}. The controller reads by Loki's clock. Correct this machine's clock."
                if wrong == 1
                else f"{difference}, according to the Date header of Loki's answers. The controller reads "
                "new lines by both clocks, and the cursor follows the earlier one. Check the clocks of this "
                "machine, of Loki and of any gateway between them."
            )
        self._clocks_wrong = wrong
