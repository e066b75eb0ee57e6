"""One node's kernel lines since its boot, read once, because its Node was made anew (rule 3)."""

from __future__ import annotations

from collections import deque

from konductor_like.loki.errors import LOKI_AWAY, LokiError, LokiUnavailable
from konductor_like.loki.poll import PollResult
from konductor_like.loki.response import log_lines
from konductor_like.loki.window_query import Queries, Window, WindowQuery
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS
from konductor_like.settings import Settings

READ_SECONDS = 20.0
"""Time between two polls, each of which reads one node."""
LONGEST_NS = 86_400 * SECOND_NS
LINES_MOST = 5000
NODES_MOST = 1000
"""More than this wait at most; the kernel lines of the last hour are read again anyway."""
_QUERIES = 40
_TRIES = 3


class NodeBackfill:
    """Reads the nodes that are asked for, one a poll. ``request`` may be called from another thread."""

    def __init__(self, client: Queries, query: str, settings: Settings) -> None:
        """``query`` is the kernel source's, from :mod:`konductor_like.loki.logql`."""
        self._settings = settings
        self._query = WindowQuery(client, query, settings, LONGEST_NS)
        self._requests: deque[tuple[str, int, int]] = deque()
        """Node, from when on, and how often its own query failed."""

    def request(self, node: str, since_ns: int) -> None:
        """Read this node's lines from then on, at most a day of them."""
        if len(self._requests) < NODES_MOST:
            self._requests.append((node, since_ns, 0))

    def ask_for(self, query: str) -> None:
        """Ask another query from the next poll on."""
        self._query.text = query

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """The lines of the node that has waited longest, oldest first; nothing where none is asked for.

        They end at the bound on lines: what a flood has behind it is left to the readers of the present.
        Raises a LokiError; the node is tried again, a few times where it is its own query that fails.
        """
        if not self._requests:
            return PollResult(upto_ns=now_ns)
        node, since_ns, tries = self._requests[0]
        # A node's clock may be ahead of ours, so that its boot has yet to begin.
        span = Window(min(max(since_ns, now_ns - LONGEST_NS), now_ns - SECOND_NS), now_ns)
        try:
            pieces = self._query.read(span, LONGEST_NS, only=(node,), queries=_QUERIES, lines=LINES_MOST)
        except LokiError as error:
            self._requests.popleft()
            # While Loki is away for everybody, no node uses up its tries.
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
        """The lines were acted upon; the node is done with."""
        if result.queries:
            self._requests.popleft()
