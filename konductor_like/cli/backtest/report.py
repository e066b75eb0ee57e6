"""The result of a backtest as text for a pipe, as text for a terminal, and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from konductor_like.backtest.result import Difference, HeldSpan, Outage, Result, TimeSpan, Verdicts
from konductor_like.cli.columns import age, columns, count, fault_name, stamp_of_ns
from konductor_like.cli.output import API_VERSION, fields_of
from konductor_like.model import Source
from konductor_like.model.text import printable
from konductor_like.model.time import SECOND_NS, moment_of

if TYPE_CHECKING:
    from rich.text import Text

WIDTH = 80
"""The width of the timeline where nobody says how wide it may be."""
HEADERS = ("NODE", "FROM", "FOR", "FAULT", "GPU", "GROUNDS", "EVIDENCE")
DIFFERENCE_HEADERS = ("", *HEADERS)
HELD_HEADERS = ("NODE", "FROM", "FOR", "FAULT", "WHY")
_DAY_NS = 86_400 * SECOND_NS
OUT, HELD, IN = "#", "/", "."
ROWS_MOST = 60
"""Nodes in the timeline: those that were out longest. The others are counted."""
_SIGNS = {"+": "bold red", "-": "green"}
_CELLS = {OUT: "red", HELD: "yellow"}
TIMELINE = f"Timeline ({OUT} out, {HELD} held back)"
_ALARMING = ("Missing", "Held back")


class Section(NamedTuple):
    """A table with its title."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    said: str = ""
    """A sentence before it."""


def text(result: Result) -> list[str]:
    """The report for a pipe: the sum first, then the tables in full width, then the timeline."""
    lines = [f"{label + ':':<12} {said}" for label, said in summary(result)]
    for section in sections(result):
        lines += ["", f"{section.title}:", *([section.said] if section.said else [])]
        lines += columns(section.headers, section.rows)
    drawn = timeline(result, WIDTH)
    if drawn:
        lines += ["", f"{TIMELINE}:", *drawn]
    return lines


def sections(result: Result) -> Iterator[Section]:
    """Differences come first where a comparison was asked for; then outages and held nodes."""
    verdicts = result.verdicts
    if result.difference is not None:
        yield _difference("What the other rules would do otherwise", result.difference, result)
    if verdicts.outages:
        yield Section("Out", HEADERS, [_outage_row(one, result) for one in verdicts.outages])
    if verdicts.held:
        yield Section("Held back", HELD_HEADERS, [_held_row(one, result) for one in verdicts.held])
    if result.shadow is not None:
        yield _difference("What the rules in shadow mode would have added", result.shadow, result)


def timeline(result: Result, width: int) -> list[str]:
    """A line per node, no longer than that, and a first one with the span's ends."""
    history = result.history
    return timeline_rows(result.verdicts, history.asked, width, history.read)


def summary(result: Result) -> list[tuple[str, str]]:
    """The totals, the assumptions and the gaps of a run: labels and sentences."""
    history, verdicts = result.history, result.verdicts
    found = ", ".join(f"{count(number, source.value + ' line')}" for source, number in history.lines.items())
    if history.kept_lines:
        found += f", {history.kept_lines} of them kept by an earlier run"
    if history.waited_seconds >= 1:
        found += f"; waited {age(history.waited_seconds)} to spare Loki"
    peak = verdicts.peak
    most = (
        f"; most at once {peak.out} of {verdicts.gpu_nodes} ({verdicts.share(peak.out):.1%}) "
        f"at {stamp_of_ns(peak.at_ns)}"
        if peak
        else ""
    )
    nodes = len({one.node for one in verdicts.outages})
    hours = sum(((o.end_ns or history.read.end_ns) - o.start_ns) for o in verdicts.outages) / 3.6e12
    return [
        (
            "History",
            f"{stamp_of_ns(history.asked.start_ns)} to {stamp_of_ns(history.read.end_ns)}; {found}",
        ),
        (
            "Tainted",
            f"{count(nodes, 'node')}, {count(len(verdicts.outages), 'time')}, {hours:.1f} node hours{most}",
        ),
        ("Held back", f"{count(len({h.node for h in verdicts.held}), 'node')}"),
        *(("Assumed", sentence) for sentence in assumptions(result)),
        *(("Missing", sentence) for sentence in missing(result)),
    ]


def assumptions(result: Result) -> list[str]:
    """What no history tells, in sentences."""
    after = result.release_after_seconds
    back = (
        "nobody brings a node back"
        if after is None
        else f"a node comes back {age(after)} after its taint, unless it is held longer as a repeat offender"
    )
    proven = "and others whose kernel log proves a GPU"
    nodes = {
        "cluster": f"the nodes are the cluster's of today, with today's labels, {proven}",
        "file": f"the nodes are the file's, {proven}",
        "lines": "the nodes are those that the lines name, and the brake counts each from its first line on",
    }[result.nodes_from]
    polled = f"lines came when their timestamps say, and polls are {age(result.poll_seconds)} apart"
    said = [back, nodes, polled]
    if result.history.without_boot:
        said.append(
            f"no reboot, where kernel lines name no boot ({count(result.history.without_boot, 'fault')}): a "
            "stamp that runs backwards is a replay"
        )
    return said


def missing(result: Result) -> list[str]:
    """What of the history is not there."""
    history, said = result.history, []
    if history.oldest_ns is None:
        said.append(
            "Loki has no line with a fault's words in this time: retention, selector, or a healthy fleet"
        )
    elif history.oldest_ns - history.asked.start_ns > _DAY_NS:
        said.append(
            f"the oldest line found is of {stamp_of_ns(history.oldest_ns)}: before that Loki kept none "
            "(retention_period, max_query_lookback), or there was none"
        )
    if history.read.end_ns < history.asked.end_ns:
        said.append(f"what is after {stamp_of_ns(history.read.end_ns)} was not read: {result.ended_by}")
    if history.incomplete:
        said.append(f"{count(history.incomplete, 'nanosecond')} with more lines than Loki gives out at once")
    if result.verdicts.dropped:
        said.append(f"{count(result.verdicts.dropped, 'span')} beyond what is listed")
    return said


def _outage_row(one: Outage, result: Result) -> Sequence[str]:
    incident = one.incident
    return (
        *_when(one, result),
        fault_name(incident.key.rule),
        incident.key.gpu or "",
        incident.escalated_because,
        incident.evidence,
    )


def _held_row(one: HeldSpan, result: Result) -> Sequence[str]:
    return (*_when(one, result), fault_name(one.incident.key.rule), one.why.value)


def _when(one: Outage | HeldSpan, result: Result) -> tuple[str, str, str]:
    lasted = age(((one.end_ns or result.history.read.end_ns) - one.start_ns) / SECOND_NS)
    return one.node, stamp_of_ns(one.start_ns) or "", lasted if one.end_ns else f"{lasted}+"


def _difference(title: str, found: Difference, result: Result) -> Section:
    said = f"{count(len(found.added), 'time')} out more, {len(found.gone)} fewer, {found.same} the same."
    listed = [("+", one) for one in found.added] + [("-", one) for one in found.gone]
    return Section(
        title, DIFFERENCE_HEADERS if listed else (), [(s, *_outage_row(o, result)) for s, o in listed], said
    )


def timeline_rows(verdicts: Verdicts, span: TimeSpan, width: int, ends_in: TimeSpan) -> list[str]:
    """From when to when, and below that ``gpu-7  ..##//..``, the longest out first.

    ``width`` is for the whole line, ``ends_in`` the span that was read, ``span`` the one that was asked for.
    """
    names = _ranked(verdicts, ends_in)
    if not names:
        return []
    shown = names[:ROWS_MOST]
    label = max(map(len, shown))
    cells = max(10, width - label - 2)
    outages, held = _by_node(verdicts.outages), _by_node(verdicts.held)
    start, end = (f"{moment_of(ns):%Y-%m-%d %H:%M}" for ns in (span.start_ns, span.end_ns))
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


def _ranked(verdicts: Verdicts, span: TimeSpan) -> list[str]:
    """The nodes that were out or held back, those that were out longest first."""
    seconds: dict[str, int] = {one.node: 0 for one in verdicts.held}
    for one in verdicts.outages:
        seconds[one.node] = seconds.get(one.node, 0) + (one.end_ns or span.end_ns) - one.start_ns
    return sorted(seconds, key=lambda name: (-seconds[name], name))


def _by_node(spans: Iterable[Outage | HeldSpan]) -> dict[str, list[Outage | HeldSpan]]:
    found: dict[str, list[Outage | HeldSpan]] = {}
    for one in spans:
        found.setdefault(one.node, []).append(one)
    return found


def _cells(one: Outage | HeldSpan, span: TimeSpan, cells: int) -> tuple[int, int]:
    """The first and the last cell that it touches."""
    whole = max(1, span.end_ns - span.start_ns)
    first = (one.start_ns - span.start_ns) * cells // whole
    last = ((span.end_ns if one.end_ns is None else one.end_ns) - 1 - span.start_ns) * cells // whole
    first = min(max(first, 0), cells - 1)
    return first, min(max(last, first), cells - 1)


def show(result: Result, stream: TextIO | None = None) -> None:
    """Print it coloured, one line for each time out, and nothing wider than the terminal."""
    from rich.table import Table  # a pipe never needs rich
    from rich.text import Text

    from konductor_like.cli.output import console

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
    from rich.text import Text

    styles = [*(["bold"] if section.headers else ()), *(_SIGNS.get(row[0], "") for row in section.rows)]
    for style, line in zip(styles, columns(section.headers, section.rows), strict=True):
        yield Text(line, style)


def _coloured(line: str) -> Text:
    from rich.text import Text

    name, gap, cells = line.rpartition("  ")
    text = Text(name + gap)
    for cell in cells:
        text.append(cell, _CELLS.get(cell, "dim"))
    return text


def document(result: Result) -> dict[str, Any]:
    """The JSON that docs/backtest.md describes; within ``v1`` fields are only ever added."""
    history = result.history
    return {
        "apiVersion": API_VERSION,
        "kind": "Backtest",
        "from": stamp_of_ns(history.asked.start_ns),
        "to": stamp_of_ns(history.asked.end_ns),
        "readUpTo": stamp_of_ns(history.read.end_ns),
        "complete": not result.ended_by,
        "assumed": {
            "releaseAfterSeconds": result.release_after_seconds,
            "nodes": result.nodes_from,
            "pollSeconds": result.poll_seconds,
            "sentences": assumptions(result),
        },
        "history": {
            "lines": {source.value: history.lines.get(source, 0) for source in Source},
            "oldestLine": stamp_of_ns(history.oldest_ns),
            "newestLine": stamp_of_ns(history.newest_ns),
            **fields_of(history, "kept_lines", "queries", "bytes_processed"),
            "waitedSeconds": round(history.waited_seconds),
            "missing": missing(result),
        },
        "verdicts": _verdicts_document(result.verdicts, result),
        "shadow": _difference_document(result.shadow, result),
        "compared": None if result.compared is None else _verdicts_document(result.compared, result),
        "difference": _difference_document(result.difference, result),
    }


def _verdicts_document(verdicts: Verdicts, result: Result) -> dict[str, Any]:
    peak = verdicts.peak
    return {
        **fields_of(verdicts, "rules", "faults", "gpu_nodes"),
        "peak": peak
        and {"at": stamp_of_ns(peak.at_ns), "out": peak.out, "share": round(verdicts.share(peak.out), 4)},
        "outages": [_outage_document(one, result) for one in verdicts.outages],
        "held": [_held_document(one, result) for one in verdicts.held],
    }


def _outage_document(one: Outage, result: Result) -> dict[str, Any]:
    incident = one.incident
    return {
        **_span_document(one, result),
        "rule": incident.key.rule,
        "gpu": incident.key.gpu,
        "severity": incident.severity.value,
        "escalatedBecause": incident.escalated_because or None,
        **fields_of(incident, "job", "failure_group", "title", "evidence"),
        "keptOutBecause": one.why_longer or None,
    }


def _held_document(one: HeldSpan, result: Result) -> dict[str, Any]:
    return {
        **_span_document(one, result),
        "rule": one.incident.key.rule,
        "gpu": one.incident.key.gpu,
        "why": one.why.value,
    }


def _span_document(one: Outage | HeldSpan, result: Result) -> dict[str, Any]:
    end_ns = one.end_ns or result.history.read.end_ns
    return {
        "node": one.node,
        "from": stamp_of_ns(one.start_ns),
        "to": stamp_of_ns(one.end_ns),
        "seconds": round((end_ns - one.start_ns) / SECOND_NS),
    }


def _difference_document(found: Difference | None, result: Result) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "added": [_outage_document(one, result) for one in found.added],
        "gone": [_outage_document(one, result) for one in found.gone],
        "same": found.same,
    }
