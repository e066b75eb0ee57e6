"""Standard output is for data, standard error for everything else; both survive whatever a log line holds."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from typing import TextIO

from konductor_like.cli.columns import printable


def is_terminal(stream: TextIO) -> bool:
    """Whether colours and a width make sense on this stream."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def colourful(stream: TextIO) -> bool:
    """Whether this stream wants colours (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def say(lines: Iterable[str]) -> None:
    """Print data."""
    for line in lines:
        sys.stdout.write(f"{line}\n")


def tell(message: str) -> None:
    """Tell the person something that is not data."""
    sys.stdout.flush()  # so that both read in order where they share a terminal
    sys.stderr.write(f"{printable(message)}\n")


def warn(message: str) -> None:
    """Tell the person what to look at."""
    tell(f"warning: {message}")


def can_answer() -> bool:
    """Whether a person at a terminal can answer a question; a pipe's "y" is nobody's yes."""
    return sys.stdin is not None and sys.stdin.isatty()  # it is None where it was closed


def ask(question: str) -> bool:
    """Ask on standard error (standard output is for data); anything but a yes is a no."""
    sys.stdout.flush()
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def harden() -> None:
    """Characters that the locale cannot write are spelt out; printing never fails for them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def close_quietly() -> None:
    """Flush what is left; a reader that went away (``| head``) is no news."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # What is still buffered would fail once more when the interpreter exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
