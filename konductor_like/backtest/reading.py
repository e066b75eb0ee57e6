"""Loki's past of one source, read forward in windows that are proven complete, one page at a time.

What an earlier run kept is not asked for again (:mod:`konductor_like.backtest.keeping`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from konductor_like.backtest.keeping import Kept
from konductor_like.backtest.values import Span
from konductor_like.loki.byte_budget import ByteBudget
from konductor_like.loki.errors import LokiError, LokiTimeout
from konductor_like.loki.response import Entry, Naming, log_line
from konductor_like.loki.window_query import SECOND_NS, Piece, Queries, Window, WindowQuery, read_span
from konductor_like.model import LogLine, Source
from konductor_like.settings import Settings

WIDEST_NS = 6 * 3600 * SECOND_NS
"""The widest single query; a tenant whose ``max_query_length`` is below it is asked for less."""
TIMEOUTS_MOST = 6
"""A query that times out is asked again for half the span, so often in a row."""
FAILURES_MOST = 5
"""So often in a row a Loki that answered before may fail, the client's own tries of half a minute apart."""
PATIENCE_SECONDS = 10.0
"""The first rest after such a failure; each further one is longer by as much."""
_FIRST_NS = 900 * SECOND_NS


@dataclass(slots=True)
class Page:
    """The lines of one window, by time; all up to ``upto_ns`` has been given then."""

    lines: list[LogLine]
    upto_ns: int


@dataclass(slots=True)
class Past:
    """One source's history; what it adds up to so far stands beside it."""

    source: Source
    client: Queries
    query: str
    settings: Settings
    budget: ByteBudget
    pause: Callable[[float], object]
    """Waits that many seconds, for the budget's sake."""
    tell: Callable[[str], object] = lambda _: None
    """Told of what it waits for."""
    kept: Kept | None = None
    keep_upto_ns: int = 0
    """Nothing later is kept: lines may yet come there."""
    lines: int = 0
    kept_lines: int = 0
    """Those of them that Loki was not asked for."""
    queries: int = 0
    bytes_processed: int = 0
    incomplete: int = 0
    waited_seconds: float = 0.0
    """For the budget's sake."""
    upto_ns: int = field(default=0)
    _naming: Naming = field(init=False)
    _read_any: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._naming = Naming.of(self.settings)

    def pages(self, span: Span) -> Iterator[Page]:
        """All of ``span``, page by page. Raises a LokiError once asking again and for less did not help."""
        asking = WindowQuery(self.client, self.query, self._naming.node, self.settings.loki_limit, WIDEST_NS)
        self.upto_ns = span.start_ns
        while self.upto_ns < span.end_ns:
            found = None if self.kept is None else self.kept.reaching(self.upto_ns)
            if found is None:
                next_ns = None if self.kept is None else self.kept.next_ns(self.upto_ns)
                yield from self._asked_for(asking, min(next_ns or span.end_ns, span.end_ns))
                continue
            window, entries = found
            end_ns = min(window.end_ns, span.end_ns)
            page = self._page((e for e in entries if self.upto_ns <= e.timestamp_ns < end_ns), end_ns)
            self.kept_lines += len(page.lines)
            yield page

    def _asked_for(self, asking: WindowQuery, end_ns: int) -> Iterator[Page]:
        """From where we are up to ``end_ns``, from Loki."""
        timeouts, failures, width_ns = 0, 0, _FIRST_NS
        while self.upto_ns < end_ns:
            try:
                rest = Window(self.upto_ns, end_ns)
                for piece in read_span(rest, width_ns, asking.widest_ns, asking.lines_of()):
                    timeouts, failures, width_ns = 0, 0, piece.next_width_ns
                    self._read_any = True
                    self.incomplete += not piece.complete
                    self._account(asking)
                    self._keep(piece)
                    yield self._page(piece.entries, piece.window.end_ns)
                    if self.budget.used >= 1:
                        self._rest()
            except LokiTimeout as error:
                timeouts += 1
                if timeouts >= TIMEOUTS_MOST:
                    raise
                asking.failed(error)
            except LokiError as error:
                self._account(asking)
                failures += 1
                if not error.transient or not self._read_any or failures > FAILURES_MOST:
                    raise
                self.tell(f"{error}; asking again in {PATIENCE_SECONDS * failures:.0f} seconds")
                self.pause(PATIENCE_SECONDS * failures)

    def _page(self, entries: Iterable[Entry], end_ns: int) -> Page:
        found = (log_line(entry, self.source, self._naming) for entry in entries)
        lines = [line for line in found if line is not None]
        lines.sort(key=_time)
        self.lines += len(lines)
        self.upto_ns = end_ns
        return Page(lines, end_ns)

    def _keep(self, piece: Piece) -> None:
        window = Window(piece.window.start_ns, min(piece.window.end_ns, self.keep_upto_ns))
        if self.kept is None or not piece.complete or window.width_ns <= 0:
            return
        try:
            self.kept.keep(window, (e for e in piece.entries if e.timestamp_ns < window.end_ns))
        except OSError:
            self.kept = None  # a full disk ends the keeping, not the run

    def _account(self, asking: WindowQuery) -> None:
        self.queries += asking.queries
        self.bytes_processed += asking.bytes_processed
        self.budget.spend(asking.bytes_processed)
        asking.begin()

    def _rest(self) -> None:
        """Loki has worked enough for us in the last minute."""
        while self.budget.used >= 1:
            self.pause(1.0)
            self.waited_seconds += 1.0


def _time(line: LogLine) -> int:
    return line.timestamp_ns
