"""Failures to inject into a stand-in, for tests of its clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from konductor_like_sandbox.http import TEXT, Reply, Request


class Drop(Enum):
    """How a connection is lost."""

    SILENTLY = "closed with no answer"
    RESET = "reset with no answer"
    MIDWAY = "closed after half of the answer"


def any_request(_request: Request) -> bool:
    """Match every request."""
    return True


@dataclass(frozen=True, slots=True)
class Mishap:
    """One failure. Effects may be combined; a delay comes first."""

    status: int | None = None
    """The status to answer in place of the real answer, with ``body``, ``content_type`` and ``headers``."""
    body: str = ""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    drop: Drop | None = None
    """MIDWAY cuts the real answer halfway; the others replace it."""
    cut_body_to: int | None = None
    """Bytes to which the real answer's body is cut, in otherwise valid HTTP."""
    after: bool = False
    """Whether the server acts first and only its answer is lost, like a write whose success stays unknown."""

    @property
    def replaces(self) -> bool:
        """Whether the request never reaches the server."""
        return not self.after and (self.status is not None or self.drop in (Drop.SILENTLY, Drop.RESET))

    def spoil(self, reply: Reply) -> Reply:
        """Return the reply to send in place of ``reply``."""
        if self.status is not None:
            return Reply(self.status, self.body.encode(), self.content_type, self.headers)
        if self.cut_body_to is not None:
            return Reply(reply.status, reply.body[: self.cut_body_to], reply.content_type, reply.headers)
        return reply


@dataclass(slots=True)
class _Planned:
    mishap: Mishap
    times: int | None
    when: Callable[[Request], bool]


class Mishaps:
    """The mishaps that have not happened yet, in the order of their addition. Thread-safe."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []
        self._lock = threading.Lock()

    def add(
        self, mishap: Mishap, times: int | None = 1, when: Callable[[Request], bool] = any_request
    ) -> None:
        """Add a mishap for the next ``times`` requests that match ``when``; ``None``: until ``clear``."""
        with self._lock:
            self._planned.append(_Planned(mishap, times, when))

    def clear(self) -> None:
        """Remove all mishaps."""
        with self._lock:
            self._planned.clear()

    @property
    def pending(self) -> int:
        """The number of mishaps that have not happened as often as planned."""
        with self._lock:
            return len(self._planned)

    def take(self, request: Request) -> Mishap | None:
        """Return the mishap for this request, if any, and count it as happened."""
        with self._lock:
            planned = next((planned for planned in self._planned if planned.when(request)), None)
            if planned is None:
                return None
            if planned.times is not None:
                planned.times -= 1
                if planned.times <= 0:
                    self._planned.remove(planned)
            return planned.mishap
