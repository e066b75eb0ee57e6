"""What a controller process asks of whatever it runs in: the chaos tests' world, or a scenario's site."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol

from konductor_like.model import Checkpoint
from konductor_like.settings import Settings
from tests.chaos.clock import Clock
from tests.chaos.wire import Exchange

if TYPE_CHECKING:
    from tests.chaos.process import Process


class Circumstances(Protocol):
    """How things are there from the start."""

    @property
    def slow_writes(self) -> bool:
        """Whether the API server is slow with some writes."""


class Roads(Protocol):
    """Where its requests go."""

    def exchange_of(self, process: Process, /) -> Exchange:
        """What carries them."""

    def pause_here(self, process: Process, /) -> None:
        """A point where it may be killed or stopped."""


class Tail(Protocol):
    """What nudges it."""

    def take_nudge(self) -> int | None:
        """The oldest kernel line since the last time, if it is told of one."""


class Book(Protocol):
    """Who keeps count of what it does."""

    def takes_office(self, process: Process, checkpoint: Checkpoint | None, /) -> None:
        """It begins a term."""

    def break_(self, sentence: str, /) -> None:
        """It did what it must not."""


class Surroundings(Protocol):
    """All of it."""

    @property
    def settings(self) -> Settings:
        """The controller's."""

    @property
    def clock(self) -> Clock:
        """The time there."""

    @property
    def rng(self) -> random.Random:
        """What happens by chance."""

    @property
    def setup(self) -> Circumstances: ...

    @property
    def settling(self) -> bool:
        """Whether nothing goes wrong any more."""

    @property
    def taken(self) -> int:
        """How many steps were taken."""

    @property
    def traffic(self) -> Roads: ...

    @property
    def lines(self) -> Tail: ...

    @property
    def ledger(self) -> Book: ...

    def date(self) -> str:
        """What the servers' Date header says."""

    def advance(self, span_seconds: float, /) -> None:
        """Time passes."""
