"""One node's kernel lines since its boot, read once, because its Node was made anew (design rule 3)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from konductor_like.loki.errors import (
    LokiError,
    LokiOverloaded,
    LokiStopped,
    LokiUnauthorized,
    LokiUnavailable,
    LokiUnreachable,
)
from konductor_like.loki.poll import PollResult
from konductor_like.loki.response import Naming, log_line
from konductor_like.loki.window_query import SECOND_NS, Queries, Window, WindowQuery, read_span
from konductor_like.model import LogLine, Source
from konductor_like.settings import Settings

READ_SECONDS = 20.0
"""Time between two polls, each of which reads one node."""
LONGEST_NS = 86_400 * SECOND_NS
LINES_MOST = 5000
NODES_MOST = 1000
"""More than this wait at most; the kernel lines of the last hour are read again anyway."""
_QUERIES = 40
_TRIES = 3
_NO_FAULT_OF_ITS_OWN = (
    LokiUnreachable,
    LokiUnauthorized,
    LokiOverloaded,
    LokiUnavailable,
    LokiStopped,
)
"""While Loki is away for everybody, no node uses up its tries."""


@dataclass(frozen=True, slots=True)
class _Backfill:
    """The kernel lines of one node from a time on."""

    node: str
    since_ns: int
    tries: int = 0


class NodeBackfill:
    """Reads the nodes that are wanted, one a poll. ``want`` may be called from another thread."""

    def __init__(self, client: Queries, query: str, settings: Settings) -> None:
        """``query`` is the kernel source's, from :mod:`konductor_like.loki.logql`."""
        self.source = Source.KERNEL
        self._naming = Naming.of(settings)
        self._asking = WindowQuery(client, query, self._naming.node, settings.loki_limit, LONGEST_NS)
        self._next_query = query
        self._wanted: deque[_Backfill] = deque()

    def want(self, node: str, since_ns: int) -> None:
        """Read this node's lines from then on, at most a day of them."""
        if len(self._wanted) < NODES_MOST:
            self._wanted.append(_Backfill(node, since_ns))

    def ask_for(self, query: str) -> None:
        """Ask another query from the next poll on."""
        self._next_query = query

    @property
    def slowdown(self) -> float:
        """It reads too little to be slowed down by the byte budget."""
        return 1.0

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """The lines of the node that has waited longest, oldest first; nothing where none is wanted.

        They end at the bound on lines: what a flood has behind it is left to the readers of the present.
        Raises a LokiError; the node is tried again, a few times where it is its own query that fails.
        """
        self._asking.text = self._next_query
        self._asking.begin()
        lines: list[LogLine] = []
        wanted = self._wanted[0] if self._wanted else None
        if wanted is not None:
            try:
                self._read(wanted, now_ns, lines)
            except LokiError as error:
                self._asking.failed(error)
                self._wanted.popleft()
                tries = wanted.tries + (not isinstance(error, _NO_FAULT_OF_ITS_OWN))
                if tries < _TRIES:
                    self._wanted.append(_Backfill(wanted.node, wanted.since_ns, tries))
                raise
        return PollResult(
            upto_ns=now_ns,
            lines=tuple(lines),
            queries=self._asking.queries,
            bytes_processed=self._asking.bytes_processed,
        )

    def commit(self, batch: PollResult) -> None:
        """The lines were judged; the node is done with."""
        if batch.queries:
            self._wanted.popleft()

    def _read(self, wanted: _Backfill, now_ns: int, lines: list[LogLine]) -> None:
        # A node's clock may be ahead of ours, so that its boot has yet to begin.
        span = Window(min(max(wanted.since_ns, now_ns - LONGEST_NS), now_ns - SECOND_NS), now_ns)
        ask = self._asking.lines_of(only=(wanted.node,))
        for piece in read_span(span, LONGEST_NS, self._asking.widest_ns, ask):
            for entry in sorted(piece.entries, key=lambda entry: entry.timestamp_ns):
                line = log_line(entry, self.source, self._naming)
                if line is not None and line.node == wanted.node:
                    lines.append(line)
            if len(lines) >= LINES_MOST or self._asking.queries >= _QUERIES:
                break
        del lines[LINES_MOST:]
