"""The job that a pod belongs to, as ``namespace/Kind/name``. Pure.

The labels from a collector or the API server name the job. Without them, the pod's name does: the names of a
job's pods differ only in numbers, roles and Kubernetes' random suffixes. Both give the same name, but the
kind may differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

_KINDS = (
    # The outermost owner first. On the left, the end of a label's name with other characters as underscores;
    # it fits the API's names (jobset.sigs.k8s.io/jobset-name) and those of our collector values
    # (jobset_name).
    ("kueue_x_k8s_io_pod_group_name", "Workload"),
    ("kueue_pod_group_name", "Workload"),
    ("jobset_sigs_k8s_io_jobset_name", "JobSet"),
    ("jobset_name", "JobSet"),
    ("training_kubeflow_org_job_name", "PyTorchJob"),
    ("kubeflow_job_name", "PyTorchJob"),
    ("ray_io_cluster", "RayCluster"),
    ("ray_cluster_name", "RayCluster"),
    ("volcano_sh_job_name", "VolcanoJob"),
    ("volcano_job_name", "VolcanoJob"),
    ("leaderworkerset_sigs_k8s_io_name", "LeaderWorkerSet"),
    ("leaderworkerset_name", "LeaderWorkerSet"),
    ("slurm_job_id", "SlurmJob"),
    ("scheduler_slinky_slurm_net_slurm_jobid", "SlurmJob"),
    ("batch_kubernetes_io_job_name", "Job"),
    ("k8s_job_name", "Job"),
    ("k8s_statefulset_name", "StatefulSet"),
    ("k8s_deployment_name", "Deployment"),
)
_DAEMON_SET = "k8s_daemonset_name"
"""Label of a DaemonSet's pods: they run on every node and have no job, else they would join unrelated
failures."""
_NOT_ALPHANUMERIC = re.compile(r"[^a-zA-Z0-9]")
_INVALID_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]")
"""Characters that no name of an object and no label value has; a line in Loki might."""
_ROLES = frozenset(
    {
        *("master", "worker", "workers", "launcher", "head", "leader", "node", "ps", "chief", "driver"),
        *("executor", "exec", "evaluator", "rank"),
    }
)
# Kubernetes' random suffixes have no vowels and no 0, 1 or 3: five characters, or a ReplicaSet's hash.
_RANDOM = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}|(?=.*\d)[bcdfghjklmnpqrstvwxz2456789]{8,10}")
_NAME_CHARS_MOST = 120
BY_NAME = "Pod"
"""Kind of a job that is known only by the names of its pods."""


def job_of(labels: Mapping[str, str], namespace: str | None, pod: str | None) -> str | None:
    """Return a pod's job by its labels or its name; None if neither names one, and for a DaemonSet's pod."""
    if _is_of_a_daemon_set(tuple(labels)):
        return None
    return _by_label(labels, namespace) or (_job(namespace, BY_NAME, stem(pod)) if pod else None)


def job_of_pod(
    labels: Mapping[str, str], owners: Iterable[tuple[str, str]], namespace: str, pod: str
) -> str | None:
    """Return a pod's job from the API server's data; ``owners`` are its controllers as (kind, name).

    None for pods that run on every node: a DaemonSet's and the kubelet's.
    """
    owner = top_owner(owners)
    if owner is not None and owner[0] in ("DaemonSet", "Node"):
        return None
    if (job := _by_label(labels, namespace)) is not None or owner is None:
        return job or _job(namespace, BY_NAME, stem(pod))
    return _job(namespace, *owner)


def by_name(job: str | None) -> bool:
    """Whether a job is known only by its pods' names; the name may be wrong."""
    return job is not None and job.split("/")[1:2] == [BY_NAME]


def stem(pod: str) -> str:
    """Return the part that the names of a job's pods share: ``llama`` for ``llama-worker-0``."""
    parts = pod.split("-")
    if len(parts) > 1 and _RANDOM.fullmatch(parts[-1]):
        parts.pop()
        if len(parts) > 1 and _RANDOM.fullmatch(parts[-1]):
            parts.pop()
    while len(parts) > 1 and (parts[-1].isdecimal() or parts[-1] in _ROLES):
        parts.pop()
    return "-".join(parts)


def top_owner(owners: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the controller, as (kind, name), that a pod was made for; for a ReplicaSet its Deployment."""
    for kind, name in owners:
        if kind == "ReplicaSet":
            return "Deployment", name.rpartition("-")[0] or name
        return kind, name
    return None


def _by_label(labels: Mapping[str, str], namespace: str | None) -> str | None:
    for label, kind in _job_labels(tuple(labels)):
        if labels[label]:
            return _job(namespace, kind, labels[label])
    return None


@lru_cache(maxsize=1024)
def _job_labels(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the labels that name a job, the outermost owner first; a stream's lines share the result."""
    found = []
    for end, kind in _KINDS:
        for name in names:
            plain = _NOT_ALPHANUMERIC.sub("_", name).lower()
            if plain == end or plain.endswith(f"_{end}"):
                found.append((name, kind))
    return tuple(found)


@lru_cache(maxsize=1024)
def _is_of_a_daemon_set(labels: tuple[str, ...]) -> bool:
    return any(_NOT_ALPHANUMERIC.sub("_", label).lower().endswith(_DAEMON_SET) for label in labels)


def _job(namespace: str | None, kind: str, name: str) -> str:
    return f"{namespace or ''}/{kind}/{_INVALID_IN_NAMES.sub('_', name)}"[:_NAME_CHARS_MOST]


@lru_cache(maxsize=16_384)
def job_key(job: str) -> str:
    """Return namespace and name, which identify a job, however its kind became known."""
    parts = job.split("/")
    return f"{parts[0]}//{parts[2]}" if len(parts) == 3 else job
