"""Loki's past of one source, read forward in windows that are proven complete, one page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from konductor_like.backtest.values import Span
from konductor_like.loki.asking import Asking, Queries
from konductor_like.loki.budget import ByteBudget
from konductor_like.loki.errors import LokiError, LokiTimeout
from konductor_like.loki.response import Naming, log_line
from konductor_like.loki.spans import SECOND_NS
from konductor_like.loki.window import Window, read_span
from konductor_like.model import LogLine, Source
from konductor_like.settings import Settings

WIDEST_NS = 6 * 3600 * SECOND_NS
"""The widest single query; a tenant whose ``max_query_length`` is below it is asked for less."""
TIMEOUTS_MOST = 6
"""A query that times out is asked again for half the span, so often in a row."""
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
    lines: int = 0
    queries: int = 0
    bytes_processed: int = 0
    incomplete: int = 0
    upto_ns: int = field(default=0)

    def pages(self, span: Span) -> Iterator[Page]:
        """All of ``span``, page by page. Raises a LokiError once asking again and for less did not help."""
        naming, timeouts = Naming.of(self.settings), 0
        asking = Asking(self.client, self.query, naming.node, self.settings.loki_limit, WIDEST_NS)
        self.upto_ns, width_ns = span.start_ns, _FIRST_NS
        while self.upto_ns < span.end_ns:
            try:
                rest = Window(self.upto_ns, span.end_ns)
                for piece in read_span(rest, width_ns, asking.widest_ns, asking.lines_of()):
                    timeouts, width_ns = 0, piece.next_width_ns
                    found = [log_line(entry, self.source, naming) for entry in piece.entries]
                    lines = [line for line in found if line is not None]
                    lines.sort(key=_time)
                    self.lines += len(lines)
                    self.incomplete += not piece.complete
                    self.upto_ns = piece.window.end_ns
                    self._account(asking)
                    yield Page(lines, self.upto_ns)
                    if self.budget.used >= 1:
                        self._rest()
            except LokiTimeout as error:
                timeouts += 1
                if timeouts >= TIMEOUTS_MOST:
                    raise
                asking.failed(error)
            except LokiError:
                self._account(asking)
                raise

    def _account(self, asking: Asking) -> None:
        self.queries += asking.queries
        self.bytes_processed += asking.bytes_processed
        self.budget.spend(asking.bytes_processed)
        asking.begin()

    def _rest(self) -> None:
        """Loki has worked enough for us in the last minute."""
        while self.budget.used >= 1:
            self.pause(1.0)


def _time(line: LogLine) -> int:
    return line.timestamp_ns
