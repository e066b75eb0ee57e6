"""The Jobs that validate nodes: build, create, find and delete them, and read their pods.

The name of a Job follows from its attempt, so that a create whose answer was lost makes no second Job. Only
the controller creates anything in this namespace, and a pod counts only if it is owned by the Job's UID: no
other pod can forge a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from konductor_like.cluster.api.client import KubeClient, events_path, jobs_path, pods_path
from konductor_like.cluster.api.errors import KubeConflict, KubeError, KubeForbidden, KubeNotFound
from konductor_like.cluster.api.transport import JsonObject
from konductor_like.cluster.validation_seen import (
    ATTEMPT_LABEL,
    NODE_ANNOTATION,
    NODE_UID_ANNOTATION,
    SeenJob,
    SeenPod,
    seen_job,
    seen_pod,
)
from konductor_like.model.nodes import TAINT_KEY, Taint
from konductor_like.model.text import excerpt, listed
from konductor_like.model.validation import DEADLINES_SECONDS
from konductor_like.settings import Settings

MANAGED_BY_LABEL, MANAGED_BY = "app.kubernetes.io/managed-by", "konductor-like"
INSTANCE_LABEL = "trainy.konduktor.ai/instance"
"""The label with the namespace of the controller: several controllers may share the Jobs' namespace."""
PRIORITY_CLASS = "konductor-like-validation"
"""The PriorityClass of ``manifests/validation.yaml``: below all, so that any other pod displaces ours."""
CONTAINER = "validation"
GPU_RESOURCE = "nvidia.com/gpu"
_GRACE_SECONDS = 5
"""A gang of pods that displaces several of ours waits for all of them."""
_JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
_FAILED_CREATE = "FailedCreate"


@dataclass(frozen=True, slots=True)
class Order:
    """One attempt to validate one node."""

    attempt: str
    """Its random name; it is part of the Job's name, so lower-case letters, digits and ``-``."""
    node: str
    node_uid: str
    level: int
    """Of ``dcgmi diag``: one of :data:`konductor_like.model.validation.LEVELS`."""
    gpus: int
    """All allocatable GPUs of the node."""


def job_name(attempt: str) -> str:
    """Return the name of an attempt's Job."""
    return f"validation-{attempt}"


def job_body(order: Order, settings: Settings, instance: str) -> JsonObject:
    """Return the Job of an attempt. ``instance`` is the controller's namespace."""
    labels = {MANAGED_BY_LABEL: MANAGED_BY, INSTANCE_LABEL: instance, ATTEMPT_LABEL: order.attempt}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(order.attempt),
            "namespace": settings.validation_namespace,
            "labels": labels,
            "annotations": {NODE_ANNOTATION: order.node, NODE_UID_ANNOTATION: order.node_uid},
        },
        "spec": {
            "backoffLimit": 0,  # one attempt is one pod
            "activeDeadlineSeconds": DEADLINES_SECONDS[order.level],
            # No ttlSecondsAfterFinished: the Job must stay until its result is on the record.
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(order, settings)},
        },
    }


def _pod_spec(order: Order, settings: Settings) -> JsonObject:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": PRIORITY_CLASS,
        # The class says this, too, and admission copies it from there. If somebody's class of this name may
        # preempt, then admission refuses the pod, because the two differ: no pod of ours displaces a job.
        "preemptionPolicy": "Never",
        "affinity": {"nodeAffinity": _only(order.node)},
        "tolerations": _tolerations(settings),
        # The user is the image's, root in DCGM's. Pod Security "baseline" admits all of this.
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(order, settings)],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }


def _only(node: str) -> JsonObject:
    """Return the affinity to one node by its name.

    With ``spec.nodeName`` instead, the scheduler would reserve no GPUs, and the pod would run beside a job.
    """
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def _tolerations(settings: Settings) -> list[JsonObject]:
    """Return the tolerations of our taint and of the listed keys; a cordon is tolerated only if listed."""
    ours = {"key": TAINT_KEY, "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    return [ours, *({"key": key, "operator": "Exists"} for key in _tolerated_keys(settings))]


def _tolerated_keys(settings: Settings) -> Mapping[str, None]:
    return dict.fromkeys((GPU_RESOURCE, *settings.validation_tolerations))


def _container(order: Order, settings: Settings) -> JsonObject:
    gpus = {GPU_RESOURCE: str(order.gpus)}
    environment = {
        "KL_ATTEMPT": order.attempt,
        "KL_LEVEL": str(order.level),
        "KL_GPUS": str(order.gpus),
        "KL_COMMAND": _unexpanded(settings.validation_command),
    }
    return {
        "name": CONTAINER,
        "image": settings.validation_image,
        "command": ["/bin/sh", "-c", _unexpanded(script())],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": {"requests": gpus, "limits": gpus},
        "securityContext": {"privileged": False, "allowPrivilegeEscalation": False},
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 -- NCCL's place, no file of ours
    }


def _unexpanded(text: str) -> str:
    """Return a text that the kubelet turns into ``text``.

    In commands and values the kubelet makes ``$$`` one dollar, and expands ``$(NAME)`` by the environment.
    """
    return text.replace("$", "$$")


@cache
def script() -> str:
    """Return the program of a validation, for the image's shell."""
    return (files("konductor_like.cluster") / "validation.sh").read_text("utf-8")


class ValidationClient:
    """The Jobs of one controller, and their pods. All methods raise KubeErrors."""

    def __init__(self, client: KubeClient, settings: Settings, instance: str) -> None:
        """``instance`` is the controller's namespace."""
        self._client = client
        self._settings = settings
        self._instance = instance
        self._jobs = jobs_path(settings.validation_namespace)

    def jobs(self) -> list[SeenJob]:
        """Return all our Jobs. One that somebody mutilated, so that it names no attempt, is left out."""
        selector = f"{MANAGED_BY_LABEL}={MANAGED_BY},{INSTANCE_LABEL}={self._instance}"
        found = self._client.list_pages(self._jobs, seen_job, {"labelSelector": selector}).items
        return [job for job in found if job is not None]

    def create(self, order: Order, timeout_seconds: float | None = None) -> SeenJob:
        """Create the Job of an attempt, or adopt the one that an earlier call made.

        Nothing is sent after ``timeout_seconds``. Raises KubeConflict if another Job has the name.
        """
        body = job_body(order, self._settings, self._instance)
        try:
            made = self._client.create(self._jobs, body, timeout_seconds)
        except KubeConflict as conflict:
            try:
                made = self._client.get(
                    jobs_path(self._settings.validation_namespace, job_name(order.attempt))
                )
            except KubeNotFound:
                raise conflict from None
            if not _same(made, body):
                raise conflict from None
        job = seen_job(made)
        if job is None:
            raise KubeError(f"the API server altered the Job {job_name(order.attempt)}: its labels are gone")
        return job

    def delete(self, job: SeenJob, timeout_seconds: float | None = None) -> None:
        """Delete this Job and its pod; nothing if the Job is gone, or another one has its name.

        Nothing is sent after ``timeout_seconds``.
        """
        path = jobs_path(self._settings.validation_namespace, job.name)
        # The API's default for Jobs leaves the pods running.
        options = {"preconditions": {"uid": job.uid}, "propagationPolicy": "Background"}
        try:
            self._client.delete(path, options, timeout_seconds)
        except (KubeNotFound, KubeConflict):
            return

    def pod(self, job: SeenJob) -> SeenPod | None:
        """Return the pod that this Job owns, the newest if there are several; None without one."""
        params = {"labelSelector": f"{_JOB_NAME_LABEL}={job.name}"}
        pods = self._client.list_pages(pods_path(self._settings.validation_namespace), dict, params).items
        owned = [seen_pod(pod, CONTAINER) for pod in pods if _owned_by(pod, job.uid)]
        return max(owned, key=lambda pod: pod.created, default=None)

    def log(self, pod: SeenPod, limit_bytes: int) -> bytes:
        """Return the first ``limit_bytes`` of the log of the pod's container, undecoded."""
        path = f"{pods_path(self._settings.validation_namespace, pod.name)}/log"
        params = {"container": CONTAINER, "limitBytes": str(limit_bytes)}
        return self._client.get_bytes(path, params, limit_bytes)

    def untolerated(self, taints: Iterable[Taint]) -> str:
        """Return the taints that keep a validation's pod away, in words: ``team=a:NoSchedule``.

        The scheduler of Kubernetes 1.36 says that there is one, and not which.
        """
        tolerated = _tolerated_keys(self._settings)
        away = [
            f"{each.key}={each.value}:{each.effect}" if each.value else f"{each.key}:{each.effect}"
            for each in taints
            if not each.ours and each.effect != "PreferNoSchedule" and each.key not in tolerated
        ]
        return listed(away, 3)

    def refusal(self, job: SeenJob) -> str:
        """Return why the API server refuses the Job's pod, in its words; empty if it does not say.

        Pod Security, a quota or a missing PriorityClass refuse the pod, not the Job. The Job's status does
        not mention it. Only an Event of the Job controller does.
        """
        selector = f"involvedObject.uid={job.uid},reason={_FAILED_CREATE}"
        path = events_path(self._settings.validation_namespace)
        try:
            events = self._client.list_pages(path, dict, {"fieldSelector": selector}).items
        except KubeForbidden:  # without this right, the Job says only that it has no pod
            return ""
        latest = max(events, key=_at, default={})
        return excerpt(str(latest.get("message") or "").removeprefix("Error creating: "))


def _same(made: JsonObject, wanted: JsonObject) -> bool:
    """Whether a Job is the one that ``wanted`` asks for: of this controller, attempt and machine."""
    parts = [
        {**(job["metadata"].get("labels") or {}), **(job["metadata"].get("annotations") or {})}
        for job in (made, wanted)
    ]
    return all(parts[0].get(name) == value for name, value in parts[1].items())


def _owned_by(pod: JsonObject, uid: str) -> bool:
    owners: Sequence[Any] = pod.get("metadata", {}).get("ownerReferences") or ()
    return any(owner.get("uid") == uid and owner.get("controller") is True for owner in owners)


def _at(event: JsonObject) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
