"""One poll in the making: what was read of which window, and how far that takes the reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from sys import getsizeof

from konductor_like.loki.backlog import Flood, PendingSpan, ReadState, added, put_off
from konductor_like.loki.dedup import DeliveredLines, line_digest
from konductor_like.loki.errors import LokiError
from konductor_like.loki.response import Entry, Naming, log_line
from konductor_like.loki.window_query import Piece, Window
from konductor_like.model import Fault, LogLine, Source

_ENTRIES = 3_000
_BYTES = 4 * 2**20
"""So many entries, or so much text that is kept in memory, make a part of a poll full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """What one poll found that was not delivered before."""

    upto_ns: int
    """Where the cursor stands once the batch is committed; never in the future."""
    lines: tuple[LogLine, ...] = ()
    """Oldest first within each span that was read."""
    past: tuple[Fault, ...] | None = None
    """Faults from before our start, of a piece of the past that was read again; None where none was."""
    more: bool = False
    """There is work left; the next poll goes on with it, after ``wait_seconds``."""
    wait_seconds: float = 0.0
    failure: LokiError | None = None
    """What kept a part from being read; that part comes again."""
    read_ns: int | None = None
    """Everything before it was read, but for late lines and those of ``loud_nodes``."""
    queries: int = 0
    bytes_processed: int = 0
    """What Loki had to read for it."""
    duplicates: int = 0
    """Entries that were delivered before, or twice in this poll; the overlap makes many."""
    turned_away: int = 0
    """New lines that detection finds nothing in; they are not in ``lines``."""
    without_node: int = 0
    """How many of the new lines name no node (design rule 12)."""
    foreign: int = 0
    """New entries whose labels say that they are not of this source; not in ``lines`` (design rule 15).

    Everyday for pods where the kernel-log reader's own namespace is watched; strange for the kernel.
    """
    cursor_ahead_ns: int = 0
    """How far the cursor stood in the future, 0 when it did not; it was taken for now."""
    loud_nodes: frozenset[str] = frozenset()
    """Nodes that print so much that their lines are read by themselves."""
    incomplete_windows: tuple[Window, ...] = ()
    """Single nanoseconds with more lines than Loki gives out; what could be had is in ``lines``."""
    unread: tuple[Window, ...] = ()
    """Spans that Loki could not give; they are asked for again, and the cursor does not pass them."""
    given_up: tuple[Window, ...] = ()
    """Those that were let go of with this poll, because they are too old."""


@dataclass(slots=True)
class Poll:
    """What the windows of one poll add up to; :meth:`as_batch` makes the result of it."""

    progress: ReadState
    source: Source
    naming: Naming
    seen: DeliveredLines
    keeps: Callable[[str], bool] | None = None
    """Whether detection finds anything in a text; None where that takes more than one line."""
    given_up: tuple[Window, ...] = ()
    entries: int = 0
    kept_bytes: int = 0
    duplicates: int = 0
    foreign: int = 0
    turned_away: int = 0
    nodeless: int = 0
    moved: bool = False
    """Something was read in full, so that the poll is worth committing."""
    lines: list[LogLine] = field(default_factory=list)
    incomplete: list[Window] = field(default_factory=list)
    new: dict[int, int] = field(default_factory=dict)
    """Digest to timestamp of what is delivered."""
    expected: dict[int, int] = field(default_factory=dict)
    """A timestamp in a bucket that was read in full, to how many entries Loki counts there."""
    hurried: bool = False
    """The work was left for the next poll."""
    batch: PollResult | None = None

    def begin(self) -> None:
        """Another part of the poll begins, with an allowance of its own."""
        self.entries = self.kept_bytes = 0

    @property
    def full(self) -> bool:
        """Whether this part has read enough for one batch."""
        return self.entries >= _ENTRIES or self.kept_bytes >= _BYTES

    def take(self, piece: Piece) -> None:
        """Deliver what is new in a window."""
        self.moved = True
        self.entries += len(piece.entries)
        if not piece.complete:
            self.incomplete.append(piece.window)
        for entry in sorted(piece.entries, key=_time):
            digest = line_digest(entry, self.naming)
            if digest in self.new or self.seen.has(entry.timestamp_ns, digest):
                self.duplicates += 1
                continue
            self.new[digest] = entry.timestamp_ns
            line = log_line(entry, self.source, self.naming)
            if line is None:
                self.foreign += 1
                continue
            self.nodeless += line.node is None
            if self.keeps is not None and not self.keeps(line.text):
                self.turned_away += 1
            else:
                self.kept_bytes += getsizeof(line.text)
                self.lines.append(line)

    def add(self, work: PendingSpan) -> None:
        """There is more to read."""
        self.progress = replace(self.progress, work=added(self.progress.work, work))

    def advance(self, work: PendingSpan) -> None:
        """The first piece of work came so far; it is dropped when it is done."""
        rest = self.progress.work[1:]
        self.progress = replace(self.progress, work=(work, *rest) if work.start_ns < work.end_ns else rest)

    def put_off(self, span: Window, now_ns: int, waited_ns: int = 0) -> None:
        """Loki could not give this span."""
        self.moved = True
        self.progress = put_off(self.progress, span, now_ns, waited_ns)

    def flood(self, new: Flood | None, instead_of: Flood | None = None) -> None:
        """A flood began, came further (``instead_of`` what it was), or is over (``new`` is None)."""
        floods = tuple(flood for flood in self.progress.floods if flood is not instead_of)
        self.progress = replace(self.progress, floods=floods if new is None else (*floods, new))

    def as_batch(
        self,
        now_ns: int,
        *,
        queries: int,
        bytes_processed: int,
        cursor_ahead_ns: int,
        may_work: bool,
        failure: LokiError | None,
    ) -> PollResult:
        """What the caller gets."""
        behind = any(flood.reached_ns < now_ns for flood in self.progress.floods)
        return PollResult(
            lines=tuple(self.lines),
            upto_ns=min(now_ns, self.progress.durable_ns()),
            more=failure is None and (behind or may_work),
            queries=queries,
            bytes_processed=bytes_processed,
            duplicates=self.duplicates,
            incomplete_windows=tuple(self.incomplete),
            without_node=self.nodeless,
            foreign=self.foreign,
            read_ns=min(now_ns, self.progress.read_ns()),
            turned_away=self.turned_away,
            unread=tuple(unread.span for unread in self.progress.unread),
            given_up=self.given_up,
            cursor_ahead_ns=cursor_ahead_ns,
            loud_nodes=self.progress.loud,
            failure=failure,
        )


def _time(entry: Entry) -> int:
    return entry.timestamp_ns
