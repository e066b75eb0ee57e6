"""A machine whose kernel prints while the reader reads, with a clock that is set back."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import pytest

from konductor_like.kmsg import EndOfLogError, Reader, Records
from tests.kmsg.account import Account, audit
from tests.kmsg.ring import BOOT, Message, Ring

NOT_RECORDS = (b"garbage", b"6,12", b"\xff\x00,1,2,-;text\n", b"6,1,2;no flags", b"-1,1,2,-;x\n", b";\n")
WRITERS = ((0, ""), (0, "T17"), (0, "C3"), (1, ""), (23, "T17"))


class Machine:
    """A kernel that prints while the reader reads: before each read or during each wait, one of ``bursts``.

    After the last of them the log ends. A burst takes 50 ms; after ten minutes the wall clock is set back.
    """

    def __init__(self, ring: Ring, bursts: Iterable[Sequence[Message]]) -> None:
        self.ring = ring
        self.now_ns = 0
        self.quiet_after: list[int] = []
        self._bursts = iter(bursts)
        self._more = True

    def _burst(self) -> int:
        burst = next(self._bursts, None)
        self._more = burst is not None
        self.now_ns += 50_000_000
        for message in burst or ():
            self.ring.printk(message, self.now_ns // 1000)
        return len(burst or ())

    def read(self) -> bytes:
        if self._more:
            self._burst()
        try:
            return self.ring.read()
        except BlockingIOError:
            if self._more:
                raise
            return b""

    def wait(self, seconds: float) -> bool:
        if self._more and self._burst():
            return True
        self.now_ns += int(seconds * 1e9)
        if self._more and self.ring.delivered:
            self.quiet_after.append(next(reversed(self.ring.delivered)))
        return not self._more

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        set_back_ns = 7_200_000_000_000 if self.now_ns > 600_000_000_000 else 0
        return 1_900_000_000_000_000_000 + self.now_ns - set_back_ns

    def run(self) -> Account:
        output: list[bytes] = []
        reader = Reader(
            Records(BOOT),
            read=self.read,
            wait=self.wait,
            write=output.append,
            monotonic_ns=self.monotonic_ns,
            wall_ns=self.wall_ns,
        )
        with pytest.raises(EndOfLogError):
            reader.run()
        return audit(b"".join(output), self.ring, self.quiet_after)


def flood(records: int, seed: int) -> Iterator[list[Message]]:
    """Yield bursts of ``records`` records in total: mostly a few, sometimes more than the ring's capacity."""
    randomly = random.Random(seed)
    texts = [randomly.randbytes(randomly.randrange(200)) for _ in range(300)]
    texts += [b"NVRM: Xid (PCI:0000:4e:00): 79, GPU %d has fallen off the bus." % i for i in range(300)]
    pool = [
        Message(
            text,
            randomly.random() < 0.1,
            WRITERS[randomly.randrange(len(WRITERS))],
            randomly.randrange(8),
            (b"SUBSYSTEM=pci", b"DEVICE=+pci:0000:4e:00.0")[: randomly.randrange(3)],
        )
        for text in texts
    ] + [Message(b"", broken=broken) for broken in NOT_RECORDS[:1]]
    yield [Message(b"start")]
    left = records - 2
    while left > 0:
        size = min(left, randomly.choices((0, 1, 3, 900), (60, 30, 6, 0.05))[0])
        left -= size
        yield randomly.choices(pool, k=size)
    yield [Message(b"end")]


def audited_flood(records: int, seed: int) -> Account:
    """Run a flood and check that each record is printed or named in a gap. Raises AssertionError."""
    machine = Machine(Ring(capacity=500), flood(records, seed))
    account = machine.run()
    assert account.lines + account.joined + account.lost == records
    assert min(account.lines, account.joined, account.gaps, account.unreadable) > records // 10_000
    assert len(machine.quiet_after) > records // 100
    minutes = machine.now_ns / 60e9
    assert minutes > 12, "the wall clock was set back on the way"
    assert 0.8 * minutes < account.beats <= minutes + 1
    return account
