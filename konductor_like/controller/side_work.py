"""Work beside the reconcile, in threads of its own, so that it delays no taint (rule 33).

A :class:`SideThread` makes one small step after another, such as the next few Node conditions. A
:class:`SideQueue` hands on what the controller puts into it, such as Events.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from konductor_like.controller import logs

T = TypeVar("T")


class Rate:
    """At most ``most`` uses within any ``seconds``. One thread uses it."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` returns seconds."""
        self._most, self._seconds, self._clock = most, seconds, clock
        self._used: deque[float] = deque(maxlen=most)

    def use(self) -> None:
        """Count one use."""
        self._used.append(self._clock())

    def left(self) -> int:
        """Return how many uses are allowed now."""
        return self._most - sum(self._clock() - at < self._seconds for at in self._used)

    def wait_seconds(self) -> float:
        """Return the seconds until the next use is allowed; 0 if it is allowed now."""
        return 0.0 if self.left() else max(0.0, self._used[0] + self._seconds - self._clock())


class SideThread:
    """One or more threads that make steps until they are closed. A bug costs one step, and is logged."""

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        *,
        what: str,
        close_seconds: float,
        threads: int = 1,
        after_bug_seconds: float = 0.0,
    ) -> None:
        """``what`` names what the steps are about, in the plural. The threads begin with :meth:`start`."""
        self.closing = threading.Event()
        """Set when the threads shall end."""
        self.close_seconds = close_seconds
        self._step = step
        self._what = what
        self._after_bug_seconds = after_bug_seconds
        names = [name] if threads == 1 else [f"{name}-{number}" for number in range(threads)]
        self.threads = [threading.Thread(target=self._run, name=each, daemon=True) for each in names]

    def start(self) -> None:
        """Start the threads."""
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        """Tell the threads to end. It does not wait for them."""
        self.closing.set()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended, at most so long."""
        end = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _over(self) -> bool:
        """Whether there is no further step."""
        return self.closing.is_set()

    def _run(self) -> None:
        while not self._over():
            try:
                self._step()
            except Exception:  # noqa: BLE001  # the thread must go on with the next step; logged in full
                logs.LOGGER.exception("Work on %s failed. Please report this.", self._what)
                self.closing.wait(self._after_bug_seconds)


class SideQueue(SideThread, Generic[T]):
    """A bounded queue, and one or more threads that hand its items on, the urgent ones first.

    At the end the items that wait are handed on without regard to the rate, for ``close_seconds`` at most.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[T], object],
        *,
        what: str,
        most: int,
        close_seconds: float,
        threads: int = 1,
        patience_seconds: float = math.inf,
        rate: Rate | None = None,
        lost: Callable[[int], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``handle`` takes one item; ``what`` names the items. At most ``most`` items wait.

        An item that waits longer than ``patience_seconds`` is forgotten. ``lost`` is called with the number
        of items that were dropped, because too many waited or because the process ends. ``clock`` returns
        seconds.
        """
        super().__init__(name, self._hand_on, what=what, close_seconds=close_seconds, threads=threads)
        self._handle = handle
        self._most = most
        self._patience_seconds = patience_seconds
        self._rate = rate
        self._lost = lost
        self._clock = clock
        self._changed = threading.Condition()
        self._urgent: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._others: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._paused_until = -math.inf
        self._dropped = 0
        """Items dropped since the last one was taken."""
        self._ended = False

    def __len__(self) -> int:
        """Return the number of items that wait."""
        return len(self._urgent) + len(self._others)

    def put(self, item: T, *, key: Hashable = None, urgent: bool = False) -> None:
        """Add an item and return at once. If too many wait, drop the oldest, those not urgent first.

        An item whose ``key`` waits already is not added; without a key every item is.
        """
        with self._changed:
            if self._clock() < self._paused_until:
                return
            waiting = self._urgent if urgent else self._others
            waiting.setdefault(object() if key is None else key, (self._clock(), item))
            if len(self) > self._most:
                (self._others or self._urgent).popitem(last=False)
                self._dropped += 1
                self._lost(1)
            self._changed.notify()

    def rest(self) -> list[T]:
        """Take all items that wait, for a ``handle`` that hands on several at once."""
        with self._changed:
            items = [item for waiting in (self._urgent, self._others) for _, item in waiting.values()]
            self._clear()
            return items

    def pause(self, seconds: float) -> None:
        """Forget what waits, and take nothing for so long: a right is missing, for example."""
        with self._changed:
            self._paused_until = self._clock() + seconds
            self._clear()

    def close(self) -> None:
        """Tell the threads to end after the items that wait. It does not wait for them."""
        super().close()
        with self._changed:
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended, at most so long; then drop what still waits."""
        super().join(seconds)
        with self._changed:
            left = len(self)
            self._ended = True
            self._clear()
        if left:
            self._lost(left)
            logs.warning(f"The controller stops before all {self._what} were handled: {left:,} waited.")

    def _over(self) -> bool:
        return self._ended or (self.closing.is_set() and not len(self))

    def _clear(self) -> None:
        self._urgent.clear()
        self._others.clear()

    def _hand_on(self) -> None:
        for item in self._next():
            self._handle(item)

    def _next(self) -> list[T]:
        """Wait until an item may be handed on, and take it; none when the threads shall end."""
        with self._changed:
            while not self._over():
                self._forget_old()
                waiting = self._urgent or self._others
                wait = self._rate.wait_seconds() if self._rate and not self.closing.is_set() else 0.0
                if waiting and not wait:
                    if self._rate:
                        self._rate.use()
                    _, (_, item) = waiting.popitem(last=False)
                    dropped, self._dropped = self._dropped, 0
                    if dropped:
                        logs.warning(
                            f"{dropped:,} {self._what} were dropped: too many waited.", dropped=dropped
                        )
                    return [item]
                self._changed.wait(wait if waiting else None)
        return []

    def _forget_old(self) -> None:
        oldest = self._clock() - self._patience_seconds
        for waiting in (self._urgent, self._others):
            while waiting and next(iter(waiting.values()))[0] < oldest:
                waiting.popitem(last=False)


@contextmanager
def running(*threads: SideThread) -> Iterator[None]:
    """Start the threads; at the end close all at once, each within its ``close_seconds``."""
    for each in threads:
        each.start()
    try:
        yield
    finally:
        closed_at = time.monotonic()
        for each in threads:
            each.close()
        for each in threads:
            each.join(max(0.0, closed_at + each.close_seconds - time.monotonic()))
