"""Heartbeats read apart from faults: half-open tiles a little behind the present, each about once.

::

    ────┬── tile ──┬── tile ──┬─ behind ─┐
      read       read       being       now
                            read

Five thousand nodes give 83 heartbeats a second. So there is no overlap and nothing is remembered of a line:
what came later than its tile is found where somebody asks for a span to be read once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from konductor_like.loki.errors import LokiError
from konductor_like.loki.logql import heartbeat_query
from konductor_like.loki.poll import PollResult
from konductor_like.loki.response import Naming, log_line
from konductor_like.loki.window_query import Ask, Piece, Queries, Window, WindowQuery, read_span
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS, span_ns
from konductor_like.settings import Settings

TILE_SECONDS = 20.0
"""Time between two polls, and so the width of a tile."""
BEHIND_NS = 20 * SECOND_NS
"""So far behind now a tile ends: a healthy pipeline delivers sooner."""
NAMES_MOST = 500
"""For more nodes than this, all of them are asked for."""
_TILE_NS = span_ns(TILE_SECONDS)
_WIDEST_NS = 3600 * SECOND_NS
_QUERIES = 6
_LINES = 10_000
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Reread:
    """A span to be read once more, for the heartbeats of these nodes."""

    start_ns: int
    end_ns: int
    nodes: frozenset[str]
    tries: int = 0


class HeartbeatReader:
    """Reads what the kernel-log readers say about themselves. Time is an argument.

    ``poll`` and ``commit`` are for one thread, ``reread`` may be called from another.
    """

    def __init__(self, client: Queries, settings: Settings, now_ns: int) -> None:
        """It begins with the span before ``now_ns`` whose heartbeats say which nodes are heard."""
        self._naming = Naming.of(settings)
        self._query = WindowQuery(
            client, heartbeat_query(settings), self._naming.node, settings.loki_limit, _WIDEST_NS
        )
        self._stale_ns = span_ns(settings.heartbeat_stale_seconds)
        self._upto_ns = now_ns - self._stale_ns
        self._asked: deque[Reread] = deque()
        self._rereads: list[Reread] = []
        self._left: list[Reread] = []

    def ask_for(self, query: str) -> None:
        """Ask another query from the next poll on."""
        self._query.text = query

    def reread(self, rereads: Iterable[Reread]) -> None:
        """Read these too, after the present and in the order given."""
        self._asked.extend(rereads)

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """Read the tile that is due, then some of what is to be read once more.

        After a failure it goes on where it stopped, but skips what is older than the stale span: who is heard
        now matters more, and what is missing before that is a gap, to be read in its own time. Raises a
        LokiError; what was read is not committed then, and comes again.
        """
        while self._asked:
            self._rereads.append(self._asked.popleft())
        tile = Window(max(min(self._upto_ns, now_ns), now_ns - self._stale_ns - _TILE_NS), now_ns - BEHIND_NS)
        upto_ns, left, pieces = tile.start_ns, self._rereads, list[Piece]()
        due = tile.width_ns >= _TILE_NS // 2
        self._query.begin()
        try:
            if due:
                upto_ns = self._read(tile, _TILE_NS, 3 * _TILE_NS, self._query.lines_of(), pieces)
            finished = not due or upto_ns >= tile.end_ns
            if finished:
                left = self._read_again(pieces)
        except LokiError as error:
            self._query.failed(error)
            raise
        self._query.succeeded()
        self._left = left
        found = [log_line(entry, Source.KERNEL, self._naming) for piece in pieces for entry in piece.entries]
        lines = tuple(line for line in found if line is not None)
        return PollResult(
            lines=lines,
            upto_ns=upto_ns,
            more=not finished or bool(left),
            queries=self._query.queries,
            bytes_processed=self._query.bytes_processed,
            incomplete_windows=tuple(piece.window for piece in pieces if not piece.complete),
            without_node=sum(line.node is None for line in lines),
            foreign=len(found) - len(lines),
            cursor_ahead_ns=max(0, self._upto_ns - now_ns),
        )

    def commit(self, result: PollResult) -> None:
        """What is in the result was heard."""
        self._upto_ns, self._rereads = result.upto_ns, self._left

    def _read(self, span: Window, first_ns: int, widest_ns: int, ask: Ask, pieces: list[Piece]) -> int:
        """Read a span as far as one poll may; gives how far that is."""
        upto_ns = span.start_ns
        for piece in read_span(span, first_ns, widest_ns, ask):
            pieces.append(piece)
            upto_ns = piece.window.end_ns
            if self._full(pieces):
                break
        return upto_ns

    def _read_again(self, pieces: list[Piece]) -> list[Reread]:
        """Read spans once more; gives what is left of them."""
        left = [*self._rereads]
        while left and not self._full(pieces):
            one = left[0]
            few = len(one.nodes) <= NAMES_MOST
            ask = self._query.lines_of(only=one.nodes if few else ())
            try:
                span = Window(one.start_ns, one.end_ns)
                upto_ns = self._read(
                    span, _WIDEST_NS if few else _TILE_NS, self._query.widest_ns, ask, pieces
                )
            except LokiError:
                # It must not keep the others from being read for ever.
                self._rereads.remove(one)
                if one.tries + 1 < _TRIES:
                    self._rereads.append(replace(one, tries=one.tries + 1))
                raise
            left[:1] = [replace(one, start_ns=upto_ns)] if upto_ns < one.end_ns else []
        return left

    def _full(self, pieces: list[Piece]) -> bool:
        return self._query.queries >= _QUERIES or sum(len(piece.entries) for piece in pieces) >= _LINES
