"""Reports a reconcile as log lines, metrics and Events, from the plan and the results of its writes.

A fact that repeats is logged once, or now and then with a count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.node.writer import Outcome
from konductor_like.controller import logs
from konductor_like.controller.ports import FleetEvent, NoOnlooker, Onlooker
from konductor_like.controller.reporting.audit import Audit, control_applied
from konductor_like.controller.reporting.metrics import NO_SUCH_NODE, Metrics, fault_labels
from konductor_like.controller.reporting.persons_writes import PersonsWrites
from konductor_like.model import (
    BrakeState,
    Change,
    Controls,
    DroppedFault,
    EventReason,
    Fault,
    FaultKind,
    GpuCounts,
    IncidentKey,
    Needs,
    NodeState,
    Severity,
    SkippedTaint,
    SkipReason,
    Source,
    Stage,
    TaintedNode,
    Verb,
)
from konductor_like.model.faults import NAMELESS
from konductor_like.model.text import listed
from konductor_like.model.time import stamp, unix_ns
from konductor_like.policy.fleet.brake import held_back
from konductor_like.policy.fleet.deleted_nodes import MACHINES_MOST
from konductor_like.policy.node.health import only_persons
from konductor_like.policy.node.incidents import QUIET_REASONS
from konductor_like.policy.node.needs import labels_of
from konductor_like.policy.node.removal import is_overruled, overruled_words, writers_answered
from konductor_like.policy.recovery.guards import Guard
from konductor_like.policy.recovery.returns import is_stopped, stop_words
from konductor_like.policy.wording import name_of, why_held

_NAMES = 5
_SHADOWS_REMEMBERED = 10_000
_SHADOW_RULES_MOST = 200
"""Rules with a label of their own in one metric. A line may contain any code, and each code is a rule."""
_REPEATED = timedelta(minutes=10)
"""Time after which an ignored fault is logged again, with a count."""
_REPEATS_REMEMBERED = 1000
_About = tuple[str, str | None, str]
"""Rule, node and reason of an ignored fault."""
_Name = TypeVar("_Name", bound=StrEnum)


class Report:
    """Reports each reconcile, and remembers what it has reported, so that it does not report it twice."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        dry_run: bool = False,
        fleet_event: FleetEvent | None = None,
        onlooker: Onlooker | None = None,
    ) -> None:
        """``fleet_event`` sends an Event about the fleet; without it the report sends none."""
        self._metrics = metrics
        self.audit = Audit(metrics, dry_run=dry_run)
        self.persons = PersonsWrites(self.audit)
        self._fleet_event = fleet_event or (lambda _reason, _message: None)
        self._onlooker = onlooker or NoOnlooker()
        self.brake = BrakeReport(self._fleet_event)
        self._returns_stopped = False
        self._overruled: frozenset[str] = frozenset()
        self._rehearsed: set[str] = set()
        self._kept_out: Counter[str] | None = None
        self._needing: Counter[Needs | None] | None = None
        self._suffix = " (dry run)" if dry_run else ""
        self._no_room: set[str] = set()
        self._tainted: dict[str, NodeState] = {}
        self._logged_unknown: set[str] = set()
        self._unlisted = 0
        self._reported_misnamed: set[str] = set()
        self._reported_misnamed_at: datetime | None = None
        self._logged_odd: set[tuple[str, str]] = set()
        self._logged_shadows: set[tuple[str | None, IncidentKey, str | None]] = set()
        self._shadow_rules: set[str] = set()
        self._ignored = Repeats(_REPEATED)

    def applied(self, change: Change, now: datetime) -> None:
        """Report a write that the API server has accepted."""
        self._metrics.actions.labels(change.verb.value, "applied").inc()
        record = change.record
        is_over = change.verb is Verb.UNTAINT or change.ends_claim
        releases = record.releases if is_over and record is not None else ()
        if releases and releases[0].how.on_probation:
            self._metrics.returns.inc()
        elif change.event is EventReason.RELAPSED:
            self._metrics.relapses.inc()
        for fault in change.news:
            self._log_fault(change.node, fault)
        for grown in change.grown:  # a storm makes one line of the log for each write of its count
            fault, count = grown.latest, grown.latest.times
            times = " (repeated)" if count == 1 else f" (repeated {count:,} times)"
            self._log_fault(change.node, fault, times, count=count)
        if change.verb is Verb.TAINT and change.event is not EventReason.PUT_BACK:
            self._metrics.outages.inc()
            if change.evidence is not None:
                seconds = (unix_ns(now) - change.evidence.timestamp_ns) / 1e9
                self._metrics.fault_to_taint.observe(max(0.0, seconds))
            logs.info(
                f"Node {change.node} tainted.{self._suffix}",
                node=change.node,
                verb=change.verb.value,
                rule=change.incident.key.rule if change.incident else None,
                gpu=change.incident.key.gpu if change.incident else None,
                reason=change.message,
            )
        elif change.event is not None:
            logs.debug(f"node {change.node}: {change.message}{self._suffix}", node=change.node)
        self.audit.written(change, "applied")

    def no_room(self, change: Change, why: KubeError | None) -> None:
        """Report a node that had no room for its record; ``why`` is None if that is known already."""
        if why is not None and change.node not in self._no_room:
            self._no_room.add(change.node)
            lease = "The Lease keeps it in short until there is room in the Node's annotations."
            logs.warning(
                f"Could not write the record of node {change.node}: {why}. {lease}", node=change.node
            )

    def not_written(self, change: Change, outcome: Outcome, why: str = "") -> None:
        """Report a write that did not happen, or that got no answer."""
        node, verb = change.node, change.verb.value
        write = "release" if change.verb is Verb.UNTAINT else verb
        self.audit.written(change, outcome.value, why)
        if outcome is Outcome.UNDER_WAY:
            logs.warning(
                f"node {node}: the API server has not answered the {write} yet; the controller continues.",
                node=node,
            )
            return
        self._metrics.actions.labels(verb, outcome.value).inc()
        if outcome is Outcome.CONFLICT:
            logs.debug(f"node {node} changed in the meantime; the controller decides again.", node=node)
        elif outcome is Outcome.GONE:
            logs.info(f"node {node} no longer exists.", node=node)
        else:
            logs.error(f"Could not {write} node {node}: {why} The controller retries.", node=node)

    def faults(self, counted: Iterable[Fault], ignored: Iterable[DroppedFault], now: datetime) -> None:
        """Report faults that will not be decided again: the counted ones and the ignored ones."""
        kinds: Counter[tuple[Source, FaultKind, int | None, Severity]] = Counter()
        for one in counted:
            kinds[one.source, one.finding.kind, one.finding.code, one.severity] += one.times
        for kind, count in kinds.items():
            self._metrics.faults.labels(*fault_labels(*kind)).inc(count)
        dropped = Counter((item.fault.finding.rule, item.fault.node, item.reason) for item in ignored)
        for about, count in dropped.items():
            self._metrics.ignored.labels(about[2]).inc(count)
            if about[2] not in QUIET_REASONS:
                self._ignored.add(about, count)
        for (rule, node, reason), count in self._ignored.due(now).items():
            times = "" if count == 1 else f" {count:,} times"
            logs.warning(
                f"{rule} of node {node or '<none>'} ignored{times}: {reason}.",
                node=node,
                rule=rule,
                count=count,
            )

    def shadowed(self, faults: Iterable[Fault], rules_version: str, now: datetime) -> list[Fault]:
        """Report faults of rules in shadow mode: count each, log one per node, rule, GPU and boot.

        Return the faults logged now that would have tainted.
        """
        would_taint: list[Fault] = []
        for fault in faults:
            rule, severity = fault.finding.rule, fault.severity
            if len(self._shadow_rules) < _SHADOW_RULES_MOST:
                self._shadow_rules.add(rule)
            shown = rule if rule in self._shadow_rules else "other"
            self._metrics.shadowed.labels(fault.source.value, shown, severity.value).inc()
            key = (fault.node, fault.key, fault.finding.position.boot_id)
            if key in self._logged_shadows:
                continue
            if len(self._logged_shadows) >= _SHADOWS_REMEMBERED:
                self._logged_shadows.clear()
            self._logged_shadows.add(key)
            if severity.taints and fault.node is not None:
                would_taint.append(fault)
            effect = "tainted it" if severity.taints else f"been recorded as {severity}"
            logs.info(
                f"node `{fault.node or '<none>'}` has {_origin(fault)} error that would have {effect} "
                f"(rule {rule} is in shadow mode): {fault.finding.text}",
                node=fault.node,
                rule=rule,
                gpu=fault.finding.gpu,
                severity=severity.value,
                mode="shadow",
            )
        shadows = [
            SkippedTaint(str(each.node), each.key, SkipReason.SHADOW, about=each) for each in would_taint
        ]
        self.audit.refused(shadows, rules_version, now)
        return would_taint

    def unknown_nodes(self, kept: Sequence[Fault], given_up: Sequence[Fault], now: datetime) -> None:
        """Report faults of nodes that do not exist: ``kept`` ones wait, the others are dropped."""
        names = {fault.named for fault in kept}
        for name in sorted(names - self._logged_unknown):
            if name.startswith(NAMELESS):
                logs.warning(
                    f"A fault of {name} came without a node's name, and no GPU Node alone has this boot id. "
                    "The controller waits for one. Check that the collector names the node on each line."
                )
                continue
            logs.warning(
                f"A fault names node {name}, but the cluster has no such Node. The controller waits for it "
                "to register. If it never registers, check the collector's node label.",
                node=name,
            )
        self._logged_unknown = names
        dropped = Counter((fault.finding.rule, fault.named) for fault in given_up)
        for (rule, node), count in dropped.items():
            self._metrics.ignored.labels(NO_SUCH_NODE).inc(count)
            logs.warning(
                f"{rule} of node {node} dropped: the cluster has no such node.", node=node, rule=rule
            )
        self._report_misnamed({fault.named for fault in given_up if fault.source is Source.KERNEL}, now)

    def _report_misnamed(self, names: Set[str], now: datetime) -> None:
        """Send one Event for all new names, at most every ten minutes; ``status`` shows all names."""
        new = sorted(names - self._reported_misnamed)
        if not new or (self._reported_misnamed_at and now - self._reported_misnamed_at < _REPEATED):
            return
        if len(self._reported_misnamed) >= _REPEATS_REMEMBERED:
            self._reported_misnamed.clear()
        self._reported_misnamed.update(new[:_REPEATS_REMEMBERED])
        self._reported_misnamed_at = now
        self._fleet_event(
            EventReason.MISNAMED,
            f"The controller dropped kernel faults that name no existing Node: {listed(new, _NAMES)}. Unless "
            "these Nodes were deleted, check KONDUCTOR_NODE_LABEL and the collector's resource processor.",
        )

    def deleted(self, gone: Sequence[TaintedNode], until: datetime, now: datetime) -> None:
        """Report Nodes that were deleted with our taint. The brake counts them as tainted until ``until``."""
        names = [each.name for each in gone]
        for each in gone:
            self.audit.deleted(each, each.deleted_at or now)
        deleted = "was deleted" if len(names) == 1 else "were deleted"
        message = (
            f"{listed(names, _NAMES)} {deleted} with the controller's taint. The brake counts "
            f"{'it' if len(names) == 1 else 'them'} as out of service until {stamp(until)}. A machine that "
            "registers again is tainted again, until a person releases it."
        )
        logs.warning(message, deleted=list(names[:50]))
        self._fleet_event(EventReason.DELETED, message)

    def forgotten(self, names: Sequence[str], unlisted: int) -> None:
        """Report deleted Nodes whose machines come back clean, and tainted Nodes that the Lease cannot list.

        ``names`` are beyond the number that is remembered. ``unlisted`` is reported when it begins to grow.
        """
        if names:
            logs.warning(
                f"More than {MACHINES_MOST} machines were out of service when their Node was deleted. The "
                f"controller forgets the first of them: {listed(names, _NAMES)}. If one of them registers "
                "again, it is not tainted.",
                forgotten=list(names[:50]),
            )
        if unlisted and not self._unlisted:
            logs.warning(
                f"The Lease has no space for {unlisted} of the tainted Nodes. If these are deleted while no "
                "controller runs, their machines come back clean."
            )
        self._unlisted = unlisted

    def fleet(
        self, nodes: Mapping[str, NodeState], brake: BrakeState, open_faults: int, now: datetime
    ) -> None:
        """Report the state of the fleet after a reconcile: the brake, and taints that were removed."""
        self._metrics.show_brake(brake)
        self._metrics.faults_waiting.set(open_faults)
        tainted = {name: state for name, state in nodes.items() if state.tainted}
        self._onlooker.counted(len(tainted), brake.gpu_nodes)
        self.brake.tell(brake, now)
        self._log_oddities(nodes)
        self._metrics.tainted.set(len(tainted))
        off = [state for state in nodes.values() if state.stage is Stage.REMOVED]
        self._metrics.nodes_contested.set(sum(s.record.life.contested_at is not None for s in off))
        self._overruled_writers(nodes, now)
        self._metrics.marked.set(sum(state.record.life.marked for state in nodes.values()))
        on_probation = sum(state.record.life.on_probation for state in nodes.values())
        self._metrics.on_probation.set(on_probation)
        recorded = (state for state in nodes.values() if not state.record.empty)
        needing = Counter(labels_of(state.record, state, tainted=state.tainted)[1] for state in recorded)
        for needs in _changed(Needs, self._needing, needing):
            self._metrics.needing.labels(needs).set(needing[needs])
        self._needing = needing
        for name in sorted(self._tainted.keys() - tainted.keys()):
            # A Node that was created again under the name never had the taint.
            before = self._tainted[name]
            if name in nodes and nodes[name].as_read.uid == before.as_read.uid:
                record = nodes[name].record
                releases = record.releases
                by = f" By {releases[0].by}." if releases and not record.life.claimed else ""
                is_reset = bool(releases) and not record.life.claimed and releases[0].how.is_reset
                if is_reset and not only_persons(before.record):
                    self._onlooker.reset(nodes[name])
                logs.info(f"Node {name} taint removed.{by}{self._suffix}", node=name, verb="untaint")
        self._tainted = tainted

    def _overruled_writers(self, nodes: Mapping[str, NodeState], now: datetime) -> None:
        """Report the writers against which no taint is put back any more, once for each."""
        writers = {
            writer: names for writer, names in writers_answered(nodes, now).items() if is_overruled(names)
        }
        self._metrics.overruled.set(len(writers))
        for writer in sorted(writers.keys() - self._overruled):
            message = overruled_words(writer)
            logs.warning(message, nodes=sorted(writers[writer])[:50])
            self._fleet_event(EventReason.OVERRULED, message)
        self._overruled = frozenset(writers)

    def counted(self, nodes: Mapping[str, NodeState], brake: BrakeState) -> None:
        """Count the nodes that are out of service now, for the notifications that follow."""
        self._onlooker.counted(sum(state.tainted for state in nodes.values()), brake.gpu_nodes)

    def kept_out(self, kept: Mapping[str, str]) -> None:
        """Count the tainted nodes that stay out, by the guard that keeps each one out.

        A node that would be validated, but for a rehearsal, is logged once.
        """
        counts = Counter(kept.values())
        for guard in _changed(Guard, self._kept_out, counts):
            self._metrics.kept_out.labels(guard).set(counts[guard])
        self._kept_out = counts
        rehearsed = {name for name, guard in kept.items() if guard == Guard.REHEARSED}
        for name in sorted(rehearsed - self._rehearsed):
            logs.info(f"node {name}: would be validated now (KONDUCTOR_RECOVERY is rehearse)", node=name)
        self._rehearsed = rehearsed

    def gpus(self, counts: GpuCounts, before: GpuCounts) -> None:
        """Count all GPUs, those out of service and those missing, and log nodes that lost GPUs together."""
        every = counts.nodes.values()
        self._metrics.gpus.set(sum(each.expected for each in every))
        self._metrics.gpus_out.set(sum(each.expected for each in every if each.state.tainted))
        self._metrics.gpus_missing.set(sum(counts.nodes[name].missing for name in counts.short))
        if counts.together - before.together:
            logs.warning(
                f"{len(counts.together)} of {len(counts.nodes)} nodes lost GPUs at about the same time: "
                f"{listed(sorted(counts.together), 5)}. The nodes are not at fault: check driver and device "
                "plugin."
            )

    def _log_oddities(self, nodes: Mapping[str, NodeState]) -> None:
        """Log once each trace of manual changes: an unreadable record, or a foreign taint with our key."""
        odd: set[tuple[str, str]] = set()
        for name, state in nodes.items():
            if state.record_problem is not None:
                odd.add((name, f"the controller cannot read all of the record: {state.record_problem}"))
            for taint in state.taints:
                if taint.foreign_twin:
                    odd.add((name, f"the controller ignores another tool's taint {taint.text}"))
        for name, what in sorted(odd - self._logged_odd):
            logs.warning(f"node {name}: {what}.", node=name)
        self._logged_odd = odd

    def _log_fault(self, node: str, fault: Fault, times: str = "", **facts: object) -> None:
        logs.info(
            f"node `{node}` has {_origin(fault)} error{times}: {fault.finding.text}",
            node=node,
            rule=fault.finding.rule,
            gpu=fault.finding.gpu,
            severity=fault.severity.value,
            **facts,
        )

    def returns(self, controls: Controls) -> None:
        """Report that automatic returns stopped, or that a person allows them again.

        The words repeat after a restart, so that the Event is the same one.
        """
        before, self._returns_stopped = self._returns_stopped, is_stopped(controls)
        self._metrics.returns_stopped.set(self._returns_stopped)
        if self._returns_stopped and not before:
            message = f"From now on {stop_words(controls)}."
            logs.warning(message)
            self._fleet_event(EventReason.RETURNS_STOPPED, message)
        elif before and not self._returns_stopped and (resume := controls.resume):
            message = f"{resume.by} allowed nodes to return by themselves again at {stamp(resume.at)}."
            logs.info(message, by=resume.by)
            control_applied("resume", by=resume.by, act=resume.act, why="automatic returns")
            self._fleet_event(EventReason.RETURNS_RESUMED, message)


def _changed(names: type[_Name], before: Counter[Any] | None, now: Counter[Any]) -> list[_Name]:
    """Return the names whose count changed, because a gauge with labels is dear; all at first."""
    return [each for each in names if before is None or before[each] != now[each]]


def _origin(fault: Fault) -> str:
    """Return the word for the source in the log of Konduktor, the controller that this one replaces."""
    if not fault.finding.kind.has_line:
        return "node"
    return "dmesg" if fault.source is Source.KERNEL else "pod"


class BrakeReport:
    """Logs, and sends as Events, when the brake begins to hold back nodes and when it ends."""

    def __init__(self, fleet_event: FleetEvent) -> None:
        self._fleet_event = fleet_event
        self._held: tuple[str, ...] = ()
        self._announced = False

    def begin(self, nodes: Mapping[str, NodeState]) -> None:
        """Begin a leadership. The last leader has announced the nodes that are HELD by their records."""
        self._announced = any(held_back(state) for state in nodes.values())

    def tell(self, brake: BrakeState, now: datetime) -> None:
        """Report what has changed."""
        held = tuple(item.node for item in brake.held)
        names = listed([f"{each.node} ({name_of(each.incident)})" for each in brake.held], _NAMES)
        if held and held != self._held:
            logs.warning(
                f"The brake holds back {names}. Reason: {_why_held(brake)}",
                held=list(held[:50]),
                out=brake.out,
                bound=brake.bound,
            )
        elif self._held and not held:
            logs.info("The brake holds back no nodes now.")
        self._held = held
        if held and not self._announced:
            number = f"{len(held)} node" + ("s" if len(held) > 1 else "")
            self._fleet_event(
                EventReason.HOLDING,
                f"The brake began to hold back {number} at {stamp(now)}: {names}. Reason: {_why_held(brake)}",
            )
        elif self._announced and not held:
            self._fleet_event(
                EventReason.FREE, f"The brake stopped holding nodes back at {stamp(now)}. No node is held."
            )
        self._announced = bool(held)


def _why_held(brake: BrakeState) -> str:
    """Return why the brake holds back nodes, and whether releases help.

    If there are several reasons, return that of the bound.
    """
    reasons = {item.why for item in brake.held}
    first = brake.held[0].why
    if len(reasons) == 1 and first is not None and first is not SkipReason.BRAKE:
        return f"{why_held(first, brake)}."
    numbers = f"{brake.out} of {brake.gpu_nodes} GPU nodes are out of service, the limit is {brake.bound}"
    if not brake.bound:
        return f"{numbers}, so the controller taints no node."
    return f"{numbers}. Releasing nodes allows further taints."


class Repeats:
    """Counts ignored faults, and limits how often each is logged: at once, then once in each ``span``."""

    def __init__(self, span: timedelta) -> None:
        self._span = span
        self._logged: dict[_About, datetime] = {}
        self._counts: dict[_About, int] = {}

    def add(self, about: _About, count: int) -> None:
        """Count more faults of a rule, node and reason; beyond 1,000 of these, count them together."""
        known = self._logged.keys() | self._counts.keys()
        if about not in known and len(known) >= _REPEATS_REMEMBERED:
            about = ("further rules", "<various>", about[2])
        self._counts[about] = self._counts.get(about, 0) + count

    def due(self, now: datetime) -> Mapping[_About, int]:
        """Return what to log now, each with the number of faults since it was last logged."""
        self._logged = {about: at for about, at in self._logged.items() if now - at < self._span}
        due = {about: count for about, count in self._counts.items() if about not in self._logged}
        for about in due:
            del self._counts[about]
            self._logged[about] = now
        return due
