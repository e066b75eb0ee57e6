"""The endpoints that read: ``query_range``, ``query``, ``tail`` and ``labels``, and their parameters.

Sources: pkg/loghttp/params.go, query.go; bodies seen on a real Loki.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import parse_qs

from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.loki import answers
from konductor_like_sandbox.loki.engine import EmptyResults, Hit, Span, Work, count_lines, cut, find_lines
from konductor_like_sandbox.loki.limits import HOUR_SECONDS, SECOND_NS, LokiError, LokiLimits
from konductor_like_sandbox.loki.logql import CountQuery, LogQuery, parse
from konductor_like_sandbox.loki.messages import refusal
from konductor_like_sandbox.loki.store import Entry, Store, Stream
from konductor_like_sandbox.loki.tail import Tails

_SHARDS = 16
_DEFAULT_LIMIT = 100
_DEFAULT_LENGTH_NS = HOUR_SECONDS * SECOND_NS


class Queries:
    """Answers queries. Every method may raise ``LokiError``."""

    def __init__(self, limits: LokiLimits, now_ns: Callable[[], int]) -> None:
        self._limits = limits
        self.tails = Tails()
        self._now_ns = now_ns
        self._empty_results = EmptyResults(limits.split_queries_by_interval_seconds * SECOND_NS)

    def over_range(self, request: Request, store: Store, tenant: str) -> Reply:
        """Return the lines of a range."""
        span = self._span(request)
        if span.end_ns < span.start_ns:
            raise LokiError(400, "end timestamp must not be before or equal to start time")
        limit, forward = _line_limit(request), _is_forward(request)
        query = parse(request.param("query"))
        if isinstance(query, CountQuery):
            raise LokiError(400, "the stand-in Loki counts at one moment only: ask /loki/api/v1/query")
        most = self._limits.max_entries_limit_per_query
        if limit > most:
            words = "max entries limit per query exceeded, limit > max_entries_limit_per_query"
            raise LokiError(400, f"{words} ({limit} > {most})")
        self._check_length(span)
        work = Work()
        hits = self._find(request, store, tenant, query, span, work)
        refused = refusal(hits if forward else reversed(hits), limit, self._limits)
        if refused:
            return refused
        wanted = cut(hits, limit, forward, self._limits.sharded_results_fall_short)
        work.shards = _SHARDS if self._limits.sharded_results_fall_short else 1
        return answers.log_answer(wanted, _categorizes(request), work)

    def at_instant(self, request: Request, store: Store, _tenant: str) -> Reply:
        """Count the lines before a moment."""
        at_ns = _time_ns(request, "time", self._now_ns())
        query = parse(request.param("query"))
        if isinstance(query, LogQuery):
            raise LokiError(
                400,
                "log queries are not supported as an instant query type, "
                "please change your query to a range query type",
            )
        work = Work()
        return answers.count_answer(count_lines(store, query, at_ns, work), at_ns, work)

    def tail(self, request: Request, store: Store, _tenant: str) -> Reply:
        """Send lines as they come, over a websocket."""
        query = parse(request.param("query"))
        if not isinstance(query, LogQuery):
            raise LokiError(400, "only log selector is supported")
        return self.tails.reply(request, store, query, self._span(request).start_ns, _line_limit(request))

    def labels(self, request: Request, store: Store, _tenant: str) -> Reply:
        """Return the names of the index labels of all streams, or of the selected ones."""
        span = self._span(request)
        self._check_length(span)
        found = self._selected(request, store, span)
        return answers.success(sorted({name for stream, _ in found for name, _value in stream.labels}))

    def volume(self, request: Request, store: Store, _tenant: str) -> Reply:
        """Return the bytes of streams by the value of one label. The stand-in needs ``targetLabels``."""
        span, limit, label = self._span(request), _line_limit(request), request.param("targetLabels")
        if span.end_ns < span.start_ns:
            raise LokiError(400, "end timestamp must not be before or equal to start time")
        query = parse(request.param("query"))
        if not isinstance(query, LogQuery) or query.has_filter:
            raise LokiError(400, "only label matchers are supported")
        found: Counter[str] = Counter()
        for stream, _lines in store.select(query.selects, *span):
            if value := dict(stream.labels).get(label):
                found[value] += stream.sizes(*span)[0]
        return answers.volume_answer(label, found.most_common(limit), span.end_ns)

    def label_values(self, request: Request, store: Store, _tenant: str) -> Reply:
        """Return the values of one index label of all streams, or of the selected ones."""
        span = self._span(request)
        self._check_length(span)
        name = request.path.removesuffix("/values").rpartition("/")[2]
        found = self._selected(request, store, span)
        return answers.success(
            sorted({dict(stream.labels)[name] for stream, _ in found if name in dict(stream.labels)})
        )

    @staticmethod
    def _selected(request: Request, store: Store, span: Span) -> Iterator[tuple[Stream, list[Entry]]]:
        """Return the streams that the request selects, or all."""
        query = parse(request.param("query")) if request.param("query") else None
        return store.select(query.selects if isinstance(query, LogQuery) else lambda _labels: True, *span)

    def _span(self, request: Request) -> Span:
        """Return the range of a query, by default the last hour."""
        now_ns = self._now_ns()
        end_ns = _time_ns(request, "end", now_ns)
        return Span(_time_ns(request, "start", min(end_ns, now_ns) - _DEFAULT_LENGTH_NS), end_ns)

    def _check_length(self, span: Span) -> None:
        longest_seconds = self._limits.max_query_length_seconds
        if span.length_ns > longest_seconds * SECOND_NS:
            raise LokiError(
                400,
                f"the query time range exceeds the limit (query length: {_go_duration(span.length_ns)}, "
                f"limit: {_days_and_hours(longest_seconds)})",
            )

    def _find(
        self, request: Request, store: Store, tenant: str, query: LogQuery, span: Span, work: Work
    ) -> list[Hit]:
        def find(start_ns: int, end_ns: int) -> list[Hit]:
            return find_lines(store, query, start_ns, end_ns, work)

        # Only this exact value bypasses the cache; "no-cache, no-store" does not.
        past_cache = request.headers.get("cache-control") == "no-cache"
        if past_cache or not query.has_filter:
            return find(*span)
        newest_cached_ns = self._now_ns() - self._limits.max_cache_freshness_seconds * SECOND_NS
        return self._empty_results.find(tenant, request.param("query"), span, newest_cached_ns, find)


def with_form(request: Request) -> Request:
    """Return the request with the parameters of a posted form before its own."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return request
    form = parse_qs(request.body.decode("utf-8", "replace"), keep_blank_values=True)
    names = {*form, *request.params}
    return replace(
        request, params={name: [*form.get(name, ()), *request.params.get(name, ())] for name in names}
    )


def _time_ns(request: Request, name: str, default_ns: int) -> int:
    """Parse a time: up to 10 digits are seconds, more are nanoseconds. Loki knows further notations."""
    text = request.param(name)
    if not text:
        return default_ns
    if not re.fullmatch(r"[+-]?\d+", text):
        words = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise LokiError(400, f"could not parse '{name}' parameter: {words}")
    return int(text) * SECOND_NS if len(text) <= 10 else int(text)


def _line_limit(request: Request) -> int:
    text = request.param("limit")
    if text and not re.fullmatch(r"[+-]?\d+", text):
        raise LokiError(400, f'strconv.Atoi: parsing "{text}": invalid syntax')
    limit = int(text) if text else _DEFAULT_LIMIT
    if limit <= 0:
        raise LokiError(400, "limit must be a positive value")
    return limit


def _is_forward(request: Request) -> bool:
    """Whether the oldest lines come first; by default the newest do."""
    direction = request.param("direction").upper()
    if direction not in ("", "FORWARD", "BACKWARD"):
        raise LokiError(400, f"invalid direction '{request.param('direction')}'")
    return direction == "FORWARD"


def _categorizes(request: Request) -> bool:
    flags = request.headers.get("x-loki-response-encoding-flags", "")
    return "categorize-labels" in [flag.strip() for flag in flags.split(",")]


def _go_duration(duration_ns: int) -> str:
    """Return a duration of hours as Go prints it: ``799h59m1s``."""
    minutes, seconds = divmod(duration_ns // SECOND_NS, 60)
    return f"{minutes // 60}h{minutes % 60}m{seconds}s"


def _days_and_hours(seconds: int) -> str:
    """Return a duration of whole hours as Prometheus prints it: ``30d1h``."""
    days, hours = divmod(seconds // HOUR_SECONDS, 24)
    return (f"{days}d" if days else "") + (f"{hours}h" if hours or not days else "")
