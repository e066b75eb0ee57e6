"""Asking again: which failures, how long after, how often, and stopping at once when told to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from konductor_like.loki.errors import LokiDropped, LokiError, LokiOverloaded, LokiStopped, LokiTimeout

ATTEMPTS = 4
TOTAL_SECONDS = 30.0

_backoff = wait_exponential(multiplier=0.5, max=8.0) + wait_random(0, 0.5)

Pause = Callable[[float], bool]
"""Waits that many seconds; True at once when the process was told to stop (``threading.Event().wait``)."""


def retrying(
    pause: Pause | None = None, *, attempts: int = ATTEMPTS, total_seconds: float = TOTAL_SECONDS
) -> Retrying:
    """A callable that runs a function and asks again after transient errors (:attr:`LokiError.transient`).

    A time-out is the exception: the reader asks for less then, which is more than asking the same again.
    Waits grow with jitter and are never shorter than what Loki asked for with ``Retry-After``. It gives up
    after ``attempts``, or when the next wait would end later than ``total_seconds`` after the first attempt
    began; the last error is raised then, and the caller's loop decides. Raises LokiStopped when ``pause``
    says so. It may be shared between threads.
    """
    wait_for = pause or threading.Event().wait

    def sleep(seconds: float) -> None:
        if wait_for(seconds):
            raise LokiStopped("Told to stop while waiting to ask Loki again")

    def out_of_time(state: RetryCallState) -> bool:
        elapsed = max(state.seconds_since_start or 0.0, state.idle_for)
        return elapsed + state.upcoming_sleep > total_seconds

    def stop(state: RetryCallState) -> bool:
        return stop_after_attempt(attempts)(state) or out_of_time(state)

    return Retrying(sleep=sleep, stop=stop, wait=_wait, retry=retry_if_exception(_transient), reraise=True)


def _transient(error: BaseException) -> bool:
    if isinstance(error, LokiTimeout):
        return isinstance(error, LokiDropped)
    return isinstance(error, LokiError) and error.transient


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after_seconds if isinstance(error, LokiOverloaded) else None
    return max(_backoff(state), asked or 0.0)
