"""``status --watch``: a report now, and again every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from rich.console import Console
from rich.live import Live
from rich.text import Text

from konductor_like.cli.columns import cells_of, columns, widths_of
from konductor_like.cli.output import Screen, is_abandoned, say, warn
from konductor_like.cli.status.report import StatusReport, collect, status_report
from konductor_like.cli.status.text import View, node_row, status_lines, warnings
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError
from konductor_like.settings import Settings

POLL_SECONDS = 10.0
SLICE_SECONDS = 1.0
"""Seconds between two looks at whether somebody still reads the output."""


def reports(
    client: ReadOnlyKubeClient, settings: Settings, names: Collection[str], selector: str | None
) -> Iterator[StatusReport]:
    """Yield reports until nobody reads the output any more. Only the first raises KubeError."""
    report, due = status_report(collect(client, settings, selector), names), time.monotonic() + POLL_SECONDS
    yield report
    while not is_abandoned(sys.stdout):
        if time.monotonic() < due:
            time.sleep(min(SLICE_SECONDS, POLL_SECONDS))
            continue
        try:
            report = status_report(collect(client, settings, selector), names)
        except KubeError as error:
            report = replace(report, stale=str(error))
        due = time.monotonic() + POLL_SECONDS
        yield report


def follow(found: Iterator[StatusReport], view: View, screen: Screen) -> None:
    """Show the reports: drawn again on a terminal with colours, else as the rows that changed."""
    try:
        _redraw(found, view, screen) if screen.colours else _append(found, view, screen)
    except BrokenPipeError:  # the reader of the output has seen enough (`| head`)
        return


def _redraw(found: Iterator[StatusReport], view: View, screen: Screen) -> None:
    """Draw each report in the place of the one before; the last one stays, whole."""
    console = Console(file=sys.stdout, force_terminal=True, width=screen.width)
    with Live(console=console, auto_refresh=False) as live:
        for report in found:
            lines = [*status_lines(report, view, screen), *(f"warning: {each}" for each in warnings(report))]
            live.update(Text.from_ansi("\n".join(lines)), refresh=True)


def _append(found: Iterator[StatusReport], view: View, screen: Screen) -> None:
    """Print the first report, and of each later one the rows that changed in more than the age."""
    before: dict[str, list[str]] | None = None
    widths: list[int] = []
    for report in found:
        rows = {node.name: node_row(node, report.now, view.columns) for node in report.nodes}
        known = {name: [*row[:2], *row[3:]] for name, row in rows.items()}
        if before is None:
            widths = widths_of(cells_of(view.columns, rows.values()))
            say(status_lines(report, view, screen, widths))
            for warning in warnings(report):
                warn(warning)
        else:
            changed = [row for name, row in rows.items() if before.get(name) != known[name]]
            gone = [[name, "deleted"] for name in before if name not in known]
            say(line for row in (*changed, *gone) for line in columns((), [row], screen.width, widths))
        sys.stdout.flush()
        before = known
