"""What a reader has still to read beside the present, as values: spans of time, and why each is read.

Nodes that print more than one answer holds are told apart, so that they hide nobody else's line (rule 10).
The first page of a window that is too large to be read at once is mostly theirs, so it tells who they are
without another query. The rest of the window is read without them; their own lines follow in order, page by
page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from konductor_like.loki.dedup import BUCKET_NS
from konductor_like.loki.response import Entry
from konductor_like.loki.window_query import SECOND_NS, Window
from konductor_like.model import Source
from konductor_like.settings import Settings

NEAR_NS = 10 * SECOND_NS
"""How far a poll between two full ones looks back."""
_WIDEST_NS = 3600 * SECOND_NS
"""A catch-up is read in windows of this width, unless a steady poll needs a wider one."""
_LOUD_SHARE = 50
"""One line in so many of a full page makes a node loud."""
_QUIET_SPAN_NS = 30 * SECOND_NS
_SETTLED_NS = 10 * SECOND_NS
"""What is older than this has come to Loki, as a rule; what has not, the sweeps find."""
MOST_NODES = 200
"""More loud nodes than this at once are no exception, and Loki parses no query that names them all."""


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
        overlap_ns = _ns(settings.kernel_overlap_seconds if kernel else settings.pod_overlap_seconds)
        lateness_ns = _ns(settings.lateness_seconds if kernel else settings.pod_lateness_seconds)
        interval_ns = _ns(settings.poll_interval_seconds if kernel else settings.pod_poll_interval_seconds)
        sweep_ns = _ns(settings.sweep_interval_seconds if kernel else settings.pod_sweep_interval_seconds)
        skew_ns = _ns(settings.future_skew_seconds)
        return cls(
            overlap_ns=overlap_ns,
            lateness_ns=max(overlap_ns, lateness_ns),
            skew_ns=skew_ns,
            widest_ns=max(_WIDEST_NS, overlap_ns + skew_ns + 2 * interval_ns),
            interval_ns=interval_ns,
            sweep_every_ns=sweep_ns,
            revisit_every_ns=_ns(settings.gap_revisit_seconds),
            give_up_ns=_ns(settings.gap_max_age_seconds),
        )


def _ns(seconds: float) -> int:
    return int(seconds * SECOND_NS)


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
        """Read what is not settled yet once more, from there on where that is later."""
        return replace(self, upto_ns=max(self.upto_ns - _SETTLED_NS, timestamp_ns))

    def is_over(self, now_ns: int, limit: int) -> bool:
        """Whether it was read to the present and little came of late: the nodes are read with all others."""
        lately = sum(lines for end_ns, lines in self.recent if end_ns > now_ns - _QUIET_SPAN_NS)
        return bool(self.recent) and self.reached_ns >= now_ns and lately <= limit // 4


def noisy_nodes(page: Iterable[Entry], node_label: str) -> frozenset[str]:
    """The nodes that fill a page that was not complete; ``""`` stands for lines that name none."""
    counts = Counter(entry.labels.get(node_label, "") for entry in page)
    least = max(2, counts.total() // _LOUD_SHARE)
    return frozenset(node for node, count in counts.most_common(MOST_NODES) if count >= least)


class Reason(StrEnum):
    """Why a span is read."""

    CATCH_UP = "catch-up"
    """It was never read: we, or Loki, were away."""
    REST = "rest"
    """The end of a window that held too much for one poll."""
    LATE = "late"
    """A nudge told of a line there."""
    SWEEP = "sweep"
    """It was read before; lines may have come late."""
    GAP = "gap"
    """Nodes were silent then, and their lines may still come."""
    UNREAD = "unread"
    """Loki could not give it so far, although it gives the present."""

    @property
    def binding(self) -> bool:
        """Whether the saved cursor must not pass it."""
        return self in (Reason.CATCH_UP, Reason.REST, Reason.UNREAD)


_ORDER = [Reason.CATCH_UP, Reason.REST, Reason.UNREAD, Reason.LATE, Reason.SWEEP, Reason.GAP]
RETRY_FIRST_NS = 15 * SECOND_NS
"""How long a span that could not be read is left alone first; twice as long after each further failure."""
RETRY_MOST_NS = 600 * SECOND_NS
UNREAD_MOST = 50
"""More spans than this become one, with what was read between them: lines read twice are delivered once."""


@dataclass(frozen=True, slots=True)
class PendingSpan:
    """A span to be read in full, from its start on; ``without`` are nodes whose lines a flood reads."""

    why: Reason
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
    work: tuple[PendingSpan, ...] = ()
    floods: tuple[Flood, ...] = ()
    unread: tuple[UnreadSpan, ...] = ()
    revisited_ns: Mapping[Window, int] = field(default_factory=dict)

    @property
    def loud(self) -> frozenset[str]:
        """The nodes that are read by themselves."""
        return frozenset(node for flood in self.floods for node in flood.nodes)

    def read_ns(self) -> int:
        """Everything before it was read, but for late lines and those of loud nodes."""
        held = [work.start_ns for work in self.work if work.why.binding]
        held += [unread.span.start_ns for unread in self.unread]
        return min([self.fast_ns, *held])

    def durable_ns(self) -> int:
        """From here a start would find all that was not read yet; never less than before."""
        held = [flood.reached_ns for flood in self.floods]
        held += [self.unswept_ns for work in self.work if work.why is Reason.SWEEP]
        return max(self.cursor_ns, min([self.read_ns(), *held]))

    @property
    def busy(self) -> bool:
        """Whether there is anything to read beside the present."""
        return bool(self.work or self.floods)

    def revisited(self) -> list[Window]:
        """The gaps that will be read again."""
        last_looks = [Window(work.start_ns, work.end_ns) for work in self.work if work.why is Reason.GAP]
        return [*self.revisited_ns, *last_looks]


def read_again_from_ns(progress: ReadState, spans: ReaderConfig) -> int:
    """Nothing before this is read a second time, gaps excepted."""
    swept_ns = progress.fast_ns if progress.swept_ns is None else progress.swept_ns
    work = [work.start_ns for work in progress.work if work.why is not Reason.GAP]
    work += [unread.span.start_ns for unread in progress.unread]
    # Work of its own may have read what a flood comes to later: after an absence it leaves nobody out.
    floods = [flood.upto_ns for flood in progress.floods]
    return min([_floor(swept_ns - spans.lateness_ns), progress.fast_ns - spans.overlap_ns, *work, *floods])


def planned(progress: ReadState, spans: ReaderConfig, gaps: Iterable[Window], now_ns: int) -> ReadState:
    """Add the work that is due at ``now_ns``. A clock that stepped back takes the cursor with it."""
    progress = replace(
        progress, cursor_ns=min(progress.cursor_ns, now_ns), fast_ns=min(progress.fast_ns, now_ns)
    )
    swept_ns = progress.swept_ns
    if swept_ns is None or now_ns < swept_ns - NEAR_NS:
        return _begun(progress, spans, now_ns)
    if is_away(progress, spans, now_ns):
        # As after a start: what came late meanwhile must hold the saved cursor as well, and no sweep does.
        start_ns = max(0, progress.fast_ns - spans.lateness_ns)
        away = PendingSpan(Reason.CATCH_UP, start_ns, now_ns - spans.overlap_ns)
        progress = replace(progress, work=added(progress.work, away))
    late_ns = now_ns - swept_ns
    progress = _asking_again(progress, spans, now_ns)
    if late_ns >= spans.sweep_every_ns and all(work.why is not Reason.SWEEP for work in progress.work):
        # A line that came just after the last sweep had passed may be as late as the lateness.
        sweep = PendingSpan(
            Reason.SWEEP, _floor(now_ns - late_ns - spans.lateness_ns), _floor(now_ns - NEAR_NS)
        )
        more = added(progress.work, sweep) if sweep.start_ns < sweep.end_ns else progress.work
        unswept_ns = swept_ns + spans.sweep_every_ns
        progress = replace(progress, work=more, swept_ns=now_ns, unswept_ns=unswept_ns)
    return _revisiting(progress, spans, gaps, now_ns)


def is_away(progress: ReadState, spans: ReaderConfig, now_ns: int) -> bool:
    """Whether the present was not read for so long that what lies between is work of its own."""
    return now_ns - progress.fast_ns > spans.overlap_ns + 2 * spans.interval_ns + NEAR_NS


def is_catching_up(progress: ReadState | None) -> bool:
    """Whether there is something that was never read."""
    return progress is not None and any(work.why is Reason.CATCH_UP for work in progress.work)


def _begun(progress: ReadState, spans: ReaderConfig, now_ns: int) -> ReadState:
    """The beginning: all that may have come since the last sweep of whoever read before us."""
    start_ns = max(0, progress.cursor_ns - spans.lateness_ns - spans.sweep_every_ns)
    end_ns = max(start_ns, now_ns - spans.overlap_ns)
    work = (PendingSpan(Reason.CATCH_UP, start_ns, end_ns),) if start_ns < end_ns else ()
    # What could not be read lies behind the cursor, so the catch-up reads it.
    return replace(progress, work=work, floods=(), unread=(), whole_ns=None, swept_ns=now_ns)


def put_off(progress: ReadState, span: Window, now_ns: int, waited_ns: int) -> ReadState:
    """Leave a span that could not be read alone for a while; the first time ``waited_ns`` is 0."""
    wait_ns = min(max(RETRY_FIRST_NS, 2 * waited_ns), RETRY_MOST_NS)
    near = [other for other in progress.unread if _touch(other.span, span)]
    others = [other for other in progress.unread if not _touch(other.span, span)]
    spans = [span, *(other.span for other in near)]
    if len(others) >= UNREAD_MOST:
        spans, others = [*spans, *(other.span for other in others)], []
    whole = Window(min(one.start_ns for one in spans), max(one.end_ns for one in spans))
    unread = sorted(
        (*others, UnreadSpan(whole, now_ns + wait_ns, wait_ns)), key=lambda one: one.span.start_ns
    )
    return replace(progress, unread=tuple(unread))


def given_up(progress: ReadState, spans: ReaderConfig, now_ns: int) -> tuple[Window, ...]:
    """The spans that could not be read and are too old by now."""
    oldest_ns = now_ns - spans.give_up_ns
    return tuple(one.span for one in progress.unread if one.span.end_ns <= oldest_ns)


def _asking_again(progress: ReadState, spans: ReaderConfig, now_ns: int) -> ReadState:
    """Ask again for what could not be read, where it is time; what is too old is let go of."""
    late = given_up(progress, spans, now_ns)
    work, unread = progress.work, []
    for one in progress.unread:
        if one.span in late:
            continue
        if now_ns >= one.retry_ns or one.retry_ns - now_ns > one.waited_ns:  # or the clock was put back
            again = PendingSpan(Reason.UNREAD, one.span.start_ns, one.span.end_ns, waited_ns=one.waited_ns)
            work = added(work, replace(again, width_ns=max(1, one.span.width_ns // 2)))
        else:
            unread.append(one)
    return replace(progress, work=work, unread=tuple(unread))


def _touch(one: Window, other: Window) -> bool:
    return one.start_ns <= other.end_ns and other.start_ns <= one.end_ns


def _revisiting(progress: ReadState, spans: ReaderConfig, gaps: Iterable[Window], now_ns: int) -> ReadState:
    """Read open gaps now and then, and each once more after it was closed."""
    open_gaps = {gap for gap in gaps if gap.width_ns > 0}
    known = progress.revisited_ns
    last_looks = [gap for gap in known if gap not in open_gaps]
    due = [gap for gap in open_gaps if now_ns - known.get(gap, 0) >= spans.revisit_every_ns]
    if not last_looks and not due:
        return progress
    work = progress.work
    for gap in (*last_looks, *due):
        work = added(work, PendingSpan(Reason.GAP, _floor(gap.start_ns), gap.end_ns))
    kept = {gap: known[gap] for gap in open_gaps if gap in known}
    return replace(progress, work=work, revisited_ns={**kept, **dict.fromkeys(due, now_ns)})


def added(work: tuple[PendingSpan, ...], new: PendingSpan) -> tuple[PendingSpan, ...]:
    """The work and some more, in order of urgency; what touches work of the same reason is joined with it."""
    for waiting in work:
        if waiting.why is new.why and waiting.start_ns <= new.end_ns and new.start_ns <= waiting.end_ns:
            joined = replace(
                new,
                start_ns=min(new.start_ns, waiting.start_ns),
                end_ns=max(new.end_ns, waiting.end_ns),
                without=waiting.without & new.without,
            )
            return added(tuple(other for other in work if other is not waiting), joined)
    return tuple(sorted((*work, new), key=lambda item: (_ORDER.index(item.why), item.start_ns)))


def _floor(timestamp_ns: int) -> int:
    return max(0, timestamp_ns // BUCKET_NS * BUCKET_NS)
