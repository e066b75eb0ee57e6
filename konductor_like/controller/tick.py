"""One tick: detect, decide, act, report. The only path from lines to writes.

What could not be written yet stays here, and keeps the checkpoint behind it (design rule 9): a line is done
with only when the plan that it led to was applied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from konductor_like.cluster.writer import Outcome, WriteResult
from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.report import Report
from konductor_like.detection import detect
from konductor_like.model import (
    Change,
    Checkpoint,
    Fault,
    LogLine,
    NodeRecord,
    NodeState,
    Plan,
    Snapshot,
    Source,
    TallyKey,
    Unsettled,
)
from konductor_like.policy import Rules, decide

ROUNDS = 5
"""How often one tick decides again after somebody else changed a node under it."""
RETRY_FIRST_SECONDS = 2.0
RETRY_CAP_SECONDS = 120.0


class Nodes(Protocol):
    """The cluster's nodes as we know them."""

    def snapshot(self) -> Mapping[str, NodeState]:
        """All nodes, as one consistent view."""

    def apply(self, state: NodeState) -> None:
        """Fold in a newer state of one node."""


class Writer(Protocol):
    """Writes changes to nodes."""

    def write_all(self, pairs: Sequence[tuple[NodeState, Change]]) -> list[WriteResult]:
        """One result per pair, in order; never raises for what went wrong with one of them."""


class EventSink(Protocol):
    """Takes Events; best effort."""

    def announce(self, state: NodeState, change: Change) -> None:
        """Tell about an applied change."""


@dataclass(frozen=True, slots=True)
class _Stalled:
    """A node whose write failed: when to try again, and how long it took so far."""

    until: datetime
    seconds: float


class Tick:
    """Runs ticks and keeps what must survive from one to the next."""

    def __init__(
        self,
        nodes: Nodes,
        writer: Writer,
        events: EventSink,
        report: Report,
        metrics: Metrics,
        *,
        rules: Rules,
        start: Checkpoint,
        unknown_node_seconds: float,
    ) -> None:
        """``start`` is where reading begins; until a tick was finished it is the checkpoint."""
        self._nodes = nodes
        self._writer = writer
        self._events = events
        self._report = report
        self._metrics = metrics
        self._rules = rules
        self._act_from_ns = start.act_from_ns
        self._checkpoint = start
        self._unknown_node = timedelta(seconds=unknown_node_seconds)
        self._open: list[Fault] = []
        self._waiting_since: dict[str, datetime] = {}
        self._stalled: dict[str, _Stalled] = {}
        self._in_flight: frozenset[str] = frozenset()
        self._unsettled: dict[str, Mapping[TallyKey, Unsettled]] = {}
        self._full: dict[str, tuple[str | None, NodeRecord]] = {}
        self._read_ns = dict(start.read_ns)

    def run(self, lines: Iterable[LogLine], read_ns: Mapping[Source, int], now: datetime) -> Plan:
        """Judge ``lines``, write what follows, and say so. ``read_ns`` is how far each source is read now."""
        before = (self._open, dict(self._read_ns))
        try:
            return self._run(lines, read_ns, now)
        except BaseException:
            # Whatever it was, the lines were not acted upon; their reader will give them again.
            self._open, self._read_ns = before
            raise

    def checkpoint(self) -> Checkpoint:
        """Everything before this was read *and* acted upon; may be asked from another thread."""
        return self._checkpoint

    def _run(self, lines: Iterable[LogLine], read_ns: Mapping[Source, int], now: datetime) -> Plan:
        self._read_ns.update(read_ns)
        faults = [*self._open, *self._detected(lines)]
        self._open = []
        plan = self._decide(faults, now)
        self._keep_waiting(plan.waiting, now)
        for _ in range(ROUNDS):
            conflicted = self._act(plan, faults, now)
            faults = [fault for fault in faults if fault.node in conflicted]
            if not conflicted:
                break
            plan = self._decide(faults, now)
        self._open.extend(faults)
        self._confirm(plan, now)
        self._report.fleet(self._nodes.snapshot(), plan.brake, len(self._open))
        self._checkpoint = self._checkpointed()
        return plan

    def _checkpointed(self) -> Checkpoint:
        read_ns = dict(self._read_ns)
        for fault in self._open:
            if fault.source in read_ns:
                read_ns[fault.source] = min(read_ns[fault.source], fault.timestamp_ns)
        return Checkpoint(read_ns, self._act_from_ns)

    def _detected(self, lines: Iterable[LogLine]) -> list[Fault]:
        found = (detect(line) for line in lines)
        return [
            replace(fault, before_install=True) if fault.timestamp_ns < self._act_from_ns else fault
            for fault in found
            if fault is not None
        ]

    def _decide(self, faults: Sequence[Fault], now: datetime) -> Plan:
        snapshot = Snapshot(self._states(), self._in_flight, self._unsettled, self._read_ns)
        return decide(snapshot, faults, self._rules, now)

    def _states(self) -> Mapping[str, NodeState]:
        """The nodes, with what their annotations had no room for while nobody else has written them since."""
        states = self._nodes.snapshot()
        self._full = {
            name: (text, record)
            for name, (text, record) in self._full.items()
            if name in states and states[name].as_read.record == text
        }
        if not self._full:
            return states
        return {
            **states,
            **{name: replace(states[name], record=full) for name, (_, full) in self._full.items()},
        }

    def _remember(self, change: Change, state: NodeState) -> None:
        self._full.pop(state.name, None)
        if change.record is not None and state.record != change.record:
            self._full[state.name] = (state.as_read.record, change.record)

    def _act(self, plan: Plan, faults: Sequence[Fault], now: datetime) -> set[str]:
        """Apply a plan; gives the nodes that somebody else changed meanwhile."""
        states = self._states()
        due = [change for change in plan.changes if not self._is_stalled(change.node, now)]
        postponed = {change.node for change in plan.changes} - {change.node for change in due}
        results = self._writer.write_all([(states[change.node], change) for change in due])
        conflicted: set[str] = set()
        unwritten = set(postponed)
        announced: list[tuple[NodeState, Change]] = []
        for change, result in zip(due, results, strict=True):
            if result.state is not None:
                self._nodes.apply(result.state)
            match result.outcome:
                case Outcome.APPLIED:
                    self._report.applied(change, now)
                    self._recovered(change.node)
                    if result.state is not None:
                        self._remember(change, result.state)
                        announced.append((result.state, change))
                case Outcome.CONFLICT:
                    self._report.failed(change, "", result="conflict")
                    conflicted.add(change.node)
                case Outcome.GONE:
                    self._report.failed(change, "", result="gone")
                    self._recovered(change.node)
                case Outcome.FAILED:
                    self._stall(change, result, now)
                    unwritten.add(change.node)
        self._settle(plan, faults, unwritten | conflicted, unwritten)
        for state, change in announced:
            if change.event is not None:
                self._events.announce(state, change)
        return conflicted

    def _settle(self, plan: Plan, faults: Sequence[Fault], again: set[str], unwritten: set[str]) -> None:
        """Let go of what is done; keep what belongs to nodes that must be decided ``again``."""
        self._open.extend(fault for fault in faults if fault.node in unwritten)
        self._report.settled(
            [fault for fault in plan.counted if fault.node not in again],
            [item for item in plan.ignored if item.fault.node not in again],
        )
        kept = {name: tallies for name, tallies in self._unsettled.items() if name in again}
        self._unsettled = {**plan.unsettled, **kept}

    def _confirm(self, plan: Plan, now: datetime) -> None:
        """A write without an answer is settled once nothing more has to be written to its node."""
        wanted = {change.node for change in plan.changes}
        for name in self._in_flight - wanted:
            if not self._is_stalled(name, now):
                self._recovered(name)

    def _keep_waiting(self, waiting: Sequence[Fault], now: datetime) -> None:
        by_node: defaultdict[str, list[Fault]] = defaultdict(list)
        for fault in waiting:
            by_node[str(fault.node)].append(fault)
        since = {name: self._waiting_since.get(name, now) for name in by_node}
        for name, faults in by_node.items():
            expired = now - since[name] >= self._unknown_node
            self._report.unknown_nodes(faults, expired=expired)
            if expired:
                del since[name]
            else:
                self._open.extend(faults)
        self._waiting_since = since

    def _is_stalled(self, node: str, now: datetime) -> bool:
        stalled = self._stalled.get(node)
        return stalled is not None and now < stalled.until

    def _stall(self, change: Change, result: WriteResult, now: datetime) -> None:
        error = result.error
        self._report.failed(change, "" if error is None else logs.told(error))
        if error is not None:
            self._metrics.kube_errors.labels(type(error).__name__).inc()
        if result.outcome_unknown:
            self._in_flight |= {change.node}
        before = self._stalled.get(change.node)
        seconds = RETRY_FIRST_SECONDS if before is None else min(RETRY_CAP_SECONDS, before.seconds * 2)
        self._stalled[change.node] = _Stalled(now + timedelta(seconds=seconds), seconds)

    def _recovered(self, node: str) -> None:
        self._stalled.pop(node, None)
        self._in_flight -= {node}
