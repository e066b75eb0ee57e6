"""Recent evidence: lines folded into episodes, so that a storm costs no more than its first line.

Bounds: a trace keeps its 16 newest episodes (no threshold asks for more), a node 64 traces, the fleet 10,000;
of those over it the ones longest silent go, pods' first, and are counted. Everything goes that is older than
the longest span that a rule looks back, a day at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from konductor_like.model import Episode, Fault, KernelPosition, Severity, Source, Trace, TraceKey, Window
from konductor_like.model.time import SECOND_NS, span_ns

EPISODE_NS = 60 * SECOND_NS
"""Lines that follow each other closer than this are one occurrence: one failure prints many."""
EPISODES_MOST = 16
TRACES_OF_NODE_MOST = 64
TRACES_MOST = 10_000
NAMES_MOST = 16
"""Pods and jobs that one episode names; no threshold asks for more."""
_PRUNE_NS = 600 * SECOND_NS

BootOf = Callable[[Fault], str | None]
"""The boot that a line is of; None for a pod's."""
JOBS_AFTER_NS = 120 * SECOND_NS
"""What the API server says of a node's jobs is taken for what was heard no longer ago than this."""


def with_news(window: Window, counted: Sequence[Fault], boot_of: BootOf, now_ns: int) -> Window:
    """The window after new evidence; what is in it already changes nothing."""
    grouped = _grouped(counted, boot_of)
    if not grouped:
        return window
    heard = {**window.heard_ns, **dict.fromkeys(grouped, now_ns)}
    return replace(_added(window, grouped, now_ns), heard_ns=heard)


def with_past(window: Window, past: Sequence[Fault], boot_of: BootOf) -> Window:
    """The window with what happened before our start, replays of the same kernel records left out."""
    ordered = sorted(past, key=Fault.order)
    grouped = _grouped(ordered, boot_of)
    for node, groups in grouped.items():
        for key, faults in groups.items():
            known = window.traces.get(node, {}).get(key)
            groups[key] = list(_not_replayed(faults, () if known is None else known.episodes))
    return _added(window, grouped, None)


def pruned(window: Window, span_seconds: float, now_ns: int) -> Window:
    """The window without what is older than the span; looked for now and then."""
    if 0 <= now_ns - window.pruned_ns < _PRUNE_NS:
        return window
    horizon_ns = now_ns - span_ns(span_seconds)
    kept: dict[str, Mapping[TraceKey, Trace]] = {}
    for node, traces in window.traces.items():
        if all(trace.episodes[0].end_ns >= horizon_ns for trace in traces.values()):
            kept[node] = traces
        elif young := {
            key: _young(trace, horizon_ns) for key, trace in traces.items() if trace.end_ns >= horizon_ns
        }:
            kept[node] = young
    heard = {node: ns for node, ns in window.heard_ns.items() if ns >= horizon_ns}
    return replace(window, traces=kept, heard_ns=heard, pruned_ns=now_ns, jobs=_jobs_kept(window, kept))


def by_clock(window: Window, now_ns: int) -> Window:
    """The window with nothing heard in the future: where our clock was put back, it was heard just now."""
    ahead = [node for node, ns in window.heard_ns.items() if ns > now_ns]
    if not ahead:
        return window
    traces = dict(window.traces)
    for node in ahead:
        if node in traces:
            traces[node] = {key: _heard_by(trace, now_ns) for key, trace in traces[node].items()}
    return replace(window, traces=traces, heard_ns={**window.heard_ns, **dict.fromkeys(ahead, now_ns)})


def _heard_by(trace: Trace, now_ns: int) -> Trace:
    return replace(
        trace,
        episodes=tuple(
            each if each.heard_ns is None or each.heard_ns <= now_ns else replace(each, heard_ns=now_ns)
            for each in trace.episodes
        ),
    )


Groups = dict[str, dict[TraceKey, list[Fault]]]


def _grouped(faults: Iterable[Fault], boot_of: BootOf) -> Groups:
    """Evidence by node and trace. Tests, remarks and what is only remembered are none."""
    groups: Groups = defaultdict(lambda: defaultdict(list))
    for fault in faults:
        severity = fault.severity
        if severity in (Severity.INFO, Severity.TEST) or fault.before_install or fault.node is None:
            continue
        finding = fault.finding
        key = TraceKey(finding.rule, finding.gpu, severity.taints, boot_of(fault), fault.job)
        groups[fault.node][key].append(fault)
    return groups


def _added(window: Window, grouped: Groups, heard_ns: int | None) -> Window:
    traces, jobs = dict(window.traces), dict(window.jobs)
    dropped = window.dropped
    for node, groups in grouped.items():
        mine = dict(traces.get(node, {}))
        for key, faults in groups.items():
            if faults:
                mine[key] = _lengthened(mine.get(key), faults, heard_ns)
        if len(mine) > TRACES_OF_NODE_MOST:
            dropped += len(mine) - TRACES_OF_NODE_MOST
            mine = dict(sorted(mine.items(), key=lambda item: _worth(item[1]))[-TRACES_OF_NODE_MOST:])
        if mine:
            traces[node] = mine
            name_jobs(jobs, node, mine)
    grown = replace(window, traces=traces, jobs=jobs, dropped=dropped)
    return grown if grown.size <= TRACES_MOST else _shrunk(grown)


def _shrunk(window: Window) -> Window:
    """Nine tenths of what may be kept, so that this is not done for every line."""
    every = [
        (_worth(trace), node, key) for node, mine in window.traces.items() for key, trace in mine.items()
    ]
    every.sort(key=lambda each: each[0], reverse=True)
    kept: dict[str, dict[TraceKey, Trace]] = defaultdict(dict)
    for _, node, key in every[: TRACES_MOST * 9 // 10]:
        kept[node][key] = window.traces[node][key]
    dropped = window.dropped + len(every) - TRACES_MOST * 9 // 10
    return replace(window, traces=dict(kept), jobs=_jobs_kept(window, kept), dropped=dropped)


def _worth(trace: Trace) -> tuple[bool, int]:
    """What goes last: any pod prints under as many names as it likes, and shall push out no kernel line."""
    return (trace.source is Source.KERNEL, trace.end_ns)


def _jobs_kept(window: Window, kept: Mapping[str, Mapping[TraceKey, Trace]]) -> Mapping[str, frozenset[str]]:
    jobs: dict[str, frozenset[str]] = {}
    for node in window.jobs:
        name_jobs(jobs, node, kept.get(node, {}))
    return jobs


def name_jobs(jobs: dict[str, frozenset[str]], node: str, mine: Mapping[TraceKey, Trace]) -> None:
    """Note which jobs the traces of a node name."""
    found: set[str] = set()
    for key, trace in mine.items():
        if key.job is not None:
            found.add(key.job)
        elif trace.source is Source.KERNEL:
            for episode in trace.episodes:
                found |= episode.jobs
    if found:
        jobs[node] = frozenset(map(job_key, found))
    else:
        jobs.pop(node, None)


def _lengthened(trace: Trace | None, faults: Sequence[Fault], heard_ns: int | None) -> Trace:
    first = faults[0]
    before = () if trace is None else trace.episodes
    episodes = merged((*before, *_episodes(faults, heard_ns)))
    if trace is not None:
        return replace(trace, episodes=episodes)
    remote = all(fault.finding.remote for fault in faults)
    return Trace(first.source, first.severity, first.finding.code, remote, episodes)


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
            frozenset(sorted(pods)[:NAMES_MOST]),
        )
        begin = number


def merged(episodes: Iterable[Episode]) -> tuple[Episode, ...]:
    """Those that touch made one, whatever order they came in."""
    merged: list[Episode] = []
    for episode in sorted(episodes, key=lambda each: each.start_ns):
        if merged and episode.start_ns - merged[-1].end_ns <= EPISODE_NS:
            merged[-1] = _joined(merged[-1], episode)
        else:
            merged.append(episode)
    return tuple(merged[-EPISODES_MOST:])


def _joined(one: Episode, other: Episode) -> Episode:
    """``other`` begins no earlier."""
    heard = [ns for ns in (one.heard_ns, other.heard_ns) if ns is not None]
    later = other if other.end_ns > one.end_ns else one
    return Episode(
        one.start_ns,
        later.end_ns,
        one.first,
        later.last,
        min(heard, default=None),
        frozenset(sorted(one.pods | other.pods)[:NAMES_MOST]),
        frozenset(sorted(one.jobs | other.jobs)[:NAMES_MOST]),
    )


def _not_replayed(faults: Sequence[Fault], episodes: Sequence[Episode]) -> Iterable[Fault]:
    """Without kernel records that are in an episode, or that repeat one which came before; oldest first."""
    reached: KernelPosition | None = None
    for fault in faults:
        position = fault.finding.position
        if position.known:
            if reached is not None and position.at_or_before(reached):
                continue
            if any(_repeats(fault.timestamp_ns, position, episode) for episode in episodes):
                continue
            reached = position
        yield fault


def _repeats(timestamp_ns: int, position: KernelPosition, episode: Episode) -> bool:
    if not position.at_or_before(episode.last):
        return False
    return episode.start_ns <= timestamp_ns or bool(episode.first.at_or_before(position))


def _young(trace: Trace, horizon_ns: int) -> Trace:
    if trace.episodes[0].end_ns >= horizon_ns:
        return trace
    return replace(trace, episodes=tuple(each for each in trace.episodes if each.end_ns >= horizon_ns))


def boot_in(own_boot: str | None, fault: Fault) -> str | None:
    """The boot that a fault is of: a kernel line that names none is of the Node's own; a pod's is of none."""
    if fault.source is Source.POD:
        return None
    return fault.finding.position.boot_id or own_boot


def with_jobs(window: Window, jobs: Mapping[str, frozenset[str]], now_ns: int) -> Window:
    """The window with the jobs that run on nodes, for the kernel lines just heard: they name none."""
    traces, named = dict(window.traces), dict(window.jobs)
    for node, running in jobs.items():
        if not running or now_ns - window.heard_ns.get(node, 0) > JOBS_AFTER_NS:
            continue
        before = traces.get(node, {})
        mine = {key: _with_jobs(trace, running, now_ns) for key, trace in before.items()}
        if mine != before:
            traces[node] = mine
            name_jobs(named, node, mine)
    return replace(window, traces=traces, jobs=named)


def with_pods(window: Window, pods: Mapping[str, Mapping[str, str]]) -> Window:
    """The window with the true jobs of pods whose lines were put down to a job by the pods' names.

    ``pods`` gives by node, and there by ``namespace/name``, the job; it is empty for a pod that is of none.
    """
    traces, named = dict(window.traces), dict(window.jobs)
    for node, jobs in pods.items():
        before = traces.get(node, {})
        if any(_renamed(key, each, jobs) is not None for key in before for each in before[key].episodes):
            traces[node] = _sorted_out(before, jobs)
            name_jobs(named, node, traces[node])
    return replace(window, traces=traces, jobs=named)


def _sorted_out(traces: Mapping[TraceKey, Trace], jobs: Mapping[str, str]) -> Mapping[TraceKey, Trace]:
    sorted_out: dict[TraceKey, Trace] = {}
    for key, trace in traces.items():
        for episode in trace.episodes:
            job = _renamed(key, episode, jobs)
            mine = key if job is None else key._replace(job=job or None)
            known = sorted_out.get(mine)
            others = () if known is None else known.episodes
            sorted_out[mine] = replace(known or trace, episodes=merged((*others, episode)))
    return sorted_out


def _renamed(key: TraceKey, episode: Episode, jobs: Mapping[str, str]) -> str | None:
    """The job that an episode is of in truth, empty for none; None if unknown, several, or as it says."""
    if key.job is None:
        return None
    namespace = key.job.partition("/")[0]
    found = {jobs.get(f"{namespace}/{pod}", key.job) for pod in episode.pods}
    return found.pop() if len(found) == 1 and key.job not in found else None


def _with_jobs(trace: Trace, running: frozenset[str], now_ns: int) -> Trace:
    last = trace.episodes[-1]
    fresh = last.heard_ns is not None and now_ns - last.heard_ns <= JOBS_AFTER_NS
    if trace.source is not Source.KERNEL or not fresh or last.jobs:
        return trace
    named = replace(last, jobs=frozenset(sorted(running)[:NAMES_MOST]))
    return replace(trace, episodes=(*trace.episodes[:-1], named))


@lru_cache(maxsize=16_384)
def job_key(job: str) -> str:
    """What is the same of a job however its kind became known: namespace and name."""
    parts = job.split("/")
    return f"{parts[0]}//{parts[2]}" if len(parts) == 3 else job
