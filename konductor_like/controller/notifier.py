"""Sends notifications, in one thread for each receiver, so that no receiver delays a reconcile or another.

A notification is as good as its Event: it is sent after the write, and a crash loses those in the queue.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from konductor_like.cluster.errors import Backoff
from konductor_like.cluster.events import events_of
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.ports import EventSink
from konductor_like.model import Change, EventReason, NodeState, Verb
from konductor_like.notify.messages import KINDS, Message, News, grouped, news_of_fleet, news_of_node, within
from konductor_like.notify.webhook import Webhook, WebhookError, WebhookOffError
from konductor_like.policy.release import reset_words

WAITING_MOST = 1000
"""Notifications in a queue; then the oldest are dropped, those that are not urgent first."""
GATHER_SECONDS = 5.0
"""Seconds in which notifications are gathered, so that those of one failure group become one message."""
MESSAGES_MOST = 10
"""Messages to one receiver within ``SPAN_SECONDS``; if there is more to send, the last one is a summary."""
SPAN_SECONDS = 60.0
TRIES = 5
"""Tries for one message. The waits between them are 30 s at most together, or what the receiver asks for with
Retry-After, up to 300 s each."""
CLOSE_SECONDS = 5.0
"""Seconds for which the end of the process waits for queued notifications."""
_BACKOFF = Backoff(first_seconds=2.0, most_seconds=16.0)
_REMEMBERED = 5000
"""Ids of notifications that are remembered, so that none is sent twice."""
REMEMBERED_SECONDS = 3600.0
"""Seconds for which an id is remembered: the Events of two incidents may have the same words."""

_Make = Callable[[], list[News]]
_T = TypeVar("_T")


class Notifications:
    """Sends Events as before, and queues a notification for each receiver where the Event leads to one.

    Its methods return at once and raise nothing.
    """

    def __init__(
        self,
        events: EventSink,
        fleet_event: Callable[[EventReason, str, str], None],
        webhooks: Sequence[Webhook],
        metrics: Metrics,
    ) -> None:
        """``events`` sends Events about nodes, ``fleet_event`` those about the fleet."""
        self._events = events
        self._fleet_event = fleet_event
        self._notifiers = [Notifier(webhook, metrics) for webhook in webhooks]

    def announce(self, state: NodeState, change: Change) -> None:
        """Send the Events of an applied change, if it has any, and notify of them."""
        self._events.announce(state, change)
        self._notify(state, change)

    def fleet(self, reason: EventReason, message: str, act: str = "") -> None:
        """Send an Event about the fleet, and notify of it."""
        self._fleet_event(reason, message, act)
        self._put(reason, partial(news_of_fleet, reason, message, act, datetime.now(UTC)))

    def reset(self, state: NodeState) -> None:
        """Notify of a person's reset, which the node's record shows. The command has sent the Event."""
        words = reset_words(state.record.releases[0])
        event = EventReason.RELEASED
        self._notify(state, Change(state.name, Verb.UNTAINT, state.record, None, event=event, message=words))

    def close(self) -> None:
        """Send the queued notifications for at most ``CLOSE_SECONDS``, then stop."""
        end = time.monotonic() + CLOSE_SECONDS
        for notifier in self._notifiers:
            notifier.closing.set()
            notifier.wake.set()
        for notifier in self._notifiers:
            notifier.join(max(0.0, end - time.monotonic()))

    def _notify(self, state: NodeState, change: Change) -> None:
        now = datetime.now(UTC)
        for reason, message, subject in events_of(change):
            self._put(reason, partial(news_of_node, state, change, reason, message, subject, now))

    def _put(self, reason: EventReason, make: _Make) -> None:
        if kind := KINDS.get(reason):
            for notifier in self._notifiers:
                notifier.put(make, urgent=kind.urgent)


class Notifier:
    """The queue and the thread of one receiver."""

    def __init__(
        self,
        webhook: Webhook,
        metrics: Metrics,
        *,
        pause: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``pause`` waits a number of seconds, or until ``closing`` is set."""
        self._webhook = webhook
        self._clock = clock
        self.closing = threading.Event()
        self.wake = threading.Event()
        self._pause = pause or self.closing.wait
        self._lock = threading.Lock()
        self._urgent: deque[_Make] = deque()
        self._others: deque[_Make] = deque()
        self._dropped = 0
        """Notifications dropped since the last ones were taken from the queue."""
        self._sent_seconds: deque[float] = deque(maxlen=MESSAGES_MOST)
        self._known: dict[str, float] = {}
        """By id, when the notification came."""
        self._problem = ""
        self._results = {
            result: metrics.notifications.labels(webhook.name, result)
            for result in ("sent", "failed", "dropped")
        }
        self._thread = threading.Thread(target=self._run, name=f"notify-{webhook.name}", daemon=True)
        self._thread.start()

    def put(self, make: _Make, *, urgent: bool) -> None:
        """Queue one notification, made later by ``make``; drop another if the queue is full."""
        with self._lock:
            (self._urgent if urgent else self._others).append(make)
            if len(self._urgent) + len(self._others) > WAITING_MOST:
                (self._others or self._urgent).popleft()
                self._dropped += 1
                self._results["dropped"].inc()
        self.wake.set()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end; report what is lost if it does not."""
        self._thread.join(seconds)
        waiting = len(self._urgent) + len(self._others)
        if self._thread.is_alive():
            self._results["dropped"].inc(waiting)
            logs.warning(
                f"The controller stops before {self._name} took all notifications: {waiting} waited."
            )

    @property
    def _name(self) -> str:
        return "Slack" if self._webhook.name == "slack" else "the webhook"

    def _run(self) -> None:
        while batch := self._taken():
            for message in self._tried(partial(self._messages, batch)) or ():
                self._tried(partial(self._deliver, message))

    def _messages(self, batch: Sequence[_Make]) -> list[Message]:
        news = [each for make in batch for each in self._tried(make) or () if self._is_new(each)]
        return within(grouped(news), MESSAGES_MOST - self._recent())

    def _tried(self, do: Callable[[], _T]) -> _T | None:
        """Return the result; note a bug and return None, so that all other notifications are still sent."""
        try:
            return do()
        except Exception as error:  # noqa: BLE001  # the thread must go on; its text may quote the URL
            self._results["failed"].inc()
            name = type(error).__name__
            self._note(name, f"A notification to {self._name} failed ({name}). Please report this.")
            return None

    def _taken(self) -> list[_Make]:
        """Wait for notifications and take all of them; none when the process stops."""
        while True:
            if not self.closing.is_set():
                self.wake.wait()
            self._pause(GATHER_SECONDS)
            while self._recent() >= MESSAGES_MOST:
                self._pause(max(0.0, self._sent_seconds[0] + SPAN_SECONDS - self._clock()))
            with self._lock:
                self.wake.clear()
                batch, dropped = [*self._urgent, *self._others], self._dropped
                self._urgent.clear()
                self._others.clear()
                self._dropped = 0
            if dropped:
                logs.warning(
                    f"{dropped:,} notifications to {self._name} were dropped: too many waited.",
                    dropped=dropped,
                )
            if batch or self.closing.is_set():
                return batch

    def _recent(self) -> int:
        """Return the number of recent messages; at the end always one fewer than allowed."""
        recent = sum(self._clock() - at < SPAN_SECONDS for at in self._sent_seconds)
        return min(recent, MESSAGES_MOST - 1) if self.closing.is_set() else recent

    def _is_new(self, news: News) -> bool:
        if self._clock() - self._known.get(news.id, -math.inf) < REMEMBERED_SECONDS:
            return False
        self._known[news.id] = self._clock()
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return True

    def _deliver(self, message: Message) -> None:
        """Post one message, with retries; report the first failure in a row, and the end of the failures."""
        self._sent_seconds.append(self._clock())
        for tries in range(1, TRIES + 1):
            try:
                self._webhook.send(message)
            except WebhookOffError as off:
                self._note(str(off), f"Notifications to {self._name} are off. {off}.", is_failure=False)
                return
            except WebhookError as error:
                if error.transient and tries < TRIES and not self.closing.is_set():
                    self._pause(_BACKOFF.seconds(tries, error.retry_after_seconds))
                    continue
                self._results["failed"].inc()
                text = f"A notification to {self._name} failed: {error}. It was: {message.title}."
                self._note(str(error), text)
                return
            self._results["sent"].inc()
            self._note("", f"Notifications to {self._name} arrive.", is_failure=False)
            return

    def _note(self, problem: str, text: str, *, is_failure: bool = True) -> None:
        if problem != self._problem:
            (logs.warning if is_failure else logs.info)(text)
        self._problem = problem
