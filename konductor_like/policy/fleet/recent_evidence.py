"""Recent evidence of the fleet: what the last day's lines reported, grouped and bounded.

``decide`` renews recent evidence each time. Lines of one rule, GPU, boot and job of a node are a trace; lines
of a trace that follow each other within a minute are an episode, so a storm takes no more memory than its
first line. A trace keeps its 16 newest episodes (no threshold asks for more), a node 64 traces, the fleet
10,000. Beyond that, the traces silent for longest are dropped, pods' first, and counted. Evidence older than
the longest span of any rule, at most a day, is removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from konductor_like.jobs import job_key
from konductor_like.model import (
    Episode,
    Fault,
    KernelPosition,
    NodeState,
    RecentEvidence,
    Severity,
    Snapshot,
    Source,
    Trace,
    TraceKey,
)
from konductor_like.model.time import SECOND_NS, span_ns, unix_ns
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.machines import began_by_heartbeat, why_not_of_node

RECENT_NS = 900 * SECOND_NS
"""Nanoseconds of age below which evidence from before our start may cause a write, as after a crash."""
EPISODE_NS = 60 * SECOND_NS
"""Nanoseconds up to which two lines of a trace are one occurrence: one failure prints many lines."""
EPISODES_MOST = 16
TRACES_OF_NODE_MOST = 64
TRACES_MOST = 10_000
NAMES_OF_EPISODE_MOST = 16
"""Number of pods, and of jobs, that one episode names at most; no threshold asks for more."""
PRUNE_INTERVAL_NS = 600 * SECOND_NS
"""Nanoseconds between two removals of evidence that is too old."""
JOBS_VALID_NS = 120 * SECOND_NS
"""Nanoseconds after a kernel line up to which the API server's list of a node's jobs applies to the line."""

Traces = Mapping[TraceKey, Trace]
Groups = dict[str, dict[TraceKey, list[Fault]]]
"""By node and trace, its faults."""


def renewed_window(
    counted: Sequence[Fault],
    past: Sequence[Fault],
    again: Sequence[Fault],
    snapshot: Snapshot,
    policy: PolicyConfig,
    now: datetime,
) -> RecentEvidence:
    """Return recent evidence with the new faults, faults from before our start, and their jobs.

    ``again`` are faults that an earlier process counted and this one reads for the first time, and faults of
    nodes that are opted out: neither causes a write for its own node, but may explain failures on other
    nodes.
    """
    window, states, now_ns = snapshot.window, snapshot.nodes, unix_ns(now)
    if max(window.heard_ns.values(), default=0) > now_ns:
        window = by_clock(window, now_ns)
    if past or again:
        known = [fault for fault in (*past, *again) if _is_about_its_node(fault, snapshot, policy, now)]
        window = with_past(window, known, states)
        # The process that recorded the fault may have died before it assessed the fleet; a late line may join
        # a group.
        young = {str(f.node): now_ns for f in known if f.timestamp_ns >= now_ns - RECENT_NS}
        late = {str(f.node): now_ns for f in again if f.node in states}
        window = replace(window, heard_ns={**young, **window.heard_ns, **late})
    if counted:
        grouped = _grouped(counted, states)
        window = _added(window, grouped, now_ns)
        window = replace(window, heard_ns={**window.heard_ns, **dict.fromkeys(grouped, now_ns)})
    if snapshot.pods:
        window = with_pods(window, snapshot.pods)
    if snapshot.jobs:
        window = with_jobs(window, snapshot.jobs, now_ns)
    if not 0 <= now_ns - window.pruned_ns < PRUNE_INTERVAL_NS:
        window = pruned(window, policy.window_seconds, now_ns)
    return window


def _is_about_its_node(fault: Fault, snapshot: Snapshot, policy: PolicyConfig, now: datetime) -> bool:
    state = snapshot.nodes.get(fault.node or "")
    if state is None or fault.finding.shadow:
        return False
    if fault.finding.user_written and not policy.count_user_written:
        return False
    began_ns = began_by_heartbeat(state, snapshot)
    return why_not_of_node(state.record.past_boots, state, fault, now, began_ns) is None


def by_clock(window: RecentEvidence, now_ns: int) -> RecentEvidence:
    """Return recent evidence after our clock was set back: a time in the future becomes ``now_ns``."""
    ahead = [node for node, ns in window.heard_ns.items() if ns > now_ns]
    changed: dict[str, Traces] = {}
    for node in ahead:
        changed[node] = mine = dict(window.traces.get(node, {}))
        for key, trace in mine.items():
            heard = [now_ns if (each.heard_ns or 0) > now_ns else each.heard_ns for each in trace.episodes]
            episodes = (replace(each, heard_ns=ns) for each, ns in zip(trace.episodes, heard, strict=True))
            mine[key] = replace(trace, episodes=tuple(episodes))
    heard_ns = {**window.heard_ns, **dict.fromkeys(ahead, now_ns)}
    return replace(_with_traces(window, changed), heard_ns=heard_ns)


def with_past(
    window: RecentEvidence, past: Sequence[Fault], states: Mapping[str, NodeState]
) -> RecentEvidence:
    """Return recent evidence with faults from before our start, replays of kernel records left out."""
    grouped = _grouped(sorted(past, key=Fault.order), states)
    for node, groups in grouped.items():
        for key, faults in groups.items():
            known = window.traces.get(node, {}).get(key)
            groups[key] = list(_not_replayed(faults, () if known is None else known.episodes))
    return _added(window, grouped, None)


def pruned(window: RecentEvidence, span_seconds: float, now_ns: int) -> RecentEvidence:
    """Return recent evidence without what is older than the span."""
    horizon_ns = now_ns - span_ns(span_seconds)
    young = {
        node: {
            key: replace(trace, episodes=tuple(each for each in trace.episodes if each.end_ns >= horizon_ns))
            for key, trace in traces.items()
            if trace.end_ns >= horizon_ns
        }
        for node, traces in window.traces.items()
        if any(trace.episodes[0].end_ns < horizon_ns for trace in traces.values())
    }
    heard_ns = {node: ns for node, ns in window.heard_ns.items() if ns >= horizon_ns}
    return replace(_with_traces(window, young), heard_ns=heard_ns, pruned_ns=now_ns)


def _with_traces(window: RecentEvidence, changed: Mapping[str, Traces]) -> RecentEvidence:
    """Return recent evidence with these nodes' traces and the jobs they name; empty traces are removed."""
    traces, jobs = dict(window.traces), dict(window.jobs)
    for node, mine in changed.items():
        found: set[str] = set()
        for key, trace in mine.items():
            if key.job is not None:
                found.add(key.job)
            elif trace.source is Source.KERNEL:
                for episode in trace.episodes:
                    found |= episode.jobs
        if mine:
            traces[node] = mine
        else:
            traces.pop(node, None)
        if found:
            jobs[node] = frozenset(map(job_key, found))
        else:
            jobs.pop(node, None)
    return replace(window, traces=traces, jobs=jobs)


def _grouped(faults: Iterable[Fault], states: Mapping[str, NodeState]) -> Groups:
    """Group faults by node and trace; tests, infos and faults before the install are no evidence."""
    groups: Groups = defaultdict(lambda: defaultdict(list))
    for fault in faults:
        severity = fault.severity
        if severity in (Severity.INFO, Severity.TEST) or fault.before_install or fault.node is None:
            continue
        finding, boot_id = fault.finding, boot_in(states.get(fault.node), fault)
        key = TraceKey(finding.rule, finding.gpu, severity.taints, boot_id, fault.job)
        groups[fault.node][key].append(fault)
    return groups


def boot_in(state: NodeState | None, fault: Fault) -> str | None:
    """Return the fault's boot: the Node's own for a kernel line that names none, None for a pod's line."""
    if fault.source is Source.POD:
        return None
    return fault.finding.position.boot_id or (None if state is None else state.machine.boot_id)


def _added(window: RecentEvidence, grouped: Groups, heard_ns: int | None) -> RecentEvidence:
    changed: dict[str, Traces] = {}
    for node, groups in grouped.items():
        mine = dict(window.traces.get(node, {}))
        for key, faults in groups.items():
            if not faults:
                continue
            known, first = mine.get(key), faults[0]
            if known is None:
                is_remote = all(fault.finding.remote for fault in faults)
                known = Trace(first.source, first.severity, first.finding.code, is_remote, ())
            mine[key] = replace(known, episodes=merged((*known.episodes, *_episodes(faults, heard_ns))))
        if len(mine) > TRACES_OF_NODE_MOST:
            mine = dict(sorted(mine.items(), key=lambda item: _keep_order(item[1]))[-TRACES_OF_NODE_MOST:])
        changed[node] = mine
    grown = _with_traces(window, changed)
    return grown if sum(map(len, grown.traces.values())) <= TRACES_MOST else _shrunk(grown)


def _shrunk(window: RecentEvidence) -> RecentEvidence:
    """Drop traces until nine tenths of the limit are left, so that not every further line drops one."""
    every = [
        (_keep_order(trace), node, key) for node, mine in window.traces.items() for key, trace in mine.items()
    ]
    every.sort(key=lambda each: each[0], reverse=True)
    kept: dict[str, dict[TraceKey, Trace]] = {node: {} for node in window.traces}
    for _, node, key in every[: TRACES_MOST * 9 // 10]:
        kept[node][key] = window.traces[node][key]
    return _with_traces(window, kept)


def _keep_order(trace: Trace) -> tuple[bool, int]:
    """Sort key of traces, those to drop first in front: pods', as a pod may print under any job's name."""
    return (trace.source is Source.KERNEL, trace.end_ns)


def _episodes(faults: Sequence[Fault], heard_ns: int | None) -> Iterable[Episode]:
    ordered = sorted(faults, key=Fault.order)
    begin = 0
    for number in range(1, len(ordered) + 1):
        last = ordered[number - 1]
        if number < len(ordered) and ordered[number].timestamp_ns - last.timestamp_ns <= EPISODE_NS:
            continue
        first = ordered[begin]
        pods = {fault.pod for fault in ordered[begin:number] if fault.pod} if first.pod else ()
        yield Episode(
            first.timestamp_ns,
            last.timestamp_ns,
            first.finding.position,
            last.finding.position,
            heard_ns,
            frozenset(sorted(pods)[:NAMES_OF_EPISODE_MOST]),
        )
        begin = number


def merged(episodes: Iterable[Episode]) -> tuple[Episode, ...]:
    """Return the episodes with those joined that touch, in any order of arrival."""
    merged: list[Episode] = []
    for episode in sorted(episodes, key=lambda each: each.start_ns):
        if merged and episode.start_ns - merged[-1].end_ns <= EPISODE_NS:
            merged[-1] = _joined(merged[-1], episode)
        else:
            merged.append(episode)
    return tuple(merged[-EPISODES_MOST:])


def _joined(one: Episode, other: Episode) -> Episode:
    """Join two episodes; ``other`` begins no earlier than ``one``."""
    heard = [ns for ns in (one.heard_ns, other.heard_ns) if ns is not None]
    later = other if other.end_ns > one.end_ns else one
    return Episode(
        one.start_ns,
        later.end_ns,
        one.first,
        later.last,
        min(heard, default=None),
        frozenset(sorted(one.pods | other.pods)[:NAMES_OF_EPISODE_MOST]),
        frozenset(sorted(one.jobs | other.jobs)[:NAMES_OF_EPISODE_MOST]),
    )


def _not_replayed(faults: Sequence[Fault], episodes: Sequence[Episode]) -> Iterable[Fault]:
    """Return the faults (the oldest first) that replay no kernel record of ``episodes`` or of each other."""
    reached: KernelPosition | None = None
    for fault in faults:
        position = fault.finding.position
        if position.known:
            if reached is not None and position.at_or_before(reached):
                continue
            if any(
                position.at_or_before(episode.last)
                and (episode.start_ns <= fault.timestamp_ns or episode.first.at_or_before(position))
                for episode in episodes
            ):
                continue
            reached = position
        yield fault


def with_jobs(window: RecentEvidence, jobs: Mapping[str, frozenset[str]], now_ns: int) -> RecentEvidence:
    """Return recent evidence with the jobs that run on nodes, for new kernel lines: these name no job."""
    changed = {
        node: {key: _of_jobs(trace, running, now_ns) for key, trace in window.traces.get(node, {}).items()}
        for node, running in jobs.items()
        if running and now_ns - window.heard_ns.get(node, 0) <= JOBS_VALID_NS
    }
    return _with_traces(window, changed)


def _of_jobs(trace: Trace, running: frozenset[str], now_ns: int) -> Trace:
    last = trace.episodes[-1]
    fresh = last.heard_ns is not None and now_ns - last.heard_ns <= JOBS_VALID_NS
    if trace.source is not Source.KERNEL or not fresh or last.jobs:
        return trace
    named = replace(last, jobs=frozenset(sorted(running)[:NAMES_OF_EPISODE_MOST]))
    return replace(trace, episodes=(*trace.episodes[:-1], named))


def with_pods(window: RecentEvidence, pods: Mapping[str, Mapping[str, str]]) -> RecentEvidence:
    """Return recent evidence with the true jobs of pods whose jobs were guessed from the pods' names.

    ``pods`` gives by node and by ``namespace/name`` of the pod its job; empty for a pod without a job.
    """
    changed = {
        node: _by_true_job(window.traces[node], jobs) for node, jobs in pods.items() if node in window.traces
    }
    return _with_traces(window, {node: mine for node, mine in changed.items() if mine != window.traces[node]})


def _by_true_job(traces: Traces, jobs: Mapping[str, str]) -> Traces:
    found: dict[TraceKey, Trace] = {}
    for key, trace in traces.items():
        for episode in trace.episodes:
            job = _true_job(key, episode, jobs)
            mine = key if job is None else key._replace(job=job or None)
            known = found.get(mine)
            others = () if known is None else known.episodes
            found[mine] = replace(known or trace, episodes=merged((*others, episode)))
    return found


def _true_job(key: TraceKey, episode: Episode, jobs: Mapping[str, str]) -> str | None:
    """Return an episode's true job, empty for none; None if unknown, ambiguous, or the job of ``key``."""
    if key.job is None:
        return None
    namespace = key.job.partition("/")[0]
    found = {jobs.get(f"{namespace}/{pod}", key.job) for pod in episode.pods}
    return found.pop() if len(found) == 1 and key.job not in found else None
