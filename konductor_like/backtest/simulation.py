"""The controller's reconciler under one set of rules, on a simulated clock and in a dry run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace

from konductor_like.backtest.history import round_up
from konductor_like.backtest.nodes import SimulatedNodes
from konductor_like.backtest.result import HeldSpan, Load, Outage, Verdicts
from konductor_like.cluster.node_writer import DryRunWriter
from konductor_like.controller import logs
from konductor_like.controller.leadership import IDLE_SECONDS
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.ports import DryRunEvents
from konductor_like.controller.reconciler import Reconciler
from konductor_like.controller.report import Report
from konductor_like.detection import Detector
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.model import Checkpoint, Fault, Incident, LogLine, Plan, Refusal, Refused, Source, Verb
from konductor_like.model.time import moment_of, span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.release import may_return, release

KEPT_MOST = 50_000
"""Outages, held spans and changes of the load, each; a bad rule may act without end, and more are counted."""
_WAITING = frozenset({Refusal.BRAKE, Refusal.RATE, Refusal.COOLDOWN, Refusal.OPTED_OUT, Refusal.NOT_SELECTED})
_IDLE_NS = span_ns(IDLE_SECONDS)


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumptions that no history tells: when a node comes back, and how often the controller polls."""

    release_after_ns: int | None
    """None: nobody brings a node back."""
    poll_ns: int


class Simulation:
    """``poll`` with each poll's lines, in order; ``finish`` in the end."""

    def __init__(
        self,
        detector: Detector,
        rules: PolicyConfig,
        assumptions: Assumptions,
        nodes: SimulatedNodes,
        start_ns: int = 0,
        *,
        enforce_shadow: bool = False,
    ) -> None:
        """``enforce_shadow``: as if no rule were in shadow mode."""
        self.without_boot = 0
        """Faults of kernel lines that name no boot."""
        self.found_shadow = False
        """Whether a rule in shadow mode found anything."""
        self._anchors = {source: detector.anchors(source) for source in Source}
        self._joiner = MultilineDetector(lambda: detector)
        self._enforce_shadow = enforce_shadow
        self._rules = rules
        self._assumptions = assumptions
        self._nodes = nodes
        self._writer = DryRunWriter()
        metrics = Metrics()
        self._reconciler = Reconciler(
            nodes,
            self._writer,
            DryRunEvents(),
            Report(metrics, dry_run=True),
            metrics,
            rules=rules,
            start=Checkpoint(dict.fromkeys(Source, start_ns), start_ns),
            unknown_node_seconds=0.0,
            detect=self._detect,
            records_at_once=None,
        )
        self._returns: list[tuple[int, str]] = []
        self._look_ns: int | None = None
        self._out: dict[str, Outage] = {}
        self._held: dict[str, HeldSpan] = {}
        self._outages: list[Outage] = []
        self._held_spans: list[HeldSpan] = []
        self._loads: list[Load] = []
        self._faults = 0
        self._dropped = 0

    def poll(self, now_ns: int, lines: Iterable[LogLine]) -> None:
        """Reconcile with these lines, after whatever was due before them."""
        self._run_until(now_ns - 1)
        self._reconcile(now_ns, lines)

    def finish(self, end_ns: int) -> None:
        """Let the time run out."""
        self._run_until(end_ns)

    def verdicts(self) -> Verdicts:
        """The outages, held spans and loads so far, by time."""
        return Verdicts(
            self._rules.version,
            tuple(sorted([*self._outages, *self._out.values()], key=lambda each: (each.start_ns, each.node))),
            tuple(sorted([*self._held_spans, *self._held.values()], key=lambda s: (s.start_ns, s.node))),
            tuple(self._loads),
            self._faults,
            sum(state.is_gpu_node for state in self._nodes.snapshot().values()),
            self._dropped,
        )

    def _detect(self, line: LogLine) -> Fault | None:
        """The fault of a line that these rules would have asked Loki for."""
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
        """All that happens without a line: nodes that come back, refusals that last for a time."""
        while True:
            due = [self._returns[0][0]] if self._returns else []
            if self._look_ns is not None:
                due.append(self._look_ns)
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
                if self._assumptions.release_after_ns is not None:
                    back_ns = self._polled_ns(now_ns + self._assumptions.release_after_ns)
                    heapq.heappush(self._returns, (back_ns, change.node))
        if plan.refused or self._held:
            self._note_held(now_ns, plan.refused)
        self._note_load(now_ns)
        self._look_ns = self._next_look_ns(now_ns, plan)

    def _next_look_ns(self, now_ns: int, plan: Plan) -> int | None:
        """When to look again although nothing is said.

        What the brake's bound holds passes when a node comes back, and that is looked at then anyway. A write
        on one node may change what evidence on others of its job or NVLink domain means.
        """
        reasons, brake, states = {item.why for item in plan.refused}, plan.brake, self._nodes.snapshot()
        is_shared = any(
            change.node in plan.window.jobs or states[change.node].domain is not None
            for change in plan.changes
        )
        times = [now_ns + _IDLE_NS] if is_shared or Refusal.DEFERRED in reasons else []
        if Refusal.COOLDOWN in reasons and brake.rearms_at is not None:
            times.append(unix_ns(brake.rearms_at))
        if Refusal.RATE in reasons and brake.pace is not None and brake.pace.frees_at is not None:
            times.append(unix_ns(brake.pace.frees_at))
        return max(now_ns + _IDLE_NS, round_up(min(times), _IDLE_NS)) if times else None

    def _polled_ns(self, ns: int) -> int:
        return round_up(ns, self._assumptions.poll_ns)

    def _bring_back(self, now_ns: int, name: str) -> None:
        """The assumed release, unless its failures keep the node out: then later, or never."""
        state, now = self._nodes.snapshot()[name], moment_of(now_ns)
        why = may_return(state.record, now, self._rules)
        if why is not None:
            self._out[name] = replace(self._out[name], why_longer=why)
            if state.record.replace_since is None and state.record.hold_until is not None:
                heapq.heappush(self._returns, (self._polled_ns(unix_ns(state.record.hold_until)), name))
            return
        change = release(
            state,
            at=now,
            by="backtest",
            reason="assumed",
            how="reset",
            read_ns=self._reconciler.checkpoint().read_ns,
            rules=self._rules,
        )
        released = None if change is None else self._writer.write(state, change).state
        if released is not None:
            self._nodes.apply(released)
            self._keep(self._outages, replace(self._out.pop(name), end_ns=now_ns))
            self._note_load(now_ns)

    def _note_load(self, now_ns: int) -> None:
        if len(self._out) != (self._loads[-1].out if self._loads else 0):
            self._keep(self._loads, Load(now_ns, len(self._out)))

    def _note_held(self, now_ns: int, refused: Iterable[Refused]) -> None:
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
                self._keep(self._held_spans, replace(span, end_ns=now_ns))
        self._held = held

    def _keep(self, into: list, what: object) -> None:  # type: ignore[type-arg]  # one of three lists
        if len(into) < KEPT_MOST:
            into.append(what)
        else:
            self._dropped += 1
