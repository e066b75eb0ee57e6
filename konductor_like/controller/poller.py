"""Polling Loki: read, hand over, wait until it was acted upon, read again.

A reader moves on only after its result was acted upon (rule 9).

The controller has 14 threads, two more inside the websocket library, and up to eight while nodes are written
(``KONDUCTOR_WRITE_CONCURRENCY``):

- ``controller`` decides, and only it starts writes of Nodes; the main thread waits for signals.
- ``read-kernel`` and ``read-pod`` poll their source. They share no thread, so that a flood or a failure of
  one cannot delay the other (rule 10).
- ``read-background`` polls heartbeats, the logs of Nodes that were made anew, and the time before our start.
  None of them is in a hurry, and each poll is bounded.
- ``tail`` waits for Loki to tell of new kernel lines.
- ``nodes`` watches the Nodes, ``lease`` renews the Lease in time whatever else goes on, ``stop`` ends a
  leadership when the process is told to end.
- ``pods`` asks which jobs run on a node, three ``events`` threads send Events, the ``write`` threads patch
  Nodes: no decision waits for a slow API server.
- ``probes`` answers the kubelet and Prometheus.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.wakeups import PollSchedule
from konductor_like.loki.errors import LokiBadAnswer, LokiError, LokiOverloaded
from konductor_like.loki.poll import PollResult
from konductor_like.loki.window_query import Window
from konductor_like.model.text import listed
from konductor_like.model.time import moment_of, stamp

BACKOFF_CAP_SECONDS = 30.0
_NODE_LABEL_HINT = "check KONDUCTOR_NODE_LABEL and the collector's resource processor."


@dataclass(slots=True)
class Delivery:
    """A poll's result. The reconciler sets ``accepted`` once it was acted upon, and then ``done``."""

    name: str
    batch: PollResult
    accepted: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    read_ns: int = 0
    """When it was read, by the clock that windows are reckoned from."""


class Reader(Protocol):
    """What a loop polls: see :class:`konductor_like.loki.reader.SourceReader`."""

    def use_query(self, query: str) -> None:
        """Ask another query from the next poll on."""

    def poll(self, now_ns: int, oldest_ns: int | None = None, /) -> PollResult:
        """Read what is new, by a nudge that told of ``oldest_ns`` or without one; raises a LokiError."""

    def commit(self, result: PollResult) -> None:
        """The result was acted upon."""


class Poller:
    """Polls one reader and hands on what it found.

    ``name`` is ``kernel``, ``pod``, ``heartbeat``, ``node`` or ``history``. ``problem`` is what went wrong at
    the last poll, None when nothing did; a failed poll is an error, never "no faults" (rule 14).
    ``caught_up`` says that a poll has reached the present.
    """

    def __init__(
        self,
        name: str,
        reader: Reader,
        deliver: Callable[[Delivery], object],
        metrics: Metrics,
        *,
        interval_seconds: float,
        now_ns: Callable[[], int],
        stop: threading.Event,
    ) -> None:
        self.name = name
        self.problem: LokiError | None = None
        self.caught_up = False
        self.wake = threading.Event()
        """Set where the schedule has come nearer; the thread that polls waits for it."""
        self._reader = reader
        self._deliver = deliver
        self._metrics = metrics
        self._interval_seconds = interval_seconds
        self.schedule = PollSchedule(interval_seconds)
        self._now_ns = now_ns
        self._stop = stop
        self._failures = 0
        self._poll_seconds = 0.0
        self._noisy: frozenset[str] = frozenset()
        self._said: set[str] = set()

    def nudge(self, oldest_ns: int | None) -> None:
        """Poll soon: something arrived, the oldest of it with this Loki timestamp where that is known.

        May be called from any thread and as often as one likes; it never waits.
        """
        if self.schedule.nudge(oldest_ns):
            self.wake.set()

    def poll(self) -> None:
        """Poll once, wait until what was found is acted upon, and plan the next poll."""
        nudged, oldest_ns = self.schedule.take()
        result = self._poll(oldest_ns)
        if result is None:
            if nudged:
                self.schedule.nudge(oldest_ns)
            self.schedule.wait(self._pause_seconds())
            return
        self.schedule.polled(nudged=nudged, seconds=self._poll_seconds)
        if result.failure is not None:
            self._failed(result.failure)
        if isinstance(result.failure, LokiOverloaded):
            self.schedule.wait(self._pause_seconds())
        elif result.more:
            self.schedule.wait(result.wait_seconds)
        self.schedule.put_off(self._interval_seconds * (result.slowdown - 1))

    def _poll(self, oldest_ns: int | None) -> PollResult | None:
        """One poll, acted upon; None where it failed or was not accepted, and its lines come again."""
        try:
            return self._delivered(oldest_ns)
        except LokiError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001  # a source must not end unseen (rule 27); logged in full
            if not self._stop.is_set():
                logs.LOGGER.exception("Reading %s lines failed. Please report this.", self.name)
            self._failed(LokiBadAnswer(f"Reading {self.name} lines failed: {error!r}"))
        return None

    def _delivered(self, oldest_ns: int | None) -> PollResult | None:
        began, asked_ns = time.monotonic(), self._now_ns()
        result = self._reader.poll(asked_ns, oldest_ns)
        if self._now_ns() < asked_ns:
            # Loki's answer has put our clock right: what was asked for reached into a time to come.
            result = self._reader.poll(self._now_ns(), oldest_ns)
        self._poll_seconds = time.monotonic() - began
        delivery = Delivery(self.name, result, read_ns=self._now_ns())
        self._deliver(delivery)
        while not delivery.done.wait(0.2):
            if self._stop.is_set():
                return None
        if not delivery.accepted:
            return None
        self._reader.commit(result)
        self._succeeded(result)
        return result

    def _succeeded(self, result: PollResult) -> None:
        if self.problem is not None and result.failure is None:
            logs.info(f"Loki answers again for {self.name} lines.", source=self.name)
        self.problem = result.failure and self.problem
        self.caught_up = not result.more
        self._failures = 0
        metrics, name = self._metrics, self.name
        metrics.last_success.labels(name).set(self._now_ns() / 1e9)
        metrics.lines.labels(name).inc(len(result.lines) + result.turned_away)
        metrics.duplicates.labels(name).inc(result.duplicates)
        metrics.queries.labels(name).inc(result.queries)
        metrics.bytes_processed.labels(name).inc(result.bytes_processed)
        metrics.slowed.labels(name).set(result.slowdown > 1)
        metrics.loud_nodes.labels(name).set(len(result.noisy_nodes))
        metrics.unreadable.labels(name).set(sum(window.width_ns for window in result.unread) / 1e9)
        self._say_lasting(
            "slowed",
            "Loki processed more for us than KONDUCTOR_LOKI_BUDGET_MIB_PER_MINUTE allows: "
            f"{name} lines are polled {result.slowdown:.0f} times less often."
            if result.slowdown > 1
            else "",
            over=f"{name} lines are polled as often as usual again.",
        )
        self._say_lasting(
            "unread",
            f"Loki cannot give the {name} lines {_between(result.unread[0])}. They are asked for again, ever "
            "fewer at once, and later lines are read."
            if result.unread
            else "",
            over=f"No {name} lines are left that Loki could not give.",
            say=logs.error,
        )
        if new := result.noisy_nodes - self._noisy:
            self._said.discard("storm")
        self._noisy = result.noisy_nodes
        names = listed([node or "(no node)" for node in sorted(new)], 5)
        self._say_lasting(
            "storm",
            f"A storm of {name} lines from {names}: read by itself, so that it delays no other node's."
            if result.noisy_nodes
            else "",
            over=f"The storm of {name} lines is over.",
        )
        self._say_oddities(result)

    def _say_lasting(
        self, what: str, text: str, *, over: str, say: Callable[..., None] = logs.warning
    ) -> None:
        """Say once what goes on for a while, and when it is over; ``text`` is empty while it is not so."""
        if text and what not in self._said:
            self._said.add(what)
            say(text, source=self.name)
        elif not text and what in self._said:
            self._said.remove(what)
            logs.info(over, source=self.name)

    def _say_oddities(self, result: PollResult) -> None:
        """What a healthy pipeline never sends is counted and said, never dropped in silence (rule 12)."""
        metrics, name = self._metrics, self.name
        for window in result.given_up:
            logs.error(
                f"{name} lines {_between(window)} could not be read and are too old now "
                "(KONDUCTOR_GAP_MAX_AGE_SECONDS): faults among them will never be seen.",
                source=name,
            )
        if result.without_node:
            metrics.nodeless.labels(name).inc(result.without_node)
            logs.warning(f"{result.without_node} {name} lines name no node: {_NODE_LABEL_HINT}", source=name)
        if result.foreign:
            # A watched namespace may hold the kernel-log reader: its lines are no pod's, and no surprise.
            metrics.foreign.labels(name).inc(result.foreign)
            if name == "kernel":
                logs.warning(f"{result.foreign} lines are no kernel lines by their labels: ignored.")
        if result.incomplete_windows:
            metrics.incomplete.labels(name).inc(len(result.incomplete_windows))
            logs.warning(
                f"{len(result.incomplete_windows)} single nanoseconds hold more {name} lines than Loki gives "
                "at once; what came was acted upon, the rest cannot be had.",
                source=name,
            )
        if result.cursor_ahead_ns:
            logs.warning(
                f"the {name} cursor stood {result.cursor_ahead_ns / 1e9:.1f} s in the future; going on from "
                "now. Check the clocks of this machine, of Loki and of a gateway between them.",
                source=name,
            )

    def _failed(self, error: LokiError) -> None:
        if self._stop.is_set():
            return
        self._failures += 1
        self._metrics.loki_errors.labels(self.name, type(error).__name__).inc()
        if str(self.problem) != str(error):
            logs.error(
                f"cannot read {self.name} lines: {logs.told(error)} Trying again; nothing is lost.",
                source=self.name,
                error=type(error).__name__,
            )
        self.problem = error

    def _pause_seconds(self) -> float:
        if self.problem is None:
            return self._interval_seconds
        doubled = self._interval_seconds * 2.0 ** min(self._failures, 16)  # of a thousand there is no float
        longest = max(self._interval_seconds, min(BACKOFF_CAP_SECONDS, doubled))
        wait = random.uniform(self._interval_seconds, longest)  # noqa: S311  # jitter, not a secret
        asked = self.problem.retry_after_seconds if isinstance(self.problem, LokiOverloaded) else None
        return max(wait, asked or 0.0)


class PollThread:
    """Runs its pollers one at a time, always the one that is due first, until told to stop."""

    def __init__(self, name: str, pollers: Sequence[Poller], stop: threading.Event) -> None:
        self._pollers = pollers
        self._stop = stop
        self._wake = threading.Event()
        for poller in pollers:
            poller.wake = self._wake
        self._thread = threading.Thread(target=self._run, name=f"read-{name}", daemon=True)

    def start(self) -> None:
        """Begin polling."""
        self._thread.start()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread to end; ``stop`` must be set."""
        self._wake.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            left, poller = min(
                ((each.schedule.due_seconds(), each) for each in self._pollers), key=lambda due: due[0]
            )
            if left <= 0:
                poller.poll()
            elif not self._stop.is_set():
                self._wake.wait(left)


def poll_threads(pollers: Mapping[str, Poller], stop: threading.Event) -> list[PollThread]:
    """A thread for kernel lines, one for pods' lines, and one for all that is in no hurry."""
    own = [name for name in ("kernel", "pod") if name in pollers]
    threads = [PollThread(name, [pollers[name]], stop) for name in own]
    background = [poller for name, poller in pollers.items() if name not in own]
    return [*threads, PollThread("background", background, stop)] if background else threads


def _between(window: Window) -> str:
    return f"of {stamp(moment_of(window.start_ns))} to {stamp(moment_of(window.end_ns))}"
