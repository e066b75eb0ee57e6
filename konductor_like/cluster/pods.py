"""The jobs whose pods run on one node, as the API server knows them.

Their labels and controllers name the job, so that no right to read the owners is needed: the pods of Job,
JobSet, Kubeflow, Ray, Kueue, LeaderWorkerSet, StatefulSet and Deployment all carry the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from konductor_like.cluster.client import PODS_PATH, ReadOnlyKubeClient
from konductor_like.jobs import job_of_pod
from konductor_like.model.time import moment_of_text

ENDED_SECONDS = 300.0
"""A pod that ended no longer ago than this may be what a line of now is about."""
PODS_MOST = 500
"""Of one node; kubelets take 110 by default."""
POD_BYTES = 10 << 20
"""etcd takes 1.5 MiB, and JSON escapes make six bytes of one: no pod is larger."""
RUNNING_BYTES = 64 << 20
OTHERS_BYTES = 4 << 20
"""Some 500 pods that have ended: nodes of batch jobs keep thousands, and few are of the last minutes."""
_GPU = ("nvidia.com/", "amd.com/gpu")


@dataclass(frozen=True, slots=True)
class NodeJobs:
    """What one node's pods are part of."""

    jobs: frozenset[str]
    """The jobs that have a GPU of the node, ``namespace/Kind/name``."""
    pods: Mapping[str, str]
    """By pod, ``namespace/name``, the job that it is of; empty for a DaemonSet's, which is of none."""
    complete: bool = True
    """Whether all running pods were read."""


def jobs_on(client: ReadOnlyKubeClient, node: str, now: datetime) -> NodeJobs:
    """Ask for the running pods, then for the others as far as they fit. Raises a KubeError.

    The answers come out of the API server's cache (``resourceVersion=0``), which knows pods by their node,
    and has no pages. They are read pod by pod: a thousand of 1.4 MB take no more memory than one.
    """
    found = _Found(now - timedelta(seconds=ENDED_SECONDS))

    def scan(phase: str, total_bytes: int) -> bool:
        params = {"fieldSelector": f"spec.nodeName={node},status.phase{phase}", "resourceVersion": "0"}
        return client.scan(PODS_PATH, found.take, params, object_bytes=POD_BYTES, total_bytes=total_bytes)

    complete = scan("=Running", RUNNING_BYTES)
    scan("!=Running", OTHERS_BYTES)
    return NodeJobs(frozenset(found.jobs), found.pods, complete)


class _Found:
    """The jobs and pods seen so far, the first ``PODS_MOST`` of them."""

    def __init__(self, ended_since: datetime) -> None:
        self.jobs: set[str] = set()
        self.pods: dict[str, str] = {}
        self._ended_since = ended_since

    def take(self, pod: Mapping[str, Any]) -> None:
        """Note one more. Raises ValueError."""
        if len(self.pods) >= PODS_MOST:
            return
        try:
            self._take(pod)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError("a pod is not as it should be") from error

    def _take(self, pod: Mapping[str, Any]) -> None:
        meta, spec = pod["metadata"], pod.get("spec") or {}
        owners = [
            (str(owner["kind"]), str(owner["name"]))
            for owner in meta.get("ownerReferences") or ()
            if owner.get("controller")
        ]
        job = job_of_pod(meta.get("labels") or {}, owners, str(meta["namespace"]), str(meta["name"]))
        self.pods[f"{meta['namespace']}/{meta['name']}"] = job or ""
        if job and _has_gpu(spec) and not _ended_before(pod.get("status") or {}, self._ended_since):
            self.jobs.add(job)


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
        moment_of_text(str(finished))
        for container in status.get("containerStatuses") or ()
        if (finished := ((container.get("state") or {}).get("terminated") or {}).get("finishedAt"))
    ]
    return bool(ended) and max(ended) < since
