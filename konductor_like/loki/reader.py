"""One source read without loss: every line delivered once, the present never behind the past.

::

    ───┬─────── lateness ───────┬──── overlap ────┬── new ──┬─ skew ─┐
       sweep now and then       full poll       cursor     now    window's end

There is no query by time of ingestion, and Loki takes late and out-of-order lines (rule 8). So each
poll reads a *fast window* that ends beyond the present, and beside it a part of the backlog: what was missed
while we were away, the rest of what was too much for one poll, the lateness again now and then, and spans in
which nodes were silent (:mod:`konductor_like.loki.read_state`). What was delivered before is dropped. The
cursor is "read in full up to here, by our clock"; it moves only when the caller commits the result, after
acting on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from konductor_like.loki.poll import Poll, PollResult
from konductor_like.loki.read_state import (
    DeliveredLines,
    PendingSpan,
    ReaderConfig,
    ReadState,
    Reason,
    planned,
)
from konductor_like.loki.window_query import ByteBudget, Queries, Window, WindowQuery
from konductor_like.model import Source
from konductor_like.settings import Settings


class SourceReader:
    """Reads one source. Not for several threads at once; time is an argument."""

    def __init__(
        self,
        source: Source,
        client: Queries,
        query: str,
        settings: Settings,
        cursor_ns: int,
        *,
        config: ReaderConfig | None = None,
        budget: ByteBudget | None = None,
        keeps: Callable[[str], bool] | None = None,
        other_clock_ns: Callable[[], int | None] = lambda: None,
    ) -> None:
        """``query`` is from :mod:`konductor_like.loki.logql`; ``config`` defaults to the source's settings.

        It begins at ``cursor_ns`` and reaches back from there by the lateness. Lines whose text ``keeps``
        says no to are counted and not handed over; it must not raise. ``other_clock_ns`` is the time by a
        clock that differs from the one polls are given, where nothing says which is right: what is new by
        that one is read too.
        """
        self._source = source
        self._settings = settings
        self._config = config or ReaderConfig.of(settings, source)
        self._budget = budget or ByteBudget(settings.loki_budget_mib_per_minute * 2**20)
        self._query = WindowQuery(client, query, settings, self._config.widest_ns, source=source)
        self._keeps = keeps
        self._next_query = query
        self._other_clock_ns = other_clock_ns
        self._gaps: frozenset[Window] = frozenset()
        self._delivered = DeliveredLines()
        self._state = ReadState(cursor_ns, fast_ns=cursor_ns)
        self._uncommitted: tuple[Poll, PollResult] | None = None
        self._left_backlog = False

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

        ``oldest_ns`` is the oldest timestamp that a nudge told of. A result that is not committed comes again
        with the next poll. What was read before a failure is returned, with the failure; a LokiError is
        raised when nothing was. Either way nothing is skipped.
        """
        state = self._state
        if self._query.text != self._next_query:
            self._query.text = self._next_query
            state = replace(state, whole_ns=None)
        state = planned(state, self._config, self._gaps, now_ns)
        other_ns = self._other_clock_ns()
        if other_ns is not None:
            start_ns, end_ns = other_ns - self._config.overlap_ns, other_ns + max(1, self._config.skew_ns)
            state = state.with_span(PendingSpan(Reason.LATE, max(0, start_ns), end_ns))
        poll = Poll(
            state,
            now_ns,
            self._source,
            self._config,
            self._settings,
            self._query,
            self._delivered,
            self._budget,
            self._keeps,
        )
        begun = {span.reason for span in state.pending} - {span.reason for span in self._state.pending}
        self._query.begin()
        failure = poll.read(
            oldest_ns,
            past_first=Reason.CATCH_UP in begun,
            may_leave_backlog=not self._left_backlog,
        )
        self._budget.spend(self._query.bytes_processed)
        if failure is not None and not poll.read_any:
            raise failure
        result = poll.result(self._state.cursor_ns, failure)
        self._uncommitted = (poll, result)
        return result

    def commit(self, result: PollResult) -> None:
        """Everything in ``result`` was acted upon: it is not delivered again, and the cursor moves.

        Raises ValueError unless it is what the latest poll returned.
        """
        if self._uncommitted is None or self._uncommitted[1] is not result:
            raise ValueError("only the result of the latest poll can be committed")
        poll, self._uncommitted = self._uncommitted[0], None
        self._state = replace(poll.state, cursor_ns=result.upto_ns)
        self._left_backlog = poll.left_backlog
        self._delivered.add(poll.new)
        for timestamp_ns, entries in poll.expected.items():
            self._delivered.expect(timestamp_ns, entries)
        self._delivered.forget_before(
            poll.state.reread_from_ns(self._config), but=poll.state.gaps_to_reread()
        )
