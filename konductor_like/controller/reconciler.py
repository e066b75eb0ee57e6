"""One reconcile: detect, observe, decide, write, report, remember. The only path from lines to writes.

What could not be written yet stays here, and keeps the checkpoint behind it (rule 9): a line is done
with only when the plan that it led to was applied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from konductor_like.cluster.node_writer import Outcome, WriteResult
from konductor_like.controller import logs
from konductor_like.controller.backlog import THIN_ABOVE, Stalls, Waiting, thinned
from konductor_like.controller.latency import Latency
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.ports import EventSink, Fleet, Jobs, Nodes, ReadControls, Writer
from konductor_like.controller.report import Report
from konductor_like.detection import detect
from konductor_like.jobs import by_name
from konductor_like.model import (
    Change,
    Checkpoint,
    Controls,
    Fault,
    Growth,
    LogLine,
    Misnamed,
    NodeRecord,
    NodeState,
    Plan,
    Severity,
    Snapshot,
    Source,
    TaintedNode,
    Verb,
    Window,
)
from konductor_like.policy.brake import follow
from konductor_like.policy.change import shadow_event, would_taint
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.machines import remembered

ROUNDS = 5
"""How often one reconcile decides again after somebody else changed a node under it."""
RECORDS_AT_ONCE = 32
"""Bookkeeping that one reconcile does at most, so that it never holds up the next taint for long."""


class Reconciler:
    """Turns lines into writes, and keeps what must survive from one reconcile to the next."""

    def __init__(
        self,
        nodes: Nodes,
        writer: Writer,
        events: EventSink,
        report: Report,
        metrics: Metrics,
        *,
        rules: Callable[[], PolicyConfig],
        start: Checkpoint,
        unknown_node_seconds: float,
        misnamed: Mapping[str, Misnamed] | None = None,
        detect: Callable[[LogLine], Fault | None] = detect,
        controls: ReadControls | None = None,
        jobs: Jobs | None = None,
        fleet: Fleet | None = None,
        latency: Latency | None = None,
        records_at_once: int | None = RECORDS_AT_ONCE,
    ) -> None:
        """``start`` is where reading begins; until a reconcile was finished it is the checkpoint.

        ``misnamed`` is what is known of names that no Node has.
        ``controls`` tells what people told us, ``jobs`` which ones run on nodes, ``fleet`` what heartbeats
        say; ``latency`` measures. Each may be missing.
        ``records_at_once`` is None where writes cost no time.
        """
        self._controls = controls
        self._jobs = jobs
        self._fleet = fleet
        self._latency = latency
        self._records_at_once = records_at_once
        self._detect = detect
        self._nodes = nodes
        self._writer = writer
        self._events = events
        self._report = report
        self._metrics = metrics
        self._rules = rules
        self._act_from_ns = start.act_from_ns
        self._checkpoint = start
        self._open: list[Fault] = []
        self._waiting = Waiting(unknown_node_seconds, misnamed)
        self._stalls = Stalls()
        self._in_flight: dict[str, tuple[Change, Sequence[Fault]]] = {}
        self._grown: Mapping[str, tuple[Growth, ...]] = {}
        self._full: dict[str, tuple[str | None, NodeRecord]] = {}
        self._read_ns = dict(start.read_ns)
        self._released = start.released
        self._window = Window()
        self._replaying = False
        self._tainted: tuple[TaintedNode, ...] | None = None
        self.more_to_write = False
        """Whether bookkeeping was left for the next reconcile."""

    @property
    def unfinished(self) -> int:
        """Faults that wait for their node, or for a write that failed."""
        return len(self._open)

    @property
    def in_flight(self) -> frozenset[str]:
        """Nodes that may carry our taint although no answer said so."""
        return frozenset(self._in_flight)

    def checkpoint(self) -> Checkpoint:
        """Everything before this was read *and* acted upon; may be asked from another thread."""
        return self._checkpoint

    def read_ns(self, source: Source) -> int | None:
        """How far the source was read, whatever still waits to be acted upon; from any thread."""
        return self._read_ns.get(source)

    def tainted(self) -> tuple[TaintedNode, ...] | None:
        """The Nodes with our taint, and those deleted with it; None before the first look.

        May be asked from another thread.
        """
        return self._tainted

    def misnamed(self, now: datetime) -> Mapping[str, Misnamed]:
        """Names of kernel faults that were given up because no Node has them."""
        return self._waiting.misnamed(self._nodes.snapshot(), now)

    def run(
        self,
        lines: Iterable[LogLine],
        read_ns: Mapping[Source, int],
        now: datetime,
        past: Sequence[Fault] | None = None,
        *,
        replaying: bool = False,
        received_ns: Mapping[Source, int] | None = None,
    ) -> Plan:
        """Judge ``lines``, write what follows, and say so. ``read_ns`` is how far each source is read now.

        ``past`` are faults from before this process began, acted upon then; None where none are handed in.
        ``replaying`` says that there is more of them to come. ``received_ns`` tells when Loki answered with
        the lines of each source.
        """
        before, self._replaying = self._open, replaying
        try:
            faults, shadows = self._detected(lines, received_ns or {})
            plan = self._reconcile([*before, *faults], past, now)
        except BaseException:
            # Whatever it was, the lines were not acted upon; their reader will give them again.
            self._open = before
            raise
        self._report_shadows(shadows, now)
        self._read_ns.update(read_ns)
        self._released = remembered(self._released, self._states().values(), now)
        self._checkpoint = self._checkpointed()
        return plan

    def _reconcile(self, faults: list[Fault], past: Sequence[Fault] | None, now: datetime) -> Plan:
        """Observe, decide and write until nobody else changed a node meanwhile; then report."""
        self._open = []
        waiting: list[Fault] = []
        rounds = 0
        while True:
            rounds += 1
            snapshot = self._observe(now)
            plan = self._decide(snapshot, faults, now, past)
            waiting.extend(plan.waiting)  # a node may go between two rounds
            conflicted = self._write(plan, snapshot.nodes, faults, now)
            faults, past = [fault for fault in faults if fault.node in conflicted], None
            if not conflicted or rounds == ROUNDS:
                break
        self._open.extend(faults)
        self._keep_waiting(waiting, now)
        if len(self._open) > THIN_ABOVE:
            self._open = thinned(self._open)
        self._confirm(plan, now)
        self._report.refused(plan.refused, self._rules().version, now)
        self._report.fleet(self._nodes.snapshot(), plan.brake, len(self._open), now)
        return plan

    def _report_shadows(self, faults: Sequence[Fault], now: datetime) -> None:
        """Say what rules on trial would have done, on the nodes too."""
        nodes = self._nodes.snapshot()
        for fault in self._report.shadowed(faults, self._rules().version, now):
            state = nodes.get(str(fault.node))
            if state is not None and would_taint(state, fault):
                self._events.announce(state, shadow_event(state, fault))

    def _checkpointed(self) -> Checkpoint:
        read_ns = dict(self._read_ns)
        for fault in self._open:
            if fault.source in read_ns:
                read_ns[fault.source] = min(read_ns[fault.source], fault.timestamp_ns)
        return Checkpoint(read_ns, self._act_from_ns, self._released)

    def _detected(
        self, lines: Iterable[LogLine], received_ns: Mapping[Source, int]
    ) -> tuple[list[Fault], list[Fault]]:
        """The faults to act on, and those of rules in shadow mode; what was found is measured."""
        found: list[Fault] = []
        others: list[LogLine] = []
        for line in lines:
            fault = self._detect(line)
            if fault is None:
                others.append(line)
            else:
                before_install = fault.timestamp_ns < self._act_from_ns
                found.append(replace(fault, before_install=True) if before_install else fault)
        if self._latency:
            self._latency.found(found, received_ns)
        if self._fleet:
            self._fleet.count_unparsed(others)
        return (
            [fault for fault in found if not fault.finding.shadow],
            [fault for fault in found if fault.finding.shadow],
        )

    def _observe(self, now: datetime) -> Snapshot:
        """All that a decision depends on. A write must test the very states in it, and no newer ones."""
        states = self._states()
        known = self._jobs.known() if self._jobs else {}
        return Snapshot(
            states,
            controls=self._latest_controls(states, now),
            in_flight=self.in_flight,
            unwritable=self._stalls.unwritable(now),
            grown=self._grown,
            read_ns=self._checkpoint.read_ns,  # behind what still waits to be acted upon
            ambiguous=self._fleet.ambiguous if self._fleet else frozenset(),
            left=self._fleet.left if self._fleet else {},
            window=self._window,
            replaying=self._replaying,
            jobs={name: found.jobs for name, found in known.items()},
            pods={name: found.pods for name, found in known.items()},
        )

    def _decide(
        self, snapshot: Snapshot, faults: Sequence[Fault], now: datetime, past: Sequence[Fault] | None
    ) -> Plan:
        """The plan; before a taint it is made again with the latest controls, if they differ."""
        rules = self._rules()
        plan = decide(snapshot, faults, rules, now, past=past)
        if self._controls and any(change.verb is Verb.TAINT for change in plan.changes):
            # A pause holds from the moment it was written: no taint without a look.
            latest = replace(self._controls(now, at_once=True), tainted=snapshot.controls.tainted)
            if latest != snapshot.controls:
                plan = decide(replace(snapshot, controls=latest), faults, rules, now, past=past)
        if self._jobs:
            self._jobs.want(sorted({str(fault.node) for fault in plan.counted if _is_of_a_job(fault)}))
        self._metrics.evidence_dropped.inc(plan.window.dropped - self._window.dropped)
        self._window = plan.window  # what is read again adds nothing to it
        return plan

    def _latest_controls(self, states: Mapping[str, NodeState], now: datetime) -> Controls:
        """What the Lease says; of the Nodes with our taint, what is known here, once we have begun."""
        controls = self._controls(now) if self._controls else Controls()
        if self._tainted is None:
            self._tainted = controls.tainted
        return replace(controls, tainted=self._follow(states, now))

    def _follow(self, states: Mapping[str, NodeState], now: datetime) -> tuple[TaintedNode, ...]:
        """Note which Nodes bear our taint now, and say which were deleted with it."""
        rules = self._rules()
        before = self._tainted or ()
        self._tainted = found = follow(before, states, rules, now, self.in_flight)
        deleted = [each.name for each in found if each.deleted_at is not None and each not in before]
        self._report.deleted(deleted, now + timedelta(seconds=rules.brake_cooldown_seconds))
        return found

    def _states(self) -> Mapping[str, NodeState]:
        """The nodes, with what their annotations do not say while nobody else has written them since.

        An annotation may have had no room for it, or it went with a Node that was deleted and made anew.
        """
        states = self._nodes.snapshot()
        if self._fleet:
            self._full.update((name, (None, record)) for name, record in self._fleet.returned(states).items())
        self._full = {
            name: (text, record)
            for name, (text, record) in self._full.items()
            if name in states and states[name].as_read.record == text
        }
        if not self._full:
            return states
        full = {name: replace(states[name], record=record) for name, (_, record) in self._full.items()}
        return {**states, **full}

    def _keep_record(self, change: Change, state: NodeState) -> None:
        self._full.pop(state.name, None)
        if change.record is not None and state.record != change.record:
            self._full[state.name] = (state.as_read.record, change.record)

    def _write(
        self, plan: Plan, states: Mapping[str, NodeState], faults: Sequence[Fault], now: datetime
    ) -> set[str]:
        """Apply a plan; gives the nodes that somebody else changed meanwhile."""
        due, self.more_to_write = self._due(plan, now)
        unwritten = {change.node for change in plan.changes} - {change.node for change in due}
        results = self._writer.write_all([(states[change.node], change) for change in due])
        counted = _by_node(plan.counted)
        conflicted: set[str] = set()
        announced: list[tuple[NodeState, Change]] = []
        for change, result in zip(due, results, strict=True):
            if result.state is not None:
                self._nodes.apply(result.state)
            match result.outcome:
                case Outcome.APPLIED if result.state is not None:
                    self._applied(change, result.state, now)
                    announced.append((result.state, change))
                case Outcome.CONFLICT:
                    self._report.failed(change, "", result="conflict")
                    conflicted.add(change.node)
                case Outcome.UNDER_WAY:
                    self._slow(change, counted, now)
                    unwritten.add(change.node)
                case _:
                    self._failed(change, result, counted, now)
                    unwritten.add(change.node)
        self._settle(plan, faults, unwritten | conflicted, unwritten, now)
        tainted = {state.name: state for state, change in announced if change.verb is Verb.TAINT}
        if tainted or self._in_flight:  # the Nodes may be deleted before anybody looks again
            self._follow({**states, **tainted}, now)
        for state, change in announced:
            self._events.announce(state, change)
        return conflicted

    def _due(self, plan: Plan, now: datetime) -> tuple[list[Change], bool]:
        """What to write now: every taint that may be tried, and some bookkeeping; whether more is left."""
        changes = [change for change in plan.changes if not self._stalls.holds(change, now)]
        taints = [change for change in changes if change.verb is Verb.TAINT]
        records = [change for change in changes if change.verb is not Verb.TAINT]
        written = records[: self._records_at_once]
        return taints + written, len(written) < len(records)

    def _applied(self, change: Change, state: NodeState, now: datetime) -> None:
        self._report_applied(change, now)
        self._keep_record(change, state)
        self._recovered(change.node)

    def _report_applied(self, change: Change, now: datetime) -> None:
        self._report.applied(change, now)
        if self._latency and change.verb is Verb.TAINT and change.evidence is not None:
            self._latency.tainted(change.evidence)

    def _slow(self, change: Change, counted: Mapping[str, Sequence[Fault]], now: datetime) -> None:
        """The server has not answered yet, and the write goes on; what comes of it, the nodes will show."""
        self._report.slow(change)
        if change.verb is Verb.TAINT:
            self._in_flight.setdefault(change.node, (change, counted.get(change.node, ())))
        self._stalls.failed(change, now)

    def _failed(
        self, change: Change, result: WriteResult, counted: Mapping[str, Sequence[Fault]], now: datetime
    ) -> None:
        """It was not written. A Node that is gone says so itself soon; until then its faults are kept."""
        error = result.error
        why = "" if error is None else logs.told(error)
        self._report.failed(change, why, result=result.outcome.value)
        if error is not None:
            self._metrics.kube_errors.labels(type(error).__name__).inc()
        if result.outcome_unknown and change.verb is Verb.TAINT:
            self._in_flight.setdefault(change.node, (change, counted.get(change.node, ())))
        asked = None if error is None else error.retry_after_seconds
        self._stalls.failed(change, now, at_least_seconds=asked or 0.0)

    def _settle(
        self, plan: Plan, faults: Sequence[Fault], again: set[str], unwritten: set[str], now: datetime
    ) -> None:
        """Let go of what is done; keep what belongs to nodes that must be decided ``again``."""
        self._open.extend(fault for fault in faults if fault.node in unwritten)
        self._report.settled(
            [fault for fault in plan.counted if fault.node not in again],
            [item for item in plan.ignored if item.fault.node not in again],
            now,
        )
        kept = {name: grown for name, grown in self._grown.items() if name in again}
        self._grown = {**plan.grown, **kept}

    def _confirm(self, plan: Plan, now: datetime) -> None:
        """A taint without an answer is settled once its node shows it, or needs none any more."""
        nodes = self._nodes.snapshot()
        wanted = {change.node for change in plan.changes if change.verb is Verb.TAINT}
        stalled = self._stalls.unwritable(now)
        for name, (change, counted) in list(self._in_flight.items()):
            state = nodes.get(name)
            if state is None or _is_another(state, change):
                self._recovered(name)  # the patch tests the UID: it cannot take effect any more
            elif state.tainted:
                self._report_applied(change, now)
                self._report.settled(counted, (), now)
                self._events.announce(state, change)
                self._recovered(name)
            elif name not in wanted and name not in stalled:
                self._recovered(name)

    def _recovered(self, node: str) -> None:
        self._stalls.recovered(node)
        self._in_flight.pop(node, None)

    def _keep_waiting(self, waiting: Sequence[Fault], now: datetime) -> None:
        kept, given_up = self._waiting.sort_out(waiting, now, may_give_up=self._nodes.problem is None)
        self._report.unknown_nodes(kept, given_up, now)
        self._open.extend(kept)


def _is_of_a_job(fault: Fault) -> bool:
    """Whether it matters whose job it hit, and its line does not say so."""
    return by_name(fault.job) if fault.job else fault.severity is not Severity.INFO


def _is_another(state: NodeState, change: Change) -> bool:
    """Whether the Node was deleted and made anew since the change was decided."""
    decided = change.record.machine if change.record else None
    return decided is not None and decided.node_uid != state.machine.node_uid


def _by_node(faults: Iterable[Fault]) -> Mapping[str, Sequence[Fault]]:
    found: defaultdict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        if fault.node is not None:
            found[fault.node].append(fault)
    return found
