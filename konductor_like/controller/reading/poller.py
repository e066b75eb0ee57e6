"""Polling Loki: a poller reads, delivers the result, waits until the reconciler has acted on it, reads again.

A reader moves on only after the reconciler has acted on its result (rule 9).

The threads of the process: docs/architecture.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from konductor_like.backoff import Backoff
from konductor_like.controller import logs
from konductor_like.controller.reading.wakeups import PollSchedule
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.loki.query.errors import LokiBadAnswer, LokiError, LokiOverloaded
from konductor_like.loki.query.window_query import TimeWindow
from konductor_like.loki.readers.poll import PollResult
from konductor_like.model.text import listed
from konductor_like.model.time import moment_of, stamp

BACKOFF_CAP_SECONDS = 30.0
_NODE_LABEL_HINT = "Check KONDUCTOR_NODE_LABEL and the collector's resource processor."


@dataclass(slots=True)
class Delivery:
    """A poll's result on its way to the reconciler.

    The leadership sets ``accepted`` if the reconcile succeeded, and ``done`` after each reconcile.
    """

    name: str
    batch: PollResult
    accepted: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    received_ns: int = 0
    """When Loki's answer arrived, by Loki's clock."""


class Reader(Protocol):
    """Reads one kind of lines, such as :class:`konductor_like.loki.readers.source.SourceReader`."""

    def poll(self, now_ns: int, oldest_ns: int | None = None, /) -> PollResult:
        """Read the new lines. Raises a LokiError.

        After a nudge ``oldest_ns`` is the timestamp of the oldest line that the tail has seen.
        """

    def commit(self, result: PollResult) -> None:
        """Move on, because the reconciler has acted on the result."""


class Poller:
    """Polls one reader and delivers the results.

    ``name`` is ``kernel``, ``pod``, ``heartbeat``, ``backfill`` or ``warmup``. ``problem`` is the error of
    the last poll, or None; a failed poll is an error, never "no faults" (rule 14). ``caught_up`` is true once
    the last poll has reached the present.
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
        attempted: Callable[[LokiError | None], object] = lambda _: None,
    ) -> None:
        """``attempted`` is called with the error of each failed poll, and with None after a whole one."""
        self.name = name
        self._attempted = attempted
        self.problem: LokiError | None = None
        self.caught_up = False
        self.wake = threading.Event()
        """Set by a nudge; the thread that polls waits for it."""
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
        self._logged: set[str] = set()

    def nudge(self, oldest_ns: int | None) -> None:
        """Poll soon, because lines have arrived. ``oldest_ns`` is the oldest line's timestamp, if known.

        May be called from any thread, any number of times. It never waits.
        """
        if self.schedule.nudge(oldest_ns):
            self.wake.set()

    def poll(self) -> None:
        """Poll once, wait until the reconciler has acted on the result, and schedule the next poll."""
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
        """Poll and deliver. Return None if the poll failed or was not accepted; its lines come again."""
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
            # Loki's answer has corrected our idea of its clock: the query had reached into the future.
            result = self._reader.poll(self._now_ns(), oldest_ns)
        self._poll_seconds = time.monotonic() - began
        delivery = Delivery(self.name, result, received_ns=self._now_ns())
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
        if result.failure is None:
            self._attempted(None)
        self.caught_up = not result.more
        self._failures = 0
        metrics, name = self._metrics, self.name
        metrics.last_success.labels(name).set(self._now_ns() / 1e9)
        metrics.bytes_processed.labels(name).inc(result.bytes_processed)
        self._log_lasting(
            "slowed",
            "Loki processed more than KONDUCTOR_LOKI_BUDGET_MIB_PER_MINUTE allows: "
            f"the controller polls {name} lines {result.slowdown:.0f} times less often."
            if result.slowdown > 1
            else "",
            over=f"The controller polls {name} lines as often as usual again.",
        )
        self._log_lasting(
            "unread",
            f"Loki cannot return the {name} lines {_between(result.unread[0])}. The controller requests them "
            "again in smaller time windows, and reads later lines meanwhile."
            if result.unread
            else "",
            over=f"Loki has returned all {name} lines again.",
            log=logs.error,
        )
        if new := result.noisy_nodes - self._noisy:
            self._logged.discard("storm")
        self._noisy = result.noisy_nodes
        names = listed([node or "(no node)" for node in sorted(new)], 5)
        self._log_lasting(
            "storm",
            f"Flood of {name} lines from {names}: the controller reads them separately, so that they delay "
            "no other node's lines."
            if result.noisy_nodes
            else "",
            over=f"The flood of {name} lines is over.",
        )
        self._log_oddities(result)

    def _log_lasting(
        self, what: str, text: str, *, over: str, log: Callable[..., None] = logs.warning
    ) -> None:
        """Log ``text`` once when a lasting state begins, and ``over`` when ``text`` is empty again."""
        if text and what not in self._logged:
            self._logged.add(what)
            log(text, source=self.name)
        elif not text and what in self._logged:
            self._logged.remove(what)
            logs.info(over, source=self.name)

    def _log_oddities(self, result: PollResult) -> None:
        """Log the lines that a healthy pipeline never sends (rule 12)."""
        metrics, name = self._metrics, self.name
        for window in result.given_up:
            logs.error(
                f"The controller could not read {name} lines {_between(window)}, and they are too old now "
                "(KONDUCTOR_GAP_MAX_AGE_SECONDS). It does not see faults in them.",
                source=name,
            )
        if result.without_node:
            metrics.nodeless.labels(name).inc(result.without_node)
            logs.warning(f"{result.without_node} {name} lines name no node. {_NODE_LABEL_HINT}", source=name)
        # The kernel-log reader may run in a watched namespace: of the source pod, its lines are expected.
        if result.foreign and name == "kernel":
            logs.warning(f"{result.foreign} lines ignored: by their labels they are not from the kernel log.")
        if result.incomplete_windows:
            logs.warning(
                f"Loki returned only some of the {name} lines at {len(result.incomplete_windows)} "
                "timestamps, because more lines share each timestamp than Loki returns. The controller "
                "misses the others.",
                source=name,
            )
        if result.cursor_ahead_ns:
            logs.warning(
                f"The {name} cursor was {result.cursor_ahead_ns / 1e9:.1f} s in the future; reading "
                "continues from now. Check the clocks of this machine, of Loki and of any gateway between "
                "them.",
                source=name,
            )

    def _failed(self, error: LokiError) -> None:
        if self._stop.is_set():
            return
        self._failures += 1
        self._attempted(error)
        self._metrics.loki_errors.labels(self.name, type(error).__name__).inc()
        if str(self.problem) != str(error):
            logs.error(
                f"Cannot read {self.name} lines: {logs.error_text(error)} The cursor stays, so no line is "
                "lost.",
                source=self.name,
                error=type(error).__name__,
            )
        self.problem = error

    def _pause_seconds(self) -> float:
        if self.problem is None:
            return self._interval_seconds
        asked = self.problem.retry_after_seconds
        wait = Backoff(2 * self._interval_seconds, BACKOFF_CAP_SECONDS).seconds(self._failures, asked)
        return max(wait, self._interval_seconds)


class PollThread:
    """A thread that runs its pollers one at a time, the one that is due first, until ``stop`` is set."""

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
        """Wait until the thread ends; ``stop`` must be set."""
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
    """Return a thread for kernel lines, one for pods' lines, and one for all other pollers."""
    own = [name for name in ("kernel", "pod") if name in pollers]
    threads = [PollThread(name, [pollers[name]], stop) for name in own]
    background = [poller for name, poller in pollers.items() if name not in own]
    return [*threads, PollThread("background", background, stop)] if background else threads


def _between(window: TimeWindow) -> str:
    return f"from {stamp(moment_of(window.start_ns))} to {stamp(moment_of(window.end_ns))}"
