"""How a node's story is shown: one screen of labelled paragraphs, and a document for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from konductor_like.cli.columns import age, count, moment
from konductor_like.cli.covering import notes_on
from konductor_like.cli.document import API_VERSION, event_document, node_document, stamp
from konductor_like.cli.happenings import EventReport, event_sentence
from konductor_like.cli.paragraphs import Row
from konductor_like.cli.render import state_text
from konductor_like.cli.report import Health, other_rules, wake_of
from konductor_like.cli.story import Story
from konductor_like.model import OPT_OUT_LABEL, Incident, IncidentState, Quarantine, Refused, Release, Role
from konductor_like.policy.wording import name_of

FAULTS_SHOWN = 4
MEMBERS_SHOWN = 6
STINTS_SHOWN = 3
_COVERAGE = {
    "measured": "its kernel log is heard",
    "unknown": "UNKNOWN: its kernel log stopped arriving, so silence means nothing",
    "not measured": "not measured: no heartbeat of its kernel log was ever heard, so silence says little",
}


def rows(story: Story) -> Iterator[Row]:
    """What people read: how it stands and why, what was before, what to do."""
    yield from _standing(story)
    yield from _against(story)
    yield from _before(story)
    yield from _next(story)


def _standing(story: Story) -> Iterator[Row]:
    report = story.report
    since = f" since {stamp(report.since)}, {_age(report.since, story.now)}" if report.since else ""
    yield "Node", [f"{report.name} is {state_text(report)}{since}"]
    if decided := _decided(story):
        yield "Decided", [decided]
    elif not report.incidents and not report.warnings:
        until = f" up to {stamp(story.unread_since)}" if story.unread_since else ""
        yield "Decided", [f"nothing: nothing is recorded against it{until}"]
    if story.held_back:
        yield "Held back", [f"{_name(story, item.refused)}: {item.why}" for item in story.held_back]
    if story.stays:
        yield "Stays out", [f"{story.stays}; only a person brings it back"]


def _against(story: Story) -> Iterator[Row]:
    report, now = story.report, story.now
    shown = _by_need(report.incidents)
    for incident in shown[:FAULTS_SHOWN]:
        yield "Fault", list(_fault(incident, now))
    if (more := len(shown) - FAULTS_SHOWN) > 0:
        yield "And", [f"{count(more, 'more fault')}: `konductor-like explain node {report.name} -o json`"]
    for event in story.events:
        yield "Event", list(_event(event, report.name, now))


def _before(story: Story) -> Iterator[Row]:
    report, now = story.report, story.now
    if report.quarantines:
        yield "Times out", list(_stints(report.quarantines, now))
    if report.releases:
        yield "Released", [_release(mark, now) for mark in report.releases[:2]]
    yield "Coverage", [_coverage(story), *notes_on(report.name, story.coverage)]
    if (act := story.state.record.act) is not None:
        by_rules = f", under the rules {act.rules}" if act.rules else ", by a person"
        yield "Last act", [f"{act.id}, {_when(act.at, now)}{by_rules}"]


def _coverage(story: Story) -> str:
    if story.unread_since is None:
        return _COVERAGE[story.report.coverage.value]
    return (
        f"UNKNOWN: its kernel log has not been read since {stamp(story.unread_since)} "
        f"({_age(story.unread_since, story.now)} ago), so silence means nothing"
    )


def _next(story: Story) -> Iterator[Row]:
    report = story.report
    if report.warnings:
        yield "Warning", list(report.warnings)
    if differs := other_rules(story.controller.settings, story.own_rules):
        yield "Rules", [differs]
    if story.note:
        yield "Not known", [story.note]
    if report.advice:
        yield "To do", [report.advice]
    if commands := next_commands(story):
        yield "Then", commands


def next_commands(story: Story) -> list[str]:
    """The commands that change how the node stands."""
    name, health = story.report.name, story.report.health
    if health in (Health.FAULTY, Health.HELD):
        return [f"konductor-like reset {name} --reason '...'"]
    return [f"konductor-like ack {name} --reason '...'"] if health is Health.SUSPECT else []


def document(story: Story) -> dict[str, Any]:
    """The stable form, described in docs/cli.md."""
    act = story.state.record.act
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeExplanation",
        "time": stamp(story.now),
        "node": node_document(story.report),
        "heldBack": [
            {
                "rule": item.refused.key.rule,
                "gpu": item.refused.key.gpu,
                "why": item.refused.why.value,
                "detail": item.why,
            }
            for item in story.held_back
        ],
        "events": [event_document(event) for event in story.events],
        "otherRules": other_rules(story.controller.settings, story.own_rules) or None,
        "act": act and {"id": act.id, "at": stamp(act.at), "rules": act.rules or None},
        "staysOut": story.stays,
        "next": next_commands(story),
        "unreadSince": stamp(story.unread_since),
        "problem": story.note or None,
    }


def _decided(story: Story) -> str:
    record, report = story.state.record, story.report
    if story.state.opted_out and not report.tainted:
        return f"left alone: the node bears the label {OPT_OUT_LABEL}"
    if report.tainted and record.tainted_at is None:
        return "tainted by somebody else: no record of ours claims it"
    if report.tainted:
        why = f" for {name_of(report.fault)}" if report.fault and not report.fault.by_person else ""
        return f"tainted {_when(record.tainted_at, story.now)}{why}"
    if report.health is Health.HELD:
        return f"to be tainted, and held back{'' if story.held_back else f'; {_free(story)}'}"
    if report.fault is not None and (wake := wake_of(report.fault)):
        return f"not tainted: {wake}"
    if story.held_back:
        return "not tainted: what would taint it is held back"
    open_ones = [each for each in report.incidents if each.state is not IncidentState.RELEASED]
    if not open_ones:
        return ""
    if all(wake_of(each) for each in open_ones):
        return f"recorded, not tainted: {wake_of(open_ones[0])}"
    return "recorded, not tainted: nothing of it is enough by itself"


def _free(story: Story) -> str:
    """What is to be said of a node that is held, where nothing is known to hold it."""
    if story.controller.settings is None:
        return f"why cannot be told: {story.controller.why_unset}"
    if not story.controller.alive(story.now):
        return "nothing is in its way any more, it is tainted when a controller runs"
    return "nothing is in its way any more, the controller's next look taints it"


def _name(story: Story, refused: Refused) -> str:
    incident = story.state.record.incident(refused.key)
    return name_of(incident) if incident else refused.key.rule


def _by_need(incidents: Iterable[Incident]) -> list[Incident]:
    """What stands first, what taints before the rest, the newest first."""
    return sorted(
        incidents,
        key=lambda each: (each.state is IncidentState.RELEASED, not each.taints, -each.last_ns),
    )


def _fault(incident: Incident, now: datetime) -> Iterator[str]:
    first, last = moment(incident.first_ns), moment(incident.last_ns)
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
    if incident.grounds:
        yield f"grounds: {incident.grounds}"
    if incident.ended_ns is not None:
        when = _when(moment(incident.ended_ns), now)
        yield f"over: {when} the driver said so; it stands until `konductor-like reset`"
    if incident.job:
        yield f"job: {incident.job}"
    if incident.ack:
        why = f": {incident.ack.reason}" if incident.ack.reason else ""
        yield f"acknowledged {_when(incident.ack.at, now)} by {incident.ack.by}{why}"


def _event(event: EventReport, name: str, now: datetime) -> Iterator[str]:
    yield event_sentence(event, now)
    mine = next(
        role
        for role, nodes in (
            (Role.ORIGIN, (*event.origins, *event.gone)),
            (Role.UNCLEAR, event.unclear),
            (Role.COLLATERAL, event.collateral),
        )
        if name in nodes
    )
    others = [each for each in event.nodes if each != name]
    more = len(others) - MEMBERS_SHOWN
    listed = ", ".join(others[:MEMBERS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    yield f"this node: {mine.value}; with it: {listed}"


def _stints(stints: tuple[Quarantine, ...], now: datetime) -> Iterator[str]:
    for stint in stints[:STINTS_SHOWN]:
        span = age((stint.released_at - stint.tainted_at).total_seconds())
        yield f"{_when(stint.tainted_at, now)} for {span}, for {stint.rule}"
    if (more := len(stints) - STINTS_SHOWN) > 0:
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
