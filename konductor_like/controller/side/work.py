"""Work beside the reconcile, in threads of its own, so that it delays no taint (rule 33).

A :class:`SideThread` makes one small step after another, such as the next few Node conditions. A
:class:`SideQueue` hands on what the controller puts into it, such as Events.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from konductor_like.controller import logs

T = TypeVar("T")

AFTER_BUG_SECONDS = 1.0
"""Seconds that a thread waits after a step that failed, so that a bug in every step costs no CPU."""


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


@dataclass(eq=False, kw_only=True)
class SideThread(ABC):
    """One or more threads that make steps until they are closed. A bug costs one step, and is logged."""

    name: str
    what: str
    """What the steps are about, in the plural, for the log."""
    close_seconds: float
    """Seconds for which the end waits for the step under way."""
    threads: int = 1

    def __post_init__(self) -> None:
        self.closing = threading.Event()
        """Set when the threads shall end."""
        names = [self.name] if self.threads == 1 else [f"{self.name}-{n}" for n in range(self.threads)]
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]

    @abstractmethod
    def step(self) -> object:
        """Make one step. It waits until there is one to make, or until the end."""

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Tell the threads to end. It does not wait for them."""
        self.closing.set()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended, at most so long."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _over(self) -> bool:
        return self.closing.is_set()

    def _run(self) -> None:
        while not self._over():
            try:
                self.step()
            except Exception:  # noqa: BLE001  # the thread must go on with the next step; logged in full
                logs.LOGGER.exception("Work on %s failed. Please report this.", self.what)
                self.closing.wait(AFTER_BUG_SECONDS)


@dataclass(eq=False, kw_only=True)
class SideQueue(SideThread, Generic[T]):
    """A bounded queue, and one or more threads that hand its items on, the urgent ones first.

    At the end the items that wait are handed on without regard to the rate, for ``close_seconds`` at most.
    """

    handle: Callable[[T], object]
    """Hands one item on."""
    most: int
    """Items that may wait. When there are more, the oldest is dropped, one that is not urgent first."""
    patience_seconds: float = math.inf
    """Seconds after which an item that waits is forgotten."""
    rate: Rate | None = None
    lost: Callable[[int], object] = lambda _: None
    """Called with the number of items that were dropped: too many waited, or the process ends."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        super().__post_init__()
        self._changed = threading.Condition()
        self._urgent: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._others: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._paused_until = -math.inf
        self._dropped = 0
        """Items dropped since the last one was taken."""

    def __len__(self) -> int:
        """Return the number of items that wait."""
        return len(self._urgent) + len(self._others)

    def put(self, item: T, *, key: Hashable = None, urgent: bool = False) -> None:
        """Add an item and return at once. An item whose ``key`` waits already is not added."""
        with self._changed:
            if self.clock() < self._paused_until:
                return
            waiting = self._urgent if urgent else self._others
            waiting.setdefault(object() if key is None else key, (self.clock(), item))
            if len(self) > self.most:
                (self._others or self._urgent).popitem(last=False)
                self._dropped += 1
                self.lost(1)
            self._changed.notify()

    def rest(self) -> list[T]:
        """Take all items that wait, for a ``handle`` that hands on several at once."""
        with self._changed:
            items = [item for waiting in (self._urgent, self._others) for _, item in waiting.values()]
            self._urgent.clear()
            self._others.clear()
            return items

    def pause(self, seconds: float) -> None:
        """Forget what waits, and take nothing for so long: a right is missing, for example."""
        with self._changed:
            self._paused_until = self.clock() + seconds
            self.rest()

    def close(self) -> None:
        """Tell the threads to end after the items that wait. It does not wait for them."""
        super().close()
        with self._changed:
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended, at most so long; then drop what still waits."""
        super().join(seconds)
        if left := len(self.rest()):
            self.lost(left)
            logs.warning(f"The controller stops before all {self.what} were handled: {left:,} waited.")

    def step(self) -> None:
        """Wait until an item may be handed on, and hand it on."""
        with self._changed:
            while not (waiting := self._due()):
                if self._over():
                    return
                self._changed.wait(self.rate.wait_seconds() if self.rate and len(self) else None)
            if self.rate:
                self.rate.use()
            _, (_, item) = waiting.popitem(last=False)
            dropped, self._dropped = self._dropped, 0
        if dropped:
            logs.warning(f"{dropped:,} {self.what} were dropped: too many waited.", dropped=dropped)
        self.handle(item)

    def _over(self) -> bool:
        return self.closing.is_set() and not len(self)

    def _due(self) -> OrderedDict[Hashable, tuple[float, T]] | None:
        """Forget what waited too long. Return the part of the queue whose first item may be handed on."""
        oldest = self.clock() - self.patience_seconds
        for waiting in (self._urgent, self._others):
            while waiting and next(iter(waiting.values()))[0] < oldest:
                waiting.popitem(last=False)
        may = not self.rate or self.closing.is_set() or self.rate.left()
        return (self._urgent or self._others) if may else None


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
