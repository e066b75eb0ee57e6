"""What coverage says: log lines, metrics and Events; of many nodes at once one, not thousands."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from konductor_like.controller import logs
from konductor_like.controller.coverage import CoverageChanges, OpenSpan
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.ports import EventSink, FleetEvent
from konductor_like.detection import Overrun
from konductor_like.model import Change, Coverage, CoverageState, EventReason, NodeState, Verb
from konductor_like.model.text import listed
from konductor_like.model.time import SECOND_NS, moment_of, stamp

FLEET_PERCENT = 5.0
"""When more than this share of the GPU nodes falls silent, that is one piece of news."""
GATHER_NS = 75 * SECOND_NS
"""Heartbeats come once a minute, so nodes that fall silent together are noticed over so long a time."""
QUIET_NS = 600 * SECOND_NS
"""After an Event about the fleet further nodes get none of their own for so long."""
UNREAD_UPDATES = 2
"""At so many updates in a row kernel logs must be unread before the log says so."""
_NAMES = 5


class CoverageReport:
    """Remembers only what it has not said yet, and what keeps it from saying the same thing twice."""

    def __init__(self, metrics: Metrics, events: EventSink, fleet_event: FleetEvent) -> None:
        self._metrics = metrics
        self._events = events
        self._fleet_event = fleet_event
        self._unsaid: dict[str, int] = {}
        self._gather_until_ns: int | None = None
        self._fleet_said_ns = -QUIET_NS
        self._ambiguous: frozenset[str] = frozenset()
        self._left: set[tuple[str, str]] = set()
        self._unread_updates = 0
        """How many updates in a row saw unread kernel logs; the first after a start is often one of these."""
        self._reached_present = False
        """Whether the kernel logs were read up to the present since the start."""

    def tell(
        self,
        changes: CoverageChanges,
        coverage: Coverage,
        nodes: Mapping[str, NodeState],
        now_ns: int,
        unread_since_ns: int | None = None,
    ) -> None:
        """Everything that changed, given the GPU nodes.

        ``unread_since_ns`` as for :meth:`FleetMonitor.update`: heartbeats that are heard mean nothing then.
        """
        self._measure(coverage, nodes, unread=unread_since_ns is not None)
        self._say_unread(unread_since_ns)
        for name, (since_ns, _) in changes.silent:
            self._unsaid[name] = since_ns
            self._gather_until_ns = self._gather_until_ns or now_ns + GATHER_NS
        heard = [item for item in changes.heard if self._unsaid.pop(item[0], None) is None]
        _say(heard, "{names}: heard again; what is missing{span} is looked for until it comes or is too old.")
        _say(changes.closed, "{names}: the gap{span} is closed, its heartbeats came after all.")
        _say(
            changes.given_up,
            "{names}: the gap{span} is given up for its age; lines of that time may be lost.",
            worrying=True,
        )
        if self._gather_until_ns is not None and now_ns >= self._gather_until_ns:
            self._gather_until_ns = None
            self._say_silent(nodes, now_ns)
        self._say_ambiguous(coverage.ambiguous, nodes)

    def overran(self, node: str, overrun: Overrun, state: NodeState | None) -> None:
        """The kernel overwrote records before they were read; nothing brings them back."""
        self._metrics.records_lost.inc(overrun.lost)
        message = (
            f"The kernel overwrote {overrun.lost:,} records of its log ({overrun.first} to {overrun.last} of "
            f"boot {overrun.boot_id}) before they were read. A larger ring, log_buf_len=4M, makes that rarer."
        )
        logs.warning(f"node {node}: {message}", node=node, lost=overrun.lost)
        if state is not None:
            self._announce(state, EventReason.OVERRUN, message)

    def left(self, left: Mapping[str, frozenset[str]]) -> None:
        """Boots that turned out to be over, said once."""
        found = {(node, boot) for node, boots in left.items() for boot in boots}
        for node, boot in sorted(found - self._left):
            logs.info(
                f"node {node}: what boot {boot} said is history, the Node's present boot was heard since.",
                node=node,
            )
        self._left = found

    def _measure(self, coverage: Coverage, nodes: Mapping[str, NodeState], *, unread: bool) -> None:
        metrics = self._metrics
        states = Counter(CoverageState.UNKNOWN if unread else coverage.of(name) for name in nodes)
        for state in CoverageState:
            metrics.coverage.labels(state.value).set(states[state])
        metrics.gaps_open.set(len(coverage.gaps))
        concerned = sum(any(gap.concerns(name) for gap in coverage.gaps) for name in nodes)
        metrics.nodes_with_gaps.set(concerned if coverage.gaps else 0)
        metrics.nodes_ambiguous.set(len(coverage.ambiguous))

    def _say_unread(self, unread_since_ns: int | None) -> None:
        if unread_since_ns is None:
            if self._unread_updates >= UNREAD_UPDATES:
                again = " again" if self._reached_present else ""
                logs.info(f"The kernel logs are read up to the present{again}.")
            self._unread_updates, self._reached_present = 0, True
            return
        self._unread_updates += 1
        if self._unread_updates != UNREAD_UPDATES:
            return
        upto = stamp(moment_of(unread_since_ns))
        if self._reached_present:
            logs.warning(
                f"The kernel logs were read in full up to {upto} and no further: until they are, every node "
                "that nothing stands against counts as unknown."
            )
        else:
            logs.info(
                f"Reading the kernel logs of the past: they are read up to {upto}. Until the present is "
                "reached, every node that nothing stands against counts as unknown."
            )

    def _say_silent(self, nodes: Mapping[str, NodeState], now_ns: int) -> None:
        silent = {name: since_ns for name, since_ns in self._unsaid.items() if name in nodes}
        self._unsaid.clear()
        if not silent:
            return
        since = stamp(moment_of(min(silent.values())))
        count = "1 node" if len(silent) == 1 else f"{len(silent):,} nodes"
        message = (
            f"The kernel log of {count} has not been heard since {since}: {listed(sorted(silent), _NAMES)}. "
            "Unknown is not healthy: look at the kernel-log reader and the collector."
        )
        logs.warning(message, nodes=sorted(silent)[:50], count=len(silent))
        if len(silent) > 1 and len(silent) * 100 > FLEET_PERCENT * len(nodes):
            self._fleet_said_ns = now_ns
            self._fleet_event(EventReason.SILENT, message)
        elif now_ns - self._fleet_said_ns >= QUIET_NS:
            for name, since_ns in sorted(silent.items()):
                since = stamp(moment_of(since_ns))
                told = f"Its kernel log has not been heard since {since}: unknown is not healthy."
                self._announce(nodes[name], EventReason.SILENT, told)

    def _say_ambiguous(self, ambiguous: frozenset[str], nodes: Mapping[str, NodeState]) -> None:
        for name in sorted(ambiguous - self._ambiguous):
            message = (
                "Two machines report under this name at once, by the boots in their heartbeats: it is not "
                "tainted until one is left. Give each machine a name of its own."
            )
            logs.warning(f"node {name}: {message}", node=name)
            if name in nodes:
                self._announce(nodes[name], EventReason.AMBIGUOUS, message)
        for name in sorted(self._ambiguous - ambiguous):
            logs.info(f"node {name}: only one machine reports under this name now.", node=name)
        self._ambiguous = ambiguous

    def _announce(self, state: NodeState, reason: EventReason, message: str) -> None:
        change = Change(state.name, Verb.RECORD, record=None, health=None, event=reason, message=message)
        self._events.announce(state, change)


def _say(items: Iterable[tuple[str, OpenSpan]], sentence: str, *, worrying: bool = False) -> None:
    """One line of the log for all nodes with the same span, to the minute, instead of one for each."""
    together: defaultdict[tuple[int, int], list[tuple[str, OpenSpan]]] = defaultdict(list)
    for name, (start_ns, end_ns) in items:
        minute = 60 * SECOND_NS
        together[start_ns // minute, (end_ns or 0) // minute].append((name, (start_ns, end_ns)))
    for same in together.values():
        names = sorted(name for name, _ in same)
        start_ns = min(span[0] for _, span in same)
        end_ns = max(span[1] or 0 for _, span in same)
        start, end = stamp(moment_of(start_ns)), stamp(moment_of(end_ns))
        span = f" from {start} to {end}" if end_ns > start_ns else ""
        who = f"The kernel log of {listed(names, _NAMES)}"
        (logs.warning if worrying else logs.info)(
            sentence.format(names=who, span=span), nodes=names[:50], count=len(names)
        )
