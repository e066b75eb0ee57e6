"""Escalation: how recent evidence of the whole fleet changes a node's incidents.

``decide`` calls :func:`assess_fleet`. An incident is escalated (it taints although its severity does not)
when its rule's threshold is reached, for example 3 times in 24 h, or when evidence of a second rule confirms
it. Pods' lines alone taint nothing (rule 17).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache

from konductor_like.jobs import job_key, stem
from konductor_like.model import (
    APPLICATION_XIDS,
    Distinct,
    FaultKind,
    Incident,
    IncidentKey,
    NodeRecord,
    NodeState,
    RecentEvidence,
    Same,
    Severity,
    Snapshot,
    Source,
    Threshold,
    Together,
)
from konductor_like.model.text import span_text
from konductor_like.model.time import SECOND_NS, span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.fleet.correlation import (
    DeferredUntil,
    FailureGroup,
    deferred_of,
    failure_groups,
    named,
    parts_by_node,
    related,
    with_roles,
)
from konductor_like.policy.fleet.evidence import Evidence, by_time, evidence_of
from konductor_like.policy.fleet.recent_evidence import RECENT_NS
from konductor_like.policy.node.health import health_of, open_incidents, tainting

COUNT_AGAIN_NS = 600 * SECOND_NS
DEFAULT_ADVICE = (
    "Drain. Run `nvidia-bug-report.sh` and diagnostics on its GPUs: `dcgmi diag -r 3`.",
    "inspection",
)
"""The default advice for a node tainted by escalation, and what the machine then needs."""
_RUN_NUMBER = re.compile(r"[-._][^-._]*\d[^-._]*|\d+$")
_SUSPECT_OR_WORSE = (Severity.FATAL, Severity.SUSPECT)


@dataclass(frozen=True, slots=True)
class Assessment:
    """The result of the assessment of the fleet's evidence."""

    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    """By node, the records that the assessment changed."""
    urgent: frozenset[str] = frozenset()
    """The nodes whose records are written now; a change of words alone waits for the next write (rule 22)."""
    deferred: DeferredUntil = field(default_factory=dict)
    """By node, the deferred incidents, and until when."""


def assess_fleet(
    records: Mapping[str, NodeRecord],
    window: RecentEvidence,
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
    *,
    more_past: bool,
) -> Assessment:
    """Assess the evidence of all nodes together, because several nodes may report the same failure.

    ``records`` are the records that new faults were folded into; the snapshot has those of the other nodes.
    ``more_past`` says that recent evidence contains more of the time before our start than at the last
    decision.
    """
    now_ns, states = unix_ns(now), snapshot.nodes
    # More of the past may change the meaning of every line since the start.
    touched = _nodes_to_assess(window, records, states, policy, 0 if more_past else now_ns - RECENT_NS)
    if not touched:
        return Assessment()
    names = related(touched, _jobs_of(window, snapshot), states)
    evidence = evidence_of(names, window, records, states, policy)
    mine: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in evidence:
        mine[each.node].append(each)
    known = {name: records.get(name) or states[name].record for name in names if name in states}
    deferred = {
        name: keys
        for name, record in known.items()
        if (keys := deferred_of(record, states[name], mine[name], policy, now_ns))
    }
    groups = [named(group, known, deferred, policy) for group in failure_groups(evidence, states, policy)]
    parts = parts_by_node(groups)
    countable: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in evidence_that_counts(evidence, groups):
        countable[each.node].append(each)

    changed: dict[str, NodeRecord] = {}
    for name, record in known.items():
        state, new = states[name], record
        if name in parts or any(i.failure_group or i.role for i in record.incidents):
            new = with_roles(new, state, mine[name], parts.get(name, {}), deferred.get(name, {}), policy)
        if name in touched:
            new = _escalated(new, state, countable[name], policy, now_ns)
        if new != record:
            changed[name] = new
            # An incident that is no longer collateral may be deferred, too.
            if keys := deferred_of(new, state, mine[name], policy, now_ns):
                deferred[name] = keys
    quiet_ns = now_ns - span_ns(policy.correlation_seconds)
    over = {group.name for group in groups if group.members[-1].end_ns < quiet_ns}
    urgent = {name for name, new in changed.items() if _is_urgent(known[name], new, states[name], over)}
    return Assessment(changed, frozenset(urgent), deferred)


def _nodes_to_assess(
    window: RecentEvidence,
    records: Mapping[str, NodeRecord],
    states: Mapping[str, NodeState],
    policy: PolicyConfig,
    since_ns: int,
) -> set[str]:
    """Return the nodes to assess: those with evidence read since ``since_ns``, or with deferred incidents."""
    touched = {name for name, at_ns in window.heard_ns.items() if at_ns >= since_ns and name in states}
    for name, record in records.items():
        if not states[name].tainted and any(
            incident.severity.taints and policy.escalation(incident.key.rule).defer_seconds
            for incident in tainting(record)
        ):
            touched.add(name)
    return touched


def _jobs_of(window: RecentEvidence, snapshot: Snapshot) -> Mapping[str, frozenset[str]]:
    """Return the known jobs of each node: from its pods' lines, the API server and its record."""
    jobs = dict(window.jobs)
    for name, state in snapshot.nodes.items():
        there = {job_key(i.job) for i in state.record.incidents if i.job is not None}
        if there:
            jobs[name] = jobs.get(name, frozenset()) | there
    return jobs


def _escalated(
    record: NodeRecord, state: NodeState, countable: Sequence[Evidence], policy: PolicyConfig, now_ns: int
) -> NodeRecord:
    """Return the record with newly escalated incidents; those escalated before do not change."""
    for incident in open_incidents(record, state):
        if incident.taints:
            continue
        if because := reason_to_escalate(incident, countable, policy, now_ns):
            record = _with_incident(record, incident, escalated(incident, because, policy))
    return record


def _with_incident(record: NodeRecord, before: Incident, after: Incident) -> NodeRecord:
    return replace(record, incidents=tuple(after if i is before else i for i in record.incidents))


def _is_urgent(before: NodeRecord, after: NodeRecord, state: NodeState, over: Collection[str]) -> bool:
    """Whether a changed record is written now; ``over`` names the failure groups that have ended.

    A change of words alone waits for the next write (rule 22).
    """
    if health_of(before, tainted=state.tainted) != health_of(after, tainted=state.tainted):
        return True
    if _reasons(before) != _reasons(after):
        return True
    for old, new in zip(before.incidents, after.incidents, strict=True):
        if old.role and (old.role, old.root_cause) != (new.role, new.root_cause):
            return True  # the recorded role or root cause was wrong
        if old.failure_group is None and new.failure_group in over:
            return True  # later groups are not urgent: a job may crash all day
    return False


def _reasons(record: NodeRecord) -> list[tuple[IncidentKey, str]]:
    return [(incident.key, incident.escalated_because) for incident in tainting(record)]


def evidence_that_counts(evidence: Iterable[Evidence], groups: Iterable[FailureGroup]) -> list[Evidence]:
    """Return the evidence that counts for thresholds: not explained elsewhere, and not only recorded."""
    explained = {
        id(each)
        for group in groups
        if group.root_causes
        for each in group.members
        if each.node not in group.root_causes and each.is_symptom
    }
    return [each for each in evidence if id(each) not in explained and not each.recorded]


def reason_to_escalate(
    incident: Incident, mine: Sequence[Evidence], policy: PolicyConfig, now_ns: int
) -> str:
    """Return why an incident is escalated now; empty if it is not.

    ``mine`` is the countable evidence of its node.
    """
    escalation = policy.escalation(incident.key.rule)
    threshold, together = escalation.threshold, escalation.together_with
    if threshold is None and together is None:
        return ""
    own = [each for each in mine if each.key == incident.key and not each.severity.taints]
    reached = _threshold_reached(threshold, incident, mine) if threshold and is_news(own, now_ns) else ""
    return reached or (_confirmed_by(together, incident, own, mine, now_ns) if together is not None else "")


def escalated(incident: Incident, escalated_because: str, policy: PolicyConfig) -> Incident:
    """Return the escalated incident, with the advice for its reason.

    The advice of a user's own rule is kept.
    """
    escalation = policy.escalation(incident.key.rule)
    if escalation.advice:
        advice, needs = escalation.advice, escalation.needs
    elif incident.kind is FaultKind.CUSTOM:
        advice, needs = incident.advice, incident.needs
    else:
        advice, needs = DEFAULT_ADVICE
    return replace(
        incident,
        escalated_because=escalated_because,
        advice=advice,
        needs=needs,
        role=None,
        root_cause=None,
    )


def is_news(own: Collection[Evidence], now_ns: int) -> bool:
    """Whether evidence may cause a write: this process read it first, or it is younger than ``RECENT_NS``.

    Older evidence from before the start was acted upon by an earlier process.
    """
    return any(each.heard_ns is not None or each.end_ns >= now_ns - RECENT_NS for each in own)


def _threshold_reached(threshold: Threshold, incident: Incident, mine: Iterable[Evidence]) -> str:
    key = incident.key
    own = [
        each
        for each in mine
        if each.key.rule == key.rule
        and not each.severity.taints
        and (threshold.same is Same.NODE or each.key.gpu == key.gpu)
    ]
    latest_ns = max((each.end_ns for each in own), default=0)
    since_ns = latest_ns - threshold.within_seconds * SECOND_NS
    own = [each for each in own if each.end_ns >= since_ns]
    match threshold.distinct:
        case Distinct.JOBS:
            occurrences = _distinct_jobs(own)
        case Distinct.PODS:
            occurrences = len({pod for each in own for pod in each.pods})
        case _:
            occurrences = sum(_occurrences(each, since_ns) for each in own)
    if occurrences < threshold.count:
        return ""
    where = "this GPU" if threshold.same is Same.GPU and key.gpu else "this node"
    from_what = f", from {occurrences} {threshold.distinct}" if threshold.distinct else ""
    times = sum(_occurrences(each, since_ns) for each in own)
    return f"{times} times within {span_text(threshold.within_seconds)} on {where}{from_what}"


def _occurrences(each: Evidence, since_ns: int) -> int:
    """Return how often the evidence counts: once, and again for every ten minutes that it went on."""
    return 1 + (each.end_ns - max(each.start_ns, since_ns)) // COUNT_AGAIN_NS


def _distinct_jobs(own: Iterable[Evidence]) -> int:
    """Return the number of jobs that the evidence is certainly of.

    With several jobs on the node, the job of a line is unknown. Runs of one program count as one job: a
    program's fault follows it from run to run.
    """
    seen: set[str] = set()
    jobs_counted = 0
    # Evidence with the fewest jobs first: a line of any of three jobs takes nothing from lines of one job
    # alone.
    ordered = sorted(own, key=by_time)
    for jobs in sorted(({_program(job) for job in each.jobs} for each in ordered), key=len):
        if jobs and seen.isdisjoint(jobs):
            jobs_counted += 1
        seen |= jobs
    return jobs_counted


@lru_cache(maxsize=4096)
def _program(job: str) -> str:
    """Return the name that runs of one program share: ``ml//run-7`` is of ``ml//run``.

    A name that is a number, such as Slurm's, does not name a program, and is kept.
    """
    space, _, name = job_key(job).rpartition("/")
    return f"{space}/{_RUN_NUMBER.sub('', stem(name)) or name}"


def _confirmed_by(
    together: Together, incident: Incident, own: Sequence[Evidence], mine: Iterable[Evidence], now_ns: int
) -> str:
    """Return which other rule's evidence confirms the incident, in words; empty if none does.

    It is enough that one of the two was read by this process.
    """
    own_is_news = is_news(own, now_ns)
    within_ns = together.within_seconds * SECOND_NS
    others = [
        each
        for each in mine
        if each.key != incident.key
        and any(_confirms(rule, each) for rule in together.rules)
        and (own_is_news or is_news([each], now_ns))
        and (together.same is Same.NODE or each.key.gpu == incident.key.gpu)
    ]
    others.sort(key=by_time)
    for each in sorted(own, key=by_time) if others else ():
        for other in others:
            if other.start_ns <= each.end_ns + within_ns and each.start_ns <= other.end_ns + within_ns:
                where = "GPU" if together.same is Same.GPU else "node"
                within = span_text(together.within_seconds)
                return f"together with {other.key.rule} on the same {where} within {within}"
    return ""


def _confirms(rule: str, other: Evidence) -> bool:
    if not rule.endswith(".*"):
        return other.key.rule == rule
    if other.source is not Source.KERNEL or other.key.rule in APPLICATION_XIDS:
        return False  # lines that any end of a job prints confirm nothing
    return other.key.rule.startswith(rule[:-1]) and other.severity in _SUSPECT_OR_WORSE
