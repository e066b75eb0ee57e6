"""The reader as a process, fed by a pipe in packet mode: as with /dev/kmsg, each read gives one record."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import konductor_like.kmsg

FILE = konductor_like.kmsg.__file__
AS_A_FILE = (sys.executable, "-I", FILE)
AS_A_MODULE = (sys.executable, "-m", "konductor_like.kmsg")
PATIENCE_SECONDS = 30.0
_PIPE_BYTES = 1 << 20


class ReaderProcess:
    """A reader process: ``feed`` gives it records, ``end`` closes its log, ``output`` has its lines."""

    def __init__(self, process: subprocess.Popen[bytes], log: int, output: Path) -> None:
        self.process = process
        self.output = output
        self._log = log

    def feed(self, records: Iterable[bytes]) -> None:
        """Give it records as fast as it reads them."""
        for record in records:
            os.write(self._log, record)

    def end(self) -> None:
        """End the log."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def printed(self) -> list[str]:
        """Return all complete lines of the output."""
        return self.output.read_text(encoding="ascii").splitlines()

    def until(self, text: str) -> None:
        """Wait until the end of the output contains ``text``."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self._tail():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}"
            assert time.monotonic() < deadline, f"never printed: {text}"
            time.sleep(0.01)

    def _tail(self) -> str:
        with self.output.open("rb") as file:
            file.seek(max(0, self.output.stat().st_size - 4096))
            return file.read().decode("ascii")

    def ended(self) -> tuple[int, str]:
        """Wait for its end, and return the exit code and its standard error."""
        _, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, errors.decode()

    def peak_bytes(self) -> int:
        """Return the peak of its memory use in bytes (VmHWM)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmHWM:\s*(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


@contextmanager
def reader_process(
    folder: Path, command: tuple[str, ...] = AS_A_FILE, stdout: int | IO[bytes] | None = None
) -> Iterator[ReaderProcess]:
    """Start the reader; it prints into a file in ``folder``, or into ``stdout``."""
    theirs, ours = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    output = folder / "printed"
    with output.open("wb") as file:
        process = subprocess.Popen(
            (*command, "--device", f"/dev/fd/{theirs}"),
            stdout=stdout or file,
            stderr=subprocess.PIPE,
            pass_fds=(theirs,),
        )
    os.close(theirs)
    running = ReaderProcess(process, ours, output)
    try:
        yield running
    finally:
        running.end()
        process.kill()
        process.communicate()
