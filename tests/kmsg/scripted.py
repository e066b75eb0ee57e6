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
    """Seconds without a record."""

    seconds: float


Step = bytes | Pause | OSError


@dataclass(slots=True)
class Script:
    """A scripted log. ``output`` has what was written and ``at_seconds`` when.

    Each read takes ``read_seconds``.
    """

    steps: deque[Step]
    read_seconds: float = 0.0
    output: list[bytes] = field(default_factory=list)
    at_seconds: list[float] = field(default_factory=list)
    reads: int = 0
    _now_ns: int = 5_000_000_000

    def read(self) -> bytes:
        """Return the next record of the script."""
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
        """Sleep for the script's next pause, or a part of it."""
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
        """Keep the output and its time."""
        self.output.append(data)
        self.at_seconds.append(self._now_ns / 1e9)

    def monotonic_ns(self) -> int:
        """Return the machine's clock, which starts at 5 s."""
        return self._now_ns

    def wall_ns(self) -> int:
        """Return the wall clock."""
        return WALL_NS + self._now_ns

    def _sleep(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)

    @property
    def lines(self) -> list[str]:
        """Return the printed lines without their common beginning."""
        text = b"".join(self.output).decode("ascii")
        return [line.removeprefix("kmsg/1 ").replace(f"boot={BOOT} ", "") for line in text.splitlines()]

    @property
    def heartbeats(self) -> list[tuple[int, float]]:
        """Return the sequence and the uptime in seconds of each heartbeat."""
        beats = [line.split() for line in self.lines if line.startswith("heartbeat ")]
        return [(int(beat[1].partition("=")[2]), float(beat[2].partition("=")[2])) for beat in beats]

    @property
    def texts(self) -> list[str]:
        """Return the texts of the records only."""
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
