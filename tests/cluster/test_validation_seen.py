"""Why the program of a validation does not run, in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from konductor_like.cluster.validation_seen import SeenJob, SeenPod, seen_job, seen_pod, why_waiting

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
JOB = SeenJob("validation-a", "uid-job", "a", "gpu-1", "uid-node", NOW)
POD = SeenPod("validation-a-x", "uid-pod", NOW, phase="Pending", node="gpu-1")
OTHERS = "2 node(s) didn't satisfy plugin(s) [NodeAffinity]"
GONE = "its pod is gone: another pod displaced it, somebody deleted it, or its node was deleted"
PULL = (
    'failed to pull and unpack image "example.com/dcgm:9": '
    'failed to resolve reference "example.com/dcgm:9": example.com/dcgm:9: not found'
)
NEVER = "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."


def unplaced(reasons: str) -> SeenPod:
    message = f"0/3 nodes are available: {reasons}. {NEVER}"
    return replace(POD, node="", waiting="Unschedulable", waiting_message=message)


def held(reason: str, message: str = "") -> SeenPod:
    return replace(POD, waiting=reason, waiting_message=message)


def refused(reason: str, message: str = "") -> SeenPod:
    return replace(POD, phase="Failed", reason=reason, message=message)


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (None, "its Job has no pod yet"),
        (
            unplaced(f"1 Insufficient nvidia.com/gpu, {OTHERS}"),
            "other pods hold GPUs of the node, or the node offers fewer GPUs than before",
        ),
        (
            unplaced(f"1 node(s) had untolerated taint {{team: a}}, {OTHERS}"),
            (
                "another taint keeps its pod away (1 node(s) had untolerated taint {team: a}); "
                "KONDUCTOR_VALIDATION_TOLERATIONS lists keys that it tolerates"
            ),
        ),
        (
            unplaced(f"1 node(s) were unschedulable, {OTHERS}"),
            "the node is cordoned, which is somebody's claim: kubectl uncordon it",
        ),
        (unplaced(f"1 Too many pods, {OTHERS}"), "the scheduler does not place its pod (1 Too many pods)"),
        (
            unplaced("3 node(s) didn't satisfy plugin(s) [NodeAffinity]"),
            "the scheduler does not know the node",
        ),
        (
            unplaced("3 node(s) didn't match Pod's node affinity/selector"),
            "the scheduler does not know the node",
        ),
        (replace(POD, node=""), "it waits for the scheduler"),
        (
            replace(POD, node="", waiting="SchedulingGated"),
            "it waits for the scheduler (SchedulingGated)",
        ),
        (POD, "its container is being created; the image may have to be pulled first"),
        (
            held("ContainerCreating"),
            "its container is being created; the image may have to be pulled first",
        ),
        (
            held("ImagePullBackOff", 'Back-off pulling image "dcgm:9"'),
            'the image KONDUCTOR_VALIDATION_IMAGE does not come (Back-off pulling image "dcgm:9")',
        ),
        (held("ErrImagePull"), "the image KONDUCTOR_VALIDATION_IMAGE does not come (ErrImagePull)"),
        (
            held("CreateContainerConfigError", "no such secret"),
            "its container cannot start (CreateContainerConfigError: no such secret)",
        ),
        (
            refused("TopologyAffinityError", "moved"),
            "the Topology Manager of the node's kubelet gives no pod all GPUs (TopologyAffinityError: moved)",
        ),
        (
            refused("UnexpectedAdmissionError", "Allocate failed"),
            "the node's kubelet refused or ended its pod (UnexpectedAdmissionError: Allocate failed)",
        ),
        (replace(POD, phase="Running"), ""),
        (replace(POD, phase="Succeeded"), ""),
        (replace(POD, phase="Failed"), ""),
    ],
)
def test_each_reason_has_words(pod: SeenPod | None, words: str) -> None:
    assert why_waiting(pod, JOB) == words


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", PULL),
        ("ErrImagePull", f"rpc error: code = NotFound desc = {PULL}"),
        ("ImagePullBackOff", f'Back-off pulling image "example.com/dcgm:9": ErrImagePull: {PULL}'),
    ],
)
def test_an_image_that_does_not_come_has_the_same_words_in_each_try_and_they_name_the_cause(
    reason: str, message: str
) -> None:
    """Each change of the words is a write of the Node."""
    assert why_waiting(held(reason, message), JOB) == (
        "the image KONDUCTOR_VALIDATION_IMAGE does not come (example.com/dcgm:9: not found)"
    )


def test_the_words_name_the_pods_that_hold_the_gpus() -> None:
    pod = unplaced(f"1 Insufficient nvidia.com/gpu, {OTHERS}")

    assert "other pods hold GPUs of the node: slurm/slurmd-0," in why_waiting(
        pod, JOB, users="slurm/slurmd-0"
    )


@pytest.mark.parametrize(
    ("job", "refusal", "words"),
    [
        (JOB, "exceeded quota: gpus", "the API server refuses its pod (exceeded quota: gpus)"),
        (
            replace(JOB, suspended=True),
            "exceeded quota: gpus",
            "somebody suspended its Job; let Kueue leave the namespace of validations out",
        ),
        (
            replace(JOB, failed="DeadlineExceeded"),
            "",
            "it did not end before its deadline, which counts the waits for the GPUs and for the image",
        ),
        (replace(JOB, failed="BackoffLimitExceeded"), "", GONE),
        (replace(JOB, complete=True), "", GONE),
    ],
)
def test_a_job_without_a_pod_says_why(job: SeenJob, refusal: str, words: str) -> None:
    assert why_waiting(None, job, refusal=refusal) == words


def raw_job(*conditions: dict[str, Any], **meta: Any) -> dict[str, Any]:
    metadata = {"name": "validation-a", "uid": "u", "labels": {"trainy.konduktor.ai/attempt": "a"}, **meta}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": list(conditions)}}


def condition(kind: str, status: str = "True", reason: str = "DeadlineExceeded") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason}


@pytest.mark.parametrize(
    ("conditions", "complete", "failed"),
    [
        ([], False, ""),
        ([condition("FailureTarget")], False, ""),
        ([condition("FailureTarget"), condition("Failed")], False, "DeadlineExceeded"),
        ([condition("Failed", reason="")], False, "Failed"),
        ([condition("Failed", status="False")], False, ""),
        ([condition("SuccessCriteriaMet")], False, ""),
        ([condition("Complete", reason="CompletionsReached")], True, ""),
        ([condition("Suspended")], False, ""),
    ],
)
def test_a_job_has_ended_only_by_its_last_condition(
    conditions: list[dict[str, Any]], failed: str, *, complete: bool
) -> None:
    job = seen_job(raw_job(*conditions))

    assert job is not None
    assert (job.complete, job.failed, job.finished) == (complete, failed, complete or bool(failed))


def test_a_job_tells_that_it_is_held_back_or_being_deleted() -> None:
    deleting, held = raw_job(deletionTimestamp="2026-03-04T12:00:00Z"), raw_job()
    held["spec"]["suspend"] = True
    jobs = [job for job in map(seen_job, (raw_job(), deleting, held)) if job]

    assert [(job.suspended, job.deleting) for job in jobs] == [
        (False, False),
        (False, True),
        (True, False),
    ]


@pytest.mark.parametrize("meta", [{"labels": {}}, {"labels": None}, {"uid": ""}, {"name": ""}])
def test_a_job_without_attempt_or_identity_is_none_of_ours(meta: dict[str, Any]) -> None:
    assert seen_job(raw_job(**meta)) is None


def test_a_pods_container_is_read_by_its_name() -> None:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": "v=1 end"}}
    statuses = [
        {"name": "sidecar", "state": {"waiting": {"reason": "ErrImagePull"}}},
        {"name": "validation", "state": ended},
    ]
    raw = {
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-03-04T12:00:00Z"},
        "spec": {"nodeName": "gpu-1"},
        "status": {"phase": "Succeeded", "containerStatuses": statuses},
    }

    pod = seen_pod(raw, "validation")

    assert (pod.exit_code, pod.ended, pod.termination, pod.waiting) == (0, "Completed", "v=1 end", "")
    assert (pod.created, pod.node, pod.phase) == (NOW, "gpu-1", "Succeeded")
