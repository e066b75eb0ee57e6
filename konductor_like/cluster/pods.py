"""The jobs whose pods run on one node, as the API server tells.

Their labels and their controllers say it, so that no right to read the owners is needed: the pods of Job,
JobSet, Kubeflow, Ray, Kueue, LeaderWorkerSet, StatefulSet and Deployment all carry the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from konductor_like.cluster import paths
from konductor_like.cluster.client import ReadOnlyKubeClient
from konductor_like.cluster.errors import KubeBadAnswer
from konductor_like.cluster.times import moment_of
from konductor_like.jobs import job_of_pod

ENDED_SECONDS = 300.0
"""A pod that ended no longer ago than this may be what a line of now is about."""
PODS_MOST = 500
"""Of one node; kubelets take 110 unless told otherwise."""
_GPU = ("nvidia.com/", "amd.com/gpu")


@dataclass(frozen=True, slots=True)
class NodeJobs:
    """What one node's pods are part of."""

    jobs: frozenset[str]
    """The jobs that have a GPU of the node, ``namespace/Kind/name``."""
    pods: Mapping[str, str]
    """By pod, ``namespace/name``, the job that it is of; empty for a DaemonSet's, which is of none."""


def jobs_on(client: ReadOnlyKubeClient, node: str, now: datetime) -> NodeJobs:
    """Ask once. Raises a KubeError.

    The answer comes out of the API server's cache (``resourceVersion=0``), which knows pods by their node.
    """
    page = client.list(paths.PODS, {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"})
    pods = [pod for pod in page["items"][:PODS_MOST] if isinstance(pod, dict)]
    try:
        return _jobs_of(pods, now - timedelta(seconds=ENDED_SECONDS))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise KubeBadAnswer(f"cannot list pods of node {node}: a pod is not as it should be") from error


def _jobs_of(pods: Iterable[Mapping[str, Any]], since: datetime) -> NodeJobs:
    jobs: set[str] = set()
    named: dict[str, str] = {}
    for pod in pods:
        meta, spec = pod["metadata"], pod.get("spec") or {}
        owners = [
            (str(owner["kind"]), str(owner["name"]))
            for owner in meta.get("ownerReferences") or ()
            if owner.get("controller")
        ]
        job = job_of_pod(meta.get("labels") or {}, owners, str(meta["namespace"]), str(meta["name"]))
        named[f"{meta['namespace']}/{meta['name']}"] = job or ""
        if job and _has_gpu(spec) and not _ended_before(pod.get("status") or {}, since):
            jobs.add(job)
    return NodeJobs(frozenset(jobs), named)


def _has_gpu(spec: Mapping[str, Any]) -> bool:
    if spec.get("resourceClaims"):
        return True
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    limits = ((each.get("resources") or {}).get("limits") or {} for each in containers)
    return any(name.startswith(_GPU) for each in limits for name in each)


def _ended_before(status: Mapping[str, Any], since: datetime) -> bool:
    if status.get("phase") not in ("Succeeded", "Failed"):
        return False
    ended = [
        moment_of(str(finished))
        for container in status.get("containerStatuses") or ()
        if (finished := ((container.get("state") or {}).get("terminated") or {}).get("finishedAt"))
    ]
    return bool(ended) and max(ended) < since
