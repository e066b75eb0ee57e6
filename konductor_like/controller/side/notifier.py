"""Sends notifications, in one thread for each receiver, so that no receiver delays a reconcile or another.

A notification is as good as its Event: it is sent after the write, and a crash loses those in the queue.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from konductor_like.backoff import Backoff, retrying
from konductor_like.cluster.events import events_of
from konductor_like.controller import logs
from konductor_like.controller.ports import EventSink
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.work import SideQueue
from konductor_like.model import Change, EventReason, NodeState, Verb
from konductor_like.notify.messages import Message, current, next_message
from konductor_like.notify.news import TOLD, Kind, News, Out, news_of_fleet, news_of_node
from konductor_like.notify.webhook import Webhook, WebhookError, WebhookOffError
from konductor_like.policy.node.release import reset_words

WAITING_MOST = 1000
"""Notifications in a queue; then the oldest are dropped, those that are not urgent first."""
GATHER_SECONDS = 5.0
"""Seconds before each message, in which notifications are gathered: those of one failure become one
message, and a receiver gets twelve messages a minute at most."""
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

_Item = tuple[int, Callable[[], News]]
"""The place of the news in time, and what makes them."""


class _OvertakenError(Exception):
    """While the message was tried again, a later taint made it useless."""


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
        self._out: Out | None = None
        self.threads = [notifier.queue for notifier in self._notifiers]

    def announce(self, state: NodeState, change: Change) -> None:
        """Send the Events of an applied change, if it has any, and notify of them.

        The end of a person's own taint is no notification, as its begin is none.
        """
        self._events.announce(state, change)
        if not change.is_own_end:
            self._notify(state, change)

    def fleet(self, reason: EventReason, message: str, act: str = "") -> None:
        """Send an Event about the fleet, and notify of it."""
        self._fleet_event(reason, message, act)
        if reason in TOLD:
            self._put(Kind.FLEET, partial(news_of_fleet, reason, message, act, datetime.now(UTC), self._out))

    def counted(self, out: int, gpu_nodes: int) -> None:
        """Take the numbers for the messages from now on: nodes out of service, of the GPU nodes."""
        self._out = Out(out, gpu_nodes)

    def reset(self, state: NodeState) -> None:
        """Notify of a person's reset, which the node's record shows. The command has sent the Event."""
        words = reset_words(state.record.releases[0])
        event = EventReason.RELEASED
        self._notify(state, Change(state.name, Verb.UNTAINT, state.record, None, event=event, message=words))

    def _notify(self, state: NodeState, change: Change) -> None:
        now = datetime.now(UTC)
        for reason, message, subject in events_of(change):
            if told := TOLD.get(reason):
                make = partial(news_of_node, state, change, reason, message, subject, now, self._out)
                self._put(told.kind, make)

    def _put(self, kind: Kind, make: Callable[[], News]) -> None:
        for notifier in self._notifiers:
            notifier.put(make, urgent=kind.urgent)


class Notifier:
    """Sends the notifications to one receiver."""

    def __init__(
        self,
        webhook: Webhook,
        metrics: Metrics,
        *,
        pause: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``pause`` waits a number of seconds, and returns true as soon as the process ends."""
        self._webhook = webhook
        self._name = "Slack" if webhook.name == "slack" else "the webhook"
        self._clock = clock
        self._results = {
            result: metrics.notifications.labels(webhook.name, result)
            for result in ("sent", "failed", "dropped")
        }
        self._numbers = itertools.count()
        self.queue = SideQueue[_Item](
            name=f"notify-{webhook.name}",
            handle=self._handle,
            what=f"notifications to {self._name}",
            most=WAITING_MOST,
            close_seconds=CLOSE_SECONDS,
            lost=self._results["dropped"].inc,
        )
        self._pause = pause or self.queue.closing.wait
        self._retry = retrying(_BACKOFF, self._pause, attempts=TRIES)
        self._known: dict[str, float] = {}
        """By id, when the notification came."""
        self._waiting: list[News] = []
        self._problem = ""

    def put(self, make: Callable[[], News], *, urgent: bool) -> None:
        """Queue the news that ``make`` returns, and return at once."""
        self.queue.put((next(self._numbers), make), urgent=urgent)

    def _handle(self, first: _Item) -> None:
        """Send the first news, and those that come until all are sent, in the order of time."""
        items = [first]
        while items or self._waiting:
            self._pause(GATHER_SECONDS)
            self._take([*items, *self.queue.rest()])
            items, self._waiting = [], current(self._waiting)
            if self._waiting:
                message, self._waiting = next_message(self._waiting)
                self._tried(partial(self._deliver, message))

    def _take(self, items: Sequence[_Item]) -> None:
        """Take in these news in the order of time: the queue hands out the urgent ones first."""
        for _, make in sorted(items, key=lambda item: item[0]):
            self._tried(partial(self._add, make))

    def _add(self, make: Callable[[], News]) -> None:
        """Add news that are not known yet."""
        news, now = make(), self._clock()
        if now - self._known.get(news.id, -math.inf) >= REMEMBERED_SECONDS:
            self._known[news.id] = now
            self._waiting.append(news)
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    def _tried(self, do: Callable[[], None]) -> None:
        """Note a bug, so that all other notifications are still sent."""
        try:
            do()
        except Exception as error:  # noqa: BLE001  # not left to the queue: the text may quote the URL
            self._results["failed"].inc()
            name = type(error).__name__
            self._note(name, f"A notification to {self._name} failed ({name}). Please report this.")

    def _deliver(self, message: Message) -> None:
        """Post one message, with retries; report the first failure in a row, and the end of the failures."""
        try:
            self._retry(self._send, message)
        except _OvertakenError:
            return
        except WebhookOffError as off:
            self._note(str(off), f"Notifications to {self._name} are off. {off}.", is_failure=False)
        except WebhookError as error:
            self._results["failed"].inc()
            self._note(
                str(error), f"A notification to {self._name} failed: {error}. It was: {message.headline}."
            )
        else:
            self._results["sent"].inc()
            self._note("", f"Notifications to {self._name} arrive.", is_failure=False)

    def _send(self, message: Message) -> None:
        """Try to post the message. Raises _OvertakenError, WebhookError, WebhookOffError.

        The news that came meanwhile may overtake it. At the end they stay in the queue, which counts
        what is left.
        """
        if len(self._waiting) < WAITING_MOST and not self.queue.closing.is_set():
            self._take(self.queue.rest())
        if not current(message.news, self._waiting):
            raise _OvertakenError
        self._webhook.send(message)

    def _note(self, problem: str, text: str, *, is_failure: bool = True) -> None:
        if problem != self._problem:
            (logs.warning if is_failure else logs.info)(text)
        self._problem = problem
