"""The writes of plans: which are due now, what became of each, and those without an answer."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from konductor_like.cluster.node.writer import Outcome, WriteResult
from konductor_like.controller import logs
from konductor_like.controller.loop.retries import FailedWrites, Upkeep
from konductor_like.controller.ports import EventSink, Nodes, Writer
from konductor_like.controller.reporting.attempts import error_words
from konductor_like.controller.reporting.metrics import Latency, Metrics
from konductor_like.controller.reporting.report import Report
from konductor_like.model import Change, Fault, NodeState, Plan, Snapshot, Verb
from konductor_like.model.attempts import Attempt, Unwritten

RECORDS_AT_ONCE = 32
"""Writes of records without a taint in one reconcile, so that they do not delay the next taint for long."""


class Outcomes(NamedTuple):
    """What became of the changes of one plan."""

    written: list[tuple[NodeState, Change]]
    conflicted: set[str]
    """The nodes that another client changed meanwhile."""
    unwritten: set[str]
    """The nodes whose write failed, got no answer, or was not due."""
    lacking: set[str]
    """The written nodes that had no room for their record."""


class Writes:
    """Applies plans, and remembers the writes to make again. For one thread."""

    def __init__(
        self,
        nodes: Nodes,
        writer: Writer,
        events: EventSink,
        report: Report,
        metrics: Metrics,
        *,
        latency: Latency | None = None,
        records_at_once: int | None = RECORDS_AT_ONCE,
    ) -> None:
        """A backtest has no ``latency``; its ``records_at_once`` is None, because its writes take no time."""
        self.more = False
        """Whether writes of records were left for the next reconcile."""
        self.attempts: tuple[Attempt, tuple[Unwritten, ...]] = (Attempt(), ())
        """How writes went, and the Nodes that could not be written. Any thread may read this."""
        self.in_flight: dict[str, tuple[Change, Sequence[Fault]]] = {}
        """By node, a taint or release whose write got no answer, so it may be on the Node, and its faults."""
        self._nodes = nodes
        self._writer = writer
        self._events = events
        self._report = report
        self._metrics = metrics
        self._latency = latency
        self._records_at_once = records_at_once
        self._failed = FailedWrites()
        self._upkeep = Upkeep()
        self._wrote_at: datetime | None = None

    @property
    def taints_in_flight(self) -> frozenset[str]:
        """The nodes whose taint may be written although no answer came."""
        return frozenset(name for name, (change, _) in self.in_flight.items() if change.verb is Verb.TAINT)

    def known(self, snapshot: Snapshot, now: datetime) -> Snapshot:
        """Return the snapshot with what the last writes showed."""
        resting = self._failed.resting(now)
        return replace(
            snapshot,
            in_flight=self.taints_in_flight,
            unwritable=frozenset(name for name, verb in resting.items() if verb is Verb.TAINT),
            failing=self._failed.failing(now),
            labels_needs=self._writer.labels_needs,
        )

    def apply(self, plan: Plan, snapshot: Snapshot, with_lines: Set[str | None], now: datetime) -> Outcomes:
        """Write what is due. A change of a node ``with_lines`` never waits: the cursor would wait with it."""
        due = self._due(plan, with_lines, now)
        unwritten = {change.node for change in plan.changes} - {change.node for change in due}
        found = Outcomes([], set(), unwritten, set())
        results = self._writer.write_all([(snapshot.nodes[each.node], each) for each in due])
        for change, result in zip(due, results, strict=True):
            if result.state is not None:
                self._nodes.apply(result.state)
            if result.outcome is Outcome.APPLIED and result.state is not None:
                self._wrote_at = now.replace(microsecond=0)
                if not result.has_record:
                    found.lacking.add(change.node)
                    self._report.no_room(change, result.refusal)
                if result.state is not snapshot.nodes[change.node] or change.event is not None:
                    self._report_applied(change, now)
                self._recovered(change.node)
                found.written.append((result.state, change))
            elif result.outcome is Outcome.CONFLICT:
                self._report.not_written(change, result.outcome)
                found.conflicted.add(change.node)
            else:
                self._not_written(change, result, plan, now)
                found.unwritten.add(change.node)
        return found

    def settle(self, plan: Plan, now: datetime) -> None:
        """Forget failures and unanswered writes that the plan, the last of a reconcile, wants no more."""
        self._confirm(plan, now)
        self._failed.keep({(change.node, change.verb) for change in plan.changes}, now)
        self.attempts = self._failed.attempt(self._wrote_at)

    def _due(self, plan: Plan, with_lines: Set[str | None], now: datetime) -> list[Change]:
        """Return the changes to write now: all taints whose retry is due, and a limited number of records."""
        resting = self._failed.resting(now)
        taints = [each for each in plan.changes if each.verb is Verb.TAINT]
        # A failed write of the node's record does not delay its taint.
        taints = [each for each in taints if resting.get(each.node) is not Verb.TAINT]
        records = [each for each in plan.changes if each.verb is not Verb.TAINT]
        records = [each for each in records if each.node not in resting]
        upkeep = [each for each in records if each.upkeep and each.node not in with_lines]
        urgent = [each for each in records if not each.upkeep or each.node in with_lines]
        written = urgent[: self._records_at_once]
        self.more = len(written) < len(urgent)
        return [*taints, *written, *self._upkeep.due(upkeep, now)]

    def _report_applied(self, change: Change, now: datetime) -> None:
        self._report.applied(change, now)
        if self._latency and change.verb is Verb.TAINT and change.evidence is not None:
            self._latency.tainted(change.evidence)

    def _not_written(self, change: Change, result: WriteResult, plan: Plan, now: datetime) -> None:
        """Report a write that failed or got no answer yet, and plan the next attempt.

        A taint or release without an answer stays in flight until the Node shows whether it was written.
        """
        error = result.error
        self._report.not_written(change, result.outcome, "" if error is None else logs.error_text(error))
        if error is not None:
            self._metrics.kube_errors.labels(type(error).__name__).inc()
        if result.outcome_unknown and change.verb in (Verb.TAINT, Verb.UNTAINT):
            counted = [fault for fault in plan.counted if fault.node == change.node]
            self.in_flight.setdefault(change.node, (change, counted))
        asked = None if error is None else error.retry_after_seconds
        words = "" if error is None else error_words(error)
        self._failed.failed(change, now, words, at_least_seconds=asked or 0.0)

    def _confirm(self, plan: Plan, now: datetime) -> None:
        """Forget a write without an answer once its Node shows it, needs it no more, or is gone."""
        if not self.in_flight:
            return
        nodes = self._nodes.snapshot()
        wanted = {(change.node, change.verb) for change in plan.changes}
        resting = self._failed.resting(now)
        for name, (change, counted) in list(self.in_flight.items()):
            state = nodes.get(name)
            decided = change.record.machine if change.record else None
            if state is None or (decided is not None and decided.node_uid != state.machine.node_uid):
                self._recovered(name)  # the patch tests the UID: it cannot take effect any more
            elif _shows(state, change):
                self._report_applied(change, now)
                self._report.faults(counted, (), now)
                self._events.announce(state, change)
                self._recovered(name)
            elif (name, change.verb) not in wanted and resting.get(name) is not change.verb:
                self._recovered(name)

    def _recovered(self, node: str) -> None:
        self._failed.recovered(node)
        self.in_flight.pop(node, None)


def _shows(state: NodeState, change: Change) -> bool:
    """Whether the Node shows that this taint or release was written."""
    if change.verb is Verb.TAINT:
        return state.tainted
    act = state.record.act
    return not state.tainted and act is not None and act.id == change.act_id
