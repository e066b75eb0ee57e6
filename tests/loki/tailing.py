"""A tail to follow, what it told, and a server that plays what a test wants."""

from __future__ import annotations

import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from konductor_like.loki.errors import LokiError
from konductor_like.loki.tail import Tail
from tests.loki.support import QUERY, settings

PATIENCE_SECONDS = 20.0
NUDGE = "nudge"
CONNECTED = "connected"


class Notes:
    """What a tail told, in order."""

    def __init__(self) -> None:
        self._told: queue.Queue[object] = queue.Queue()
        self.failures = 0

    def nudged(self, oldest_ns: int | None) -> None:
        self._told.put((NUDGE, oldest_ns))

    def connected(self) -> None:
        self._told.put(CONNECTED)

    def disconnected(self, error: LokiError | None, failures: int) -> None:
        self.failures = failures
        self._told.put(error)

    def next(self) -> object:
        return self._told.get(timeout=PATIENCE_SECONDS)

    def until(self, wanted: Callable[[object], bool]) -> object:
        while not wanted(told := self.next()):
            pass
        return told

    def nudge_of(self, timestamp_ns: int) -> None:
        self.until(lambda told: told == (NUDGE, timestamp_ns))

    def failure(self) -> LokiError:
        told = self.until(lambda told: isinstance(told, LokiError))
        assert isinstance(told, LokiError)
        return told


@contextmanager
def following(endpoint: str, query: str = QUERY, **values: Any) -> Iterator[tuple[Tail, Notes]]:
    notes = Notes()
    tail = Tail(settings(log_endpoint=endpoint, **values), query, time.time_ns, notes)
    tail.start()
    try:
        yield tail, notes
    finally:
        tail.close(PATIENCE_SECONDS)
        assert not tail._thread.is_alive()


@contextmanager
def websocket_server(
    act: Callable[[ServerConnection], None], context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Plays ``act`` with every connection; gives the URL."""

    def handle(connection: ServerConnection) -> None:
        try:
            act(connection)
        except ConnectionClosed:
            return  # the client has left, as some tests want

    with serve(handle, "127.0.0.1", 0, ssl=context) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{'https' if context else 'http'}://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()
