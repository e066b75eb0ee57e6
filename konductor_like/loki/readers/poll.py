"""One poll: the present first, then the lines of noisy nodes, then a part of the backlog.

Each of these three parts has its own allowance of queries and lines, so that a storm without end cannot keep
late lines from being read. When a part fails, the windows that it had read before count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nlargest
from sys import getsizeof

from konductor_like.loki.query.errors import LOKI_AWAY, LokiError, LokiTimeout
from konductor_like.loki.query.response import log_line, records_in
from konductor_like.loki.query.window_query import (
    STORM_LINES,
    ByteBudget,
    Piece,
    TimeWindow,
    WindowQuery,
    is_complete,
    read_span,
)
from konductor_like.loki.readers.read_state import (
    BUCKET_NS,
    MOST_NODES,
    NEAR_NS,
    DeliveredLines,
    NoisyRead,
    PendingSpan,
    ReaderConfig,
    ReadState,
    Reason,
    line_digest,
    noisy_nodes,
)
from konductor_like.model import Fault, LogLine, Source
from konductor_like.settings import Settings

_QUERIES = 8
"""Queries that each part of a poll may send."""
_ENTRIES = 3_000
"""Entries after which a part of a poll is full."""
_BYTES = 4 * 2**20
"""Bytes of kept text after which a part of a poll is full."""
_ROUNDS = 4
"""Times that the present window is asked for, each time without the noisy nodes found before."""
_FAILURES_MOST = 3
"""Times that a window of the backlog may fail before the poll goes on with the next window."""


@dataclass(slots=True, kw_only=True)
class PollResult:
    """The new lines of one poll, and how the poll went."""

    upto_ns: int = 0
    """Time up to which the source is read in full, never in the future: the cursor after the commit.

    A restart begins here, so it also waits for noisy nodes and for the sweep. Compare ``read_ns``.
    """
    lines: tuple[LogLine, ...] = ()
    """Oldest first within each span that was read."""
    past: tuple[Fault, ...] | None = None
    """Faults from before our start that this poll read again; None when it read nothing of the past."""
    more: bool = False
    """Whether the next poll shall follow after ``wait_seconds``, because there is more to read."""
    wait_seconds: float = 0.0
    slowdown: float = 1.0
    """Factor by which to lengthen the usual time before the next poll, so that the byte budget is kept."""
    failure: LokiError | None = None
    """The error that ended a part of the poll; the next poll reads that part again."""
    read_ns: int | None = None
    """Time up to which everything was read except late lines and the lines of ``noisy_nodes``."""
    queries: int = 0
    bytes_processed: int = 0
    """Bytes that Loki read for the queries."""
    without_node: int = 0
    """New lines without a node's name (rule 12)."""
    foreign: int = 0
    """New entries whose labels belong to the other source; they are not in ``lines`` (rule 15).

    They are normal for pods where the kernel-log reader's own namespace is watched, and unexpected for the
    kernel.
    """
    cursor_ahead_ns: int = 0
    """Nanoseconds by which the cursor was in the future, or 0; the poll then used now as the cursor."""
    noisy_nodes: frozenset[str] = frozenset()
    """Nodes that print more than one answer can contain; their lines are read separately."""
    incomplete_windows: tuple[TimeWindow, ...] = ()
    """Single nanoseconds with more lines than Loki returns; the lines that it did return are in ``lines``."""
    unread: tuple[TimeWindow, ...] = ()
    """Spans that Loki failed to return. The reader asks for them again, and the cursor does not pass them."""
    given_up: tuple[TimeWindow, ...] = ()
    """Unread spans that this poll gave up, because they are too old."""


@dataclass(slots=True)
class Poll:
    """One poll in progress. Its reading methods raise a LokiError when they cannot go on."""

    state: ReadState
    """How far the source is read; each window that was read advances it."""
    now_ns: int
    source: Source
    config: ReaderConfig
    settings: Settings
    query: WindowQuery
    delivered: DeliveredLines
    budget: ByteBudget
    keeps: Callable[[str], bool] | None = None
    """Whether detection finds anything in a text; None where detection needs more than one line."""
    lines: list[LogLine] = field(default_factory=list)
    new: dict[int, int] = field(default_factory=dict)
    """Digest to timestamp of the lines that this poll delivers."""
    expected: dict[int, int] = field(default_factory=dict)
    """Per bucket that was read in full, named by a timestamp in it: the entries that Loki counts in it."""
    read_any: bool = False
    """Whether a window was read in full, so that the poll is worth committing."""
    left_backlog: bool = False
    """Whether the poll left the backlog to the next one, because it has new lines of the present."""
    found: PollResult = field(default_factory=PollResult)
    """The counts of entries that are not delivered, and of unusual ones."""
    _entries: int = 0
    _kept_bytes: int = 0
    _queries_most: int = 0

    def read(self, oldest_ns: int | None, *, past_first: bool, may_leave_backlog: bool) -> LokiError | None:
        """Read what the allowances permit; return the error that ended the poll early, if there was one.

        ``past_first`` is for the first poll after an absence: when the past can be read at once, counts and
        the order of lines are right. ``may_leave_backlog`` lets the poll return new lines without reading the
        backlog; it is False when the previous poll did so, so that two polls in a row never leave the
        backlog.
        """
        read_present = partial(self._read_present, oldest_ns)
        earlier = self._try(self._read_backlog) if past_first else None
        if isinstance(earlier, LOKI_AWAY):
            return earlier
        failure = self._try(read_present)
        if isinstance(failure, LokiTimeout):
            # The window was too wide. Read a narrower, newest part now rather than with the next poll.
            failure = self._try(read_present)
        if failure is not None or past_first:
            return failure or earlier
        if not self.state.pending and not self.state.noisy_reads:
            return None
        if may_leave_backlog and self.lines:
            self.left_backlog = True
            return None
        failure = self._try(self._read_noisy_nodes)
        if isinstance(failure, LOKI_AWAY):
            return failure
        return self._try(self._read_backlog) or failure

    def result(self, cursor_ns: int, failure: LokiError | None) -> PollResult:
        """Return the result for the caller; ``cursor_ns`` is the cursor before this poll."""
        behind = any(noisy_read.reached_ns < self.now_ns for noisy_read in self.state.noisy_reads)
        more = behind or (bool(self.state.pending) and self._may_read_backlog)
        return replace(
            self.found,
            lines=tuple(self.lines),
            upto_ns=min(self.now_ns, self.state.restart_from_ns),
            read_ns=min(self.now_ns, self.state.read_ns),
            more=failure is None and more,
            slowdown=self.budget.slowdown(self.source),
            failure=failure,
            queries=self.query.queries,
            bytes_processed=self.query.bytes_processed,
            cursor_ahead_ns=max(0, cursor_ns - self.now_ns),
            noisy_nodes=self.state.noisy,
            unread=tuple(unread.span for unread in self.state.unread),
            given_up=self.state.given_up,
        )

    def _try(self, read: Callable[[], None]) -> LokiError | None:
        self._entries = self._kept_bytes = 0
        self._queries_most = self.query.queries + _QUERIES
        try:
            read()
        except LokiError as error:
            self.query.failed(error)
            return error
        self.query.succeeded()
        return None

    @property
    def _full(self) -> bool:
        """Whether this part of the poll has used up its allowance."""
        return (
            self._entries >= _ENTRIES
            or self._kept_bytes >= _BYTES
            or self.query.queries >= self._queries_most
        )

    # The present.

    def _read_present(self, oldest_ns: int | None) -> None:
        window, overlap_read = self._present_window(oldest_ns)
        if window.width_ns > self.query.widest_ns:
            # Ask a slow Loki for less at once, and first for the time nearest to now.
            half_ns = self.query.widest_ns // 2
            recent_ns = max(window.start_ns, self.now_ns - half_ns)
            self._add_rest(window.start_ns, recent_ns)
            window = TimeWindow(recent_ns, min(window.end_ns, self.now_ns + half_ns))
        if not self._read_at_once(window):
            self._read_beginning(window)
        overlap_read_at_ns = self.now_ns if overlap_read else self.state.overlap_read_at_ns
        self.state = replace(self.state, present_read_ns=self.now_ns, overlap_read_at_ns=overlap_read_at_ns)

    def _present_window(self, oldest_ns: int | None) -> tuple[TimeWindow, bool]:
        """Return the present window, and whether it counts as a reading of the whole overlap."""
        state, config, now_ns = self.state, self.config, self.now_ns
        end_ns = now_ns + max(1, config.skew_ns)
        rests = [span.end_ns for span in state.pending if span.reason is Reason.REST]
        if rests:
            return TimeWindow(min(max(rests), now_ns), end_ns), False
        if state.overlap_read_at_ns is None:
            return TimeWindow(max(0, now_ns - config.overlap_ns), end_ns), True
        overlap_start_ns = max(0, state.present_read_ns - config.overlap_ns)
        due = not 0 <= now_ns - state.overlap_read_at_ns < config.interval_ns * 3 // 4
        # A full overlap is left to the sweeps, which need not read again what has not grown.
        if due and self.delivered.count(overlap_start_ns, end_ns) <= self.query.limit // 2:
            return TimeWindow(overlap_start_ns, end_ns), True
        start_ns = max(overlap_start_ns, state.present_read_ns - NEAR_NS)
        if oldest_ns is not None and oldest_ns < overlap_start_ns:
            late = PendingSpan(Reason.LATE, max(0, oldest_ns), oldest_ns + NEAR_NS)
            self.state = state.with_span(late)
        elif oldest_ns is not None:
            start_ns = min(start_ns, oldest_ns)
        return TimeWindow(start_ns, end_ns), due

    def _read_at_once(self, window: TimeWindow) -> bool:
        """Read a window with one answer, without its noisy nodes; return False when that fails."""
        for _ in range(_ROUNDS):
            noisy = self.state.noisy
            result = self.query.lines_of(without=noisy)(window)
            if result is None:
                return False
            if is_complete(result):
                self._take(Piece(window, result.entries))
                return True
            noisier = noisy_nodes(result.entries, self.settings.node_label) - noisy
            if not noisier or len(noisy | noisier) > MOST_NODES:
                return False
            # The noisy nodes' lines on this page are not taken: an answer that was cut may have holes.
            self.state = self.state.with_noisy_read(NoisyRead(noisier, window.start_ns))
        return False

    def _read_beginning(self, window: TimeWindow) -> None:
        """Read the beginning of a window that is too much for one answer; the rest goes into the backlog."""
        if any(span.reason is Reason.REST for span in self.state.pending):
            self._add_rest(window.start_ns, max(self.now_ns, window.start_ns + 1))
            return
        upto_ns = window.start_ns
        ask = self.query.lines_of(without=self.state.noisy)
        try:
            for piece in read_span(window, max(1, window.width_ns // 2), self.query.widest_ns, ask):
                self._take(piece)
                upto_ns = piece.window.end_ns
                if self._full:
                    break
        finally:
            if window.start_ns < upto_ns:
                self._add_rest(upto_ns, self.now_ns)

    def _add_rest(self, start_ns: int, end_ns: int) -> None:
        self.state = self.state.with_span(PendingSpan(Reason.REST, start_ns, end_ns, self.state.noisy))

    # Noisy nodes.

    def _read_noisy_nodes(self) -> None:
        for noisy_read in self.state.noisy_reads:
            if not self._full:
                self._read_noisy(noisy_read)

    def _read_noisy(self, noisy_read: NoisyRead) -> None:
        began, start_ns, newest = bool(noisy_read.recent), noisy_read.upto_ns, list[int]()
        most = min(self.query.limit, STORM_LINES) // 2  # so that they and later lines fit into one answer
        widest_ns = self.query.widest_ns
        ask = self.query.lines_of(only=noisy_read.nodes)
        span = TimeWindow(start_ns, max(start_ns, self.now_ns))
        try:
            for piece in read_span(span, noisy_read.width_ns or widest_ns, widest_ns, ask):
                known = len(self.new)
                self._take(piece)
                newest = nlargest(most, (*newest, *(entry.timestamp_ns for entry in piece.entries)))
                # Of lines that may have been counted before, only the new ones count.
                lines = len(self.new) - known if began else len(piece.entries)
                further = noisy_read.read(piece.window.end_ns, lines, piece.next_width_ns)
                if further.upto_ns >= self.now_ns:
                    further = further.again_from(newest[-1] if newest and len(newest) >= most else start_ns)
                self.state, noisy_read = self.state.with_noisy_read(further, instead_of=noisy_read), further
                if self._full:
                    break
        except LokiError as error:
            if not isinstance(error, LOKI_AWAY):
                # A tile that fails delays neither the next tile nor other nodes.
                end_ns = min(self.now_ns, noisy_read.upto_ns + max(1, self.query.asked_ns))
                self._postpone(TimeWindow(noisy_read.upto_ns, end_ns))
                further = noisy_read.read(end_ns, 0, self.query.widest_ns)
                self.state = self.state.with_noisy_read(further, instead_of=noisy_read)
            raise
        if noisy_read.is_over(self.now_ns, self.query.limit):
            self.state = self.state.with_noisy_read(None, instead_of=noisy_read)

    # The backlog.

    @property
    def _may_read_backlog(self) -> bool:
        """Whether the byte budget allows the first span; sweeps and gaps are last in the backlog."""
        return self.state.pending[0].reason not in (Reason.SWEEP, Reason.GAP) or self.budget.allows_sweeps

    def _read_backlog(self) -> None:
        while self.state.pending and not self._full and self._may_read_backlog:
            span = self.state.pending[0]
            try:
                if span.reason is Reason.SWEEP:
                    self._sweep(span)
                else:
                    self._read_upto(span.end_ns)
            except LokiError as error:
                if not isinstance(error, LOKI_AWAY):
                    self._note_failure(self.state.pending[0])
                raise

    def _read_upto(self, end_ns: int) -> bool:
        """Read the first span of the backlog up to ``end_ns``; return whether this poll reached it."""
        span, widest_ns = self.state.pending[0], self.query.widest_ns
        ask = self.query.lines_of(without=span.without)
        for piece in read_span(TimeWindow(span.start_ns, end_ns), span.width_ns or widest_ns, widest_ns, ask):
            self._take(piece)
            span = replace(span, start_ns=piece.window.end_ns, width_ns=piece.next_width_ns, failures=0)
            self.state = self.state.advanced(span)
            if self._full:
                break
        return span.start_ns >= end_ns

    def _note_failure(self, span: PendingSpan) -> None:
        """Count a failure of the span's next window; skip the window when it fails again and again."""
        if span.failures + 1 < _FAILURES_MOST:
            self.state = self.state.advanced(replace(span, failures=span.failures + 1))
            return
        end_ns = min(span.end_ns, span.start_ns + max(1, self.query.asked_ns))
        if span.reason.blocks_cursor:
            self._postpone(TimeWindow(span.start_ns, end_ns), span.waited_ns)
        self.state = self.state.advanced(replace(span, start_ns=end_ns, counted=None, failures=0))

    def _postpone(self, window: TimeWindow, waited_ns: int = 0) -> None:
        self.read_any = True
        self.state = self.state.without_unreadable(window, self.now_ns, waited_ns)

    def _sweep(self, sweep: PendingSpan) -> None:
        """Read one block of a sweep: some whole buckets.

        When many lines of a block were delivered, Loki counts the block's lines first. If it counts no more
        than were delivered, the block has no late line and is not read; otherwise it is halved, down to one
        bucket.
        """
        if sweep.counted is not None:
            self._read_counted_bucket(sweep, sweep.counted)
            return
        widest_ns = self.query.widest_ns
        width_ns = max(BUCKET_NS, min(sweep.width_ns or widest_ns, widest_ns) // BUCKET_NS * BUCKET_NS)
        edge_ns = sweep.start_ns // BUCKET_NS * BUCKET_NS + width_ns
        block = TimeWindow(sweep.start_ns, min(edge_ns, sweep.end_ns))
        known = self.delivered.count(block.start_ns, block.end_ns)
        if known <= self.query.limit // 2 or sweep.start_ns % BUCKET_NS:
            self._read_upto(block.end_ns)
            return
        counted = self.query.count(block)
        if counted == known:
            self.read_any = True
            sweep = replace(sweep, start_ns=block.end_ns, width_ns=2 * block.width_ns)
        elif block.width_ns > BUCKET_NS:
            sweep = replace(sweep, width_ns=block.width_ns // 2)
        else:
            sweep = replace(sweep, counted=counted)
        self.state = self.state.advanced(sweep)

    def _read_counted_bucket(self, sweep: PendingSpan, counted: int) -> None:
        end_ns = min(sweep.end_ns, sweep.start_ns // BUCKET_NS * BUCKET_NS + BUCKET_NS)
        if self._read_upto(end_ns):
            self.expected[end_ns - 1] = counted
            if end_ns < sweep.end_ns:
                self.state = self.state.advanced(replace(self.state.pending[0], counted=None))

    def _take(self, piece: Piece) -> None:
        """Deliver the lines of a window that were not delivered before."""
        self.read_any = True
        self._entries += len(piece.entries)
        if not piece.complete:
            self.found.incomplete_windows += (piece.window,)
        for entry in sorted(piece.entries, key=lambda entry: entry.timestamp_ns):
            digest = line_digest(entry, self.settings)
            if digest in self.new or self.delivered.has(entry.timestamp_ns, digest):
                continue
            self.new[digest] = entry.timestamp_ns
            line = log_line(entry, self.source, self.settings)
            if line is None:
                self.found.foreign += 1
                continue
            self.found.without_node += line.node is None
            if self.keeps is None or self.keeps(line.text):
                self._kept_bytes += getsizeof(line.text)
                self.lines.extend(records_in(line))
