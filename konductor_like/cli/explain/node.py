"""``explain`` of a node: what it is, what was decided, and what the controller would do now.

What is held back, and why, comes of the controller's own decision on the nodes' records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from konductor_like.cli.columns import age, count, stamp
from konductor_like.cli.output import API_VERSION, Paragraph, fields_of
from konductor_like.cli.rules import digest_of
from konductor_like.cli.session import ControllerReport, read_controller
from konductor_like.cli.status.coverage import notes_on
from konductor_like.cli.status.document import failure_document, node_document
from konductor_like.cli.status.report import (
    Health,
    NodeReport,
    node_report,
    rules_for,
    wake_of,
    why_still_held,
)
from konductor_like.cli.status.shared_failures import FailureReport, failure_sentence, shared_failures
from konductor_like.cli.status.text import state_text
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.node_decoder import node_decoder
from konductor_like.cluster.node_store import list_nodes, listed_slices
from konductor_like.model import (
    OPT_OUT_LABEL,
    Incident,
    IncidentState,
    NodeState,
    Quarantine,
    Refusal,
    Refused,
    Release,
    Role,
    Snapshot,
)
from konductor_like.model.text import listed
from konductor_like.model.time import moment_of
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.decide import decide
from konductor_like.policy.release import may_return
from konductor_like.policy.wording import name_of, why_not_tainted
from konductor_like.settings import Settings

FAULTS_SHOWN = 4
MEMBERS_SHOWN = 6
STINTS_SHOWN = 3
_COVERAGE = {
    "measured": "its kernel log is heard",
    "unknown": "UNKNOWN: its kernel log stopped arriving, so silence means nothing",
    "not measured": "not measured: no heartbeat of its kernel log was ever heard, so silence says little",
}
_BY_SETTINGS = (Refusal.BRAKE, Refusal.RATE, Refusal.COOLDOWN, Refusal.NOT_SELECTED)
"""Why a node is held back, by the controller's settings."""


@dataclass(frozen=True, slots=True)
class NodeStory:
    """One node at one moment."""

    now: datetime
    report: NodeReport
    controller: ControllerReport
    held_back: tuple[tuple[Refused, str], ...]
    """What would taint the node but does not, and why; for the brake with its numbers."""
    failures: tuple[FailureReport, ...]
    """Those that it is part of."""
    stays: str | None
    """Why it must not come back by itself, where its earlier times out are against that."""
    own_rules: str = ""
    """Names the rules of this machine; empty where they were not loaded."""

    @property
    def unread_since(self) -> datetime | None:
        """Up to where kernel logs were read, where they have not been for so long that nodes are unknown."""
        return self.controller.unread_since(self.now)

    @property
    def problem(self) -> str:
        """What cannot be told, and why."""
        controller = self.controller
        return "" if controller.readable else f"the Lease cannot be read: {controller.problem}"


def read_story(client: ReadOnlyKubeClient, settings: Settings, name: str, now: datetime) -> NodeStory | None:
    """The story of the node of that name; None where there is none. Raises KubeError."""
    controller = read_controller(client, settings)
    nodes = list_nodes(client, node_decoder(controller.settings, listed_slices(client)))
    if name not in nodes:
        return None
    story = story_of(name, nodes, rules_for(nodes, controller, now), controller, now)
    return replace(story, own_rules=digest_of(settings.rules_file)) if controller.settings else story


def story_of(
    name: str,
    nodes: Mapping[str, NodeState],
    rules: PolicyConfig,
    controller: ControllerReport,
    now: datetime,
) -> NodeStory:
    """What ``nodes`` and the Lease say about one of them, by ``rules``.

    Where the controller's settings are not known, nothing is told that depends on them.
    """
    state, coverage = nodes[name], controller.coverage
    ambiguous = coverage.ambiguous if coverage else frozenset()
    plan = decide(Snapshot(nodes, controls=controller.controls, ambiguous=ambiguous), (), rules, now)
    known = controller.settings is not None
    mine = (item for item in plan.refused if item.node == name and (known or item.why not in _BY_SETTINGS))
    return NodeStory(
        now=now,
        report=node_report(state, coverage, controller.unread_since(now)),
        controller=controller,
        held_back=tuple((item, why_not_tainted(item, state, plan.brake)) for item in mine),
        failures=tuple(each for each in shared_failures(nodes, now) if name in (*each.nodes, *each.gone)),
        stays=may_return(state.record, now, rules if known else None) if state.tainted else None,
    )


def paragraphs(story: NodeStory) -> Iterator[Paragraph]:
    """What people read: how it stands and why, what was before, what to do."""
    yield from _standing(story)
    yield from _against(story)
    yield from _before(story)
    yield from _next(story)


def _standing(story: NodeStory) -> Iterator[Paragraph]:
    report = story.report
    since = f" since {stamp(report.since)}, {_age(report.since, story.now)}" if report.since else ""
    yield "Node", [f"{report.name} is {state_text(report)}{since}"]
    if decided := _decided(story):
        yield "Decided", [decided]
    elif not report.state.record.incidents and not report.warnings:
        until = f" up to {stamp(story.unread_since)}" if story.unread_since else ""
        yield "Decided", [f"nothing: nothing is recorded against it{until}"]
    if story.held_back:
        yield "Held back", [f"{_name(story, refused)}: {why}" for refused, why in story.held_back]
    if story.stays:
        yield "Stays out", [f"{story.stays}; only a person brings it back"]


def _against(story: NodeStory) -> Iterator[Paragraph]:
    report, now = story.report, story.now
    shown = sorted(
        report.state.record.incidents,
        key=lambda each: (each.state is IncidentState.RELEASED, not each.taints, -each.last_ns),
    )
    for incident in shown[:FAULTS_SHOWN]:
        yield "Fault", list(_fault(incident, now))
    if (more := len(shown) - FAULTS_SHOWN) > 0:
        yield "And", [f"{count(more, 'more fault')}: `konductor-like explain node {report.name} -o json`"]
    for failure in story.failures:
        yield "Failure group", list(_failure(failure, report.name, now))


def _before(story: NodeStory) -> Iterator[Paragraph]:
    record, now = story.report.state.record, story.now
    if record.quarantines:
        yield "Times out", list(_quarantines(record.quarantines, now))
    if record.releases:
        yield "Released", [_release(mark, now) for mark in record.releases[:2]]
    yield "Coverage", [_coverage(story), *notes_on(story.report.name, story.controller.coverage)]
    if (act := record.act) is not None:
        by_rules = f", under the rules {act.rules}" if act.rules else ", by a person"
        yield "Last act", [f"{act.id}, {_when(act.at, now)}{by_rules}"]


def _coverage(story: NodeStory) -> str:
    if story.unread_since is None:
        return _COVERAGE[story.report.coverage.value]
    return (
        f"UNKNOWN: its kernel log has not been read since {stamp(story.unread_since)} "
        f"({_age(story.unread_since, story.now)} ago), so silence means nothing"
    )


def _next(story: NodeStory) -> Iterator[Paragraph]:
    report = story.report
    if report.warnings:
        yield "Warning", list(report.warnings)
    if differs := story.controller.other_rules(story.own_rules):
        yield "Rules", [differs]
    if story.problem:
        yield "Not known", [story.problem]
    if report.advice:
        yield "To do", [report.advice]
    if commands := next_commands(story):
        yield "Then", commands


def next_commands(story: NodeStory) -> list[str]:
    """The commands that change how the node stands."""
    name, health = story.report.name, story.report.health
    if health in (Health.FAULTY, Health.HELD):
        return [f"konductor-like reset {name} --reason '...'"]
    return [f"konductor-like ack {name} --reason '...'"] if health is Health.SUSPECT else []


def document(story: NodeStory) -> dict[str, Any]:
    """The stable form, described in docs/cli.md."""
    act = story.report.state.record.act
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeExplanation",
        "time": stamp(story.now),
        "node": node_document(story.report),
        "heldBack": [
            {**fields_of(refused.key, "rule", "gpu"), "why": refused.why.value, "detail": why}
            for refused, why in story.held_back
        ],
        "failureGroups": [failure_document(each) for each in story.failures],
        "otherRules": story.controller.other_rules(story.own_rules) or None,
        "act": act and {"id": act.id, "at": stamp(act.at), "rules": act.rules or None},
        "staysOut": story.stays,
        "next": next_commands(story),
        "unreadSince": stamp(story.unread_since),
        "problem": story.problem or None,
    }


def _decided(story: NodeStory) -> str:
    record, report = story.report.state.record, story.report
    if report.state.opted_out and not report.state.tainted:
        return f"left alone: the node bears the label {OPT_OUT_LABEL}"
    if report.state.tainted and record.tainted_at is None:
        return "tainted by somebody else: no record of ours claims it"
    if report.state.tainted:
        why = f" for {name_of(report.fault)}" if report.fault and not report.fault.by_person else ""
        return f"tainted {_when(record.tainted_at, story.now)}{why}"
    if report.health is Health.HELD:
        still = "" if story.held_back else f"; {why_still_held(story.controller, story.now)}"
        return f"to be tainted, and held back{still}"
    if report.fault is not None and (wake := wake_of(report.fault)):
        return f"not tainted: {wake}"
    if story.held_back:
        return "not tainted: what would taint it is held back"
    open_ones = [each for each in report.state.record.incidents if each.state is not IncidentState.RELEASED]
    if not open_ones:
        return ""
    if all(wake_of(each) for each in open_ones):
        return f"recorded, not tainted: {wake_of(open_ones[0])}"
    return "recorded, not tainted: nothing of it is enough by itself"


def _name(story: NodeStory, refused: Refused) -> str:
    incident = story.report.state.record.incident(refused.key)
    return name_of(incident) if incident else refused.key.rule


def _fault(incident: Incident, now: datetime) -> Iterator[str]:
    first, last = moment_of(incident.first_ns), moment_of(incident.last_ns)
    times = f"{incident.count} times, " if incident.count > 1 else ""
    until = f", last {_when(last, now)}" if incident.count > 1 else ""
    marks = [incident.severity.value, incident.state.value]
    marks += [incident.role.value] if incident.role else []
    marks += ["before install"] if incident.before_install else []
    yield f"{name_of(incident)} ({', '.join(marks)}), {times}first {_when(first, now)}{until}"
    yield f"rule {incident.key.rule}: {incident.title}"
    if incident.evidence:
        yield f"{'reason' if incident.by_person else 'line'}: {incident.evidence}"
    if incident.user_written:
        yield "written by a user, not by the driver"
    if incident.escalated_because:
        yield f"escalated because: {incident.escalated_because}"
    if incident.ended_ns is not None:
        when = _when(moment_of(incident.ended_ns), now)
        yield f"over: {when} the driver said so; it stands until `konductor-like reset`"
    if incident.job:
        yield f"job: {incident.job}"
    if incident.ack:
        why = f": {incident.ack.reason}" if incident.ack.reason else ""
        yield f"acknowledged {_when(incident.ack.at, now)} by {incident.ack.by}{why}"


def _failure(failure: FailureReport, name: str, now: datetime) -> Iterator[str]:
    yield failure_sentence(failure, now)
    mine = next(
        role
        for role, nodes in (
            (Role.ROOT_CAUSE, (*failure.root_causes, *failure.gone)),
            (Role.UNCLEAR, failure.unclear),
            (Role.COLLATERAL, failure.collateral),
        )
        if name in nodes
    )
    others = [each for each in failure.nodes if each != name]
    yield f"this node: {mine.value}; with it: {listed(others, MEMBERS_SHOWN)}"


def _quarantines(quarantines: tuple[Quarantine, ...], now: datetime) -> Iterator[str]:
    for quarantine in quarantines[:STINTS_SHOWN]:
        span = age((quarantine.released_at - quarantine.tainted_at).total_seconds())
        yield f"{_when(quarantine.tainted_at, now)} for {span}, for {quarantine.rule}"
    if (more := len(quarantines) - STINTS_SHOWN) > 0:
        yield f"and {count(more, 'time')} before that"


def _release(mark: Release, now: datetime) -> str:
    why = f": {mark.reason}" if mark.reason else ""
    return f"{_when(mark.at, now)} by {mark.by} ({mark.how}){why}"


def _when(then: datetime | None, now: datetime) -> str:
    """``3m12s ago (2026-05-06T11:56:48Z)``."""
    if then is None:
        return "at an unknown time"
    return f"{_age(then, now)} ago ({stamp(then)})"


def _age(then: datetime, now: datetime) -> str:
    return age((now - then).total_seconds())
