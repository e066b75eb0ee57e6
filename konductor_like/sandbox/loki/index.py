"""The endpoints that tell labels and never a line: ``labels``, their values, ``series``, ``index/stats``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from konductor_like.sandbox.loki import answers, params
from konductor_like.sandbox.loki.limits import SECOND_NS, LokiLimits
from konductor_like.sandbox.loki.logql import LogQuery
from konductor_like.sandbox.loki.parser import parse
from konductor_like.sandbox.loki.store import Entry, Store, Stream
from konductor_like.sandbox.wire import Reply, Request

_CHUNK_IDLE_NS = 30 * 60 * SECOND_NS


class Index:
    """Answers questions about streams. Every method may raise ``LokiError``."""

    def __init__(self, limits: LokiLimits, now_ns: Callable[[], int]) -> None:
        self._limits = limits
        self._now_ns = now_ns

    def labels(self, request: Request, store: Store, _tenant: str) -> Reply:
        """The names of index labels."""
        found = self._selected(request, store, request.params.get("query", ()))
        return _names({name for stream, _ in found for name, _value in stream.labels})

    def label_values(self, request: Request, store: Store, name: str) -> Reply:
        """The values of one index label."""
        found = self._selected(request, store, request.params.get("query", ()))
        return _names({value for stream, _ in found for known, value in stream.labels if known == name})

    def series(self, request: Request, store: Store, _tenant: str) -> Reply:
        """The label sets of the streams."""
        selectors = [*request.params.get("match[]", ()), *request.params.get("query", ())]
        found = self._selected(request, store, selectors)
        return answers.reply({"status": "success", "data": [dict(stream.labels) for stream, _ in found]})

    def stats(self, request: Request, store: Store, _tenant: str) -> Reply:
        """How much the index knows of, which is streams that were flushed: after half an hour of idleness."""
        parse(request.param("query"))
        newest_flushed_ns = self._now_ns() - _CHUNK_IDLE_NS
        flushed = [
            entries
            for stream, entries in self._selected(request, store, [request.param("query")])
            if stream.times[-1] <= newest_flushed_ns
        ]
        counts = {
            "streams": len(flushed),
            "chunks": len(flushed),
            "bytes": sum(entry.size_bytes for entries in flushed for entry in entries),
            "entries": sum(len(entries) for entries in flushed),
        }
        return answers.reply(counts)

    def _selected(
        self, request: Request, store: Store, selectors: Sequence[str]
    ) -> list[tuple[Stream, list[Entry]]]:
        """The streams that a selector picks, or all if there is none, with their lines of the range."""
        asked = params.bounds(request, self._now_ns())
        params.check_length(asked, self._limits)
        queries = [query for query in map(parse, filter(None, selectors)) if isinstance(query, LogQuery)]
        return list(
            store.select(
                lambda labels: not queries or any(query.selects(labels) for query in queries),
                asked.start_ns,
                asked.end_ns,
            )
        )


def _names(names: set[str]) -> Reply:
    return answers.reply(answers.success(sorted(names)))
