"""A status report as text: plain columns, names, JSON, YAML. Pure; ``terminal.py`` is for terminals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from konductor_like.cli.columns import age, columns, count, fault_name, moment
from konductor_like.cli.covering import coverage_lines
from konductor_like.cli.document import stamp, status_document
from konductor_like.cli.happenings import event_lines
from konductor_like.cli.report import ControllerReport, NodeReport, StatusReport
from konductor_like.model import BrakeState, ControlAct, Pace, Source

NAMES_SHOWN = 5
"""The sentence about the brake names this many held nodes; the list has them all."""


_UNREAD = {
    Source.KERNEL: "every node that nothing stands against is UNKNOWN",
    Source.POD: "what jobs printed since then is not seen",
}


class Output(StrEnum):
    """What ``-o`` takes."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


HEADERS = ("NODE", "STATE", "AGE", "FAULT", "GPU", "COUNT", "EVIDENCE", "ADVICE")
WIDE_HEADERS = (*HEADERS[:-2], "SEVERITY", "SINCE", "LAST-SEEN", "COVERAGE", *HEADERS[-2:], "NOTES")


def render(report: StatusReport, output: Output, *, headers: bool = True) -> list[str]:
    """The lines of a report in any format; without headers the tables are rows and nothing else."""
    match output:
        case Output.JSON:
            return [json.dumps(status_document(report), indent=2)]
        case Output.YAML:
            return [to_yaml(report)]
        case Output.NAME:
            return [f"node/{node.name}" for node in report.nodes]
        case Output.TABLE | Output.WIDE:
            return _tables(report, wide=output is Output.WIDE, headers=headers)


def to_yaml(report: StatusReport) -> str:
    """The same document as JSON has."""
    import yaml  # the only format that needs it

    text: str = yaml.safe_dump(status_document(report), sort_keys=False, allow_unicode=True, width=4096)
    return text.rstrip("\n")


def summary(report: StatusReport) -> list[tuple[str, str]]:
    """What stands above the table: first what is not read, then the brake."""
    return [
        *unread_lines(report),
        *((("Paused", pause_sentence(report.brake.pause)),) if report.brake.pause else ()),
        ("Brake", brake_sentence(report.brake, report.now, report.controller.why_unset)),
        ("Controller", controller_sentence(report.controller, report.now)),
        *coverage_lines(report.coverage, report.now),
        *event_lines(report.events, report.now),
    ]


def unread_lines(report: StatusReport) -> Iterable[tuple[str, str]]:
    """Which logs are not read: what stands below says nothing of the time since."""
    for source, means in _UNREAD.items():
        since = report.controller.unread_since(report.now, source)
        if since is not None:
            ago = age((report.now - since).total_seconds())
            yield "Unread", f"{source.value} logs since {stamp(since)} ({ago} ago): {means}"


def pause_sentence(pause: ControlAct) -> str:
    """Who paused tainting, until when and why, and how to end it."""
    until = f"until {stamp(pause.until)}" if pause.until else "without an end"
    return f"NO NODE IS TAINTED, {until}: {pause.reason} ({pause.by}); `konductor-like resume` ends it"


def brake_sentence(brake: BrakeState, now: datetime, unknown: str = "") -> str:
    """The brake's state in one sentence; ``unknown`` says why its bounds are not known."""
    of_all = f"of {count(brake.gpu_nodes, 'GPU node')}"
    room = f"{brake.out} out of service, at most {brake.bound} {of_all} may be"
    if unknown:
        room = f"{brake.out} {of_all} out of service; {unknown}"
    further = "".join(f"; {part}" for part in _further_bounds(brake, now))
    if brake.held:
        names = [held.node for held in brake.held[:NAMES_SHOWN]]
        more = len(brake.held) - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more else "")
        return f"HOLDING {count(len(brake.held), 'node')} back: {listed}; {room}{further}"
    if unknown:
        return f"bounds not known; {room}"
    full = brake.out + brake.cooling >= brake.bound
    return f"armed; {room}" + ("; the next would be held" if full else "") + further


def pace_sentence(pace: Pace, now: datetime) -> str:
    """How much of the rate is used, and when that ends."""
    used = f"{pace.taints} of at most {count(pace.most, 'taint')} in the last {age(pace.window_seconds)}"
    return f"{used}; the oldest counts until {_when(pace.frees_at, now)}" if pace.frees_at else used


def _further_bounds(brake: BrakeState, now: datetime) -> Iterable[str]:
    """What else is in the way of a taint: a cool-down, pools that have no room, the rate."""
    if brake.rearms_at is not None and brake.held:
        released, deleted = brake.cooling - brake.deleted, brake.deleted
        after = [count(released, "release")] if released else []
        after += [count(deleted, "tainted node") + " deleted"] if deleted else []
        yield f"COOLING DOWN after {' and '.join(after)}, arms itself again {_when(brake.rearms_at, now)}"
    elif brake.rearms_at is not None:
        gone = count(brake.deleted, "tainted node")
        yield f"{gone} deleted lately, the room stays empty until {_when(brake.rearms_at, now)}"
    full = [pool for pool in brake.pools if pool.out >= pool.bound]
    if full:
        names = [f"{pool.pool} ({pool.out} of {pool.gpu_nodes} out)" for pool in full[:NAMES_SHOWN]]
        more = f" and {len(full) - len(names)} more" if full[NAMES_SHOWN:] else ""
        yield f"no room in {'pool' if len(full) == 1 else 'pools'} {', '.join(names)}{more}"
    if brake.pace is not None:
        yield f"rate {pace_sentence(brake.pace, now)}"


def _when(then: datetime, now: datetime) -> str:
    """``2026-05-06T12:05:00Z (in 5m)``."""
    return f"{stamp(then)} (in {age((then - now).total_seconds())})"


def controller_sentence(controller: ControllerReport, now: datetime) -> str:
    """Who acts, and how far it has read."""
    lease = f"Lease {controller.lease}"
    if not controller.readable:
        return f"unknown: {controller.problem}"
    if not controller.exists:
        return f"none: there is no {lease}, so none has ever run"
    read = ", ".join(
        _read_up_to(controller, source, now) for source in Source if source in controller.reached_ns
    )
    progress = "".join(f"; {part}" for part in (read, controller.problem) if part)
    if controller.holder is None or controller.renewed is None:
        return f"NOT RUNNING: nobody holds the {lease}{progress}"
    renewed = _ago(controller.renewed, now)
    if not controller.alive(now):
        return f"NOT RUNNING: {controller.holder} last renewed the {lease} {renewed}{progress}"
    return f"{controller.holder} holds the {lease}, renewed {renewed}{progress}"


def _read_up_to(controller: ControllerReport, source: Source, now: datetime) -> str:
    """How far a source was read; and acted upon, where something has waited for long."""
    reached = moment(controller.reached_ns[source])
    acted = moment(controller.read_ns.get(source, controller.reached_ns[source]))
    text = f"{source.value} logs read up to {_ago(reached, now)}"
    waits = (reached - acted).total_seconds() > controller.stale_seconds
    return f"{text} and acted upon up to {_ago(acted, now)}" if waits else text


def state_text(node: NodeReport) -> str:
    """``faulty``, ``suspect (before install)``."""
    return f"{node.health.value} ({node.qualifier})" if node.qualifier else node.health.value


def cells(node: NodeReport, now: datetime, *, wide: bool) -> Sequence[str]:
    """One row of the table; empty where there is nothing to say."""
    fault = node.fault
    since = age((now - node.since).total_seconds()) if node.since else ""
    about = (_fault_cell(node), fault.key.gpu or "", str(fault.count)) if fault else ("", "", "")
    evidence = fault.evidence if fault else ""
    if not wide:
        return (node.name, state_text(node), since, *about, evidence, node.advice)
    return (
        node.name,
        state_text(node),
        since,
        *about,
        fault.severity.value if fault else "",
        stamp(node.since) or "",
        (stamp(moment(fault.last_ns)) or "") if fault else "",
        node.coverage.value,
        evidence,
        node.advice,
        "; ".join(node.notes),
    )


def _fault_cell(node: NodeReport) -> str:
    """The gravest fault, and how many others accuse the node as well."""
    name = fault_name(node.fault.key.rule) if node.fault else ""
    return f"{name} (+{node.further})" if node.further else name


def _tables(report: StatusReport, *, wide: bool, headers: bool) -> list[str]:
    rows: Iterable[Sequence[str]] = [cells(node, report.now, wide=wide) for node in report.nodes]
    if not headers:
        return columns((), rows)
    above = [f"{label + ':':<12} {text}" for label, text in summary(report)]
    table = columns(WIDE_HEADERS if wide else HEADERS, rows) if report.nodes else []
    return [*above, "", *table] if table else above


def _ago(then: datetime, now: datetime) -> str:
    return f"{age((now - then).total_seconds())} ago"
