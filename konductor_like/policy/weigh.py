"""Weighing what happened lately on all nodes together: thresholds, and which node an event began on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
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
from konductor_like.policy.common import Failures, Fleet
from konductor_like.policy.correlate import clusters, is_soft, is_symptom, job_key, related
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
    touched = _touched(window, records, jobs_of, snapshot.nodes, rules, None if past is not None else now_ns)
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
    failures = Failures.of((event.cluster for event in events), rules)
    # Who else took part, and where it began, may stand in what is not read again yet.
    accused = set() if snapshot.replaying else set(filter(failures.might_accuse, known))
    fleet = Fleet(jobs_of, snapshot.nodes) if accused else None
    counts: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in counting(evidence, (event.cluster for event in events), rules):
        counts[each.node].append(each)

    changed: dict[str, NodeRecord] = {}
    for name, record in known.items():
        state = snapshot.nodes[name]
        new = with_roles(record, state, mine[name], parts.get(name, {}), waiting, rules)
        if name in touched:
            common = failures.grounds(name, fleet) if fleet and name in accused else ""
            new = _escalated(new, state, counts[name], common, rules, now_ns)
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
    }
    recent = (event for event in events if event.cluster.members[-1].end_ns >= now_ns - RECENT_NS)
    told = tuple(_told(event, failures, waiting, rules) for event in recent)
    return Weighed(window, changed, frozenset(urgent), waiting, told)


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


def _touched(
    window: Window,
    records: Mapping[str, NodeRecord],
    jobs_of: Mapping[str, frozenset[str]],
    states: Mapping[str, NodeState],
    rules: Rules,
    now_ns: int | None,
) -> set[str]:
    """The nodes that something may have changed for: those heard of lately, and those that wait to settle.

    A node without a known job or NVLink domain depends on no other: only what is new of itself changes it,
    and then it is among ``records``. ``now_ns`` is None where more of the past was read, which may add to
    what any node said since the start.
    """
    touched = {
        name
        for name, heard_ns in window.heard_ns.items()
        if name in states
        and (
            now_ns is None
            or (
                heard_ns >= now_ns - RECENT_NS
                and (name in records or name in jobs_of or states[name].domain is not None)
            )
        )
    }
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
    for name, state in snapshot.nodes.items():
        there = {job_key(i.job) for i in state.record.incidents if i.job is not None}
        if there:
            jobs[name] = jobs.get(name, frozenset()) | there
    return jobs


def _escalated(
    record: NodeRecord,
    state: NodeState,
    counts: Sequence[Evidence],
    common: str,
    rules: Rules,
    now_ns: int,
) -> NodeRecord:
    """The record with the grounds that doubt has become; where there are some already they stay.

    ``common`` says that it is the one node that failed jobs share, if it is.
    """
    doubts = [i for i in open_incidents(record, state) if not i.taints]
    found: dict[int, Incident] = {}
    for incident in doubts:
        if grounds := grounds_of(incident, counts, rules, now_ns):
            found[id(incident)] = escalated(incident, grounds, rules)
    if common and _is_open_to(record, doubts, counts, now_ns):
        latest = max(doubts, key=lambda incident: (incident.severity is Severity.SUSPECT, incident.last_ns))
        found.setdefault(id(latest), escalated(latest, common, rules, common=True))
    if not found:
        return record
    return replace(
        record, incidents=tuple(found.get(id(incident), incident) for incident in record.incidents)
    )


def _is_open_to(
    record: NodeRecord, doubts: Sequence[Incident], counts: Sequence[Evidence], now_ns: int
) -> bool:
    """Whether there is something new for which it could be accused, and no better reason."""
    if not any(incident.severity is Severity.SUSPECT for incident in doubts) or tainting(record):
        return False
    return is_news(counts, now_ns)


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


def _told(event: NamedEvent, failures: Failures, waiting: Waiting, rules: Rules) -> SharedEvent:
    cluster = event.cluster
    first: dict[str, int] = {}
    own: set[str] = set()
    for each in cluster.members:
        first.setdefault(each.node, each.start_ns)
        if not (is_symptom(each, rules) or is_soft(each, rules)):
            own.add(each.node)
    origins = cluster.origins if is_decided(cluster, waiting, rules) else frozenset()
    ranked = sorted(first, key=lambda node: (node not in origins, -failures.count(node), first[node], node))
    collateral = frozenset(first).difference(origins, own) if origins else frozenset()
    return SharedEvent(event.name, cluster.shared, event.start_ns, tuple(ranked), origins, collateral)
