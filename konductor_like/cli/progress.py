"""A progress bar on standard error, only where a person is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from konductor_like.cli.streams import is_terminal

WORTH_A_BAR_BYTES = 16 * 2**20
"""Less is read before anybody could read the bar."""


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
