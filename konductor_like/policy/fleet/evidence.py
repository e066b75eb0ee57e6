"""The evidence that counts against nodes now: episodes and recorded incidents that are not dealt with.

The assessment of the fleet (``escalation``, ``correlation``) asks for it. Evidence is dealt with when a
release, an acknowledgement or a reboot covers it. The episodes come from ``recent_evidence``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from konductor_like.model import (
    APPLICATION_XIDS,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    NodeRecord,
    NodeState,
    RecentEvidence,
    Severity,
    Source,
    Trace,
    TraceKey,
)
from konductor_like.model.time import span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.health import open_incidents


class Evidence(NamedTuple):
    """One episode or one recorded incident of a node, as the assessment of the fleet sees it."""

    node: str
    key: IncidentKey
    source: Source
    severity: Severity
    code: int | None
    start_ns: int
    end_ns: int
    heard_ns: int | None = None
    """See :attr:`konductor_like.model.Episode.heard_ns`."""
    jobs: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    remote: bool = False
    proven: bool = False
    """The incident is escalated: it taints, whatever its severity."""
    recorded: bool = False
    """Known from the record alone: part of a failure group, but not counted for thresholds."""
    defers: bool = False
    """Its rule defers taints for a few seconds, until the root cause can be told from collateral."""

    @property
    def is_deferrable(self) -> bool:
        """Whether the evidence is fatal, and its rule defers taints."""
        return self.severity.taints and self.defers

    @property
    def is_conclusive(self) -> bool:
        """Whether the evidence is a hardware failure of its own node that is never collateral."""
        if self.source is not Source.KERNEL:
            return False
        return self.proven or (self.severity.taints and not self.is_deferrable)

    @property
    def is_symptom(self) -> bool:
        """Whether a failure on another node may explain the evidence."""
        if self.severity.taints or self.proven:
            return False
        return self.source is Source.POD or self.key.rule in APPLICATION_XIDS or self.defers


def evidence_of(
    nodes: Iterable[str],
    window: RecentEvidence,
    records: Mapping[str, NodeRecord],
    states: Mapping[str, NodeState],
    policy: PolicyConfig,
) -> list[Evidence]:
    """Return the evidence against ``nodes`` that is not dealt with.

    A kernel line names no job. It counts for the jobs whose pods printed lines on its node within
    ``correlation_seconds``, and for the jobs that ran there according to the API server.
    """
    found: list[Evidence] = []
    for name in nodes:
        state = states.get(name)
        if state is None:
            continue
        record = records.get(name, state.record)
        standing = open_incidents(record, state)
        mine = list(_of_window(window.traces.get(name, {}), state, record, standing, policy))
        if _may_be_grouped(state, standing, mine):
            in_window = {(each.key, each.severity.taints) for each in mine}
            mine += (  # known from the record only, after a restart, until the past is read again
                _of_incident(name, incident, policy)
                for incident in standing
                if (incident.key, incident.severity.taints) not in in_window
                and incident.severity is not Severity.TEST
            )
        if any(each.source is Source.POD and each.jobs for each in mine):
            mine = list(_with_jobs(mine, policy.correlation_seconds))
        found += mine
    return found


def by_time(each: Evidence) -> tuple[int, str, str, str]:
    """Sort key of evidence, the oldest first."""
    return (each.start_ns, each.node, each.key.rule, each.key.gpu or "")


def _may_be_grouped(state: NodeState, standing: Iterable[Incident], mine: Iterable[Evidence]) -> bool:
    """Whether the node's evidence may be part of a failure group: it has a domain, or a job is known."""
    if state.domain is not None or any(each.jobs for each in mine):
        return True
    return any(incident.job is not None or incident.failure_group is not None for incident in standing)


def dealt_with_until_ns(state: NodeState, record: NodeRecord) -> int:
    """Return up to when the node's lines are dealt with: a person's latest release, or its creation."""
    released_ns = unix_ns(record.last_by_person.at) if record.last_by_person else 0
    return max(state.created_ns, released_ns)


def _of_window(
    traces: Mapping[TraceKey, Trace],
    state: NodeState,
    record: NodeRecord,
    standing: Iterable[Incident],
    policy: PolicyConfig,
) -> Iterator[Evidence]:
    since_ns, boot_id, mark = dealt_with_until_ns(state, record), state.machine.boot_id, record.last_by_person
    proven = {incident.key for incident in standing if incident.escalated_because}
    covered: defaultdict[IncidentKey, list[KernelPosition]] = defaultdict(list)
    closed_ns: defaultdict[IncidentKey, int] = defaultdict(int)
    for incident in record.incidents:
        if incident.state is IncidentState.RELEASED:
            covered[incident.key].append(incident.last)
            closed_ns[incident.key] = max(closed_ns[incident.key], incident.released_ns or 0)
    whole = [mark.read] if mark else []
    for key, trace in traces.items():
        if key.boot_id is not None and key.boot_id != boot_id:
            continue
        incident_key, defers = IncidentKey(key.rule, key.gpu), policy.escalation(key.rule).defer_seconds > 0
        dealt_with_ns = max(since_ns, closed_ns[incident_key])
        places = [each for each in (*whole, *covered[incident_key]) if each.boot_id == key.boot_id]
        is_proven = incident_key in proven and not key.taints
        job = None if key.job is None else frozenset((key.job,))
        for episode in trace.episodes:
            # The kernel log's own order tells what a release covers. A clock decides only without a position,
            # or if the line names no boot (it has no sequence number) and may be of an earlier one.
            place = episode.last
            has_order = place.sequence is not None or (place.known and any(each.known for each in places))
            if episode.end_ns <= (state.created_ns if has_order else dealt_with_ns):
                continue
            if has_order and any(place.at_or_before(each) for each in places):
                continue
            start_ns, heard_ns = episode.start_ns, episode.heard_ns
            if start_ns <= dealt_with_ns:
                start_ns = min(dealt_with_ns + 1, episode.end_ns)
            if heard_ns is not None and heard_ns < dealt_with_ns:
                # An episode that goes on after it was dealt with counts as read at that time at the earliest.
                heard_ns = dealt_with_ns
            yield Evidence(
                state.name,
                incident_key,
                trace.source,
                trace.severity,
                trace.code,
                start_ns,
                episode.end_ns,
                heard_ns,
                episode.jobs if job is None else job,
                episode.pods,
                trace.remote,
                is_proven,
                False,
                defers,
            )


def _of_incident(name: str, incident: Incident, policy: PolicyConfig) -> Evidence:
    return Evidence(
        name,
        incident.key,
        incident.source,
        incident.severity,
        incident.code,
        incident.first_ns,
        incident.last_ns,
        jobs=frozenset((incident.job,)) if incident.job else frozenset(),
        proven=bool(incident.escalated_because),
        recorded=True,
        defers=policy.escalation(incident.key.rule).defer_seconds > 0,
    )


def _with_jobs(mine: list[Evidence], seconds: float) -> Iterator[Evidence]:
    margin_ns = span_ns(seconds)
    pods = [each for each in mine if each.source is Source.POD and each.jobs]
    for each in mine:
        if each.source is Source.KERNEL:
            near = [
                pod
                for pod in pods
                if pod.start_ns <= each.end_ns + margin_ns and each.start_ns <= pod.end_ns + margin_ns
            ]
            jobs = each.jobs.union(*(pod.jobs for pod in near))
            heard_ns = each.heard_ns
            if heard_ns is None and not each.severity.taints:
                # A pod's line that names the job makes a kernel line new evidence, too. A fatal line is
                # deferred from its own time on.
                heard_ns = max((pod.heard_ns for pod in near if pod.heard_ns is not None), default=None)
            same = (jobs, heard_ns) == (each.jobs, each.heard_ns)
            yield each if same else each._replace(jobs=jobs, heard_ns=heard_ns)
        else:
            yield each
