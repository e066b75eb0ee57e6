"""A simulated month of a fleet whose true outages are known: its audit trail, and its Nodes at the end.

One node in fifty fails often, one driver has many an Xid 119, and a few racks lose all nodes at once (a
failure group). Nodes are added and deleted meanwhile, also nodes that are out of service. People reset nodes,
some with the reason that it was a false alarm; they taint nodes, and test the chain.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from konductor_like.cluster.node.record import encode
from konductor_like.controller.reporting.audit import FIELDS
from konductor_like.model import (
    HEALTH_LABEL,
    RECORD_ANNOTATION,
    TAINT_EFFECT,
    TAINT_KEY,
    TAINT_VALUE,
    FaultKind,
    Hardware,
    Incident,
    IncidentKey,
    IncidentState,
    KernelPosition,
    Life,
    Machine,
    NodeRecord,
    NodeState,
    Quarantine,
    Release,
    ReleaseHow,
    Severity,
)
from konductor_like.model.time import stamp, text_of, unix_ns
from konductor_like.policy.node.lifecycle import QUARANTINES_KEPT
from konductor_like.policy.node.release import CONTROLLER
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.policy.scenes import OURS, node

END = datetime(2026, 5, 6, 12, 0, tzinfo=UTC)
H100, H200 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"
GOOD_DRIVER, BAD_DRIVER, NEW_DRIVER = "550.163.01", "570.172.08", "575.57.08"
RACK_LABEL, POOL_LABEL = "example.com/rack", "example.com/pool"
NODES_OF_A_RACK = 8
PEOPLE = ("kim@example.com", "ann@example.com", "raj@example.com")
_FAULTS = (("xid.79", 30), ("xid.48", 20), ("xid.119", 3), ("xid.95", 12), ("xid.64", 10), ("sxid.12028", 6))
_REASONS = ("reseated", "GPU replaced, dcgmi diag passed", "row remap done", "new riser", "power-cycled")
_MEDIAN_HOURS, _SPREAD = 3.0, 1.2
_BEFORE = timedelta(days=3)
"""The simulation begins so long before the month, so that some outages reach into it."""


@dataclass(frozen=True, slots=True)
class Host:
    """A node of the fleet."""

    name: str
    hardware: Hardware
    pool: str
    created: datetime
    gpus: int = 8
    deleted: datetime | None = None


@dataclass(frozen=True, slots=True)
class TrueOutage:
    """An outage as it was. ``until`` is None if the node is out at the end of the month."""

    node: str
    since: datetime
    until: datetime | None
    rule: str
    gpu: str | None = None
    how: ReleaseHow = ReleaseHow.UNKNOWN
    by: str | None = None
    reason: str = ""
    begun_by: str | None = None
    severity: Severity = Severity.FATAL
    failure_group: str = ""
    relapse: bool = False
    """Whether the node failed again on the probation after it."""
    is_relapse: bool = False

    @property
    def is_failure(self) -> bool:
        """Whether the controller took the node out for a fault that is no test."""
        return self.begun_by is None and self.severity is not Severity.TEST

    def hours(self, start: datetime, end: datetime) -> float:
        """Return the hours that lie between two times."""
        return max(timedelta(), min(self.until or end, end) - max(self.since, start)) / timedelta(hours=1)


@dataclass(slots=True)
class Month:
    """The truth of a month, and what the systems kept of it."""

    start: datetime
    end: datetime
    hosts: Mapping[str, Host]
    outages: Sequence[TrueOutage] = field(default_factory=list)
    """All, in the order of their begin; those that ended before ``start`` too."""

    @property
    def in_span(self) -> list[TrueOutage]:
        """The outages of which a part lies in the month."""
        return [each for each in self.outages if each.until is None or each.until >= self.start]

    def lines(self, counts: int = 2) -> Iterator[tuple[datetime, str]]:
        """Yield the trail in the order of time, with ``counts`` lines of growing counts for each outage."""
        lines = [line for each in self.outages for line in self._lines_of(each, counts)]
        for at, facts in sorted(lines, key=lambda line: line[0]):
            message = f"audit: {facts['verb']} of node {facts['node']} applied"
            yield at, json.dumps({"ts": stamp(at), "level": "info", "msg": message, **facts})

    def _lines_of(self, outage: TrueOutage, counts: int) -> Iterator[tuple[datetime, dict[str, Any]]]:
        host = self.hosts[outage.node]
        facts: dict[str, Any] = dict.fromkeys(FIELDS) | {
            "audit": "v1",
            "node": outage.node,
            "outcome": "applied",
            "out_since": text_of(outage.since),
            "model": host.hardware.model or None,
            "driver": host.hardware.driver or None,
        }
        fault = {"rule": outage.rule, "gpu": outage.gpu, "severity": outage.severity.value}
        labels = {"rack": host.hardware.rack or None, "gpus": host.gpus}
        begin = facts | fault | labels
        begin |= {"failure_group": outage.failure_group or None, "by": outage.begun_by, "needs": "reboot"}
        begin["why"] = "GPUNodeRelapsed" if outage.is_relapse else "GPUFaultTainted"
        begin["evidence"] = evidence_of(outage)
        yield outage.since + timedelta(milliseconds=200), begin | {"verb": "taint"}
        for number in range(counts):
            at = outage.since + timedelta(minutes=number + 1)
            if outage.until is None or at < outage.until:
                yield at, begin | {"verb": "record", "why": "counts", "by": None, "count": number + 2}
        if outage.until is None:
            return
        at, end = (
            outage.until + timedelta(seconds=1),
            facts | {"at": text_of(outage.until), "how": outage.how},
        )
        if outage.how is ReleaseHow.DELETED:
            yield at, end | {"verb": "delete", "reason": f"{outage.rule} of {outage.gpu}"}
        else:
            end |= labels | {"rule": outage.rule, "gpu": outage.gpu}
            yield at, end | {"verb": "untaint", "by": outage.by, "reason": outage.reason or None}

    def states(self) -> dict[str, NodeState]:
        """Return the Nodes that exist at the end."""
        found = {}
        for host in self._existing():
            record, tainted = self._record(host)
            found[host.name] = replace(
                node(host.name),
                created_ns=unix_ns(host.created),
                record=record,
                taints=(OURS,) if tainted else (),
                hardware=host.hardware,
                pool=host.pool,
            )
        return found

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the same Nodes as the API server has them; ``POOL_LABEL`` and ``RACK_LABEL`` are labels."""
        for host in self._existing():
            record, tainted = self._record(host)
            labels = {
                "nvidia.com/gpu.product": host.hardware.model,
                "nvidia.com/cuda.driver-version.full": host.hardware.driver,
                RACK_LABEL: host.hardware.rack,
                POOL_LABEL: host.pool,
                **({HEALTH_LABEL: "faulty"} if tainted else {}),
            }
            taints = [{"key": TAINT_KEY, "value": TAINT_VALUE, "effect": TAINT_EFFECT}] if tainted else []
            made = make_node(host.name, host.gpus, labels, taints=taints)
            info, metadata = made["status"]["nodeInfo"], made["metadata"]
            machine = Machine(metadata["uid"], info["systemUUID"], info["bootID"])
            metadata["annotations"][RECORD_ANNOTATION] = encode(replace(record, machine=machine))
            metadata["creationTimestamp"] = stamp(host.created)
            yield made

    def _existing(self) -> Iterator[Host]:
        return (host for host in self.hosts.values() if host.deleted is None)

    def _record(self, host: Host) -> tuple[NodeRecord, bool]:
        """Return the record, and whether the node is out at the end."""
        mine = [each for each in self.outages if each.node == host.name]
        past = [each for each in mine if each.until is not None and each.is_failure]
        current = next((each for each in mine if each.until is None), None)
        model, driver = host.hardware.model, host.hardware.driver
        quarantines = tuple(
            Quarantine(each.since, each.until, each.rule, each.how, each.relapse, each.gpu, model, driver)
            for each in reversed(past)
            if each.until is not None
        )
        releases = tuple(
            Release(each.until, each.by or CONTROLLER, each.reason, each.how)
            for each in reversed(past)
            if each.until is not None
        )
        life = Life(quarantines=quarantines[:QUARANTINES_KEPT])
        incidents: tuple[Incident, ...] = ()
        if current is not None:
            life = replace(life, tainted_at=current.since, model=model, driver=driver)
            incidents = (_incident(current),)
        return (
            NodeRecord(life=life, incidents=incidents, releases=releases[:QUARANTINES_KEPT], gpus=host.gpus),
            current is not None,
        )


def _incident(outage: TrueOutage) -> Incident:
    at_ns = unix_ns(outage.since)
    kind, _, code = outage.rule.partition(".")
    return Incident(
        IncidentKey(outage.rule, outage.gpu),
        FaultKind(kind),
        outage.severity,
        IncidentState.ACTIVE,
        *(1, at_ns, at_ns, KernelPosition("", None, 1)),
        code=int(code) if code.isdecimal() else None,
        failure_group=outage.failure_group or None,
        evidence=evidence_of(outage),
        needs="reboot",
    )


def evidence_of(outage: TrueOutage) -> str:
    """Return the line of the fault; empty for a person's taint."""
    number = outage.rule.partition(".")[2]
    return f"NVRM: Xid (PCI:{outage.gpu}): {number}, pid=40817, name=python3" if outage.is_failure else ""


def simulated(nodes: int = 1000, days: int = 30, *, seed: int = 1, end: datetime = END) -> Month:
    """Simulate. The same arguments give the same month."""
    rng = random.Random(seed)
    start = end - timedelta(days=days)
    hosts = _hosts(rng, nodes, start, end)
    grouped = _groups(rng, hosts, start, end)
    outages: list[TrueOutage] = []
    for host in hosts.values():
        outages += _life(rng, host, grouped.get(host.name), start, end)
    for each in outages:
        if each.how is ReleaseHow.DELETED:
            hosts[each.node] = replace(hosts[each.node], deleted=each.until)
    outages.sort(key=lambda each: (each.since, each.node))
    return Month(start, end, hosts, outages)


def _hosts(rng: random.Random, nodes: int, start: datetime, end: datetime) -> dict[str, Host]:
    found = {}
    for number in range(nodes):
        name, pool = f"gpu-{number + 1:04}", "train" if number % 5 else "serve"
        model = H200 if number >= 0.8 * nodes else H100
        driver = NEW_DRIVER if model == H200 else BAD_DRIVER if rng.random() < 0.15 else GOOD_DRIVER
        rack = f"r{number // NODES_OF_A_RACK + 1:03}"
        created = start - timedelta(days=200)
        if rng.random() < 0.03:
            created = (start + rng.random() * (end - start)).replace(
                microsecond=0
            )  # a Node has whole seconds
        deleted = None
        if rng.random() < 0.01:
            deleted = created + (end - max(start, created)) * rng.random() + (max(start, created) - created)
        found[name] = Host(name, Hardware(model, driver, rack), pool, created, deleted=deleted)
    return found


def _groups(
    rng: random.Random, hosts: Mapping[str, Host], start: datetime, end: datetime
) -> dict[str, TrueOutage]:
    """Return by node the outage of a rack that fails as a whole."""
    racks = sorted({host.hardware.rack for host in hosts.values()})
    found: dict[str, TrueOutage] = {}
    for rack in rng.sample(racks, max(1, len(racks) // 40)):
        at = start + (0.1 + 0.8 * rng.random()) * (end - start)
        name = f"rack {rack}@{text_of(at)}"
        for host in hosts.values():
            if host.hardware.rack == rack and host.created < at and (host.deleted or end) > at:
                since = at + timedelta(seconds=rng.randrange(60))
                found[host.name] = TrueOutage(
                    *(host.name, since, since + timedelta(hours=2 + rng.random()), "sxid.20034", None),
                    *(ReleaseHow.RESET, PEOPLE[0], "switch replaced"),
                    failure_group=name,
                )
    return found


def _life(
    rng: random.Random, host: Host, group: TrueOutage | None, start: datetime, end: datetime
) -> Iterator[TrueOutage]:
    """Yield the outages of one node, in the order of time, without an overlap."""
    fails_often = rng.random() < 0.02
    has_bad_driver = host.hardware.driver == BAD_DRIVER
    mean_days = 5.0 if fails_often else 35.0 if has_bad_driver else 60.0
    weak_gpu = _gpu(rng)
    at = max(host.created, start - _BEFORE)
    last: TrueOutage | None = None
    exists_until = host.deleted or end
    while True:
        is_relapse = last is not None and last.how is ReleaseHow.REBOOT and rng.random() < 0.1
        pause = (
            timedelta(hours=6 * rng.random())
            if is_relapse
            else timedelta(days=rng.expovariate(1 / mean_days))
        )
        since = at + pause + timedelta(minutes=1)
        if last is not None:
            is_relapse = is_relapse and since < exists_until
            if group is not None and last.since < group.since < since:
                is_relapse = False
            yield replace(last, relapse=is_relapse)
        if group is not None and group.since < since:
            since, last, group = group.since, group, None
        elif since >= exists_until:
            return
        else:
            last = _outage(rng, host, since, weak_gpu if fails_often else _gpu(rng), is_relapse=is_relapse)
            if group is not None and (last.until or end) >= group.since:
                last = replace(last, until=group.since - timedelta(seconds=30))
        if last.until is None or last.until >= exists_until:
            how = ReleaseHow.UNKNOWN if host.deleted is None else ReleaseHow.DELETED
            yield replace(last, until=host.deleted, how=how, by=None, reason="")
            return
        if last.how is ReleaseHow.DELETED:
            yield last
            return
        at = last.until


def _outage(rng: random.Random, host: Host, since: datetime, gpu: str, *, is_relapse: bool) -> TrueOutage:
    kind = 1.0 if is_relapse else rng.random()
    if kind < 0.02:
        until = since + timedelta(minutes=10)
        rule, how = "xid.14", ReleaseHow.TEST_ENDED
        return TrueOutage(host.name, since, until, rule, "0000:ff:1f", how, severity=Severity.TEST)
    if kind < 0.04:
        until, who = since + timedelta(hours=1 + 8 * rng.random()), rng.choice(PEOPLE)
        rule, how = "operator", ReleaseHow.RESET
        return TrueOutage(host.name, since, until, rule, None, how, who, "done", who, Severity.FATAL)
    faults = [rule for rule, _ in _FAULTS]
    weights = [weight for _, weight in _FAULTS]
    if host.hardware.driver == BAD_DRIVER:
        weights[faults.index("xid.119")] *= 60
    [rule] = rng.choices(faults, weights)
    found = TrueOutage(
        *(host.name, since, None, rule, None if rule.startswith("sxid") else gpu), is_relapse=is_relapse
    )
    if kind < 0.06:
        until = since + timedelta(minutes=3 + 20 * rng.random())
        reason = "False alarm: the line is from a test of the vendor's"
        return replace(found, until=until, how=ReleaseHow.RESET, by=PEOPLE[1], reason=reason)
    if kind < 0.08:
        return replace(found, until=since + timedelta(hours=1 + 20 * rng.random()), how=ReleaseHow.DELETED)
    until = since + timedelta(hours=rng.lognormvariate(0, _SPREAD) * _MEDIAN_HOURS)
    ways = (ReleaseHow.RESET, ReleaseHow.REBOOT, ReleaseHow.VALIDATED, ReleaseHow.BY_HAND)
    [how] = rng.choices(ways, (50, 35, 10, 5))
    if how.by_controller:
        return replace(found, until=until, how=how)
    if how is ReleaseHow.BY_HAND:
        return replace(found, until=until, how=how, by="kubectl-taint")
    return replace(found, until=until, how=how, by=rng.choice(PEOPLE), reason=rng.choice(_REASONS))


def _gpu(rng: random.Random) -> str:
    return f"0000:{rng.choice(('1b', '43', '52', '61', '9d', 'c3', 'd1', 'df'))}:00"
