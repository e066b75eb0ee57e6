"""The made-up jobs of a fleet: training jobs that take whole nodes, as pods on the nodes' GPUs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NAMESPACE = "training"
LABEL = "training.kubeflow.org/job-name"
NODES_MOST = 64
"""Nodes of the largest job."""
_NAMES = ("llama-70b", "mixtral-8x22b", "video-diffusion", "speech-large", "code-34b", "protein-fold", "eval")
_BUSY_PERCENT = 85
NCCL_ERROR = (
    "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, "
    "remote process exited or there was a network error, NCCL version 2.27.5"
)
"""What a rank of a job prints when another rank has died; found as ``nccl.remote_error``."""


@dataclass(frozen=True, slots=True)
class Job:
    """A PyTorchJob with one pod on each of its nodes."""

    name: str
    nodes: tuple[str, ...]

    def pod_name(self, node: str) -> str:
        """Return the name of the job's pod on a node of the job."""
        return f"{self.name}-worker-{self.nodes.index(node)}"

    def pod(self, node: str, phase: str = "Running") -> dict[str, Any]:
        """Return the job's pod on a node of the job, with all eight GPUs."""
        uid = hashlib.sha256(self.name.encode()).hexdigest()[:12]
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": self.name, "uid": uid}
        limits = {"limits": {"nvidia.com/gpu": "8"}}
        return {
            "metadata": {
                "namespace": NAMESPACE,
                "name": self.pod_name(node),
                "labels": {LABEL: self.name},
                "ownerReferences": [owner | {"controller": True}],
            },
            "spec": {"nodeName": node, "containers": [{"name": "pytorch", "resources": limits}]},
            "status": {"phase": phase},
        }


def jobs_on(nodes: Sequence[str]) -> list[Job]:
    """Return the jobs of a fleet, in the order of its nodes.

    The largest job takes at most a quarter of the nodes, and the last nodes stay idle.
    """
    largest = min(NODES_MOST, len(nodes) // 4)
    busy = len(nodes) * _BUSY_PERCENT // 100
    begin, number, jobs = 0, 0, list[Job]()
    while begin < busy:
        size = min(max(1, largest >> number % 4), busy - begin)
        names, run = nodes[begin : begin + size], number // len(_NAMES)
        name = _NAMES[number % len(_NAMES)]
        jobs.append(Job(f"{name}-run{run + 1}" if run else name, tuple(names)))
        begin, number = begin + size, number + 1
    return jobs
