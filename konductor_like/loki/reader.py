"""One source read without loss: a cursor, an overlap behind it, and every line delivered once.

::

    ──────────┬───────── overlap ─────────┬──── new ────┬─ skew ─┐
         window's start                cursor          now    window's end

There is no query by time of ingestion, and Loki takes late and out-of-order lines (design rule 8), so each
poll reads the overlap again and drops what was delivered before. The cursor is "read up to here, by our
clock"; it moves only when the caller commits the batch, after acting on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from konductor_like.loki.errors import LokiAnswerTooLarge, LokiError, LokiRefused, LokiTimeout
from konductor_like.loki.response import Entry, Naming, QueryResult, log_line
from konductor_like.loki.seen import Seen, identity
from konductor_like.loki.spans import SECOND_NS, Spans
from konductor_like.loki.window import Direction, Piece, Window, read_span
from konductor_like.model import LogLine, Source
from konductor_like.settings import Settings

_QUERIES_PER_POLL = 8
_ENTRIES_PER_POLL = 20_000
_CHARS_PER_POLL = 32 * 2**20


class Queries(Protocol):
    """What the reader needs of :class:`konductor_like.loki.client.LokiClient`."""

    def query_range(
        self, query: str, start_ns: int, end_ns: int, limit: int, direction: Direction = ...
    ) -> QueryResult:
        """See the client."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """What one poll found that was not delivered before, oldest first."""

    lines: tuple[LogLine, ...]
    upto_ns: int
    """Where the cursor stands once the batch is committed; never in the future."""
    more: bool
    """The poll stopped at its bound; the next one goes on from there, at once if you like."""
    queries: int
    bytes_processed: int
    """What Loki had to read for it."""
    duplicates: int
    """Entries that were delivered before, or twice in this poll; the overlap makes many."""
    incomplete_windows: tuple[Window, ...]
    """Single nanoseconds with more lines than Loki gives out; what could be had is in ``lines``."""
    without_node: int
    """How many of ``lines`` name no node (design rule 12)."""
    foreign: int
    """New entries whose labels say that they are not of this source; not in ``lines`` (design rule 15).

    Everyday for pods where the kernel-log reader's own namespace is watched; strange for the kernel.
    """
    cursor_ahead_ns: int
    """How far the cursor stood in the future, 0 when it did not; it was taken for now."""


@dataclass(slots=True)
class _Gathered:
    """What the windows of one poll added up to."""

    last: Window | None = None
    """The latest window that was accepted; everything up to its end was."""
    entries: int = 0
    chars: int = 0
    queries: int = 0
    bytes_processed: int = 0
    duplicates: int = 0
    foreign: int = 0
    lines: list[LogLine] = field(default_factory=list)
    incomplete: list[Window] = field(default_factory=list)
    new: dict[bytes, int] = field(default_factory=dict)

    @property
    def enough(self) -> bool:
        """Whether the poll should end here; a window that was accepted is progress enough."""
        return (
            self.queries >= _QUERIES_PER_POLL
            or self.entries >= _ENTRIES_PER_POLL
            or self.chars >= _CHARS_PER_POLL
        )


class SourceReader:
    """Reads one source. Not for several threads at once; time is an argument."""

    def __init__(
        self, source: Source, client: Queries, query: str, settings: Settings, spans: Spans | None = None
    ) -> None:
        """``query`` is from :mod:`konductor_like.loki.logql`; ``spans`` default to the source's settings."""
        self.source = source
        self.limit = settings.loki_limit
        """How many entries are asked for at once; lowered when the tenant allows fewer."""
        self._client = client
        self._query = self._next_query = query
        self._naming = Naming.of(settings)
        self._spans = spans or Spans.of(settings, source)
        self._widest_ns = self._spans.widest_ns
        self._cursor_ns: int | None = None
        self._resume: Window | None = None
        self._swept = False
        self._seen = Seen()
        self._open: tuple[Batch, _Gathered] | None = None

    @property
    def cursor_ns(self) -> int | None:
        """Everything before it was read and committed; None before :meth:`start_from`."""
        return self._cursor_ns

    def start_from(self, cursor_ns: int) -> None:
        """Begin at a cursor, forgetting what was delivered; the first sweep reaches back by the lateness."""
        self._cursor_ns = cursor_ns
        self._resume = None
        self._swept = False
        self._seen = Seen()
        self._open = None

    def ask_for(self, query: str) -> None:
        """Ask another query from the next poll on; may be called from another thread.

        The overlap is read again with it, lines delivered before excepted, so that nothing falls between.
        """
        self._next_query = query

    # Minimal until the new reader is here, which reads a narrower window when nudged.
    def poll(self, now_ns: int, oldest_ns: int | None = None) -> Batch:  # noqa: ARG002
        """Read what is new at ``now_ns``; one query when nothing special happens.

        A batch that is not committed comes again with the next poll. What was read before a failure is
        returned, with ``more``; a LokiError is raised when nothing was. Either way nothing is skipped.
        """
        if self._cursor_ns is None:
            raise RuntimeError("start_from() comes before poll()")
        self._query = self._next_query
        cursor_ns = min(self._cursor_ns, now_ns)
        end_ns = now_ns + self._spans.skew_ns
        gathered = self._gather(cursor_ns, end_ns)
        read_to_ns = gathered.last.end_ns if gathered.last else end_ns
        batch = Batch(
            lines=tuple(gathered.lines),
            upto_ns=max(cursor_ns, min(read_to_ns, now_ns)),
            more=read_to_ns < end_ns,
            queries=gathered.queries,
            bytes_processed=gathered.bytes_processed,
            duplicates=gathered.duplicates,
            incomplete_windows=tuple(gathered.incomplete),
            without_node=sum(line.node is None for line in gathered.lines),
            foreign=gathered.foreign,
            cursor_ahead_ns=self._cursor_ns - cursor_ns,
        )
        self._open = batch, gathered
        return batch

    def commit(self, batch: Batch) -> None:
        """Everything in ``batch`` was acted upon: it is not delivered again, and the cursor moves.

        Raises ValueError unless it is the batch that the latest poll returned.
        """
        if self._open is None or self._open[0] is not batch:
            raise ValueError("only the batch of the latest poll can be committed")
        gathered, self._open = self._open[1], None
        self._cursor_ns = batch.upto_ns
        self._resume = gathered.last if batch.more else None
        self._swept = True
        for digest, timestamp_ns in gathered.new.items():
            self._seen.add(timestamp_ns, digest)
        self._seen.forget_before(batch.upto_ns - self._spans.overlap_ns)

    def _gather(self, cursor_ns: int, end_ns: int) -> _Gathered:
        span, first_ns = self._span(cursor_ns, end_ns)
        gathered = _Gathered()

        def ask(window: Window, direction: Direction) -> QueryResult | None:
            return self._ask(window, direction, gathered)

        try:
            for piece in read_span(span, first_ns, self._widest_ns, ask):
                self._take(piece, gathered)
                if gathered.enough:
                    break
        except LokiError as error:
            if isinstance(error, LokiTimeout):
                self._widest_ns = max(SECOND_NS, self._widest_ns // 2)
            if gathered.last is None:
                raise
        else:
            # Widening slowly keeps a Loki that is slow with wide windows from timing out on every other poll.
            self._widest_ns = min(self._spans.widest_ns, self._widest_ns + self._spans.widest_ns // 64)
        return gathered

    def _span(self, cursor_ns: int, end_ns: int) -> tuple[Window, int]:
        """What to read, and how wide the first window may be."""
        # A sweep that was cut goes on where it stopped, or a flood in the overlap would be read for ever.
        if self._resume is not None and self._resume.end_ns < end_ns:
            return Window(self._resume.end_ns, end_ns), 2 * self._resume.width_ns
        reach_ns = self._spans.overlap_ns if self._swept else self._spans.lateness_ns
        return Window(max(0, cursor_ns - reach_ns), end_ns), self._widest_ns

    def _take(self, piece: Piece, gathered: _Gathered) -> None:
        gathered.last = piece.window
        gathered.entries += len(piece.entries)
        if not piece.complete:
            gathered.incomplete.append(piece.window)
        for entry in sorted(piece.entries, key=_time):
            gathered.chars += len(entry.text)
            digest = identity(entry, self._naming)
            if digest in gathered.new or self._seen.has(entry.timestamp_ns, digest):
                gathered.duplicates += 1
                continue
            gathered.new[digest] = entry.timestamp_ns
            line = log_line(entry, self.source, self._naming)
            if line is None:
                gathered.foreign += 1
            else:
                gathered.lines.append(line)

    def _ask(self, window: Window, direction: Direction, gathered: _Gathered) -> QueryResult | None:
        """One window's answer; None when it can only be had in parts."""
        limit = self.limit
        while True:
            gathered.queries += 1
            try:
                result = self._client.query_range(
                    self._query, window.start_ns, window.end_ns, limit, direction
                )
            except LokiAnswerTooLarge:
                if window.width_ns > 1:
                    return None
                if limit == 1:
                    raise
                limit //= 2
            except LokiRefused as error:
                if error.allowed_limit is not None and 0 < error.allowed_limit < limit:
                    self.limit = limit = error.allowed_limit
                elif error.asks_for_less and window.width_ns > SECOND_NS:
                    return None
                else:
                    raise
            else:
                gathered.bytes_processed += result.bytes_processed
                return result


def _time(entry: Entry) -> int:
    return entry.timestamp_ns
