"""``explain`` of a node: its state, the last decision, and what the controller would do now.

The command runs the controller's own decision on the nodes' records to find what is held back, and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from konductor_like.catalog import condition_rules
from konductor_like.cli.columns import age_of, count, stamp, stamp_of_ns
from konductor_like.cli.explain.history import history, when
from konductor_like.cli.output import API_VERSION, Paragraph, fields_of
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.coverage import notes_on
from konductor_like.cli.status.document import failure_document, node_document
from konductor_like.cli.status.node import CLAIMED_BY_NOBODY, NodeReport, node_report
from konductor_like.cli.status.report import Fleet, why_still_held
from konductor_like.cli.status.shared_failures import FailureReport, shared_failures
from konductor_like.cli.status.text import state_text
from konductor_like.model import (
    OPT_OUT_LABEL,
    CoverageState,
    Doubt,
    Incident,
    IncidentState,
    NodeRecord,
    NodeState,
    ReleaseHow,
    Severity,
    SkippedTaint,
    SkipReason,
    Snapshot,
    Validation,
    Verb,
)
from konductor_like.model.time import moment_of
from konductor_like.policy.decide import decide
from konductor_like.policy.node.conditions import reported_words
from konductor_like.policy.node.gpu_counts import short_words
from konductor_like.policy.node.health import Health, tainting
from konductor_like.policy.node.identities import present_gpus, present_words
from konductor_like.policy.node.lifecycle import may_return
from konductor_like.policy.node.needs import need_in_words, unrepaired
from konductor_like.policy.node.removal import standing_words
from konductor_like.policy.recovery.guards import ENDED_BY_REBOOT, PASSING, Guard
from konductor_like.policy.recovery.validation import (
    TRIES_MOST,
    is_of_this_time,
    is_under_way,
    lower,
    stage_words,
    verdict_words,
)
from konductor_like.policy.recovery.verdict import GRAVEST_FIRST, Action, follows_from
from konductor_like.policy.wording import name_of, planned_words, why_not_tainted

_COVERAGE = {
    CoverageState.MEASURED: "its kernel log arrives",
    CoverageState.UNKNOWN: "unknown: its kernel log stopped arriving, so later faults are not known",
    CoverageState.NOT_MEASURED: "not measured: no heartbeat of its kernel log is known",
}
_RECORDED = {
    "before install": "older than what a first start acts on, and taints nothing",
    Doubt.MAY_BE_NEW: "read after a release, and its stamp does not show whether it is new",
    Doubt.BEFORE_RELEASE: "printed before the last release and read after it, so it taints nothing",
    "suspect": "suspect: alone it does not taint a node",
    "application": "the fault of a job's program: alone it does not taint a node",
    "info": "information: it does not taint a node",
}
"""Why a fault of this severity is only recorded; several may reach a threshold of the rules file."""
_BY_SETTINGS = (SkipReason.BRAKE, SkipReason.RATE, SkipReason.COOLDOWN, SkipReason.NOT_SELECTED)
"""The reasons for no taint that depend on the controller's settings."""


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """One node at one moment."""

    now: datetime
    report: NodeReport
    controller: ControllerReport
    held_back: tuple[tuple[SkippedTaint, str], ...]
    """The faults that would taint the node but do not, each with the reason in words."""
    failures: tuple[FailureReport, ...]
    """The failure groups of the node."""
    stays_out: str | None
    """Why the node must stay out because of its earlier outages; None if they do not require it."""
    other_rules: str
    """A sentence if the controller's rules differ from this machine's; empty if not, or if not known."""

    @property
    def problem(self) -> str:
        """Why the Lease cannot be read; empty if it can be."""
        controller = self.controller
        return "" if controller.readable else f"the Lease cannot be read: {controller.problem}"

    @property
    def next_commands(self) -> list[str]:
        """The commands to go on with; ``reset`` comes last, because it releases the node."""
        name = self.report.name
        reset = f"konductor-like reset {name} --reason '...'"
        if self.report.verdict.action is Action.FIX_CONTROLLER:
            return ["konductor-like doctor"]
        if self.report.verdict.action is Action.WAIT:
            return []
        tested = self.report.state.record.validation
        match self.report.health:
            case Health.HELD:
                is_test = self.report.severity is Severity.TEST
                taint = [] if is_test else [f"konductor-like taint {name} --reason '...'"]
                pause = self.controller.controls.pause
                is_paused = pause is not None and pause.holds(self.now)
                return [
                    "konductor-like resume" if is_paused else "konductor-like brake status",
                    *taint,
                    reset,
                ]
            case Health.FAULTY if is_under_way(tested):
                return [f"konductor-like validate {name} --cancel", reset]
            case Health.FAULTY if self._may_be_validated:
                return [f"konductor-like validate {name}", reset]
            case Health.FAULTY:
                return [reset]
            case Health.SUSPECT:
                return [reset]
            case Health.IGNORED:
                label = f"kubectl label node {name} {OPT_OUT_LABEL}-"
                return [reset, label] if self.report.is_broken else [label]
            case _:
                return []

    @property
    def _may_be_validated(self) -> bool:
        """Whether a test is what to do now: the node is repaired, and no pass of this time is on record."""
        is_next = self.report.verdict.action in (Action.CHECK_AND_RELEASE, Action.REPAIR)
        is_asked_for = f"konductor-like validate {self.report.name}" in self.report.verdict.advice
        return self.controller.policy.validates_on_wish and is_next and is_asked_for


def explain_node(name: str, fleet: Fleet, own_rules: str) -> NodeExplanation:
    """Explain one node of the fleet.

    ``own_rules`` is the digest of this machine's rules. If the controller's settings are not known, the
    explanation leaves out everything that depends on them.
    """
    state, controller, now = fleet.nodes[name], fleet.controller, fleet.now
    policy = controller.policy if controller.settings is not None else None
    snapshot = Snapshot(fleet.nodes, controls=controller.controls, ambiguous=controller.ambiguous)
    plan = decide(snapshot, (), fleet.policy(), now)
    known = (each for each in plan.refused if policy is not None or each.why not in _BY_SETTINGS)
    mine = (each for each in known if each.node == name)
    failures = shared_failures(fleet.nodes, now)
    return NodeExplanation(
        now=now,
        report=node_report(state, controller, plan.brake, now),
        controller=controller,
        held_back=tuple((each, why_not_tainted(each, state, plan.brake)) for each in mine),
        failures=tuple(each for each in failures if name in (*each.nodes, *each.gone)),
        stays_out=may_return(state.record, now, policy) if state.faulty else None,
        other_rules=controller.other_rules(own_rules),
    )


def paragraphs(node: NodeExplanation) -> Iterator[Paragraph]:
    """Yield the text for people: the state and its reasons, the history, what to do."""
    yield from _state(node)
    yield from _history(node)
    yield from _what_now(node)


def _state(node: NodeExplanation) -> Iterator[Paragraph]:
    report, state, now = node.report, node.report.state, node.now
    since = f" since {stamp(report.since)}, {age_of(report.since, now)}" if report.since else ""
    is_on = "is on" if report.health is Health.PROBATION else "is"
    yield "Node", f"{report.name} {is_on} {state_text(report)}{since}"
    yield "Decision", _decided(node)
    yield "Held back", [f"{_name(node, refused)}: {why}" for refused, why in node.held_back]
    yield "Stays out", _stays_out(node)
    yield "Needs", need_in_words(state.record, tainted=state.tainted)
    yield "Planned", [planned_words(each) for each in state.planned]
    yield "Reported", list(reported_words(state, condition_rules(), now))
    yield "GPU now", list(present_words(state))
    yield "Return", _return(node)
    if (tested := state.record.validation) is not None:
        yield "Validation", list(_validation(tested, state, now))


def _history(node: NodeExplanation) -> Iterator[Paragraph]:
    report, record, now = node.report, node.report.state.record, node.now
    yield from history(report, node.failures, now)
    yield "Coverage", [_coverage(node), *notes_on(report.name, node.controller.coverage)]
    if (act := record.act) is not None:
        by = f"the controller with the rules {act.rules}" if act.rules else _writer(record) or "a person"
        yield "Last write", f"{when(act.at, now)} by {by}, audit id {act.id}"


def _what_now(node: NodeExplanation) -> Iterator[Paragraph]:
    report, stopped = node.report, node.controller.why_not_running(node.now)
    yield "Warning", [*report.warnings, stopped] if stopped else report.warnings
    yield "Rules", node.other_rules
    yield "Unknown", node.problem
    yield "To do", _to_do(node)
    yield "Commands", [_with_condition(command, report) for command in node.next_commands]


def _to_do(node: NodeExplanation) -> str:
    """Return the advice, without the words of the paragraph ``Return``."""
    verdict = node.report.verdict
    return "" if verdict.action is Action.WAIT else verdict.advice.removeprefix(f"{_return(node)}; ")


def document(node: NodeExplanation) -> dict[str, Any]:
    """Return the document that docs/reference/json.md describes."""
    act = node.report.state.record.act
    by = None if act is None or act.rules else _writer(node.report.state.record)
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeExplanation",
        "time": stamp(node.now),
        "node": node_document(node.report),
        "heldBack": [
            {**fields_of(refused.key, "rule", "gpu"), "why": refused.why.value, "detail": why}
            for refused, why in node.held_back
        ],
        "failureGroups": [failure_document(each) for each in node.failures],
        "otherRules": node.other_rules or None,
        "act": act and {"id": act.id, "at": stamp(act.at), "rules": act.rules or None, "by": by},
        "staysOut": node.stays_out,
        "gpus": [
            fields_of(each.gpu, "bus", "uuid")
            | {"serial": each.gpu.serial or None}
            | {"toldBy": each.told_by.value, "at": stamp_of_ns(each.at_ns)}
            for _, each in sorted(present_gpus(node.report.state).items())
        ],
        "next": node.next_commands,
        "unreadSince": stamp(node.report.unread_since),
        "problem": node.problem or None,
    }


def _with_condition(command: str, report: NodeReport) -> str:
    """Return the command and what to know of it.

    A fault must be repaired before ``reset`` releases its node. Without its label an ignored node is tainted.
    """
    if command.endswith(f" {OPT_OUT_LABEL}-") and tainting(report.state.record):
        return f"{command}   (taints the node at once, unless its faults are released first)"
    has_fault = any(not each.by_person and each.severity is not Severity.TEST for each in report.accusing)
    return f"{command}   (after the repair)" if has_fault and " reset " in command else command


def _stays_out(node: NodeExplanation) -> str:
    if not node.stays_out or unrepaired(node.report.state):
        return node.stays_out or ""
    return f"{node.stays_out}; `konductor-like reset {node.report.name}` releases the node"


def _return(node: NodeExplanation) -> str:
    """Return whether the node returns by itself, or is on probation; empty if that is not the question."""
    report, until = node.report, node.report.state.record.life.probation_until
    mark = next((each for each in report.state.record.releases if each.how.on_probation), None)
    after = "after a validation" if mark and mark.how is ReleaseHow.VALIDATED else "after a reboot"
    if until is not None and report.health is Health.HELD:
        return f"returned by itself, {after}, and failed again: its taint ends its automatic returns"
    if until is not None and not report.state.faulty:
        ends = "a fault that taints ends its automatic returns"
        return f"returned by itself, {after}; on probation until {stamp(until)}: {ends}"
    if not report.state.faulty:
        return ""
    if node.controller.settings is None:
        unknown = node.controller.why_settings_unknown
        return f"not known: {unknown}" if unknown else ""
    if not node.controller.policy.returns_unasked:
        return ""
    if report.verdict.action is Action.WAIT:
        hold = f"returns by itself later, {_not_before(report)}"
        return hold if node.stays_out else report.verdict.advice
    if after := _after_reboot(report, by_validation=node.controller.policy.returns_by_validation):
        return after
    soon = (Guard.HOLD, Guard.TOO_YOUNG, Guard.UNSTEADY)
    others = (words for guard, words in report.verdict.blockers if guard not in soon)
    why = next(others, node.stays_out)
    return "" if why == node.stays_out else f"does not return by itself now: {why}"


def _after_reboot(report: NodeReport, *, by_validation: bool) -> str:
    """Return that a reboot is all that the node needs to return; empty if something else keeps it out."""
    guards = {blocker.guard for blocker in report.verdict.blockers}
    conditions = []
    if short := short_words(report.state):
        guards -= {Guard.GPUS}
        conditions.append(f"if it has all its GPUs then (now {short})")
    if Guard.HOLD in guards:
        conditions.append(_not_before(report))
    if Guard.NOT_REBOOTED not in guards or guards - PASSING - ENDED_BY_REBOOT:
        return ""
    is_pending = any(each.state is IncidentState.PENDING for each in report.open)
    if is_pending or report.is_ambiguous or report.refused:
        return ""  # a line of an unknown boot, two machines, or a Node that cannot be written
    validation = " and a validation" if by_validation else ""
    return ", ".join((f"returns by itself after a reboot{validation}", *conditions))


def _not_before(report: NodeReport) -> str:
    return f"not before {stamp(report.state.record.life.hold_until)}"


def _validation(tested: Validation, state: NodeState, now: datetime) -> Iterator[str]:
    """Yield the story of the validation: who asked, the attempt, the verdict, and the GPUs."""
    earlier = "" if is_of_this_time(tested, state.record) and state.faulty else ", of an earlier time out"
    why = f": {tested.reason}" if tested.reason else ""
    yield f"level {tested.level}, asked for by {tested.by} {when(tested.asked_at, now)}{earlier}{why}"
    if tested.began_at is not None:
        number = f" ({tested.tries} of at most {TRIES_MOST})"
        boot = "" if tested.boot_id == state.machine.boot_id else f", in the earlier boot {tested.boot_id}"
        gpus = f", for {count(tested.expected_gpus, 'GPU')}"
        yield f"attempt {tested.attempt}{number} begun {when(tested.began_at, now)}{gpus}{boot}"
    if tested.ended_at is not None and tested.verdict is not None:
        yield f"{tested.verdict.value} {when(tested.ended_at, now)}: {lower(verdict_words(tested))}"
    if is_under_way(tested):
        yield lower(stage_words(tested))
    yield from map(str, tested.gpus)


def _decided(node: NodeExplanation) -> str:
    """Return what the controller decided last, and why."""
    report, state = node.report, node.report.state
    if state.tainted:
        return _tainted(report, node.now)
    if state.opted_out:
        return f"not tainted: the node has the label {OPT_OUT_LABEL}"
    if standing := standing_words(state):
        return standing
    if report.unwritten is Verb.TAINT:
        return f"not tainted: {report.refused}"
    if report.health is Health.HELD:
        still = "" if node.held_back else f"; {why_still_held(node.controller, node.now)}"
        return f"to be tainted, but held back{still}"
    if report.verdict.action is Action.FIND_ROOT_CAUSE:
        return f"not tainted: {report.verdict.advice}"
    if node.held_back:
        return "not tainted: the fault is held back"
    return _recorded(report)


def _recorded(report: NodeReport) -> str:
    """Return why no recorded fault taints the node; empty if only old faults or warnings are left."""
    if report.open:
        gravest = min(report.open, key=lambda each: (each is not report.fault, GRAVEST_FIRST[each.severity]))
        kind = "before install" if gravest.before_install else gravest.doubt or gravest.severity.value
        why = follows_from(gravest) or f"{name_of(gravest)} is {_RECORDED.get(kind, kind)}"
        return f"recorded only: {why}"
    if report.state.record.incidents or report.warnings:
        return ""
    return "no faults recorded" + (f" up to {stamp(report.unread_since)}" if report.unread_since else "")


def _tainted(report: NodeReport, now: datetime) -> str:
    """Return when the node was tainted and for which fault, or by which person."""
    at = report.state.record.life.tainted_at
    if at is None:
        return CLAIMED_BY_NOBODY
    fault = _reason(report, at)
    person = next((each for each in report.accusing if each.by_person), None)
    # The record may round its times to a second.
    if person is not None and moment_of(person.first_ns) - at < timedelta(seconds=1):
        also = f"; the node also has {name_of(fault)}" if fault else ""
        return f"{person.title[:1].lower()}{person.title[1:]} {when(at, now)}{also}"
    return f"tainted {when(at, now)}" + (f" for {name_of(fault)}" if fault else "")


def _reason(report: NodeReport, at: datetime) -> Incident | None:
    """Return the fault for which the node was tainted then; a later one is only graver."""
    faults = [each for each in report.accusing if not each.by_person]
    earlier = [each for each in faults if each.taints and moment_of(each.first_ns) <= at]
    return min(earlier, key=lambda each: each.urgency) if earlier else next(iter(faults), None)


def _name(node: NodeExplanation, refused: SkippedTaint) -> str:
    incident = node.report.state.record.incident(refused.key)
    return name_of(incident) if incident else refused.key.rule


def _coverage(node: NodeExplanation) -> str:
    if (since := node.report.unread_since) is None:
        return _COVERAGE[node.report.coverage]
    log = f"its kernel log has not been read since {stamp(since)} ({age_of(since, node.now)} ago)"
    return f"unknown: {log}, so later faults are not known"


def _writer(record: NodeRecord) -> str | None:
    """Return who released or tainted with the last write; None if that is not on record."""
    at = record.act.at if record.act else None
    people = [mark.by for mark in record.releases if mark.at == at]
    if record.validation is not None and record.validation.asked_at == at:
        people.append(record.validation.by)
    taints = (each for each in record.incidents if each.by_person and moment_of(each.last_ns) == at)
    # The title is "Tainted by kim, then by lee".
    return next(iter(people), None) or next((each.title.rpartition("by ")[2] for each in taints), None)
