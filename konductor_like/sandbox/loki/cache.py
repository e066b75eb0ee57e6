"""The cache that makes a late line invisible.

Loki remembers that a filtered log query found nothing in a range and, asked again for the same text, does
not look there any more, even if a line has arrived since. Only ranges that end long enough ago are
remembered, and the header ``Cache-Control: no-cache`` goes past it.
Source: pkg/querier/queryrange/log_result_cache.go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from konductor_like.sandbox.loki.engine import Hit

Find = Callable[[int, int], list[Hit]]


class Span(NamedTuple):
    """[start, end) in ns."""

    start_ns: int
    end_ns: int

    def overlaps(self, other: Span) -> bool:
        """Whether they touch, as Loki's ``overlap`` sees it."""
        return self.start_ns <= other.end_ns and other.start_ns <= self.end_ns

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


def split(span: Span, interval_ns: int) -> Iterator[Span]:
    """The span in pieces that end at multiples of the interval."""
    start_ns = span.start_ns
    while start_ns < span.end_ns:
        end_ns = min(span.end_ns, (start_ns // interval_ns + 1) * interval_ns)
        yield Span(start_ns, end_ns)
        start_ns = end_ns


class EmptyResults:
    """Which spans are known to be empty, one per query text and interval. Thread-safe."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._known: dict[tuple[str, str, int], Span] = {}
        self._lock = threading.Lock()

    def find(self, tenant: str, query: str, span: Span, newest_cached_ns: int, find: Find) -> list[Hit]:
        """The matches of the span, asked of ``find`` where they are not known to be none."""
        hits: list[Hit] = []
        with self._lock:
            for piece in split(span, self._interval_ns):
                if piece.end_ns > newest_cached_ns:
                    hits += find(*piece)
                else:
                    hits += self._find_piece(
                        (tenant, query, piece.start_ns // self._interval_ns), piece, find
                    )
        return hits

    def _find_piece(self, key: tuple[str, str, int], piece: Span, find: Find) -> list[Hit]:
        known = self._known.get(key)
        if known is None or not known.overlaps(piece):
            hits = find(*piece)
            if not hits and (known is None or piece.length_ns > known.length_ns):
                self._known[key] = piece
            return hits
        before: list[Hit] = []
        after: list[Hit] = []
        if piece.start_ns < known.start_ns:
            before = find(piece.start_ns, known.start_ns)
            if not before:
                known = Span(piece.start_ns, known.end_ns)
        if piece.end_ns > known.end_ns:
            after = find(known.end_ns, piece.end_ns)
            if not after:
                known = Span(known.start_ns, piece.end_ns)
        self._known[key] = known
        return before + after
