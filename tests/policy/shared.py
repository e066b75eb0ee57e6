"""Short words for evidence that many nodes share."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.catalog import load_catalog
from konductor_like.model import Fault, FaultKind, IncidentState, NodeState, Role, Severity, Source
from konductor_like.policy.config import PolicyConfig
from tests.policy.scenes import GPU, Cluster, fault, fleet

RULES = PolicyConfig(brake_max_percent=100).under(load_catalog().escalations, "test")
"""The built-in escalations, and a brake that is in nobody's way."""


def rack(size: int, domain: str = "rack-7") -> dict[str, NodeState]:
    """Nodes of one multi-node NVLink domain."""
    return {name: replace(state, domain=domain) for name, state in fleet(size).items()}


def xid(name: str, code: int, *, seconds: float = 0, gpu: str = GPU, fatal: bool = False) -> Fault:
    """An Xid of the kernel log, stamped as it came."""
    listed = load_catalog().xid(code).severity
    return fault(
        name,
        seconds=seconds,
        stamp=100_000 + seconds,
        rule=f"xid.{code}",
        gpu=gpu,
        severity=Severity.FATAL if fatal else listed,
        text=f"NVRM: Xid (PCI:{gpu}): {code}",
    )


def remote(found: Fault) -> Fault:
    """The same, where the line itself blames another device."""
    return replace(found, finding=found.finding._replace(remote=True))


def nccl(name: str, job: str, *, seconds: float = 0) -> Fault:
    """A pod of a job complains about its peers."""
    found = fault(
        name,
        seconds=seconds,
        stamp=None,
        rule="nccl.socket",
        kind=FaultKind.NCCL,
        gpu=None,
        severity=Severity.SUSPECT,
        source=Source.POD,
        text="NCCL WARN socketProgress: Connection closed by remote peer",
    )
    return replace(found, job=job, pod=f"{job.rpartition('/')[2]}-{name}")


def crash(size: int, job: str = "ml/PyTorchJob/llama", *, seconds: float = 0) -> list[Fault]:
    """A job of that many nodes dies: each prints Xid 43, 45, 31 and NCCL's complaint within five seconds."""
    found: list[Fault] = []
    for number in range(1, size + 1):
        late = seconds + 5 * number / size
        name = f"gpu-{number}"
        found += [xid(name, code, seconds=late) for code in (43, 45, 31)]
        found.append(nccl(name, job, seconds=late))
    return found


def roles(cluster: Cluster) -> dict[Role | None, set[str]]:
    """Nodes by the role of their incidents that stand."""
    found: dict[Role | None, set[str]] = {}
    for name, state in cluster.nodes.items():
        for incident in state.record.incidents:
            if incident.state is not IncidentState.RELEASED:
                found.setdefault(incident.role, set()).add(name)
    return found


def events(cluster: Cluster) -> set[str]:
    """The names of the events on the nodes."""
    return {
        i.failure_group
        for s in cluster.nodes.values()
        for i in s.record.incidents
        if i.failure_group is not None
    }


def labels(cluster: Cluster) -> dict[str | None, int]:
    """How many nodes have which health label."""
    found: dict[str | None, int] = {}
    for state in cluster.nodes.values():
        found[state.as_read.health] = found.get(state.as_read.health, 0) + 1
    return found


def suspected(cluster: Cluster) -> set[str]:
    """The nodes whose records say that failed jobs have them in common."""
    return {
        name
        for name, state in cluster.nodes.items()
        if any("only node common to 4 or more jobs" in incident.advice for incident in state.record.incidents)
    }


def gpu_fleet(size: int) -> Cluster:
    """A fleet under the built-in rules."""
    return Cluster(fleet(size), RULES)
