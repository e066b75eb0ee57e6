"""Failure groups as the records of their nodes tell of them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from konductor_like.cli.columns import age, count, natural
from konductor_like.cli.status.coverage import named
from konductor_like.jobs import job_key
from konductor_like.model import Incident, IncidentState, NodeState, Role, Source
from konductor_like.model.time import moment_of
from konductor_like.policy.correlation import DOMAIN, parts_of
from konductor_like.policy.incidents import health_of, tainting

RECENT = timedelta(hours=24)
"""So long a failure group is shown although nothing stands against any of its nodes any more."""
FAILURES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class FailureReport:
    """One failure group and its nodes."""

    name: str
    shared: str
    """What its nodes share: a job, ``namespace/Kind/name``, or ``domain NAME``."""
    start_ns: int
    """When it began, by its name; an incident on one of its nodes may be older than that."""
    root_causes: tuple[str, ...]
    """Where it began; empty where no root cause is in sight."""
    gone: tuple[str, ...]
    """Where it began by the others' records: nodes that are gone, or of which nothing is on record."""
    collateral: tuple[str, ...]
    unclear: tuple[str, ...]
    """Nodes of which nobody can say: one that failed by itself first, then those that failed with the most
    jobs, then those that told of it first."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.root_causes, *self.unclear, *self.collateral)


def shared_failures(nodes: Mapping[str, NodeState], now: datetime) -> tuple[FailureReport, ...]:
    """Failure groups that go on or are recent, the latest first; each has two nodes or more."""
    found: defaultdict[str, dict[str, list[Incident]]] = defaultdict(lambda: defaultdict(list))
    standing: set[str] = set()
    for name, state in nodes.items():
        for incident in state.record.incidents:
            if incident.failure_group is not None:
                found[incident.failure_group][name].append(incident)
                if incident.state is not IncidentState.RELEASED and _stands(state):
                    standing.add(incident.failure_group)
    often = _failures(found, now)
    reports = [_report(group, members, often, nodes) for group, members in found.items() if len(members) > 1]
    recent = (each for each in reports if each.name in standing or now - moment_of(each.start_ns) < RECENT)
    return tuple(sorted(recent, key=lambda each: (-each.start_ns, each.name)))


def _failures(found: Mapping[str, Mapping[str, list[Incident]]], now: datetime) -> Mapping[str, int]:
    """By node, with how many jobs of the last day it failed for which no root cause is in sight.

    As the controller ranks, as far as the records tell: they keep the latest group of each fault, the
    controller keeps all that it has read.
    """
    jobs: defaultdict[str, set[str]] = defaultdict(set)
    for group, members in found.items():
        shared = parts_of(group)[0] or group
        its = [incident for incidents in members.values() for incident in incidents]
        failed = any(incident.source is Source.POD for incident in its)
        begun = moment_of(min(incident.first_ns for incident in its))
        if shared.startswith(DOMAIN) or not failed or now - begun >= RECENT:
            continue
        if not any(incident.role is Role.ROOT_CAUSE for incident in its):
            for name in members:
                jobs[name].add(job_key(shared))
    return {name: len(keys) for name, keys in jobs.items()}


def failure_lines(failures: Iterable[FailureReport], now: datetime) -> list[tuple[str, str]]:
    """What stands above the table: a sentence for each of the latest."""
    failures = list(failures)
    lines = [("Failures", failure_sentence(each, now)) for each in failures[:FAILURES_SHOWN]]
    more = len(failures) - len(lines)
    return [*lines, ("Failures", f"and {count(more, 'more failure')}")] if more else lines


def failure_sentence(failure: FailureReport, now: datetime) -> str:
    """``ml/Job/llama, 5m ago, 64 nodes: began on gpu-1; 63 collateral``."""
    since = age((now - moment_of(failure.start_ns)).total_seconds())
    parts = []
    if failure.root_causes:
        parts.append(f"began on {named(failure.root_causes)}")
    if failure.gone:
        parts.append(f"began on {named(failure.gone)}, of which nothing is on record")
    if failure.unclear:
        none = "" if failure.root_causes or failure.gone else "no root cause in sight; "
        parts.append(f"{none}{len(failure.unclear)} unclear, the likeliest first: {named(failure.unclear)}")
    if failure.collateral:
        parts.append(f"{len(failure.collateral)} collateral")
    return f"{failure.shared}, {since} ago, {count(len(failure.nodes), 'node')}: {'; '.join(parts)}"


def _report(
    name: str, members: Mapping[str, list[Incident]], often: Mapping[str, int], nodes: Mapping[str, NodeState]
) -> FailureReport:
    first = {node: min(each.first_ns for each in incidents) for node, incidents in members.items()}
    roles = {node: _role(incidents) for node, incidents in members.items()}
    failed = {node for node in members if tainting(nodes[node].record)}

    root_causes = {each.root_cause for incidents in members.values() for each in incidents}
    elsewhere = sorted((name for name in root_causes - members.keys() if name is not None), key=natural)

    def of(role: Role) -> tuple[str, ...]:
        return tuple(
            sorted(
                (node for node, its in roles.items() if its is role),
                key=lambda node: (node not in failed, -often.get(node, 0), first[node], natural(node)),
            )
        )

    return FailureReport(
        name=name,
        shared=name.rpartition("@")[0] or name,
        start_ns=parts_of(name)[1] or min(first.values()),
        root_causes=(
            *of(Role.ROOT_CAUSE),
            *(name for name in elsewhere if name in nodes and _is_out(nodes[name])),
        ),
        gone=tuple(name for name in elsewhere if name not in nodes or not _is_out(nodes[name])),
        collateral=of(Role.COLLATERAL),
        unclear=of(Role.UNCLEAR),
    )


def _role(incidents: Iterable[Incident]) -> Role:
    """What a node is in an group by the gravest of its incidents there."""
    roles = {incident.role for incident in incidents}
    return next(
        (role for role in (Role.ROOT_CAUSE, Role.UNCLEAR, Role.COLLATERAL) if role in roles), Role.UNCLEAR
    )


def _is_out(state: NodeState) -> bool:
    """Whether it failed by its own record, even if that is not told of the group yet."""
    return bool(tainting(state.record))


def _stands(state: NodeState) -> bool:
    return health_of(state.record, tainted=state.tainted) is not None
