"""Builders of faults on many nodes."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.catalog import load_catalog
from konductor_like.model import Fault, FaultKind, IncidentState, NodeState, Role, Severity, Source
from konductor_like.policy.config import PolicyConfig
from tests.policy.scenes import GPU, Cluster, fault, fleet

RULES = PolicyConfig(brake_max_percent=100).with_escalations(load_catalog().escalations, "test")
"""The built-in escalations, with a brake that allows every taint."""


def rack(size: int, domain: str = "rack-7") -> dict[str, NodeState]:
    """Nodes of one multi-node NVLink domain."""
    return {name: replace(state, domain=domain) for name, state in fleet(size).items()}


def xid(name: str, code: int, *, seconds: float = 0, gpu: str = GPU, fatal: bool = False) -> Fault:
    """An Xid of the kernel log, stamped with its own time."""
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
    """The same fault with a line that blames another device."""
    return replace(found, finding=found.finding._replace(remote=True))


def nccl(name: str, job: str, *, seconds: float = 0) -> Fault:
    """An NCCL error of a job's pod about its peers."""
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
    """The lines of a job that dies on ``size`` nodes: Xid 43, 45, 31 and an NCCL error of each within 5 s."""
    found: list[Fault] = []
    for number in range(1, size + 1):
        late = seconds + 5 * number / size
        name = f"gpu-{number}"
        found += [xid(name, code, seconds=late) for code in (43, 45, 31)]
        found.append(nccl(name, job, seconds=late))
    return found


def roles(cluster: Cluster) -> dict[Role | None, set[str]]:
    """Return the nodes by the roles of their open incidents."""
    found: dict[Role | None, set[str]] = {}
    for name, state in cluster.nodes.items():
        for incident in state.record.incidents:
            if incident.state is not IncidentState.RELEASED:
                found.setdefault(incident.role, set()).add(name)
    return found


def failure_groups(cluster: Cluster) -> set[str]:
    """Return the names of the failure groups on the nodes."""
    return {
        i.failure_group
        for s in cluster.nodes.values()
        for i in s.record.incidents
        if i.failure_group is not None
    }


def labels(cluster: Cluster) -> dict[str | None, int]:
    """Return the number of nodes by health label."""
    found: dict[str | None, int] = {}
    for state in cluster.nodes.values():
        found[state.as_read.health] = found.get(state.as_read.health, 0) + 1
    return found


def gpu_fleet(size: int) -> Cluster:
    """A fleet under the built-in rules."""
    return Cluster(fleet(size), RULES)
