"""Asking for one window of one source: the query, and how much of it Loki gives at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from konductor_like.loki.errors import LokiAnswerTooLarge, LokiError, LokiRefused, LokiTimeout
from konductor_like.loki.logql import of_nodes
from konductor_like.loki.response import Count, QueryResult
from konductor_like.loki.spans import SECOND_NS
from konductor_like.loki.window import COUNTABLE_NS, Ask, Direction, Window, is_complete

STORM_LINES = 2000
"""What some nodes print is asked for in smaller answers: nobody waits for it, and each is held in memory."""
_NARROWEST_NS = 30 * SECOND_NS
"""A Loki that cannot read so much before it times out falls behind whatever is asked."""


class Queries(Protocol):
    """What the reader needs of :class:`konductor_like.loki.client.LokiClient`."""

    def query_range(
        self, query: str, start_ns: int, end_ns: int, limit: int, direction: Direction = ...
    ) -> QueryResult:
        """See the client."""
        ...

    def count(self, query: str, start_ns: int, end_ns: int) -> Count:
        """See the client."""
        ...


class Asking:
    """Asks, adopts the tenant's limit, and asks a slow Loki for narrower windows.

    ``queries`` and ``bytes_processed`` add up until :meth:`begin`.
    """

    def __init__(self, client: Queries, query: str, node_label: str, limit: int, widest_ns: int) -> None:
        self.query = query
        self.limit = limit
        """How many entries are asked for at once; lowered when the tenant allows fewer."""
        self.widest_ns = widest_ns
        """How wide a window may be for now."""
        self.queries = 0
        self.bytes_processed = 0
        self._client = client
        self._node_label = node_label
        self._full_width_ns = self._asked_ns = widest_ns

    def begin(self) -> None:
        """A new poll begins."""
        self.queries = self.bytes_processed = 0

    def failed(self, error: LokiError) -> None:
        """A poll, or a part of it, ended with this."""
        if isinstance(error, LokiTimeout):
            self.widest_ns = max(_NARROWEST_NS, min(self.widest_ns, self._asked_ns) // 2)

    def succeeded(self) -> None:
        """A poll went well. Widening slowly keeps a slow Loki from timing out on every other poll."""
        self.widest_ns = min(self._full_width_ns, self.widest_ns + self._full_width_ns // 64)

    def lines_of(self, *, only: Collection[str] = (), without: Collection[str] = ()) -> Ask:
        """A callable that asks for windows of these nodes only, or of all but those."""
        query = of_nodes(self.query, self._node_label, only or without, without=not only)
        limit = min(self.limit, STORM_LINES) if only else self.limit

        def ask(window: Window, direction: Direction) -> QueryResult | None:
            return self._ask(query, window, direction, min(limit, self.limit))

        return ask

    def count(self, window: Window, query: str | None = None) -> int:
        """How many lines Loki counts in a window of whole milliseconds."""
        self.queries, self._asked_ns = self.queries + 1, window.width_ns
        count = self._client.count(query or self.query, window.start_ns, window.end_ns)
        self.bytes_processed += count.bytes_processed
        return count.lines

    def _ask(self, query: str, window: Window, direction: Direction, limit: int) -> QueryResult | None:
        """One window's answer; None when it can only be had in parts."""
        while True:
            self.queries, self._asked_ns = self.queries + 1, window.width_ns
            try:
                result = self._client.query_range(query, window.start_ns, window.end_ns, limit, direction)
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
                self.bytes_processed += result.bytes_processed
                return self._proven(query, window, result)

    def _proven(self, query: str, window: Window, result: QueryResult) -> QueryResult:
        """Count the lines where the answer alone cannot say that nothing was cut, though it may be so."""
        if (
            is_complete(result)
            or len(result.entries) >= result.limit
            or window.width_ns % COUNTABLE_NS
            or self.count(window, query) != len(result.entries)
        ):
            return result
        return replace(result, post_filter_lines=len(result.entries))
