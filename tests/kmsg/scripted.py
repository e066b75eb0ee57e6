"""A kernel log that follows a script, with a clock that moves only while the reader sleeps or reads."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from konductor_like.kmsg import EndOfLogError, Reader, Records
from tests.kmsg.ring import BOOT

WALL_NS = 1_772_532_000_000_000_000


@dataclass(slots=True)
class Pause:
    """So many seconds without a record."""

    seconds: float


Step = bytes | Pause | OSError


@dataclass(slots=True)
class Script:
    """``output`` and ``at_seconds`` are what was written and when; at its end the log ends.

    ``read_seconds`` is how long each read takes.
    """

    steps: deque[Step]
    read_seconds: float = 0.0
    output: list[bytes] = field(default_factory=list)
    at_seconds: list[float] = field(default_factory=list)
    reads: int = 0
    _now_ns: int = 5_000_000_000

    def read(self) -> bytes:
        """One record of the script."""
        self.reads += 1
        self._sleep(self.read_seconds)
        step = self.steps[0] if self.steps else b""
        if isinstance(step, Pause):
            raise BlockingIOError(errno.EAGAIN, "none yet")
        if self.steps:
            self.steps.popleft()
        if isinstance(step, OSError):
            raise step
        assert isinstance(step, bytes)
        return step

    def wait(self, seconds: float) -> bool:
        """Sleep through the script's next pause, or through a part of it."""
        assert seconds >= 0
        step = self.steps[0] if self.steps else None
        if not isinstance(step, Pause):
            return True
        if step.seconds > seconds + 1e-9:
            step.seconds -= seconds
            self._sleep(seconds)
            return False
        self._sleep(step.seconds)
        self.steps.popleft()
        return True

    def write(self, data: bytes) -> None:
        """Remember what was printed, and when."""
        self.output.append(data)
        self.at_seconds.append(self._now_ns / 1e9)

    def monotonic_ns(self) -> int:
        """The machine's clock, which starts at five seconds."""
        return self._now_ns

    def wall_ns(self) -> int:
        """The wall clock."""
        return WALL_NS + self._now_ns

    def _sleep(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)

    @property
    def lines(self) -> list[str]:
        """What was printed, line by line, without what all of them begin with."""
        text = b"".join(self.output).decode("ascii")
        return [line.removeprefix("kmsg/1 ").replace(f"boot={BOOT} ", "") for line in text.splitlines()]

    @property
    def heartbeats(self) -> list[tuple[int, float]]:
        """The sequence and the uptime in seconds of each heartbeat."""
        beats = [line.split() for line in self.lines if line.startswith("heartbeat ")]
        return [(int(beat[1].partition("=")[2]), float(beat[2].partition("=")[2])) for beat in beats]

    @property
    def texts(self) -> list[str]:
        """Only the texts of records."""
        return [line.partition("] ")[2] for line in self.lines if line.startswith("seq=")]


def script(*steps: Step, read_seconds: float = 0.0) -> Script:
    """A script of these steps."""
    return Script(deque(steps), read_seconds)


def reader_of(log: Script) -> Reader:
    """A reader that follows the script."""
    return Reader(
        Records(BOOT),
        read=log.read,
        wait=log.wait,
        write=log.write,
        monotonic_ns=log.monotonic_ns,
        wall_ns=log.wall_ns,
    )


def play(*steps: Step, read_seconds: float = 0.0) -> Script:
    """Run a reader over these steps, to the end of the log."""
    log = script(*steps, read_seconds=read_seconds)
    with pytest.raises(EndOfLogError):
        reader_of(log).run()
    return log


def record(sequence: int, text: str, flag: str = "-") -> bytes:
    """One kernel record."""
    return f"6,{sequence},0,{flag};{text}\n".encode()


def records(sequences: Sequence[int]) -> list[bytes]:
    """Kernel records whose texts are their sequences."""
    return [record(sequence, str(sequence)) for sequence in sequences]
