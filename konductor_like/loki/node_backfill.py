"""Reading one node's kernel lines since its boot again, because its Node object was replaced (rule 3)."""

from __future__ import annotations

from collections import deque

from konductor_like.loki.errors import LOKI_AWAY, LokiError, LokiUnavailable
from konductor_like.loki.poll import PollResult
from konductor_like.loki.response import log_lines
from konductor_like.loki.window_query import Queries, TimeWindow, WindowQuery
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS
from konductor_like.settings import Settings

READ_SECONDS = 20.0
"""Seconds between two polls; each poll reads one node."""
LONGEST_NS = 86_400 * SECOND_NS
"""Nanoseconds that are read of a node at most."""
LINES_MOST = 5000
NODES_MOST = 1000
"""Nodes that wait at most. A further node is ignored: the last hour of kernel lines is read again anyway."""
_QUERIES = 40
_TRIES = 3


class NodeBackfill:
    """Reads the requested nodes, one per poll. Another thread may call ``request``."""

    def __init__(self, client: Queries, query: str, settings: Settings) -> None:
        """``query`` is the kernel source's, from :mod:`konductor_like.loki.logql`."""
        self._settings = settings
        self._query = WindowQuery(client, query, settings, LONGEST_NS)
        self._requests: deque[tuple[str, int, int]] = deque()
        """Per request: the node, the time from which to read, and how often the node's own query failed."""

    def request(self, node: str, since_ns: int) -> None:
        """Read this node's lines from ``since_ns`` on, at most a day of them."""
        if len(self._requests) < NODES_MOST:
            self._requests.append((node, since_ns, 0))

    def use_query(self, query: str) -> None:
        """Use this query from the next poll on."""
        self._query.text = query

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """Return the lines of the node that waits longest, oldest first; nothing when no node waits.

        At most ``LINES_MOST`` lines are returned; a noisy node's further lines are left to the reader of the
        present. Raises a LokiError; the node is tried again, a few times when the node's own query fails.
        """
        if not self._requests:
            return PollResult(upto_ns=now_ns)
        node, since_ns, tries = self._requests[0]
        # A node's clock may be ahead of ours, so that its boot has yet to begin.
        span = TimeWindow(min(max(since_ns, now_ns - LONGEST_NS), now_ns - SECOND_NS), now_ns)
        try:
            pieces = self._query.read(span, LONGEST_NS, only=(node,), queries=_QUERIES, lines=LINES_MOST)
        except LokiError as error:
            self._requests.popleft()
            # While Loki answers nobody, no node uses up its tries.
            tries += not isinstance(error, (*LOKI_AWAY, LokiUnavailable))
            if tries < _TRIES:
                self._requests.append((node, since_ns, tries))
            raise
        entries = (entry for piece in pieces for entry in piece.entries)
        lines = [line for line in log_lines(entries, Source.KERNEL, self._settings) if line.node == node]
        return PollResult(
            upto_ns=now_ns,
            lines=tuple(lines[:LINES_MOST]),
            queries=self._query.queries,
            bytes_processed=self._query.bytes_processed,
        )

    def commit(self, result: PollResult) -> None:
        """Note that the caller has acted on the lines; the node's request is done."""
        if result.queries:
            self._requests.popleft()
