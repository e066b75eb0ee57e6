"""Fills the page: calculates each number, and links it to its outages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from konductor_like.catalog import load_catalog
from konductor_like.cli.columns import count, fault_name
from konductor_like.cli.history import text
from konductor_like.cli.history.document import numbers_of
from konductor_like.cli.report.coverage import coverage, unknown_part
from konductor_like.cli.report.values import Bar, Bars, Link, Page, Row, Tile
from konductor_like.history.numbers import (
    BY,
    FAILED_AGAIN_WITHIN,
    FOR_NOTHING_MOST,
    FOR_NOTHING_WORDS,
    Numbers,
    Period,
    Share,
    fewest,
    for_nothing,
    is_of,
    periods,
    repairs,
    returned,
    shares,
)
from konductor_like.history.outages import End, Outage, how_words
from konductor_like.history.read import History

MOST = 10
"""Rows of the tables of nodes, GPUs and racks."""
MOST_FAULTS = 20
_DAILY_MOST = timedelta(days=45)
"""Span up to which the first plot has a column for each day; for each week beyond."""
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_CALENDAR = "days from midnight and weeks from Monday in UTC, the first and the last may be parts"
_STEPS = (
    *(
        (0.25, "to 15 min"),
        (1, "to 1 h"),
        (4, "to 4 h"),
        (12, "to 12 h"),
        (24, "to 1 day"),
        (72, "to 3 days"),
    ),
    (float("inf"), "longer"),
)
"""The columns of the plot of repair times: upper limit in hours, and its name."""
_NOUNS = {"fault": "fault", "node": "node", "gpu": "GPU", "rack": "rack"}
"""What the tables are grouped by."""


@dataclass(slots=True)
class _Links:
    """Numbers the links, and keeps for each outage which of them lead to it."""

    found: list[Link] = field(default_factory=list)
    groups: dict[tuple[str, datetime], list[int]] = field(default_factory=dict)

    def to(self, title: str, outages: Iterable[Outage]) -> Link | None:
        """Return the link to these outages; None without one."""
        chosen = list(outages)
        if not chosen:
            return None
        link = Link(len(self.found), title, len(chosen))
        self.found.append(link)
        for each in chosen:
            self.groups.setdefault((each.node, each.since), []).append(link.number)
        return link


def page_of(history: History) -> Page:
    """Return the page about a history."""
    return _Builder(history).page()


class _Builder:
    def __init__(self, history: History) -> None:
        self._history = history
        self._start, self._end = history.start, history.end
        self._numbers: Numbers = numbers_of(history)
        self._links = _Links()
        self._catalog = load_catalog()
        self._failures = [each for each in history.outages if is_of(each, history.start, history.end)]
        self._in_gpu_hours = self._numbers.gpu_hours > 0
        self._unit = "GPU hours" if self._in_gpu_hours else "node hours"

    def page(self) -> Page:
        history, start, end = self._history, self._start, self._end
        length = _DAY if end - start <= _DAILY_MOST else _WEEK
        course, weeks = (
            self._periods(length, self._size),
            self._periods(_WEEK, lambda each: each.outages, is_table=True),
        )
        highest = max(course, key=lambda each: each.percent)
        nothing = for_nothing(history.outages, start, end)
        tiles, by = self._tiles(nothing), self._by()
        repair_steps, by_how = self._repairs()
        return Page(
            title="GPU fleet report",
            span=f"{start:%-d %B %Y, %H:%M} to {end:%-d %B %Y, %H:%M} UTC",
            unknown_part=unknown_part(history),
            is_whole=history.trail.is_whole and not history.problem,
            gaps=[f"{capital(each)}." for each in text.gaps(history)],
            coverage=tuple(coverage(history)),
            unit=self._unit,
            unit_title=capital(self._unit),
            tiles=tiles,
            short=tuple(self._short()),
            course_title=f"{capital(self._unit)} lost each {'day' if length == _DAY else 'week'}",
            course_note=(
                f"at most {highest.value}, {'on' if length == _DAY else 'from'} {highest.name}; {_CALENDAR}"
            ),
            course=course,
            weeks=Bars("Outages a week", "Week from", weeks, capital(f"{_CALENDAR}.")),
            by=by,
            often=[self._often(name) for name in ("node", "gpu")],
            repair_steps=repair_steps,
            repairs=by_how,
            nothing=self._nothing(nothing),
            nothing_means=(
                "Counted here: the controller took the node out; a named person returned it within "
                f"{FOR_NOTHING_MOST / timedelta(minutes=1):.0f} minutes, with a reason that begins with "
                f"{_or(FOR_NOTHING_WORDS)}; and the node did not fail again within "
                f"{FAILED_AGAIN_WITHIN / timedelta(hours=1):.0f} hours. They count in all other numbers, too."
            ),
            links=self._links.found,
            rows=self._rows(),
            known=bool(history.outages or history.fleet),
        )

    def _tiles(self, nothing: Sequence[Outage]) -> list[Tile]:
        found, start, end = self._numbers, self._start, self._end
        weeks = (end - start) / _WEEK
        begun = self._begun(self._failures)
        lost = [each for each in self._failures if each.seconds(start, end) > 0]
        of_fleet = [each for each in lost if each.node in self._history.fleet]
        back = returned(self._history.outages, start, end)
        times = [each.seconds(each.since, end) / 3600 for each in back]
        nodes = len(self._history.fleet)
        of = f"of the hours of today's {count(nodes, 'GPU node')}" if nodes else "no GPU node was read"
        available = "not known" if found.availability is None else f"{found.availability:.2%}"
        total = found.gpu_hours if self._in_gpu_hours else found.hours
        out = [each for each in self._failures if _is_out(each, end)]
        rate = f"{found.outages / weeks:.1f} a week" if weeks >= 1 else f"in {text.hours(24 * 7 * weeks)}"
        return [
            Tile(
                f"{self._unit} lost",
                amount(total),
                f"{amount(found.hours)} node hours out of service",
                self._links.to("all failures of this time", lost),
            ),
            Tile(
                "available",
                available,
                of,
                self._links.to("failures of today's nodes", of_fleet),
            ),
            Tile("outages", f"{found.outages:,}", rate, self._links.to("outages that began", begun)),
            Tile(
                "median repair time",
                text.hours(median(times)) if times else "none",
                f"until a node was back, of {count(len(times), 'return')}",
                self._links.to("failures after which the node was returned", back),
            ),
            Tile(
                "still out of service",
                "not known" if self._history.problem else f"{found.out_now:,}",
                f"nodes, for failures, at the end: {end:%-d %B %Y, %H:%M} UTC",
                self._links.to("outages that went on at the end", out),
            ),
            Tile(
                "taken out for nothing",
                f"{len(nothing):,}",
                "outages, as people said",
                self._links.to("nodes taken out for nothing", nothing),
            ),
        ]

    def _short(self) -> Iterator[str]:
        """Yield the sentences below the tiles."""
        found, start, end = self._numbers, self._start, self._end
        for name, noun in (("node", "node"), ("gpu", "GPU")):
            by_name = shares(self._history.outages, BY[name], start, end)
            if (number := fewest(by_name)) and len(by_name) > 3:
                yield (
                    f"{count(number, noun)} of {len(by_name)} with an outage "
                    f"{'has' if number == 1 else 'have'} half of the node hours lost."
                )
        if found.between_hours is not None:
            between = text.hours(found.between_hours)
            yield f"A node runs {between} between two failures, on average."
        if found.relapses:
            yield f"After {count(found.relapses, 'return')} the node failed again on probation."
        others = [
            *([f"{count(found.tests, 'test')} of the chain"] if found.tests else []),
            *([f"{count(found.by_persons, 'node')} that people took out"] if found.by_persons else []),
        ]
        if others:
            yield f"Not counted as outages: {' and '.join(others)}; the table of outages has them."
        if found.without_gpus:
            outages = count(found.without_gpus, "outage")
            yield f"The node's number of GPUs is not known for {outages}, which count with no GPU hours."

    def _periods(
        self, length: timedelta, size: Callable[[Period], float], *, is_table: bool = False
    ) -> list[Bar]:
        """Return a bar for each day or week, as long as ``size`` says, of a plot or of a table."""
        found = _calendar(self._history.outages, self._start, self._end, length)
        highest = max((size(each) for each in found), default=0)
        every = max(1, len(found) // 6)
        bars = []
        for number, each in enumerate(found):
            name = f"{each.start:%-d %b}"
            short = f" (only {text.hours((each.end - each.start) / timedelta(hours=1))})"
            days = _days(each)
            theirs = [o for o in self._failures if is_of(o, each.start, each.end)]
            begun = [o for o in theirs if each.start <= o.since]
            bars.append(
                Bar(
                    name + (short if each.end - each.start < length else ""),
                    amount(self._size(each)),
                    _percent(size(each), highest),
                    each.outages,
                    amount(each.hours),
                    self._links.to(f"outages {days}", theirs),
                    self._links.to(f"outages that began {days}", begun) if is_table else None,
                    label=name if number % every == 0 else "",
                )
            )
        return bars

    def _size(self, each: Period | Share) -> float:
        return each.gpu_hours if self._in_gpu_hours else each.hours

    def _by(self) -> list[Bars]:
        return [self._bars(name, MOST_FAULTS if name == "fault" else MOST) for name in _NOUNS]

    def _bars(self, name: str, most: int) -> Bars:
        """Return what has the most hours."""
        noun, size = _NOUNS[name], self._size
        found = shares(self._history.outages, BY[name], self._start, self._end)
        found.sort(key=lambda each: (-size(each), -each.outages, each.name))
        without = sum(not BY[name](each) for each in self._failures)
        notes = [
            *([f"{len(found) - most} more have less."] if len(found) > most else []),
            *([f"{count(without, 'outage')} without a known {noun}."] if without else []),
        ]
        bars = self._share_bars(name, found[:most], size)
        return Bars(f"By {noun}", capital(noun), bars, " ".join(notes))

    def _often(self, name: str) -> Bars:
        """Return what failed more than once, the most failures first."""
        noun = _NOUNS[name]
        found = shares(self._history.outages, BY[name], self._start, self._end)
        often = [each for each in found if each.outages > 1]
        often.sort(key=lambda each: (-each.outages, -self._size(each), each.name))
        more = len(often) - MOST
        note = f"{more} more failed more than once." if more > 0 else ""
        bars = self._share_bars(name, often[:MOST], lambda each: each.outages)
        return Bars(f"{capital(noun)}s that failed more than once", capital(noun), bars, note)

    def _share_bars(self, name: str, found: Sequence[Share], size: Callable[[Share], float]) -> list[Bar]:
        """Return a bar for each share, as long as ``size`` says."""
        highest = max(map(size, found), default=0)
        bars = []
        for each in found:
            entry = self._catalog.entry(each.name) if name == "fault" else None
            shown = fault_name(each.name) if name == "fault" else each.name
            theirs = [o for o in self._failures if BY[name](o) == each.name]
            link = self._links.to(f"{_NOUNS[name]} {shown}", theirs)
            begun = self._links.to(f"{_NOUNS[name]} {shown}, begun in this time", self._begun(theirs))
            bars.append(
                Bar(
                    shown,
                    amount(self._size(each)),
                    _percent(size(each), highest),
                    each.outages,
                    amount(each.hours),
                    link,
                    begun,
                    entry.title if entry else "",
                )
            )
        return bars

    def _begun(self, outages: Iterable[Outage]) -> list[Outage]:
        return [each for each in outages if self._start <= each.since < self._end]

    def _repairs(self) -> tuple[list[Bar], list[Bar]]:
        """Return the plot and the table of repair times."""
        start, end = self._start, self._end
        back = returned(self._history.outages, start, end)
        steps, lower = [], 0.0
        for upper, name in _STEPS:
            inside = [
                each for each in back if lower < (each.seconds(each.since, end) / 3600 or 1e-9) <= upper
            ]
            steps.append((name, inside))
            lower = upper
        highest = max(len(inside) for _, inside in steps)
        plot = [
            Bar(
                name,
                f"{len(inside):,}",
                _percent(len(inside), highest),
                len(inside),
                "",
                self._links.to(f"repair time {name}", inside),
                label=name,
            )
            for name, inside in steps
        ]
        table = []
        for each in repairs(self._history.outages, start, end):
            theirs = (
                o for o in back if o.how == each.how or (o.how.startswith("reset") and each.how == "reset")
            )
            words = how_words(each.how)
            table.append(
                Bar(
                    words,
                    text.hours(each.median_hours),
                    0,
                    len(each.hours),
                    text.hours(each.hours[-1]),
                    self._links.to(words, theirs),
                )
            )
        return plot, table

    def _nothing(self, outages: Sequence[Outage]) -> Bars:
        """Return the faults for which nodes were taken out for nothing."""
        faults = sorted({each.rule for each in outages})
        bars = []
        for rule in faults:
            theirs = [each for each in outages if each.rule == rule]
            link = self._links.to(f"taken out for nothing: {fault_name(rule)}", theirs)
            of = sum(each.rule == rule for each in self._begun(self._failures))
            hours = sum(each.seconds(self._start, self._end) for each in theirs) / 3600
            bars.append(Bar(fault_name(rule), f"{of:,}", 0, len(theirs), amount(hours), link))
        return Bars("Nodes taken out for nothing", "Fault", bars)

    def _rows(self) -> list[Row]:
        history = self._history
        return [
            Row(
                number,
                self._links.groups.get((each.node, each.since), ()),
                each,
                f"{each.since:%Y-%m-%d %H:%M}",
                "" if each.until is None else f"{each.until:%Y-%m-%d %H:%M}",
                text.fault_of(each),
                text.time_out(each, history),
                "" if each.gpus is None else amount(each.seconds(self._start, self._end) / 3600 * each.gpus),
                each.how_ended + ("; failed again" if each.relapse else ""),
            )
            for number, each in enumerate(history.outages, 1)
        ]


def amount(number: float) -> str:
    """Return a number as people read it: ``1,234``, ``56.7``, ``0.4``."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def capital(words: str) -> str:
    """Return the words with a capital letter."""
    return words[:1].upper() + words[1:]


def _calendar(outages: Sequence[Outage], start: datetime, end: datetime, length: timedelta) -> list[Period]:
    """Return the calendar days or weeks of a span, in UTC. The first and the last may be parts."""
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    begin = midnight - (timedelta(days=midnight.weekday()) if length == _WEEK else timedelta(0))
    first = min(begin + length, end)
    return periods(outages, start, first, length) + periods(outages, first, end, length)


def _days(period: Period) -> str:
    """Return the dates of a period: ``on 9 April``, ``from 6 April to 12 April``."""
    last = period.end - timedelta(microseconds=1)
    if last.date() == period.start.date():
        return f"on {period.start:%-d %B}"
    return f"from {period.start:%-d %B} to {last:%-d %B}"


def _is_out(outage: Outage, at: datetime) -> bool:
    """Whether the outage went on at this time, which is no earlier than its begin."""
    return outage.end is End.OUT if outage.until is None else outage.until >= at


def _percent(part: float, of: float) -> float:
    return round(100 * part / of, 2) if of else 0


def _or(words: Sequence[str]) -> str:
    quoted = [f"“{each}”" for each in words]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"
