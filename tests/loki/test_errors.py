"""Errors name the problem and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from konductor_like.loki.query import errors
from konductor_like.loki.query.client import retrying
from konductor_like.loki.query.errors import (
    LokiAnswerTooLarge,
    LokiBadAnswer,
    LokiDropped,
    LokiError,
    LokiMisconfigured,
    LokiOverloaded,
    LokiRefused,
    LokiStopped,
    LokiTimeout,
    LokiUnauthorized,
    LokiUnavailable,
    LokiUnreachable,
)
from konductor_like.model.text import EXCERPT_CHARS, excerpt

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
        ("max entries limit per query exceeded, limit > max_entries_limit_per_query (9999 > 5000)", 5000),
        ("max entries limit per query exceeded, limit > max_entries_limit (5000 > 1000)", 1000),
        ("limit must be a positive value", None),
    ],
)
def test_a_refusal_names_the_limit_that_would_be_allowed(words: str, limit: int | None) -> None:
    assert LokiRefused(words).allowed_limit == limit


@pytest.mark.parametrize(
    ("words", "less"),
    [
        ("the query would read too many bytes (query: 2 GB, limit: 1 GB); consider adding", True),
        ("query too large to execute on a single querier: (query: 200 GB, limit: 150 GB)", True),
        ("the query time range exceeds the limit (query length: 800h0m0s, limit: 30d1h)", True),
        ("parse error at line 1, col 87: syntax error: unexpected $end", False),
    ],
)
def test_a_refusal_that_a_narrower_window_would_avoid_is_recognised(words: str, less: bool) -> None:
    assert LokiRefused(words).asks_for_less is less


def test_quoted_answers_are_short_and_on_one_line() -> None:
    assert (
        excerpt("Some services are not Running:\nStarting: 5\n\n")
        == "Some services are not Running: Starting: 5"
    )
    assert excerpt("a\x00\x1b[31mred\ud800") == "a [31mred"
    assert len(excerpt("x" * 10_000)) == EXCERPT_CHARS
    assert excerpt("x" * 10_000).endswith("…")


class Pauses:
    """Records the waits instead of waiting; asks to stop during the wait with the given number."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.seconds: list[float] = []
        self._stop_at = stop_at

    def __call__(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return len(self.seconds) == self._stop_at


def _failing(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def ask() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return ask


@pytest.mark.parametrize(
    "error",
    [LokiUnreachable("x"), LokiDropped("x"), LokiOverloaded("x"), LokiUnavailable("x")],
    ids=lambda error: type(error).__name__,
)
def test_a_transient_failure_is_tried_again(error: LokiError) -> None:
    pauses = Pauses()

    assert retrying(pauses)(_failing(error, error)) == "answer"
    assert len(pauses.seconds) == 2


UNTRUSTED = LokiUnreachable("untrusted certificate", transient=False)
LASTING = (LokiRefused, LokiUnauthorized, LokiBadAnswer, LokiAnswerTooLarge, LokiTimeout, LokiMisconfigured)


@pytest.mark.parametrize(
    "error", [UNTRUSTED, ZeroDivisionError(), *(kind("x") for kind in LASTING)], ids=repr
)
def test_an_error_that_a_repeat_cannot_change_is_raised_at_once(error: Exception) -> None:
    pauses = Pauses()

    with pytest.raises(type(error)) as caught:
        retrying(pauses)(_failing(error))
    assert caught.value is error
    assert pauses.seconds == []


def test_the_last_error_is_raised_after_the_last_attempt() -> None:
    errors = [LokiUnavailable(str(number)) for number in range(9)]
    pauses = Pauses()

    with pytest.raises(LokiUnavailable, match=r"^2$"):
        retrying(pauses, attempts=3)(_failing(*errors))
    assert len(pauses.seconds) == 2


def test_waits_grow_and_carry_jitter() -> None:
    def waits() -> list[float]:
        pauses = Pauses()
        with pytest.raises(LokiUnavailable):
            retrying(pauses, attempts=5, total_seconds=1000)(_failing(*[LokiUnavailable("x")] * 9))
        return pauses.seconds

    first, second = waits(), waits()

    for position, seconds in enumerate(first):
        assert 0.5 * 2**position <= seconds <= 2**position
    assert first != second


@pytest.mark.parametrize("kind", [LokiOverloaded, LokiUnavailable])
def test_a_wait_is_never_shorter_than_loki_asked_for(kind: type[LokiError]) -> None:
    pauses = Pauses()

    retrying(pauses)(_failing(kind("x", retry_after_seconds=12)))

    assert pauses.seconds == [12]


def test_a_wait_that_exceeds_the_total_time_is_left_to_the_caller() -> None:
    pauses = Pauses()

    with pytest.raises(LokiOverloaded) as caught:
        retrying(pauses, total_seconds=30)(_failing(LokiOverloaded("x", retry_after_seconds=120)))
    assert caught.value.retry_after_seconds == 120
    assert pauses.seconds == []


def test_all_waits_together_stay_within_the_time() -> None:
    pauses = Pauses()

    with pytest.raises(LokiOverloaded):
        retrying(pauses, attempts=99, total_seconds=30)(
            _failing(*[LokiOverloaded("x", retry_after_seconds=8)] * 99)
        )
    assert pauses.seconds == [8, 8, 8]


def test_a_stop_ends_the_wait_and_nothing_is_asked_again() -> None:
    pauses = Pauses(stop_at=1)

    with pytest.raises(LokiStopped):
        retrying(pauses)(_failing(LokiUnavailable("x")))
    assert len(pauses.seconds) == 1
