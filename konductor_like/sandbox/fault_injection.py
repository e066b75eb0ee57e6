"""Things that go wrong on the way: injected into a stand-in to see how its clients bear them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from konductor_like.sandbox.http import TEXT, Reply, Request


class Drop(Enum):
    """How a connection is lost."""

    SILENTLY = "closed with no answer"
    RESET = "reset with no answer"
    MIDWAY = "closed after half of the answer"


def any_request(_request: Request) -> bool:
    """Meets every request."""
    return True


@dataclass(frozen=True, slots=True)
class Mishap:
    """One thing that goes wrong. Several effects may be combined; a delay comes first."""

    status: int | None = None
    """Answered in place of the real answer, with ``body``, ``content_type`` and ``headers``."""
    body: str = ""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    drop: Drop | None = None
    """MIDWAY loses the real answer halfway, the others come in place of it."""
    cut_body_to: int | None = None
    """The real answer's body is cut to so many bytes, in otherwise valid HTTP."""
    after: bool = False
    """The real server acts first, only its answer is spoiled: a write that succeeded, and nobody was told."""

    @property
    def replaces(self) -> bool:
        """Whether the real server is never asked."""
        return not self.after and (self.status is not None or self.drop in (Drop.SILENTLY, Drop.RESET))

    def spoil(self, reply: Reply) -> Reply:
        """What is sent in place of ``reply``."""
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
    """The mishaps still to come, in the order they were added. Thread-safe."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []
        self._lock = threading.Lock()

    def add(
        self, mishap: Mishap, times: int | None = 1, when: Callable[[Request], bool] = any_request
    ) -> None:
        """Let it befall the next ``times`` requests that ``when`` picks; ``None`` means until ``clear``."""
        with self._lock:
            self._planned.append(_Planned(mishap, times, when))

    def clear(self) -> None:
        """From now on all goes well."""
        with self._lock:
            self._planned.clear()

    @property
    def pending(self) -> int:
        """How many planned mishaps have not all happened yet."""
        with self._lock:
            return len(self._planned)

    def take(self, request: Request) -> Mishap | None:
        """The mishap that befalls this request, if any; it counts as happened."""
        with self._lock:
            planned = next((planned for planned in self._planned if planned.when(request)), None)
            if planned is None:
                return None
            if planned.times is not None:
                planned.times -= 1
                if planned.times <= 0:
                    self._planned.remove(planned)
            return planned.mishap
