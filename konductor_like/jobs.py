"""The job that a pod belongs to, as ``namespace/Kind/name``. Pure.

By the labels that a collector or the API server has, else by the pod's name: a job's pods differ in numbers,
roles and the random ends that Kubernetes gives them. Both ways lead to the same name, if not always the kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

_KINDS = (
    # The outermost owner first. On the left the end of a label's name, its odd characters as underscores: of
    # the API's own (jobset.sigs.k8s.io/jobset-name) as of those that our collector values give (jobset_name).
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
"""A pod of every node is of no job, and must not make one event of what has nothing to do with each other."""
_NOT_ALPHANUMERIC = re.compile(r"[^a-zA-Z0-9]")
_INVALID_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]")
"""No name of an object or value of a label has these; whoever writes to Loki might."""
_ROLES = frozenset(
    {
        *("master", "worker", "workers", "launcher", "head", "leader", "node", "ps", "chief", "driver"),
        *("executor", "exec", "evaluator", "rank"),
    }
)
# Kubernetes' random ends have no vowels and none of 0, 1 and 3: five characters, or a ReplicaSet's hash.
_RANDOM = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}|(?=.*\d)[bcdfghjklmnpqrstvwxz2456789]{8,10}")
_NAME_CHARS_MOST = 120
BY_NAME = "Pod"
"""The kind of a job that is only known by the name of a pod."""


def job_of(labels: Mapping[str, str], namespace: str | None, pod: str | None) -> str | None:
    """The job of a pod, by its labels or its name; None where neither says anything, and of a DaemonSet's."""
    if _is_of_a_daemon_set(tuple(labels)):
        return None
    return _by_label(labels, namespace) or (_job(namespace, BY_NAME, stem(pod)) if pod else None)


def job_of_pod(
    labels: Mapping[str, str], owners: Iterable[tuple[str, str]], namespace: str, pod: str
) -> str | None:
    """The job of a pod as the API server shows it, ``owners`` being its controllers as (kind, name).

    None for the pods that are every node's own: a DaemonSet's and the kubelet's.
    """
    owner = top_owner(owners)
    if owner is not None and owner[0] in ("DaemonSet", "Node"):
        return None
    if (job := _by_label(labels, namespace)) is not None or owner is None:
        return job or _job(namespace, BY_NAME, stem(pod))
    return _job(namespace, *owner)


def by_name(job: str | None) -> bool:
    """Whether a job is known by its pods' names alone, which may be wrong."""
    return job is not None and job.split("/")[1:2] == [BY_NAME]


def stem(pod: str) -> str:
    """What the names of a job's pods have in common: ``llama-worker-0`` is of ``llama``."""
    parts = pod.split("-")
    if len(parts) > 1 and _RANDOM.fullmatch(parts[-1]):
        parts.pop()
        if len(parts) > 1 and _RANDOM.fullmatch(parts[-1]):
            parts.pop()
    while len(parts) > 1 and (parts[-1].isdecimal() or parts[-1] in _ROLES):
        parts.pop()
    return "-".join(parts)


def top_owner(owners: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """Of a pod's controllers, as (kind, name), the one it was made for; a ReplicaSet is its Deployment's."""
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
    """Which of these labels name a job, the outermost first; lines of one stream all have the same labels."""
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
    """What is the same of a job however its kind became known: namespace and name."""
    parts = job.split("/")
    return f"{parts[0]}//{parts[2]}" if len(parts) == 3 else job
