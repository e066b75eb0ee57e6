"""How far a source is read, as values: the spans still to be read, and the lines already delivered.

Nodes that print more than one answer holds are told apart, so that they hide nobody else's line (rule 10).
The first page of a window that is too large to be read at once is mostly theirs, so it tells who they are
without another query. The rest of the window is read without them; their own lines follow in order, page by
page.

A delivered line is remembered as eight bytes, in sorted arrays per ten seconds: a storm of half a million
lines costs four megabytes. Two different lines of the same ten seconds share a digest once in some
10^19 pairs.
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

from konductor_like.loki.response import Entry
from konductor_like.loki.window_query import Window
from konductor_like.model import Source
from konductor_like.model.time import SECOND_NS, span_ns
from konductor_like.settings import Settings

BUCKET_NS = 10_000_000_000
MOST_DIGESTS = 500_000
"""Beyond this the oldest buckets keep their count alone; what is read of them again is delivered again."""
_POD_UID = "k8s_pod_uid"
_RESTART_COUNT = "k8s_container_restart_count"
NEAR_NS = 10 * SECOND_NS
"""How far a poll between two full ones looks back."""
RETRY_FIRST_NS = 15 * SECOND_NS
"""How long a span that could not be read is left alone first; twice as long after each further failure."""
RETRY_MOST_NS = 600 * SECOND_NS
UNREAD_MOST = 50
"""More spans than this become one, with what was read between them: lines read twice are delivered once."""
MOST_NODES = 200
"""More noisy nodes than this at once are no exception, and Loki parses no query that names them all."""
_NOISY_SHARE = 50
"""One line in so many of a full page makes a node noisy."""
_QUIET_SPAN_NS = 30 * SECOND_NS
_ARRIVED_NS = 10 * SECOND_NS
"""Older lines have come to Loki, as a rule; the sweeps find the others."""
_WIDEST_NS = 3600 * SECOND_NS
"""A catch-up is read in windows of this width, unless a steady poll needs a wider one."""


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """How far and how often a source is read, in nanoseconds."""

    overlap_ns: int
    """How far each poll looks back behind the cursor."""
    lateness_ns: int
    """How late a line may come and still be found: by a sweep, and after a restart."""
    skew_ns: int
    """How far beyond our own clock lines are read already."""
    widest_ns: int
    """The widest single query; a steady poll fits into one."""
    interval_ns: int = 5 * SECOND_NS
    """Time between two polls that look back over the whole overlap."""
    sweep_every_ns: int = 120 * SECOND_NS
    """Time between two sweeps."""
    revisit_every_ns: int = 600 * SECOND_NS
    """Time between two readings of an open gap."""
    give_up_ns: int = 86_400 * SECOND_NS
    """How old a span gets that Loki cannot give, before it is let go of."""

    @classmethod
    def of(cls, settings: Settings, source: Source) -> Self:
        """The spans that the settings give for a source."""
        kernel = source is Source.KERNEL
        overlap_ns = span_ns(settings.kernel_overlap_seconds if kernel else settings.pod_overlap_seconds)
        lateness_ns = span_ns(settings.lateness_seconds if kernel else settings.pod_lateness_seconds)
        interval_ns = span_ns(
            settings.poll_interval_seconds if kernel else settings.pod_poll_interval_seconds
        )
        sweep_ns = span_ns(settings.sweep_interval_seconds if kernel else settings.pod_sweep_interval_seconds)
        skew_ns = span_ns(settings.future_skew_seconds)
        return cls(
            overlap_ns=overlap_ns,
            lateness_ns=max(overlap_ns, lateness_ns),
            skew_ns=skew_ns,
            widest_ns=max(_WIDEST_NS, overlap_ns + skew_ns + 2 * interval_ns),
            interval_ns=interval_ns,
            sweep_every_ns=sweep_ns,
            revisit_every_ns=span_ns(settings.gap_revisit_seconds),
            give_up_ns=span_ns(settings.gap_max_age_seconds),
        )


@dataclass(frozen=True, slots=True)
class Flood:
    """Nodes whose lines are read by themselves, in tiles: the next begins at ``upto_ns``.

    Tiles touch, but where they come to the present: its last lines are read again, because Loki takes lines
    in some seconds after their time. ``recent`` is how many lines the latest tiles held, each with its end:
    what tells when the flood is over.
    """

    nodes: frozenset[str]
    upto_ns: int
    recent: tuple[tuple[int, int], ...] = ()
    width_ns: int = 0
    """How wide the next tile may be; 0 is as wide as any."""

    @property
    def reached_ns(self) -> int:
        """How far was asked for at all."""
        return self.recent[-1][0] if self.recent else self.upto_ns

    def read(self, end_ns: int, lines: int, width_ns: int) -> Self:
        """After one more tile with so many lines; the next may be ``width_ns`` wide."""
        kept = [tile for tile in self.recent if tile[0] > end_ns - _QUIET_SPAN_NS]
        return replace(self, upto_ns=end_ns, recent=(*kept, (end_ns, lines)), width_ns=width_ns)

    def again_from(self, timestamp_ns: int) -> Self:
        """Read what may not have come yet once more, from there on where that is later."""
        return replace(self, upto_ns=max(self.upto_ns - _ARRIVED_NS, timestamp_ns))

    def is_over(self, now_ns: int, limit: int) -> bool:
        """Whether it was read to the present and little came of late: the nodes are read with all others."""
        lately = sum(lines for end_ns, lines in self.recent if end_ns > now_ns - _QUIET_SPAN_NS)
        return bool(self.recent) and self.reached_ns >= now_ns and lately <= limit // 4


def noisy_nodes(page: Iterable[Entry], node_label: str) -> frozenset[str]:
    """The nodes that fill a page that was not complete; ``""`` stands for lines that name none."""
    counts = Counter(entry.labels.get(node_label, "") for entry in page)
    least = max(2, counts.total() // _NOISY_SHARE)
    return frozenset(node for node, count in counts.most_common(MOST_NODES) if count >= least)


class Reason(StrEnum):
    """Why a span is read, the most urgent first."""

    CATCH_UP = "catch-up"
    """It was never read: we, or Loki, were away."""
    REST = "rest"
    """The end of a window that held too much for one poll."""
    UNREAD = "unread"
    """Loki could not give it so far, although it gives the present."""
    LATE = "late"
    """A nudge told of a line there."""
    SWEEP = "sweep"
    """It was read before; lines may have come late."""
    GAP = "gap"
    """Nodes were silent then, and their lines may still come."""

    @property
    def holds_cursor(self) -> bool:
        """Whether the saved cursor must not pass it."""
        return self in (Reason.CATCH_UP, Reason.REST, Reason.UNREAD)


_URGENCY = list(Reason)


@dataclass(frozen=True, slots=True)
class PendingSpan:
    """A span to be read in full, from its start on; ``without`` are nodes whose lines a flood reads."""

    reason: Reason
    start_ns: int
    end_ns: int
    without: frozenset[str] = frozenset()
    width_ns: int = 0
    """How wide its next window may be; 0 is as wide as any."""
    counted: int | None = None
    """How many lines Loki counted in the bucket at the start, which is being read for that."""
    failures: int = 0
    """How often its next window failed, one time after the other."""
    waited_ns: int = 0
    """How long it was left alone before, where it could not be read then."""


@dataclass(frozen=True, slots=True)
class UnreadSpan:
    """A span that Loki could not give, asked for again at ``retry_ns``, after ``waited_ns``."""

    span: Window
    retry_ns: int
    waited_ns: int


@dataclass(frozen=True, slots=True)
class ReadState:
    """How far a source is read.

    ``fast_ns``: the present was read up to here. ``whole_ns`` and ``swept_ns``: when the whole overlap was
    last read, and when the last sweep began. ``revisited_ns`` says when each open gap was last read.
    While a sweep is not done the saved cursor must not pass ``unswept_ns``: a start looks no further back.
    """

    cursor_ns: int
    fast_ns: int
    whole_ns: int | None = None
    swept_ns: int | None = None
    unswept_ns: int = 0
    pending: tuple[PendingSpan, ...] = ()
    """The most urgent first."""
    floods: tuple[Flood, ...] = ()
    unread: tuple[UnreadSpan, ...] = ()
    given_up: tuple[Window, ...] = ()
    """Spans that could not be read and have just become too old."""
    revisited_ns: Mapping[Window, int] = field(default_factory=dict)

    @property
    def noisy(self) -> frozenset[str]:
        """The nodes that are read by themselves."""
        return frozenset(node for flood in self.floods for node in flood.nodes)

    @property
    def read_ns(self) -> int:
        """Everything before it was read, but for late lines and those of noisy nodes."""
        held = [span.start_ns for span in self.pending if span.reason.holds_cursor]
        return min([self.fast_ns, *held, *(unread.span.start_ns for unread in self.unread)])

    @property
    def durable_ns(self) -> int:
        """From here a start would find all that was not read yet; never less than before."""
        held = [flood.reached_ns for flood in self.floods]
        held += [self.unswept_ns for span in self.pending if span.reason is Reason.SWEEP]
        return max(self.cursor_ns, min([self.read_ns, *held]))

    def reread_from_ns(self, config: ReaderConfig) -> int:
        """Nothing before this is read a second time, gaps excepted."""
        swept_ns = self.fast_ns if self.swept_ns is None else self.swept_ns
        starts = [span.start_ns for span in self.pending if span.reason is not Reason.GAP]
        starts += [unread.span.start_ns for unread in self.unread]
        # A catch-up reads noisy nodes too, and their flood comes to those lines later.
        starts += [flood.upto_ns for flood in self.floods]
        return min([_floor(swept_ns - config.lateness_ns), self.fast_ns - config.overlap_ns, *starts])

    def gaps_to_reread(self) -> list[Window]:
        """The gaps that will be read again."""
        last = [Window(span.start_ns, span.end_ns) for span in self.pending if span.reason is Reason.GAP]
        return [*self.revisited_ns, *last]

    def with_span(self, new: PendingSpan) -> Self:
        """With one more span to read; what touches a span of the same reason is joined with it."""
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
        """With this in place of the first span, which is dropped when it is done."""
        rest = self.pending[1:]
        return replace(self, pending=(first, *rest) if first.start_ns < first.end_ns else rest)

    def with_flood(self, new: Flood | None, instead_of: Flood | None = None) -> Self:
        """A flood began, came further (``instead_of`` what it was), or is over (``new`` is None)."""
        floods = tuple(flood for flood in self.floods if flood is not instead_of)
        return replace(self, floods=floods if new is None else (*floods, new))

    def without_unreadable(self, span: Window, now_ns: int, waited_ns: int = 0) -> Self:
        """Leave a span that could not be read alone for a while; the first time ``waited_ns`` is 0."""
        wait_ns = min(max(RETRY_FIRST_NS, 2 * waited_ns), RETRY_MOST_NS)
        others = [other for other in self.unread if not _touch(other.span, span)]
        if len(others) >= UNREAD_MOST:
            others = []
        joined = [span, *(other.span for other in self.unread if other not in others)]
        whole = Window(min(one.start_ns for one in joined), max(one.end_ns for one in joined))
        unread = (*others, UnreadSpan(whole, now_ns + wait_ns, wait_ns))
        return replace(self, unread=tuple(sorted(unread, key=lambda one: one.span.start_ns)))


def planned(state: ReadState, config: ReaderConfig, gaps: Collection[Window], now_ns: int) -> ReadState:
    """Add the spans that are due at ``now_ns``. A clock that stepped back takes the cursor with it."""
    fast_ns = min(state.fast_ns, now_ns)
    state = replace(state, cursor_ns=min(state.cursor_ns, now_ns), fast_ns=fast_ns, given_up=())
    swept_ns = state.swept_ns
    if swept_ns is None or now_ns < swept_ns - NEAR_NS:
        # All that may have come since the last sweep of whoever read before us, the unread spans included.
        start_ns = max(0, state.cursor_ns - config.lateness_ns - config.sweep_every_ns)
        begun = replace(state, pending=(), floods=(), unread=(), whole_ns=None, swept_ns=now_ns)
        return begun.with_span(PendingSpan(Reason.CATCH_UP, start_ns, now_ns - config.overlap_ns))
    if now_ns - fast_ns > config.overlap_ns + 2 * config.interval_ns + NEAR_NS:
        # As after a start: what came late meanwhile must hold the saved cursor as well, and no sweep does.
        start_ns = max(0, fast_ns - config.lateness_ns)
        missed = PendingSpan(Reason.CATCH_UP, start_ns, now_ns - config.overlap_ns)
        state = replace(state.with_span(missed), whole_ns=None)
    if state.unread:
        state = _retrying_unread(state, config, now_ns)
    since_ns = now_ns - swept_ns
    if since_ns >= config.sweep_every_ns and all(s.reason is not Reason.SWEEP for s in state.pending):
        # A line that came just after the last sweep had passed may be as late as the lateness.
        start_ns, end_ns = _floor(swept_ns - config.lateness_ns), _floor(now_ns - NEAR_NS)
        state = state.with_span(PendingSpan(Reason.SWEEP, start_ns, end_ns))
        state = replace(state, swept_ns=now_ns, unswept_ns=swept_ns + config.sweep_every_ns)
    return _revisiting(state, config, gaps, now_ns) if gaps or state.revisited_ns else state


def _retrying_unread(state: ReadState, config: ReaderConfig, now_ns: int) -> ReadState:
    """Ask again for what could not be read, where it is time; what is too old is given up."""
    waiting, given_up = list[UnreadSpan](), list[Window]()
    for one in state.unread:
        if one.span.end_ns <= now_ns - config.give_up_ns:
            given_up.append(one.span)
        elif now_ns >= one.retry_ns or one.retry_ns - now_ns > one.waited_ns:  # or the clock was put back
            half_ns = max(1, one.span.width_ns // 2)
            again = PendingSpan(Reason.UNREAD, one.span.start_ns, one.span.end_ns, width_ns=half_ns)
            state = state.with_span(replace(again, waited_ns=one.waited_ns))
        else:
            waiting.append(one)
    return replace(state, unread=tuple(waiting), given_up=tuple(given_up))


def _revisiting(state: ReadState, config: ReaderConfig, gaps: Iterable[Window], now_ns: int) -> ReadState:
    """Read open gaps now and then, and each once more after it was closed."""
    open_gaps = {gap for gap in gaps if gap.width_ns > 0}
    known = state.revisited_ns
    closed = [gap for gap in known if gap not in open_gaps]
    due = [gap for gap in open_gaps if now_ns - known.get(gap, 0) >= config.revisit_every_ns]
    for gap in (*closed, *due):
        state = state.with_span(PendingSpan(Reason.GAP, _floor(gap.start_ns), gap.end_ns))
    kept = {gap: known[gap] for gap in open_gaps if gap in known}
    return replace(state, revisited_ns={**kept, **dict.fromkeys(due, now_ns)})


def _touch(one: Window | PendingSpan, other: Window | PendingSpan) -> bool:
    return one.start_ns <= other.end_ns and other.start_ns <= one.end_ns


def _floor(timestamp_ns: int) -> int:
    return max(0, timestamp_ns // BUCKET_NS * BUCKET_NS)


def line_digest(entry: Entry, settings: Settings) -> int:
    """A digest that two entries share exactly when they are the same line of the same origin.

    The origin is the container's instance rather than all labels: a line that was shipped twice differs in
    what the collector adds, such as ``observed_timestamp``. Without a node's name only all labels together
    tell origins apart.
    """
    labels = entry.labels
    if labels.get(settings.node_label):
        place = (settings.node_label, settings.namespace_label, settings.pod_label, settings.container_label)
        origin = [labels.get(name, "") for name in (*place, _POD_UID, _RESTART_COUNT)]
    else:
        origin = [part for pair in sorted(labels.items()) for part in pair]
    # Lengths keep neighbouring parts from running into one another.
    parts = [str(entry.timestamp_ns), *origin, entry.text]
    lengths = ",".join([str(len(part)) for part in parts])
    digest = hashlib.blake2b("".join([lengths, ";", *parts]).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


@dataclass(slots=True)
class _Bucket:
    """The digests of ten seconds: sorted runs, each at most half as long as the one before it."""

    runs: list[array[int]] = field(default_factory=list)
    length: int = 0
    surplus: int = 0
    """How many entries Loki counts beyond the distinct ones."""
    dropped: bool = False

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
            # Merged one by one: a list of a storm's digests would take five times as much memory.
            run = array("Q", merge(self.runs.pop(), run))
        self.runs.append(run)

    def drop(self) -> int:
        """Keep the count alone; gives how many digests are gone."""
        dropped = sum(len(run) for run in self.runs)
        self.runs, self.dropped = [], True
        return dropped


class DeliveredLines:
    """Digests in buckets of time, so that forgetting the old ones costs nothing per digest."""

    def __init__(self, most: int = MOST_DIGESTS) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._most = most
        self._kept = 0

    def has(self, timestamp_ns: int, digest: int) -> bool:
        """Whether :meth:`add` was told about it and it was not forgotten since."""
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
        """How many entries Loki should count in the buckets that lie in the span, bounds being theirs."""
        numbers = range(start_ns // BUCKET_NS, -(-end_ns // BUCKET_NS))
        return sum(
            bucket.length + bucket.surplus for number, bucket in self._buckets.items() if number in numbers
        )

    def expect(self, timestamp_ns: int, entries: int) -> None:
        """Loki counted so many entries in the bucket when all of it had been read."""
        bucket = self._buckets.get(timestamp_ns // BUCKET_NS)
        if bucket is not None:
            bucket.surplus = entries - bucket.length

    def forget_before(self, timestamp_ns: int, but: Collection[Window] = ()) -> None:
        """Forget what is older and not in these windows; up to one bucket more than needed stays."""
        old = [number for number in self._buckets if number < timestamp_ns // BUCKET_NS]
        for number in old:
            if any(window.start_ns // BUCKET_NS <= number <= window.end_ns // BUCKET_NS for window in but):
                continue
            bucket = self._buckets.pop(number)
            self._kept -= bucket.drop()
