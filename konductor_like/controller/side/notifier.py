"""Sends notifications, in one thread for each receiver, so that no receiver delays a reconcile or another.

A notification is as good as its Event: it is sent after the write, and a crash loses those in the queue.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from konductor_like.backoff import Backoff, retrying
from konductor_like.cluster.events import events_of
from konductor_like.controller import logs
from konductor_like.controller.ports import EventSink
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.side.work import Rate, SideQueue
from konductor_like.model import Change, EventReason, Incident, NodeState, Verb
from konductor_like.notify.messages import Message, Next, current, next_message
from konductor_like.notify.news import (
    KINDS,
    Kind,
    News,
    Out,
    news_of_fleet,
    news_of_freed,
    news_of_node,
    with_groups,
)
from konductor_like.notify.webhook import Webhook, WebhookError, WebhookOffError
from konductor_like.policy.node.release import reset_words

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
_Item = tuple[int, _Make]
"""The place of the news in time, and what makes them."""
_Nodes = Callable[[], Mapping[str, NodeState]]
"""Returns the Nodes by name. Any thread may call it."""
_T = TypeVar("_T")


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
        nodes: _Nodes,
    ) -> None:
        """``events`` sends Events about nodes, ``fleet_event`` those about the fleet.

        ``nodes`` are asked for the failure groups when a message is made.
        """
        self._events = events
        self._fleet_event = fleet_event
        self._notifiers = [Notifier(webhook, metrics, nodes=nodes) for webhook in webhooks]
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
        if kind := KINDS.get(reason):
            self._put(kind, partial(news_of_fleet, reason, message, act, datetime.now(UTC), self._out))

    def counted(self, out: int, gpu_nodes: int) -> None:
        """Take the numbers for the messages from now on: nodes out of service, of the GPU nodes."""
        self._out = Out(out, gpu_nodes)

    def freed(self, state: NodeState, held: Incident) -> None:
        """Notify that the brake no longer holds a taint back for this incident, and the node has none."""
        self._put(Kind.FREED, partial(news_of_freed, state, held, datetime.now(UTC), self._out))

    def reset(self, state: NodeState) -> None:
        """Notify of a person's reset, which the node's record shows. The command has sent the Event."""
        words = reset_words(state.record.releases[0])
        event = EventReason.RELEASED
        self._notify(state, Change(state.name, Verb.UNTAINT, state.record, None, event=event, message=words))

    def _notify(self, state: NodeState, change: Change) -> None:
        now = datetime.now(UTC)
        for reason, message, subject in events_of(change):
            if kind := KINDS.get(reason):
                make = partial(news_of_node, state, change, reason, message, subject, now, self._out)
                self._put(kind, make)

    def _put(self, kind: Kind, make: _Make) -> None:
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
        nodes: _Nodes = dict,
    ) -> None:
        """``pause`` waits a number of seconds, and returns true as soon as the process ends."""
        self._webhook = webhook
        self._name = "Slack" if webhook.name == "slack" else "the webhook"
        self._clock = clock
        self._nodes = nodes
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
        self._messages_sent = Rate(MESSAGES_MOST, SPAN_SECONDS, clock)
        self._known: dict[str, float] = {}
        """By id, when the notification came."""
        self._later: list[News] = []
        """News that came since the news that are sent now were gathered."""
        self._problem = ""

    def put(self, make: _Make, *, urgent: bool) -> None:
        """Queue the news that ``make`` returns, and return at once."""
        self.queue.put((next(self._numbers), make), urgent=urgent)

    def _handle(self, first: _Item) -> None:
        """Gather the news that come with the first, and send all of them in the order of time."""
        items, news = [first], list[News]()
        while items or news:
            self._pause(GATHER_SECONDS)
            news += self._news([*items, *self.queue.rest()])
            items, self._later = [], []
            while news:
                while not self._left():
                    self._pause(self._messages_sent.wait_seconds())
                self._look_ahead()
                message, news = self._tried(partial(self._next, news)) or Next(None, [])
                if message is not None:
                    self._tried(partial(self._deliver, message))
            news = self._later

    def _look_ahead(self) -> None:
        """Take in the news that came meanwhile: a taint among them may overtake the return of its node.

        At the end they stay in the queue, which counts the news that are left.
        """
        if len(self._later) < WAITING_MOST and not self.queue.closing.is_set():
            self._later += self._news(self.queue.rest())

    def _left(self) -> int:
        """Return how many messages may be sent now; at the end always one."""
        return max(self._messages_sent.left(), self.queue.closing.is_set())

    def _next(self, news: Sequence[News]) -> Next:
        return next_message(with_groups(news, self._nodes()), self._left(), self._later)

    def _news(self, items: Sequence[_Item]) -> list[News]:
        """Return the news of the items in the order of time: the queue hands out the urgent ones first."""
        in_order = sorted(items, key=lambda item: item[0])
        found = [each for _, make in in_order for each in self._tried(make) or ()]
        return [each for each in found if each.kind not in self._webhook.leaves_out and self._is_new(each)]

    def _tried(self, do: Callable[[], _T]) -> _T | None:
        """Return the result; note a bug and return None, so that all other notifications are still sent."""
        try:
            return do()
        except Exception as error:  # noqa: BLE001  # not left to the queue: the text may quote the URL
            self._results["failed"].inc()
            name = type(error).__name__
            self._note(name, f"A notification to {self._name} failed ({name}). Please report this.")
            return None

    def _is_new(self, news: News) -> bool:
        if self._clock() - self._known.get(news.id, -math.inf) < REMEMBERED_SECONDS:
            return False
        self._known[news.id] = self._clock()
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return True

    def _deliver(self, message: Message) -> None:
        """Post one message, with retries; report the first failure in a row, and the end of the failures."""
        self._messages_sent.use()
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
        """Try to post the message. Raises _OvertakenError, WebhookError, WebhookOffError."""
        self._look_ahead()
        if not current(message.news, self._later):
            raise _OvertakenError
        self._webhook.send(message)

    def _note(self, problem: str, text: str, *, is_failure: bool = True) -> None:
        if problem != self._problem:
            (logs.warning if is_failure else logs.info)(text)
        self._problem = problem
