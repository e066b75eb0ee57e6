"""The endpoints that read lines: ``query_range``, ``query`` and ``tail``."""

from __future__ import annotations

from collections.abc import Callable

from konductor_like.sandbox.loki import answers, params
from konductor_like.sandbox.loki.cache import EmptyResults, Span
from konductor_like.sandbox.loki.engine import Hit, Work, cut, evaluate, find_lines
from konductor_like.sandbox.loki.limits import SECOND_NS, LokiError, LokiLimits
from konductor_like.sandbox.loki.logql import LogQuery
from konductor_like.sandbox.loki.messages import refusal
from konductor_like.sandbox.loki.parser import parse
from konductor_like.sandbox.loki.store import Store
from konductor_like.sandbox.loki.tail import Tails
from konductor_like.sandbox.wire import Reply, Request

_SHARDS = 16


class Queries:
    """Answers questions about lines. Every method may raise ``LokiError``."""

    def __init__(self, limits: LokiLimits, now_ns: Callable[[], int]) -> None:
        self._limits = limits
        self.tails = Tails()
        self._now_ns = now_ns
        self._empty_results = EmptyResults(limits.split_queries_by_interval_seconds * SECOND_NS)

    def over_range(self, request: Request, store: Store, tenant: str) -> Reply:
        """Lines of a range, or a metric at every step of it."""
        asked = params.query_bounds(request, self._now_ns())
        limit, forward = params.line_limit(request), params.is_forward(request)
        query = parse(request.param("query"))
        work = Work()
        if not isinstance(query, LogQuery):
            steps = params.steps_ns(request, asked)
            params.check_length(asked, self._limits)
            points = evaluate(store, query, steps, self._limits, work)
            return answers.reply(answers.metric_answer(points, instant=False, work=work))
        params.check_line_limit(limit, self._limits)
        params.check_length(asked, self._limits)
        span = Span(asked.start_ns, asked.end_ns)
        hits = self._find(request, store, tenant, query, span, work)
        refused = refusal(hits if forward else reversed(hits), limit, self._limits)
        if refused:
            return refused
        wanted = cut(hits, limit, forward, self._limits.sharded_results_fall_short)
        work.shards = _SHARDS if self._limits.sharded_results_fall_short else 1
        return answers.reply(answers.log_answer(wanted, _categorizes(request), work))

    def at_instant(self, request: Request, store: Store, _tenant: str) -> Reply:
        """A metric at one time."""
        params.line_limit(request)
        at_ns = params.instant_ns(request, self._now_ns())
        query = parse(request.param("query"))
        if isinstance(query, LogQuery):
            raise LokiError(
                400,
                "log queries are not supported as an instant query type, "
                "please change your query to a range query type",
            )
        work = Work()
        points = evaluate(store, query, [at_ns], self._limits, work)
        return answers.reply(answers.metric_answer(points, instant=True, work=work))

    def tail(self, request: Request, store: Store, _tenant: str) -> Reply:
        """Lines as they come, over a websocket."""
        query = parse(request.param("query"))
        if not isinstance(query, LogQuery):
            raise LokiError(400, "only log selector is supported")
        start_ns = params.bounds(request, self._now_ns()).start_ns
        return self.tails.reply(request, store, query, start_ns, params.line_limit(request))

    def _find(
        self, request: Request, store: Store, tenant: str, query: LogQuery, span: Span, work: Work
    ) -> list[Hit]:
        def find(start_ns: int, end_ns: int) -> list[Hit]:
            return find_lines(store, query, start_ns, end_ns, work)

        # Only this very value goes past the cache: "no-cache, no-store" does not.
        past_cache = request.headers.get("cache-control") == "no-cache"
        if past_cache or not query.has_filter or not self._limits.caches_empty_results:
            return find(*span)
        newest_cached_ns = self._now_ns() - self._limits.max_cache_freshness_seconds * SECOND_NS
        return self._empty_results.find(tenant, request.param("query"), span, newest_cached_ns, find)


def _categorizes(request: Request) -> bool:
    flags = request.headers.get("x-loki-response-encoding-flags", "")
    return "categorize-labels" in [flag.strip() for flag in flags.split(",")]
