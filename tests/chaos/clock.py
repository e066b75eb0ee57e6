"""Simulated time: nothing in a schedule reads the real clock, and nothing sleeps.

The code under test reads time through the modules ``time`` and ``datetime``. While a clock is installed, the
names under which our modules know the two lead here, so that code written later is covered as well.
"""

from __future__ import annotations

import sys
import time as real_time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from types import ModuleType
from typing import Any

START_NS = 1_795_240_000_000_000_000
SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REAL = ("konductor_like_sandbox", "konductor_like.kmsg", "konductor_like_sandbox.demo")
"""Packages that keep the real clock: stand-ins, which get the time as an argument, and other programs."""


class Clock:
    """True time, and the wall clock of the process that is running now."""

    def __init__(self) -> None:
        self.true_ns = START_NS
        self.offset_ns = 0
        """Nanoseconds by which the wall clock of the running process is ahead of true time."""

    def moment(self) -> datetime:
        """Return true time as an aware datetime; the servers use it."""
        return moment_of(self.true_ns)

    def wall_ns(self) -> int:
        """Return the time by the wall clock of the running process."""
        return self.true_ns + self.offset_ns

    def wall(self) -> datetime:
        return moment_of(self.wall_ns())

    def seconds(self) -> float:
        """Return a monotonic time in seconds, which no set clock and no stopped process changes."""
        return (self.true_ns - START_NS) / SECOND_NS + 1000.0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Make our modules read this clock within the context."""
        fake_time: Any = _Time(self)
        fake_datetime = type("SimulatedDatetime", (_Datetime,), {"clock": self})
        places = _places()
        for module, name, is_datetime in places:
            setattr(module, name, fake_datetime if is_datetime else fake_time)
        try:
            yield
        finally:
            for module, name, is_datetime in places:
                setattr(module, name, datetime if is_datetime else real_time)


def moment_of(ns: int) -> datetime:
    """Convert nanoseconds since the epoch to an aware datetime."""
    return _EPOCH + timedelta(microseconds=ns // 1000)


class _Time:
    """Stands in for the module ``time``."""

    CLOCK_BOOTTIME = CLOCK_MONOTONIC = 0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(real_time, name)

    def time_ns(self) -> int:
        return self._clock.wall_ns()

    def time(self) -> float:
        return self._clock.wall_ns() / SECOND_NS

    def monotonic(self) -> float:
        return self._clock.seconds()

    def monotonic_ns(self) -> int:
        return round(self._clock.seconds() * SECOND_NS)

    def clock_gettime(self, _which: int) -> float:
        return self._clock.seconds()

    def sleep(self, _seconds: float) -> None:
        raise AssertionError("nothing sleeps in simulated time: give the code the schedule's sleep")


class _AnyDatetime(type(datetime)):  # type: ignore[misc]  # the metaclass is `type`, which mypy cannot see here
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)

    def __eq__(cls, other: object) -> bool:  # a key of the program's tables of kinds
        return other is datetime or other is cls

    def __hash__(cls) -> int:
        return hash(datetime)


class _Datetime(datetime, metaclass=_AnyDatetime):
    """Stands in for the class ``datetime``; it makes plain datetimes."""

    clock: Clock

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # plain datetimes, see above
        return cls.clock.wall().astimezone(tz)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return datetime(*args, **kwargs)  # noqa: DTZ001  # the caller chooses the time zone


@cache
def _places() -> list[tuple[ModuleType, str, bool]]:
    """Return the attributes of our modules that are ``time`` or ``datetime``; call it after all imports."""
    found = []
    for name, module in list(sys.modules.items()):
        if name.startswith("konductor_like.") and not name.startswith(_REAL):
            found += [
                (module, attribute, value is datetime)
                for attribute, value in list(vars(module).items())
                if value is real_time or value is datetime
            ]
    return found
