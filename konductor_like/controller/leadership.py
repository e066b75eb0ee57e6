"""One leadership: from the moment we may write until we must stop.

Readers poll in threads of their own; this thread alone reconciles. All that is only in memory lives and dies
with the leadership, so a process that lost its Lease starts the next one from the Lease's checkpoint, as any
other would.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

from konductor_like.cluster.lease_annotations import Carried
from konductor_like.controller import logs
from konductor_like.controller.fleet_monitor import FleetMonitor
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.poller import Delivery, Poller, Reader, poll_threads
from konductor_like.controller.ports import Nodes
from konductor_like.controller.reconciler import Reconciler
from konductor_like.controller.wakeups import TailWatcher
from konductor_like.model import Coverage, Fault, LogLine, Source
from konductor_like.model.time import CLOCK_TRUSTED_SECONDS

IDLE_SECONDS = 5.0
"""How long the loop waits for something to do before it reconciles anyway."""
ONCE_SECONDS = 0.05
ONCE_TRIES = 3
JOIN_SECONDS = 5.0
WAKE_SECONDS = 0.1
"""Changes of nodes that come closer together than this make one reconcile."""
COVERAGE_SECONDS = 30.0

SOURCES = {"kernel": Source.KERNEL, "pod": Source.POD}
"""The readers whose cursors are kept; beside them there are ``heartbeat``, ``node`` and ``history``."""


class Leadership:
    """Runs the sources and the reconciler until ``stop``."""

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
        new_queries: Callable[[], Mapping[str, str]] = dict,
        tail: TailWatcher | None = None,
    ) -> None:
        """``now_ns`` is the time that windows and heartbeats are reckoned from.

        ``clock_ahead_seconds`` is how far Loki's clock is ahead of ours, 0 while the two agree.

        ``intervals`` are the seconds between two polls of each reader, ``tail`` nudges the kernel log's.
        Where the kernel logs were not read for ``stale_seconds``, every node is unknown.

        ``new_queries`` gives what the readers ask from now on, by name, where the rules changed.
        """
        self.last_reconcile_seconds = time.monotonic()
        self._new_queries = new_queries
        self._reconciler = reconciler
        self._nodes = nodes
        self._readers = readers
        self._tail = tail
        self._metrics = metrics
        self._fleet = fleet
        self._stale_seconds = stale_seconds
        self._now_ns = now_ns
        self._clock_ahead_seconds = clock_ahead_seconds
        self._stop = stop
        self._inbox: queue.Queue[Delivery | None] = queue.Queue()
        self._coverage: Coverage | None = None
        self._covered_seconds = float("-inf")
        """When the coverage was last worked out."""
        self._clocks_wrong = 0
        self._failures = 0
        self._present_ns: dict[Source, int] = {}
        self._replaying = "history" in readers
        self.loops = {
            name: Poller(
                name,
                reader,
                self._inbox.put,
                metrics,
                interval_seconds=intervals[name],
                now_ns=now_ns,
                stop=stop,
            )
            for name, reader in readers.items()
        }

    def run(self) -> None:
        """Reconcile until told to stop; one that breaks does not end it (rule 27)."""
        with self._polling(), ExitStack() as exits:
            if self._tail is not None:
                self._tail.start(self.loops["kernel"].nudge)
                exits.callback(self._tail.close, JOIN_SECONDS)
            while not self._stop.is_set():
                self._reconcile(self._next_deliveries(IDLE_SECONDS))

    def run_once(self) -> bool:
        """Read every source to the present and act; False where that could not be done in full."""
        with self._polling():
            while not self._stop.is_set() and self._failures < ONCE_TRIES:
                self._reconcile(self._next_deliveries(ONCE_SECONDS))
                loops = self.loops.values()
                if self._inbox.empty() and all(loop.caught_up or loop.problem is not None for loop in loops):
                    return all(loop.problem is None for loop in loops) and not self._reconciler.unfinished
        return False

    def wake(self) -> None:
        """Something other than a line changed: reconcile now."""
        self._inbox.put(None)

    def carried(self) -> Carried:
        """What the Lease is to say of this leadership's work; from any thread."""
        coverage = self._coverage and replace(self._coverage, read_ns=self._read_ns())
        return Carried(self._reconciler.checkpoint(), coverage, self._reconciler.tainted())

    def unread_since_ns(self) -> int | None:
        """Up to where the kernel logs are read, if that is longer ago than the stale span; from any thread.

        Then silence says nothing of any node, whatever heartbeats are heard.
        """
        read_ns = self._read_ns().get(Source.KERNEL)
        if read_ns is None or self._now_ns() - read_ns <= self._stale_seconds * 1e9:
            return None
        return read_ns

    @contextmanager
    def _polling(self) -> Iterator[None]:
        """The sources poll meanwhile; in the end they get a few seconds to finish, all of them together."""
        threads = poll_threads(self.loops, self._stop)
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._metrics.unread.clear()
            deadline_seconds = time.monotonic() + JOIN_SECONDS
            for thread in threads:
                thread.join(max(0.0, deadline_seconds - time.monotonic()))

    def _next_deliveries(self, patience_seconds: float) -> list[Delivery]:
        """Wait for work, then take all that is there."""
        try:
            items = [self._inbox.get(timeout=patience_seconds)]
        except queue.Empty:
            return []
        end = time.monotonic() + WAKE_SECONDS
        while items[-1] is None and (left := end - time.monotonic()) > 0:
            # A delivery ends the wait: a taint shall not wait for changes that may come.
            with suppress(queue.Empty):
                items.append(self._inbox.get(timeout=left))
        with suppress(queue.Empty):
            while True:
                items.append(self._inbox.get_nowait())
        return [item for item in items if item is not None]

    def _reconcile(self, deliveries: list[Delivery]) -> None:
        """A mistake of ours costs this reconcile only; its lines stay uncommitted and come again."""
        self.last_reconcile_seconds = time.monotonic()
        try:
            self._act_on(deliveries)
            self._failures = 0
        except Exception:  # noqa: BLE001  # the loop outlives any mistake (rule 27); logged in full
            self._failures += 1
            logs.LOGGER.exception("This reconcile failed; its lines will be read again. Please report this.")
            self._stop.wait(min(30.0, 2.0 ** min(self._failures, 16)))
        self._measure_positions()
        for delivery in deliveries:
            delivery.done.set()
        if self._reconciler.more_to_write:
            self.wake()

    def _act_on(self, deliveries: list[Delivery]) -> None:
        """Reconcile with what was read; the readers move on where that worked."""
        lines: list[LogLine] = []
        past: Sequence[Fault] | None = None
        replaying = self._replaying
        read_ns: dict[Source, int] = {}
        received_ns: dict[Source, int] = {}
        for name, query in self._new_queries().items():
            self._readers[name].use_query(query)
            if name == "kernel" and self._tail is not None:
                self._tail.use_query(query)
        for delivery in deliveries:
            source, batch = SOURCES.get(delivery.name), delivery.batch
            if delivery.name == "heartbeat":
                self._fleet.hear(batch.lines, batch.upto_ns)
                self._covered_seconds = float("-inf")
            elif delivery.name == "history":
                past, replaying = batch.past, batch.more
            else:
                lines.extend(batch.lines)
            if source is not None:
                read_ns[source], received_ns[source] = batch.upto_ns, delivery.read_ns
        now = datetime.now(UTC)
        with self._metrics.reconcile_seconds.time():
            self._reconciler.run(lines, read_ns, now, past, replaying=replaying, received_ns=received_ns)
        self._replaying = replaying
        if time.monotonic() - self._covered_seconds >= COVERAGE_SECONDS:
            self._update_coverage()
        for delivery in deliveries:
            delivery.accepted = True
            source, present_ns = SOURCES.get(delivery.name), delivery.batch.read_ns
            if source is not None and present_ns is not None:
                self._present_ns[source] = present_ns

    def _update_coverage(self) -> None:
        self._covered_seconds = time.monotonic()
        self._say_clock()
        coverage = self._fleet.update(self._nodes.snapshot(), self.unread_since_ns())
        self._coverage = replace(coverage, misnamed=self._reconciler.misnamed(datetime.now(UTC)))

    def _read_ns(self) -> dict[Source, int]:
        """Up to where the sources are read that are read at all."""
        found = {
            source: self._reconciler.read_ns(source) for name, source in SOURCES.items() if name in self.loops
        }
        # A cursor that waits for a sweep or for one node's storm says nothing of the other nodes.
        return {
            source: max(ns, self._present_ns.get(source, 0)) for source, ns in found.items() if ns is not None
        }

    def _measure_positions(self) -> None:
        for source, until_ns in self._reconciler.checkpoint().read_ns.items():
            self._metrics.read_until.labels(source.value).set(until_ns / 1e9)
        for source, ns in self._read_ns().items():
            self._metrics.unread.labels(source.value).set(max(0, self._now_ns() - ns) / 1e9)

    def _say_clock(self) -> None:
        """Say once when Loki's clock and this machine's differ, and again when they differ too much."""
        ahead_seconds = self._clock_ahead_seconds()
        wrong = (abs(ahead_seconds) > 0) + (abs(ahead_seconds) > CLOCK_TRUSTED_SECONDS)
        if wrong > self._clocks_wrong:
            told = f"Loki's clock is {ahead_seconds:+.0f} s from this machine's"
            logs.warning(
                f"{told}; reading by Loki's. Put this machine's clock right."
                if wrong == 1
                else f"{told}, by the Date of its answers: this machine's clock is wrong, Loki's, or that of "
                "a gateway between them. What is new by either is read; the cursor goes by the earlier one."
            )
        self._clocks_wrong = wrong
