"""``GET /loki/api/v1/tail``: lines pushed to the client over a websocket, in the order of their arrival.

Sources: pkg/querier/tail, pkg/ingester/tailer.go; messages seen on a real Loki.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, BinaryIO

from konductor_like_sandbox import websocket
from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.loki.answers import streams
from konductor_like_sandbox.loki.engine import Hit, Work, cut, find_lines
from konductor_like_sandbox.loki.labels import Labels
from konductor_like_sandbox.loki.limits import LokiError
from konductor_like_sandbox.loki.logql import LogQuery
from konductor_like_sandbox.loki.store import Entry, Store
from konductor_like_sandbox.websocket import Opcode

_IDLE_SECONDS = 0.5
"""Seconds that a tail without new lines sleeps before it checks again (``tailerWaitEntryThrottle``)."""
_ENTRIES_AT_ONCE = 100
_ENTRIES_BUFFERED = 10 * _ENTRIES_AT_ONCE
"""Lines that wait for a slow client, at most. Of further lines only time and labels are sent."""
_DROPPED_TOLD = 1000
_GOING_AWAY = websocket.close_payload(1001, "reached tail max duration limit")


class Tails:
    """The open tails. ``close_all`` ends them, as Loki does after an hour."""

    def __init__(self) -> None:
        self._open: set[_Tail] = set()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """The number of open tails."""
        with self._lock:
            return len(self._open)

    def close_all(self) -> None:
        """End every tail from the server's side."""
        with self._lock:
            for tail in self._open:
                tail.end()

    def reply(self, request: Request, store: Store, query: LogQuery, start_ns: int, limit: int) -> Reply:
        """Return the upgrade to a websocket. Raises ``LokiError`` if the client did not ask for one."""
        key = request.headers.get("sec-websocket-key")
        if request.headers.get("upgrade", "").lower() != "websocket" or not key:
            raise LokiError(400, "Bad Request\n")

        def take_over(reader: BinaryIO, writer: BinaryIO) -> None:
            tail = _Tail(store, query, start_ns, limit)
            with self._lock:
                self._open.add(tail)
            try:
                tail.run(reader, writer)
            finally:
                with self._lock:
                    self._open.discard(tail)

        headers = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": websocket.accept_key(key),
        }
        return Reply(101, headers=headers, takeover=take_over)


class _Tail:
    """One open tail: one thread waits for the client's close, another one sends."""

    def __init__(self, store: Store, query: LogQuery, start_ns: int, limit: int) -> None:
        self._store = store
        self._query = query
        self._start_ns = start_ns
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: deque[Hit] = deque()
        self._dropped: list[Hit] = []
        self._pings: deque[bytes] = deque()
        self._over = threading.Event()

    def end(self) -> None:
        """Make the sender close the tail."""
        self._over.set()

    def run(self, reader: BinaryIO, writer: BinaryIO) -> None:
        """Serve until one side ends the tail."""
        leave = self._follow()
        sender = threading.Thread(target=self._send, args=(writer,), name="sandbox-tail")
        sender.start()
        try:
            while (frame := websocket.read_frame(reader)) and frame.opcode != Opcode.CLOSE:
                if frame.opcode == Opcode.PING:
                    self._pings.append(frame.payload)
        except (OSError, ValueError):
            pass  # the client is gone
        finally:
            leave()
            self.end()
            sender.join()

    def _follow(self) -> Callable[[], None]:
        """Queue the lines since the start, then every line as it arrives, without a gap."""
        with self._store.lock:
            past = find_lines(self._store, self._query, self._start_ns, 1 << 63, Work())
            newest = cut(past, self._limit, forward=False, falls_short=False)
            self._waiting.extend(reversed(newest))
            return self._store.subscribe(self._arrived)

    def _arrived(self, labels: Labels, entry: Entry) -> None:
        if not self._query.selects(labels) or not self._query.passes(labels, entry):
            return
        hit = Hit(entry.timestamp_ns, entry.line, labels, entry.metadata)
        with self._lock:
            if len(self._waiting) < _ENTRIES_BUFFERED:
                self._waiting.append(hit)
            elif len(self._dropped) < _DROPPED_TOLD:
                self._dropped.append(hit)

    def _send(self, writer: BinaryIO) -> None:
        try:
            while not self._over.is_set():
                while self._pings:
                    websocket.write_frame(writer, Opcode.PONG, self._pings.popleft())
                message = self._message()
                if message is None:
                    self._over.wait(_IDLE_SECONDS)
                else:
                    text = json.dumps(message, ensure_ascii=False)
                    websocket.write_frame(writer, Opcode.TEXT, text.encode("utf-8", "replace"))
            websocket.write_frame(writer, Opcode.CLOSE, _GOING_AWAY)
        except (OSError, ValueError):
            pass  # the client is gone; the listening thread finds out by itself

    def _message(self) -> dict[str, Any] | None:
        """Return the content of the next message; None if there is none."""
        with self._lock:
            hits = [self._waiting.popleft() for _ in range(min(_ENTRIES_AT_ONCE, len(self._waiting)))]
            dropped, self._dropped = self._dropped, []
        if not hits and not dropped:
            return None
        message: dict[str, Any] = {"streams": streams(hits, categorize=False)}
        if dropped:
            message["dropped_entries"] = [
                {"timestamp": str(hit.timestamp_ns), "labels": dict(hit.stream)} for hit in dropped
            ]
        return message
