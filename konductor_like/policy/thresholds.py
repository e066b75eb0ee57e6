"""When doubt becomes reason enough: so many occurrences, or two kinds of evidence that confirm each other."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from konductor_like.jobs import stem
from konductor_like.model import (
    APPLICATION_XIDS,
    Distinct,
    FaultKind,
    Incident,
    IncidentState,
    Same,
    Severity,
    Source,
    Threshold,
    Together,
    span_text,
)
from konductor_like.policy.correlate import Cluster, is_symptom, job_key
from konductor_like.policy.evidence import Evidence
from konductor_like.policy.rules import Rules

SECOND_NS = 1_000_000_000
RECENT_NS = 900 * SECOND_NS
"""Evidence from before our start acts by itself only if it is younger: the crash may have come in between."""
LASTING_NS = 600 * SECOND_NS
ADVICE = ("Drain the node and run diagnostics on its GPUs before it takes work again.", "inspection")
"""What to do about a node that doubt took out, where the rule says nothing of its own; and what it needs."""
_NUMBERED = re.compile(r"[-._][^-._]*\d[^-._]*|\d+$")
_WORSE = (Severity.FATAL, Severity.SUSPECT)


def counting(evidence: Iterable[Evidence], events: Iterable[Cluster], rules: Rules) -> list[Evidence]:
    """What counts: all but what a failure elsewhere explains, and what only the record tells of."""
    explained = {
        id(each)
        for event in events
        if event.origins
        for each in event.members
        if each.node not in event.origins and is_symptom(each, rules)
    }
    return [each for each in evidence if id(each) not in explained and not each.recorded]


def grounds_of(incident: Incident, mine: Sequence[Evidence], rules: Rules, now_ns: int) -> str:
    """Why an incident that does not taint by itself is to taint now; empty where nothing says so.

    ``mine`` is what counts against its node.
    """
    escalation = rules.escalation(incident.key.rule)
    threshold, together = escalation.threshold, escalation.together_with
    if threshold is None and together is None:
        return ""
    own = [each for each in mine if each.key == incident.key and not each.taints]
    reached = _threshold(threshold, incident, mine) if threshold and is_news(own, now_ns) else ""
    return reached or (_together(together, incident, own, mine, now_ns) if together is not None else "")


def escalated(incident: Incident, grounds: str, rules: Rules) -> Incident:
    """The incident once it is reason enough, with the advice that follows from its grounds.

    A user's own rule says itself what to do.
    """
    escalation = rules.escalation(incident.key.rule)
    if escalation.advice:
        advice, needs = escalation.advice, escalation.needs
    elif incident.kind is FaultKind.CUSTOM:
        advice, needs = incident.advice, incident.needs
    else:
        advice, needs = ADVICE
    return replace(
        incident,
        grounds=grounds,
        advice=advice,
        needs=needs,
        state=IncidentState.HELD,
        role=None,
        origin=None,
    )


def is_news(own: Collection[Evidence], now_ns: int) -> bool:
    """Whether some of it was heard by this process, or is so young that nobody may have acted on it yet."""
    return any(each.heard_ns is not None or each.end_ns >= now_ns - RECENT_NS for each in own)


def _threshold(threshold: Threshold, incident: Incident, mine: Iterable[Evidence]) -> str:
    key = incident.key
    own = [
        each
        for each in mine
        if each.key.rule == key.rule
        and not each.taints
        and (threshold.same is Same.NODE or each.key.gpu == key.gpu)
    ]
    latest_ns = max((each.end_ns for each in own), default=0)
    since_ns = latest_ns - threshold.within_seconds * SECOND_NS
    own = [each for each in own if each.end_ns >= since_ns]
    match threshold.distinct:
        case Distinct.JOBS:
            count = _distinct_jobs(own)
        case Distinct.PODS:
            count = len({pod for each in own for pod in each.pods})
        case _:
            count = sum(_times(each, since_ns) for each in own)
    if count < threshold.count:
        return ""
    where = "this GPU" if threshold.same is Same.GPU and key.gpu else "this node"
    from_what = f", from {count} {threshold.distinct}" if threshold.distinct else ""
    times = sum(_times(each, since_ns) for each in own)
    return f"{times} times within {span_text(threshold.within_seconds)} on {where}{from_what}"


def _times(each: Evidence, since_ns: int) -> int:
    """How often it counts: once, and again for every ten minutes in which it did not stop."""
    return 1 + (each.end_ns - max(each.start_ns, since_ns)) // LASTING_NS


def _distinct_jobs(own: Iterable[Evidence]) -> int:
    """How many jobs it was for certain: where several ran on the node, nobody knows whose the line was.

    Runs of one program are one: its fault follows it.
    """
    seen: set[str] = set()
    count = 0
    # The surest first: a line of any of three jobs takes nothing from lines that are of one alone.
    for jobs in sorted(({_program(job) for job in each.jobs} for each in own), key=len):
        if jobs and seen.isdisjoint(jobs):
            count += 1
        seen |= jobs
    return count


@lru_cache(maxsize=4096)
def _program(job: str) -> str:
    """What runs of one program have in common by their names: ``ml//run-7`` is of ``ml//run``.

    A name that is a number, such as Slurm's, says nothing of its program, and stands for itself.
    """
    space, _, name = job_key(job).rpartition("/")
    return f"{space}/{_NUMBERED.sub('', stem(name)) or name}"


def _together(
    together: Together, incident: Incident, own: Sequence[Evidence], mine: Iterable[Evidence], now_ns: int
) -> str:
    """Either of the two may be the news that joins the other."""
    own_is_news = is_news(own, now_ns)
    span_ns = together.within_seconds * SECOND_NS
    others = [
        each
        for each in mine
        if each.key != incident.key
        and any(_is_meant(rule, each) for rule in together.rules)
        and (own_is_news or is_news([each], now_ns))
        and (together.same is Same.NODE or each.key.gpu == incident.key.gpu)
    ]
    for each in own:
        for other in others:
            if other.start_ns <= each.end_ns + span_ns and each.start_ns <= other.end_ns + span_ns:
                where = "GPU" if together.same is Same.GPU else "node"
                within = span_text(together.within_seconds)
                return f"together with {other.key.rule} on the same {where} within {within}"
    return ""


def _is_meant(rule: str, other: Evidence) -> bool:
    if not rule.endswith(".*"):
        return other.key.rule == rule
    if other.source is not Source.KERNEL or other.key.rule in APPLICATION_XIDS:
        return False  # what any end of a job prints confirms nothing
    return other.key.rule.startswith(rule[:-1]) and other.severity in _WORSE
