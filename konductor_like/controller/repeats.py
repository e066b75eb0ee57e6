"""Saying the same thing often: the first time at once, then how often it came again, now and then."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Repeats(Generic[K]):
    """Counts by key, and says when a count is due. A key that stayed away for the span is new again."""

    def __init__(self, span: timedelta) -> None:
        self._span = span
        self._said: dict[K, datetime] = {}
        self._counts: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._said.keys() | self._counts.keys())

    def __contains__(self, key: K) -> bool:
        return key in self._said or key in self._counts

    def add(self, key: K, count: int) -> None:
        """It came so many times more."""
        self._counts[key] = self._counts.get(key, 0) + count

    def due(self, now: datetime) -> Mapping[K, int]:
        """What to say now, with how often it came since it was last said."""
        self._said = {key: at for key, at in self._said.items() if now - at < self._span}
        due = {key: count for key, count in self._counts.items() if key not in self._said}
        for key in due:
            del self._counts[key]
            self._said[key] = now
        return due
