"""A printk ring buffer as /dev/kmsg shows it to one reader: one record a read, EPIPE after a loss.

Sources: Documentation/ABI/testing/dev-kmsg, and devkmsg_read and msg_add_ext_text in kernel/printk/printk.c.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

BOOT = "0b6f3c1e-7d52-4a8e-9a53-1f2e3d4c5b6a"
_ESCAPES = [bytes([byte]) if 32 <= byte < 127 and byte != 0x5C else b"\\x%02x" % byte for byte in range(256)]


@lru_cache(maxsize=4096)
def escape(text: bytes) -> bytes:
    """Return the text as the kernel shows it: backslashes and unprintable bytes as ``\\xNN``."""
    return b"".join([_ESCAPES[byte] for byte in text])


@dataclass(frozen=True, slots=True)
class Message:
    """A printed message. ``writer`` is the facility and, if the kernel names it, the caller (``T17``).

    ``broken`` replaces the whole record by bytes that no kernel writes.
    """

    text: bytes
    fragment: bool = False
    writer: tuple[int, str] = (0, "")
    priority: int = 6
    dictionary: Sequence[bytes] = ()
    broken: bytes = b""

    def record(self, sequence: int, stamp_us: int) -> bytes:
        """Return the record that a read of /dev/kmsg returns."""
        if self.broken:
            return self.broken
        facility, caller = self.writer
        fields = [
            b"%d" % (facility << 3 | self.priority),
            b"%d" % sequence,
            b"%d" % stamp_us,
            b"c" if self.fragment else b"-",
        ]
        if caller:
            fields.append(b"caller=" + caller.encode())
        lines = [b",".join(fields) + b";" + escape(self.text), *(b" " + escape(x) for x in self.dictionary)]
        return b"\n".join(lines) + b"\n"


@dataclass(slots=True)
class Ring:
    """Messages that wait to be read; beyond ``capacity`` the oldest are lost.

    ``delivered`` has the messages that the reader got, by sequence, and ``broken`` the broken records.
    """

    capacity: int
    first: int = 0
    delivered: dict[int, Message] = field(default_factory=dict)
    broken: list[bytes] = field(default_factory=list)
    _kept: deque[tuple[int, int, Message]] = field(default_factory=deque)
    _next: int = -1
    _reader: int = -1

    def __post_init__(self) -> None:
        """Start with sequence ``first``."""
        self._next = self._reader = self.first

    def printk(self, message: Message, stamp_us: int = 0) -> int:
        """Add a message, which replaces the oldest if the ring is full, and return its sequence."""
        self._kept.append((self._next, stamp_us, message))
        if len(self._kept) > self.capacity:
            self._kept.popleft()
        self._next += 1
        return self._next - 1

    def read(self) -> bytes:
        """Return the next record. Raises BlockingIOError if there is none, BrokenPipeError after a loss."""
        if self._reader == self._next:
            raise BlockingIOError(errno.EAGAIN, "no record yet")
        if self._reader < self._kept[0][0]:
            self._reader = self._kept[0][0]
            raise BrokenPipeError(errno.EPIPE, "overwritten")
        sequence, stamp_us, message = self._kept.popleft()
        self._reader = sequence + 1
        if message.broken:
            self.broken.append(message.broken)
        else:
            self.delivered[sequence] = message
        return message.record(sequence, stamp_us)
