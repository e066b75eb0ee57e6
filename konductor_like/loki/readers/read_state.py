"""How far a source is read, as values: the spans that are still to be read, and the lines delivered.

A node is noisy while it prints more lines than one answer can contain. Noisy nodes are read separately, so
that they hide no other node's line (rule 10). The first page of a window that is too large for one answer
shows which nodes they are without another query, since most of its lines are theirs. The rest of the window
is read without them, and their own lines follow in order, page by page.

A delivered line is remembered as a digest of eight bytes, in sorted arrays per bucket (:data:`BUCKET_NS`):
half a million lines of a storm take four megabytes. Two different lines of one bucket share a digest once in
some 10^19 pairs.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import merge
from typing import Self

from konductor_like.loki.query.response import Entry
from konductor_like.loki.query.window_query import TimeWindow
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS, span_ns
from konductor_like.settings import Settings

BUCKET_NS = 10_000_000_000
"""Nanoseconds of a bucket, ten seconds. Digests of delivered lines are kept, counted and forgotten per
bucket."""
MOST_DIGESTS = 500_000
"""Digests that are kept. Beyond it the oldest buckets keep only their count; their lines may come twice."""
_POD_UID = "k8s_pod_uid"
_RESTART_COUNT = "k8s_container_restart_count"
NEAR_NS = 10 * SECOND_NS
"""Nanoseconds that a poll looks back when it does not read the whole overlap."""
RETRY_FIRST_NS = 15 * SECOND_NS
"""Nanoseconds before an unreadable span is tried again; the wait doubles after each further failure."""
RETRY_MOST_NS = 600 * SECOND_NS
UNREAD_MOST = 50
"""Unread spans that are kept apart; more are joined into one, with what was read between them."""
MOST_NODES = 200
"""Noisy nodes at once. With more, noise is no exception, and Loki cannot parse a query with all their
names."""
_NOISY_SHARE = 50
"""A node is noisy when it printed one in this number of lines of a full page, 2 %."""
_QUIET_SPAN_NS = 30 * SECOND_NS
"""Nanoseconds in which a noisy node must print little before it is read with all others again."""
_ARRIVED_NS = 10 * SECOND_NS
"""Age in nanoseconds from which lines are usually in Loki; sweeps find the later ones."""
KERNEL_OVERLAP_SECONDS, POD_OVERLAP_SECONDS = 180.0, 15.0
POD_LATENESS_SECONDS = 900.0
SWEEP_LEAST_SECONDS, SWEEPS_PER_LATENESS, POD_SWEEP_SECONDS = 120.0, 30, 1200.0
FUTURE_SKEW_SECONDS = 600.0
"""Seconds by which a node's clock may be ahead: Loki accepts no line that is further ahead."""
_WIDEST_NS = 3600 * SECOND_NS
"""Nanoseconds of a catch-up's windows, unless a usual poll needs wider ones."""


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """The spans and intervals by which a source is read, in nanoseconds."""

    overlap_ns: int
    """The overlap: the span before the cursor that each poll may read again."""
    lateness_ns: int
    """The lateness: a line that comes this late is still found, by a sweep or after a restart."""
    skew_ns: int
    """The span after our present in which lines are read already, because a node's clock may be ahead."""
    widest_ns: int
    """The widest window of a single query; a usual poll fits into one."""
    interval_ns: int = 5 * SECOND_NS
    """Time between two polls that read the whole overlap."""
    sweep_every_ns: int = 120 * SECOND_NS
    """Time between two sweeps."""
    revisit_every_ns: int = 600 * SECOND_NS
    """Time between two readings of an open gap."""
    give_up_ns: int = 86_400 * SECOND_NS
    """Age at which a span that Loki failed to return is given up."""

    @classmethod
    def of(cls, settings: Settings, source: Source) -> Self:
        """Return the config of a source from the settings."""
        kernel = source is Source.KERNEL
        overlap_ns = span_ns(KERNEL_OVERLAP_SECONDS if kernel else POD_OVERLAP_SECONDS)
        lateness_ns = span_ns(settings.lateness_seconds if kernel else POD_LATENESS_SECONDS)
        interval_ns = span_ns(
            settings.poll_interval_seconds if kernel else settings.pod_poll_interval_seconds
        )
        sweep_seconds = POD_SWEEP_SECONDS
        if kernel:
            sweep_seconds = max(SWEEP_LEAST_SECONDS, settings.lateness_seconds / SWEEPS_PER_LATENESS)
        skew_ns = span_ns(FUTURE_SKEW_SECONDS)
        return cls(
            overlap_ns=overlap_ns,
            lateness_ns=max(overlap_ns, lateness_ns),
            skew_ns=skew_ns,
            widest_ns=max(_WIDEST_NS, overlap_ns + skew_ns + 2 * interval_ns),
            interval_ns=interval_ns,
            sweep_every_ns=span_ns(sweep_seconds),
            give_up_ns=span_ns(settings.gap_max_age_seconds),
        )


@dataclass(frozen=True, slots=True)
class NoisyRead:
    """The separate reading of some noisy nodes' lines, tile by tile; the next tile begins at ``upto_ns``.

    A tile is a span that is read in one piece, and the next tile begins where it ended. The present is the
    exception: the last tile's end is read again, because lines reach Loki some seconds after their time.
    ``recent`` has the end of each recent tile and its number of lines, which show when the nodes are quiet.
    """

    nodes: frozenset[str]
    upto_ns: int
    recent: tuple[tuple[int, int], ...] = ()
    width_ns: int = 0
    """The width of the next tile at most; 0 means no limit."""

    @property
    def reached_ns(self) -> int:
        """Return the time up to which tiles were asked for."""
        return self.recent[-1][0] if self.recent else self.upto_ns

    def read(self, end_ns: int, lines: int, width_ns: int) -> Self:
        """Return the state after one more tile of ``lines`` lines; the next may be ``width_ns`` wide."""
        kept = [tile for tile in self.recent if tile[0] > end_ns - _QUIET_SPAN_NS]
        return replace(self, upto_ns=end_ns, recent=(*kept, (end_ns, lines)), width_ns=width_ns)

    def again_from(self, timestamp_ns: int) -> Self:
        """Return the state that reads again what may be late, but nothing before ``timestamp_ns``."""
        return replace(self, upto_ns=max(self.upto_ns - _ARRIVED_NS, timestamp_ns))

    def is_over(self, now_ns: int, limit: int) -> bool:
        """Whether the nodes are read to the present and quiet, and so can be read with all others."""
        lately = sum(lines for end_ns, lines in self.recent if end_ns > now_ns - _QUIET_SPAN_NS)
        return bool(self.recent) and self.reached_ns >= now_ns and lately <= limit // 4


def noisy_nodes(page: Iterable[Entry], node_label: str) -> frozenset[str]:
    """Return the nodes that fill a page that was not complete; ``""`` means lines without a node."""
    counts = Counter(entry.labels.get(node_label, "") for entry in page)
    least = max(2, counts.total() // _NOISY_SHARE)
    return frozenset(node for node, count in counts.most_common(MOST_NODES) if count >= least)


class Reason(StrEnum):
    """The reason to read a span, the most urgent first."""

    CATCH_UP = "catch-up"
    """The span was never read: the controller or Loki was away."""
    REST = "rest"
    """The span is the end of a window that was too much for one poll."""
    UNREAD = "unread"
    """Loki failed to return the span, although it returns the present."""
    LATE = "late"
    """A nudge of Loki's tail reported a line there."""
    SWEEP = "sweep"
    """A sweep: the span was read before, and is read again because lines may have come late.

    A sweep reads in blocks, which are spans of whole buckets that are read or counted with one query.
    """
    GAP = "gap"
    """Some nodes sent nothing in the span, and their lines may still come."""

    @property
    def blocks_cursor(self) -> bool:
        """Whether the saved cursor must not pass the span."""
        return self in (Reason.CATCH_UP, Reason.REST, Reason.UNREAD)


_URGENCY = list(Reason)


@dataclass(frozen=True, slots=True)
class PendingSpan:
    """A span to be read in full from its start on, except the noisy nodes in ``without``."""

    reason: Reason
    start_ns: int
    end_ns: int
    without: frozenset[str] = frozenset()
    width_ns: int = 0
    """The width of the next window at most; 0 means no limit."""
    counted: int | None = None
    """Loki's count of lines in the first bucket, which is being read because of that count; None
    otherwise."""
    failures: int = 0
    """Failures of the next window in a row."""
    waited_ns: int = 0
    """Nanoseconds of the latest wait of a span that could not be read."""


@dataclass(frozen=True, slots=True)
class UnreadSpan:
    """A span that Loki failed to return; it is tried again at ``retry_ns``, after ``waited_ns``."""

    span: TimeWindow
    retry_ns: int
    waited_ns: int


@dataclass(frozen=True, slots=True)
class ReadState:
    """How far a source is read.

    Until a running sweep is done, the saved cursor must not pass ``unswept_ns``: a restart looks back from
    the cursor by the lateness only, and would otherwise miss the late lines that the sweep has yet to find.
    """

    cursor_ns: int
    present_read_ns: int
    """Time up to which the present was read."""
    overlap_read_at_ns: int | None = None
    """When the whole overlap was last read; None when the next poll shall read it."""
    swept_ns: int | None = None
    """When the latest sweep began; None before the first poll."""
    unswept_ns: int = 0
    pending: tuple[PendingSpan, ...] = ()
    """The most urgent first."""
    noisy_reads: tuple[NoisyRead, ...] = ()
    unread: tuple[UnreadSpan, ...] = ()
    given_up: tuple[TimeWindow, ...] = ()
    """Unread spans that have just become too old."""
    revisited_ns: Mapping[TimeWindow, int] = field(default_factory=dict)
    """When each open gap was last read."""

    @property
    def noisy(self) -> frozenset[str]:
        """Return the nodes that are read separately."""
        return frozenset(node for noisy_read in self.noisy_reads for node in noisy_read.nodes)

    @property
    def read_ns(self) -> int:
        """Return the time up to which everything was read except late lines and those of noisy nodes."""
        bounds = [span.start_ns for span in self.pending if span.reason.blocks_cursor]
        return min([self.present_read_ns, *bounds, *(unread.span.start_ns for unread in self.unread)])

    @property
    def restart_from_ns(self) -> int:
        """Return the time from which a restart finds every line not read yet; it never goes back."""
        bounds = [noisy_read.reached_ns for noisy_read in self.noisy_reads]
        bounds += [self.unswept_ns for span in self.pending if span.reason is Reason.SWEEP]
        return max(self.cursor_ns, min([self.read_ns, *bounds]))

    def reread_from_ns(self, config: ReaderConfig) -> int:
        """Return the time before which nothing is read a second time, except gaps."""
        swept_ns = self.present_read_ns if self.swept_ns is None else self.swept_ns
        starts = [span.start_ns for span in self.pending if span.reason is not Reason.GAP]
        starts += [unread.span.start_ns for unread in self.unread]
        # A catch-up also reads noisy nodes, whose separate reading reaches those lines later.
        starts += [noisy_read.upto_ns for noisy_read in self.noisy_reads]
        return min([_floor(swept_ns - config.lateness_ns), self.present_read_ns - config.overlap_ns, *starts])

    def gaps_to_reread(self) -> list[TimeWindow]:
        """Return the gaps that will be read again."""
        gaps = [span for span in self.pending if span.reason is Reason.GAP]
        pending = [TimeWindow(gap.start_ns, gap.end_ns) for gap in gaps]
        return [*self.revisited_ns, *pending]

    def with_span(self, new: PendingSpan) -> Self:
        """Return the state with one more span to read, joined with spans of the same reason that touch it."""
        if new.start_ns >= new.end_ns:
            return self
        apart = []
        for span in self.pending:
            if span.reason is new.reason and _touch(span, new):
                start_ns, end_ns = min(span.start_ns, new.start_ns), max(span.end_ns, new.end_ns)
                without = span.without & new.without
                new = replace(new, start_ns=start_ns, end_ns=end_ns, without=without)
            else:
                apart.append(span)
        if len(apart) < len(self.pending):
            return replace(self, pending=tuple(apart)).with_span(new)
        pending = sorted((*apart, new), key=lambda span: (_URGENCY.index(span.reason), span.start_ns))
        return replace(self, pending=tuple(pending))

    def advanced(self, first: PendingSpan) -> Self:
        """Return the state with ``first`` in place of the first span; a finished one is dropped."""
        rest = self.pending[1:]
        return replace(self, pending=(first, *rest) if first.start_ns < first.end_ns else rest)

    def with_noisy_read(self, new: NoisyRead | None, instead_of: NoisyRead | None = None) -> Self:
        """Replace the reading ``instead_of``, if any, by ``new``; a ``new`` of None ends it."""
        noisy_reads = tuple(noisy_read for noisy_read in self.noisy_reads if noisy_read is not instead_of)
        return replace(self, noisy_reads=noisy_reads if new is None else (*noisy_reads, new))

    def without_unreadable(self, span: TimeWindow, now_ns: int, waited_ns: int = 0) -> Self:
        """Set an unreadable span aside for a while; ``waited_ns`` is the wait before this one, at first 0."""
        wait_ns = min(max(RETRY_FIRST_NS, 2 * waited_ns), RETRY_MOST_NS)
        others = [other for other in self.unread if not _touch(other.span, span)]
        if len(others) >= UNREAD_MOST:
            others = []
        joined = [span, *(other.span for other in self.unread if other not in others)]
        whole = TimeWindow(min(span.start_ns for span in joined), max(span.end_ns for span in joined))
        unread = (*others, UnreadSpan(whole, now_ns + wait_ns, wait_ns))
        return replace(self, unread=tuple(sorted(unread, key=lambda unread: unread.span.start_ns)))


def planned(state: ReadState, config: ReaderConfig, gaps: Collection[TimeWindow], now_ns: int) -> ReadState:
    """Return the state with the spans due at ``now_ns``. If the clock stepped back, so does the cursor."""
    present_read_ns = min(state.present_read_ns, now_ns)
    state = replace(
        state, cursor_ns=min(state.cursor_ns, now_ns), present_read_ns=present_read_ns, given_up=()
    )
    swept_ns = state.swept_ns
    if swept_ns is None or now_ns < swept_ns - NEAR_NS:
        # Everything that may have come since the previous reader's last sweep, its unread spans included.
        start_ns = max(0, state.cursor_ns - config.lateness_ns - config.sweep_every_ns)
        begun = replace(
            state, pending=(), noisy_reads=(), unread=(), overlap_read_at_ns=None, swept_ns=now_ns
        )
        return begun.with_span(PendingSpan(Reason.CATCH_UP, start_ns, now_ns - config.overlap_ns))
    if now_ns - present_read_ns > config.overlap_ns + 2 * config.interval_ns + NEAR_NS:
        # As after a start: the saved cursor must not pass late lines of that time, and a sweep would let it.
        start_ns = max(0, present_read_ns - config.lateness_ns)
        missed = PendingSpan(Reason.CATCH_UP, start_ns, now_ns - config.overlap_ns)
        state = replace(state.with_span(missed), overlap_read_at_ns=None)
    if state.unread:
        state = _retrying_unread(state, config, now_ns)
    since_ns = now_ns - swept_ns
    if since_ns >= config.sweep_every_ns and all(s.reason is not Reason.SWEEP for s in state.pending):
        # A line may come just after the last sweep had passed its time, and be as late as the lateness.
        start_ns, end_ns = _floor(swept_ns - config.lateness_ns), _floor(now_ns - NEAR_NS)
        state = state.with_span(PendingSpan(Reason.SWEEP, start_ns, end_ns))
        state = replace(state, swept_ns=now_ns, unswept_ns=swept_ns + config.sweep_every_ns)
    return _revisiting(state, config, gaps, now_ns) if gaps or state.revisited_ns else state


def _retrying_unread(state: ReadState, config: ReaderConfig, now_ns: int) -> ReadState:
    """Ask again for the unread spans that are due; give up those that are too old."""
    waiting, given_up = list[UnreadSpan](), list[TimeWindow]()
    for unread in state.unread:
        if unread.span.end_ns <= now_ns - config.give_up_ns:
            given_up.append(unread.span)
        elif now_ns >= unread.retry_ns or unread.retry_ns - now_ns > unread.waited_ns:  # or a clock set back
            half_ns = max(1, unread.span.width_ns // 2)
            again = PendingSpan(Reason.UNREAD, unread.span.start_ns, unread.span.end_ns, width_ns=half_ns)
            state = state.with_span(replace(again, waited_ns=unread.waited_ns))
        else:
            waiting.append(unread)
    return replace(state, unread=tuple(waiting), given_up=tuple(given_up))


def _revisiting(state: ReadState, config: ReaderConfig, gaps: Iterable[TimeWindow], now_ns: int) -> ReadState:
    """Read open gaps from time to time, and each gap again after it was closed."""
    open_gaps = {gap for gap in gaps if gap.width_ns > 0}
    known = state.revisited_ns
    closed = [gap for gap in known if gap not in open_gaps]
    due = [gap for gap in open_gaps if now_ns - known.get(gap, 0) >= config.revisit_every_ns]
    for gap in (*closed, *due):
        state = state.with_span(PendingSpan(Reason.GAP, _floor(gap.start_ns), gap.end_ns))
    kept = {gap: known[gap] for gap in open_gaps if gap in known}
    return replace(state, revisited_ns={**kept, **dict.fromkeys(due, now_ns)})


def _touch(one: TimeWindow | PendingSpan, other: TimeWindow | PendingSpan) -> bool:
    return one.start_ns <= other.end_ns and other.start_ns <= one.end_ns


def _floor(timestamp_ns: int) -> int:
    return max(0, timestamp_ns // BUCKET_NS * BUCKET_NS)


def line_digest(entry: Entry, settings: Settings) -> int:
    """Return a digest that two entries share exactly when they are the same line of the same origin.

    The origin is the container's instance and not all labels, because a line that was shipped twice differs
    in what the collector adds, such as ``observed_timestamp``. Without a node's name, all labels together are
    the origin.
    """
    labels = entry.labels
    if labels.get(settings.node_label):
        place = (settings.node_label, settings.namespace_label, settings.pod_label, settings.container_label)
        origin = [labels.get(name, "") for name in (*place, _POD_UID, _RESTART_COUNT)]
    else:
        origin = [part for pair in sorted(labels.items()) for part in pair]
    # The lengths keep neighbouring parts apart: "ab", "c" is not "a", "bc".
    parts = [str(entry.timestamp_ns), *origin, entry.text]
    lengths = ",".join([str(len(part)) for part in parts])
    digest = hashlib.blake2b("".join([lengths, ";", *parts]).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


@dataclass(slots=True)
class _Bucket:
    """The digests of one bucket: sorted runs, each at most half as long as the one before it."""

    runs: list[array[int]] = field(default_factory=list)
    length: int = 0
    surplus: int = 0
    """Entries that Loki counts beyond the distinct ones, such as copies of a line."""
    dropped: bool = False
    """Whether only the count is left."""

    def has(self, digest: int) -> bool:
        for run in self.runs:
            at = bisect_left(run, digest)
            if at < len(run) and run[at] == digest:
                return True
        return False

    def add(self, digests: Collection[int]) -> None:
        self.length += len(digests)
        if self.dropped:
            return
        run = array("Q", sorted(digests))
        while self.runs and len(self.runs[-1]) < 2 * len(run):
            # Merged one by one: a storm's digests in a list would take five times the memory.
            run = array("Q", merge(self.runs.pop(), run))
        self.runs.append(run)

    def drop(self) -> int:
        """Keep only the count; return the number of digests that were dropped."""
        dropped = sum(len(run) for run in self.runs)
        self.runs, self.dropped = [], True
        return dropped


class DeliveredLines:
    """Digests of delivered lines in buckets, so that forgetting old ones costs nothing per digest."""

    def __init__(self, most: int = MOST_DIGESTS) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._most = most
        self._kept = 0

    def has(self, timestamp_ns: int, digest: int) -> bool:
        """Whether :meth:`add` got this digest and it was not forgotten since."""
        bucket = self._buckets.get(timestamp_ns // BUCKET_NS)
        return bucket is not None and bucket.has(digest)

    def add(self, entries: dict[int, int]) -> None:
        """Remember new entries, digest to timestamp."""
        by_bucket: dict[int, list[int]] = {}
        for digest, timestamp_ns in entries.items():
            by_bucket.setdefault(timestamp_ns // BUCKET_NS, []).append(digest)
        for number, digests in by_bucket.items():
            bucket = self._buckets.setdefault(number, _Bucket())
            bucket.add(digests)
            self._kept += 0 if bucket.dropped else len(digests)
        for number in sorted(self._buckets) if self._kept > self._most else ():
            self._kept -= self._buckets[number].drop()
            if self._kept <= self._most:
                break

    def count(self, start_ns: int, end_ns: int) -> int:
        """Return how many entries Loki should count in the span, which consists of whole buckets."""
        numbers = range(start_ns // BUCKET_NS, -(-end_ns // BUCKET_NS))
        return sum(
            bucket.length + bucket.surplus for number, bucket in self._buckets.items() if number in numbers
        )

    def expect(self, timestamp_ns: int, entries: int) -> None:
        """Note that Loki counted this number of entries in the bucket, all of which had been read."""
        bucket = self._buckets.get(timestamp_ns // BUCKET_NS)
        if bucket is not None:
            bucket.surplus = entries - bucket.length

    def forget_before(self, timestamp_ns: int, but: Collection[TimeWindow] = ()) -> None:
        """Forget older digests except in these windows; up to one bucket more than needed is kept."""
        old = [number for number in self._buckets if number < timestamp_ns // BUCKET_NS]
        for number in old:
            if any(window.start_ns // BUCKET_NS <= number <= window.end_ns // BUCKET_NS for window in but):
                continue
            bucket = self._buckets.pop(number)
            self._kept -= bucket.drop()
