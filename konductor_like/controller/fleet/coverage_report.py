"""Reports changes of the coverage, and boots that nobody ordered, as log lines, metrics and Events.

Many nodes at once make one Event.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from konductor_like.controller import logs
from konductor_like.controller.fleet.coverage import FLEET_PERCENT, CoverageChanges, OpenSpan
from konductor_like.controller.ports import EventSink, FleetEvent
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.detection import Overrun
from konductor_like.model import Change, Coverage, CoverageState, EventReason, IncidentState, NodeState, Verb
from konductor_like.model.text import listed
from konductor_like.model.time import SECOND_NS, moment_of, stamp
from konductor_like.policy.node.endings import is_grave
from konductor_like.policy.wording import planned_sentence

GATHER_NS = 75 * SECOND_NS
"""Nanoseconds for which silent nodes are gathered before they are reported.

Heartbeats come once a minute, so the controller notices nodes that fall silent together one after the other.
"""
QUIET_NS = 600 * SECOND_NS
"""Nanoseconds after an Event about the fleet in which no silent node gets an Event of its own.

It is less if an Event tells that the logs arrive again.
"""
FEW_BOOTS = 5
"""Boots within ``QUIET_NS`` that get an Event each; if there are more, one Event reports the others."""
UNREAD_UPDATES = 2
"""Updates in a row that must find the kernel logs unread before the controller logs it."""
_NAMES = 5
_SEARCHES = "The controller searches Loki for the lines in between."


class CoverageReport:
    """Remembers the nodes still to report, and what was reported, so that it is not reported twice."""

    def __init__(self, metrics: Metrics, events: EventSink, fleet_event: FleetEvent) -> None:
        self._metrics = metrics
        self._events = events
        self._fleet_event = fleet_event
        self._unreported: dict[str, int] = {}
        self._gather_until_ns: int | None = None
        self._told: dict[str, int] = {}
        """By silent node that an Event reported, since when it is silent. Each such Event has one end."""
        self._back: set[str] = set()
        """The nodes among them that are heard again. An Event reports it, unless they fall silent before."""
        self._back_until_ns: int | None = None
        self._fleet_reported_ns = -QUIET_NS
        self._booted: list[int] = []
        """When the latest boots that nobody ordered were seen."""
        self._ambiguous: frozenset[str] = frozenset()
        self._left: set[tuple[str, str]] = set()
        self._unread_updates = 0
        """Updates in a row that found the kernel logs unread. The first update after a start often does."""
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
        """Report the changes. ``nodes`` are the GPU nodes.

        If ``unread_since_ns`` is set, the kernel logs are not read (:meth:`FleetMonitor.update`), and every
        node counts as unknown, even if its heartbeats arrive.
        """
        self._measure(coverage, nodes, unread=unread_since_ns is not None)
        self._log_unread(unread_since_ns)
        for name, (since_ns, _) in changes.silent:
            if name in self._told:
                self._back.discard(name)
                continue
            self._unreported[name] = since_ns
            self._gather_until_ns = self._gather_until_ns or now_ns + GATHER_NS
        if back := {name for name, _ in changes.heard if name in self._told}:
            self._back |= back
            self._back_until_ns = self._back_until_ns or now_ns + GATHER_NS
        heard = [item for item in changes.heard if self._unreported.pop(item[0], None) is None]
        _log_spans(
            heard,
            "{names} arrives again. The controller searches Loki for the missing lines{span} until "
            "they arrive or are too old.",
        )
        _log_spans(changes.closed, "{names} is complete again: the missing heartbeats{span} arrived late.")
        _log_spans(
            changes.given_up,
            "{names} has a gap{span} that is too old now. The controller stops searching; lines in the "
            "gap may be lost.",
            worrying=True,
        )
        if self._gather_until_ns is not None and now_ns >= self._gather_until_ns:
            self._gather_until_ns = None
            self._report_silent(nodes, now_ns)
        if self._back_until_ns is not None and now_ns >= self._back_until_ns:
            self._back_until_ns = None
            self._report_back(nodes)
        self._report_ambiguous(coverage.ambiguous, nodes)

    def unnamed(self, node: str, boot_id: str, number: int) -> None:
        """Report a line with a fault that was dropped because it named no node. It is lost."""
        self._metrics.records_lost.inc()
        logs.warning(
            f"node {node}: a line of its kernel log with a fault (record {number} of boot {boot_id}) came "
            "without the node's name and was dropped. The node does not return by itself in this boot. Check "
            "that the collector names the node on each line.",
            node=node,
        )

    def overran(self, node: str, overrun: Overrun, state: NodeState | None) -> None:
        """Report records that the kernel overwrote before they were read. They are lost."""
        self._metrics.records_lost.inc(overrun.lost)
        message = (
            f"The kernel overwrote {overrun.lost:,} records of its log ({overrun.first} to {overrun.last} "
            f"of boot {overrun.boot_id}) before the reader read them; faults in them are lost. Boot with a "
            "larger kernel log buffer, such as log_buf_len=4M."
        )
        logs.warning(f"node {node}: {message}", node=node, lost=overrun.lost)
        if state is not None:
            self._announce(state, EventReason.OVERRUN, message)

    def began_late(self, lost: Iterable[tuple[str, Overrun]]) -> None:
        """Log the nodes that were never heard before, and whose ring buffer had lost its beginning.

        When the kernel-log reader is installed, that is so on all nodes that run for long, so it is no Event.
        """
        if names := sorted({name for name, _ in lost}):
            logs.info(
                f"The kernel log of {listed(names, _NAMES)} is heard for the first time, and its oldest "
                "records of this boot were overwritten before. Faults in them are not seen.",
                nodes=names[:50],
                count=len(names),
            )

    def registered_again(self, names: Collection[str], dropped: Collection[str]) -> None:
        """Log the Nodes whose earlier kernel lines are read again, and those for which too many wait."""
        if names:
            logs.info(
                f"{listed(sorted(names), _NAMES)} registered again, or without a controller: the controller "
                "reads the kernel lines since boot again, a day at most.",
                nodes=sorted(names)[:50],
                count=len(names),
            )
        if dropped:
            logs.error(
                f"{listed(sorted(dropped), _NAMES)} registered again, but too many nodes wait to be read: "
                "faults from before the last hour are not seen there. Check these nodes, and taint those "
                "that are faulty with `konductor-like taint`.",
                nodes=sorted(dropped)[:50],
                count=len(dropped),
            )

    def booted(self, before: Mapping[str, NodeState], nodes: Mapping[str, NodeState], now_ns: int) -> None:
        """Report the boots between two views of the nodes that nobody ordered.

        The write that notes the boot reports the boot of a node with grave open incidents.
        """
        booted = [
            (old, new)
            for name, new in nodes.items()
            # Nearly all are the same object, so 5,000 nodes are compared in a millisecond.
            if (old := before.get(name)) is not None
            and old is not new
            and new.is_gpu_node
            and new.machine.rebooted_since(old.machine)
        ]
        found = [
            replace(new, planned=new.planned or old.planned)
            for old, new in booted
            if _was_in_service(old, new)
        ]
        recent = [ns for ns in self._booted if now_ns - ns < QUIET_NS]
        self._booted = recent + [now_ns] * len(found)
        if len(self._booted) <= FEW_BOOTS:
            for state in found:
                cause = "Look for the cause, such as a panic, a power failure or an update."
                message = (
                    f"The machine has rebooted: boot {state.machine.boot_id} runs. The node was in service "
                    f"and not cordoned. {planned_sentence(state) or cause}"
                )
                logs.info(f"node {state.name}: {message}", node=state.name)
                self._announce(state, EventReason.REBOOTED, message)
        elif len(recent) <= FEW_BOOTS:
            names = listed(sorted(state.name for state in found), _NAMES)
            message = (
                f"{len(self._booted)} machines in service rebooted within ten minutes, the latest: {names}. "
                "Look for a common cause, such as power or an update."
            )
            logs.warning(message, count=len(self._booted))
            self._fleet_event(EventReason.REBOOTED, message)

    def left(self, left: Mapping[str, frozenset[str]]) -> None:
        """Log once each boot that faults waited for and that the Node has left."""
        found = {(node, boot) for node, boots in left.items() for boot in boots}
        for node, boot in sorted(found - self._left):
            logs.info(
                f"node {node}: boot {boot} has ended, because heartbeats of the present boot arrived later. "
                "Faults of the ended boot no longer count.",
                node=node,
            )
        self._left = found

    def _measure(self, coverage: Coverage, nodes: Mapping[str, NodeState], *, unread: bool) -> None:
        metrics = self._metrics
        states = Counter(CoverageState.UNKNOWN if unread else coverage.of(name) for name in nodes)
        for state in CoverageState:
            metrics.coverage.labels(state.value).set(states[state])
        metrics.nodes_ambiguous.set(len(coverage.ambiguous))

    def _log_unread(self, unread_since_ns: int | None) -> None:
        if unread_since_ns is None:
            if self._unread_updates >= UNREAD_UPDATES:
                again = " again" if self._reached_present else ""
                logs.info(f"The controller has read all kernel lines up to the present{again}.")
            self._unread_updates, self._reached_present = 0, True
            return
        self._unread_updates += 1
        if self._unread_updates != UNREAD_UPDATES:
            return
        upto = stamp(moment_of(unread_since_ns))
        if self._reached_present:
            logs.warning(
                f"The controller has read all kernel lines only up to {upto}. Until it catches up, every "
                "node without a recorded fault is UNKNOWN."
            )
        else:
            logs.info(
                f"The controller is reading older kernel lines and has reached {upto}. Until it catches up, "
                "every node without a recorded fault is UNKNOWN."
            )

    def _report_silent(self, nodes: Mapping[str, NodeState], now_ns: int) -> None:
        silent = {name: since_ns for name, since_ns in self._unreported.items() if name in nodes}
        self._unreported.clear()
        if not silent:
            return
        since = stamp(moment_of(min(silent.values())))
        count = "1 node" if len(silent) == 1 else f"{len(silent):,} nodes"
        message = (
            f"The kernel log of {count} has not arrived since {since}: {listed(sorted(silent), _NAMES)}. "
            "Kernel faults there are not seen. Check the kernel-log reader and the collector."
        )
        logs.warning(message, nodes=sorted(silent)[:50], count=len(silent))
        if len(silent) > 1 and len(silent) * 100 > FLEET_PERCENT * len(nodes):
            self._fleet_reported_ns = now_ns
            self._fleet_event(EventReason.SILENT, message)
            self._told |= silent
        elif now_ns - self._fleet_reported_ns >= QUIET_NS:
            for name, since_ns in sorted(silent.items()):
                since = stamp(moment_of(since_ns))
                message = (
                    f"The node's kernel log has not arrived since {since}, so its kernel faults are not "
                    "seen. Check the kernel-log reader and the collector."
                )
                self._announce(nodes[name], EventReason.SILENT, message)
            self._told |= silent

    def _report_back(self, nodes: Mapping[str, NodeState]) -> None:
        """Report the end of silences that were reported, in one Event if many nodes are heard again."""
        back = {name: self._told[name] for name in sorted(self._back & nodes.keys())}
        left = self._told.keys() & nodes.keys() - self._back
        self._told = {name: self._told[name] for name in left}
        self._back.clear()
        if len(back) > 1 and len(back) * 100 > FLEET_PERCENT * len(nodes):
            self._fleet_reported_ns = -QUIET_NS  # the end was told, so the next silence must be, too
            still = f" That of {len(left):,} is still missing." if left else ""
            self._fleet_event(
                EventReason.RESTORED,
                f"The kernel log of {len(back):,} nodes arrives again: {listed(list(back), _NAMES)}. The "
                f"silence began at {stamp(moment_of(min(back.values())))}.{still} {_SEARCHES}",
            )
            return
        for name, since_ns in back.items():
            since = stamp(moment_of(since_ns))
            message = f"The node's kernel log arrives again. The silence began at {since}. {_SEARCHES}"
            self._announce(nodes[name], EventReason.RESTORED, message)

    def _report_ambiguous(self, ambiguous: frozenset[str], nodes: Mapping[str, NodeState]) -> None:
        for name in sorted(ambiguous - self._ambiguous):
            message = (
                "Two machines report under this node's name at the same time: their heartbeats have "
                "different boot ids. The controller does not taint the node until only one machine "
                "reports. Give each machine its own name."
            )
            logs.warning(f"node {name}: {message}", node=name)
            if name in nodes:
                self._announce(nodes[name], EventReason.AMBIGUOUS, message)
        for name in sorted(self._ambiguous - ambiguous):
            logs.info(f"node {name}: only one machine reports under this name now.", node=name)
            if name in nodes:
                message = "Only one machine reports under this node's name now. The node may be tainted."
                self._announce(nodes[name], EventReason.RESTORED, message)
        self._ambiguous = ambiguous

    def _announce(self, state: NodeState, reason: EventReason, message: str) -> None:
        change = Change(state.name, Verb.RECORD, record=None, health=None, event=reason, message=message)
        self._events.announce(state, change)


def _was_in_service(old: NodeState, new: NodeState) -> bool:
    """Whether the node worked and nobody had cordoned it, so that nobody had ordered the boot."""
    is_left_alone = new.tainted or new.opted_out or old.unschedulable or new.unschedulable
    return not is_left_alone and not any(
        each.state is not IncidentState.RELEASED and is_grave(each) for each in old.record.incidents
    )


def _log_spans(items: Iterable[tuple[str, OpenSpan]], sentence: str, *, worrying: bool = False) -> None:
    """Log one line for all nodes whose span is the same to the minute."""
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
