"""Jobs of validations and their pods, as the API server tells them, and why they wait. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from konductor_like.cluster.api.transport import JsonObject, json_object
from konductor_like.model.text import excerpt
from konductor_like.model.time import moment_of, moment_of_text

ATTEMPT_LABEL = "trainy.konduktor.ai/attempt"
NODE_ANNOTATION = "trainy.konduktor.ai/node"
NODE_UID_ANNOTATION = "trainy.konduktor.ai/node-uid"
DEADLINE_EXCEEDED = "DeadlineExceeded"
"""The reason of a Job that took too long. Its pod is deleted, and the pod's log with it."""
_IMAGE_REASONS = ("ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff")
"""They alternate while an image does not come."""
_AROUND_PULL = re.compile(
    r"ErrImagePull: |rpc error: code = \w+ desc = "
    r'|(?:Back-off pulling image|failed to pull and unpack image|failed to resolve reference) "[^"]*": '
)
"""What kubelet and containerd write before the cause."""
_STARTING_REASONS = ("", "ContainerCreating", "PodInitializing")
_ELSEWHERE = re.compile(
    r"\d+ node\(s\) didn't (satisfy plugin\(s\) \[NodeAffinity\]|match Pod's node affinity.*)"
)
"""Words of the scheduler about the other nodes of the cluster."""


@dataclass(frozen=True, slots=True)
class SeenJob:
    """One Job of ours."""

    name: str
    uid: str
    attempt: str
    node: str
    node_uid: str
    created: datetime
    complete: bool = False
    """Whether its program ended with exit status 0."""
    failed: str = ""
    """The reason of its failure, such as ``BackoffLimitExceeded`` or ``DeadlineExceeded``; empty if none."""
    suspended: bool = False
    """Whether somebody, such as Kueue, holds it back."""
    deleting: bool = False

    @property
    def finished(self) -> bool:
        """Whether it has ended; its pod has ended too, or is gone."""
        return self.complete or bool(self.failed)


@dataclass(frozen=True, slots=True)
class SeenPod:
    """The pod of a Job of ours."""

    name: str
    uid: str
    created: datetime
    phase: str = ""
    node: str = ""
    reason: str = ""
    """Of the pod's status: why the kubelet refused or evicted it, such as ``TopologyAffinityError``."""
    message: str = ""
    waiting: str = ""
    """Why it waits: ``Unschedulable``, or a reason of its container such as ``ImagePullBackOff``."""
    waiting_message: str = ""
    ended: str = ""
    """The reason of its container's end, such as ``Completed``, ``Error`` or ``OOMKilled``."""
    exit_code: int | None = None
    termination: str = ""
    """What the program wrote to ``/dev/termination-log``."""
    deleting: bool = False


def seen_job(job: JsonObject) -> SeenJob | None:
    """Read a Job; None if it is malformed or names no attempt."""
    meta, status = json_object(job, "metadata"), json_object(job, "status")
    annotations, attempt = json_object(meta, "annotations"), json_object(meta, "labels").get(ATTEMPT_LABEL)
    if not attempt or not meta.get("name") or not meta.get("uid"):
        return None
    # A Job that is about to fail has the condition FailureTarget before; it has ended once its pods have.
    true = {
        each.get("type"): str(each.get("reason") or each.get("type"))
        for each in status.get("conditions") or ()
        if isinstance(each, dict) and each.get("status") == "True"
    }
    return SeenJob(
        name=str(meta["name"]),
        uid=str(meta["uid"]),
        attempt=str(attempt),
        node=str(annotations.get(NODE_ANNOTATION, "")),
        node_uid=str(annotations.get(NODE_UID_ANNOTATION, "")),
        created=_created(meta),
        complete="Complete" in true,
        failed=true.get("Failed", ""),
        suspended=json_object(job, "spec").get("suspend") is True,
        deleting=bool(meta.get("deletionTimestamp")),
    )


def seen_pod(pod: JsonObject, container: str) -> SeenPod:
    """Read a pod with regard to one of its containers."""
    meta, spec, status = (json_object(pod, part) for part in ("metadata", "spec", "status"))
    state = _state(status, container)
    waiting, ended = json_object(state, "waiting"), json_object(state, "terminated")
    unscheduled: JsonObject = next(
        (
            each
            for each in status.get("conditions") or ()
            if each.get("type") == "PodScheduled" and each.get("status") == "False"
        ),
        {},
    )
    held = waiting or unscheduled
    code = ended.get("exitCode")
    return SeenPod(
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        created=_created(meta),
        phase=str(status.get("phase", "")),
        node=str(spec.get("nodeName") or ""),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        waiting=str(held.get("reason") or ""),
        waiting_message=str(held.get("message") or ""),
        ended=str(ended.get("reason") or ""),
        exit_code=code if isinstance(code, int) else None,
        termination=str(ended.get("message") or ""),
        deleting=bool(meta.get("deletionTimestamp")),
    )


def _state(status: JsonObject, container: str) -> JsonObject:
    for each in status.get("containerStatuses") or ():
        if isinstance(each, dict) and each.get("name") == container:
            return json_object(each, "state")
    return {}


def _created(meta: JsonObject) -> datetime:
    try:
        return moment_of_text(str(meta.get("creationTimestamp")))
    except ValueError:
        return moment_of(0)


def why_waiting(
    pod: SeenPod | None, job: SeenJob, *, refusal: str = "", users: str = "", taints: str = ""
) -> str:
    """Return why a Job's program does not run, or was lost, in words; empty if it runs or has ended itself.

    ``refusal`` is why the API server refuses the pod, ``users`` the pods that use the node's GPUs, ``taints``
    the taints of the node that the pod does not tolerate.
    """
    if job.failed == DEADLINE_EXCEEDED:
        return "it did not end before its deadline, which counts the waits for the GPUs and for the image"
    if pod is None:
        return _why_no_pod(job, refusal)
    if pod.reason:
        return _why_refused(pod)
    if pod.phase != "Pending":
        return ""
    if not pod.node:
        return _why_unscheduled(pod, users, taints)
    if pod.waiting in _STARTING_REASONS:
        return "its container is being created; the image may have to be pulled first"
    if pod.waiting in _PULL_REASONS:
        cause = excerpt(_AROUND_PULL.sub("", pod.waiting_message)) or "ErrImagePull"
        return f"the image KONDUCTOR_VALIDATION_IMAGE does not come ({cause})"
    said = f"{pod.waiting}: {excerpt(pod.waiting_message)}" if pod.waiting_message else pod.waiting
    if pod.waiting in _IMAGE_REASONS:
        return f"the image KONDUCTOR_VALIDATION_IMAGE does not come ({said})"
    return f"its container cannot start ({said})"


def _why_no_pod(job: SeenJob, refusal: str) -> str:
    if job.finished:
        return "its pod is gone: another pod displaced it, somebody deleted it, or its node was deleted"
    if job.suspended:
        return "somebody suspended its Job; let Kueue leave the namespace of validations out"
    if refusal:
        return f"the API server refuses its pod ({refusal})"
    return "its Job has no pod yet"


def _why_refused(pod: SeenPod) -> str:
    said = f"{pod.reason}: {excerpt(pod.message)}" if pod.message else pod.reason
    if pod.reason == "TopologyAffinityError":
        return f"the Topology Manager of the node's kubelet gives no pod all GPUs ({said})"
    return f"the node's kubelet refused or ended its pod ({said})"


def _why_unscheduled(pod: SeenPod, users: str, taints: str) -> str:
    if pod.waiting != "Unschedulable":
        return f"it waits for the scheduler ({pod.waiting})" if pod.waiting else "it waits for the scheduler"
    said = _about_the_node(pod.waiting_message)
    if not said:
        return "the scheduler does not know the node"
    if "Insufficient nvidia.com/gpu" in said:
        held = f": {users}" if users else ""
        return f"other pods hold GPUs of the node{held}, or the node offers fewer GPUs than before"
    if "untolerated taint" in said:
        return (
            f"another taint keeps its pod away ({taints or said}); KONDUCTOR_VALIDATION_TOLERATIONS lists "
            "keys that it tolerates"
        )
    if "unschedulable" in said:
        return "the node is cordoned, which is somebody's claim: kubectl uncordon it"
    return f"the scheduler does not place its pod ({excerpt(said)})"


def _about_the_node(message: str) -> str:
    """Return what the scheduler says about the one node that the pod may run on."""
    reasons = re.sub(r"^\d+/\d+ nodes are available: ", "", message)
    reasons = re.split(r"\.?\s+(?:no new claims to deallocate, )?preemption: ", reasons)[0].rstrip(". ")
    kept = [each for each in reasons.split(", ") if not _ELSEWHERE.fullmatch(each)]
    return ", ".join(kept)
