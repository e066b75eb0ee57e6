"""One source read without loss: every line delivered once, the present never behind the past.

::

    ───┬─────── lateness ───────┬──── overlap ────┬── new ──┬─ skew ─┐
       sweep now and then       full poll       cursor     now    window's end

There is no query by time of ingestion, and Loki takes late and out-of-order lines (design rule 8). So each
poll reads a *fast window* that ends beyond the present, and beside it a part of the backlog: what was missed
while we were away, the rest of what was too much for one poll, the lateness again now and then, and spans in
which nodes were silent (:mod:`konductor_like.loki.backlog`). What was delivered before is dropped. The cursor
is "read in full up to here, by our clock"; it moves only when the caller commits the result, after acting on
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import nlargest

from konductor_like.loki.backlog import (
    MOST_NODES,
    NEAR_NS,
    Flood,
    PendingSpan,
    ReaderConfig,
    ReadState,
    Reason,
    given_up,
    is_away,
    is_catching_up,
    noisy_nodes,
    planned,
    read_again_from_ns,
)
from konductor_like.loki.byte_budget import ByteBudget
from konductor_like.loki.dedup import BUCKET_NS, DeliveredLines
from konductor_like.loki.errors import (
    LokiError,
    LokiOverloaded,
    LokiStopped,
    LokiTimeout,
    LokiUnauthorized,
    LokiUnreachable,
)
from konductor_like.loki.poll import Poll, PollResult
from konductor_like.loki.response import Naming
from konductor_like.loki.window_query import (
    KERNEL_ENTRY_BYTES,
    POD_ENTRY_BYTES,
    STORM_LINES,
    Direction,
    Piece,
    Queries,
    Window,
    WindowQuery,
    is_complete,
    read_span,
)
from konductor_like.model import Source
from konductor_like.settings import Settings

_QUERIES_PER_POLL = 8
"""For the present, and as many for the work."""
_ROUNDS = 4
"""How often a fast window is asked again without the loud nodes found so far."""
_FAILURES_MOST = 3
"""How often a window of the work is asked for before the next one is."""
_DEAF = (LokiUnreachable, LokiUnauthorized, LokiOverloaded, LokiStopped)
"""After these it is no use to ask something else."""


class SourceReader:
    """Reads one source. Not for several threads at once; time is an argument."""

    def __init__(
        self,
        source: Source,
        client: Queries,
        query: str,
        settings: Settings,
        spans: ReaderConfig | None = None,
        budget: ByteBudget | None = None,
        keeps: Callable[[str], bool] | None = None,
        other_clock_ns: Callable[[], int | None] = lambda: None,
    ) -> None:
        """``query`` is from :mod:`konductor_like.loki.logql`; ``spans`` default to the source's settings.

        Lines whose text ``keeps`` says no to are counted and not handed over; it must not raise.
        ``other_clock_ns`` is the time by a clock that differs from the one polls are given, where nothing
        says which is right: what is new by that one is read too.
        """
        self.source = source
        self._naming = Naming.of(settings)
        self._spans = spans or ReaderConfig.of(settings, source)
        self._budget = budget or ByteBudget(settings.loki_budget_mib_per_minute * 2**20)
        entry_bytes = KERNEL_ENTRY_BYTES if source is Source.KERNEL else POD_ENTRY_BYTES
        self._asking = WindowQuery(
            client, query, self._naming.node, settings.loki_limit, self._spans.widest_ns, entry_bytes
        )
        self._keeps = keeps
        self._next_query = query
        self._other_clock_ns = other_clock_ns
        self._gaps: frozenset[Window] = frozenset()
        self._seen = DeliveredLines()
        self._progress: ReadState | None = None
        self._open: Poll | None = None
        self._stop_at = 0
        self._hurried = False

    @property
    def limit(self) -> int:
        """How many entries are asked for at once: what the tenant allows and an answer can hold."""
        return self._asking.limit

    @property
    def cursor_ns(self) -> int | None:
        """Everything before it was read and committed; None before :meth:`start_from`."""
        return None if self._progress is None else self._progress.cursor_ns

    @property
    def slowdown(self) -> float:
        """How many times longer than usual to wait before the next poll, for the byte budget's sake."""
        return self._budget.slowdown(self.source)

    def start_from(self, cursor_ns: int) -> None:
        """Begin at a cursor, forgetting what was delivered; reading reaches back by the lateness."""
        self._progress = ReadState(cursor_ns, fast_ns=cursor_ns)
        self._seen = DeliveredLines()
        self._open = None

    def ask_for(self, query: str) -> None:
        """Ask another query from the next poll on; may be called from another thread.

        The overlap is read again with it, lines delivered before excepted, so that nothing falls between.
        """
        self._next_query = query

    def revisit(self, gaps: Iterable[tuple[int, int]]) -> None:
        """The spans, in Loki's ns, to be read again and again until they are not given any more.

        May be called from another thread.
        """
        self._gaps = frozenset(Window(start_ns, end_ns) for start_ns, end_ns in gaps)

    def poll(self, now_ns: int, oldest_ns: int | None = None) -> PollResult:
        """Read what is new at ``now_ns``; one query when nothing special happens.

        ``oldest_ns`` is the oldest timestamp that a nudge told of. A batch that is not committed comes again
        with the next poll. What was read before a failure is returned, with the failure; a LokiError is
        raised when nothing was. Either way nothing is skipped.
        """
        if self._progress is None:
            raise RuntimeError("start_from() comes before poll()")
        progress = self._progress
        if self._asking.query != self._next_query:
            self._asking.query = self._next_query
            progress = replace(progress, whole_ns=None)
        turn = Poll(
            planned(progress, self._spans, self._gaps, now_ns),
            self.source,
            self._naming,
            self._seen,
            self._keeps,
            given_up(progress, self._spans, now_ns),
        )
        other_ns = self._other_clock_ns()
        if other_ns is not None:
            start_ns = max(0, other_ns - self._spans.overlap_ns)
            turn.add(PendingSpan(Reason.LATE, start_ns, other_ns + max(1, self._spans.skew_ns)))
        self._asking.begin()
        failure = self._read(turn, now_ns, oldest_ns)
        self._budget.spend(self._asking.bytes_processed)
        if failure is not None and not turn.moved:
            raise failure
        self._open = turn
        turn.batch = turn.as_batch(
            now_ns,
            queries=self._asking.queries,
            bytes_processed=self._asking.bytes_processed,
            cursor_ahead_ns=max(0, progress.cursor_ns - now_ns),
            may_work=self._may_work(turn),
            failure=failure,
        )
        return turn.batch

    def commit(self, batch: PollResult) -> None:
        """Everything in ``batch`` was acted upon: it is not delivered again, and the cursor moves.

        Raises ValueError unless it is the batch that the latest poll returned.
        """
        if self._open is None or self._open.batch is not batch:
            raise ValueError("only the batch of the latest poll can be committed")
        turn, self._open = self._open, None
        self._progress = replace(turn.progress, cursor_ns=batch.upto_ns)
        self._seen.add(turn.new)
        for timestamp_ns, entries in turn.expected.items():
            self._seen.expect(timestamp_ns, entries)
        self._hurried = turn.hurried
        self._seen.forget_before(
            read_again_from_ns(turn.progress, self._spans), but=turn.progress.revisited()
        )

    def _read(self, turn: Poll, now_ns: int, oldest_ns: int | None) -> LokiError | None:
        """Read the present and a slice of the work; gives what ended it early, if something did."""
        failure: LokiError | None = None
        just_back = is_catching_up(turn.progress) and not is_catching_up(self._progress)
        if just_back:
            # Where the past can be had at once it comes first, so that counts and the order are right.
            failure = self._try(turn, lambda: self._work_off(turn, now_ns))
            if isinstance(failure, _DEAF):
                return failure
        present = self._try(turn, lambda: self._read_present(turn, now_ns, oldest_ns))
        if isinstance(present, LokiTimeout):
            # The window was too wide. Its newest part does not wait for the next poll.
            present = self._try(turn, lambda: self._read_present(turn, now_ns, oldest_ns))
        if present is not None or failure is not None or just_back:
            return present or failure
        if turn.lines and turn.progress.busy and not self._hurried:
            # What is new does not wait for the work; but no two polls in a row leave the work alone.
            turn.hurried = True
            return None
        # Each has its own allowance: a storm without end must not keep late lines from being found.
        failure = self._try(turn, lambda: self._read_floods(turn, now_ns))
        if isinstance(failure, _DEAF):
            return failure
        return self._try(turn, lambda: self._work_off(turn, now_ns)) or failure

    def _try(self, turn: Poll, read: Callable[[], None]) -> LokiError | None:
        self._stop_at = self._asking.queries + _QUERIES_PER_POLL
        turn.begin()
        try:
            read()
        except LokiError as error:
            self._asking.failed(error)
            return error
        self._asking.succeeded()
        return None

    # The present.

    def _read_present(self, turn: Poll, now_ns: int, oldest_ns: int | None) -> None:
        window, whole = self._present(turn, now_ns, oldest_ns)
        without = turn.progress.loud
        if window.width_ns > self._asking.widest_ns:
            # A Loki that is slow is asked for less at once: for what is nearest to now first.
            half_ns = self._asking.widest_ns // 2
            recent_ns = max(window.start_ns, now_ns - half_ns)
            if window.start_ns < recent_ns:
                turn.add(PendingSpan(Reason.REST, window.start_ns, recent_ns, without))
            window = Window(recent_ns, min(window.end_ns, now_ns + half_ns))
        for _ in range(_ROUNDS):
            result = self._asking.lines_of(without=without)(window, Direction.FORWARD)
            if result is not None and is_complete(result):
                turn.take(Piece(window, result.entries))
                break
            loud = noisy_nodes(result.entries, self._naming.node) - without if result else frozenset()
            if result is None or not loud or len(without | loud) > MOST_NODES:
                self._read_crowd(turn, window, now_ns, without)
                break
            # Their part of this page is not taken: an answer that was cut may have holes.
            turn.flood(Flood(loud, window.start_ns))
            without |= loud
        else:
            self._read_crowd(turn, window, now_ns, without)
        done = replace(turn.progress, fast_ns=now_ns)
        turn.progress = replace(done, whole_ns=now_ns) if whole else done

    def _present(self, turn: Poll, now_ns: int, oldest_ns: int | None) -> tuple[Window, bool]:
        """The fast window, and whether another look over the whole overlap is not due for an interval."""
        progress, spans = turn.progress, self._spans
        end_ns = now_ns + max(1, spans.skew_ns)
        rests = [work.end_ns for work in progress.work if work.why is Reason.REST]
        if rests:
            return Window(min(max(rests), now_ns), end_ns), False
        if progress.whole_ns is None or is_away(progress, spans, now_ns):
            return Window(max(0, now_ns - spans.overlap_ns), end_ns), True
        whole_from_ns = max(0, progress.fast_ns - spans.overlap_ns)
        due = not 0 <= now_ns - progress.whole_ns < spans.interval_ns * 3 // 4
        # A crowded overlap is left to the sweeps, which need not read again what has not grown.
        if due and self._seen.count(whole_from_ns, end_ns) <= self.limit // 2:
            return Window(whole_from_ns, end_ns), True
        start_ns = max(whole_from_ns, progress.fast_ns - NEAR_NS)
        if oldest_ns is not None and whole_from_ns <= oldest_ns < start_ns:
            start_ns = oldest_ns
        elif oldest_ns is not None and oldest_ns < whole_from_ns:
            turn.add(PendingSpan(Reason.LATE, max(0, oldest_ns), oldest_ns + NEAR_NS))
        return Window(start_ns, end_ns), due

    def _read_crowd(self, turn: Poll, window: Window, now_ns: int, without: frozenset[str]) -> None:
        """Too much for one answer: read its beginning, the rest is work."""
        upto_ns = window.start_ns
        if any(work.why is Reason.REST for work in turn.progress.work):
            turn.add(PendingSpan(Reason.REST, upto_ns, max(now_ns, upto_ns + 1), without))
            return
        ask, widest_ns = self._asking.lines_of(without=without), self._asking.widest_ns
        try:
            for piece in read_span(window, max(1, window.width_ns // 2), widest_ns, ask):
                turn.take(piece)
                upto_ns = piece.window.end_ns
                if self._enough(turn):
                    break
        finally:
            if window.start_ns < upto_ns < now_ns:
                turn.add(PendingSpan(Reason.REST, upto_ns, now_ns, without))

    # The work.

    def _read_floods(self, turn: Poll, now_ns: int) -> None:
        for flood in turn.progress.floods:
            self._read_flood(turn, flood, now_ns)

    def _work_off(self, turn: Poll, now_ns: int) -> None:
        while not self._enough(turn) and self._may_work(turn):
            try:
                if turn.progress.work[0].why is Reason.SWEEP:
                    self._sweep(turn)
                else:
                    self._read_upto(turn, turn.progress.work[0].end_ns)
            except LokiError as error:
                if not isinstance(error, _DEAF):
                    self._window_failed(turn, now_ns)
                raise

    def _window_failed(self, turn: Poll, now_ns: int) -> None:
        """The next window of the first piece of work failed: it does not keep the rest from being read."""
        work = turn.progress.work[0]
        if work.failures + 1 < _FAILURES_MOST:
            turn.advance(replace(work, failures=work.failures + 1))
            return
        end_ns = min(work.end_ns, work.start_ns + max(1, self._asking.asked_ns))
        if work.why.binding:
            turn.put_off(Window(work.start_ns, end_ns), now_ns, work.waited_ns)
        turn.advance(replace(work, start_ns=end_ns, counted=None, failures=0))

    def _may_work(self, turn: Poll) -> bool:
        """Whether there is work that the byte budget allows; what may wait comes last in the order."""
        first = turn.progress.work[:1]
        return bool(first) and (first[0].why not in (Reason.SWEEP, Reason.GAP) or self._budget.allows_sweeps)

    def _read_flood(self, turn: Poll, flood: Flood, now_ns: int) -> None:
        if flood.upto_ns < now_ns and not self._enough(turn):
            span, widest_ns = Window(flood.upto_ns, now_ns), self._asking.widest_ns
            newest: list[int] = []
            again = bool(flood.recent)  # then what is not new was counted before
            most = min(self.limit, STORM_LINES) // 2  # so that they and what follows fit into one answer
            ask = self._asking.lines_of(only=flood.nodes)
            pieces = read_span(span, flood.width_ns or widest_ns, widest_ns, ask)
            while (piece := self._next_of_flood(turn, flood, pieces, now_ns)) is not None:
                known = len(turn.new)
                turn.take(piece)
                newest = nlargest(most, (*newest, *(entry.timestamp_ns for entry in piece.entries)))
                lines = len(turn.new) - known if again else len(piece.entries)
                further = flood.read(piece.window.end_ns, lines, piece.next_width_ns)
                if further.upto_ns >= now_ns:
                    full = newest and len(newest) >= most
                    further = further.again_from(newest[-1] if full else span.start_ns)
                turn.flood(further, instead_of=flood)
                flood = further
                if self._enough(turn):
                    break
        if flood.is_over(now_ns, self.limit):
            turn.flood(None, instead_of=flood)

    def _next_of_flood(self, turn: Poll, flood: Flood, pieces: Iterator[Piece], now_ns: int) -> Piece | None:
        """The next tile of a flood; one that fails holds up neither the next nor other floods."""
        try:
            return next(pieces, None)
        except LokiError as error:
            if not isinstance(error, _DEAF):
                end_ns = min(now_ns, flood.upto_ns + max(1, self._asking.asked_ns))
                turn.put_off(Window(flood.upto_ns, end_ns), now_ns)
                turn.flood(flood.read(end_ns, 0, self._asking.widest_ns), instead_of=flood)
            raise

    def _read_upto(self, turn: Poll, end_ns: int) -> bool:
        """Read the first piece of work up to there; whether this poll came so far."""
        work, widest_ns = turn.progress.work[0], self._asking.widest_ns
        span = Window(work.start_ns, end_ns)
        ask = self._asking.lines_of(without=work.without)
        for piece in read_span(span, work.width_ns or widest_ns, widest_ns, ask):
            turn.take(piece)
            work = replace(work, start_ns=piece.window.end_ns, width_ns=piece.next_width_ns, failures=0)
            turn.advance(work)
            if self._enough(turn):
                break
        return work.start_ns >= end_ns

    def _sweep(self, turn: Poll) -> None:
        """Read one block of a sweep; one with many known lines only if Loki counts more than those."""
        work = turn.progress.work[0]
        if work.counted is None:
            widest_ns = self._asking.widest_ns
            width_ns = max(BUCKET_NS, min(work.width_ns or widest_ns, widest_ns) // BUCKET_NS * BUCKET_NS)
            edge_ns = (work.start_ns // BUCKET_NS * BUCKET_NS) + width_ns
            block = Window(work.start_ns, min(edge_ns, work.end_ns))
            known = self._seen.count(block.start_ns, block.end_ns)
            if known <= self.limit // 2 or work.start_ns % BUCKET_NS:
                self._read_upto(turn, block.end_ns)
                return
            counted = self._asking.count(block)
            if counted == known:
                turn.moved = True
                turn.advance(replace(work, start_ns=block.end_ns, width_ns=2 * block.width_ns))
                return
            if block.width_ns > BUCKET_NS:
                turn.advance(replace(work, width_ns=block.width_ns // 2))
                return
            work = replace(work, counted=counted)
            turn.advance(work)
        assert work.counted is not None  # noqa: S101  # set just above, or by the poll before
        edge_ns = min(work.end_ns, work.start_ns // BUCKET_NS * BUCKET_NS + BUCKET_NS)
        if self._read_upto(turn, edge_ns):
            turn.expected[edge_ns - 1] = work.counted
            if turn.progress.work and turn.progress.work[0].why is Reason.SWEEP:
                turn.advance(replace(turn.progress.work[0], counted=None))

    def _enough(self, turn: Poll) -> bool:
        return turn.full or self._asking.queries >= self._stop_at
