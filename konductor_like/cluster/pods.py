"""Find the jobs whose pods run on one node, by asking the API server.

A pod's labels and owner references name its job, so that we need no permission to read the owners: it is so
for Job, JobSet, Kubeflow, Ray, Kueue, LeaderWorkerSet, StatefulSet and Deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from konductor_like.cluster.api.client import PODS_PATH, ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeBadAnswer
from konductor_like.jobs import BY_NAME, by_name, job_of_pod
from konductor_like.model.text import listed
from konductor_like.model.time import moment_of, moment_of_text

ENDED_SECONDS = 300.0
"""Seconds after a pod's end in which a new line of the log may still be about the pod."""
PODS_MOST = 500
"""Pods of one node, at most; a kubelet accepts 110 by default."""
POD_BYTES = 10 << 20
"""Bytes of one pod, at most: etcd accepts 1.5 MiB, and JSON escapes may make six bytes of one."""
RUNNING_BYTES = 64 << 20
"""Bytes of the answer with the running pods that are read, at most."""
OTHERS_BYTES = 4 << 20
"""Bytes of the answer with the other pods that are read, at most: about 500 pods. A node of batch jobs may
have thousands that ended, few of them in the last minutes."""
_OWNER_CHARS = 300
"""Characters of a field of an owner, at most. The API server does not check the names of owners."""
_GPU = ("nvidia.com/", "amd.com/gpu")


class Owner(NamedTuple):
    """The controller of a pod, as the pod's owner references name it; for a pod without one, the pod."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class NodeJobs:
    """The jobs of one node's pods."""

    jobs: frozenset[str]
    """The jobs with a GPU of the node, as ``namespace/Kind/name``."""
    pods: Mapping[str, str]
    """The job of each pod, by ``namespace/name``; empty for a pod without a job, such as a DaemonSet's."""
    complete: bool = True
    """Whether all running pods were read."""
    owners: tuple[Owner, ...] = ()
    """The owners of the pods of ``jobs``, each once, in the order of the pods."""
    names: frozenset[str] = frozenset()
    """``jobs`` for people: each pod by its full name, if only the names of its pods name the job."""


def jobs_on(client: ReadOnlyKubeClient, node: str, now: datetime) -> NodeJobs:
    """List the node's running pods, then its other pods, and return their jobs. Raises a KubeError.

    The API server answers from its cache (``resourceVersion=0``), which has an index by node, but no pages.
    The answers are read pod by pod: a thousand pods of 1.4 MB take no more memory than one.
    """
    found = _Found(now - timedelta(seconds=ENDED_SECONDS))
    complete = _scan(client, node, "=Running", found, RUNNING_BYTES)
    _scan(client, node, "!=Running", found, OTHERS_BYTES)
    return NodeJobs(frozenset(found.jobs), found.pods, complete, tuple(found.owners), frozenset(found.names))


def jobs_now(client: ReadOnlyKubeClient, node: str) -> tuple[str, ...]:
    """List the node's running pods, as :func:`jobs_on` does, and return the jobs with a GPU of the node.

    The jobs are sorted, and by name for people (:attr:`NodeJobs.names`). Raises a KubeError.
    """
    found = _Found(moment_of(0))
    _scan(client, node, "=Running", found, RUNNING_BYTES)
    return tuple(sorted(found.names))


def gpu_users(client: ReadOnlyKubeClient, node: str) -> str:
    """Return the pods that hold GPUs of the node, in words; empty for none. Raises a KubeError.

    A pod that has not started yet holds its GPUs, too, and so does one that does not end, such as the pod of
    an earlier validation. An answer that cannot be read to its end is an error: it must not pass as none.
    """
    found: list[str] = []

    def take(pod: Mapping[str, Any]) -> None:
        try:
            meta = pod["metadata"]
            if _has_gpu(pod["spec"]):
                found.append(f"{meta['namespace']}/{meta['name']}")
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError("a pod in the list is malformed") from error

    phases = "status.phase!=Succeeded,status.phase!=Failed"
    params = {"fieldSelector": f"spec.nodeName={node},{phases}", "resourceVersion": "0"}
    if not client.scan(PODS_PATH, take, params, object_bytes=POD_BYTES, total_bytes=RUNNING_BYTES):
        raise KubeBadAnswer(f"cannot list the pods of {node}: they are too large")
    return listed(sorted(found), 2)


def _scan(client: ReadOnlyKubeClient, node: str, phase: str, found: _Found, total_bytes: int) -> bool:
    """Add the node's pods of this phase; return whether all were read."""
    params = {"fieldSelector": f"spec.nodeName={node},status.phase{phase}", "resourceVersion": "0"}
    return client.scan(PODS_PATH, found.take, params, object_bytes=POD_BYTES, total_bytes=total_bytes)


class _Found:
    """The jobs and pods of the first ``PODS_MOST`` pods."""

    def __init__(self, ended_since: datetime) -> None:
        self.jobs: set[str] = set()
        self.names: set[str] = set()
        self.pods: dict[str, str] = {}
        self.owners: dict[Owner, None] = {}
        self._ended_since = ended_since

    def take(self, pod: Mapping[str, Any]) -> None:
        """Add a pod. Raises ValueError if the pod is malformed."""
        if len(self.pods) >= PODS_MOST:
            return
        try:
            self._take(pod)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError("a pod in the list is malformed") from error

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
            self.names.add(f"{meta['namespace']}/{BY_NAME}/{meta['name']}" if by_name(job) else job)
            owner = _owner(meta)
            if all(0 < len(field) <= _OWNER_CHARS for field in owner):
                self.owners[owner] = None


def _owner(meta: Mapping[str, Any]) -> Owner:
    """Return the owner of a pod; a field that is missing is empty."""
    references = [each for each in meta.get("ownerReferences") or () if each.get("controller")]
    found = references[0] if references else {"apiVersion": "v1", "kind": "Pod", **meta}
    api_version, kind, name, uid = (str(found.get(key, "")) for key in ("apiVersion", "kind", "name", "uid"))
    return Owner(api_version, kind, str(meta["namespace"]), name, uid)


def _has_gpu(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("resourceClaims")) or asks_plugin_for_gpu(spec)


def asks_plugin_for_gpu(spec: Mapping[str, Any]) -> bool:
    """Whether a pod asks for a GPU of a device plugin."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    limits = ((each.get("resources") or {}).get("limits") or {} for each in containers)
    return any(resource.startswith(_GPU) for limit in limits for resource in limit)


def _ended_before(status: Mapping[str, Any], since: datetime) -> bool:
    if status.get("phase") not in ("Succeeded", "Failed"):
        return False
    ended = [
        moment_of_text(str(finished))
        for container in status.get("containerStatuses") or ()
        if (finished := ((container.get("state") or {}).get("terminated") or {}).get("finishedAt"))
    ]
    return bool(ended) and max(ended) < since
