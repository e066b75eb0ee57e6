"""Waits after failures, which double, and calls that are repeated after an error that may pass."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from konductor_like.model.edge_errors import EdgeError

if TYPE_CHECKING:
    import tenacity


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double after each failure in a row, from ``first_seconds`` to ``most_seconds``."""

    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def longest_seconds(self, failures: int) -> float:
        """Return the wait after ``failures`` failures in a row (1 or more), without jitter."""
        return min(self.first_seconds * 2.0 ** min(failures - 1, 16), self.most_seconds)

    def seconds(self, failures: int, at_least_seconds: float | None = None) -> float:
        """Return the wait with jitter, ``at_least_seconds`` or more.

        With jitter, clients that failed together do not all try again at once.
        """
        wait = self.longest_seconds(failures) * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter is no secret
        return max(wait, at_least_seconds or 0.0)


def may_pass(error: BaseException) -> bool:
    """Whether the same request to a server may succeed later."""
    return isinstance(error, EdgeError) and error.transient


def retrying(
    backoff: Backoff,
    pause: Callable[[float], object],
    *,
    attempts: int,
    total_seconds: float = math.inf,
    repeat_after: Callable[[BaseException], bool] = may_pass,
) -> tenacity.Retrying:
    """Return a callable that calls a function, and calls it again after errors that may pass.

    No wait is shorter than the error's ``retry_after_seconds``. The callable raises the last error after
    ``attempts``, when the next wait would end later than ``total_seconds`` after the first attempt began, and
    when ``pause`` (which waits) returns true. Threads may share it.
    """
    import tenacity  # not with the module: most commands repeat nothing, and start faster without it

    def wait(state: tenacity.RetryCallState) -> float:
        return backoff.seconds(state.attempt_number, getattr(_error(state), "retry_after_seconds", None))

    def stop(state: tenacity.RetryCallState) -> bool:
        elapsed = max(state.seconds_since_start or 0.0, state.idle_for)
        return state.attempt_number >= attempts or elapsed + state.upcoming_sleep > total_seconds

    def sleep(state: tenacity.RetryCallState) -> None:
        if pause(state.upcoming_sleep):
            raise _error(state)

    return tenacity.Retrying(
        wait=wait,
        stop=stop,
        before_sleep=sleep,
        sleep=lambda _: None,  # ``before_sleep`` has waited: unlike ``sleep`` it knows the error
        retry=tenacity.retry_if_exception(repeat_after),
        reraise=True,
    )


def _error(state: tenacity.RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    return error or RuntimeError("there is no error to wait after")
