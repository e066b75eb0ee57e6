"""Errors are for people."""

from __future__ import annotations

import pytest

from konductor_like.loki import errors
from konductor_like.loki.errors import BODY_CHARS, LokiError, LokiRefused, shown

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LokiError)]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_says_what_failed_and_what_to_do_next(kind: type[LokiError]) -> None:
    error = kind("Loki at http://loki:3100: broken")

    assert str(error) == "Loki at http://loki:3100: broken"
    assert error.hint.endswith(".")
    assert isinstance(error.transient, bool)


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        pytest.param(
            "max entries limit per query exceeded, limit > max_entries_limit_per_query (5001 > 5000)",
            5000,
            id="own",
        ),
        pytest.param(
            "max entries limit per query exceeded, limit > max_entries_limit (5000 > 1000)",
            1000,
            id="older Loki",
        ),
        pytest.param("limit must be a positive value", None, id="another reason"),
        pytest.param("", None, id="no words"),
    ],
)
def test_a_refusal_names_the_limit_that_would_be_allowed(words: str, limit: int | None) -> None:
    assert LokiRefused(words).allowed_limit == limit


@pytest.mark.parametrize(
    ("words", "less"),
    [
        pytest.param(
            "the query would read too many bytes (query: 2 GB, limit: 1 GB); consider adding more specific "
            "stream selectors or reduce the time range of the query",
            True,
            id="bytes",
        ),
        pytest.param(
            "query too large to execute on a single querier: (query: 200 GB, limit: 150 GB); consider",
            True,
            id="querier",
        ),
        pytest.param(
            "the query time range exceeds the limit (query length: 800h0m0s, limit: 30d1h)", True, id="range"
        ),
        pytest.param("parse error at line 1, col 87: syntax error: unexpected $end", False, id="a bad query"),
    ],
)
def test_a_refusal_that_a_narrower_window_would_avoid_is_recognised(words: str, less: bool) -> None:
    assert LokiRefused(words).asks_for_less is less


def test_quoted_answers_are_short_and_on_one_line() -> None:
    assert (
        shown("Some services are not Running:\nStarting: 5\n\n")
        == "Some services are not Running: Starting: 5"
    )
    assert shown("a\x00\x1b[31mred\ud800") == "a [31mred"
    assert len(shown("x" * 10_000)) == BODY_CHARS
    assert shown("x" * 10_000).endswith("…")
