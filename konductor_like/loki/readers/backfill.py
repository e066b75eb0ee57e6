"""Reading one node's kernel lines since its boot again, because its Node object was replaced (rule 3).

A node is read to the end, piece by piece, however much it has printed: the fault that had tainted it may be
its last line. Each poll reads one piece of one node, and the nodes take turns. The end is the present of the
node's first poll; the reader of the present reads later lines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from konductor_like.loki.query.errors import LOKI_DOWN, LokiError
from konductor_like.loki.query.response import log_lines
from konductor_like.loki.query.window_query import (
    HISTORY_FIRST_NS,
    HISTORY_REST_LEAST_SECONDS,
    HISTORY_WAIT_SECONDS,
    ByteBudget,
    Queries,
    TimeWindow,
    WindowQuery,
)
from konductor_like.loki.readers.poll import PollResult
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS
from konductor_like.settings import Settings

READ_SECONDS = 20.0
"""Seconds between two polls while no node waits."""
LONGEST_NS = 86_400 * SECOND_NS
"""Nanoseconds that are read of a node at most."""
NODES_MOST = 10_000
"""Nodes that wait at most: more than any cluster has."""
TRIES = 8
"""Failures of a node's own query in a row after which the node is given up. A time-out halves the window."""


@dataclass(frozen=True, slots=True)
class _Unread:
    """The part of a node's past that is still to be read."""

    node: str
    start_ns: int
    end_ns: int | None = None
    """None before the node's first poll."""
    width_ns: int = HISTORY_FIRST_NS
    """The width of the next window at most."""
    tries: int = 0


class NodeBackfill:
    """Reads the requested nodes. Other threads may call ``request`` and ``waiting``."""

    def __init__(
        self,
        client: Queries,
        query: str,
        settings: Settings,
        budget: ByteBudget,
        *,
        gave_up: Callable[[str, LokiError], object] = lambda _node, _error: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``query`` is the kernel source's, from :mod:`konductor_like.loki.query.logql`.

        ``gave_up`` is called, in the thread that polls, with a node that is not read any further, and why.
        """
        self._settings = settings
        self._query = WindowQuery(client, query, settings, LONGEST_NS)
        self._budget = budget
        self._gave_up = gave_up
        self._clock = clock
        self._lock = threading.Lock()
        self._unread: dict[str, _Unread] = {}
        """By node; the one whose turn it is comes first."""
        self._polled: tuple[_Unread, _Unread | None] | None = None
        """The span that the latest poll read from, and the part of it that is still unread."""

    def request(self, node: str, since_ns: int) -> bool:
        """Read this node's lines from ``since_ns`` on, at most a day of them; False if too many wait."""
        with self._lock:
            if node not in self._unread and len(self._unread) >= NODES_MOST:
                return False
            self._unread.pop(node, None)  # a Node that was replaced again is read from the beginning
            self._unread[node] = _Unread(node, since_ns)
            return True

    def waiting(self) -> frozenset[str]:
        """Return the nodes that are not read to the end yet."""
        with self._lock:
            return frozenset(self._unread)

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """Return the next lines of the node whose turn it is, oldest first; nothing when no node waits.

        There is ``more`` until every node is read. After a query the reader leaves Loki to the other readers
        for as long as the query took, and it waits while half of the byte budget is spent. Raises a
        LokiError; the node is then tried again, but not for ever when the node's own query fails.
        """
        self._polled = None
        with self._lock:
            first, others = next(iter(self._unread.values()), None), len(self._unread) - 1
        if first is None:
            return PollResult(upto_ns=now_ns)
        if not self._budget.allows_history:
            return PollResult(upto_ns=now_ns, more=True, wait_seconds=HISTORY_WAIT_SECONDS)
        start_ns, end_ns = first.start_ns, first.end_ns
        if end_ns is None:
            end_ns = now_ns
            # A node's clock may be ahead of ours, so that its boot has yet to begin.
            start_ns = min(max(start_ns, end_ns - LONGEST_NS), end_ns - SECOND_NS)
        began = self._clock()
        try:
            (piece,) = self._query.read(TimeWindow(start_ns, end_ns), first.width_ns, only=(first.node,))
        except LokiError as error:
            self._failed(first, error)
            raise
        finally:
            self._budget.spend(self._query.bytes_processed)
        upto_ns, left = piece.window.end_ns, None
        if upto_ns < end_ns:
            width_ns = self._budget.history_width_ns(piece, self._query.bytes_processed)
            left = _Unread(first.node, upto_ns, end_ns, width_ns)
        self._polled = first, left
        lines = log_lines(piece.entries, Source.KERNEL, self._settings)
        return PollResult(
            upto_ns=now_ns,
            lines=tuple(line for line in lines if line.node == first.node),
            more=left is not None or others > 0,
            wait_seconds=max(HISTORY_REST_LEAST_SECONDS, self._clock() - began),
            queries=self._query.queries,
            bytes_processed=self._query.bytes_processed,
            incomplete_windows=() if piece.complete else (piece.window,),
        )

    def commit(self, result: PollResult) -> None:
        """Note that the caller has acted on the lines; the next node has its turn."""
        if self._polled is not None and result.queries:
            self._replace(*self._polled)

    def _failed(self, first: _Unread, error: LokiError) -> None:
        tries = first.tries + (not isinstance(error, LOKI_DOWN))
        self._replace(first, replace(first, tries=tries) if tries < TRIES else None)
        if tries >= TRIES:
            self._gave_up(first.node, error)

    def _replace(self, read: _Unread, left: _Unread | None) -> None:
        """Put the rest behind the other nodes, unless the node was requested again meanwhile."""
        with self._lock:
            if self._unread.get(read.node) is not read:
                return
            del self._unread[read.node]
            if left is not None:
                self._unread[read.node] = left
