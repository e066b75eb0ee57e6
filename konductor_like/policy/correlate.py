"""Telling one event from many lines: nodes that share a job or an NVLink domain and report within seconds.

Hardware that failed by its node's own kernel log is the origin. What every rank of a job prints when another
one dies (Xid 13, 31, 43, 45, NCCL's and CUDA's complaints) is collateral then, and accuses nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from konductor_like.model import NodeState, Source
from konductor_like.policy.evidence import Evidence
from konductor_like.policy.release import unix_ns
from konductor_like.policy.rules import Rules

SYMPTOM_XIDS = frozenset({13, 31, 43, 45})
"""What a job's end prints on healthy nodes."""
_LINK_XIDS = frozenset({148, 149, 150})
"""NVLink 5: the link itself, its power and its management engine; 144 to 147 are the layers above it."""
STANDING_NS = 3_600 * 1_000_000_000
"""Ranks that wait for one that hangs give up when their watchdog does: after 10 to 30 minutes by default."""
FIRST_BY_NS = 1_000_000_000
"""So much earlier than all others a line must be to have come first: clocks of nodes differ."""
_CHAIN = 10
"""An event lasts no longer than so many times the span within which the next line must come."""
DOMAIN = "domain "
_STAMP = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Evidence that belongs together, the oldest first."""

    shared: str
    """The job, or ``domain NAME``."""
    members: tuple[Evidence, ...]
    origins: frozenset[str] = frozenset()
    """Nodes where the hardware failed."""
    nearest: Mapping[str | None, str] = field(default_factory=dict)
    """By domain, the first of the origins in it."""
    standing: tuple[Evidence, ...] = ()
    """What was wrong with origins before, and came to light in it."""

    @property
    def start_ns(self) -> int:
        """Its first line."""
        return self.members[0].start_ns

    @property
    def nodes(self) -> frozenset[str]:
        """Where it shows."""
        return frozenset(each.node for each in self.members)

    def origin_for(self, domain: str | None) -> str | None:
        """Of its origins the one that spoke up first, in that domain if there is one."""
        first = next((each.node for each in self.members if each.node in self.origins), None)
        return self.nearest.get(domain, first)

    @property
    def name(self) -> str:
        """What it is called unless its nodes' records know it by another name already."""
        began = datetime.fromtimestamp(self.start_ns // 1_000_000_000, UTC)
        return f"{self.shared}@{began.strftime(_STAMP)}"

    def is_named(self, name: str, rules: Rules) -> bool:
        """Whether an event of that name is this one: lines that come later may begin earlier."""
        shared, began_ns = parts_of(name)
        if began_ns is None or job_key(shared) != job_key(self.shared):
            return False
        return abs(began_ns - self.start_ns) <= longest_ns(rules)


def clusters(evidence: Sequence[Evidence], states: Mapping[str, NodeState], rules: Rules) -> list[Cluster]:
    """The events in it. A piece of evidence is part of one event only: of that with the most nodes."""
    chains = [
        Cluster(_shared(key, members), tuple(members))
        for key, group in _groups(evidence, states, rules).items()
        for members in _chains(group, rules)
    ]
    found = [_whole(parts) for parts in _linked(chains)]
    found.sort(key=_by_size)
    hard = [each for each in evidence if is_hard(each, rules)]
    taken: set[int] = set()
    events: list[Cluster] = []
    for one in found:
        left = tuple(each for each in one.members if id(each) not in taken)
        if len({each.node for each in left}) > 1:
            taken.update(map(id, left))
            origins = _origins(left, states, rules)
            standing = () if origins else _standing(left, hard, rules)
            origins |= {each.node for each in standing}
            nearest = {states[each.node].domain: each.node for each in reversed(left) if each.node in origins}
            events.append(Cluster(one.shared, left, origins, nearest, standing))
    events.sort(key=lambda one: (one.start_ns, one.shared))
    return events


def related(
    touched: Collection[str],
    jobs_of: Mapping[str, frozenset[str]],
    states: Mapping[str, NodeState],
) -> set[str]:
    """The nodes that may be part of an event with one of the ``touched`` ones.

    ``jobs_of`` says which jobs (:func:`job_key`) are known of a node.
    """
    jobs = {job for name in touched for job in jobs_of.get(name, ())}
    domains = {states[name].domain for name in touched if name in states} - {None}
    alike = {name for name, mine in jobs_of.items() if not jobs.isdisjoint(mine)} if jobs else set()
    if domains:
        alike |= {name for name, state in states.items() if state.domain in domains}
    return alike.union(touched)


def is_soft(each: Evidence, rules: Rules) -> bool:
    """Whether it is fatal by a rule that waits to tell origin from collateral."""
    return each.taints and rules.escalation(each.key.rule).settle_seconds > 0


def is_hard(each: Evidence, rules: Rules) -> bool:
    """Whether it is hardware's own failure, which nothing demotes."""
    if each.source is not Source.KERNEL:
        return False
    return each.proven or (each.taints and not is_soft(each, rules))


def is_symptom(each: Evidence, rules: Rules) -> bool:
    """Whether a failure elsewhere explains it."""
    if each.taints or each.proven:
        return False
    settles = rules.escalation(each.key.rule).settle_seconds > 0
    return each.source is Source.POD or each.code in SYMPTOM_XIDS or settles


@lru_cache(maxsize=16_384)
def job_key(job: str) -> str:
    """What is the same of a job however its kind became known: namespace and name."""
    parts = job.split("/")
    return f"{parts[0]}//{parts[2]}" if len(parts) == 3 else job


@lru_cache(maxsize=16_384)
def parts_of(name: str) -> tuple[str, int | None]:
    """What an event's nodes share, and when it began, by its name; None where that cannot be read."""
    shared, _, stamp = name.rpartition("@")
    try:
        return shared, unix_ns(datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC))
    except ValueError:
        return shared, None


def longest_ns(rules: Rules) -> int:
    """How long an event may last."""
    return round(_CHAIN * rules.correlation_seconds * 1e9)


def _groups(
    evidence: Iterable[Evidence], states: Mapping[str, NodeState], rules: Rules
) -> Mapping[str, list[Evidence]]:
    """Evidence by job, and by domain what one has in common: its links, hardware, what is of no known job.

    A symptom whose job is known says nothing about other jobs that happen to be in the same rack.
    """
    groups: defaultdict[str, list[Evidence]] = defaultdict(list)
    for each in evidence:
        for key in {job_key(job) for job in each.jobs}:
            groups[key].append(each)
        domain = states[each.node].domain
        if domain is not None and (not each.jobs or _is_of_links(each, rules) or is_hard(each, rules)):
            groups[DOMAIN + domain].append(each)
    return groups


def _is_of_links(each: Evidence, rules: Rules) -> bool:
    return rules.escalation(each.key.rule).settle_seconds > 0


def _linked(chains: Sequence[Cluster]) -> Iterator[list[Cluster]]:
    """What a domain had in common is one event with the jobs that it hit there."""
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
    linked: defaultdict[int, list[Cluster]] = defaultdict(list)
    for number, chain in enumerate(chains):
        linked[root(number)].append(chain)
    yield from linked.values()


def _whole(parts: Sequence[Cluster]) -> Cluster:
    """Clusters that are one event, under the name of the largest."""
    if len(parts) == 1:
        return parts[0]
    members = {id(each): each for part in parts for each in part.members}
    ordered = sorted(members.values(), key=_by_time)
    largest = min(parts, key=_by_size)
    return Cluster(largest.shared, tuple(ordered))


def _by_size(one: Cluster) -> tuple[int, int, bool, str]:
    return (-len(one.nodes), one.start_ns, one.shared.startswith(DOMAIN), one.shared)


def _by_time(each: Evidence) -> tuple[int, str, str]:
    return (each.start_ns, each.node, str(each.key))


def _shared(key: str, members: Iterable[Evidence]) -> str:
    """The job's full name: the one most often heard, and a kind that says more than ``Pod`` before that."""
    names = Counter(job for each in members for job in each.jobs if job_key(job) == key)
    ranked = sorted(names.items(), key=lambda item: ("/Pod/" in item[0], -item[1], item[0]))
    return ranked[0][0] if ranked else key


def _chains(group: Sequence[Evidence], rules: Rules) -> Iterator[list[Evidence]]:
    """Evidence, the oldest first, cut where the next is too late to be of the same event."""
    span_ns, most_ns = round(rules.correlation_seconds * 1e9), longest_ns(rules)
    chain: list[Evidence] = []
    for each in group:
        if chain and (
            each.start_ns - chain[-1].start_ns > span_ns or each.start_ns - chain[0].start_ns > most_ns
        ):
            yield chain
            chain = []
        chain.append(each)
    if chain:
        yield chain


def _origins(members: Sequence[Evidence], states: Mapping[str, NodeState], rules: Rules) -> frozenset[str]:
    """Where it began: hardware's own failure, or of those that print alike the one that stands out."""
    hard = frozenset(each.node for each in members if is_hard(each, rules))
    soft = [each for each in members if is_soft(each, rules)]
    origins = hard or _outstanding(soft)
    if origins and soft:
        # A link's failure is heard within its own domain: one elsewhere explains none there.
        domains: defaultdict[str | None, list[Evidence]] = defaultdict(list)
        for each in soft:
            domains[states[each.node].domain].append(each)
        explained = {states[node].domain for node in origins}
        for domain, alike in domains.items():
            if domain is not None and explained.isdisjoint({domain, None}):
                origins |= _outstanding(alike) or {each.node for each in alike}
    return origins


def _standing(members: Sequence[Evidence], hard: Sequence[Evidence], rules: Rules) -> tuple[Evidence, ...]:
    """What had failed on its nodes shortly before, where nothing but symptoms came of it now."""
    if not all(is_symptom(each, rules) for each in members):
        return ()
    nodes, until_ns = {each.node for each in members}, members[0].start_ns
    since_ns = until_ns - STANDING_NS
    return tuple(h for h in hard if h.node in nodes and h.end_ns >= since_ns and h.start_ns <= until_ns)


def _outstanding(soft: Iterable[Evidence]) -> frozenset[str]:
    """Of nodes that print alike the one nearest to what failed, or the first; none where nothing tells."""
    best: dict[str, int] = {}
    first: dict[str, int] = {}
    for each in soft:
        best[each.node] = min(best.get(each.node, _REMOTE), _distance(each))
        first[each.node] = min(first.get(each.node, each.start_ns), each.start_ns)
    if not best:
        return frozenset()
    nearest = min(best.values())
    leading = sorted(node for node, distance in best.items() if distance == nearest)
    if len(leading) == 1 or len(leading) < len(best):
        return frozenset(leading)
    by_time = sorted(leading, key=lambda node: first[node])
    stands_out = first[by_time[1]] - first[by_time[0]] >= FIRST_BY_NS
    return frozenset(by_time[:1]) if stands_out else frozenset()


_REMOTE = 2


def _distance(each: Evidence) -> int:
    """How far from the hardware that failed such a line is printed."""
    if each.remote:
        return _REMOTE
    return 0 if each.code in _LINK_XIDS else 1
