"""A backtest's report on a terminal: coloured, one row for each time out, and nothing wider than it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TextIO

from rich.table import Table
from rich.text import Text

from konductor_like.backtest.timeline import HELD, OUT
from konductor_like.backtest.values import Result
from konductor_like.cli.backtest_view import TIMELINE, Section, sections, summary, timeline
from konductor_like.cli.columns import columns
from konductor_like.cli.output import console
from konductor_like.model import printable

_SIGNS = {"+": "bold red", "-": "green"}
_CELLS = {OUT: "red", HELD: "yellow"}
_ALARMING = ("Missing", "Held back")


def show(result: Result, stream: TextIO | None = None) -> None:
    """Print it. ``NO_COLOR`` is rich's own."""
    screen = console(stream or sys.stdout)
    for label, said in summary(result):
        line = Table.grid(padding=(0, 1))
        line.add_column(width=11, no_wrap=True)
        line.add_column(overflow="fold")
        alarming = label in _ALARMING and not said.startswith("0 ")
        line.add_row(Text(f"{label}:", "bold"), Text(printable(said), "yellow" if alarming else ""))
        screen.print(line)
    for section in sections(result):
        screen.print()
        screen.print(Text(f"{section.title}:", "bold"))
        if section.said:
            screen.print(Text(section.said))
        for row in _table(section):
            screen.print(row, no_wrap=True, overflow="ellipsis")
    drawn = timeline(result, screen.width)
    if drawn:
        screen.print()
        screen.print(Text(f"{TIMELINE}:", "bold"))
        for each in drawn:
            screen.print(_coloured(each), no_wrap=True, overflow="crop")


def _table(section: Section) -> Iterator[Text]:
    """Every row on one line: the evidence stands last, and of it there is what there is room for."""
    styles = [*(["bold"] if section.headers else ()), *(_SIGNS.get(row[0], "") for row in section.rows)]
    for style, line in zip(styles, columns(section.headers, section.rows), strict=True):
        yield Text(line, style)


def _coloured(line: str) -> Text:
    name, gap, cells = line.rpartition("  ")
    text = Text(name + gap)
    for cell in cells:
        text.append(cell, _CELLS.get(cell, "dim"))
    return text
