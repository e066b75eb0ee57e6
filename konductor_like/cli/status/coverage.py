"""Which kernel logs arrive and what is missing of them, as ``status`` tells it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from konductor_like.cli.columns import age, count, natural, stamp_of_ns
from konductor_like.model import Coverage, CoverageState, Loss, Misnamed, Unparsed
from konductor_like.model.text import listed
from konductor_like.model.time import SECOND_NS, moment_of

NAMES_SHOWN = 5
GAPS_SHOWN = 3
ALARMING = ("Unread", "Missing", "Lost", "Unparsed", "Ambiguous", "Misnamed")
"""Lines above the table that are there only when something is wrong."""


@dataclass(frozen=True, slots=True)
class GapReport:
    """A span that is missing of some kernel logs; ``end_ns`` is None while it lasts."""

    start_ns: int
    end_ns: int | None
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """The GPU nodes by whether their kernel log arrives, and what is missing."""

    measured: int
    unknown: tuple[str, ...]
    not_measured: int
    gaps: tuple[GapReport, ...]
    ambiguous: tuple[str, ...]
    lost: tuple[tuple[str, Loss], ...]
    unparsed: tuple[tuple[str, Unparsed], ...] = ()
    misnamed: tuple[tuple[str, Misnamed], ...] = ()
    """Names in kernel faults that no Node has, the latest first."""


def state_of(name: str, coverage: Coverage | None, *, unread: bool) -> CoverageState:
    """The coverage of one node; while kernel logs are not read, a heartbeat that was heard means nothing."""
    if unread:
        return CoverageState.UNKNOWN
    return CoverageState.NOT_MEASURED if coverage is None else coverage.of(name)


def coverage_report(
    gpu_nodes: Iterable[str], coverage: Coverage | None, *, unread: bool
) -> CoverageReport | None:
    """The report on these nodes; None without coverage."""
    if coverage is None:
        return None
    names = sorted(gpu_nodes, key=natural)
    states = {name: state_of(name, coverage, unread=unread) for name in names}
    gaps = (
        GapReport(gap.start_ns, gap.end_ns, tuple(name for name in names if gap.concerns(name)))
        for gap in coverage.gaps
    )
    return CoverageReport(
        measured=sum(state is CoverageState.MEASURED for state in states.values()),
        unknown=tuple(name for name, state in states.items() if state is CoverageState.UNKNOWN),
        not_measured=sum(state is CoverageState.NOT_MEASURED for state in states.values()),
        gaps=tuple(gap for gap in gaps if gap.nodes),
        ambiguous=tuple(sorted(coverage.ambiguous, key=natural)),
        lost=tuple(sorted(coverage.lost.items(), key=lambda item: natural(item[0]))),
        unparsed=tuple(sorted(coverage.unparsed.items(), key=lambda item: natural(item[0]))),
        misnamed=tuple(sorted(coverage.misnamed.items(), key=lambda item: (-item[1].at_ns, item[0]))),
    )


def coverage_lines(coverage: CoverageReport | None, now: datetime) -> list[tuple[str, str]]:
    """What stands above the table: how many kernel logs arrive, then only what is wrong."""
    if coverage is None:
        return []
    fleet = coverage.measured + len(coverage.unknown) + coverage.not_measured
    if not fleet:
        return []
    parts = [f"{coverage.measured} of {count(fleet, 'kernel log')} heard"]
    if coverage.unknown:
        parts.append(f"UNKNOWN {named(coverage.unknown)}")
    if coverage.not_measured:
        parts.append(f"{coverage.not_measured} not measured")
    lines = [("Coverage", "; ".join(parts))]
    if coverage.gaps:
        shown = [_gap_text(gap, fleet, now) for gap in coverage.gaps[:GAPS_SHOWN]]
        more = len(coverage.gaps) - len(shown)
        lines.append(("Missing", "; ".join(shown) + (f"; and {count(more, 'more span')}" if more else "")))
    if coverage.lost:
        lost = [f"{node} ({count(loss.records, 'record')})" for node, loss in coverage.lost]
        lines.append(("Lost", f"{named(lost)} overwritten before they were read"))
    if coverage.unparsed:
        unparsed = [f"{node} ({count(seen.lines, 'line')})" for node, seen in coverage.unparsed]
        text = f"{named(unparsed)} with an Xid that is not understood: see the controller's log"
        lines.append(("Unparsed", text))
    if coverage.ambiguous:
        lines.append(("Ambiguous", f"{named(coverage.ambiguous)}: two machines under one name; not tainted"))
    if coverage.misnamed:
        lines.append(("Misnamed", _misnamed_text(coverage.misnamed, now)))
    return lines


def warnings_on(name: str, coverage: Coverage | None) -> Iterable[str]:
    """What a person must hear about one node."""
    if coverage is not None and name in coverage.ambiguous:
        yield "two machines report under this name at once; it is not tainted until one is left"


def notes_on(name: str, coverage: Coverage | None) -> Iterable[str]:
    """What is worth a column in the wide table only."""
    if coverage is None:
        return
    for gap in coverage.gaps:
        if gap.concerns(name):
            until = f"to {stamp_of_ns(gap.end_ns)}" if gap.end_ns is not None else "on"
            yield f"its kernel log is missing from {stamp_of_ns(gap.start_ns)} {until}"
    if name in coverage.lost:
        loss = coverage.lost[name]
        yield f"{count(loss.records, 'record')} overwritten in its kernel log before they were read"
    if name in coverage.unparsed:
        lines = count(coverage.unparsed[name].lines, "line")
        yield f"{lines} in its kernel log with an Xid that is not understood: see the controller's log"


def named(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    return listed(tuple(names), NAMES_SHOWN)


def _gap_text(gap: GapReport, fleet: int, now: datetime) -> str:
    who = f"all {fleet} nodes" if 1 < len(gap.nodes) == fleet else named(gap.nodes)
    since = age((now - moment_of(gap.start_ns)).total_seconds())
    if gap.end_ns is None:
        return f"{who} for {since} until now"
    return f"{who} for {age((gap.end_ns - gap.start_ns) / SECOND_NS)}, {since} ago"


def _misnamed_text(misnamed: Collection[tuple[str, Misnamed]], now: datetime) -> str:
    names = "1 name that is no Node" if len(misnamed) == 1 else f"{len(misnamed)} names that are no Nodes"
    faults = count(sum(each.faults for _, each in misnamed), "fault")
    since = age((now - moment_of(max(each.at_ns for _, each in misnamed))).total_seconds())
    return (
        f"kernel faults of {names}: {named([name for name, _ in misnamed])} "
        f"({faults}, the last {since} ago); unless deleted, check KONDUCTOR_NODE_LABEL"
    )
