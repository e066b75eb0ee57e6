"""``status --watch``: a report after every change of a Node, and every ten seconds for the rest."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from konductor_like.cli import session
from konductor_like.cli.columns import cells_of, columns, widths_of
from konductor_like.cli.output import Screen, is_abandoned, say, warn
from konductor_like.cli.session import read_controller
from konductor_like.cli.status.report import Fleet, StatusReport, collect, status_report
from konductor_like.cli.status.text import WIDE_HEADERS, View, node_row, status_lines, warnings
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeError, KubeForbidden
from konductor_like.cluster.node.decoder import node_decoder
from konductor_like.cluster.node.store import NodeStore, list_nodes, listed_slices
from konductor_like.policy.fleet.known_nodes import known_nodes
from konductor_like.settings import Settings

POLL_SECONDS = 10.0
"""Seconds between two looks at the Lease; without permission to watch, also at the Nodes."""
SLICE_SECONDS = 1.0
"""Seconds between two looks at whether somebody still reads the output."""
GATHER_SECONDS = 0.5
"""Seconds between two reports, at least."""
_ROOM = ["", "suspect (test)", "179m", "xid 119 (+1)", "0000:4e:00", "1000"] + [""] * (len(WIDE_HEADERS) - 6)
"""Cells for which a pipe has room from the start, because later rows may need it."""
_CLEAR = "\x1b[H\x1b[2J"


def reports(
    client: ReadOnlyKubeClient, settings: Settings, names: Collection[str], selector: str | None
) -> Iterator[StatusReport]:
    """Yield a report now, and again whenever something may have changed. Only the first raises KubeError.

    End when nobody reads the output any more.
    """
    fleet = collect(client, settings, selector)
    yield status_report(fleet, names)
    changed = threading.Event()
    decode = node_decoder(fleet.controller.settings, listed_slices(client))
    store = NodeStore(client, decode, on_change=changed.set)
    store.start()
    due, stale = time.monotonic() + POLL_SECONDS, ""
    try:
        while True:
            if not wait_for_change(changed, due):
                return
            changed.clear()
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + POLL_SECONDS
                    fleet = _polled(client, settings, selector, fleet, store)
                stale = _problem_of(store)
            except KubeError as error:
                stale = str(error)
            nodes = store.snapshot() if store.wait_synced(0) and store.problem is None else fleet.nodes
            nodes = known_nodes(nodes, fleet.controller.controls)
            chosen = fleet.selected if selector else nodes
            fleet = replace(fleet, now=session.cluster_now(client), nodes=nodes, selected=chosen)
            yield replace(status_report(fleet, names), stale=stale)
            time.sleep(GATHER_SECONDS)
    finally:
        store.stop()


def wait_for_change(changed: threading.Event, due: float) -> bool:
    """Wait for a change, or until ``due`` on the monotonic clock; return False if nobody reads the output."""
    while not is_abandoned(sys.stdout):
        left = max(0.0, due - time.monotonic())
        if changed.wait(min(left, SLICE_SECONDS)) or left <= SLICE_SECONDS:
            return True
    return False


def _polled(
    client: ReadOnlyKubeClient, settings: Settings, selector: str | None, fleet: Fleet, store: NodeStore
) -> Fleet:
    """Return the fleet with the present Lease, and with the present Nodes if they cannot be watched."""
    if isinstance(store.problem, KubeForbidden):
        return collect(client, settings, selector)
    controller = read_controller(client, settings)
    selected = list_nodes(client, node_decoder(), selector) if selector else fleet.selected
    return replace(fleet, controller=controller, selected=selected)


def _problem_of(store: NodeStore) -> str:
    """Return why the Nodes are not up to date; without permission to watch they are polled instead."""
    return "" if store.problem is None or isinstance(store.problem, KubeForbidden) else str(store.problem)


def follow(found: Iterator[StatusReport], view: View, screen: Screen) -> None:
    """Print each report: drawn again on a terminal with colours, else as the rows that changed.

    The columns of rows that are printed later are as wide as those of the first report. End when nobody reads
    the output any more (``| head``).
    """
    before: dict[str, list[str]] | None = None
    widths: list[int] = []
    for report in found:
        rows = {node.name: node_row(node, report.now, view.columns) for node in report.nodes}
        known = {name: _without_age(row) for name, row in rows.items()}
        if screen.colours:
            lines = _drawn(status_lines(report, view, screen))
        elif before is None:
            widths = widths_of([*cells_of(view.columns, rows.values()), _ROOM[: len(view.columns)]])
            lines = status_lines(report, view, screen, widths)
        else:
            changed = [row for name, row in rows.items() if before.get(name) != known[name]]
            gone = [[name, "deleted"] for name in before if name not in known]
            lines = [line for row in (*changed, *gone) for line in columns((), [row], screen.width, widths)]
        try:
            say(lines)
            sys.stdout.flush()
        except BrokenPipeError:
            return
        if before is None or screen.colours:
            for warning in warnings(report):
                warn(warning)
        before = known


def _drawn(lines: list[str]) -> list[str]:
    """Return what to print on a cleared terminal: as many lines as fit; the advice comes last."""
    height = shutil.get_terminal_size().lines - 1
    more = len(lines) - (height - 1)
    if more > 1:
        lines = [
            *lines[: height - 1],
            f"... and {more} more lines; --state shows fewer nodes",
        ]
    return [f"{_CLEAR}{line}" if number == 0 else line for number, line in enumerate(lines)]


def _without_age(row: list[str]) -> list[str]:
    """Return the row without the cell that changes all the time."""
    return [*row[:2], *row[3:]]
