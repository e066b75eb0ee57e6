r"""The kernel-log reader of the dmesg DaemonSet: each record of /dev/kmsg becomes a line on standard output.

The file needs only Python (3.9 or newer), so any Python image can run it. It prints these lines:

    kmsg/1 boot=UUID seq=N facility=N priority=N [SECONDS.MICROS] TEXT
    kmsg/1 gap boot=UUID from=N to=N lost=N
    kmsg/1 heartbeat boot=UUID seq=N uptime=SECONDS.MICROS wall=RFC3339
    kmsg/1 unreadable boot=UUID RECORD

``seq`` and the stamp come from the kernel and identify a line that is read twice. A facility other than 0
(kern) was written from user space, for example by ``echo … > /dev/kmsg``; the kernel never allows 0 there.
TEXT stays escaped as the kernel wrote it: ``\x0a`` is a newline, ``\x5c`` a backslash. A gap names the
records that the kernel overwrote before the reader read them. A gap from 0 comes first if the ring buffer no
longer has the beginning of the boot; an earlier reader may have printed those records. A heartbeat, each
minute, confirms that all records up to ``seq`` were printed or named. The format of /dev/kmsg is in
Documentation/ABI/testing/dev-kmsg of the Linux sources.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable

DEVICE = "/dev/kmsg"
STDOUT = 1
BOOT_ID = "/proc/sys/kernel/random/boot_id"
HEARTBEAT_NS = 60_000_000_000
RECORD_BYTES = 8192
"""Buffer size of one read. A smaller buffer than a record (CONSOLE_EXT_LOG_MAX, newer kernels 2048) fails."""
JOINED_BYTES = 8192
"""Maximum length of a line joined from fragments, well below the 16 KiB at which runtimes split lines."""
FRAGMENT_SECONDS = 0.02
"""Seconds for which the last record waits for a further fragment of its line."""
WRITE_BYTES = 65536
"""Lines are written in batches of about this size while records are waiting, and at once when none is."""
WAKE_SECONDS = 1.0
"""Maximum seconds until a stop is noticed."""

_RECORD = re.compile(rb"(\d{1,5}),(\d{1,20}),(\d{1,20}),([^,;\n]*)((?:,[^;\n]*)?);([^\n]*)")
_NOISE = re.compile(rb"[^ -~]")


class EndOfLogError(Exception):
    """The kernel log came to an end, which it never does while the machine runs."""


class Records:
    """Turns records into lines, in order. ``lines`` are ready to print, ``printed`` is their last sequence.

    The last record waits until the next one shows that it is complete: a kernel that could not join a line
    prints it in fragments, with the flag ``c`` (``+`` in kernels before 4.10). The `` KEY=value`` lines after
    the text name the device and are left out.
    """

    def __init__(self, boot: str) -> None:
        self.lines: list[bytes] = []
        self.printed: int | None = None
        self._boot = boot.encode("ascii")
        self._next = 0
        self._held = b""
        self._writer = (0, b"")

    def feed(self, record: bytes) -> None:
        """Take one record, as one ``read`` of /dev/kmsg gives it."""
        match = _RECORD.match(record)
        if match is None:
            self.flush()
            self.lines.append(b"kmsg/1 unreadable boot=%b %b\n" % (self._boot, _escaped(record)))
            return
        text = match[6]
        if _NOISE.search(text):
            text = _escaped(text)
        priority, sequence = int(match[1]), int(match[2])
        writer = (priority >> 3, match[5])
        if match[4] in (b"c", b"+") and self._continues(sequence, writer, text):
            self._held += text
            self._next = sequence + 1
            return
        self.flush()
        if sequence > self._next:
            gap = (self._boot, self._next, sequence - 1, sequence - self._next)
            self.lines.append(b"kmsg/1 gap boot=%b from=%d to=%d lost=%d\n" % gap)
        seconds, micros = divmod(int(match[3]), 1_000_000)
        self._held = b"kmsg/1 boot=%b seq=%d facility=%d priority=%d [%5d.%06d] %b" % (
            (self._boot, sequence, priority >> 3, priority & 7, seconds, micros, text)
        )
        self._next = sequence + 1
        self._writer = writer

    def _continues(self, sequence: int, writer: tuple[int, bytes], text: bytes) -> bool:
        """Whether a fragment belongs to the line held back: the next record, by the same writer."""
        fits = len(self._held) + len(text) <= JOINED_BYTES
        return bool(self._held) and sequence == self._next and writer == self._writer and fits

    def flush(self) -> None:
        """Finish the line that is held back: no further fragment belongs to it."""
        if self._held:
            self.lines.append(self._held + b"\n")
            self.printed = self._next - 1
            self._held = b""

    @property
    def holding(self) -> bool:
        """Whether a line is held back."""
        return bool(self._held)

    def heartbeat(self, uptime_us: int, wall_ns: int) -> None:
        """Add a heartbeat: all records up to here were printed. Add nothing before the first record."""
        if self.printed is None:
            return
        wall_ms = wall_ns // 1_000_000
        wall = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall_ms // 1000)).encode("ascii")
        uptime = divmod(uptime_us, 1_000_000)
        said = (self._boot, self.printed, *uptime, wall, wall_ms % 1000)
        self.lines.append(b"kmsg/1 heartbeat boot=%b seq=%d uptime=%d.%06d wall=%b.%03dZ\n" % said)


class Reader:
    """Follows one open, non-blocking kernel log.

    ``read`` gives the next record and raises BlockingIOError when there is none yet. ``wait`` sleeps up to
    that many seconds and returns whether there may be one. ``write`` takes finished lines, ``monotonic_ns``
    and ``wall_ns`` are clocks. The clock of the records stops during suspend, and so does the first clock.
    """

    def __init__(
        self,
        records: Records,
        *,
        read: Callable[[], bytes],
        wait: Callable[[float], bool],
        write: Callable[[bytes], None],
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._records = records
        self._read = read
        self._wait = wait
        self._write = write
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self._heartbeat_ns = monotonic_ns() + HEARTBEAT_NS
        self._caught_up = False
        self._stopping = False

    def stop(self) -> None:
        """End ``run`` soon; callable from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Print until stopped. Raises EndOfLogError, or the OSError of a failed read or write."""
        size = 0
        while not self._stopping:
            try:
                record = self._read()
            except BlockingIOError:
                self._idle()
                continue
            except BrokenPipeError:
                continue  # the kernel overwrote it; the next record's sequence shows how much
            except OSError:
                self._finish()
                raise
            if not record:
                self._finish()
                raise EndOfLogError("the kernel log ended")
            self._records.feed(record)
            size += len(record)
            if size >= WRITE_BYTES:
                self._beat()
                self._print()
                size = 0
        self._finish()

    def _idle(self) -> None:
        """No record is waiting: print what there is, then sleep until there is more to do."""
        self._print()
        quiet = not (self._records.holding and self._wait(FRAGMENT_SECONDS))
        if quiet:
            self._records.flush()
        if not self._caught_up and self._records.printed is not None:
            self._caught_up = True  # the backlog is read, so heartbeats may begin
            self._heartbeat_ns = self._monotonic_ns()
        self._beat()  # also when records come so fast that it is never quiet
        self._print()
        if quiet:
            until_ns = self._heartbeat_ns - self._monotonic_ns()
            self._wait(min(max(until_ns / 1e9, 0.0), WAKE_SECONDS))

    def _beat(self) -> None:
        now_ns = self._monotonic_ns()
        if now_ns >= self._heartbeat_ns:
            self._records.heartbeat(now_ns // 1000, self._wall_ns())
            self._heartbeat_ns = now_ns + HEARTBEAT_NS

    def _finish(self) -> None:
        self._records.flush()
        self._print()

    def _print(self) -> None:
        if self._records.lines:
            self._write(b"".join(self._records.lines))
            self._records.lines.clear()


def _escaped(text: bytes) -> bytes:
    """Bytes that are not printable, as the kernel escapes them."""
    return _NOISE.sub(lambda match: b"\\x%02x" % ord(match[0]), text)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, however little the descriptor takes at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def reader_of(descriptor: int, output: int, boot: str) -> Reader:
    """A reader from one file descriptor, whose every read is one record, to another."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return Reader(
        Records(boot),
        read=lambda: os.read(descriptor, RECORD_BYTES),
        wait=lambda seconds: bool(poll.poll(seconds * 1000)),
        write=lambda data: write_all(output, data),
    )


def main(arguments: list[str] | None = None) -> int:
    """Follow the kernel log until SIGTERM or SIGINT (exit 0) or until it ends (exit 1)."""
    parser = argparse.ArgumentParser(prog="kmsg", description="Prints every record of the kernel log.")
    parser.add_argument("--device", default=DEVICE, help="the kernel log (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        with open(BOOT_ID, encoding="ascii") as file:  # noqa: PTH123  pathlib costs a megabyte of memory
            boot = file.read().strip()
        descriptor = os.open(options.device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return _failed(f"cannot open: {error}; in a container this needs `privileged: true`")
    reader = reader_of(descriptor, STDOUT, boot)
    # The first process of a container ignores SIGTERM unless it has a handler.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: reader.stop())
    try:
        os.set_blocking(STDOUT, True)  # the parent may have changed it
        reader.run()
    except (EndOfLogError, OSError) as error:
        return _failed(str(error))
    finally:
        os.close(descriptor)
    return 0


def _failed(why: str) -> int:
    sys.stderr.write(f"kmsg: {why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
