"""The coverage in ``status``: which kernel logs arrive, and which parts of them are missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar

from konductor_like.cli.columns import age, age_of, count, natural, stamp, stamp_of_ns
from konductor_like.model import Coverage, CoverageState, Gap, Misnamed
from konductor_like.model.faults import NAMELESS
from konductor_like.model.text import listed
from konductor_like.model.time import SECOND_NS, moment_of
from konductor_like.policy.node.health import coverage_of

Fact = TypeVar("Fact")
NAMES_SHOWN = 5
GAPS_SHOWN = 3
_LOST = "lost (overwritten, or without the node's name)"
_NOT_UNDERSTOOD = "with an Xid that is not understood (see the controller's log)"


class SummaryLine(NamedTuple):
    """A line above the table of nodes."""

    label: str
    text: str
    is_alarm: bool = False
    """Whether it reports a problem."""


@dataclass(frozen=True, slots=True)
class CoverageSummary:
    """The coverage of each GPU node, in the order of their names, and what is missing."""

    coverage: Coverage
    states: Mapping[str, CoverageState]
    unread_since: datetime | None = None
    """The time since which the controller has not read the kernel logs; None if it reads them."""

    def nodes(self, state: CoverageState) -> list[str]:
        """Return the names of the nodes in this state."""
        return [name for name, its in self.states.items() if its is state]

    def gaps(self) -> list[tuple[Gap, list[str]]]:
        """Return the gaps of nodes that still exist, with these nodes."""
        gaps = [(gap, list(filter(gap.concerns, self.states))) for gap in self.coverage.gaps]
        return [(gap, nodes) for gap, nodes in gaps if nodes]


def coverage_report(
    gpu_nodes: Iterable[str], coverage: Coverage | None, unread_since: datetime | None
) -> CoverageSummary | None:
    """Return the summary for these nodes; None without coverage."""
    if coverage is None:
        return None
    names = sorted(gpu_nodes, key=natural)
    unread = unread_since is not None
    states = {name: coverage_of(name, coverage, unread=unread) for name in names}
    return CoverageSummary(coverage, states, unread_since)


def by_name(facts: Mapping[str, Fact]) -> list[tuple[str, Fact]]:
    """Return facts about nodes in the order of the nodes' names."""
    return sorted(facts.items(), key=lambda item: natural(item[0]))


def latest_first(misnamed: Mapping[str, Misnamed]) -> list[tuple[str, Misnamed]]:
    """Return the names in kernel faults that no Node has, the latest first."""
    return sorted(misnamed.items(), key=lambda item: (-item[1].at_ns, item[0]))


def coverage_lines(report: CoverageSummary | None, now: datetime) -> Iterator[SummaryLine]:
    """Yield the lines above the table: the number of kernel logs that arrive, then the problems."""
    if report is None or not report.states:
        return
    coverage, fleet = report.coverage, len(report.states)
    heard = f"{len(report.nodes(CoverageState.MEASURED))} of {count(fleet, 'kernel log')} arrive"
    for state in (CoverageState.UNKNOWN, CoverageState.NOT_MEASURED):
        if names := report.nodes(state):
            heard += f"; {len(names)} {state.value}" + (f": {first_few(names)}" if len(names) < fleet else "")
    if report.unread_since is not None:
        heard = f"not known: the controller has not read the kernel logs since {stamp(report.unread_since)}"
    is_alarm = report.unread_since is not None or bool(report.nodes(CoverageState.UNKNOWN))
    yield SummaryLine("Coverage", heard, is_alarm)
    if gaps := report.gaps():
        spans = [_gap_text(gap, nodes, fleet, now) for gap, nodes in gaps[:GAPS_SHOWN]]
        if len(gaps) > GAPS_SHOWN:
            spans.append(f"and {count(len(gaps) - GAPS_SHOWN, 'more span')}")
        yield SummaryLine("Missing", "; ".join(spans), is_alarm=True)
    if coverage.lost:
        lost = [f"{node} ({count(loss.records, 'record')})" for node, loss in by_name(coverage.lost)]
        words = f"records of {count(len(lost), 'node')} are {_LOST}: {first_few(lost)}"
        yield SummaryLine("Lost", words, is_alarm=True)
    if coverage.backfill_ns is not None:
        since = stamp_of_ns(coverage.backfill_ns)
        words = f"older kernel lines of Nodes that registered since {since} are still to be read"
        yield SummaryLine("Reread", words)
    if coverage.unparsed:
        unparsed = [f"{node} ({count(each.lines, 'line')})" for node, each in by_name(coverage.unparsed)]
        words = f"{count(len(unparsed), 'node')} {_NOT_UNDERSTOOD}: {first_few(unparsed)}"
        yield SummaryLine("Unparsed", words, is_alarm=True)
    if coverage.ambiguous:
        names = sorted(coverage.ambiguous, key=natural)
        words = f"{count(len(names), 'name')} that two machines use, not tainted: {first_few(names)}"
        yield SummaryLine("Ambiguous", words, is_alarm=True)
    yield from _dropped_lines(coverage.misnamed, now)


def notes_on(name: str, coverage: Coverage | None) -> Iterable[str]:
    """Yield the notes on one node's kernel log."""
    if coverage is None:
        return
    for gap in coverage.gaps:
        if gap.concerns(name):
            until = f"to {stamp_of_ns(gap.end_ns)}" if gap.end_ns is not None else "on"
            yield f"its kernel log is missing from {stamp_of_ns(gap.start_ns)} {until}"
    if name in coverage.lost:
        loss = coverage.lost[name]
        yield f"{count(loss.records, 'record')} of its kernel log are {_LOST}"
    if name in coverage.unparsed:
        yield f"{count(coverage.unparsed[name].lines, 'line')} in its kernel log {_NOT_UNDERSTOOD}"


def first_few(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    return listed(names, NAMES_SHOWN)


def _gap_text(gap: Gap, nodes: Sequence[str], fleet: int, now: datetime) -> str:
    everywhere = 1 < len(nodes) == fleet
    who = f"all {fleet} nodes" if everywhere else count(len(nodes), "node")
    names = "" if everywhere else f": {first_few(nodes)}"
    since = age_of(moment_of(gap.start_ns), now)
    if gap.end_ns is None:
        return f"{who} for {since} until now{names}"
    return f"{who} for {age((gap.end_ns - gap.start_ns) / SECOND_NS)}, {since} ago{names}"


def _dropped_lines(dropped: Mapping[str, Misnamed], now: datetime) -> Iterator[SummaryLine]:
    """Yield a line for the faults under names that no Node has, and one for the faults without a name."""
    known = latest_first(dropped)
    if misnamed := [each for each in known if not each[0].startswith(NAMELESS)]:
        yield SummaryLine("Misnamed", _misnamed_text(misnamed, now), is_alarm=True)
    if nameless := [each for each in known if each[0].startswith(NAMELESS)]:
        yield SummaryLine("Nameless", _nameless_text(nameless, now), is_alarm=True)


def _misnamed_text(misnamed: Sequence[tuple[str, Misnamed]], now: datetime) -> str:
    names = "1 name without a Node" if len(misnamed) == 1 else f"{len(misnamed)} names without a Node"
    return (
        f"kernel faults of {names}: {_dropped(misnamed, now)}; "
        "unless the nodes were deleted, check KONDUCTOR_NODE_LABEL"
    )


def _nameless_text(nameless: Sequence[tuple[str, Misnamed]], now: datetime) -> str:
    return (
        f"kernel faults without a node's name, and no GPU Node alone has their boot id: "
        f"{_dropped(nameless, now)}; the collector must name the node on each line"
    )


def _dropped(named: Sequence[tuple[str, Misnamed]], now: datetime) -> str:
    faults = count(sum(each.faults for _, each in named), "fault")
    latest = age_of(moment_of(named[0][1].at_ns), now)
    return f"{first_few([name for name, _ in named])} ({faults}, the last {latest} ago)"
