"""When Loki is asked again, and when not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from konductor_like.loki.client import retrying
from konductor_like.loki.errors import (
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


class Pauses:
    """Records the waits instead of waiting; says "stop" during the wait with the given number."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.seconds: list[float] = []
        self._stop_at = stop_at

    def __call__(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return len(self.seconds) == self._stop_at


def _failing(*errors: LokiError) -> Callable[[], str]:
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


@pytest.mark.parametrize(
    "error",
    [
        LokiRefused("x"),
        LokiUnauthorized("x"),
        LokiBadAnswer("x"),
        LokiAnswerTooLarge("x"),
        LokiTimeout("x"),
        LokiMisconfigured("x"),
        LokiStopped("x"),
        LokiUnreachable("untrusted certificate", transient=False),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_asking_again_cannot_change_is_raised_at_once(error: LokiError) -> None:
    pauses = Pauses()

    with pytest.raises(type(error)) as caught:
        retrying(pauses)(_failing(error))
    assert caught.value is error
    assert pauses.seconds == []


def test_a_fault_of_our_own_is_not_retried() -> None:
    pauses = Pauses()

    with pytest.raises(ZeroDivisionError):
        retrying(pauses)(lambda: 1 // 0)
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
        assert 0.5 * 2**position <= seconds <= 0.5 * 2**position + 0.5
    assert first != second


def test_a_wait_is_never_shorter_than_loki_asked_for() -> None:
    pauses = Pauses()

    retrying(pauses)(_failing(LokiOverloaded("x", retry_after_seconds=12)))

    assert pauses.seconds == [12]


def test_a_longer_wait_than_there_is_time_for_is_left_to_the_caller() -> None:
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
