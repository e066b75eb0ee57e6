"""A status report as text: plain columns of full width, or coloured and as wide as the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from konductor_like.cli.columns import age, age_of, columns, count, fault_name, stamp, stamp_of_ns
from konductor_like.cli.output import paragraphs_view, table_view
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.coverage import coverage_lines, first_few
from konductor_like.cli.status.report import Health, NodeReport, StatusReport
from konductor_like.cli.status.shared_failures import failure_lines
from konductor_like.model import BrakeState, Pace, Source
from konductor_like.model.time import moment_of

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {
    Health.FAULTY: "bold red",
    Health.HELD: "bold magenta",
    Health.SUSPECT: "yellow",
    Health.UNKNOWN: "cyan",
    Health.NOT_MEASURED: "dim",
    Health.HEALTHY: "green",
}
_UNREAD = {
    Source.KERNEL: "every node without a recorded fault is UNKNOWN",
    Source.POD: "faults that jobs have printed since then are missing",
}
_ALARMING = re.compile(
    "(Unread|Missing|Lost|Unparsed|Ambiguous|Misnamed): |[^:]+: (none|unknown|bounds)"
    "|.*(HOLDING|NO NODE|NOT RUNNING|UNKNOWN)"
)
"""Matches the lines above the table that report a problem."""
HEADERS = ("NODE", "STATE", "AGE", "FAULT", "GPU", "COUNT", "EVIDENCE", "ADVICE")
WIDE_HEADERS = (*HEADERS[:-2], "SEVERITY", "SINCE", "LAST-SEEN", "COVERAGE", *HEADERS[-2:], "NOTES")


def tables(report: StatusReport, *, wide: bool, headers: bool = True) -> list[str]:
    """Return the summary and the table as plain text; without ``headers`` only the rows."""
    shown = WIDE_HEADERS if wide else HEADERS
    rows = [_row(node, report.now, shown) for node in report.nodes]
    if not headers:
        return columns((), rows)
    above = [f"{label + ':':<12} {text}" for label, text in summary(report)]
    return [*above, "", *columns(shown, rows)] if rows else above


def summary(report: StatusReport) -> Iterator[tuple[str, str]]:
    """Yield the lines above the table: the logs that are not read, the brake, the controller, the rest."""
    brake, controller, now = report.brake, report.controller, report.now
    for source, means in _UNREAD.items():
        since = controller.unread_since(now, source)
        if since is not None:
            yield "Unread", f"{source.value} logs since {stamp(since)} ({age_of(since, now)} ago): {means}"
    if pause := brake.pause:
        until = f"until {stamp(pause.until)}" if pause.until else "without an end"
        by = f"{pause.reason} ({pause.by})"
        yield "Paused", f"NO NODE IS TAINTED, {until}: {by}; `konductor-like resume` ends it"
    yield "Brake", brake_sentence(brake, now, controller.why_settings_unknown)
    yield "Controller", controller_sentence(controller, now)
    yield from coverage_lines(report.coverage, now)
    yield from failure_lines(report.failures, now)


def brake_sentence(brake: BrakeState, now: datetime, unknown: str = "") -> str:
    """Return the brake's state in one sentence; ``unknown`` is the reason if its bounds are not known."""
    of_all = f"of {count(brake.gpu_nodes, 'GPU node')}"
    usage = f"{brake.out} out of service, at most {brake.bound} {of_all} may be"
    if unknown:
        usage = f"{brake.out} {of_all} out of service; {unknown}"
    further = "".join(f"; {part}" for part in _further_bounds(brake, now))
    if brake.held:
        names = first_few([held.node for held in brake.held])
        return f"HOLDING {count(len(brake.held), 'node')} back: {names}; {usage}{further}"
    if unknown:
        return f"bounds not known; {usage}"
    full = brake.out + brake.cooling >= brake.bound
    return f"not engaged; {usage}" + ("; the next would be held back" if full else "") + further


def pace_sentence(pace: Pace, now: datetime) -> str:
    """Return the number of taints within the rate's window, and when the oldest stops counting."""
    used = f"{pace.taints} of at most {count(pace.most, 'taint')} in the last {age(pace.window_seconds)}"
    return f"{used}; the oldest counts until {_when(pace.frees_at, now)}" if pace.frees_at else used


def _further_bounds(brake: BrakeState, now: datetime) -> Iterable[str]:
    """Yield the other limits on taints: the cool-down, pools that have reached their bound, the rate."""
    if brake.rearms_at is not None and brake.held:
        released, deleted = brake.cooling - brake.deleted, brake.deleted
        after = [count(released, "release")] if released else []
        after += [count(deleted, "tainted node") + " deleted"] if deleted else []
        yield f"COOLING DOWN after {' and '.join(after)} until {_when(brake.rearms_at, now)}"
    elif brake.rearms_at is not None:
        gone = count(brake.deleted, "tainted node")
        yield f"{gone} deleted recently, counted as out of service until {_when(brake.rearms_at, now)}"
    full = [pool for pool in brake.pools if pool.out >= pool.bound]
    if full:
        names = first_few([f"{pool.pool} ({pool.out} of {pool.gpu_nodes} out)" for pool in full])
        yield f"bound reached in {'pool' if len(full) == 1 else 'pools'} {names}"
    if brake.pace is not None:
        yield f"rate {pace_sentence(brake.pace, now)}"


def _when(then: datetime, now: datetime) -> str:
    """Return ``2026-05-06T12:05:00Z (in 5m)``."""
    return f"{stamp(then)} (in {age_of(now, then)})"


def controller_sentence(controller: ControllerReport, now: datetime) -> str:
    """Return a sentence on the controller: whether it runs, and the age of the lines that it read last."""
    if not controller.readable:
        return f"unknown: {controller.problem}"
    lease = f"Lease {controller.lease}"
    if not controller.exists:
        return f"none: there is no {lease}, so no controller has ever run"
    read = [_read_up_to(controller, source, now) for source in Source if source in controller.reached_ns]
    progress = "".join(f"; {part}" for part in (", ".join(read), controller.problem) if part)
    if controller.holder is None or controller.renewed is None:
        return f"NOT RUNNING: nobody holds the {lease}{progress}"
    renewed = f"{age_of(controller.renewed, now)} ago"
    if not controller.alive(now):
        return f"NOT RUNNING: {controller.holder} last renewed the {lease} {renewed}{progress}"
    return f"{controller.holder} holds the {lease}, renewed {renewed}{progress}"


def _read_up_to(controller: ControllerReport, source: Source, now: datetime) -> str:
    """Return up to where a source was read; also up to where it was acted upon if that is much older."""
    reached = moment_of(controller.reached_ns[source])
    acted = moment_of(controller.read_ns.get(source, controller.reached_ns[source]))
    text = f"{source.value} logs read up to {age_of(reached, now)} ago"
    is_behind = (reached - acted).total_seconds() > controller.stale_seconds
    return f"{text} and acted upon up to {age_of(acted, now)} ago" if is_behind else text


def state_text(node: NodeReport) -> str:
    """Return ``faulty``, ``suspect (before install)``."""
    return f"{node.health.value} ({node.qualifier})" if node.qualifier else node.health.value


def _row(node: NodeReport, now: datetime, headers: Sequence[str]) -> list[str]:
    """Return one row of the table; cells may be empty."""
    cells = {
        "NODE": node.name,
        "STATE": state_text(node),
        "AGE": age_of(node.since, now) if node.since else "",
        "SINCE": stamp(node.since) or "",
        "COVERAGE": node.coverage.value,
        "ADVICE": node.advice,
        "NOTES": "; ".join(node.notes),
    }
    if (fault := node.fault) is not None:
        further = f" (+{len(node.accusing) - 1})" if len(node.accusing) > 1 else ""
        cells |= {
            "FAULT": fault_name(fault.key.rule) + further,
            "GPU": fault.key.gpu or "",
            "COUNT": str(fault.count),
            "SEVERITY": fault.severity.value,
            "LAST-SEEN": stamp_of_ns(fault.last_ns) or "",
            "EVIDENCE": fault.evidence,
        }
    return [cells.get(header, "") for header in headers]


def status_view(report: StatusReport, *, wide: bool, headers: bool) -> RenderableType:
    """Return the status for a terminal: the summary, the nodes, then the evidence and advice by node."""
    from rich.console import Group
    from rich.text import Text

    above = [paragraphs_view(summary(report), _ALARMING), Text()] if headers else []
    details = [(name, lines) for name, lines in map(_details, report.nodes) if lines and not wide]
    below = [Text(), paragraphs_view(details)] if details else []
    shown = WIDE_HEADERS if wide else HEADERS[:-2]  # the evidence and the advice are below
    rows = [_row(node, report.now, shown) for node in report.nodes]
    styles = [_STYLES[node.health] for node in report.nodes]
    return Group(*above, table_view(shown if headers else (), rows, styles), *below)


def _details(node: NodeReport) -> tuple[str, list[str]]:
    """Return the paragraph on a node; its lines are empty if the table shows everything."""
    lines = [node.fault.title, node.fault.evidence] if node.fault else []
    lines += [f"To do: {node.advice}"] if node.advice else []
    return node.name, [line for line in lines if line]
