"""Weighing what happened lately on all nodes together: thresholds, and which node an event began on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from konductor_like.model import (
    Fault,
    Incident,
    IncidentKey,
    NodeRecord,
    NodeState,
    Severity,
    SharedEvent,
    Snapshot,
    Window,
)
from konductor_like.policy.change import health_of, tainting
from konductor_like.policy.common import JobsOf, failed_jobs, is_common_node, suspected
from konductor_like.policy.correlate import clusters, connected, is_soft, is_symptom, job_key, related
from konductor_like.policy.evidence import Evidence, evidence_of, open_incidents
from konductor_like.policy.judge import is_of_this_node
from konductor_like.policy.release import unix_ns
from konductor_like.policy.roles import (
    NamedEvent,
    Waiting,
    is_decided,
    is_waiting,
    named,
    parts_by_node,
    settling,
    with_roles,
)
from konductor_like.policy.rules import Rules
from konductor_like.policy.thresholds import RECENT_NS, counting, escalated, grounds_of, is_news
from konductor_like.policy.window import boot_in, by_clock, pruned, with_news, with_past
from konductor_like.policy.windowjobs import with_jobs, with_pods


@dataclass(frozen=True, slots=True)
class Weighed:
    """What came of it."""

    window: Window
    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    """The records that it changed, by node."""
    urgent: frozenset[str] = frozenset()
    """Those of them to be written now; what only adds words waits for the next write (design rule 22)."""
    suspects: Mapping[str, Incident] = field(default_factory=dict)
    """The nodes that failed jobs turned out to have in common just now, and the incident that says so."""
    settling: Waiting = field(default_factory=dict)
    """By node, incidents that wait a few seconds before they may taint, and until when."""
    events: tuple[SharedEvent, ...] = ()


def weigh(
    records: Mapping[str, NodeRecord],
    counted: Sequence[Fault],
    past: Sequence[Fault] | None,
    snapshot: Snapshot,
    rules: Rules,
    now: datetime,
    *,
    again: Sequence[Fault] = (),
) -> Weighed:
    """Weigh new evidence (``counted``) and what is known of the time before (``past``, the window).

    ``again`` is what an earlier process counted and this one reads for the first time, and what is said of
    nodes that are opted out: it counts against nobody and explains what happens elsewhere.

    ``records`` are the nodes' records as they were judged just now; of other nodes the snapshot's hold.
    """
    now_ns = unix_ns(now)
    window = _window(counted, past or (), again, snapshot, rules, now)
    jobs_of = _jobs_of(window, snapshot)
    may_have_changed = _may_have_changed(window, records, jobs_of, snapshot)
    # More of the past may add to what any node said since the start.
    since_ns = 0 if past is not None else now_ns - RECENT_NS
    touched = _touched(window, may_have_changed, records, snapshot.nodes, rules, since_ns)
    if not touched:
        return Weighed(window)
    names = related(touched, jobs_of, snapshot.nodes)
    evidence = evidence_of(names, window, records, snapshot.nodes, rules.correlation_seconds)
    mine: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in evidence:
        mine[each.node].append(each)
    known = {
        name: records.get(name) or snapshot.nodes[name].record
        for name in names
        if name in snapshot.nodes and not snapshot.nodes[name].opted_out
    }
    waiting = {
        name: keys
        for name, record in known.items()
        if (keys := settling(record, snapshot.nodes[name], mine[name], rules, now_ns))
    }
    events = [named(event, known, waiting, rules) for event in clusters(evidence, snapshot.nodes, rules)]
    parts = parts_by_node(events)
    failed = failed_jobs(event.cluster for event in events)
    counts: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in counting(evidence, (event.cluster for event in events), rules):
        counts[each.node].append(each)

    changed: dict[str, NodeRecord] = {}
    suspects: dict[str, Incident] = {}
    for name, record in known.items():
        state = snapshot.nodes[name]
        new = with_roles(record, state, mine[name], parts.get(name, {}), waiting, rules)
        if name in touched:
            new = _escalated(new, state, counts[name], rules, now_ns)
            # Who else took part, and where it began, may stand in what is not read again yet.
            if not snapshot.replaying and is_common_node(name, failed, rules):
                new, suspect = _suspected(new, state, counts[name], rules, now_ns)
                if suspect is not None:
                    suspects[name] = suspect
        if new != record:
            changed[name] = new
            # What was collateral and goes on alone waits, too.
            if keys := settling(new, state, mine[name], rules, now_ns):
                waiting[name] = keys
    quiet_ns = now_ns - round(rules.correlation_seconds * 1e9)
    over = {event.name for event in events if event.cluster.members[-1].end_ns < quiet_ns}
    urgent = {
        name
        for name, new in changed.items()
        if _matters(known[name], new, snapshot.nodes[name]) or _joined(known[name], new, over)
    } | suspects.keys()
    recent = (event for event in events if event.cluster.members[-1].end_ns >= now_ns - RECENT_NS)
    told = tuple(_told(event, failed, waiting, rules) for event in recent)
    return Weighed(window, changed, frozenset(urgent), suspects, waiting, told)


def _window(
    counted: Sequence[Fault],
    past: Sequence[Fault],
    again: Sequence[Fault],
    snapshot: Snapshot,
    rules: Rules,
    now: datetime,
) -> Window:
    states, now_ns = snapshot.nodes, unix_ns(now)
    window = by_clock(snapshot.window, now_ns)

    def boot_of(fault: Fault) -> str | None:
        state = states.get(fault.node or "")
        return boot_in(None if state is None else state.machine.boot_id, fault)

    if past or again:
        known = [fault for fault in (*past, *again) if _counts(fault, states, rules, now)]
        window = with_past(window, known, boot_of)
        # Whoever recorded it may have died before it was weighed; what comes late may join what is heard.
        young = {str(f.node): now_ns for f in known if f.timestamp_ns >= now_ns - RECENT_NS}
        late = {str(f.node): now_ns for f in again if f.node in states}
        window = replace(window, heard_ns={**young, **window.heard_ns, **late})
    window = with_news(window, counted, boot_of, now_ns)
    if snapshot.pods:
        window = with_pods(window, snapshot.pods)
    if snapshot.jobs:
        window = with_jobs(window, snapshot.jobs, now_ns)
    return pruned(window, rules.window_seconds, now_ns)


def _counts(fault: Fault, states: Mapping[str, NodeState], rules: Rules, now: datetime) -> bool:
    state = states.get(fault.node or "")
    if state is None or fault.finding.shadow:
        return False
    if fault.finding.user_written and not rules.count_user_written:
        return False
    # A node that is opted out is left alone, and may all the same be where an event began.
    return is_of_this_node(replace(state, opted_out=False) if state.opted_out else state, fault, now)


def _may_have_changed(
    window: Window,
    records: Mapping[str, NodeRecord],
    jobs_of: Mapping[str, frozenset[str]],
    snapshot: Snapshot,
) -> Iterable[str]:
    """The nodes that may be weighed otherwise than the last time: all that were heard of, unless the caller
    follows the nodes itself. Then those with something new, and whoever may be part of an event with them."""
    if snapshot.attention is None:
        return window.heard_ns
    states, before = snapshot.nodes, snapshot.window
    if (window.pruned_ns, window.dropped) == (before.pruned_ns, before.dropped):
        return connected(records, jobs_of, states)
    # What went for its age may have been a part of any event.
    domains = (name for name in window.heard_ns if name in states and states[name].domain is not None)
    return connected({*records, *jobs_of, *domains}, jobs_of, states)


def _touched(
    window: Window,
    may_have_changed: Iterable[str],
    records: Mapping[str, NodeRecord],
    states: Mapping[str, NodeState],
    rules: Rules,
    since_ns: int,
) -> set[str]:
    """The nodes that something may have changed for: those heard of lately, and those that wait to settle."""
    heard_ns = window.heard_ns
    touched = {name for name in may_have_changed if heard_ns.get(name, -1) >= since_ns and name in states}
    for name, record in records.items():
        if any(
            is_waiting(incident) and rules.escalation(incident.key.rule).settle_seconds
            for incident in record.incidents
        ):
            touched.add(name)
    return touched


def _jobs_of(window: Window, snapshot: Snapshot) -> Mapping[str, frozenset[str]]:
    """The jobs that are known of each node: by its pods' lines, by the API server, by its record."""
    jobs = dict(window.jobs)
    for name in snapshot.nodes if snapshot.attention is None else snapshot.with_jobs:
        there = {job_key(i.job) for i in snapshot.nodes[name].record.incidents if i.job is not None}
        if there:
            jobs[name] = jobs.get(name, frozenset()) | there
    return jobs


def _escalated(
    record: NodeRecord, state: NodeState, counts: Sequence[Evidence], rules: Rules, now_ns: int
) -> NodeRecord:
    """The record with the grounds that doubt has become; where there are some already they stay."""
    found = {
        id(incident): escalated(incident, grounds, rules)
        for incident in open_incidents(record, state)
        if not incident.taints and (grounds := grounds_of(incident, counts, rules, now_ns))
    }
    return _with_incidents(record, found) if found else record


def _suspected(
    record: NodeRecord, state: NodeState, counts: Sequence[Evidence], rules: Rules, now_ns: int
) -> tuple[NodeRecord, Incident | None]:
    """The record of a common node, and its latest suspicion, which says so; None where that is no news."""
    doubts = [i for i in open_incidents(record, state) if i.severity is Severity.SUSPECT and not i.taints]
    if not doubts or tainting(record) or not is_news(counts, now_ns):
        return record, None
    latest = max(doubts, key=lambda incident: incident.last_ns)
    suspect = suspected(latest, rules)
    if any(doubt.advice == suspect.advice for doubt in doubts):
        return record, None
    return _with_incidents(record, {id(latest): suspect}), suspect


def _with_incidents(record: NodeRecord, changed: Mapping[int, Incident]) -> NodeRecord:
    incidents = tuple(changed.get(id(incident), incident) for incident in record.incidents)
    return replace(record, incidents=incidents)


def _matters(before: NodeRecord, after: NodeRecord, state: NodeState) -> bool:
    if health_of(before, tainted=state.tainted) != health_of(after, tainted=state.tainted):
        return True
    return _why(before) != _why(after) or _was_corrected(before, after)


def _was_corrected(before: NodeRecord, after: NodeRecord) -> bool:
    """Whether what it was said to be, or where that began, turned out otherwise."""
    pairs = zip(before.incidents, after.incidents, strict=True)
    return any(old.role and (old.role, old.origin) != (new.role, new.origin) for old, new in pairs)


def _joined(before: NodeRecord, after: NodeRecord, over: Collection[str]) -> bool:
    """Whether it turned out to be part of an event to which nothing more is added: that is written once.

    Of which event it is now, where it was part of one before, waits with the counts: a job may crash all day.
    """
    pairs = zip(before.incidents, after.incidents, strict=True)
    return any(old.event is None and new.event in over for old, new in pairs)


def _why(record: NodeRecord) -> list[tuple[IncidentKey, str]]:
    return [(incident.key, incident.grounds) for incident in tainting(record)]


def _told(event: NamedEvent, failed: JobsOf, waiting: Waiting, rules: Rules) -> SharedEvent:
    cluster = event.cluster
    first: dict[str, int] = {}
    own: set[str] = set()
    for each in cluster.members:
        first.setdefault(each.node, each.start_ns)
        if not (is_symptom(each, rules) or is_soft(each, rules)):
            own.add(each.node)
    origins = cluster.origins if is_decided(cluster, waiting, rules) else frozenset()
    ranked = sorted(
        first, key=lambda node: (node not in origins, -len(failed.get(node, ())), first[node], node)
    )
    collateral = frozenset(first).difference(origins, own) if origins else frozenset()
    return SharedEvent(event.name, cluster.shared, event.start_ns, tuple(ranked), origins, collateral)
