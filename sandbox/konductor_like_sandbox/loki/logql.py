"""The subset of LogQL that konductor-like sends. Any other query is answered with 400.

    {name="value", other=~"expression"} |= "text" or "text" | label=~"a|b" | label!~"c"
    sum(count_over_time(<such a query> [60000ms]))

Users configure the selector, so any selector works. Expressions are RE2's, and their dot matches a newline.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import re2

from konductor_like_sandbox.loki.labels import Labels
from konductor_like_sandbox.loki.limits import LokiError
from konductor_like_sandbox.loki.store import Entry

_MAX_QUERY_BYTES = 128 * 1024
_NO_SELECTOR = (
    "queries require at least one regexp or equality matcher that does not have an empty-compatible value. "
    'For instance, app=~".*" does not meet this requirement, but app=~".+" will'
)

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_STRING = r'"(?:[^"\\\n]|\\.)*"|`[^`]*`'
_MATCHER = re.compile(rf"\s*({_NAME})\s*(=~|!~|!=|=)\s*({_STRING})\s*")
_LABEL_FILTER = re.compile(rf"\|\s*({_NAME})\s*(=~|!~)\s*({_STRING})\s*")
_LOG_QUERY = re.compile(
    rf"""\s*\{{(?P<selector>{_MATCHER.pattern}(?:,{_MATCHER.pattern})*)\}}\s*
    (?:\|=\s*(?P<texts>(?:{_STRING})(?:\s*or\s*(?:{_STRING}))*)\s*)?
    (?P<filters>(?:{_LABEL_FILTER.pattern})*)""",
    re.VERBOSE,
)
_EMPTY_ALTERNATIVE = re.compile(r"(?:^|\|)(?:\||$)")
"""As a real Loki does it: ``=~""`` finds every line, ``!~""`` none, and ``=~"|a"`` only the value ``a``."""
_COUNT_QUERY = re.compile(r"sum\(count_over_time\((?P<log>.*) \[(?P<ms>\d+)ms\]\)\)", re.DOTALL)


class ParseError(LokiError):
    """A query that Loki, or the stand-in, does not understand."""

    def __init__(self, message: str) -> None:
        super().__init__(400, f"parse error : {message}")


@dataclass(frozen=True, slots=True)
class Matcher:
    """A matcher such as ``name="value"``, in a selector or label filter. A missing label counts as empty."""

    name: str
    operator: str
    value: str
    _pattern: Any = field(default=None, compare=False)

    @classmethod
    def of(cls, name: str, operator: str, quoted: str) -> Matcher:
        """Raises ``ParseError`` if the value is not a Go string, or must be an expression and is not."""
        value = _unquoted(quoted)
        return cls(name, operator, value, _compiled(value) if operator.endswith("~") else None)

    def matches(self, value: str) -> bool:
        """Whether a label value matches; an expression must match the whole value."""
        hit = value == self.value if self._pattern is None else self._pattern.fullmatch(value) is not None
        return hit != self.operator.startswith("!")


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A stream selector, a line filter and label filters."""

    matchers: tuple[Matcher, ...]
    texts: tuple[str, ...] = ()
    """A line must contain one of these texts. No texts, or an empty text, match every line."""
    label_filters: tuple[Matcher, ...] = ()

    @property
    def has_filter(self) -> bool:
        """Whether empty results of the query are cached (pkg/logql/syntax/ast.go ``HasFilter``)."""
        return bool(self.label_filters) or any(self.texts)

    def selects(self, labels: Labels) -> bool:
        """Whether a stream with these index labels is selected."""
        return _all_match(self.matchers, dict(labels))

    def holds_text(self, text: str) -> bool:
        """Whether the line filter matches this text: one line, or several to test at once."""
        return not self.texts or any(wanted in text for wanted in self.texts)

    def passes(self, index: Labels, entry: Entry) -> bool:
        """Whether a line of a selected stream matches. Filters apply to index labels and to metadata."""
        return self.holds_text(entry.line) and (
            not self.label_filters or _all_match(self.label_filters, dict((*index, *entry.metadata)))
        )


@dataclass(frozen=True, slots=True)
class CountQuery:
    """The number of lines that a log query finds in the span before a moment."""

    lines: LogQuery
    width_ns: int


@lru_cache(maxsize=256)  # pollers repeat their queries
def parse(query: str) -> LogQuery | CountQuery:
    """Parse a query. Raises ``ParseError``."""
    size = len(query.encode("utf-8", "replace"))
    if size >= _MAX_QUERY_BYTES:
        raise ParseError(f"input size too long ({size} > {_MAX_QUERY_BYTES})")
    if count := _COUNT_QUERY.fullmatch(query):
        return CountQuery(_log_query(count["log"]), int(count["ms"]) * 10**6)
    return _log_query(query)


def _log_query(text: str) -> LogQuery:
    found = _LOG_QUERY.fullmatch(text)
    if found is None:
        raise ParseError("the stand-in Loki does not know this shape of query; it knows what we send")
    matchers = tuple(Matcher.of(*matcher) for matcher in _MATCHER.findall(found["selector"]))
    if all(matcher.matches("") for matcher in matchers):
        raise ParseError(_NO_SELECTOR)
    texts = tuple(map(_unquoted, re.findall(_STRING, found["texts"] or "")))
    label_filters = tuple(Matcher.of(*matcher) for matcher in _LABEL_FILTER.findall(found["filters"]))
    if any(_EMPTY_ALTERNATIVE.search(one.value) for one in label_filters):
        raise ParseError("Loki takes an empty alternative in a label filter for anything or for nothing")
    # An empty text finds nothing among other texts, although it finds everything alone.
    return LogQuery(matchers, tuple(filter(None, texts)) or texts, label_filters)


def _all_match(matchers: tuple[Matcher, ...], values: dict[str, str]) -> bool:
    return all(matcher.matches(values.get(matcher.name, "")) for matcher in matchers)


def _unquoted(quoted: str) -> str:
    """Unquote a string. We quote as JSON does, and Go knows all of JSON's escapes."""
    if quoted.startswith("`"):
        return quoted[1:-1]
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        raise ParseError("invalid char escape") from None


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    options.max_mem = 64 << 20  # a selector may name thousands of nodes
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ParseError(f"error parsing regexp: {error.args[0].decode('utf-8', 'replace')}") from None
