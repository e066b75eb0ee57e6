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
from konductor_like.loki.response import log_lines
from konductor_like.loki.window_query import Piece, Queries, Window, WindowQuery
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
        self._settings = settings
        self._query = WindowQuery(client, heartbeat_query(settings), settings, _WIDEST_NS)
        self._stale_ns = span_ns(settings.heartbeat_stale_seconds)
        self._upto_ns = now_ns - self._stale_ns
        self._rereads: deque[Reread] = deque()
        self._rest: Reread | None = None
        """The part of the first of them that the latest poll left, where it read some of it."""

    def ask_for(self, query: str) -> None:
        """Ask another query from the next poll on."""
        self._query.text = query

    def reread(self, rereads: Iterable[Reread]) -> None:
        """Read these too, after the present and in the order given."""
        self._rereads.extend(rereads)

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """Read the tile that is due; where none is, some of what is to be read once more.

        After a failure it goes on where it stopped, but skips what is older than the stale span: who is heard
        now matters more, and what is missing before that is a gap, to be read in its own time. Raises a
        LokiError; what was read is not committed then, and comes again.
        """
        tile = Window(max(min(self._upto_ns, now_ns), now_ns - self._stale_ns - _TILE_NS), now_ns - BEHIND_NS)
        upto_ns, is_read, self._rest = tile.start_ns, True, None
        pieces: list[Piece] = []
        self._query.begin()
        if tile.width_ns >= _TILE_NS // 2:
            pieces = self._query.read(tile, _TILE_NS, widest_ns=3 * _TILE_NS, queries=_QUERIES, lines=_LINES)
            upto_ns = pieces[-1].window.end_ns
            is_read = upto_ns >= tile.end_ns
        elif self._rereads:
            pieces = self._read_again(self._rereads[0])
        entries = [entry for piece in pieces for entry in piece.entries]
        lines = log_lines(entries, Source.KERNEL, self._settings)
        done = self._rest is not None and self._rest.start_ns >= self._rest.end_ns
        return PollResult(
            lines=tuple(lines),
            upto_ns=upto_ns,
            more=not is_read or len(self._rereads) > done,
            queries=self._query.queries,
            bytes_processed=self._query.bytes_processed,
            incomplete_windows=tuple(piece.window for piece in pieces if not piece.complete),
            without_node=sum(line.node is None for line in lines),
            foreign=len(entries) - len(lines),
            cursor_ahead_ns=max(0, self._upto_ns - now_ns),
        )

    def commit(self, result: PollResult) -> None:
        """The heartbeats of the result were heard."""
        self._upto_ns = result.upto_ns
        if self._rest is not None:
            self._rereads.popleft()
            if self._rest.start_ns < self._rest.end_ns:
                self._rereads.appendleft(self._rest)
            self._rest = None

    def _read_again(self, one: Reread) -> list[Piece]:
        few = len(one.nodes) <= NAMES_MOST
        first_ns, nodes = (_WIDEST_NS, one.nodes) if few else (_TILE_NS, frozenset[str]())
        span = Window(one.start_ns, one.end_ns)
        try:
            pieces = self._query.read(span, first_ns, only=nodes, queries=_QUERIES, lines=_LINES)
        except LokiError:
            # It must not keep the others from being read for ever.
            self._rereads.popleft()
            if one.tries + 1 < _TRIES:
                self._rereads.append(replace(one, tries=one.tries + 1))
            raise
        self._rest = replace(one, start_ns=pieces[-1].window.end_ns if pieces else one.end_ns)
        return pieces
