"""What stands against nodes right now: the window's episodes and the records' incidents, as one list.

Left out is what a release, an acknowledgement or a reboot has dealt with, and what was said of a machine that
bore the name before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from konductor_like.model import (
    Episode,
    Fault,
    IncidentKey,
    NodeRecord,
    NodeState,
    Severity,
    Snapshot,
    Source,
    Trace,
    TraceKey,
    Window,
)
from konductor_like.model.time import SECOND_NS, span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.evidence_window import (
    boot_in,
    by_clock,
    pruned,
    with_jobs,
    with_news,
    with_past,
    with_pods,
)
from konductor_like.policy.incidents import is_of_this_node, open_incidents

RECENT_NS = 900 * SECOND_NS
"""Evidence from before our start acts by itself only if it is younger: the crash may have come in between."""


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


def _of_window(
    name: str, traces: Mapping[TraceKey, Trace], state: NodeState, record: NodeRecord
) -> Iterator[Evidence]:
    since_ns = settled_ns(state, record)
    proven = {incident.key for incident in open_incidents(record, state) if incident.escalated_because}
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
            proven=bool(incident.escalated_because),
            recorded=True,
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
            if heard_ns is None and not each.taints:
                # Whose it was is news of it as well. What taints by itself settles from its own line.
                heard_ns = max((pod.heard_ns for pod in near if pod.heard_ns is not None), default=None)
            same = (jobs, heard_ns) == (each.jobs, each.heard_ns)
            yield each if same else replace(each, jobs=jobs, heard_ns=heard_ns)
        else:
            yield each


def renewed_window(
    counted: Sequence[Fault],
    past: Sequence[Fault],
    again: Sequence[Fault],
    snapshot: Snapshot,
    rules: PolicyConfig,
    now: datetime,
) -> Window:
    """The window with new evidence, what happened before our start, and whose jobs it was.

    ``again`` is what an earlier process counted and this one reads for the first time, and what is said of
    nodes that are opted out: it counts against nobody and explains what happens elsewhere.
    """
    states, now_ns = snapshot.nodes, unix_ns(now)
    window = by_clock(snapshot.window, now_ns)

    def boot_of(fault: Fault) -> str | None:
        state = states.get(fault.node or "")
        return boot_in(None if state is None else state.machine.boot_id, fault)

    if past or again:
        known = [fault for fault in (*past, *again) if _counts(fault, states, rules, now)]
        window = with_past(window, known, boot_of)
        # The process that recorded it may have died before it looked at the fleet; late lines may join it.
        young = {str(f.node): now_ns for f in known if f.timestamp_ns >= now_ns - RECENT_NS}
        late = {str(f.node): now_ns for f in again if f.node in states}
        window = replace(window, heard_ns={**young, **window.heard_ns, **late})
    window = with_news(window, counted, boot_of, now_ns)
    if snapshot.pods:
        window = with_pods(window, snapshot.pods)
    if snapshot.jobs:
        window = with_jobs(window, snapshot.jobs, now_ns)
    return pruned(window, rules.window_seconds, now_ns)


def _counts(fault: Fault, states: Mapping[str, NodeState], rules: PolicyConfig, now: datetime) -> bool:
    state = states.get(fault.node or "")
    if state is None or fault.finding.shadow:
        return False
    if fault.finding.user_written and not rules.count_user_written:
        return False
    # A node that is opted out is left alone, and may all the same be where an event began.
    return is_of_this_node(replace(state, opted_out=False) if state.opted_out else state, fault, now)
