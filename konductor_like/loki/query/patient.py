"""Reading a long span of the past: within the budget, and patient with a Loki that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from konductor_like.loki.query.errors import LokiError, LokiTimeout
from konductor_like.loki.query.window_query import ByteBudget, Piece, TimeWindow, WindowQuery, read_span
from konductor_like.model.time import SECOND_NS

WIDEST_NS = 6 * 3600 * SECOND_NS
"""Nanoseconds of the widest query; narrower for a tenant whose ``max_query_length`` is below this."""
TIMEOUTS_MOST = 6
"""Timeouts in a row that end the reading; after each earlier one the query is repeated for half the span."""
FAILURES_MOST = 5
"""Failures in a row after which the reader asks again, if Loki has answered before.

A failure counts here only after the client's own retries, which take half a minute.
"""
PATIENCE_SECONDS = 10.0
"""Seconds to wait after the first failure in a row; 20 after the second, 30 after the third, and so on."""
_FIRST_NS = 900 * SECOND_NS


class Account(Protocol):
    """The numbers that a reader adds to."""

    queries: int
    bytes_processed: int
    waited_seconds: float
    incomplete: int


@dataclass(slots=True)
class PatientReader:
    """Reads spans of one query."""

    asking: WindowQuery
    budget: ByteBudget
    account: Account
    pause: Callable[[float], object]
    """Waits this number of seconds, to keep within the budget or after a failure."""
    tell: Callable[[str], object] = lambda _: None
    """Prints a warning about the failure after which the reader waits."""
    _read_any: bool = field(init=False, default=False)

    def pieces(self, span: TimeWindow) -> Iterator[Piece]:
        """Yield the span in order. Raises a LokiError if retries and narrower queries fail."""
        timeouts, failures, width_ns, upto_ns = 0, 0, _FIRST_NS, span.start_ns
        while upto_ns < span.end_ns:
            try:
                rest = TimeWindow(upto_ns, span.end_ns)
                for piece in read_span(rest, width_ns, self.asking.widest_ns, self.asking.lines_of()):
                    timeouts, failures, width_ns = 0, 0, piece.next_width_ns
                    self._read_any = True
                    self.account.incomplete += not piece.complete
                    self._spend()
                    yield piece
                    upto_ns = piece.window.end_ns
                    while self.budget.used >= 1:
                        self.pause(1.0)
                        self.account.waited_seconds += 1.0
            except LokiTimeout as error:
                timeouts += 1
                if timeouts >= TIMEOUTS_MOST:
                    raise
                self.asking.failed(error)
            except LokiError as error:
                self._spend()
                failures += 1
                if not error.transient or not self._read_any or failures > FAILURES_MOST:
                    raise
                self.tell(f"{error}; retrying in {PATIENCE_SECONDS * failures:.0f} seconds")
                self.pause(PATIENCE_SECONDS * failures)

    def _spend(self) -> None:
        self.account.queries += self.asking.queries
        self.account.bytes_processed += self.asking.bytes_processed
        self.budget.spend(self.asking.bytes_processed)
        self.asking.begin()
