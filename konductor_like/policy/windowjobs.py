"""Whose jobs recent evidence is of, where the API server knows better than the lines do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from konductor_like.model import Episode, Source, Trace, TraceKey, Window
from konductor_like.policy.window import NAMES_MOST, SECOND_NS, merged, name_jobs

JOBS_AFTER_NS = 120 * SECOND_NS
"""What the API server says of a node's jobs is taken for what was heard no longer ago than this."""


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
