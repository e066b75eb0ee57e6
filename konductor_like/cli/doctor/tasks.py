"""Requests that run at the same time, each until one common deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from konductor_like.cluster.errors import KubeBadAnswer, KubeError, KubeForbidden, KubeTimeout, refused_right
from konductor_like.doctor.facts import Cause, Unseen
from konductor_like.doctor.link import VIEWER
from konductor_like.loki.errors import LokiError, LokiRefused, LokiTimeout, LokiUnauthorized

T = TypeVar("T")
LONGER = "try again with --timeout 30; if that does not help, look at the load of this server"
T_co = TypeVar("T_co", covariant=True)


class Deadline:
    """The end of a checkup. Every request starts a thread that does not keep the process from ending."""

    def __init__(self, seconds: float, end: float) -> None:
        """``seconds`` is the whole time, for messages; ``end`` is a time of ``time.monotonic``."""
        self._seconds = seconds
        self._end = end

    def left_seconds(self) -> float:
        """Return the seconds left, or 0."""
        return max(0.0, self._end - time.monotonic())

    def start(self, work: Callable[[], T | Unseen]) -> Task[T]:
        """Start the work; it may wait for tasks that were started before it."""
        return Task(work, self)

    def passed(self) -> Unseen:
        """Return the fact of a request that is not done."""
        return Unseen(Cause.TIME, f"no answer within {self._seconds:g} s", LONGER)


class Task(Generic[T_co]):
    """A request in a thread of its own."""

    def __init__(self, work: Callable[[], T_co | Unseen], deadline: Deadline) -> None:
        self._deadline = deadline
        self._future: Future[T_co | Unseen] = Future()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], T_co | Unseen]) -> None:
        try:
            self._future.set_result(work())
        except Exception as error:  # noqa: BLE001  # `get` raises it again, in the thread that asks
            self._future.set_exception(error)

    def get(self) -> T_co | Unseen:
        """Return the result, or why there is none. Raises an error only if it is a bug."""
        try:
            return self._future.result(self._deadline.left_seconds())
        except TimeoutError:
            return self._deadline.passed()
        except (KubeError, LokiError) as error:
            return unseen(error)


def unseen(error: KubeError | LokiError) -> Unseen:
    """Return a failed request as a fact."""
    match error:
        case KubeForbidden():
            right = refused_right(error)
            return Unseen(Cause.RIGHT, f"you may not {right}" if right else str(error), VIEWER)
        case KubeTimeout() | LokiTimeout():
            return Unseen(Cause.TIME, str(error), LONGER)
        case LokiRefused() if error.asks_for_less:
            return Unseen(Cause.UNASKED, "Loki refuses to read a day at once", "see the link `limits`")
        case LokiUnauthorized():
            return Unseen(Cause.LOGIN, str(error), error.hint)
        case _:
            return Unseen(Cause.FAILED, str(error), error.hint or KubeBadAnswer.default_hint)
