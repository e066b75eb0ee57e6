"""Which nodes' kernel logs arrive, and which spans of them are missing (design rules 8 and 14).

Silence of a node means something only where its heartbeat is heard. A silence longer than the stale span is
a gap; it stays open until heartbeats of that time were read after all, because then the collector has
delivered the lines between them too, and a moment longer, in which those are read; or until its age passes a
setting. Nothing here reads a clock or Loki: heartbeats go in, and what to read again comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from konductor_like.controller.gaps import SECOND_NS, OpenSpan, Span, cut, fewest, grouped, merged
from konductor_like.loki.heartbeat_reader import Reread
from konductor_like.model import Coverage, CoverageState, Gap, Loss

LATE_NS = 60 * SECOND_NS
"""So long before a node counts as unknown its late heartbeats are looked for once more."""
CAUGHT_UP_NS = 90 * SECOND_NS
"""Nobody is called silent while heartbeats are not read up to here before now."""
ROUND_NS = 600 * SECOND_NS
"""Time between two looks for the heartbeats of open gaps."""
ONGOING_NS = 3600 * SECOND_NS
"""A collector delivers the oldest first, so of a silence that lasts its first hour is read again."""
CLOSING_NS = 120 * SECOND_NS
"""So long after a gap's last heartbeat its lines were read once more; a start before that reads them too."""
_MINUTE_NS = 60 * SECOND_NS


@dataclass(slots=True)
class _Node:
    """What is known of one node's heartbeats."""

    heard_ns: int
    """The last one; of a node that the last controller heard, when that last looked."""
    fresh_ns: int
    """From when silence counts: the last heartbeat or the start of this term."""
    confirmed: bool = True
    """It was heard in this term."""
    silent: bool = False
    looked: bool = False
    """Its late heartbeats were asked for since it was last heard."""
    gaps: list[Span] = field(default_factory=list)
    told: Span | None = None
    """The gap as it was told, until it is closed."""
    closing: Span | None = None
    """What was a gap until heartbeats out of it came just now."""
    closing_ns: int | None = None
    """When those were seen first."""


@dataclass(slots=True)
class News:
    """What changed since it was last asked for: nodes, with the span that it is about."""

    silent: list[tuple[str, OpenSpan]] = field(default_factory=list)
    heard: list[tuple[str, OpenSpan]] = field(default_factory=list)
    """Heard again, with a gap that may still be closed."""
    closed: list[tuple[str, OpenSpan]] = field(default_factory=list)
    given_up: list[tuple[str, OpenSpan]] = field(default_factory=list)


class CoverageTracker:
    """Remembers when each node was heard; asked for the state of the fleet now and then."""

    def __init__(
        self,
        stale_seconds: float,
        *,
        before: Coverage | None,
        now_ns: int,
        gap_max_age_seconds: float = 86_400.0,
    ) -> None:
        """``before`` is what the last controller saw: its measured nodes are expected to be heard again."""
        self._stale_ns = round(stale_seconds * SECOND_NS)
        self._max_age_ns = round(gap_max_age_seconds * SECOND_NS)
        self._before = before
        self._started_ns = self._upto_ns = now_ns
        self._nodes: dict[str, _Node] = {}
        self._blind: list[Span] = []
        self._lost: dict[str, Loss] = dict(before.lost) if before else {}
        self._overruns: dict[str, set[tuple[str, int]]] = {}
        self._next_round_ns = now_ns + ROUND_NS
        self._look_now: set[str] = set()
        self._news = News()
        self.revisit_spans: tuple[Span, ...] = ()
        """What the fault readers should read again: all open gaps, without overlaps, in order."""

    def heard(self, node: str, timestamp_ns: int) -> None:
        """A heartbeat of the node, with its Loki timestamp; in any order, and as often as you like."""
        known = self._nodes.get(node) or self._adopt(node)
        if known is None:
            self._nodes[node] = _Node(timestamp_ns, timestamp_ns)
            return
        if timestamp_ns <= known.heard_ns:
            if known.gaps:
                gaps = cut(known.gaps, timestamp_ns, self._stale_ns)
                if gaps != known.gaps:
                    was = [*known.gaps, *([known.closing] if known.closing else [])]
                    known.gaps, known.closing, known.closing_ns = gaps, _hull(was), None
            return
        if timestamp_ns - known.heard_ns > self._stale_ns and (known.confirmed or known.silent):
            known.gaps = fewest([*known.gaps, (known.heard_ns, timestamp_ns)])
            self._look_now.add(node)
        known.heard_ns, known.fresh_ns = timestamp_ns, max(known.fresh_ns, timestamp_ns)
        known.confirmed, known.looked = True, False

    def overrun(self, node: str, boot_id: str, first: int, lost: int, timestamp_ns: int) -> bool:
        """Records that the kernel overwrote before they were read; whether this is news."""
        seen = self._overruns.setdefault(node, set())
        before = self._lost.get(node)
        known_before = not seen and before is not None and timestamp_ns <= before.at_ns
        if (boot_id, first) in seen or known_before:
            return False
        if len(seen) >= 64:
            seen.clear()
        seen.add((boot_id, first))
        self._lost[node] = Loss(
            lost + (before.records if before else 0), max(timestamp_ns, before.at_ns if before else 0)
        )
        return True

    def read_up_to(self, upto_ns: int, now_ns: int) -> None:
        """All heartbeats before ``upto_ns`` that Loki had were read. After a long failure that is a gap."""
        if now_ns - self._upto_ns > self._stale_ns + CAUGHT_UP_NS:
            self._blind.append((self._upto_ns, now_ns))
        self._upto_ns = max(self._upto_ns, upto_ns)

    def coverage(self, created_ns: Mapping[str, int], now_ns: int) -> Coverage:
        """The state of the GPU nodes that exist now, given with when they were made; forgets the others."""
        self._meet(created_ns)
        oldest_ns = now_ns - self._max_age_ns
        for name, node in self._nodes.items():
            self._judge(name, node, oldest_ns, now_ns)
        self._blind = [span for span in self._blind if span[1] > oldest_ns]
        self._lost = {name: loss for name, loss in self._lost.items() if loss.at_ns > oldest_ns}
        states = {name: self._state(name, now_ns) for name in created_ns}
        measured = frozenset(name for name, state in states.items() if state is CoverageState.MEASURED)
        unknown = frozenset(name for name, state in states.items() if state is CoverageState.UNKNOWN)
        unmeasured = frozenset(states) - measured - unknown
        fewer_measured = len(measured) <= len(unmeasured)
        self.revisit_spans = self._spans_to_revisit(oldest_ns)
        return Coverage(
            at=datetime.fromtimestamp(now_ns // SECOND_NS, UTC),
            unknown=unknown,
            listed=measured if fewer_measured else unmeasured,
            listed_are_measured=fewer_measured,
            gaps=self._gaps(unmeasured, created_ns, now_ns),
            lost=dict(self._lost),
        )

    def news(self) -> News:
        """What changed; the next call tells only what came after it."""
        news, self._news = self._news, News()
        return news

    def looks(self, now_ns: int) -> list[Reread]:
        """What to read again now: late heartbeats of nodes about to be unknown, and those of open gaps."""
        if now_ns - self._upto_ns > CAUGHT_UP_NS:
            return []
        overdue = [
            name
            for name, node in self._nodes.items()
            if not (node.silent or node.looked) and now_ns - node.fresh_ns > self._stale_ns - LATE_NS
        ]
        found: list[tuple[Span, str]] = []
        for name in overdue:
            node = self._nodes[name]
            node.looked = True
            found.append(((max(node.heard_ns, now_ns - self._stale_ns - LATE_NS), now_ns), name))
        if now_ns >= self._next_round_ns:
            self._next_round_ns = now_ns + ROUND_NS
            for name, node in self._nodes.items():
                found += [(span, name) for span in self._reread(node, now_ns)]
        for name in self._look_now & self._nodes.keys():
            found += [(span, name) for span in self._nodes[name].gaps]
        self._look_now.clear()
        return _looks(found, now_ns - self._max_age_ns)

    def _adopt(self, name: str) -> _Node | None:
        """What the last controller left behind about a node that this one has not heard of yet."""
        if self._before is None:
            return None
        state, gaps = self._before.of(name), [gap for gap in self._before.gaps if gap.concerns(name)]
        if state is CoverageState.NOT_MEASURED:
            return None
        silent = state is CoverageState.UNKNOWN
        at_ns = round(self._before.at.timestamp()) * SECOND_NS
        heard_ns = min((gap.start_ns for gap in gaps if gap.end_ns is None), default=at_ns)
        spans = _closed(gaps)
        node = _Node(
            heard_ns,
            heard_ns if silent else self._started_ns,
            confirmed=False,
            silent=silent,
            gaps=spans,
            told=_hull(spans),
        )
        self._nodes[name] = node
        return node

    def _meet(self, created_ns: Mapping[str, int]) -> None:
        """Take over from the last controller once; from then on only those that exist are remembered."""
        if self._before is not None:
            at_ns = self._before.at.timestamp() * SECOND_NS
            unmeasured = [name for name in created_ns if not (self._nodes.get(name) or self._adopt(name))]
            for name, created in created_ns.items():
                if created > at_ns and name in self._nodes and not self._nodes[name].confirmed:
                    del self._nodes[name]  # newer than what was said of its name
            if unmeasured:
                self._blind = _closed(gap for gap in self._before.gaps if gap.concerns(unmeasured[0]))
            self._before = None
        self._nodes = {name: node for name, node in self._nodes.items() if name in created_ns}
        self._lost = {name: loss for name, loss in self._lost.items() if name in created_ns}
        self._overruns = {name: seen for name, seen in self._overruns.items() if name in created_ns}

    def _judge(self, name: str, node: _Node, oldest_ns: int, now_ns: int) -> None:
        """Keep the account of one node's silences."""
        stale = now_ns - node.fresh_ns > self._stale_ns
        if stale and not node.silent and now_ns - self._upto_ns <= CAUGHT_UP_NS:
            node.silent = True
            self._news.silent.append((name, (node.heard_ns, None)))
        elif node.silent and not stale:
            node.silent = False
            node.told = node.told or _hull(node.gaps)
            self._news.heard.append((name, _hull(node.gaps) or (node.heard_ns, node.heard_ns)))
        elif node.gaps and node.told is None:
            node.told = _hull(node.gaps)
            self._news.heard.append((name, node.told or (0, 0)))
        if node.closing is not None and node.closing_ns is None:
            node.closing_ns = now_ns
        elif node.closing_ns is not None and abs(now_ns - node.closing_ns) >= CLOSING_NS:
            node.closing = node.closing_ns = None
        kept = [span for span in node.gaps if span[1] > oldest_ns]
        if len(kept) < len(node.gaps):
            self._news.given_up += [(name, span) for span in node.gaps if span not in kept]
            node.gaps = kept
            node.told = node.told if kept else None
        elif node.told is not None and not kept and node.closing is None:
            self._news.closed.append((name, node.told))
            node.told = None

    def _state(self, name: str, now_ns: int) -> CoverageState:
        node = self._nodes.get(name)
        if node is None:
            return CoverageState.NOT_MEASURED
        stale = now_ns - node.fresh_ns > self._stale_ns
        return CoverageState.UNKNOWN if stale else CoverageState.MEASURED

    def _gaps(self, unmeasured: Iterable[str], fleet: Mapping[str, int], now_ns: int) -> tuple[Gap, ...]:
        missing: list[tuple[str, OpenSpan]] = []
        for name, node in self._nodes.items():
            spans = merged([*node.gaps, node.closing]) if node.closing else node.gaps
            missing += [(name, span) for span in spans]
            if node.silent:
                missing.append((name, (node.heard_ns, None)))
        blind: list[OpenSpan] = list(self._blind)
        if now_ns - self._upto_ns > self._stale_ns + CAUGHT_UP_NS:
            blind.append((self._upto_ns, None))
            missing += [(name, blind[-1]) for name, node in self._nodes.items() if not node.silent]
        missing += [(name, span) for name in unmeasured for span in blind]
        return grouped(missing, fleet.keys())

    def _spans_to_revisit(self, oldest_ns: int) -> tuple[Span, ...]:
        found = [span for node in self._nodes.values() for span in node.gaps] + self._blind
        found += [(n.heard_ns, n.heard_ns + ONGOING_NS) for n in self._nodes.values() if n.silent]
        rounded = {
            (max(start_ns, oldest_ns) // _MINUTE_NS * _MINUTE_NS, -(-end_ns // _MINUTE_NS) * _MINUTE_NS)
            for start_ns, end_ns in found
            if end_ns > oldest_ns
        }
        return merged(rounded)

    def _reread(self, node: _Node, now_ns: int) -> list[Span]:
        """The spans of a node whose turn it is in this round."""
        spans = [span for span in node.gaps if _is_due(now_ns - span[1])]
        if node.silent and _is_due(now_ns - node.heard_ns):
            spans.append((node.heard_ns, min(now_ns, node.heard_ns + ONGOING_NS)))
        return spans


def _is_due(age_ns: int) -> bool:
    """Whether a gap of that age is looked at in this round: always at first, then ever more rarely.

    What a collector kept arrives soon after it is back; reading a day again every ten minutes for a day would
    cost Loki more than all else that we do.
    """
    rounds = max(0, age_ns) // ROUND_NS
    return bool(rounds % (1 << max(0, rounds.bit_length() - 3)) == 0)


def _looks(found: Iterable[tuple[Span, str]], oldest_ns: int) -> list[Reread]:
    """As few reads as cover all of it: spans that overlap become one, for the nodes of both."""
    looks: list[tuple[int, int, set[str]]] = []
    for (start_ns, end_ns), name in sorted(found):
        start_ns = max(start_ns, oldest_ns)
        if looks and start_ns <= looks[-1][1]:
            first_ns, last_ns, names = looks[-1]
            names.add(name)
            looks[-1] = (first_ns, max(last_ns, end_ns), names)
        elif start_ns < end_ns:
            looks.append((start_ns, end_ns, {name}))
    return [Reread(start_ns, end_ns, frozenset(names)) for start_ns, end_ns, names in looks]


def _closed(gaps: Iterable[Gap]) -> list[Span]:
    return [(gap.start_ns, gap.end_ns) for gap in gaps if gap.end_ns is not None]


def _hull(spans: list[Span]) -> Span | None:
    return (min(span[0] for span in spans), max(span[1] for span in spans)) if spans else None
