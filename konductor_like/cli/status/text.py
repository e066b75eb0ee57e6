"""A status report as text; a terminal gets the same text as a pipe, with colours and folded sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from konductor_like.cli.columns import (
    age,
    age_of,
    count,
    fault_name,
    natural,
    stamp,
    stamp_of_ns,
)
from konductor_like.cli.output import BOLD, PIPE, Screen, table_lines
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.attempts import (
    failing_alerts,
    failing_reads,
    unwritten_words,
)
from konductor_like.cli.status.counts import (
    FaultGroup,
    advice_by_fault,
    counts_text,
    fault_groups,
    fleet_text,
)
from konductor_like.cli.status.coverage import SummaryLine, coverage_lines, first_few
from konductor_like.cli.status.node import NodeReport
from konductor_like.cli.status.report import StatusReport
from konductor_like.cli.status.shared_failures import failure_lines
from konductor_like.model import BrakeState, ControlAct, Pace, Source, Validation, ValidationStage
from konductor_like.model.text import listed, printable
from konductor_like.model.time import moment_of
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.health import Health
from konductor_like.policy.recovery.guards import BY_FILE

_LABEL_CHARS = 13
_STYLES = {
    Health.FAULTY: "1;31",
    Health.HELD: "1;35",
    Health.SUSPECT: "33",
    Health.PROBATION: "34",
    Health.IGNORED: "35",
    Health.UNKNOWN: "36",
    Health.NOT_MEASURED: "2",
    Health.HEALTHY: "32",
}
_UNREAD = {
    Source.KERNEL: "every node without a recorded fault is unknown",
    Source.POD: "faults that jobs have printed since then are missing",
}
_ALARM = "1;33"
HEADERS = ("NODE", "STATE", "AGE", "FAULT", "GPU", "COUNT")
_WIDE = ("SEVERITY", "NEEDS", "STAYS-OUT", "VALIDATION", "JOB", "JOBS-NOW", "SINCE", "LAST-SEEN", "COVERAGE")
WIDE_HEADERS = (*HEADERS, *_WIDE)
JOBS_SHOWN = 3
"""Jobs of one node that a row names; it counts the others."""
_UUID_CHARS = 12
"""Characters of a UUID in a wide row: ``GPU-8a4e12f0``. CUDA takes them for the whole UUID, too."""
_NOTHING = "-"


class Order(StrEnum):
    """The orders of the nodes; within each the nodes are in the order of their names."""

    STATE = "state"
    """The worst first."""
    NAME = "name"
    AGE = "age"
    """The latest change first."""
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class View:
    """The choice of a person: nodes, columns and order."""

    wide: bool = False
    headers: bool = True
    everything: bool = False
    """List every node; otherwise nodes that have nothing to tell are only counted."""
    states: frozenset[str] = frozenset()
    """List only nodes with one of these :attr:`NodeReport.words`; empty for every node."""
    order: Order = Order.STATE
    rows_first: bool = False
    """Show the nodes before the advice: the lower part of a screen may be cut."""

    @property
    def columns(self) -> Sequence[str]:
        """The headers of the nodes' table."""
        return WIDE_HEADERS if self.wide else HEADERS

    def chosen(self, report: StatusReport) -> list[NodeReport]:
        """Return the nodes that the table lists, in order."""
        nodes = [node for node in report.nodes if self._lists(node)]
        match self.order:
            case Order.NAME:
                nodes.sort(key=lambda node: natural(node.name))
            case Order.AGE:
                nodes.sort(key=lambda node: report.now - (node.since or _LONG_AGO))
            case Order.FAULT:
                rules = {group.rule: place for place, group in enumerate(fault_groups(nodes))}
                nodes.sort(key=lambda node: rules[node.fault.key.rule] if node.fault else len(rules))
        return nodes

    def _lists(self, node: NodeReport) -> bool:
        if self.states:
            return bool(node.words & self.states)
        quiet = node.health in (Health.HEALTHY, Health.NOT_MEASURED)
        unread = node.health is Health.UNKNOWN and node.unread_since is not None
        return self.everything or not (quiet or (unread and not node.state.record_problem))


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def status_lines(
    report: StatusReport,
    view: View = View(),
    screen: Screen = PIPE,
    widths: Sequence[int] | None = None,
) -> list[str]:
    """Return the status: counts, brake, controller and coverage, then the faults, the advice and the nodes.

    Without headers only the rows of the nodes' table. ``widths`` are those of its columns; by default they
    follow from the rows.
    """
    nodes = view.chosen(report)
    rows = [node_row(node, report.now, view.columns) for node in nodes]
    styles = [_STYLES[node.health] for node in nodes]
    table = table_lines(view.columns if view.headers else (), rows, screen, styles, widths)
    if not view.headers:
        return table
    groups = fault_groups(nodes)
    blocks = [
        [*_unwritten(report, screen), *_counts(report, screen), *_summary_lines(report, screen)],
        _fault_table(groups, report.now, screen),
        # The table leaves out nodes that are unknown while the logs are unread; they need one advice.
        _advice_lines(groups, nodes if view.states else report.nodes, screen),
        table if nodes else [],
    ]
    if view.rows_first:
        blocks[2:] = reversed(blocks[2:])
    first, *others = [block for block in blocks if block]
    return [*first, *(line for block in others for line in ("", *block))]


def warnings(report: StatusReport) -> Iterator[str]:
    """Yield what needs a person's attention, for standard error."""
    for node in report.nodes:
        for alarm in node.alarms:
            yield f"node/{node.name}: {alarm}"
    if report.nodes and report.why_unknown:
        yield report.why_unknown


def _unwritten(report: StatusReport, screen: Screen) -> Iterator[str]:
    """Yield the first lines: a taint that cannot be written is worse than all that is on the Nodes."""
    for words in unwritten_words(report.controller.attempts, report.now):
        yield from (screen.painted(part, _ALARM) for part in screen.folded(printable(words), 0))


def _counts(report: StatusReport, screen: Screen) -> list[str]:
    if not report.nodes:
        return []
    states = ", ".join(screen.painted(text, _STYLES[health]) for health, text in counts_text(report))
    return [f"{screen.painted(f'{fleet_text(report)}:', BOLD)} {states}"]


def _summary_lines(report: StatusReport, screen: Screen) -> list[str]:
    lines = []
    for label, text, is_alarm in summary(report):
        style = _ALARM if is_alarm else ""
        for number, part in enumerate(screen.folded(printable(text), _LABEL_CHARS)):
            head = "" if number else f"{label}:"
            lines.append(f"{head:<{_LABEL_CHARS}}{screen.painted(part, style)}")
    return lines


def _fault_table(groups: Sequence[FaultGroup], now: datetime, screen: Screen) -> list[str]:
    states = [Health.FAULTY, Health.HELD, Health.SUSPECT]
    states += [Health.IGNORED] if any(group.counts[Health.IGNORED] for group in groups) else []
    headers = ("FAULT", *(state.value.upper() for state in states), "SINCE", "NEEDS", "WHAT")
    rows = [
        [
            fault_name(group.rule),
            *(str(group.counts[state]) for state in states),
            age_of(group.since, now),
            group.needs or _NOTHING,
            group.text or _NOTHING,
        ]
        for group in groups
    ]
    return table_lines(headers, rows, screen) if rows else []


def _advice_lines(groups: Sequence[FaultGroup], nodes: Sequence[NodeReport], screen: Screen) -> list[str]:
    lines = []
    for label, advices in advice_by_fault(groups, nodes):
        for advice in advices:
            first, *others = screen.folded(printable(f"{label}: {advice}"), 4)
            lines += [f"  {first}", *(f"    {part}" for part in others)]
    return [screen.painted("To do:", BOLD), *lines] if lines else []


def summary(report: StatusReport) -> Iterator[SummaryLine]:
    """Yield the lines above the table: the logs that are not read, the brake, the controller, the rest."""
    brake, controller, now = report.brake, report.controller, report.now
    if report.stale:
        words = f"this shows an earlier state of the cluster: {report.stale}"
        yield SummaryLine("Not live", words, is_alarm=True)
    for source, means in _UNREAD.items():
        if (since := controller.unread_since(now, source)) is not None:
            words = f"{source.value} logs since {stamp(since)} ({age_of(since, now)} ago): {means}"
            yield SummaryLine("Unread", words, is_alarm=True)
    yield from (
        SummaryLine("Loki", words, is_alarm=True) for words in failing_reads(controller.attempts, now)
    )
    if words := failing_alerts(controller.attempts, now):
        yield SummaryLine("Alerts", words)
    if brake.pause:
        yield SummaryLine("Paused", pause_sentence(brake.pause), is_alarm=True)
    unknown = controller.why_settings_unknown
    yield SummaryLine("Brake", brake_sentence(brake, now, unknown), is_alarm=bool(brake.held or unknown))
    if report.returns_stopped:
        yield SummaryLine("Returns", f"stopped: {report.returns_stopped}", is_alarm=True)
    elif how := returns_sentence(controller.policy):
        yield SummaryLine("Returns", how)
    if under_way := validations_sentence(report):
        yield SummaryLine("Validations", under_way)
    runs = controller.readable and controller.exists and controller.alive(now)
    yield SummaryLine("Controller", controller_sentence(controller, now), is_alarm=not runs)
    if other := controller.other_build(now):
        yield SummaryLine("Builds", f"not the same: {other}")
    yield from coverage_lines(report.coverage, now)
    yield from (SummaryLine(*each) for each in failure_lines(report.failures, now))


def returns_sentence(policy: PolicyConfig) -> str:
    """Return after what the controller itself returns nodes, and how many; empty if it returns none."""
    if policy.recovery_by_file:
        return f"off. KONDUCTOR_RECOVERY_FILE: {BY_FILE}"
    if policy.rehearses:
        return "rehearsed only (KONDUCTOR_RECOVERY): the controller validates and returns no node"
    if not policy.returns_unasked:
        return ""
    how = "after a validation" if policy.returns_by_validation else "by reboot"
    return f"{how}, at most {policy.returns_per_hour} an hour"


def validations_sentence(report: StatusReport) -> str:
    """Return how many validations run and wait: ``1 running, 2 waiting``; empty without any."""
    numbers = report.validations
    words = {ValidationStage.RUNNING: "running", ValidationStage.ASKED: "waiting"}
    return ", ".join(f"{number} {word}" for stage, word in words.items() if (number := numbers[stage]))


def pause_sentence(pause: ControlAct) -> str:
    """Return until when no node is tainted, why, and what ends the pause."""
    until = f"until {stamp(pause.until)}" if pause.until else "without an end"
    ends = "`konductor-like resume` ends the pause"
    return f"no node is tainted, {until}: {pause.reason} ({pause.by}); {ends}"


def brake_sentence(brake: BrakeState, now: datetime, unknown: str = "") -> str:
    """Return the brake's state in one sentence; ``unknown`` is the reason if its limit is not known."""
    holding = f"holding {count(len(brake.held), 'node')}; " if brake.held else ""
    fleet = count(brake.gpu_nodes, "GPU node")
    if unknown:
        return f"{holding}{brake.out} of {fleet} out of service; the limit is not known, because {unknown}"
    used = {
        "out of service": brake.out,
        "released recently": brake.cooling - brake.deleted,
        "deleted recently": brake.deleted,
        "unavailable": brake.unavailable,
    }
    parts = [f"{nodes} {how}" for how, nodes in used.items() if nodes or how == "out of service"]
    counted = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    full = sum(used.values()) >= brake.bound and not brake.held
    return (
        f"{holding}{counted}, at most {brake.bound} of {fleet}"
        + ("; the next would be held back" if full else "")
        + "".join(f"; {part}" for part in _further_bounds(brake, now))
    )


def pace_sentence(pace: Pace, now: datetime) -> str:
    """Return the number of taints within the rate's window, and when the oldest stops counting."""
    used = f"{pace.taints} of at most {count(pace.most, 'taint')} in the last {age(pace.window_seconds)}"
    return f"{used}; the oldest counts until {_when(pace.frees_at, now)}" if pace.frees_at else used


def _further_bounds(brake: BrakeState, now: datetime) -> Iterable[str]:
    """Yield the other limits on taints: the cool-down, pools that have reached their bound, the rate."""
    if brake.rearms_at is not None:
        yield f"cooling down until {_when(brake.rearms_at, now)}"
    full = [pool for pool in brake.pools if pool.out >= pool.bound]
    if full:
        names = first_few([f"{pool.pool} ({pool.out} of {pool.gpu_nodes} out)" for pool in full])
        yield f"limit reached in {count(len(full), 'pool')}: {names}"
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
    if controller.alive(now):
        return f"running{progress}"
    if controller.holder is None or controller.renewed is None:
        return f"not running: nobody holds the {lease}{progress}"
    renewed = age_of(controller.renewed, now)
    return f"not running: {controller.holder} last renewed the {lease} {renewed} ago{progress}"


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


def _validation_cell(validation: Validation | None) -> str:
    """Return the verdict, or the stage of a validation without one: ``asked``, ``running``, ``pass``."""
    if validation is None:
        return ""
    is_over = validation.stage is ValidationStage.ENDED and validation.verdict is not None
    return validation.verdict.value if is_over and validation.verdict else validation.stage.value


def node_row(node: NodeReport, now: datetime, headers: Sequence[str]) -> list[str]:
    """Return one row of the nodes' table."""
    cells = {
        "NODE": node.name,
        "STATE": state_text(node),
        "AGE": age_of(node.since, now) if node.since else "",
        "SINCE": stamp(node.since) or "",
        "COVERAGE": node.coverage.value,
        "NEEDS": node.verdict.needs or "",
        "STAYS-OUT": next((blocker.guard.value for blocker in node.verdict.blockers), ""),
        "VALIDATION": _validation_cell(node.state.record.validation),
        "JOBS-NOW": "?" if node.is_broken and node.jobs is None else listed(node.jobs or (), JOBS_SHOWN),
    }
    if (fault := node.fault) is not None:
        further = f" (+{node.further})" if node.further else ""
        uuid = f" ({fault.uuid[:_UUID_CHARS]})" if fault.uuid else ""
        cells |= {
            "FAULT": fault_name(fault.key.rule) + further,
            "GPU": (fault.key.gpu or "") + (uuid if len(headers) > len(HEADERS) else ""),
            "COUNT": str(fault.count),
            "SEVERITY": fault.severity.value,
            "LAST-SEEN": stamp_of_ns(fault.last_ns) or "",
            "JOB": fault.job or "",
        }
    return [cells.get(header) or _NOTHING for header in headers]
