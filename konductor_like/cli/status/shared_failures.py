"""Failure groups, assembled from the records of their nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from konductor_like.cli.columns import age_of, count, natural
from konductor_like.cli.status.coverage import first_few
from konductor_like.jobs import job_key
from konductor_like.model import Incident, IncidentState, NodeState, Role, Source
from konductor_like.model.time import moment_of
from konductor_like.policy.fleet.correlation import DOMAIN, parts_of
from konductor_like.policy.node.health import health_of, tainting

RECENT = timedelta(hours=24)
"""Time for which a failure group is shown after all its nodes are healthy again."""
FAILURES_SHOWN = 5
_GRAVEST_FIRST = (Role.ROOT_CAUSE, Role.UNCLEAR, Role.COLLATERAL)
Members = dict[str, list[Incident]]
"""The incidents of one failure group, by node."""


@dataclass(frozen=True, slots=True)
class FailureReport:
    """One failure group and its nodes."""

    name: str
    shared: str
    """The job (``namespace/Kind/name``) or the NVLink domain (``domain NAME``) that its nodes share."""
    start_ns: int
    """The time in the group's name; an incident on one of its nodes may be older."""
    root_causes: tuple[str, ...]
    """The nodes where the failure began; empty if no root cause is known."""
    gone: tuple[str, ...]
    """Root causes that other nodes' records name, but that do not exist or have no recorded fault now."""
    collateral: tuple[str, ...]
    unclear: tuple[str, ...]
    """Nodes with no known role, sorted: nodes with a fault that taints, then by the number of failed jobs
    (the most first), then by the earliest line."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes except those in ``gone``."""
        return (*self.root_causes, *self.unclear, *self.collateral)


def shared_failures(nodes: Mapping[str, NodeState], now: datetime) -> tuple[FailureReport, ...]:
    """Return the failure groups that are open or recent, the latest first; each has at least two nodes."""
    groups: defaultdict[str, Members] = defaultdict(dict)
    open_groups: set[str] = set()
    for name, state in nodes.items():
        for incident in state.record.incidents:
            if (group := incident.failure_group) is not None:
                groups[group].setdefault(name, []).append(incident)
                faulty = health_of(state.record, tainted=state.tainted) is not None
                if faulty and incident.state is not IncidentState.RELEASED:
                    open_groups.add(group)
    jobs = _failed_jobs(groups, now)
    failed = {name for name, state in nodes.items() if tainting(state.record)}
    reports = [_report(group, members, jobs, failed) for group, members in groups.items() if len(members) > 1]
    shown = (each for each in reports if each.name in open_groups or now - moment_of(each.start_ns) < RECENT)
    return tuple(sorted(shown, key=lambda each: (-each.start_ns, each.name)))


def _failed_jobs(groups: Mapping[str, Members], now: datetime) -> Mapping[str, set[str]]:
    """Return, by node, the jobs that failed with the node in the last day and whose root cause is not known.

    The controller ranks by the same jobs but knows more of them: a record keeps only the latest failure group
    of each fault.
    """
    jobs: defaultdict[str, set[str]] = defaultdict(set)
    for group, members in groups.items():
        shared = parts_of(group)[0] or group
        incidents = [incident for its in members.values() for incident in its]
        recent = now - moment_of(min(each.first_ns for each in incidents)) < RECENT
        failed = any(each.source is Source.POD for each in incidents)
        explained = any(each.role is Role.ROOT_CAUSE for each in incidents)
        if recent and failed and not explained and not shared.startswith(DOMAIN):
            for name in members:
                jobs[name].add(job_key(shared))
    return jobs


def _report(
    group: str, members: Members, jobs: Mapping[str, set[str]], failed: Collection[str]
) -> FailureReport:
    first = {name: min(each.first_ns for each in incidents) for name, incidents in members.items()}
    by_role: dict[Role, list[str]] = {role: [] for role in Role}
    likeliest_first = sorted(
        members,
        key=lambda name: (name not in failed, -len(jobs.get(name, ())), first[name], natural(name)),
    )
    for name in likeliest_first:
        roles = {incident.role for incident in members[name]}
        by_role[next((role for role in _GRAVEST_FIRST if role in roles), Role.UNCLEAR)].append(name)
    root_causes = {each.root_cause for incidents in members.values() for each in incidents}
    elsewhere = sorted((name for name in root_causes if name and name not in members), key=natural)
    shared, start_ns = parts_of(group)
    return FailureReport(
        name=group,
        shared=shared or group,
        start_ns=start_ns or min(first.values()),
        root_causes=(*by_role[Role.ROOT_CAUSE], *(name for name in elsewhere if name in failed)),
        gone=tuple(name for name in elsewhere if name not in failed),
        collateral=tuple(by_role[Role.COLLATERAL]),
        unclear=tuple(by_role[Role.UNCLEAR]),
    )


def failure_lines(failures: Sequence[FailureReport], now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the lines above the table: a sentence for each of the latest failures."""
    for each in failures[:FAILURES_SHOWN]:
        yield "Failures", failure_sentence(each, now)
    if len(failures) > FAILURES_SHOWN:
        yield "Failures", f"and {count(len(failures) - FAILURES_SHOWN, 'more failure')}"


def failure_sentence(failure: FailureReport, now: datetime) -> str:
    """Return ``ml/Job/llama, 5m ago, 64 nodes: began on gpu-1; 63 collateral``."""
    parts = []
    if failure.root_causes:
        parts.append(f"began on {first_few(failure.root_causes)}")
    if failure.gone:
        parts.append(f"began on {first_few(failure.gone)}, without a recorded fault")
    if failure.unclear:
        none = "" if parts else "no known root cause; "
        parts.append(
            f"{none}{len(failure.unclear)} unclear, the likeliest first: {first_few(failure.unclear)}"
        )
    if failure.collateral:
        parts.append(f"{len(failure.collateral)} collateral")
    since = age_of(moment_of(failure.start_ns), now)
    return f"{failure.shared}, {since} ago, {count(len(failure.nodes), 'node')}: {'; '.join(parts)}"
