"""What stands against nodes right now: the window's episodes and the records' incidents, as one list.

Left out is what a release, an acknowledgement or a reboot has dealt with, and what was said of a machine that
bore the name before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from konductor_like.model import (
    Episode,
    Incident,
    IncidentKey,
    IncidentState,
    NodeRecord,
    NodeState,
    Severity,
    Source,
    Trace,
    TraceKey,
    Window,
)
from konductor_like.policy.release import unix_ns


@dataclass(frozen=True, slots=True)
class Evidence:
    """One occurrence on one node."""

    node: str
    key: IncidentKey
    source: Source
    severity: Severity
    code: int | None
    start_ns: int
    end_ns: int
    heard_ns: int | None = None
    """See :class:`konductor_like.model.Episode`."""
    jobs: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    remote: bool = False
    proven: bool = False
    """The record says that it taints, whatever its severity: a threshold was reached."""
    recorded: bool = False
    """The record alone tells of it: it places an event, and counts for no threshold."""

    @property
    def taints(self) -> bool:
        """Whether its severity alone taints."""
        return self.severity.taints


def evidence_of(
    nodes: Iterable[str],
    window: Window,
    records: Mapping[str, NodeRecord],
    states: Mapping[str, NodeState],
    jobs_seconds: float,
) -> list[Evidence]:
    """All that stands against ``nodes``, the oldest first.

    A kernel line names no job. It is of those whose pods spoke up on its node within ``jobs_seconds``, and of
    those that the API server said ran there.
    """
    found: list[Evidence] = []
    for name in nodes:
        state = states.get(name)
        if state is None:
            continue
        record = records.get(name, state.record)
        mine = [*_of_window(name, window.traces.get(name, {}), state, record)]
        mine += _of_record(name, record, state, mine)
        found += _with_jobs(mine, jobs_seconds)
    found.sort(key=lambda each: (each.start_ns, each.node, each.key.rule, each.key.gpu or ""))
    return found


def settled_ns(state: NodeState, record: NodeRecord) -> int:
    """Up to when what was said of the node is dealt with: its latest release, or its own beginning."""
    released_ns = unix_ns(record.releases[0].at) if record.releases else 0
    return max(state.created_ns, released_ns)


def open_incidents(record: NodeRecord, state: NodeState) -> list[Incident]:
    """The incidents that stand, of this boot."""
    return [
        incident
        for incident in record.incidents
        if incident.state in (IncidentState.ACTIVE, IncidentState.HELD)
        and not incident.before_install
        and incident.last.boot_id in (None, state.machine.boot_id)
    ]


def _of_window(
    name: str, traces: Mapping[TraceKey, Trace], state: NodeState, record: NodeRecord
) -> Iterator[Evidence]:
    since_ns = settled_ns(state, record)
    proven = {incident.key for incident in open_incidents(record, state) if incident.grounds}
    acked = {i.key: unix_ns(i.ack.at) for i in record.incidents if i.ack is not None}
    for key, trace in traces.items():
        if key.boot_id not in (None, state.machine.boot_id):
            continue
        incident_key = IncidentKey(key.rule, key.gpu)
        dealt_with_ns = max(since_ns, acked.get(incident_key, 0))
        for episode in trace.episodes:
            if episode.end_ns <= dealt_with_ns or _is_covered(episode, key, record):
                continue
            yield Evidence(
                name,
                incident_key,
                trace.source,
                trace.severity,
                trace.code,
                max(episode.start_ns, dealt_with_ns + 1),
                episode.end_ns,
                # What was heard before it was dealt with is not what stands now.
                None if episode.heard_ns is None else max(episode.heard_ns, dealt_with_ns),
                episode.jobs if key.job is None else frozenset((key.job,)),
                episode.pods,
                trace.remote,
                incident_key in proven and not key.taints,
            )


def _is_covered(episode: Episode, key: TraceKey, record: NodeRecord) -> bool:
    """Whether its place in the kernel log is before the latest release, whatever the node's clock said."""
    if not record.releases or not episode.last.known:
        return False
    read = record.releases[0].read
    return read.boot_id == key.boot_id and bool(episode.last.at_or_before(read))


def _of_record(
    name: str, record: NodeRecord, state: NodeState, known: Iterable[Evidence]
) -> Iterator[Evidence]:
    """What the record still tells after a restart, before the window is read again."""
    in_window = {(each.key, each.taints) for each in known}
    for incident in open_incidents(record, state):
        if (incident.key, incident.severity.taints) in in_window or incident.severity is Severity.TEST:
            continue
        yield Evidence(
            name,
            incident.key,
            incident.source,
            incident.severity,
            incident.code,
            incident.first_ns,
            incident.last_ns,
            jobs=frozenset((incident.job,)) if incident.job else frozenset(),
            proven=bool(incident.grounds),
            recorded=True,
        )


def _with_jobs(mine: list[Evidence], seconds: float) -> Iterator[Evidence]:
    span_ns = round(seconds * 1e9)
    pods = [each for each in mine if each.source is Source.POD and each.jobs]
    for each in mine:
        if each.source is Source.KERNEL:
            near = [
                pod
                for pod in pods
                if pod.start_ns <= each.end_ns + span_ns and each.start_ns <= pod.end_ns + span_ns
            ]
            jobs = each.jobs.union(*(pod.jobs for pod in near))
            heard_ns = each.heard_ns
            if heard_ns is None and not each.taints:
                # Whose it was is news of it as well. What taints by itself settles from its own line.
                heard_ns = max((pod.heard_ns for pod in near if pod.heard_ns is not None), default=None)
            same = (jobs, heard_ns) == (each.jobs, each.heard_ns)
            yield each if same else replace(each, jobs=jobs, heard_ns=heard_ns)
        else:
            yield each
