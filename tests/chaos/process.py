"""One controller process in memory: the real parts, wired by the controller's own wiring.

The work of its threads is done one after the other. At every request another thread may run: the one that
renews the Lease, or the one that watches the Nodes. Only this module knows how the controller is assembled.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Protocol
from unittest.mock import patch

from konductor_like.cluster.api.client import KUBE_TIMEOUT_SECONDS
from konductor_like.cluster.api.errors import KubeError, LeadershipLost
from konductor_like.cluster.events import NodeEvents, events_of
from konductor_like.cluster.lease.annotations import LeasePayload
from konductor_like.cluster.lease.election import LeaderLease, read_controls
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import NodeStore
from konductor_like.cluster.node.writer import NodeWriter, WriteResult
from konductor_like.controller import leaderships
from konductor_like.controller.leaderships import LeadershipFactory
from konductor_like.controller.loop.active_rules import ActiveRules, RulesInForce
from konductor_like.controller.loop.leadership import Leadership
from konductor_like.controller.loop.operator_controls import AGAIN_SECONDS, TIMEOUT_SECONDS, OperatorControls
from konductor_like.controller.loop.reconciler import Reconciler
from konductor_like.controller.reading.poller import Delivery
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.controller.side.alerts import ROUND_SECONDS
from konductor_like.controller.wiring import WRITE_PATIENCE_SECONDS, _notes, _validation_ports
from konductor_like.loki.readers import read_state
from konductor_like.model import Change, EventReason, NodeState
from konductor_like.settings import Settings
from tests.chaos import wire
from tests.chaos.clock import Clock

NAMESPACE, LEASE = "konductor-like", "konductor-like"
DURATION_SECONDS, DEADLINE_SECONDS, RENEW_SECONDS = 300, 200.0, 100.0
"""Seconds, ten times those of the default Lease: the same proportions, and fewer renewals to simulate."""
HEARTBEAT_SECONDS = 60.0
POLLS_IN_A_ROW, PIECES_IN_A_ROW = 400, 1000
"""Number of polls, and of pieces of history, after which a loop is reported as endless."""


@contextmanager
def _short_spans(spans: Mapping[str, float]) -> Iterator[None]:
    """Give these spans to the readers that are made meanwhile; a first start reads an hour, and not a day."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(leaderships, "FIRST_START_HISTORY_SECONDS", 3600.0))
        for name, seconds in spans.items():
            stack.enter_context(patch.object(read_state, name, seconds))
        yield


class Surroundings(Protocol):
    """The surroundings of a process: the chaos tests' world, or a scenario's site."""

    settings: Settings
    clock: Clock
    rng: random.Random
    setup: Any
    recovered: bool
    """Whether all troubles have ended."""
    taken: int
    """Number of steps that were taken."""
    traffic: Any
    lines: Any
    ledger: Any
    prometheus: Any
    """What answers questions about alerts; None if the controller does not read them."""

    def date(self) -> str:
        """Return the servers' Date header."""

    def advance(self, span_seconds: float, /) -> None:
        """Let time pass."""


class Killed(BaseException):  # no error: nothing that catches Exception may catch it
    """SIGKILL: the process ends here and now."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.process = process


class SerialCrew:
    """Does the jobs of the writer's pool one after the other, in an order that a seed can repeat.

    With slow writes, one job in five takes effect at once and gives its result 2 or 9 seconds later.
    """

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._late: dict[str, tuple[float, WriteResult]] = {}

    def collect(self, name: str) -> WriteResult | None:
        until_seconds, _ = self._late.get(name, (math.inf, None))
        return self._late.pop(name)[1] if until_seconds <= self._world.clock.seconds() else None

    def do(self, jobs: Mapping[str, Callable[[], WriteResult]]) -> dict[str, WriteResult]:
        results = {}
        for name, job in jobs.items():
            if name in self._late:
                continue
            result = job()
            if self._world.setup.slow_writes and self._world.rng.random() < 0.2:
                self._late[name] = (self._world.clock.seconds() + self._world.rng.choice((2.0, 9.0)), result)
            else:
                results[name] = result
        return results


class NotedWriter(NodeWriter):
    """Notes each write before it is made: a Node without room does not show its record."""

    def __init__(self, *args: Any, writing: dict[str, tuple[NodeState, Change]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._writing = writing

    def write(self, state: NodeState, change: Change) -> WriteResult:
        self._writing[change.node] = (state, change)
        return super().write(state, change)


class InOrder(Executor):
    """Does each job at once, in place of the threads of a command: two threads would race in every run."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # kept for who asks for the result, as a pool does
            future.set_exception(error)
        return future


class _Announcer:
    """Sends Events at once; the real announcer has a thread."""

    def __init__(self, events: NodeEvents) -> None:
        self._events = events

    def announce(self, state: NodeState, change: Change) -> None:
        for reason, message, subject in events_of(change):
            self._events.send(state, reason, message, subject, change.act_id)


class _Stop:
    """The leadership's stop event; waiting for it lets simulated time pass."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def wait(self, seconds: float | None = None) -> bool:
        if not self._set:
            self._world.advance(seconds or 0.0)
        return self._set


class _Inbox:
    """Gives each delivery to the reconciler at once."""

    def __init__(self, reconcile: Callable[[list[Delivery]], None]) -> None:
        self._reconcile = reconcile

    def put(self, delivery: Delivery | None) -> None:
        self._reconcile([] if delivery is None else [delivery])


@cache
def _shared() -> tuple[Metrics, RulesInForce]:
    """Return parts that all processes share: no decision depends on them, and they take long to make."""
    metrics = Metrics()
    return metrics, ActiveRules(None, metrics).in_force


class Process:
    """One life of a controller, from its start to SIGKILL or SIGTERM."""

    def __init__(self, world: Surroundings, name: str, identity: str, clock_ahead_ns: int = 0) -> None:
        self.name = name
        self.identity = identity
        self.clock_ahead_ns = 0
        self.dead = False
        self.stopped = False
        self.renewed_seconds = float("-inf")
        """When its last answered write of the Lease was sent, in seconds of the monotonic clock."""
        self.unread_seconds = float("-inf")
        """When it last failed to read the Lease, in seconds of the monotonic clock."""
        self.reconcile_step = 0
        """Number of steps that were taken when its current reconcile began."""
        self.told: list[tuple[str, str]] = []
        """Its Events on the Lease: reason and message."""
        self.seen: Mapping[str, NodeState] = {}
        """The nodes as it saw them when that reconcile began."""
        self.writing: dict[str, tuple[NodeState, Change]] = {}
        """By node, what it writes, and the state on which it decided that."""
        self._world = world
        self.set_clock(clock_ahead_ns)
        self._busy = False
        self._depth = 0
        self._in_lease = False
        self._in_store = False
        self._leadership: Leadership | None = None
        self._reconciler: Reconciler | None = None
        self._ended: Any = None
        self._heartbeat_seconds = float("-inf")
        self._asked_seconds = float("-inf")
        self._led = ""
        """The name of its leadership."""
        settings, clock = world.settings, world.clock
        decode = node_decoder(settings)
        metrics, rules = _shared()
        exchange = world.traffic.exchange_of(self)
        self._kube = wire.kube_client(exchange, "konductor-like/test", world.date)
        self._loki = wire.loki_client(settings, exchange, world.date, world.clock.seconds)
        self.store = NodeStore(self._kube, decode)
        self.lease = LeaderLease(
            self._kube,
            NAMESPACE,
            LEASE,
            identity,
            duration_seconds=DURATION_SECONDS,
            renew_deadline_seconds=DEADLINE_SECONDS,
            renew_interval_seconds=RENEW_SECONDS,
            clock=clock.seconds,
            now=clock.wall,
            notes=lambda: _notes(settings, identity, rules.digest),
        )
        writer = NotedWriter(
            self._kube,
            decode,
            self.lease,
            timeout_seconds=KUBE_TIMEOUT_SECONDS,
            patience_seconds=WRITE_PATIENCE_SECONDS,
            on_state=self.store.apply,
            sleep=self._sleep,
            clock=clock.seconds,
            writing=self.writing,
        )
        writer._pool = SerialCrew(world)  # type: ignore[assignment]  # stands in
        events = _Announcer(NodeEvents(self._kube, identity, clock.wall, sleep=lambda _: True))
        self._factory = LeadershipFactory(
            settings=settings,
            metrics=metrics,
            loki=self._loki,
            rules=rules,
            nodes=self.store,
            writer=writer,
            events=events,
            report=Report(metrics, fleet_event=self._tell),
            fleet_event=self._tell,
            identity=identity,
            validations=_validation_ports(settings, self._kube, NAMESPACE, decode, self.lease),
            prometheus=world.prometheus,
            operator_controls=OperatorControls(
                lambda: read_controls(self._kube, NAMESPACE, LEASE, TIMEOUT_SECONDS),
                lambda *_: None,
                metrics,
                interval_seconds=settings.lease_duration_seconds / 3,
                renewed=self.lease.renewal_since,
                clock=clock.seconds,
            ),
        )

    def _tell(self, reason: EventReason, message: str, *_: str) -> None:
        self.told.append((str(reason), message))

    def set_clock(self, ahead_ns: int) -> None:
        """Set its wall clock ahead of the true time."""
        self.clock_ahead_ns = ahead_ns

    @property
    def leading(self) -> bool:
        return self._leadership is not None and not self.dead

    def may_write(self) -> bool:
        """Whether its Lease allows a write to start now."""
        if self.dead or self._leadership is None:
            return False
        try:
            return self.lease.budget_seconds() > 0
        except LeadershipLost:
            return False

    def states(self) -> Mapping[str, NodeState]:
        """Return the nodes as it sees them, with the records that Nodes have no room for."""
        return self.store.snapshot() if self._reconciler is None else self._reconciler._observer.states()

    def seen_tainted(self) -> frozenset[str]:
        """Return the nodes that it saw as tainted when its current reconcile began."""
        return frozenset(name for name, state in self.seen.items() if state.tainted)

    def waits_for(self, name: str) -> bool:
        """Whether it tries a write to the node again that may have taken effect."""
        return self._reconciler is not None and name in self._reconciler._writes.in_flight

    def reads_lease(self) -> bool:
        """Whether it sees what people write on the Lease: after a failed read it waits before the next."""
        return self._world.clock.seconds() > self.unread_seconds + AGAIN_SECONDS

    def maybe_tainted(self) -> Collection[str]:
        """Return the nodes with unanswered writes: they may be tainted, and the brake counts them already."""
        return () if self._reconciler is None else self._reconciler._writes.in_flight.keys()

    def kept_out(self) -> Mapping[str, str]:
        """Return the tainted nodes that its last decision kept out of service, each with its first guard."""
        return {} if self._reconciler is None else self._reconciler.kept_out()

    def round(self) -> None:
        """Do one round: watch the nodes, lead if it may, poll, reconcile, renew."""
        if self.dead or self.stopped or self._busy:
            return
        self._busy = True
        try:
            with self._running():
                self._follow()
                if self._leadership is None:
                    self._lead()
                if self._leadership is not None:
                    self._work()
        finally:
            self._busy = False

    def keep(self, *, at_once: bool = False) -> None:
        """Renew the Lease if that is due, as its own thread does."""
        if (
            self.dead
            or self.stopped
            or self._in_lease
            or self._leadership is None
            or self._reconciler is None
        ):
            return
        due_seconds = self.renewed_seconds + RENEW_SECONDS
        if not at_once and self._world.clock.seconds() < due_seconds:
            return
        with self._running(), self._leasing():
            try:
                self.lease.renew(self._leadership.lease_content())
            except LeadershipLost:
                self._ended.set()
            except KubeError:
                pass  # the next renewal tries again; after the deadline no write starts

    def watch_nodes(self) -> None:
        """Read the watch of the nodes once, as the store's own thread does."""
        if not (self.dead or self.stopped or self._in_store or self._leadership is None):
            with self._running():
                self._follow()

    def end(self) -> None:
        """SIGTERM: save the cursor and release the Lease."""
        if not (self.dead or self.stopped or self._depth):
            with self._running():
                self._leave()
            self.dead = True

    def _work(self) -> None:
        self.keep()
        assert self._leadership is not None
        now_seconds = self._world.clock.seconds()
        for name in self._leadership.pollers:
            if name == "heartbeat" and now_seconds - self._heartbeat_seconds < HEARTBEAT_SECONDS:
                continue
            if name == "heartbeat":
                self._heartbeat_seconds = now_seconds
            self._poll(name)
            self._world.traffic.pause_here(self)
        if not self._ended.is_set():
            self._ask_prometheus()
            self._reconcile_now([])
        if not self._ended.is_set() and self._leadership._validations is not None:
            self._leadership._validations.round()
        if self._ended.is_set():
            self._leave()

    def _ask_prometheus(self) -> None:
        """Ask once a minute."""
        worker = self._leadership._alerts if self._leadership is not None else None
        now_seconds = self._world.clock.seconds()
        if worker is not None and now_seconds - self._asked_seconds >= ROUND_SECONDS:
            self._asked_seconds = now_seconds
            worker._clock = self._world.clock.seconds
            self._world.prometheus.asker = self._led
            worker.round()

    def _reconcile_now(self, deliveries: list[Delivery]) -> None:
        assert self._leadership is not None
        self.reconcile_step = self._world.taken
        self.seen = self.store.snapshot()
        self._leadership._reconcile(deliveries)

    def _poll(self, name: str) -> None:
        assert self._leadership is not None
        loop = self._leadership.pollers[name]
        for _ in range(PIECES_IN_A_ROW if name == "warmup" else POLLS_IN_A_ROW):
            if name == "warmup" and not self._world.recovered and self._world.traffic.warmup_waits():
                return  # the other loops do not wait for the warm-up
            oldest_ns = self._world.lines.take_nudge() if name == "kernel" else None
            batch = None if self._ended.is_set() else loop._poll(oldest_ns)
            if batch is None or not batch.more:
                return
        self._world.ledger.break_(f"{self.name} reads {name} lines without end")

    def _lead(self) -> None:
        with self._leasing():
            try:
                status = self.lease.try_acquire()
            except KubeError:
                return
        if not status.is_ours or not self.store.wait_synced(0):
            return
        self._world.ledger.starts_leading(self, status.checkpoint)
        self._world.lines.take_nudge()  # a tail does not report older lines
        self._ended = _Stop(self._world)
        with _short_spans(self._world.setup.spans):
            self._leadership = self._factory.make(status.checkpoint, status.coverage, self._ended)
        self._reconciler = self._leadership._reconciler
        self._led = f"{self.name} since step {self._world.taken} at {self._world.clock.true_ns}"
        self._asked_seconds = float("-inf")
        self._leadership.renew_soon = lambda: self.keep(at_once=True)
        inbox = _Inbox(self._reconcile_now)
        self._leadership._inbox = inbox  # type: ignore[assignment]  # reconciles a delivery at once
        for loop in self._leadership.pollers.values():
            loop._deliver = inbox.put
        if (worker := self._leadership._validations) is not None:
            worker._clock = self._world.clock.seconds
        if "warmup" in self._leadership.pollers:  # it pauses for as long as its queries take
            self._leadership.pollers["warmup"]._reader._clock = self._world.clock.seconds  # type: ignore[attr-defined]  # its own

    def _leave(self) -> None:
        reconciler, self._leadership, self._reconciler = self._reconciler, None, None
        if reconciler is not None:
            with self._leasing():
                self.lease.release(
                    LeasePayload(
                        reconciler.checkpoint(), tainted=reconciler.tainted(), kept=reconciler.kept()
                    )
                )

    def _follow(self) -> None:
        if not self._in_store:
            self._in_store = True
            try:
                self.store._follow_once()
            finally:
                self._in_store = False

    def _sleep(self, seconds: float) -> bool:
        self._world.advance(seconds)
        return False

    @contextmanager
    def _leasing(self) -> Iterator[None]:
        """Allow one request on the Lease at a time, as its lock does."""
        self._in_lease = True
        try:
            yield
        finally:
            self._in_lease = False

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Make its wall clock the one that is read, and end it on SIGKILL."""
        clock = self._world.clock
        before, clock.offset_ns = clock.offset_ns, self.clock_ahead_ns
        self._depth += 1
        try:
            yield
        except Killed as killed:
            if killed.process is not self or self._depth > 1:
                raise
            self.dead = True
        finally:
            self._depth -= 1
            clock.offset_ns = before

    def another_thread(self, rng: random.Random, *, often: bool) -> None:
        """Run another thread of the process before a request, with a probability."""
        chance = rng.random() / (4 if often else 1)
        if chance < 0.1:
            self.keep(at_once=True)
        elif chance < 0.2:
            self.watch_nodes()
