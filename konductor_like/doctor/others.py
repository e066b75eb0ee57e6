"""Other tools that drain, reboot or delete nodes, and how each meets the controller's taint. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from konductor_like.doctor.facts import Workload
from konductor_like.model import TAINT_KEY


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that acts on nodes, and the traces by which it is found."""

    name: str
    does: str
    """What it does with a node that the controller tainted, as a sentence for people."""
    words: tuple[str, ...] = ()
    """Parts of the names or images of its DaemonSet or Deployment."""
    groups: tuple[str, ...] = ()
    """Its API groups."""
    taints: tuple[str, ...] = ()
    """Beginnings of the keys of its taints."""
    harmless: str = ""
    """An argument with which it leaves the controller's taint alone; ``*`` if it always does."""


TOOLS = (
    Tool(
        "cluster-autoscaler",
        f"does not scale up unless it has the argument --status-taint={TAINT_KEY}; may delete a tainted node "
        "that is empty",
        words=("cluster-autoscaler",),
        taints=("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"),
        harmless=f"--status-taint={TAINT_KEY}",
    ),
    Tool(
        "Karpenter",
        "may delete a tainted node that is empty; its node repair deletes nodes by conditions",
        words=("karpenter",),
        groups=("karpenter.sh",),
        taints=("karpenter.sh/",),
    ),
    Tool("draino", "drains nodes by their conditions", words=("draino",)),
    Tool(
        "NodeHealthCheck",
        "reboots or replaces nodes by their conditions",
        words=("node-healthcheck", "self-node-remediation"),
        groups=("remediation.medik8s.io",),
        taints=("medik8s.io/",),
    ),
    Tool(
        "NVSentinel",
        "cordons, drains and reboots nodes for the same Xids; let one of the two tools act",
        words=("nvsentinel",),
        groups=("janitor.dgxc.nvidia.com",),
    ),
    Tool(
        "MachineHealthCheck",
        "deletes machines by their conditions",
        groups=("cluster.x-k8s.io", "machine.openshift.io"),
    ),
    Tool(
        "EKS node agent",
        "writes AcceleratedHardwareReady, by which EKS and Karpenter repair nodes",
        words=("eks-node-monitoring-agent",),
    ),
    Tool("kured", "drains and reboots nodes, also tainted nodes with jobs", words=("kured",)),
    Tool(
        "descheduler",
        "evicts running jobs from tainted nodes if RemovePodsViolatingNodeTaints is on",
        words=("descheduler",),
    ),
    Tool("node-problem-detector", "only reports conditions", words=("node-problem-detector",), harmless="*"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A tool of this cluster."""

    tool: Tool
    trace: str
    """By what it was found: ``Deployment kube-system/cluster-autoscaler``."""
    harmless: bool = False


def tools_in(
    workloads: Iterable[Workload], groups: Collection[str], taints: Collection[tuple[str, str]]
) -> list[Found]:
    """Return the known tools; ``taints`` are pairs of a key and the node that has it."""
    known = list(workloads)
    found = [_found(tool, known, groups, taints) for tool in TOOLS]
    return [each for each in found if each is not None]


def _found(
    tool: Tool, workloads: list[Workload], groups: Collection[str], taints: Collection[tuple[str, str]]
) -> Found | None:
    for each in workloads:
        if any(word in text for word in tool.words for text in (each.name, *each.images)):
            harmless = tool.harmless == "*" or (bool(tool.harmless) and tool.harmless in each.arguments)
            return Found(tool, f"{each.namespace}/{each.name}", harmless)
    for group in tool.groups:
        if group in groups:
            return Found(tool, f"API group {group}", tool.harmless == "*")
    for key, node in taints:
        if key.startswith(tool.taints):
            return Found(tool, f"taint {key} on {node}", tool.harmless == "*")
    return None
