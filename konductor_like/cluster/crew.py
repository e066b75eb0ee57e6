"""One job per node, so many at once, and nobody waits for stragglers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

R = TypeVar("R")


class Crew(Generic[R]):
    """Does jobs in threads. One that keeps everybody waiting goes on by itself: it is *late*.

    Not for several threads at once, but for ``finish``.
    """

    def __init__(self, size: int, linger_seconds: float) -> None:
        """``linger_seconds``: how long to wait, with nothing done meanwhile, for jobs that all have begun."""
        self._size = size
        self._linger_seconds = linger_seconds
        self._late: dict[str, Future[R]] = {}

    def is_late(self, name: str) -> bool:
        """Whether a job of that name is still being done."""
        return name in self._late and not self._late[name].done()

    def collect(self, name: str) -> R | None:
        """What the late job of that name has come to, told once; None if there is nothing to tell."""
        return None if self.is_late(name) or name not in self._late else self._late.pop(name).result()

    def do(self, jobs: Mapping[str, Callable[[], R]]) -> dict[str, R]:
        """Do them all; those that are late are missing from the answer. A job must not raise."""
        if not jobs:
            return {}
        pool = ThreadPoolExecutor(min(self._size, len(jobs)), thread_name_prefix="write")
        futures = {name: pool.submit(job) for name, job in jobs.items()}
        pool.shutdown(wait=False)  # its threads end with their jobs, late ones too
        left = set(futures.values())
        while left:
            done, left = wait(left, self._linger_seconds, FIRST_COMPLETED)
            if not done and all(future.running() or future.done() for future in left):
                break
        self._late |= {name: future for name, future in futures.items() if not future.done()}
        return {name: future.result() for name, future in futures.items() if name not in self._late}

    def finish(self, timeout_seconds: float) -> bool:
        """Wait until nothing is under way; whether that was reached. May be called from another thread."""
        return not wait(list(self._late.values()), timeout_seconds).not_done
