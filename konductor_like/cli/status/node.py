"""The status of one node: a value with all that ``status`` and ``explain`` tell about it. Pure.

The document and the texts render this value and derive no fact of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from konductor_like.cli.columns import stamp
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.attempts import refusal_of
from konductor_like.cli.status.coverage import notes_on
from konductor_like.model import (
    OPT_OUT_LABEL,
    BrakeState,
    Coverage,
    CoverageState,
    Hearing,
    Incident,
    IncidentState,
    MetBy,
    Needs,
    NodeState,
    Role,
    Severity,
    Snapshot,
    Source,
    Stage,
    Standing,
    Verb,
)
from konductor_like.model.time import moment_of, span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.gpu_counts import short_words
from konductor_like.policy.node.health import Health, coverage_of, marks, state_of
from konductor_like.policy.node.lifecycle import times_out
from konductor_like.policy.node.removal import standing_words
from konductor_like.policy.node.undone import released_with, reminders
from konductor_like.policy.recovery.guards import Blocker, Guard, blockers, published
from konductor_like.policy.recovery.verdict import GRAVEST_FIRST, Verdict, accusing, verdict
from konductor_like.policy.wording import name_of, planned_mark, planned_words

CLAIMED_BY_NOBODY = "tainted by another tool or person: the node's record does not explain the taint"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The state of one node and the reasons for it."""

    state: NodeState
    health: Health
    coverage: CoverageState
    accusing: tuple[Incident, ...]
    """The incidents that may explain a state other than healthy, the gravest first."""
    logs: Coverage | None
    """Which kernel logs of the fleet arrive; None if no controller has published this yet."""
    unread_since: datetime | None
    """See :meth:`ControllerReport.unread_since`, for kernel logs."""
    verdict: Verdict
    """The fault, the need, the guards and the next action."""
    refused: str = ""
    """Why the controller cannot write the node; empty if it can."""
    unwritten: Verb | None = None
    """The write that the API server refuses; None if none is known."""
    jobs: tuple[str, ...] | None = None
    """The jobs whose pods use the node's GPUs now; None if nobody asked, or if they are not known."""
    failures: int = 0
    """How often a node in service failed lately, if that is often enough for a replacement; else 0."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.state.name

    @property
    def fault(self) -> Incident | None:
        """See :attr:`Verdict.fault`."""
        return self.verdict.fault

    @property
    def further(self) -> int:
        """The number of further incidents that may explain the state."""
        return sum(each is not self.fault for each in self.accusing)

    @property
    def since(self) -> datetime | None:
        """When the node was tainted, returned, or its fault first seen, in UTC; None without any of these."""
        if self.health is Health.FAULTY and self.state.record.life.tainted_at:
            return self.state.record.life.tainted_at
        if self.health is Health.PROBATION and self.state.record.releases:
            return self.state.record.releases[0].at
        return moment_of(self.fault.first_ns) if self.fault else None

    @property
    def is_broken(self) -> bool:
        """Whether a fault on record makes the node what it is, or it has the taint."""
        return self.fault is not None or self.health in (Health.FAULTY, Health.HELD)

    @property
    def words(self) -> set[str]:
        """The words by which ``status --state`` chooses the node: its state, and its :func:`marks`."""
        return {self.health.value, *marks(self.state)}

    @property
    def qualifier(self) -> str:
        """Further words on the state: ``test``, ``before install``, ``cordoned``."""
        return ", ".join(_qualifiers(self))

    @property
    def open(self) -> list[Incident]:
        """The incidents that are not released."""
        return [each for each in self.state.record.incidents if each.state is not IncidentState.RELEASED]

    @property
    def severity(self) -> Severity | None:
        """The severity of the gravest open incident; None without one."""
        return min((each.severity for each in self.open), key=GRAVEST_FIRST.__getitem__, default=None)

    @property
    def is_ambiguous(self) -> bool:
        """Whether two machines report under the node's name."""
        return self.logs is not None and self.name in self.logs.ambiguous

    @property
    def alarms(self) -> list[str]:
        """Warnings that ``status`` prints on standard error."""
        return [*_alarms(self)]

    @property
    def warnings(self) -> list[str]:
        """The alarms, and the warnings of releases whose needs nothing has met since."""
        return [*self.alarms, *reminders(self.state)]

    @property
    def released_with(self) -> tuple[Needs, ...]:
        """The needs with which the node was released, the gravest first, that nothing has met since."""
        return () if self.health in (Health.FAULTY, Health.HELD) else released_with(self.state)

    @property
    def notes(self) -> list[str]:
        """Further facts about the node."""
        return [*filter(None, [self.refused]), *_notes(self), *notes_on(self.name, self.logs)]


def node_report(
    state: NodeState, controller: ControllerReport, brake: BrakeState, now: datetime
) -> NodeReport:
    """Return the report on one node; see :func:`node_reports`."""
    unread_since, coverage = controller.unread_since(now), controller.coverage
    heard = coverage_of(state.name, coverage, unread=unread_since is not None)
    health = state_of(state, heard)
    failed, refused = refusal_of(state.name, controller.attempts)
    if failed is Verb.TAINT and health is not Health.FAULTY:
        health = Health.HELD
    elif refused and health in (Health.HEALTHY, Health.NOT_MEASURED):
        health = Health.UNKNOWN
    elif failed is None:
        refused = ""
    found = verdict(
        state,
        _known_blockers(state, heard, controller, brake, now),
        controller.policy,
        health,
        refused=refused,
        unwritten=failed,
        unread=unread_since is not None,
    )
    return NodeReport(
        *(state, health, heard, tuple(accusing(state)), coverage, unread_since, found),
        refused=refused,
        unwritten=failed,
        failures=_failures(state, controller.policy, now),
    )


def _failures(state: NodeState, policy: PolicyConfig, now: datetime) -> int:
    """Return how often a node failed that was released although it had failed too often."""
    times = 0 if state.tainted else times_out(state.record.life, policy, now)
    return times if 0 < policy.repeat_count <= times else 0


def _known_blockers(
    state: NodeState, heard: CoverageState, controller: ControllerReport, brake: BrakeState, now: datetime
) -> Iterator[Blocker]:
    """Yield the guards that keep a tainted node out: those that the command sees, and what the Lease adds.

    These may be more than the controller's first guard, never fewer.
    """
    if controller.settings is None:
        yield Blocker(Guard.SETTINGS_UNKNOWN, controller.why_settings_unknown)
        return
    found = [*blockers(state, _known(state, heard, controller, now), controller.policy, now, brake)]
    yield from found
    if stopped := controller.why_not_running(now):
        yield Blocker(Guard.NOT_RUNNING, stopped)
    kept_out = controller.attempts.kept_out
    if kept_out is None:
        yield Blocker(Guard.NOT_PUBLISHED, "the controller has not published which guards keep nodes out")
    elif state.name in kept_out:
        # The Node itself may tell more about a guard than its published code does.
        if kept_out[state.name] not in {guard for guard, _ in found}:
            yield published(kept_out[state.name], controller.policy)
    elif controller.attempts.kept_more:
        words = "the controller keeps more nodes out than its Lease can name: this may be one of them"
        yield Blocker(Guard.NOT_PUBLISHED, words)


def _known(state: NodeState, heard: CoverageState, controller: ControllerReport, now: datetime) -> Snapshot:
    """Return what the Node and the Lease tell of what speaks against the node's return.

    The snapshot takes the node as heard and watched for long enough: how long, only the controller knows.
    """
    name, coverage, now_ns = state.name, controller.coverage, unix_ns(now)
    since_ns = max(
        (each.met_ns or 0 for each in state.record.incidents if each.met_by is MetBy.REBOOT), default=0
    )
    since_ns += span_ns(controller.stale_seconds)  # the reboot itself is no gap
    gaps = coverage.gaps if coverage is not None else ()
    has_gap = any(gap.concerns(name) and (gap.end_ns or now_ns) > since_ns for gap in gaps)
    hearing = Hearing(state.machine.boot_id or "", 0, now_ns, has_gap)
    return Snapshot(
        {},
        controls=controller.controls,
        lost_boots=coverage.lost_boots if coverage is not None else {},
        read_ns={Source.KERNEL: now_ns},
        hearing={name: hearing} if heard is CoverageState.MEASURED else {},
        standing={name: Standing(math.inf, math.inf)},
    )


def _qualifiers(node: NodeReport) -> Iterator[str]:
    """Yield a word on the state or fault, and the role in a failure group."""
    state, health, fault = node.state, node.health, node.fault
    if health is Health.HELD and node.is_ambiguous:
        yield "ambiguous name"
    elif health is Health.HELD and node.unwritten is Verb.TAINT:
        yield "not written"
    elif health is Health.FAULTY and state.record.life.marked:
        yield "replace"
    elif health is Health.PROBATION:
        yield f"until {stamp(state.record.life.probation_until)}"
    elif fault is not None and fault.state is IncidentState.PENDING:
        yield "other boot"
    elif fault is not None and fault.before_install:
        yield "before install"
    elif fault is not None and fault.doubt:
        yield fault.doubt.value
    elif fault is not None and fault.severity is Severity.TEST:
        yield "test"
    yield from _circumstances(node)
    about = [fault] if fault else node.open
    roles = {each.role for each in about} | {each.role for each in node.open if each.role is Role.ROOT_CAUSE}
    yield from [role.value for role in Role if role in roles][:1]


def _circumstances(node: NodeReport) -> Iterator[str]:
    """Yield the words that say nothing of a fault."""
    if short := short_words(node.state):
        yield short
    if planned := planned_mark(node.state):
        yield planned
    if node.state.opted_out and node.health is not Health.IGNORED:
        yield "ignored"
    if node.state.stage is Stage.REMOVED:
        is_contested = node.state.record.life.contested_at is not None
        is_kept_out = node.state.kept_out_by is not None
        yield "kept out" if is_kept_out else "contested" if is_contested else "taint removed"
    if node.released_with:
        yield f"released with need: {' and '.join(node.released_with)}"
    if node.failures:
        yield f"failed {node.failures} times"
    yield from marks(node.state)


def _alarms(node: NodeReport) -> Iterator[str]:
    state = node.state
    if state.record_problem:
        yield f"its record cannot be read: {state.record_problem}"
    if state.record_kept:
        yield "its record is on the Lease only, in short: make room in the Node's annotations"
    for taint in state.taints:
        if taint.foreign_twin and state.kept_out_by is None:
            yield f"it has another tool's taint {taint.text}, which the controller does not remove"
    if state.record.life.claimed and (changed := state.wrong_effect):
        yield f"somebody changed the effect of the controller's taint: {changed.text}"
    if standing := standing_words(state):
        yield standing
    if node.is_ambiguous:
        until = "it does not return" if state.tainted else "it is not tainted"
        yield f"two machines report under this name at once; {until} until only one reports"


def _notes(node: NodeReport) -> Iterator[str]:
    state, fault = node.state, node.fault
    if node.health is Health.FAULTY and not state.record.life.claimed:
        yield CLAIMED_BY_NOBODY
    if state.record.life.marked:
        yield f"failed too often: to be replaced, since {stamp(state.record.life.replace_since)}"
    elif state.record.life.hold_until is not None:
        yield f"failed before: should stay out until {stamp(state.record.life.hold_until)}"
    yield from (f"announced: {planned_words(each)}" for each in state.planned)
    if state.opted_out:
        yield f"opted out by the label {OPT_OUT_LABEL}"
    if node.unread_since is not None:
        yield f"its kernel log has not been read since {stamp(node.unread_since)}"
    elif node.coverage is CoverageState.UNKNOWN and node.health is not Health.UNKNOWN:
        yield "its kernel-log heartbeat stopped"
    if fault is not None and fault.user_written:
        yield f"{name_of(fault)} was written by a user, not by the driver"
    for incident in state.record.incidents:
        if incident is not fault:
            yield _incident_note(incident)
    for last in state.record.releases[:1]:
        why = f": {last.reason}" if last.reason else ""
        yield f"released by {last.by} at {stamp(last.at)}{why}"


def marks_of(incident: Incident) -> list[str]:
    """Return the words on an incident: ``fatal``, ``held``, ``collateral``, ``before install``."""
    role = incident.role.value if incident.role else ""
    before, doubt = "before install" if incident.before_install else "", incident.doubt or ""
    return [mark for mark in (incident.severity.value, incident.state.value, role, before, doubt) if mark]


def _incident_note(incident: Incident) -> str:
    marks = [mark for mark in marks_of(incident) if mark != IncidentState.ACTIVE.value]
    if incident.user_written:
        marks.append("written by a user")
    return f"{name_of(incident)} x{incident.count} ({', '.join(marks)})"
