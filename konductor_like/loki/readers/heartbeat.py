"""Reading the heartbeats apart from the faults: in tiles, a little behind the present, about once each.

::

    ────┬── tile ──┬── tile ──┬─ behind ─┐
      read       read       being       now
                            read

A tile is a span that is read once: a tile begins where the previous one ended. Five thousand nodes send 83
heartbeats a second, so tiles do not overlap, and the reader does not remember which lines it has read. A
heartbeat that reaches Loki after its tile was read is only found when :meth:`HeartbeatReader.reread` names
its span.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from konductor_like.loki.query.errors import LOKI_DOWN, LokiError
from konductor_like.loki.query.logql import heartbeat_query
from konductor_like.loki.query.response import log_lines
from konductor_like.loki.query.window_query import ByteBudget, Piece, Queries, TimeWindow, WindowQuery
from konductor_like.loki.readers.poll import PollResult
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS, span_ns
from konductor_like.settings import Settings

TILE_SECONDS = 20.0
"""Seconds between two polls, and so the width of a tile."""
BEHIND_NS = 20 * SECOND_NS
"""Nanoseconds between the end of the newest tile and now: a healthy pipeline delivers within that time."""
NAMES_MOST = 500
"""Nodes that one query names; for more nodes, the query asks for all nodes."""
_TILE_NS = span_ns(TILE_SECONDS)
_WIDEST_NS = 3600 * SECOND_NS
_QUERIES = 6
_LINES = 10_000
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Reread:
    """A span whose heartbeats of these nodes are to be read again."""

    start_ns: int
    end_ns: int
    nodes: frozenset[str]
    tries: int = 0


class HeartbeatReader:
    """Reads the heartbeats and overruns that the kernel-log readers print. Callers pass the time.

    One thread calls ``poll`` and ``commit``; others may call ``reread`` and ``rereading``.
    """

    def __init__(self, client: Queries, settings: Settings, now_ns: int, budget: ByteBudget) -> None:
        """The first tile begins ``heartbeat_stale_seconds`` before ``now_ns``.

        Tiles never wait for the ``budget``, because without them every node would be unknown. Rereads wait as
        sweeps do.
        """
        self._settings = settings
        self._budget = budget
        self._query = WindowQuery(client, heartbeat_query(settings), settings, _WIDEST_NS)
        self._stale_ns = span_ns(settings.heartbeat_stale_seconds)
        self._give_up_ns = span_ns(settings.gap_max_age_seconds)
        self._upto_ns = now_ns - self._stale_ns
        self._rereads: deque[Reread] = deque()
        self._unreadable: frozenset[str] = frozenset()
        """The nodes whose latest reread was given up."""
        self._rest: Reread | None = None
        """What the latest poll left of the first of ``_rereads``; None where that poll did not read it."""

    def reread(self, rereads: Iterable[Reread]) -> None:
        """Read these spans too, after the present and in this order; each once."""
        waiting = tuple(self._rereads)
        self._rereads.extend([new for new in rereads if new not in waiting])

    def rereading(self) -> frozenset[str]:
        """Return the nodes with a span that is still to be read again, or could not be."""
        return self._unreadable.union(*(reread.nodes for reread in tuple(self._rereads)))

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """Read the tile that is due; when none is due, read a part of the first reread.

        After a failure the reader goes on where it stopped, but skips what is older than the stale span. It
        first finds out which nodes send heartbeats now; the skipped span is a gap, and gaps are read again
        later. Raises a LokiError; then nothing is committed, and the next poll reads the same lines again.
        """
        start_ns = max(min(self._upto_ns, now_ns), now_ns - self._stale_ns - _TILE_NS)
        tile = TimeWindow(start_ns, now_ns - BEHIND_NS)
        upto_ns, is_read, self._rest = tile.start_ns, True, None
        pieces: list[Piece] = []
        self._query.begin()
        may_reread = self._budget.allows_sweeps
        try:
            if tile.width_ns >= _TILE_NS // 2:
                pieces = self._query.read(
                    tile, _TILE_NS, widest_ns=3 * _TILE_NS, queries=_QUERIES, lines=_LINES
                )
                upto_ns = pieces[-1].window.end_ns
                is_read = upto_ns >= tile.end_ns
            elif self._rereads and may_reread:
                pieces = self._read_again(self._rereads[0], now_ns)
        finally:
            self._budget.spend(self._query.bytes_processed)
        entries = [entry for piece in pieces for entry in piece.entries]
        lines = log_lines(entries, Source.KERNEL, self._settings)
        done = self._rest is not None and self._rest.start_ns >= self._rest.end_ns
        return PollResult(
            lines=tuple(lines),
            upto_ns=upto_ns,
            more=not is_read or (may_reread and len(self._rereads) > done),
            queries=self._query.queries,
            bytes_processed=self._query.bytes_processed,
            incomplete_windows=tuple(piece.window for piece in pieces if not piece.complete),
            without_node=sum(line.node is None for line in lines),
            foreign=len(entries) - len(lines),
            cursor_ahead_ns=max(0, self._upto_ns - now_ns),
        )

    def commit(self, result: PollResult) -> None:
        """Note that the caller has acted on the heartbeats of the result."""
        self._upto_ns = result.upto_ns
        if self._rest is not None:
            self._rereads.popleft()
            if self._rest.start_ns < self._rest.end_ns:
                self._rereads.appendleft(self._rest)
            else:
                self._unreadable -= self._rest.nodes
            self._rest = None

    def _read_again(self, one: Reread, now_ns: int) -> list[Piece]:
        few = len(one.nodes) <= NAMES_MOST
        first_ns, nodes = (_WIDEST_NS, one.nodes) if few else (_TILE_NS, frozenset[str]())
        span = TimeWindow(one.start_ns, one.end_ns)
        try:
            pieces = self._query.read(span, first_ns, only=nodes, queries=_QUERIES, lines=_LINES)
        except LokiError as error:
            # A span that fails must not keep the other spans from being read.
            self._rereads.popleft()
            tries = one.tries + (not isinstance(error, LOKI_DOWN))
            if tries < _TRIES and one.end_ns > now_ns - self._give_up_ns:
                self._rereads.append(replace(one, tries=tries))
            else:
                self._unreadable |= one.nodes
            raise
        self._rest = replace(one, start_ns=pieces[-1].window.end_ns if pieces else one.end_ns)
        return pieces
