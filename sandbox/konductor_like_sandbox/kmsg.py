"""A node's ``/dev/kmsg``, as programs write to it.

One write is one record. Since Linux 5.10 a record that does not end with a newline stays open, because it may
be continued, and nobody can read it before the next record comes (``vprintk_store`` in
``kernel/printk/printk.c``; seen on 6.18).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path


class Kmsg:
    """The records of one node that nobody can read yet."""

    def __init__(self) -> None:
        self._open: list[str] = []

    def write(self, text: str, as_record: Callable[[str], str]) -> list[str]:
        """Take one write, and return the records that can be read from now on.

        ``as_record`` makes the record of its text: the time of the write is that of the record.
        """
        readable, self._open = self._open, []
        (readable if text.endswith("\n") else self._open).append(as_record(text.removesuffix("\n")))
        return readable


def written_by(command: Sequence[str], device: str) -> str:
    """Run a Python command of a pod here, with a file in place of ``device``; return what it wrote there.

    The last word is what the command is to write. Raises CalledProcessError if the command fails.
    """
    with tempfile.TemporaryDirectory(prefix="konductor-like-") as folder:
        file = Path(folder, "device")
        file.touch()
        words = [word.replace(device, str(file)) for word in command[1:-1]]
        subprocess.run([sys.executable, *words, command[-1]], check=True)  # noqa: S603  # our own program
        return file.read_text("utf-8")
