"""The same report on a terminal: coloured, and fitted to its width."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from konductor_like.cli.columns import NONE, printable
from konductor_like.cli.covering import ALARMING
from konductor_like.cli.render import HEADERS, WIDE_HEADERS, cells, state_text, summary
from konductor_like.cli.report import Health, StatusReport

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_STYLES = {
    Health.FAULTY: "bold red",
    Health.HELD: "bold magenta",
    Health.SUSPECT: "yellow",
    Health.UNKNOWN: "cyan",
    Health.NOT_MEASURED: "dim",
    Health.HEALTHY: "green",
}
_OVERVIEW = len(HEADERS) - 2
"""The columns before the evidence and the advice, which get paragraphs of their own on a terminal."""


def console(stream: TextIO | None = None) -> Console:
    """A console that prints text as it is: no markup, no guessing; ``NO_COLOR`` is rich's own."""
    from rich.console import Console  # a pipe never needs it

    return Console(file=stream or sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=False)


def table_view(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """Plain columns, folded where the terminal is too narrow for them."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*headers, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*(Text(printable(cell) or NONE) for cell in row))
    return table


def status_view(report: StatusReport, *, wide: bool, headers: bool) -> RenderableType:
    """The brake, the controller, the nodes; below them what is behind each state and what to do about it."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if headers:
        parts.extend(_summary_line(label, text) for label, text in summary(report))
        parts.append(Text())
    parts.append(_overview(report, wide=wide, headers=headers))
    if not wide:
        parts.extend(_details(report))
    return Group(*parts)


def _summary_line(label: str, text: str) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    alarming = label in ALARMING or text.startswith(
        ("HOLDING", "NO NODE", "NOT RUNNING", "none", "unknown", "bounds")
    )
    alarming = alarming or "UNKNOWN" in text
    line = Table.grid(padding=(0, 1))
    line.add_column(width=11, no_wrap=True)
    line.add_column(overflow="fold")
    line.add_row(Text(f"{label}:", "bold"), Text(printable(text), "bold yellow" if alarming else ""))
    return line


def _overview(report: StatusReport, *, wide: bool, headers: bool) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=headers, header_style="bold")
    for header in WIDE_HEADERS if wide else HEADERS[:_OVERVIEW]:
        table.add_column(header, overflow="fold", no_wrap=header in ("AGE", "GPU", "COUNT", "STATE"))
    for node in report.nodes:
        row: Sequence[str] = cells(node, report.now, wide=wide)
        texts = [Text(printable(cell) or NONE) for cell in (row if wide else row[:_OVERVIEW])]
        texts[1].stylize(_STYLES[node.health])
        table.add_row(*texts)
    return table


def _details(report: StatusReport) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = []
    for node in report.nodes:
        if not node.advice and node.fault is None:
            continue
        heading = Text.assemble((node.name, "bold"), " ", (state_text(node), _STYLES[node.health]))
        parts += [Text(), heading]
        if node.fault:
            evidence = Text(printable(node.fault.evidence), "dim", overflow="fold")
            parts += [Padding(Text(node.fault.title), (0, 0, 0, 2)), Padding(evidence, (0, 0, 0, 2))]
        if node.advice:
            parts.append(Padding(Text(f"To do: {printable(node.advice)}"), (0, 0, 0, 2)))
    return parts
