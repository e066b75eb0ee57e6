"""Failure groups: many lines of one failure, from nodes that share a job or an NVLink domain, within seconds.

``escalation`` groups the fleet's evidence with this module, and gives the incidents their roles in the
groups. A node whose own kernel log reports failed hardware is the root cause. When one rank of a job dies,
all others print lines (Xid 13, 31, 43, 45, NCCL and CUDA errors): these lines are collateral, and no reason
to taint. A role changes only while the group's evidence is there; without it, the recorded role stays.
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
from konductor_like.policy.fleet.evidence import Evidence, by_time
from konductor_like.policy.node.health import open_incidents, tainting

_LINK_XIDS = frozenset({148, 149, 150})
"""Xids of an NVLink 5 link itself, its power and its management engine; 144 to 147 are the layers above
it."""
EARLIER_FAILURE_NS = 3_600 * SECOND_NS
"""Nanoseconds before a group within which an earlier hardware failure of its nodes may be its root cause.

Ranks that wait for a rank that hangs give up at their watchdog's timeout, by default after 10 to 30 minutes.
"""
FIRST_LEAD_NS = SECOND_NS
"""Nanoseconds by which a line must be earlier than all others to count as the first: clocks of nodes
differ."""
_GROUP_SPANS_MOST = 10
"""Longest failure group, in multiples of ``correlation_seconds``."""
DOMAIN = "domain "
DeferredUntil = Mapping[str, Mapping[IncidentKey, int]]
"""By node, the deferred incidents and until when each is deferred (a Loki timestamp)."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Evidence of one failure on several nodes, the oldest first."""

    shared: str
    """What the nodes share: the job, or ``domain NAME``."""
    members: tuple[Evidence, ...]
    root_causes: frozenset[str] = frozenset()
    """Nodes where the hardware failed."""
    nearest: Mapping[str | None, str] = field(default_factory=dict)
    """By domain, the node of the first root cause in it."""
    standing: tuple[Evidence, ...] = ()
    """Earlier hardware failures of the group's nodes, which explain its symptoms."""
    known_as: str = ""
    """The name under which the nodes' records know the group already; empty for a new group."""
    decided: bool = False
    """Whether the root causes are final: none of them is deferred any more."""

    @property
    def start_ns(self) -> int:
        """Loki timestamp of the first line."""
        return self.members[0].start_ns

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes with evidence in the group."""
        return frozenset(each.node for each in self.members)

    @property
    def name(self) -> str:
        """The group's name: what its nodes share, and when it began."""
        return self.known_as or f"{self.shared}@{stamp(moment_of(self.start_ns))}"


def failure_groups(
    evidence: Sequence[Evidence], states: Mapping[str, NodeState], policy: PolicyConfig
) -> list[FailureGroup]:
    """Return the failure groups, each piece of evidence in one only: the group with the most nodes."""
    if len({each.node for each in evidence}) < 2:
        return []
    chains = [
        FailureGroup(_shared_name(key, members), tuple(members))
        for key, group in _groups(evidence, states).items()
        for members in _split_by_time(group, policy)
    ]
    found = [_merged_group(parts) for parts in _joined_by_domain(chains)]
    found.sort(key=_by_size)
    conclusive = sorted((each for each in evidence if each.is_conclusive), key=by_time)
    taken: set[int] = set()
    groups: list[FailureGroup] = []
    for one in found:
        rest = tuple(each for each in one.members if id(each) not in taken)
        if len({each.node for each in rest}) > 1:
            taken.update(map(id, rest))
            root_causes = _root_causes(rest, states)
            standing = () if root_causes else _earlier_failures(rest, conclusive)
            root_causes |= {each.node for each in standing}
            nearest = {
                states[each.node].domain: each.node for each in reversed(rest) if each.node in root_causes
            }
            groups.append(FailureGroup(one.shared, rest, root_causes, nearest, standing))
    groups.sort(key=lambda one: (one.start_ns, one.shared))
    return groups


def related(
    touched: Collection[str],
    jobs_of: Mapping[str, frozenset[str]],
    states: Mapping[str, NodeState],
) -> set[str]:
    """Return the nodes that may be in a failure group with one of the ``touched`` nodes.

    ``jobs_of`` gives the known jobs (:func:`job_key`) of each node.
    """
    jobs = {job for name in touched for job in jobs_of.get(name, ())}
    domains = {states[name].domain for name in touched if name in states} - {None}
    alike = {name for name, mine in jobs_of.items() if not jobs.isdisjoint(mine)} if jobs else set()
    if domains:
        alike |= {name for name, state in states.items() if state.domain in domains}
    return alike.union(touched)


@lru_cache(maxsize=16_384)
def parts_of(name: str) -> tuple[str, int | None]:
    """Split a group's name into what its nodes share and when it began; None for an unreadable time."""
    shared, _, began = name.rpartition("@")
    try:
        return shared, ns_of_text(began)
    except ValueError:
        return shared, None


def longest_ns(policy: PolicyConfig) -> int:
    """Return the nanoseconds that a failure group may last."""
    return span_ns(_GROUP_SPANS_MOST * policy.correlation_seconds)


def _groups(evidence: Iterable[Evidence], states: Mapping[str, NodeState]) -> Mapping[str, list[Evidence]]:
    """Return the evidence by job and by domain, the oldest first.

    A symptom whose job is known is not grouped by domain: it is no evidence about other jobs in the same
    rack.
    """
    groups: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in evidence:
        for key in {job_key(job) for job in each.jobs}:
            groups[key].append(each)
        domain = states[each.node].domain
        if domain is not None and (not each.jobs or each.defers or each.is_conclusive):
            groups[DOMAIN + domain].append(each)
    for group in groups.values():
        group.sort(key=by_time)
    return groups


def _joined_by_domain(chains: Sequence[FailureGroup]) -> Iterator[list[FailureGroup]]:
    """Join the groups that are one failure: a domain's group and the groups of the jobs it hit."""
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
    """Merge the parts of one failure into a group with the name of the largest."""
    if len(parts) == 1:
        return parts[0]
    members = {id(each): each for part in parts for each in part.members}
    ordered = sorted(members.values(), key=by_time)
    largest = min(parts, key=_by_size)
    return FailureGroup(largest.shared, tuple(ordered))


def _by_size(one: FailureGroup) -> tuple[int, int, bool, str]:
    return (-len(one.nodes), one.start_ns, one.shared.startswith(DOMAIN), one.shared)


def _shared_name(key: str, members: Iterable[Evidence]) -> str:
    """Return a job's most frequent full name, preferably not of kind ``Pod``; a domain's key unchanged."""
    names = Counter(job for each in members for job in each.jobs if job_key(job) == key)
    ranked = sorted(names.items(), key=lambda item: ("/Pod/" in item[0], -item[1], item[0]))
    return ranked[0][0] if ranked else key


def _split_by_time(group: Sequence[Evidence], policy: PolicyConfig) -> Iterator[list[Evidence]]:
    """Split evidence (the oldest first) before each piece that is too late for the group so far."""
    most_apart_ns, most_ns = span_ns(policy.correlation_seconds), longest_ns(policy)
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
    """Return the nodes where the failure began: those whose hardware failed, else the one that stands out.

    If nodes print the same deferrable fault, the one nearest to the failed hardware stands out, or the first.
    """
    conclusive = frozenset(each.node for each in members if each.is_conclusive)
    deferrable = [each for each in members if each.is_deferrable]
    root_causes = conclusive or _nearest_or_first(deferrable)
    if root_causes and deferrable:
        # A link's failure explains only faults in its own domain.
        domains: defaultdict[str | None, list[Evidence]] = defaultdict(list)
        for each in deferrable:
            domains[states[each.node].domain].append(each)
        explained = {states[node].domain for node in root_causes}
        for domain, alike in domains.items():
            if domain is not None and explained.isdisjoint({domain, None}):
                root_causes |= _nearest_or_first(alike) or {each.node for each in alike}
    return root_causes


def _earlier_failures(members: Sequence[Evidence], conclusive: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return earlier hardware failures of the group's nodes if the group itself has only symptoms."""
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
    """Return the nodes nearest to the failed hardware, or the first to print; none if this is unclear."""
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
    in_order = sorted(leading, key=lambda node: first[node])
    stands_out = first[in_order[1]] - first[in_order[0]] >= FIRST_LEAD_NS
    return frozenset(in_order[:1]) if stands_out else frozenset()


_REMOTE_DISTANCE = 2


def _distance(each: Evidence) -> int:
    """Return the distance from the failed hardware: link 0, other faults 1, a line that blames a peer 2."""
    if each.remote:
        return _REMOTE_DISTANCE
    return 0 if each.code in _LINK_XIDS else 1


Parts = Mapping[tuple[IncidentKey, bool], Sequence[tuple[FailureGroup, Evidence]]]
"""One node's evidence in groups, by the incidents' key and whether their severity taints."""


def parts_by_node(groups: Iterable[FailureGroup]) -> Mapping[str, Parts]:
    """Return each node's evidence in the groups, earlier failures included."""
    found: defaultdict[str, defaultdict[tuple[IncidentKey, bool], list[tuple[FailureGroup, Evidence]]]]
    found = defaultdict(lambda: defaultdict(list))
    for group in groups:
        for each in (*group.members, *group.standing):
            found[each.node][each.key, each.severity.taints].append((group, each))
    return found


def named(
    group: FailureGroup, records: Mapping[str, NodeRecord], deferred: DeferredUntil, policy: PolicyConfig
) -> FailureGroup:
    """Return the group with the name that the nodes' records have for it, the earliest of several."""
    names = {i.failure_group for node in group.nodes if node in records for i in records[node].incidents}
    known = set()
    for name in names:
        shared, began_ns = parts_of(name or "")
        # Lines that are read later may begin earlier.
        is_same = began_ns is not None and abs(began_ns - group.start_ns) <= longest_ns(policy)
        if name is not None and is_same and job_key(shared) == job_key(group.shared):
            known.add(name)
    # A root cause that is deferred may still turn out to be collateral.
    decided = any(each.is_conclusive for each in group.members) or not any(
        each.key in deferred.get(each.node, ()) for each in group.members if each.node in group.root_causes
    )
    name = min(known, key=lambda name: (parts_of(name)[1], name), default=group.name)
    return replace(group, known_as=name, decided=decided)


def deferred_of(
    record: NodeRecord, state: NodeState, mine: Sequence[Evidence], policy: PolicyConfig, now_ns: int
) -> Mapping[IncidentKey, int]:
    """Return the node's deferred incidents (their rule has ``defer_seconds``), and until when.

    The seconds run from the time at which this process read the lines; after a restart, from the first line.
    """
    if state.tainted:
        return {}
    found: dict[IncidentKey, int] = {}
    for incident in tainting(record):
        seconds = policy.escalation(incident.key.rule).defer_seconds
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
    policy: PolicyConfig,
) -> NodeRecord:
    """Return the record with the roles of its incidents in the groups that ``parts`` lists."""
    standing = {id(incident) for incident in open_incidents(record, state)}
    incidents = []
    for incident in record.incidents:
        changed = incident
        if id(incident) in standing:
            own = parts.get((incident.key, incident.severity.taints), ())
            was_part = incident.failure_group is not None or incident.role is not None
            if (own or was_part) and _goes_on_alone(incident, own, mine, policy):
                if incident.role is Role.COLLATERAL:
                    changed = replace(incident, role=None, failure_group=None, root_cause=None)
            elif own:
                group, each = max(own, key=lambda part: part[1].start_ns)
                changed = _in_group(incident, group, each, state, policy, is_deferred=each.key in deferred)
        incidents.append(changed)
    return replace(record, incidents=tuple(incidents)) if incidents != list(record.incidents) else record


def _in_group(
    incident: Incident,
    group: FailureGroup,
    each: Evidence,
    state: NodeState,
    policy: PolicyConfig,
    *,
    is_deferred: bool,
) -> Incident:
    if incident.failure_group not in (None, group.name):
        before_ns = parts_of(incident.failure_group)[1]
        if before_ns is not None and before_ns > each.end_ns + span_ns(policy.correlation_seconds):
            return incident  # the incident has joined a later group since
    role = incident.role if incident.failure_group == group.name else None
    if group.root_causes:
        if each.is_symptom:
            role = Role.COLLATERAL if group.decided else role
        elif each.node in group.root_causes:
            role = Role.ROOT_CAUSE if group.decided else role
        elif each.is_deferrable and not state.tainted and not is_deferred:
            # Another node is nearer to the failed hardware, even if its own fault is still deferred.
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
        return incident  # the usual case: every reconcile compares every failure group
    return replace(incident, failure_group=group.name, role=role, job=job, root_cause=root_cause)


def _job(incident: Incident, each: Evidence, group: FailureGroup) -> str | None:
    """Return the group's job if the evidence is of it; else the evidence's only job; else the known one."""
    if job_key(group.shared) in map(job_key, each.jobs):
        return group.shared
    return next(iter(each.jobs)) if len(each.jobs) == 1 else incident.job


def _goes_on_alone(
    incident: Incident,
    own: Sequence[tuple[FailureGroup, Evidence]],
    mine: Sequence[Evidence],
    policy: PolicyConfig,
) -> bool:
    """Whether the incident goes on long after the groups that explained it, and so counts by itself."""
    taints = incident.severity.taints
    # A fatal fault that does not stop is the node's own; symptoms may go on for as long as a job hangs.
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
    return latest_ns > max(explained_ns, began_ns) + longest_ns(policy)
