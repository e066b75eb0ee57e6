"""One failure out of many lines: nodes that share a job or an NVLink domain and report within seconds.

``escalation`` groups the fleet's evidence here, and gives the incidents their roles in the groups.
Hardware that failed by its node's own kernel log is the root cause. The lines that every rank of a job prints
when another one dies (Xid 13, 31, 43, 45, NCCL and CUDA errors) are then collateral, and accuse nobody. Roles
only ever follow from a failure that is in sight: where the evidence is gone, what was written stays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from konductor_like.jobs import job_key
from konductor_like.model import (
    Incident,
    IncidentKey,
    NodeRecord,
    NodeState,
    Role,
)
from konductor_like.model.time import SECOND_NS, moment_of, ns_of_text, span_ns, stamp
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.evidence import Evidence
from konductor_like.policy.incidents import open_incidents, tainting

_LINK_XIDS = frozenset({148, 149, 150})
"""NVLink 5: the link itself, its power and its management engine; 144 to 147 are the layers above it."""
EARLIER_FAILURE_NS = 3_600 * SECOND_NS
"""Ranks that wait for one that hangs give up when their watchdog does: after 10 to 30 minutes by default."""
FIRST_LEAD_NS = SECOND_NS
"""So much earlier than all others a line must be to have come first: clocks of nodes differ."""
_GROUP_SPANS_MOST = 10
"""A failure group lasts no longer than so many times the span within which the next line must come."""
DOMAIN = "domain "
DeferredUntil = Mapping[str, Mapping[IncidentKey, int]]
"""By node, the incidents that may not taint yet by their rule, and until when (a Loki timestamp)."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Evidence of one failure on several nodes, the oldest first."""

    shared: str
    """The job, or ``domain NAME``."""
    members: tuple[Evidence, ...]
    root_causes: frozenset[str] = frozenset()
    """Nodes where the hardware failed."""
    nearest: Mapping[str | None, str] = field(default_factory=dict)
    """By domain, the first of the root causes in it."""
    standing: tuple[Evidence, ...] = ()
    """What was wrong with root causes before, and came to light in it."""
    known_as: str = ""
    """The name that its nodes' records have for it already."""
    decided: bool = False
    """Whether what is known of its root causes will stay."""

    @property
    def start_ns(self) -> int:
        """Its first line."""
        return self.members[0].start_ns

    @property
    def nodes(self) -> frozenset[str]:
        """Where it shows."""
        return frozenset(each.node for each in self.members)

    @property
    def name(self) -> str:
        """What its nodes share, and when it began."""
        return self.known_as or f"{self.shared}@{stamp(moment_of(self.start_ns))}"


def failure_groups(
    evidence: Sequence[Evidence], states: Mapping[str, NodeState], rules: PolicyConfig
) -> list[FailureGroup]:
    """The failures in the evidence. Each piece is part of one only: of that with the most nodes."""
    if len({each.node for each in evidence}) < 2:
        return []
    chains = [
        FailureGroup(_name_of_job(key, members), tuple(members))
        for key, group in _groups(evidence, states).items()
        for members in _split_by_time(group, rules)
    ]
    found = [_merged_group(parts) for parts in _joined_by_domain(chains)]
    found.sort(key=_by_size)
    conclusive = [each for each in evidence if each.is_conclusive]
    taken: set[int] = set()
    groups: list[FailureGroup] = []
    for one in found:
        left = tuple(each for each in one.members if id(each) not in taken)
        if len({each.node for each in left}) > 1:
            taken.update(map(id, left))
            root_causes = _root_causes(left, states)
            standing = () if root_causes else _earlier_failures(left, conclusive)
            root_causes |= {each.node for each in standing}
            nearest = {
                states[each.node].domain: each.node for each in reversed(left) if each.node in root_causes
            }
            groups.append(FailureGroup(one.shared, left, root_causes, nearest, standing))
    groups.sort(key=lambda one: (one.start_ns, one.shared))
    return groups


def related(
    touched: Collection[str],
    jobs_of: Mapping[str, frozenset[str]],
    states: Mapping[str, NodeState],
) -> set[str]:
    """The nodes that may be part of a failure group with one of the ``touched`` ones.

    ``jobs_of`` says which jobs (:func:`job_key`) are known of a node.
    """
    jobs = {job for name in touched for job in jobs_of.get(name, ())}
    domains = {states[name].domain for name in touched if name in states} - {None}
    alike = {name for name, mine in jobs_of.items() if not jobs.isdisjoint(mine)} if jobs else set()
    if domains:
        alike |= {name for name, state in states.items() if state.domain in domains}
    return alike.union(touched)


@lru_cache(maxsize=16_384)
def parts_of(name: str) -> tuple[str, int | None]:
    """What a failure group's nodes share, and when it began, by its name; None where that cannot be read."""
    shared, _, began = name.rpartition("@")
    try:
        return shared, ns_of_text(began)
    except ValueError:
        return shared, None


def longest_ns(rules: PolicyConfig) -> int:
    """How long a failure group may last."""
    return span_ns(_GROUP_SPANS_MOST * rules.correlation_seconds)


def _groups(evidence: Iterable[Evidence], states: Mapping[str, NodeState]) -> Mapping[str, list[Evidence]]:
    """Evidence by job, and by domain what one has in common: its links, hardware, what is of no known job.

    A symptom whose job is known says nothing about other jobs that happen to be in the same rack.
    """
    groups: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in evidence:
        for key in {job_key(job) for job in each.jobs}:
            groups[key].append(each)
        domain = states[each.node].domain
        if domain is not None and (not each.jobs or each.defers or each.is_conclusive):
            groups[DOMAIN + domain].append(each)
    return groups


def _joined_by_domain(chains: Sequence[FailureGroup]) -> Iterator[list[FailureGroup]]:
    """What a domain had in common is one failure group with the jobs that it hit there."""
    of_domains = {
        id(each): number
        for number, chain in enumerate(chains)
        if chain.shared.startswith(DOMAIN) and len(chain.nodes) > 1
        for each in chain.members
    }
    parents = list(range(len(chains)))

    def root(number: int) -> int:
        while parents[number] != number:
            number = parents[number]
        return number

    for number, chain in enumerate(chains):
        for domain in {of_domains[id(each)] for each in chain.members if id(each) in of_domains}:
            parents[root(number)] = root(domain)
    linked: defaultdict[int, list[FailureGroup]] = defaultdict(list)
    for number, chain in enumerate(chains):
        linked[root(number)].append(chain)
    yield from linked.values()


def _merged_group(parts: Sequence[FailureGroup]) -> FailureGroup:
    """Evidence that is one group, under the name of the largest."""
    if len(parts) == 1:
        return parts[0]
    members = {id(each): each for part in parts for each in part.members}
    ordered = sorted(members.values(), key=_by_time)
    largest = min(parts, key=_by_size)
    return FailureGroup(largest.shared, tuple(ordered))


def _by_size(one: FailureGroup) -> tuple[int, int, bool, str]:
    return (-len(one.nodes), one.start_ns, one.shared.startswith(DOMAIN), one.shared)


def _by_time(each: Evidence) -> tuple[int, str, str]:
    return (each.start_ns, each.node, str(each.key))


def _name_of_job(key: str, members: Iterable[Evidence]) -> str:
    """The job's full name: the one most often heard, and a kind that says more than ``Pod`` before that."""
    names = Counter(job for each in members for job in each.jobs if job_key(job) == key)
    ranked = sorted(names.items(), key=lambda item: ("/Pod/" in item[0], -item[1], item[0]))
    return ranked[0][0] if ranked else key


def _split_by_time(group: Sequence[Evidence], rules: PolicyConfig) -> Iterator[list[Evidence]]:
    """Evidence, the oldest first, cut where the next is too late to be of the same group."""
    most_apart_ns, most_ns = span_ns(rules.correlation_seconds), longest_ns(rules)
    chain: list[Evidence] = []
    for each in group:
        if chain and (
            each.start_ns - chain[-1].start_ns > most_apart_ns or each.start_ns - chain[0].start_ns > most_ns
        ):
            yield chain
            chain = []
        chain.append(each)
    if chain:
        yield chain


def _root_causes(members: Sequence[Evidence], states: Mapping[str, NodeState]) -> frozenset[str]:
    """Where it began: hardware's own failure, or of those that print alike the one that stands out."""
    conclusive = frozenset(each.node for each in members if each.is_conclusive)
    deferrable = [each for each in members if each.is_deferrable]
    root_causes = conclusive or _nearest_or_first(deferrable)
    if root_causes and deferrable:
        # A link's failure is heard within its own domain: one elsewhere explains none there.
        domains: defaultdict[str | None, list[Evidence]] = defaultdict(list)
        for each in deferrable:
            domains[states[each.node].domain].append(each)
        explained = {states[node].domain for node in root_causes}
        for domain, alike in domains.items():
            if domain is not None and explained.isdisjoint({domain, None}):
                root_causes |= _nearest_or_first(alike) or {each.node for each in alike}
    return root_causes


def _earlier_failures(members: Sequence[Evidence], conclusive: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """What had failed on its nodes shortly before, where nothing but symptoms came of it now."""
    if not all(each.is_symptom for each in members):
        return ()
    nodes, until_ns = {each.node for each in members}, members[0].start_ns
    since_ns = until_ns - EARLIER_FAILURE_NS
    return tuple(
        each
        for each in conclusive
        if each.node in nodes and each.end_ns >= since_ns and each.start_ns <= until_ns
    )


def _nearest_or_first(deferrable: Iterable[Evidence]) -> frozenset[str]:
    """Of nodes that print alike the one nearest to what failed, or the first; none where nothing tells."""
    best: dict[str, int] = {}
    first: dict[str, int] = {}
    for each in deferrable:
        best[each.node] = min(best.get(each.node, _REMOTE_DISTANCE), _distance(each))
        first[each.node] = min(first.get(each.node, each.start_ns), each.start_ns)
    if not best:
        return frozenset()
    nearest = min(best.values())
    leading = sorted(node for node, distance in best.items() if distance == nearest)
    if len(leading) == 1 or len(leading) < len(best):
        return frozenset(leading)
    by_time = sorted(leading, key=lambda node: first[node])
    stands_out = first[by_time[1]] - first[by_time[0]] >= FIRST_LEAD_NS
    return frozenset(by_time[:1]) if stands_out else frozenset()


_REMOTE_DISTANCE = 2


def _distance(each: Evidence) -> int:
    """How far from the hardware that failed such a line is printed."""
    if each.remote:
        return _REMOTE_DISTANCE
    return 0 if each.code in _LINK_XIDS else 1


Parts = Mapping[tuple[IncidentKey, bool], Sequence[tuple[FailureGroup, Evidence]]]
"""What one node has in groups, by its incidents' key and whether they taint by themselves."""


def parts_by_node(groups: Iterable[FailureGroup]) -> Mapping[str, Parts]:
    """What each node has in them, or had before they began."""
    found: defaultdict[str, defaultdict[tuple[IncidentKey, bool], list[tuple[FailureGroup, Evidence]]]]
    found = defaultdict(lambda: defaultdict(list))
    for group in groups:
        for each in (*group.members, *group.standing):
            found[each.node][each.key, each.severity.taints].append((group, each))
    return found


def named(
    group: FailureGroup, records: Mapping[str, NodeRecord], deferred: DeferredUntil, rules: PolicyConfig
) -> FailureGroup:
    """The group under the name that a record has for it, the earliest if there are several."""
    names = {i.failure_group for node in group.nodes if node in records for i in records[node].incidents}
    known = set()
    for name in names:
        shared, began_ns = parts_of(name or "")
        # Lines that come later may begin earlier.
        is_same = began_ns is not None and abs(began_ns - group.start_ns) <= longest_ns(rules)
        if name is not None and is_same and job_key(shared) == job_key(group.shared):
            known.add(name)
    # Nothing of its root causes is deferred any more.
    decided = any(each.is_conclusive for each in group.members) or not any(
        each.key in deferred.get(each.node, ()) for each in group.members if each.node in group.root_causes
    )
    name = min(known, key=lambda name: (parts_of(name)[1], name), default=group.name)
    return replace(group, known_as=name, decided=decided)


def deferred_of(
    record: NodeRecord, state: NodeState, mine: Sequence[Evidence], rules: PolicyConfig, now_ns: int
) -> Mapping[IncidentKey, int]:
    """The node's incidents that may not taint yet by their rule's ``defer_seconds``, and until when.

    The seconds run from when they were heard; after a restart, from their first line.
    """
    if state.tainted:
        return {}
    found: dict[IncidentKey, int] = {}
    for incident in tainting(record):
        seconds = rules.escalation(incident.key.rule).defer_seconds
        if not seconds or not incident.severity.taints:
            continue
        heard = (e.heard_ns for e in mine if e.key == incident.key and e.severity.taints)
        since_ns = max((ns for ns in heard if ns is not None), default=incident.first_ns)
        if abs(now_ns - since_ns) < span_ns(seconds):  # a clock may be a little ahead
            found[incident.key] = since_ns + span_ns(seconds)
    return found


def with_roles(
    record: NodeRecord,
    state: NodeState,
    mine: Sequence[Evidence],
    parts: Parts,
    deferred: Collection[IncidentKey],
    rules: PolicyConfig,
) -> NodeRecord:
    """The node's record with the roles that its incidents have in the groups that it has ``parts`` of."""
    standing = {id(incident) for incident in open_incidents(record, state)}
    incidents = []
    for incident in record.incidents:
        changed = incident
        if id(incident) in standing:
            own = parts.get((incident.key, incident.severity.taints), ())
            was_part = incident.failure_group is not None or incident.role is not None
            if (own or was_part) and _goes_on_alone(incident, own, mine, rules):
                if incident.role is Role.COLLATERAL:
                    changed = replace(incident, role=None, failure_group=None, root_cause=None)
            elif own:
                group, each = max(own, key=lambda part: part[1].start_ns)
                changed = _in_group(incident, group, each, state, rules, is_deferred=each.key in deferred)
        incidents.append(changed)
    return replace(record, incidents=tuple(incidents)) if incidents != list(record.incidents) else record


def _in_group(
    incident: Incident,
    group: FailureGroup,
    each: Evidence,
    state: NodeState,
    rules: PolicyConfig,
    *,
    is_deferred: bool,
) -> Incident:
    if incident.failure_group not in (None, group.name):
        before_ns = parts_of(incident.failure_group)[1]
        if before_ns is not None and before_ns > each.end_ns + span_ns(rules.correlation_seconds):
            return incident  # it was part of a later one since
    role = incident.role if incident.failure_group == group.name else None
    if group.root_causes:
        if each.is_symptom:
            role = Role.COLLATERAL if group.decided else role
        elif each.node in group.root_causes:
            role = Role.ROOT_CAUSE if group.decided else role
        elif each.is_deferrable and not state.tainted and not is_deferred:
            # Another node is nearer to what failed, even if that one is still deferred itself.
            role = Role.COLLATERAL
    elif role is None and not is_deferred:
        role = Role.UNCLEAR
    root_cause = None
    if role is Role.COLLATERAL:
        first = next((each.node for each in group.members if each.node in group.root_causes), None)
        before = incident.root_cause if incident.failure_group == group.name else None
        root_cause = group.nearest.get(state.domain, first) or before
    job = _job(incident, each, group)
    if (group.name, role, job, root_cause) == (
        incident.failure_group,
        incident.role,
        incident.job,
        incident.root_cause,
    ):
        return incident  # as nearly always: a failure group is compared in every reconcile
    return replace(incident, failure_group=group.name, role=role, job=job, root_cause=root_cause)


def _job(incident: Incident, each: Evidence, group: FailureGroup) -> str | None:
    """The failure group's own job if this is of it; else the only one that it is of."""
    if job_key(group.shared) in map(job_key, each.jobs):
        return group.shared
    return next(iter(each.jobs)) if len(each.jobs) == 1 else incident.job


def _goes_on_alone(
    incident: Incident,
    own: Sequence[tuple[FailureGroup, Evidence]],
    mine: Sequence[Evidence],
    rules: PolicyConfig,
) -> bool:
    """Whether it was heard long after the group that explained it, with none to explain it now."""
    taints = incident.severity.taints
    # What is fatal and does not stop is its own; symptoms may go on for as long as a job hangs.
    latest_ns = max(
        (
            e.end_ns if taints else e.start_ns
            for e in mine
            if e.key == incident.key and e.severity.taints == taints
        ),
        default=0,
    )
    began_ns = parts_of(incident.failure_group)[1] if incident.failure_group else 0
    if began_ns is None:
        return False
    explained_ns = max((each.start_ns for _, each in own), default=began_ns)
    return latest_ns > max(explained_ns, began_ns) + longest_ns(rules)
