"""Weighing what happened lately on all nodes together: thresholds, and which node an event began on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from konductor_like.model import (
    Fault,
    Incident,
    IncidentKey,
    IncidentState,
    NodeRecord,
    NodeState,
    Role,
    Severity,
    SharedEvent,
    Snapshot,
    Window,
)
from konductor_like.policy.change import health_of, tainting
from konductor_like.policy.correlate import clusters, is_soft, is_symptom, job_key, parts_of, related
from konductor_like.policy.evidence import Evidence, evidence_of, open_incidents
from konductor_like.policy.judge import is_of_this_node
from konductor_like.policy.release import unix_ns
from konductor_like.policy.roles import (
    NamedEvent,
    Waiting,
    is_decided,
    is_waiting,
    named,
    settling,
    with_roles,
)
from konductor_like.policy.rules import Rules
from konductor_like.policy.thresholds import RECENT_NS, Failures, counting, grounds_of, is_news
from konductor_like.policy.window import boot_in, pruned, with_jobs, with_news, with_past


@dataclass(frozen=True, slots=True)
class Weighed:
    """What came of it."""

    window: Window
    records: Mapping[str, NodeRecord] = field(default_factory=dict)
    """The records that it changed, by node."""
    urgent: frozenset[str] = frozenset()
    """Those of them to be written now; what only adds words waits for the next write (design rule 22)."""
    settling: Waiting = field(default_factory=dict)
    """By node, incidents that wait a few seconds before they may taint."""
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

    ``again`` is what an earlier process counted and this one reads for the first time.

    ``records`` are the nodes' records as they were judged just now; of other nodes the snapshot's hold.
    """
    now_ns = unix_ns(now)
    window = _window(counted, [*(past or ()), *again], snapshot, rules, now)
    touched = _touched(window, records, snapshot.nodes, rules, now_ns, all_heard=past is not None)
    if not touched:
        return Weighed(window)
    names = related(touched, _jobs_of(window, snapshot), snapshot.nodes)
    evidence = evidence_of(names, window, records, snapshot.nodes, rules.correlation_seconds)
    mine: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in evidence:
        mine[each.node].append(each)
    known = {
        name: records.get(name) or snapshot.nodes[name].record for name in names if name in snapshot.nodes
    }
    waiting = {
        name: keys
        for name, record in known.items()
        if (keys := settling(record, snapshot.nodes[name], mine[name], rules, now_ns))
    }
    events = [named(event, known, rules) for event in clusters(evidence, snapshot.nodes, rules)]
    failures = Failures.of((event.cluster for event in events), rules)
    # Who else took part, and where it began, may stand in what is not read again yet.
    accusing = Failures({}, rules) if snapshot.replaying else failures
    counts: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in counting(evidence, (event.cluster for event in events), rules):
        counts[each.node].append(each)

    changed: dict[str, NodeRecord] = {}
    for name, record in known.items():
        state = snapshot.nodes[name]
        new = with_roles(record, state, mine[name], events, waiting, rules)
        if name in touched:
            new = _escalated(new, state, counts[name], accusing, rules, now_ns)
        if new != record:
            changed[name] = new
            # What was collateral and goes on alone waits, too.
            if keys := settling(new, state, mine[name], rules, now_ns):
                waiting[name] = keys
    urgent = {name for name, new in changed.items() if _matters(known[name], new, snapshot.nodes[name])}
    recent = (event for event in events if event.cluster.members[-1].end_ns >= now_ns - RECENT_NS)
    told = tuple(_told(event, failures, waiting, rules) for event in recent)
    return Weighed(window, changed, frozenset(urgent), waiting, told)


def _window(
    counted: Sequence[Fault], past: Sequence[Fault], snapshot: Snapshot, rules: Rules, now: datetime
) -> Window:
    window, states, now_ns = snapshot.window, snapshot.nodes, unix_ns(now)

    def boot_of(fault: Fault) -> str | None:
        state = states.get(fault.node or "")
        return boot_in(None if state is None else state.machine.boot_id, fault)

    if past:
        window = with_past(window, [fault for fault in past if _counts(fault, states, rules, now)], boot_of)
    window = with_news(window, counted, boot_of, now_ns)
    if snapshot.jobs:
        window = with_jobs(window, snapshot.jobs, now_ns)
    return pruned(window, rules.window_seconds, now_ns)


def _counts(fault: Fault, states: Mapping[str, NodeState], rules: Rules, now: datetime) -> bool:
    state = states.get(fault.node or "")
    if state is None or fault.finding.shadow:
        return False
    if fault.finding.user_written and not rules.count_user_written:
        return False
    return is_of_this_node(state, fault, now)


def _touched(
    window: Window,
    records: Mapping[str, NodeRecord],
    states: Mapping[str, NodeState],
    rules: Rules,
    now_ns: int,
    *,
    all_heard: bool,
) -> set[str]:
    """The nodes that something may have changed for: those heard of lately, and those that wait to settle.

    ``all_heard``: more of the past is known now, and may add to what any node said since the start.
    """
    since_ns = 0 if all_heard else now_ns - RECENT_NS
    touched = {name for name, ns in window.heard_ns.items() if ns >= since_ns and name in states}
    for name, record in records.items():
        if any(
            is_waiting(incident) and rules.escalation(incident.key.rule).settle_seconds
            for incident in record.incidents
        ):
            touched.add(name)
    return touched


def _jobs_of(window: Window, snapshot: Snapshot) -> Mapping[str, frozenset[str]]:
    """The jobs that are known of each node: by its pods' lines, by the API server, by its record."""
    jobs: defaultdict[str, set[str]] = defaultdict(set)
    for name, traces in window.traces.items():
        for key, trace in traces.items():
            if key.job is not None:
                jobs[name].add(key.job)
            else:
                for episode in trace.episodes:
                    jobs[name] |= episode.jobs
    for name, state in snapshot.nodes.items():
        jobs_there = [incident.job for incident in state.record.incidents if incident.job is not None]
        if jobs_there:
            jobs[name].update(jobs_there)
    return {name: frozenset(map(job_key, found)) for name, found in jobs.items()}


def _escalated(
    record: NodeRecord,
    state: NodeState,
    counts: Sequence[Evidence],
    failures: Failures,
    rules: Rules,
    now_ns: int,
) -> NodeRecord:
    """The record with the grounds that doubt has become; where there are some already they stay."""
    doubts = [i for i in open_incidents(record, state) if not i.taints]
    found: dict[int, str] = {}
    for incident in doubts:
        if grounds := grounds_of(incident, counts, rules, now_ns):
            found[id(incident)] = grounds
    if grounds := _accused(record, doubts, counts, failures, now_ns):
        latest = max(doubts, key=lambda incident: (incident.severity is Severity.SUSPECT, incident.last_ns))
        found.setdefault(id(latest), grounds)
    if not found:
        return record
    return replace(
        record,
        incidents=tuple(
            replace(incident, grounds=found[id(incident)], state=IncidentState.HELD, role=None, origin=None)
            if id(incident) in found
            else incident
            for incident in record.incidents
        ),
    )


def _accused(
    record: NodeRecord,
    doubts: Sequence[Incident],
    counts: Sequence[Evidence],
    failures: Failures,
    now_ns: int,
) -> str:
    if not any(incident.severity is Severity.SUSPECT for incident in doubts) or tainting(record):
        return ""
    return failures.grounds(counts[0].node) if is_news(counts, now_ns) else ""


def _matters(before: NodeRecord, after: NodeRecord, state: NodeState) -> bool:
    if health_of(before, tainted=state.tainted) != health_of(after, tainted=state.tainted):
        return True
    return _why(before) != _why(after) or _parts(before) != _parts(after)


def _parts(record: NodeRecord) -> list[tuple[str | None, Role | None, str | None]]:
    """What its incidents are in which job's or domain's event; the next event of the same one is no news."""
    return [(each.event and parts_of(each.event)[0], each.role, each.origin) for each in record.incidents]


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
