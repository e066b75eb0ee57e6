"""Reads one node's kernel log around an outage from Loki, within the query budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from konductor_like.detection import Detector
from konductor_like.detection.heartbeat import OVERRUN_ANCHOR, parse_heartbeat, parse_overrun
from konductor_like.history.outages import Outage
from konductor_like.loki.query.errors import LokiError
from konductor_like.loki.query.logql import kernel_matchers, kernel_query, of_nodes, selector
from konductor_like.loki.query.patient import WIDEST_NS, PatientReader
from konductor_like.loki.query.response import Entry, is_kernel_stream
from konductor_like.loki.query.window_query import ByteBudget, Queries, TimeWindow, WindowQuery
from konductor_like.model import Finding, Incident, Source
from konductor_like.model.time import span_ns, unix_ns
from konductor_like.settings import Settings

AROUND = timedelta(minutes=10)
"""Time before and after the begin of an outage, and of its fault, of which all lines are read."""
FARTHEST = timedelta(days=1)
"""Time before an outage in which the first line of its fault may be: thresholds look back a day at most."""
LINES_MOST = 50_000
"""Lines that are kept. A line has 32 KiB at most, and 300 bytes as a rule."""
BYTES_MOST = 16 * 2**20
"""Characters of all lines that are kept."""


@dataclass(frozen=True, slots=True)
class KernelSpan:
    """A span of the kernel log to read."""

    window: TimeWindow
    whole: bool
    """Whether all lines are read; else only those that may report a fault."""


def spans_around(outage: Outage, fault: Incident | None, now: datetime) -> tuple[KernelSpan, ...]:
    """Return the spans to read, in order: all lines ten minutes around the begin of outage and fault.

    Of the rest of the time between the first and the last line of the fault, only lines that may report a
    fault are read. ``fault`` is the incident on the record that the outage is about, if it is still there.
    """
    begin_ns, now_ns, around_ns = unix_ns(outage.since), unix_ns(now), span_ns(AROUND.total_seconds())
    until_ns = unix_ns(outage.until or now)
    moments = [begin_ns]
    first_ns = last_ns = begin_ns
    if fault is not None:
        first_ns = max(fault.first_ns, begin_ns - span_ns(FARTHEST.total_seconds()))
        first_ns = min(first_ns, begin_ns)
        last_ns = max(begin_ns, min(fault.last_ns, until_ns, begin_ns + span_ns(FARTHEST.total_seconds())))
        moments = [first_ns, begin_ns]
    spans: list[KernelSpan] = []
    reached_ns = first_ns - around_ns
    for moment_ns in moments:
        start_ns, end_ns = max(reached_ns, moment_ns - around_ns), min(now_ns, moment_ns + around_ns)
        if start_ns > reached_ns:
            spans.append(KernelSpan(TimeWindow(reached_ns, start_ns), whole=False))
        if end_ns > start_ns:
            spans.append(KernelSpan(TimeWindow(start_ns, end_ns), whole=True))
            reached_ns = end_ns
    if last_ns >= reached_ns:
        spans.append(KernelSpan(TimeWindow(reached_ns, last_ns + 1), whole=False))
    return tuple(spans)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line of the kernel log, as Loki has it, and the fault that it reports."""

    at_ns: int
    text: str
    finding: Finding | None = None


@dataclass(slots=True)
class KernelReading:
    """The lines, and how the reading went."""

    spans: tuple[KernelSpan, ...]
    lines: list[KernelLine] = field(default_factory=list)
    overruns: int = 0
    """Records that the kernel overwrote before they were read."""
    problem: str = ""
    """Why the reading ended early; empty if it did not."""
    cut: bool = False
    """Whether there were more lines than are kept."""
    queries: int = 0
    bytes_processed: int = 0
    waited_seconds: float = 0.0
    incomplete: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether Loki was read to the end, and every line was kept."""
        return not (self.problem or self.cut or self.incomplete)


@dataclass(slots=True)
class KernelReader:
    """Reads the kernel log of one node."""

    loki: Queries
    settings: Settings
    detector: Detector
    budget: ByteBudget
    pause: Callable[[float], object]
    tell: Callable[[str], object] = lambda _: None

    def read(self, node: str, spans: Iterable[KernelSpan]) -> KernelReading:
        """Read the spans. A failure of Loki ends the reading, and the result tells it."""
        reading = KernelReading(tuple(spans))
        size = 0
        try:
            for entry in self._entries(node, reading):
                if parse_heartbeat(entry.text) is not None:
                    continue  # it is no line of the kernel log
                if OVERRUN_ANCHOR in entry.text and (overrun := parse_overrun(entry.text)):
                    reading.overruns += overrun.lost if overrun.first else 0
                size += len(entry.text)
                if len(reading.lines) >= LINES_MOST or size > BYTES_MOST:
                    reading.cut = True
                    return reading
                finding = self.detector.find(entry.text, Source.KERNEL)
                reading.lines.append(KernelLine(entry.timestamp_ns, entry.text, finding))
        except LokiError as error:
            reading.problem = str(error)
        return reading

    def _entries(self, node: str, reading: KernelReading) -> Iterator[Entry]:
        settings = self.settings
        matchers = kernel_matchers(settings.kernel_selector, settings.extra_matchers)
        faults = kernel_query(settings, self.detector.anchors(Source.KERNEL))
        for span in reading.spans:
            query = of_nodes(selector(matchers) if span.whole else faults, settings.node_label, [node])
            asking = WindowQuery(self.loki, query, settings, WIDEST_NS)
            patient = PatientReader(asking, self.budget, reading, self.pause, self.tell)
            for piece in patient.pieces(span.window):
                for entry in sorted(piece.entries, key=lambda each: each.timestamp_ns):
                    if is_kernel_stream(entry.labels, matchers) and _is_of(entry, node, settings):
                        yield entry


def _is_of(entry: Entry, node: str, settings: Settings) -> bool:
    return entry.labels.get(settings.node_label) == node
