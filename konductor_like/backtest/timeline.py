"""The timeline for a terminal or a pipe: one line per node, a character per slice of time. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from konductor_like.backtest.simulation import moment
from konductor_like.backtest.values import HeldBack, Outage, Span, Verdicts

OUT, HELD, IN = "#", "/", "."
ROWS_MOST = 60
"""The nodes that were out longest; the others are counted."""


def rows(verdicts: Verdicts, span: Span, width: int, ends_in: Span) -> list[str]:
    """From when to when, and below that ``gpu-7  ..##//..``, the longest out first.

    ``width`` is for the whole line, ``ends_in`` the span that was read, ``span`` the one that was asked for.
    """
    names = ranked(verdicts, ends_in)
    if not names:
        return []
    shown = names[:ROWS_MOST]
    label = max(map(len, shown))
    cells = max(10, width - label - 2)
    outages, held = _by_node(verdicts.outages), _by_node(verdicts.held)
    start, end = (f"{moment(ns):%Y-%m-%d %H:%M}" for ns in (span.start_ns, span.end_ns))
    lines = [f"{'':<{label}}  {start} {end:>{max(len(end), cells - len(start) - 1)}}"]
    for name in shown:
        line = [IN] * cells
        for sign, spans in ((HELD, held.get(name, ())), (OUT, outages.get(name, ()))):
            for one in spans:
                first, last = _cells(one, span, cells)
                line[first : last + 1] = sign * (last + 1 - first)
        lines.append(f"{name:<{label}}  {''.join(line)}")
    if len(names) > len(shown):
        lines.append(f"and {len(names) - len(shown)} more")
    return lines


def ranked(verdicts: Verdicts, span: Span) -> list[str]:
    """The nodes that were out or held back, those that were out longest first."""
    seconds: dict[str, int] = {one.node: 0 for one in verdicts.held}
    for one in verdicts.outages:
        seconds[one.node] = seconds.get(one.node, 0) + (one.end_ns or span.end_ns) - one.start_ns
    return sorted(seconds, key=lambda name: (-seconds[name], name))


def _by_node(spans: Iterable[Outage | HeldBack]) -> dict[str, list[Outage | HeldBack]]:
    found: dict[str, list[Outage | HeldBack]] = {}
    for one in spans:
        found.setdefault(one.node, []).append(one)
    return found


def _cells(one: Outage | HeldBack, span: Span, cells: int) -> tuple[int, int]:
    """The first and the last cell that it touches."""
    whole = max(1, span.end_ns - span.start_ns)
    first = (one.start_ns - span.start_ns) * cells // whole
    last = ((span.end_ns if one.end_ns is None else one.end_ns) - 1 - span.start_ns) * cells // whole
    first = min(max(first, 0), cells - 1)
    return first, min(max(last, first), cells - 1)
