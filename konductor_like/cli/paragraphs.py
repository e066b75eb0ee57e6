"""Labelled paragraphs: a label, and the lines beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from konductor_like.cli.columns import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

Row = tuple[str, list[str]]
"""A label and the lines beside it; an empty label goes on with the paragraph before."""
LABEL_CHARS = 14


def plain(rows: Iterable[Row]) -> list[str]:
    """The rows as plain text of full width."""
    return [
        f"{label + ':' if label and not number else '':<{LABEL_CHARS}}{printable(line)}".rstrip()
        for label, lines in rows
        for number, line in enumerate(lines)
    ]


def view(rows: Iterable[Row]) -> RenderableType:
    """The same on a terminal: labels in bold, lines folded to its width."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, lines in rows:
        grid.add_row(Text(label and f"{label}:", "bold"), Text("\n".join(map(printable, lines))))
    return grid
