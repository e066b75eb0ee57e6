"""One reconcile: observe, detect, decide, write, report. The only path from lines to writes.

The reconciler keeps a fault until its plan was applied. The checkpoint never moves past the oldest fault that
it keeps (rule 9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from konductor_like.cluster.lease.kept import Kept
from konductor_like.controller.loop.observation import Observer
from konductor_like.controller.loop.retries import THIN_ABOVE, UnknownNodes, thinned
from konductor_like.controller.loop.writes import Writes
from konductor_like.controller.ports import EventSink, Nodes
from konductor_like.controller.reporting.metrics import Latency, Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.detection import detect
from konductor_like.model import (
    AlertsSeen,
    Checkpoint,
    ConditionsSeen,
    Fault,
    GpuCounts,
    Growth,
    LogLine,
    Misnamed,
    Plan,
    RecentEvidence,
    ReturnedNode,
    Snapshot,
    Source,
    TaintedNode,
    Verb,
)
from konductor_like.model.attempts import Attempt, Unwritten
from konductor_like.policy.change import shadow_event, would_taint
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.node.machines import recent_releases

ROUNDS = 5
"""Decisions in one reconcile. It decides again when another client changed a node before the write."""


class Reconciler:
    """Turns lines into writes, and remembers what the next reconcile needs."""

    def __init__(
        self,
        nodes: Nodes,
        observer: Observer,
        writes: Writes,
        events: EventSink,
        report: Report,
        metrics: Metrics,
        *,
        policy: PolicyConfig,
        start: Checkpoint,
        unknown_node_seconds: float,
        misnamed: Mapping[str, Misnamed] | None = None,
        detect: Callable[[LogLine], Fault | None] = detect,
        gpus: GpuCounts | None = None,
        alerts: AlertsSeen | None = None,
        latency: Latency | None = None,
    ) -> None:
        """Prepare to reconcile.

        ``start`` is the checkpoint until the first reconcile is done. ``misnamed`` are the names without a
        Node that the last controller has reported. Without ``gpus``, GPUs are not counted, and other
        programs' conditions are not read. A backtest has neither ``gpus`` nor ``latency``. ``alerts`` is None
        if Prometheus is not asked.
        """
        self.policy = policy
        """The rules in force; may be set between two reconciles."""
        self._observer = observer
        self._gpus = gpus
        self._conditions = None if gpus is None else ConditionsSeen(start.act_from_ns)
        self._alerts = alerts
        self._latency = latency
        self._detect = detect
        self._nodes = nodes
        self._writes = writes
        self._events = events
        self._report = report
        self._metrics = metrics
        self._act_from_ns = start.act_from_ns
        self._checkpoint = start
        self._open: list[Fault] = []
        self._unknown_nodes = UnknownNodes(unknown_node_seconds, misnamed)
        self._grown: Mapping[str, tuple[Growth, ...]] = {}
        self._read_ns = dict(start.read_ns)
        self._released = start.released
        self._window = RecentEvidence()
        self._kept_out: Mapping[str, str] = {}

    @property
    def more_to_write(self) -> bool:
        """Whether writes of records were left for the next reconcile."""
        return self._writes.more

    @property
    def unfinished(self) -> int:
        """The number of faults that wait for their node to register or for a failed write to succeed."""
        return len(self._open)

    def checkpoint(self) -> Checkpoint:
        """Return up to when each source was read *and* acted upon. May be called from any thread."""
        return self._checkpoint

    def read_ns(self, source: Source) -> int | None:
        """Return up to when the source was read, even if its faults still wait. For any thread."""
        return self._read_ns.get(source)

    def tainted(self) -> tuple[TaintedNode, ...] | None:
        """Return the Nodes with our taint and the Nodes deleted with it; None before the first reconcile.

        May be called from any thread.
        """
        return self._observer.tainted

    def returned(self) -> tuple[ReturnedNode, ...]:
        """Return the last returns by reboot. May be called from any thread."""
        return self._observer.returned

    def kept(self) -> Kept:
        """Return the records that Nodes have no room for. May be called from any thread."""
        return self._observer.kept.content

    def writes(self) -> tuple[Attempt, tuple[Unwritten, ...]]:
        """Return how writes went, and the Nodes that could not be written. May be called from any thread."""
        return self._writes.attempts

    def kept_out(self) -> Mapping[str, str]:
        """Return, by tainted node, the guard for which it does not return now. For any thread."""
        return self._kept_out

    def misnamed(self, now: datetime) -> Mapping[str, Misnamed]:
        """Return the names in kernel faults that the controller dropped because no Node has the name."""
        return self._unknown_nodes.misnamed(self._nodes.snapshot(), now)

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
        """Detect faults in ``lines``, decide, write, report. ``read_ns`` is up to when each source is read.

        ``past`` are faults from before the start, which an earlier controller acted upon; None if the warm-up
        delivered none. ``replaying`` is true while the warm-up goes on. ``received_ns`` is when Loki's answer
        with the lines of a source arrived.
        """
        before, self._open = self._open, []
        try:
            found, others = self._detected(self._observer.named(lines))
            if self._latency:
                self._latency.read(found, received_ns or {})
            waited = self._observer.named_faults(before)
            faults = [*waited, *(fault for fault in found if not fault.finding.shadow)]
            shadowed = [fault for fault in found if fault.finding.shadow]
            unknown: list[Fault] = []
            rounds = 0
            while True:
                rounds += 1
                snapshot = self._observe(now, replaying=replaying)
                plan = self._decide(snapshot, faults, now, past)
                unknown.extend(plan.of_unknown_nodes)  # a node may be deleted between two rounds
                shadowed.extend(plan.shadowed)
                conflicted = self._write(plan, snapshot, faults, now)
                faults, past = [fault for fault in faults if fault.node in conflicted], None
                if not conflicted or rounds == ROUNDS:
                    break
            self._keep([*self._open, *faults], unknown, now)
            self._writes.settle(plan, now)
            self._kept_out = plan.kept_out
            self._tell(plan, shadowed, others, now)
        except BaseException:
            # The reader does not commit these lines, so it will deliver them again.
            self._open = before
            raise
        self._read_ns.update(read_ns)
        self._released = recent_releases(self._released, self._observer.states().values(), now)
        self._checkpoint = self._checkpointed()
        return plan

    def _detected(self, lines: Iterable[LogLine]) -> tuple[list[Fault], list[LogLine]]:
        """Return the faults in the lines, and the lines without a fault."""
        found: list[Fault] = []
        others: list[LogLine] = []
        for line in lines:
            fault = self._detect(line)
            if fault is None:
                others.append(line)
            elif fault.timestamp_ns < self._act_from_ns:
                found.append(replace(fault, before_install=True))
            else:
                found.append(fault)
        return found, others

    def _observe(self, now: datetime, *, replaying: bool) -> Snapshot:
        """Return all that a decision depends on: what is seen now, and what was remembered."""
        seen = self._observer.observe(self.policy, self._writes.taints_in_flight, now)
        return replace(
            self._writes.known(seen, now),
            grown=self._grown,
            read_ns=self._checkpoint.read_ns,  # not ``_read_ns``: faults that wait are not acted upon yet
            gpus=self._gpus,
            conditions=self._conditions,
            alerts=self._alerts,
            window=self._window,
            replaying=replaying,
        )

    def _decide(
        self, snapshot: Snapshot, faults: Sequence[Fault], now: datetime, past: Sequence[Fault] | None
    ) -> Plan:
        """Return the plan. If it taints or returns, read the controls again; if changed, decide again."""
        plan = decide(snapshot, faults, self.policy, now, past=past)
        if any(each.verb in (Verb.TAINT, Verb.UNTAINT) or each.ends_claim for each in plan.changes):
            latest = self._observer.with_latest_controls(snapshot, now)
            if latest is not snapshot:
                plan = decide(latest, faults, self.policy, now, past=past)
        self._observer.want_jobs(plan.counted)
        if plan.gpus is not None and self._gpus is not None:
            self._report.gpus(plan.gpus, self._gpus)
        # Also if a write fails: lines that are read again add nothing.
        self._window, self._gpus = plan.window, plan.gpus
        self._conditions, self._alerts = plan.conditions, plan.alerts
        return plan

    def _write(self, plan: Plan, snapshot: Snapshot, faults: Sequence[Fault], now: datetime) -> set[str]:
        """Apply the plan. Return the nodes that another client changed meanwhile."""
        found = self._writes.apply(plan, snapshot, {fault.node for fault in faults}, now)
        in_flight = self._writes.taints_in_flight
        self._observer.note_written(
            found.written, snapshot, self.policy, in_flight, now, lacking=found.lacking
        )
        self._carry_over(plan, faults, found.unwritten | found.conflicted, found.unwritten, now)
        if any(change.event is not None for _, change in found.written):
            self._report.counted(self._nodes.snapshot(), plan.brake)
        for state, change in found.written:
            self._events.announce(state, change)
        return found.conflicted

    def _carry_over(
        self, plan: Plan, faults: Sequence[Fault], again: set[str], unwritten: set[str], now: datetime
    ) -> None:
        """Report the faults that are done. Keep the faults and counts of the nodes to decide ``again``."""
        self._open.extend(fault for fault in faults if fault.node in unwritten)
        self._report.faults(
            [fault for fault in plan.counted if fault.node not in again],
            [item for item in plan.ignored if item.fault.node not in again],
            now,
        )
        kept = {name: grown for name, grown in self._grown.items() if name in again}
        self._grown = {**plan.grown, **kept}

    def _keep(self, undone: list[Fault], unknown: Sequence[Fault], now: datetime) -> None:
        """Keep the faults to decide again, and for a while the faults of nodes that do not exist."""
        kept, given_up = self._unknown_nodes.sort_out(unknown, now, may_give_up=self._nodes.problem is None)
        self._report.unknown_nodes(kept, given_up, now)
        self._observer.note_unnamed(kept, given_up)
        undone += kept
        self._open = thinned(undone) if len(undone) > THIN_ABOVE else undone

    def _tell(self, plan: Plan, shadowed: Sequence[Fault], others: Sequence[LogLine], now: datetime) -> None:
        """Report the plan as a whole, and the taints that rules in shadow mode would have written."""
        nodes, version = self._nodes.snapshot(), self.policy.version
        self._observer.note_unparsed(others)
        self._report.audit.refused(plan.refused, version, now)
        self._report.fleet(nodes, plan.brake, len(self._open), now)
        self._report.kept_out(plan.kept_out)
        for fault in self._report.shadowed(shadowed, version, now) if shadowed else ():
            state = nodes.get(str(fault.node))
            if state is not None and would_taint(state, fault):
                self._events.announce(state, shadow_event(state, fault))

    def _checkpointed(self) -> Checkpoint:
        read_ns = dict(self._read_ns)
        for fault in self._open:
            if fault.source in read_ns:
                read_ns[fault.source] = min(read_ns[fault.source], fault.timestamp_ns)
        return Checkpoint(read_ns, self._act_from_ns, self._released)
