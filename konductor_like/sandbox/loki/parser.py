"""LogQL text to values, with Loki's words for what it does not understand.

Source of the grammar: pkg/logql/syntax/syntax.y; bodies seen on a real Loki. Known LogQL that the stand-in
does not speak is answered with 501, so that nobody takes it for an error in the query.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from konductor_like.sandbox.loki.lexer import Kind, ParseError, Token, tokenize
from konductor_like.sandbox.loki.limits import LokiError
from konductor_like.sandbox.loki.logql import (
    Drop,
    Keep,
    LabelFilter,
    LabelStage,
    LineFilter,
    LogQuery,
    Matcher,
    MetricQuery,
    Query,
    RangeAggregation,
    Sum,
)

_MAX_QUERY_BYTES = 128 * 1024
_LABEL_OPERATORS = ("=", "=~", "!~", "!=")
_LINE_OPERATORS = ("|=", "|~", "!=", "!~")
_RANGE_FUNCTIONS = ("count_over_time", "rate", "bytes_over_time", "bytes_rate")
_STAGES_NOT_SPOKEN = frozenset(
    {
        *("json", "logfmt", "pattern", "regexp", "unpack", "unwrap", "distinct"),
        *("line_format", "label_format", "decolorize"),
    }
)
_NOT_SPOKEN = _STAGES_NOT_SPOKEN | {
    *("|>", "!>", ">", "<", ">=", "<=", "==", "+", "-", "*", "/", "ip", "offset"),
    *("topk", "bottomk", "max", "min", "avg", "count", "stddev", "sort", "sort_desc", "label_replace"),
    *("max_over_time", "min_over_time", "avg_over_time", "sum_over_time", "first_over_time"),
    *("last_over_time", "quantile_over_time", "absent_over_time", "rate_counter", "vector"),
}
_STRING_OR_IP = "expecting STRING or ip"
_NO_SELECTOR = (
    "queries require at least one regexp or equality matcher that does not have an empty-compatible value. "
    'For instance, app=~".*" does not meet this requirement, but app=~".+" will'
)


@lru_cache(maxsize=256)  # pollers ask the same again and again
def parse(query: str) -> Query:
    """The meaning of a query. Raises ``ParseError``; for LogQL that is not spoken here ``LokiError`` 501."""
    if len(query.encode()) >= _MAX_QUERY_BYTES:
        raise ParseError(f"input size too long ({len(query.encode())} > {_MAX_QUERY_BYTES})")
    tokens = tokenize(query)
    if len(tokens) == 1:
        raise ParseError("syntax error: unexpected $end")
    parser = _Parser(tokens)
    parsed: Query = parser.log_query() if parser.at("{") else parser.metric_query()
    parser.expect_end()
    return parsed


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._next]

    def at(self, *symbols: str) -> bool:
        return self.token.kind is Kind.SYMBOL and self.token.value in symbols

    def take(self) -> Token:
        token = self.token
        self._next += 1
        return token

    def accept(self, *symbols: str) -> bool:
        if not self.at(*symbols):
            return False
        self._next += 1
        return True

    def refuse(self, expecting: str = "") -> LokiError:
        token = self.token
        if token.kind in (Kind.SYMBOL, Kind.IDENTIFIER) and token.value in _NOT_SPOKEN:
            return LokiError(501, f"the stand-in Loki does not speak this part of LogQL: {token.value}")
        unexpected = f"syntax error: unexpected {token.name}{', ' if expecting else ''}{expecting}"
        return ParseError(unexpected, token.line, token.column)

    def expect(self, symbol: str, expecting: str = "") -> None:
        if not self.accept(symbol):
            raise self.refuse(expecting)

    def expect_kind(self, kind: Kind, expecting: str = "") -> str:
        if self.token.kind is not kind:
            raise self.refuse(expecting)
        return self.take().value

    def expect_end(self) -> None:
        if self.token.kind is not Kind.END:
            raise self.refuse()

    # Log queries

    def log_query(self) -> LogQuery:
        return self._log_query(ranged=False)[0]

    def _log_query(self, ranged: bool) -> tuple[LogQuery, int]:
        """A log query; inside a metric query with its range, which may stand before or after the pipeline."""
        matchers = self._selector()
        line_filters: list[LineFilter] = []
        label_stages: list[LabelStage] = []
        self._pipeline(line_filters, label_stages)
        range_ns = int(self.expect_kind(Kind.RANGE)) if ranged else 0
        if ranged:
            self._pipeline(line_filters, label_stages)
        if all(matcher.matches("") for matcher in matchers):
            raise ParseError(_NO_SELECTOR)
        return LogQuery(tuple(matchers), tuple(line_filters), tuple(label_stages)), range_ns

    def _selector(self) -> list[Matcher]:
        self.expect("{")
        if self.accept("}"):
            return []
        matchers = [self._matcher("expecting IDENTIFIER or }")]
        while self.accept(","):
            matchers.append(self._matcher("expecting IDENTIFIER"))
        self.expect("}", "expecting } or ,")
        return matchers

    def _matcher(self, expecting: str) -> Matcher:
        name = self.expect_kind(Kind.IDENTIFIER, expecting)
        if not self.at(*_LABEL_OPERATORS):
            raise self.refuse("expecting = or =~ or !~ or !=")
        return Matcher.of(name, self.take().value, self.expect_kind(Kind.STRING, "expecting STRING"))

    def _pipeline(self, line_filters: list[LineFilter], label_stages: list[LabelStage]) -> None:
        while True:
            if self.at(*_LINE_OPERATORS):
                operator = self.take().value
                alternatives = [self.expect_kind(Kind.STRING, _STRING_OR_IP)]
                while self.accept("or"):
                    alternatives.append(self.expect_kind(Kind.STRING, _STRING_OR_IP))
                line_filters.append(LineFilter.of(operator, alternatives))
            elif self.accept("|"):
                label_stages.append(self._label_stage())
            else:
                return

    def _label_stage(self) -> LabelStage:
        if self.accept("keep"):
            return Keep(self._names_or_matchers())
        if self.accept("drop"):
            return Drop(self._names_or_matchers())
        if self.token.value in _STAGES_NOT_SPOKEN:
            raise self.refuse()
        return LabelFilter(self._any_of())

    def _names_or_matchers(self) -> tuple[Matcher, ...]:
        found = []
        while True:
            name = self.expect_kind(Kind.IDENTIFIER, "expecting IDENTIFIER")
            if self.at(*_LABEL_OPERATORS):
                operator = self.take().value
                found.append(Matcher.of(name, operator, self.expect_kind(Kind.STRING)))
            else:
                found.append(Matcher.of(name, "=~", ".*"))
            if not self.accept(","):
                return tuple(found)

    def _any_of(self, expecting: str = "") -> Callable[[dict[str, str]], bool]:
        branches = [self._all_of(expecting)]
        while self.accept("or"):
            branches.append(self._all_of("expecting IDENTIFIER or ("))
        return lambda labels: any(branch(labels) for branch in branches)

    def _all_of(self, expecting: str) -> Callable[[dict[str, str]], bool]:
        conditions = [self._condition(expecting)]
        while self.accept("and", ",") or self.token.kind is Kind.IDENTIFIER:
            conditions.append(self._condition("expecting IDENTIFIER or ("))
        return lambda labels: all(condition(labels) for condition in conditions)

    def _condition(self, expecting: str) -> Callable[[dict[str, str]], bool]:
        if self.accept("("):
            inner = self._any_of()
            self.expect(")")
            return inner
        name = self.expect_kind(Kind.IDENTIFIER, expecting)
        if not self.at(*_LABEL_OPERATORS):
            raise self.refuse()
        matcher = Matcher.of(name, self.take().value, self.expect_kind(Kind.STRING))
        return lambda labels: matcher.matches(labels.get(matcher.name, ""))

    # Metric queries

    def metric_query(self) -> MetricQuery:
        if self.accept("("):
            inner = self.metric_query()
            self.expect(")")
            return inner
        if self.accept("sum"):
            return self._sum()
        if self.at(*_RANGE_FUNCTIONS):
            return self._range_aggregation(self.take().value)
        raise self.refuse()

    def _sum(self) -> Sum:
        grouping = self._grouping()
        self.expect("(")
        inner = self.metric_query()
        self.expect(")")
        names, without = grouping or self._grouping() or ((), False)
        return Sum(inner, names, without)

    def _grouping(self) -> tuple[tuple[str, ...], bool] | None:
        if not self.at("by", "without"):
            return None
        without = self.take().value == "without"
        self.expect("(")
        if self.accept(")"):
            return (), without
        names = [self.expect_kind(Kind.IDENTIFIER, "expecting IDENTIFIER or )")]
        while self.accept(","):
            names.append(self.expect_kind(Kind.IDENTIFIER, "expecting IDENTIFIER"))
        self.expect(")", "expecting , or )")
        return tuple(names), without

    def _range_aggregation(self, function: str) -> RangeAggregation:
        self.expect("(")
        if not self.at("{"):
            raise self.refuse("expecting NUMBER or { or (")
        query, range_ns = self._log_query(ranged=True)
        self.expect(")", "expecting )")
        return RangeAggregation(function, query, range_ns)
