"""A progress bar on standard error, only where a person is watching."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from konductor_like.cli.output import is_terminal, tell
from konductor_like.model.time import moment_of

WORTH_A_BAR_BYTES = 16 * 2**20
"""Less is read before anybody could read the bar."""
TELL_SECONDS = 10.0
"""Time between two lines where there is no bar."""


@contextmanager
def reading(total_bytes: int | None) -> Iterator[Callable[[int], object]]:
    """Gives a function that is told how far one has read; None for a total that nobody knows."""
    small = total_bytes is not None and total_bytes < WORTH_A_BAR_BYTES
    if small or not is_terminal(sys.stderr):
        yield lambda _position: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    with Progress(
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # findings appear above the bar; a file must not lose them to it
    ) as progress:
        task = progress.add_task("", total=total_bytes)
        yield lambda position: progress.update(task, completed=position)


@contextmanager
def through_time(start_ns: int, end_ns: int) -> Iterator[Callable[[int], object]]:
    """Gives a function that is told up to which time one has come; without a terminal a line now and then."""
    if not is_terminal(sys.stderr):
        yield _telling(start_ns, end_ns)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=end_ns - start_ns)

        def show(at_ns: int) -> None:
            reached = f"{moment_of(at_ns):%Y-%m-%d %H:%M}"
            progress.update(task, completed=at_ns - start_ns, description=reached)

        yield show


def _telling(start_ns: int, end_ns: int) -> Callable[[int], None]:
    due = time.monotonic() + TELL_SECONDS

    def show(at_ns: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + TELL_SECONDS
            done = 100 * (at_ns - start_ns) // (end_ns - start_ns)
            tell(f"read up to {moment_of(at_ns):%Y-%m-%dT%H:%MZ}, {done} %")

    return show
