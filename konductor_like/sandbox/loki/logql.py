"""What a LogQL query means: the subset that konductor-like asks, as values that can be applied to lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from konductor_like.sandbox.loki.labels import Labels
from konductor_like.sandbox.loki.lexer import ParseError
from konductor_like.sandbox.loki.regexps import RegexpError, compile_re2
from konductor_like.sandbox.loki.store import Entry


@dataclass(frozen=True, slots=True)
class Matcher:
    """``name="value"`` and its kin, on an index label or in a label filter. A missing label counts as ""."""

    name: str
    operator: str
    value: str
    _pattern: re.Pattern[str] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, name: str, operator: str, value: str) -> Matcher:
        """Raises ``ParseError`` if the value is a bad regular expression."""
        if operator not in ("=~", "!~"):
            return cls(name, operator, value)
        try:
            return cls(name, operator, value, compile_re2(value))
        except RegexpError as error:
            raise ParseError(str(error)) from None

    def matches(self, value: str) -> bool:
        """Whether a label of this value passes; expressions must match the whole value."""
        hit = bool(self._pattern.fullmatch(value)) if self._pattern else value == self.value
        return hit != self.operator.startswith("!")


@dataclass(frozen=True, slots=True)
class LineFilter:
    """``|= `a` or `b``` and its kin. Expressions match anywhere in the line."""

    operator: str
    alternatives: tuple[str, ...]
    _patterns: tuple[re.Pattern[str], ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, operator: str, alternatives: list[str]) -> LineFilter:
        """Raises ``ParseError`` if an alternative is a bad regular expression.

        An empty alternative among others finds nothing, although alone it finds everything.
        """
        if operator.startswith("|"):
            alternatives = [one for one in alternatives if one] or [""]
        if operator not in ("|~", "!~"):
            return cls(operator, tuple(alternatives))
        patterns = []
        for alternative in alternatives:
            try:
                patterns.append(compile_re2(alternative))
            except RegexpError as error:
                stage = f"{operator} {json.dumps(alternative, ensure_ascii=False)}"
                raise ParseError(f"stage '{stage}' : {error}") from None
        return cls(operator, tuple(alternatives), tuple(patterns))

    @property
    def filters(self) -> bool:
        """Whether it can hold anything back at all: ``|= ""`` cannot."""
        return self.operator.startswith("!") or "" not in self.alternatives

    def passes(self, line: str) -> bool:
        """Whether the line gets through."""
        if self._patterns:
            hit = any(pattern.search(line) for pattern in self._patterns)
        else:
            hit = any(alternative in line for alternative in self.alternatives)
        return hit != self.operator.startswith("!")


class LabelStage(Protocol):
    """A stage that looks at labels only."""

    def apply(self, labels: dict[str, str]) -> bool:
        """Change the labels in place; False holds the line back."""
        ...


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """``| name="value" and (…)``, on index labels and structured metadata alike."""

    passes: Callable[[dict[str, str]], bool]

    def apply(self, labels: dict[str, str]) -> bool:
        """Hold back what does not pass."""
        return self.passes(labels)


@dataclass(frozen=True, slots=True)
class Keep:
    """``| keep a, b="c"``: drop all labels but these."""

    matchers: tuple[Matcher, ...]

    def apply(self, labels: dict[str, str]) -> bool:
        """Holds back nothing."""
        kept = {one.name for one in self.matchers if one.name in labels and one.matches(labels[one.name])}
        for name in set(labels) - kept:
            del labels[name]
        return True


@dataclass(frozen=True, slots=True)
class Drop:
    """``| drop a, b="c"``: drop these labels."""

    matchers: tuple[Matcher, ...]

    def apply(self, labels: dict[str, str]) -> bool:
        """Holds back nothing."""
        for one in self.matchers:
            if one.name in labels and one.matches(labels[one.name]):
                del labels[one.name]
        return True


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A selector and its pipeline. No stage changes a line, so line filters can go first."""

    matchers: tuple[Matcher, ...]
    line_filters: tuple[LineFilter, ...] = ()
    label_stages: tuple[LabelStage, ...] = ()

    @property
    def has_filter(self) -> bool:
        """Whether empty results of it are cached (pkg/logql/syntax/ast.go ``HasFilter``)."""
        return any(one.filters for one in self.line_filters) or any(
            isinstance(stage, LabelFilter) for stage in self.label_stages
        )

    def selects(self, labels: Labels) -> bool:
        """Whether a stream of these index labels is asked for."""
        values = dict(labels)
        return all(matcher.matches(values.get(matcher.name, "")) for matcher in self.matchers)

    def rules_out(self, text: str) -> bool:
        """Whether surely no line of the text passes. A shortcut: most streams have no line that is wanted."""
        return any(
            one.operator == "|=" and not any(alternative in text for alternative in one.alternatives)
            for one in self.line_filters
        )

    def labels_of(self, index: Labels, entry: Entry) -> tuple[Labels, Labels] | None:
        """The index labels and the metadata that the line comes out with; None if it is held back."""
        if not all(line_filter.passes(entry.line) for line_filter in self.line_filters):
            return None
        if not self.label_stages:
            return index, entry.metadata
        labels = {**dict(index), **dict(entry.metadata)}
        if not all(stage.apply(labels) for stage in self.label_stages):
            return None
        return (
            tuple(pair for pair in index if pair[0] in labels),
            tuple(pair for pair in entry.metadata if pair[0] in labels),
        )


@dataclass(frozen=True, slots=True)
class RangeAggregation:
    """``count_over_time(… [5m])`` and its kin: a number per series and window."""

    function: str
    query: LogQuery
    range_ns: int


@dataclass(frozen=True, slots=True)
class Sum:
    """``sum by (a) (…)``, ``sum without (a) (…)`` or a plain sum over all."""

    inner: MetricQuery
    names: tuple[str, ...] = ()
    without: bool = False

    def group(self, labels: Labels) -> Labels:
        """The labels of the sum that a series goes into."""
        return tuple(pair for pair in labels if (pair[0] in self.names) != self.without)


MetricQuery = RangeAggregation | Sum
Query = LogQuery | MetricQuery
