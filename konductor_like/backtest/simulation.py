"""The controller's reconciler as a dry run: one set of rules, a simulated clock, simulated nodes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import replace

from konductor_like.backtest.history import round_up
from konductor_like.backtest.result import HeldSpan, Outage, Peak, Verdicts
from konductor_like.cluster.node import patch as node_patch
from konductor_like.cluster.node.writer import DryRunWriter
from konductor_like.controller import logs
from konductor_like.controller.loop.leadership import IDLE_SECONDS
from konductor_like.controller.loop.observation import Observer
from konductor_like.controller.loop.reconciler import Reconciler
from konductor_like.controller.loop.writes import Writes
from konductor_like.controller.ports import DryRunEvents
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.detection import Detector
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.model import (
    AsRead,
    Checkpoint,
    Fault,
    Incident,
    LogLine,
    Machine,
    NodeRecord,
    NodeState,
    Plan,
    Severity,
    SkippedTaint,
    SkipReason,
    Source,
    Verb,
)
from konductor_like.model.time import moment_of, span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.endings import seconds_of_test
from konductor_like.policy.node.lifecycle import may_return
from konductor_like.policy.node.release import purge, release

_WAITING = frozenset(
    {SkipReason.BRAKE, SkipReason.RATE, SkipReason.COOLDOWN, SkipReason.OPTED_OUT, SkipReason.NOT_SELECTED}
)
_IDLE_NS = span_ns(IDLE_SECONDS)


class Simulation:
    """A replay: call :meth:`poll` with the lines of each poll, in order, and :meth:`finish` at the end."""

    def __init__(
        self,
        detector: Detector,
        policy: PolicyConfig,
        nodes: SimulatedNodes,
        *,
        poll_ns: int,
        release_after_ns: int | None,
        start_ns: int = 0,
        enforce_shadow: bool = False,
    ) -> None:
        """Set up a replay.

        ``release_after_ns``: the time from a taint to its release; None if no node is ever released.
        ``poll_ns``: the time between two polls. ``enforce_shadow``: treat rules in shadow mode as enforced.
        """
        self.without_boot = 0
        """Number of faults in kernel lines that name no boot."""
        self.found_shadow = False
        """Whether a rule in shadow mode found a fault."""
        self._anchors = {source: detector.anchors(source) for source in Source}
        self._joiner = MultilineDetector(detector)
        self._enforce_shadow = enforce_shadow
        self._rules = policy
        self._poll_ns, self._release_after_ns = poll_ns, release_after_ns
        self._nodes = nodes
        self._writer = DryRunWriter(shorten=False)
        metrics = Metrics()
        report, events = Report(metrics, dry_run=True), DryRunEvents()
        self._reconciler = Reconciler(
            nodes,
            Observer(nodes, report),
            Writes(nodes, self._writer, events, report, metrics, records_at_once=None),
            events,
            report,
            metrics,
            policy=policy,
            start=Checkpoint(dict.fromkeys(Source, start_ns), start_ns),
            unknown_node_seconds=0.0,
            detect=self._detect,
        )
        self._returns: list[tuple[int, str]] = []
        self._reconcile_at_ns: int | None = None
        self._out: dict[str, Outage] = {}
        self._held: dict[str, HeldSpan] = {}
        self._outages: list[Outage] = []
        self._held_spans: list[HeldSpan] = []
        self._peak: Peak | None = None
        self._faults = 0

    def poll(self, now_ns: int, lines: Iterable[LogLine]) -> None:
        """Reconcile with these lines, after everything that was due before them."""
        self._run_until(now_ns - 1)
        self._reconcile(now_ns, lines)

    def finish(self, end_ns: int) -> None:
        """Play everything that is due up to the history's end."""
        self._run_until(end_ns)

    def verdicts(self) -> Verdicts:
        """Return the outages and held spans so far, sorted by time, and the totals."""
        return Verdicts(
            self._rules.version,
            tuple(sorted([*self._outages, *self._out.values()], key=lambda each: (each.start_ns, each.node))),
            tuple(sorted([*self._held_spans, *self._held.values()], key=lambda s: (s.start_ns, s.node))),
            self._peak,
            self._faults,
            sum(state.is_gpu_node for state in self._nodes.snapshot().values()),
        )

    def _detect(self, line: LogLine) -> Fault | None:
        """Return the fault of a line; None for a line that these rules' own query would not have returned."""
        if not any(anchor in line.text for anchor in self._anchors[line.source]):
            return None
        fault = self._joiner.detect(line)
        if fault is None:
            return None
        self.without_boot += fault.finding.position.boot_id is None and fault.source is Source.KERNEL
        if fault.finding.shadow:
            self.found_shadow = True
            if not self._enforce_shadow:
                return fault
            fault = replace(fault, finding=fault.finding._replace(shadow=False))
        self._nodes.learn_from(fault)
        return fault

    def _run_until(self, upto_ns: int) -> None:
        """Play everything due that needs no line: nodes come back, and reasons for no taint end."""
        while True:
            due = [self._returns[0][0]] if self._returns else []
            if self._reconcile_at_ns is not None:
                due.append(self._reconcile_at_ns)
            if not due or min(due) > upto_ns:
                return
            now_ns = min(due)
            while self._returns and self._returns[0][0] <= now_ns:
                self._bring_back(now_ns, heapq.heappop(self._returns)[1])
            self._reconcile(now_ns, ())

    def _reconcile(self, now_ns: int, lines: Iterable[LogLine]) -> None:
        with logs.silenced():
            plan = self._reconciler.run(lines, dict.fromkeys(Source, now_ns), moment_of(now_ns))
        self._faults += len(plan.counted)
        for change in plan.changes:
            if change.verb is Verb.TAINT and change.incident is not None:
                self._out[change.node] = Outage(change.node, now_ns, None, change.incident)
                if self._release_after_ns is not None:
                    self._return_at(now_ns + self._release_after_ns, change.node)
            elif change.verb is Verb.UNTAINT and change.node in self._out:  # a test has ended
                self._outages.append(replace(self._out.pop(change.node), end_ns=now_ns))
        if plan.refused or self._held:
            self._note_held(now_ns, plan.refused)
        if len(self._out) > (self._peak.out if self._peak else 0):
            self._peak = Peak(now_ns, len(self._out))
        self._reconcile_at_ns = self._next_reconcile_ns(now_ns, plan)

    def _next_reconcile_ns(self, now_ns: int, plan: Plan) -> int | None:
        """Return the next time to reconcile even if no line comes; None if there is no need.

        A node that the brake's bound holds is tainted when another node comes back; every return is followed
        by a reconcile anyway. A write on one node may change the decision on other nodes of its job or NVLink
        domain.
        """
        reasons, brake, states = {item.why for item in plan.refused}, plan.brake, self._nodes.snapshot()
        is_shared = any(
            change.node in plan.window.jobs or states[change.node].domain is not None
            for change in plan.changes
        )
        times = [now_ns + _IDLE_NS] if is_shared or SkipReason.DEFERRED in reasons else []
        for outage in self._out.values():
            test_ns = span_ns(seconds_of_test(outage.incident.evidence, self._rules))
            if outage.incident.severity is Severity.TEST and test_ns:
                times.append(now_ns + test_ns - (now_ns - outage.start_ns) % test_ns)
        if SkipReason.COOLDOWN in reasons and brake.rearms_at is not None:
            times.append(unix_ns(brake.rearms_at))
        if SkipReason.RATE in reasons and brake.pace is not None and brake.pace.frees_at is not None:
            times.append(unix_ns(brake.pace.frees_at))
        return max(now_ns + _IDLE_NS, round_up(min(times), _IDLE_NS)) if times else None

    def _return_at(self, ns: int, name: str) -> None:
        heapq.heappush(self._returns, (round_up(ns, self._poll_ns), name))

    def _bring_back(self, now_ns: int, name: str) -> None:
        """Release a node as assumed; if its earlier failures require it, release it later or never."""
        outage = self._out.get(name)
        if outage is None or now_ns < outage.start_ns + (self._release_after_ns or 0):
            return  # the outage ended by itself; a later one has a return of its own
        state, now = self._nodes.snapshot()[name], moment_of(now_ns)
        why = may_return(state.record, now, self._rules)
        if why is not None:
            self._out[name] = replace(outage, why_longer=why)
            if not state.record.life.marked and state.record.life.hold_until is not None:
                self._return_at(unix_ns(state.record.life.hold_until), name)
            return
        change = release(
            state,
            at=now,
            by="backtest",
            reason="assumed",
            read_ns=self._reconciler.checkpoint().read_ns,
            policy=self._rules,
        )
        released = None if change is None else self._writer.write(state, change).state
        if released is not None:
            self._nodes.apply(released)
            self._outages.append(replace(self._out.pop(name), end_ns=now_ns))

    def _note_held(self, now_ns: int, refused: Iterable[SkippedTaint]) -> None:
        held: dict[str, HeldSpan] = {}
        for item in refused:
            if item.why not in _WAITING or not isinstance(item.about, Incident) or item.node in held:
                continue
            before = self._held.get(item.node)
            is_same = before is not None and before.why is item.why
            held[item.node] = (
                before if before and is_same else HeldSpan(item.node, now_ns, None, item.why, item.about)
            )
        for name, span in self._held.items():
            if held.get(name) is not span:
                self._held_spans.append(replace(span, end_ns=now_ns))
        self._held = held


class SimulatedNodes:
    """The simulated cluster, in place of the controller's view of the real one."""

    problem: Exception | None = None

    def __init__(self, states: Iterable[NodeState] = (), *, complete: bool = False) -> None:
        """Take the nodes' states, without their marks.

        ``complete``: ``states`` has all GPU nodes; a further node counts only if its kernel log proves a GPU.
        """
        self._complete = complete
        self._states = {state.name: _in_the_past(state) for state in states}

    def snapshot(self) -> Mapping[str, NodeState]:
        """Return all nodes, as one consistent view."""
        return dict(self._states)

    def apply(self, state: NodeState) -> None:
        """Replace a node by the state that was written."""
        self._states[state.name] = state

    def learn_from(self, fault: Fault) -> None:
        """Add the node that the line names, and set its boot to the line's, except to an earlier boot."""
        if fault.node is None:
            return
        state = self._states.get(fault.node)
        proves = fault.source is Source.KERNEL and fault.finding.kind.proves_gpu
        boot_id = fault.finding.position.boot_id
        if state is None:
            state = healthy_node(fault.node, is_gpu_node=proves or not self._complete)
        elif proves and not state.is_gpu_node:
            state = replace(state, is_gpu_node=True)
        if boot_id not in (None, state.machine.boot_id, *state.record.past_boots):
            state = replace(state, machine=replace(state.machine, boot_id=boot_id))
        self._states[state.name] = state


def healthy_node(name: str, *, is_gpu_node: bool = True) -> NodeState:
    """Return a node of which only the name is known."""
    uid = f"backtest:{name}"
    return NodeState(
        name=name,
        machine=Machine(uid),
        created_ns=0,
        is_gpu_node=is_gpu_node,
        ready=True,
        unschedulable=False,
        taints=(),
        record=NodeRecord(),
        as_read=AsRead(uid, "0", None, None, None, has_annotations=True, has_labels=True),
    )


def _in_the_past(state: NodeState) -> NodeState:
    """Return a node as it may have been in the past: without our marks; lines will name its boot."""
    change = purge(state)
    clean = state if change is None else node_patch.applied(state, change)
    return replace(clean, machine=replace(clean.machine, boot_id=None), created_ns=0)
