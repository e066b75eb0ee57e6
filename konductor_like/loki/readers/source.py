"""Reading one source without loss: each line is delivered once, and the present is read before the past.

::

    ───┬─────── lateness ───────┬──── overlap ────┬── new ──┬─ skew ─┐
       sweep now and then       whole overlap    cursor    now    window's end

Loki has no query by time of ingestion, and takes late and out-of-order lines (rule 8). So each poll reads a
*present window*, which ends after now, and a part of the backlog: what was missed while the controller was
away, the rest of what was too much for one poll, the lateness again in sweeps, and gaps, in which nodes were
silent (:mod:`konductor_like.loki.readers.read_state`). Lines that were delivered before are dropped. The
cursor is the time, by our clock, up to which the source is read in full; it moves only when the caller has
acted on a result and commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from konductor_like.loki.query.window_query import ByteBudget, Queries, TimeWindow, WindowQuery
from konductor_like.loki.readers.poll import Poll, PollResult
from konductor_like.loki.readers.read_state import (
    DeliveredLines,
    PendingSpan,
    ReaderConfig,
    ReadState,
    Reason,
    planned,
)
from konductor_like.model import Source
from konductor_like.settings import Settings


class SourceReader:
    """Reads one source. Not for several threads at once; callers pass the time."""

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
        """``query`` is from :mod:`konductor_like.loki.query.logql`; ``config`` is by default the source's.

        The reader begins at ``cursor_ns`` and looks back from there by the lateness. It counts lines whose
        text ``keeps`` rejects, and does not deliver them; ``keeps`` must not raise. ``other_clock_ns``
        returns the time of a second clock when nobody knows whether it or the clock of the polls is right;
        the reader then also reads what is new by the second clock.
        """
        self._source = source
        self._settings = settings
        self._config = config or ReaderConfig.of(settings, source)
        self._budget = budget or ByteBudget(settings.loki_budget_mib_per_minute * 2**20)
        self._query = WindowQuery(client, query, settings, self._config.widest_ns, source=source)
        self._keeps = keeps
        self._other_clock_ns = other_clock_ns
        self._gaps: frozenset[TimeWindow] = frozenset()
        self._delivered = DeliveredLines()
        self._state = ReadState(cursor_ns, present_read_ns=cursor_ns)
        self._uncommitted: tuple[Poll, PollResult] | None = None
        self._left_backlog = False

    def revisit(self, gaps: Iterable[tuple[int, int]]) -> None:
        """Set the spans (start and end in Loki's ns) that are read again and again while they are set.

        Another thread may call it.
        """
        self._gaps = frozenset(TimeWindow(start_ns, end_ns) for start_ns, end_ns in gaps)

    def poll(self, now_ns: int, oldest_ns: int | None = None) -> PollResult:
        """Read what is new at ``now_ns``, with one query when nothing special happens.

        ``oldest_ns`` is the oldest timestamp that a nudge reported. The next poll returns the lines of a
        result again that was not committed. After a failure the result has the lines that were read before
        it, and the failure; when nothing was read, a LokiError is raised. Nothing is skipped in either case.
        """
        state = planned(self._state, self._config, self._gaps, now_ns)
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
        """Move the cursor; the caller has acted on the result, and its lines are not delivered again.

        Raises ValueError unless it is the latest poll's result.
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
