"""Reads what happened: the trail from Loki, within the query budget, and the records from the Nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from konductor_like.history.outages import End, Ledger, Outage
from konductor_like.history.trail import TrailLine, parse, trail_query
from konductor_like.loki.query.errors import LokiError
from konductor_like.loki.query.logql import kernel_matchers
from konductor_like.loki.query.patient import PatientReader
from konductor_like.loki.query.response import is_kernel_stream
from konductor_like.loki.query.window_query import ByteBudget, Queries, TimeWindow, WindowQuery
from konductor_like.model import NodeState, Source
from konductor_like.model.time import SECOND_NS, moment_of, unix_ns
from konductor_like.settings import Settings

TRAIL_WIDEST_NS = 24 * 3600 * SECOND_NS
"""Nanoseconds of the widest query. The trail is one small stream: a day of it is one answer."""


@dataclass(slots=True)
class TrailReading:
    """How the reading of the trail went."""

    start: datetime
    end: datetime
    lines: int = 0
    first_at: datetime | None = None
    """The time of the first line of the trail; None without a line."""
    read_until: datetime | None = None
    """Up to when Loki was read; None if nothing was read."""
    problem: str = ""
    """Why the reading ended early; empty if it did not."""
    queries: int = 0
    bytes_processed: int = 0
    waited_seconds: float = 0.0
    incomplete: int = 0

    @property
    def begins_late(self) -> bool:
        """Whether the first line is so late that Loki may have kept no earlier ones."""
        least = min(timedelta(days=1), max(timedelta(minutes=10), (self.end - self.start) / 10))
        return self.first_at is not None and self.first_at - self.start > least

    @property
    def is_whole(self) -> bool:
        """Whether Loki was read to the end."""
        return self.read_until == self.end


@dataclass(slots=True)
class TrailReader:
    """Reads the trail of one controller. ``reading`` tells how it goes."""

    loki: Queries
    settings: Settings
    namespace: str
    """The controller's namespace: no line of another one counts."""
    reading: TrailReading
    pause: Callable[[float], object]
    tell: Callable[[str], object] = lambda _: None
    progress: Callable[[int], object] = lambda _: None
    """Called with the time (ns) up to which the trail was read."""

    def lines(self) -> Iterator[TrailLine]:
        """Yield the lines in the order of time. A failure of Loki ends them, and ``reading`` tells it."""
        reading, settings = self.reading, self.settings
        query = trail_query(settings.namespace_label, self.namespace, settings.extra_matchers)
        asking = WindowQuery(self.loki, query, settings, TRAIL_WIDEST_NS, source=Source.POD)
        budget = ByteBudget(settings.loki_budget_mib_per_minute * 2**20)
        patient = PatientReader(asking, budget, reading, self.pause, self.tell)
        kernel = kernel_matchers(settings.kernel_selector, settings.extra_matchers)
        try:
            for piece in patient.pieces(TimeWindow(unix_ns(reading.start), unix_ns(reading.end))):
                for entry in sorted(piece.entries, key=lambda each: each.timestamp_ns):
                    line = None if is_kernel_stream(entry.labels, kernel) else parse(entry)
                    if line is not None:
                        reading.lines += 1
                        reading.first_at = reading.first_at or line.logged_at
                        yield line
                reading.read_until = moment_of(piece.window.end_ns)
                self.progress(piece.window.end_ns)
        except LokiError as error:
            reading.problem = str(error)


@dataclass(frozen=True, slots=True)
class History:
    """The outages of a span, and how much is known of them."""

    start: datetime
    end: datetime
    outages: tuple[Outage, ...]
    """The outages of which a part lies in the span, in the order of their begin."""
    fleet: Mapping[str, NodeState]
    """The GPU nodes of today."""
    trail: TrailReading
    missing_in_records: tuple[Outage, ...] = ()
    older_lines: int = 0
    """Lines of a controller of an earlier build, which name no time out of service."""
    problem: str = ""
    """Why the Nodes could not be read; empty if they were."""
    is_up_to_now: bool = True
    """Whether the span ends now."""
    unexplained: tuple[str, ...] = ()
    """The nodes that have our taint now, and of which nothing tells since when."""
    unknown_names: tuple[str, ...] = ()
    """The names that a person gave and that neither a Node nor an outage has."""

    def of_gpu(self, name: str) -> History:
        """Return the history with the outages of one GPU alone; see :meth:`Outage.is_of_gpu`."""
        mine, missing = (
            tuple(each for each in outages if each.is_of_gpu(name))
            for outages in (self.outages, self.missing_in_records)
        )
        return replace(self, outages=mine, missing_in_records=missing, fleet={}, unexplained=())

    @property
    def only_in_records(self) -> tuple[Outage, ...]:
        """The outages that began in the span and of which the trail has no line."""
        return tuple(each for each in self.outages if not each.in_trail and each.since >= self.start)

    @property
    def differing(self) -> tuple[Outage, ...]:
        """The outages of which trail and record tell different ends."""
        return tuple(each for each in self.outages if each.differs)


@dataclass(slots=True)
class Collector:
    """Puts together a :class:`History`."""

    trail: TrailReading
    ledger: Ledger = field(default_factory=Ledger)

    def take(self, lines: Iterable[TrailLine]) -> None:
        """Take lines of the trail."""
        for line in lines:
            self.ledger.add(line)

    def history(
        self,
        states: Mapping[str, NodeState],
        names: Iterable[str] = (),
        problem: str = "",
        *,
        is_up_to_now: bool = True,
    ) -> History:
        """Return the history, of the nodes with these names or of all; ``states`` are the Nodes of today."""
        start, end, chosen = self.trail.start, self.trail.end, set(names)
        for state in states.values():
            self.ledger.add_node(state)
        found = [
            each for each in self.ledger.outages(chosen or None) if each.since < end and _reaches(each, start)
        ]
        fleet = {
            name: state
            for name, state in states.items()
            if state.is_gpu_node and (not chosen or name in chosen)
        }
        missing = tuple(self.ledger.missing_in_records(found))
        return History(
            *(start, end, tuple(found), fleet, self.trail),
            missing_in_records=missing,
            older_lines=self.ledger.older_lines,
            problem=problem,
            is_up_to_now=is_up_to_now,
            unexplained=tuple(name for name in self.ledger.unexplained if not chosen or name in chosen),
            unknown_names=tuple(sorted(chosen - states.keys() - self.ledger.nodes)),
        )


def _reaches(outage: Outage, start: datetime) -> bool:
    if outage.end is End.OUT:
        return True
    return (outage.until or outage.last_told or outage.since) >= start
