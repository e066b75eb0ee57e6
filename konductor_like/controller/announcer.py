"""Sends Events about Nodes after their writes, in threads of its own, so that they never delay a taint."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable

from konductor_like.cluster.events import events_of
from konductor_like.controller import logs
from konductor_like.model import Change, EventReason, NodeState

WAITING_AT_MOST = 2000
"""Events in the queue; further ones are only logged."""
SENDERS = 3
"""Threads that send. With 3, the last of 1,000 Events waits for about 333 round trips."""
CLOSE_SECONDS = 5.0
Send = Callable[[NodeState, EventReason, str, str, str], bool]
"""Sends one Event and returns whether that worked: ``NodeEvents.send``."""


class Announcer:
    """Queues Events and sends them in order, a few at once."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queue: queue.Queue[tuple[NodeState, EventReason, str, str, str] | None] = queue.Queue(
            WAITING_AT_MOST
        )
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"events-{n}", daemon=True) for n in range(SENDERS)
        ]
        for thread in self._threads:
            thread.start()

    def announce(self, state: NodeState, change: Change) -> None:
        """Queue the change's Events, if it has any. If the queue is full, only log them."""
        for reason, message, subject in events_of(change):
            try:
                self._queue.put_nowait((state, reason, message, subject, change.act_id))
            except queue.Full:
                logs.warning(
                    f"node {state.name}: too many Events wait, so this one was not sent: {message}",
                    node=state.name,
                )

    def close(self) -> None:
        """Send the queued Events for at most ``CLOSE_SECONDS``, then stop."""
        end = time.monotonic() + CLOSE_SECONDS
        for _ in self._threads:
            with contextlib.suppress(queue.Full):  # a thread with a full queue sees ``_closing`` by itself
                self._queue.put(None, timeout=max(0.0, end - time.monotonic()))
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set() and (item := self._queue.get()) is not None:
            try:
                if not self._send(*item):
                    logs.debug(f"Event for node {item[0].name} could not be sent.", node=item[0].name)
            except Exception:  # noqa: BLE001  # the thread must go on with the next Event; logged in full
                logs.LOGGER.exception("An Event could not be sent. Please report this.")
