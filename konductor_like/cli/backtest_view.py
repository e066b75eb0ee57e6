"""A backtest's result as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from konductor_like.backtest.timeline import HELD, OUT, rows
from konductor_like.backtest.values import Difference, HeldBack, Outage, Result, Silence
from konductor_like.cli.columns import age, columns, count, fault_name, moment, stamp

WIDTH = 80
"""Of the timeline where nobody says how wide it may be."""
TIMELINE = f"Timeline ({OUT} out, {HELD} held back)"
HEADERS = ("NODE", "FROM", "FOR", "FAULT", "GPU", "GROUNDS", "EVIDENCE")
DIFFERENCE_HEADERS = ("", *HEADERS)
HELD_HEADERS = ("NODE", "FROM", "FOR", "FAULT", "WHY")
_DAY_NS = 86_400 * 10**9


SILENT_MOST = 5
"""Nodes named of those that were silent; the others are counted."""


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
    """What differs comes first where that was asked for; then each time out, and what was held back."""
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
    return rows(result.verdicts, history.asked, width, history.read)


def summary(result: Result) -> list[tuple[str, str]]:
    """What it comes to, what was assumed and what is missing: labels and sentences."""
    history, verdicts = result.history, result.verdicts
    found = ", ".join(f"{count(number, source.value + ' line')}" for source, number in history.lines.items())
    if history.kept_lines:
        found += f", {history.kept_lines} of them kept by an earlier run"
    if history.waited_seconds >= 1:
        found += f"; waited {age(history.waited_seconds)} to spare Loki"
    peak = verdicts.peak
    most = (
        f"; most at once {peak.out} of {verdicts.gpu_nodes} ({verdicts.share(peak.out):.1%}) "
        f"at {stamp(moment(peak.at_ns))}"
        if peak
        else ""
    )
    nodes = len({one.node for one in verdicts.outages})
    hours = sum(((o.end_ns or history.read.end_ns) - o.start_ns) for o in verdicts.outages) / 3.6e12
    return [
        (
            "History",
            f"{stamp(moment(history.asked.start_ns))} to {stamp(moment(history.read.end_ns))}; {found}",
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
    said = [back, nodes, "lines came when their timestamps say"]
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
            f"the oldest line found is of {stamp(moment(history.oldest_ns))}: before that Loki kept none "
            "(retention_period, max_query_lookback), or there was none"
        )
    if history.read.end_ns < history.asked.end_ns:
        said.append(f"what is after {stamp(moment(history.read.end_ns))} was not read: {result.ended_by}")
    if result.silence is not None:
        said.extend(_silent(result.silence))
    if history.incomplete:
        said.append(f"{count(history.incomplete, 'nanosecond')} with more lines than Loki gives out at once")
    if result.verdicts.dropped:
        said.append(f"{count(result.verdicts.dropped, 'span')} beyond what is listed")
    return said


def _silent(found: Silence) -> Iterator[str]:
    if found.nobody_seconds:
        yield f"no node's kernel log was heard for about {age(found.nobody_seconds)}"
    if found.silent:
        named = ", ".join(f"{name} {age(seconds)}" for name, seconds in found.silent[:SILENT_MOST])
        more = f", and {len(found.silent) - SILENT_MOST} more" if len(found.silent) > SILENT_MOST else ""
        yield (
            f"{len(found.silent)} of {count(found.heard, 'node')} with heartbeats did not send them all the "
            f"time (asked every {age(found.every_seconds)}): {named}{more}"
        )


def _outage_row(one: Outage, result: Result) -> Sequence[str]:
    incident = one.incident
    return (
        *_when(one, result),
        fault_name(incident.key.rule),
        incident.key.gpu or "",
        incident.grounds,
        incident.evidence,
    )


def _held_row(one: HeldBack, result: Result) -> Sequence[str]:
    return (*_when(one, result), fault_name(one.incident.key.rule), one.why.value)


def _when(one: Outage | HeldBack, result: Result) -> tuple[str, str, str]:
    lasted = age(((one.end_ns or result.history.read.end_ns) - one.start_ns) / 1e9)
    return one.node, stamp(moment(one.start_ns)) or "", lasted if one.end_ns else f"{lasted}+"


def _difference(title: str, found: Difference, result: Result) -> Section:
    said = f"{count(len(found.added), 'time')} out more, {len(found.gone)} fewer, {found.same} the same."
    listed = [("+", one) for one in found.added] + [("-", one) for one in found.gone]
    return Section(
        title, DIFFERENCE_HEADERS if listed else (), [(s, *_outage_row(o, result)) for s, o in listed], said
    )
