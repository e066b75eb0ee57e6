"""Heartbeats read apart from faults: half-open tiles a little behind the present, each about once.

::

    ────┬── tile ──┬── tile ──┬─ behind ─┐
      read       read       being       now
                            read

Five thousand nodes give 83 heartbeats a second. So there is no overlap and nothing is remembered of a line:
what came later than its tile is found by a *look*, a span that is read once more because somebody asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from konductor_like.loki.errors import LokiError
from konductor_like.loki.logql import heartbeat_query
from konductor_like.loki.poll import PollResult
from konductor_like.loki.response import Naming, log_line
from konductor_like.loki.window_query import SECOND_NS, Piece, Queries, Window, WindowQuery, read_span
from konductor_like.model import LogLine, Source
from konductor_like.settings import Settings

TILE_SECONDS = 20.0
"""Time between two polls, and so the width of a tile."""
BEHIND_NS = 20 * SECOND_NS
"""So far behind now a tile ends: a healthy pipeline delivers sooner."""
NAMES_MOST = 500
"""A look for more nodes than this asks for all of them."""
_TILE_NS = round(TILE_SECONDS * SECOND_NS)
_LOOK_NS = 3600 * SECOND_NS
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
    width_ns: int = _TILE_NS
    """How wide the next window may be, learnt from the one before."""


@dataclass(slots=True)
class _Found:
    """What one poll adds up to."""

    upto_ns: int
    left: list[Reread]
    """What is still to be read once more."""
    finished: bool = True
    lines: list[LogLine] = field(default_factory=list)
    foreign: int = 0
    incomplete: list[Window] = field(default_factory=list)


class HeartbeatReader:
    """Reads what the kernel-log readers say about themselves. Time is an argument.

    ``poll`` and ``commit`` are for one thread, ``look`` may be called from another.
    """

    def __init__(self, client: Queries, settings: Settings) -> None:
        self.source = Source.KERNEL
        self._naming = Naming.of(settings)
        self._asking = WindowQuery(
            client, heartbeat_query(settings), self._naming.node, settings.loki_limit, _LOOK_NS
        )
        self._stale_ns = round(settings.heartbeat_stale_seconds * SECOND_NS)
        self._upto_ns: int | None = None
        self._asked: deque[Reread] = deque()
        self._looks: list[Reread] = []
        self._left: list[Reread] = []

    def start_from(self, now_ns: int) -> None:
        """Begin with the span whose heartbeats say which nodes are heard."""
        self._upto_ns = now_ns - self._stale_ns

    def ask_for(self, query: str) -> None:
        """Ask another query from the next poll on."""
        self._asking.text = query

    def look(self, looks: Iterable[Reread]) -> None:
        """Read these too, after the present and in the order given."""
        self._asked.extend(looks)

    @property
    def slowdown(self) -> float:
        """It reads too little to be slowed down by the byte budget."""
        return 1.0

    def poll(self, now_ns: int, _oldest_ns: int | None = None, /) -> PollResult:
        """Read the tile that is due, then some of what is to be read once more.

        After a failure it goes on where it stopped, but skips what is older than the stale span: who is heard
        now matters more, and what is missing before that is a gap, to be looked at in its own time. Raises a
        LokiError; what was read is not committed then, and comes again.
        """
        if self._upto_ns is None:
            raise RuntimeError("start_from() comes before poll()")
        self._asking.begin()
        while self._asked:
            self._looks.append(self._asked.popleft())
        found = _Found(max(min(self._upto_ns, now_ns), now_ns - self._stale_ns - _TILE_NS), [*self._looks])
        try:
            self._read_tile(found, now_ns - BEHIND_NS)
            if found.finished:
                self._read_looks(found)
        except LokiError as error:
            self._asking.failed(error)
            raise
        self._asking.succeeded()
        self._left = found.left
        return PollResult(
            lines=tuple(found.lines),
            upto_ns=found.upto_ns,
            more=not found.finished or bool(found.left),
            queries=self._asking.queries,
            bytes_processed=self._asking.bytes_processed,
            incomplete_windows=tuple(found.incomplete),
            without_node=sum(line.node is None for line in found.lines),
            foreign=found.foreign,
            cursor_ahead_ns=max(0, self._upto_ns - now_ns),
        )

    def commit(self, batch: PollResult) -> None:
        """What is in the batch was heard."""
        self._upto_ns, self._looks = batch.upto_ns, self._left

    def _read_tile(self, found: _Found, end_ns: int) -> None:
        if end_ns - found.upto_ns < _TILE_NS // 2:
            return
        for piece in read_span(
            Window(found.upto_ns, end_ns), _TILE_NS, 3 * _TILE_NS, self._asking.lines_of()
        ):
            self._take(piece, found)
            found.upto_ns = piece.window.end_ns
            if self._full(found):
                break
        found.finished = found.upto_ns >= end_ns

    def _read_looks(self, found: _Found) -> None:
        while found.left and not self._full(found):
            look = found.left[0]
            few = len(look.nodes) <= NAMES_MOST
            ask = self._asking.lines_of(only=look.nodes if few else ())
            first_ns = _LOOK_NS if few else look.width_ns
            try:
                for piece in read_span(
                    Window(look.start_ns, look.end_ns), first_ns, self._asking.widest_ns, ask
                ):
                    self._take(piece, found)
                    wider_ns = min(2 * piece.window.width_ns, _LOOK_NS)
                    look = replace(look, start_ns=piece.window.end_ns, width_ns=wider_ns)
                    if self._full(found):
                        break
            except LokiError:
                self._put_off(self._looks[-len(found.left)])
                raise
            found.left[:1] = [look] if look.start_ns < look.end_ns else []

    def _put_off(self, look: Reread) -> None:
        """It failed, and must not keep the others from being read for ever."""
        self._looks.remove(look)
        if look.tries + 1 < _TRIES:
            self._looks.append(replace(look, tries=look.tries + 1))

    def _full(self, found: _Found) -> bool:
        return self._asking.queries >= _QUERIES or len(found.lines) >= _LINES

    def _take(self, piece: Piece, found: _Found) -> None:
        if not piece.complete:
            found.incomplete.append(piece.window)
        for entry in piece.entries:
            line = log_line(entry, self.source, self._naming)
            if line is None:
                found.foreign += 1
            else:
                found.lines.append(line)
