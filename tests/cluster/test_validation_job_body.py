"""The Job of a validation: each field that safety or the kubelet needs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from konductor_like.cluster.validation_jobs import Order, job_body, script
from konductor_like.settings import Settings
from tests.manifests.schema import problems

ORDER = Order("k7f3q2ab", "gpu-1.example", "uid-of-the-node", 3, 8)
SETTINGS = Settings(
    validation_image="dcgm:4",
    validation_command="run.sh $(hostname) $$ $KL_GPUS",
    validation_tolerations=("team", "nvidia.com/gpu"),
)
LABELS = {
    "app.kubernetes.io/managed-by": "konductor-like",
    "trainy.konduktor.ai/instance": "gpu-ops",
    "trainy.konduktor.ai/attempt": "k7f3q2ab",
}
POD = "spec.template.spec"
CONTAINER = f"{POD}.containers.0"


def body(**changes: Any) -> dict[str, Any]:
    return job_body(ORDER if not changes else Order(**{**_fields(), **changes}), SETTINGS, "gpu-ops")


def _fields() -> dict[str, Any]:
    return {name: getattr(ORDER, name) for name in Order.__slots__}


def at(item: Any, place: str) -> Any:
    for part in place.split("."):
        item = item[int(part)] if isinstance(item, list) else item.get(part)
    return item


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("metadata.name", "validation-k7f3q2ab"),
        ("metadata.namespace", "konductor-like-validation"),
        ("metadata.labels", LABELS),
        ("spec.template.metadata.labels", LABELS),
        (
            "metadata.annotations",
            {
                "trainy.konduktor.ai/node": "gpu-1.example",
                "trainy.konduktor.ai/node-uid": "uid-of-the-node",
            },
        ),
        ("spec.backoffLimit", 0),
        ("spec.activeDeadlineSeconds", 3600),
        ("spec.ttlSecondsAfterFinished", None),
        (f"{POD}.restartPolicy", "Never"),
        (f"{POD}.terminationGracePeriodSeconds", 5),
        (f"{POD}.automountServiceAccountToken", False),
        (f"{POD}.serviceAccountName", None),
        (f"{POD}.nodeName", None),
        (f"{POD}.nodeSelector", None),
        (f"{POD}.hostNetwork", None),
        (f"{POD}.hostPID", None),
        (f"{POD}.hostIPC", None),
        (f"{POD}.priorityClassName", "konductor-like-validation"),
        (f"{POD}.preemptionPolicy", "Never"),
        (f"{POD}.priority", None),
        (
            f"{POD}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1.example"]}]}
                ]
            },
        ),
        (
            f"{POD}.tolerations",
            [
                {
                    "key": "trainy.konduktor.ai/faulty",
                    "operator": "Equal",
                    "value": "true",
                    "effect": "NoSchedule",
                },
                {"key": "nvidia.com/gpu", "operator": "Exists"},
                {"key": "team", "operator": "Exists"},
            ],
        ),
        (f"{POD}.securityContext", {"seccompProfile": {"type": "RuntimeDefault"}}),
        (f"{POD}.volumes", [{"name": "shm", "emptyDir": {"medium": "Memory"}}]),
        (f"{CONTAINER}.image", "dcgm:4"),
        (
            f"{CONTAINER}.resources",
            {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}},
        ),
        (f"{CONTAINER}.securityContext", {"privileged": False, "allowPrivilegeEscalation": False}),
        (f"{CONTAINER}.terminationMessagePolicy", "File"),
        (f"{CONTAINER}.terminationMessagePath", None),
        (f"{CONTAINER}.volumeMounts", [{"name": "shm", "mountPath": "/dev/shm"}]),  # noqa: S108 -- a path in the pod
        (f"{CONTAINER}.envFrom", None),
    ],
)
def test_each_field_is_as_the_validation_needs_it(place: str, value: Any) -> None:
    assert at(body(), place) == value


def test_there_is_one_container_and_nothing_else_runs() -> None:
    spec = at(body(), POD)

    assert len(spec["containers"]) == 1
    assert not {"initContainers", "ephemeralContainers"} & set(spec)


@pytest.mark.parametrize(("level", "seconds"), [(2, 1800), (3, 3600), (4, 10_800)])
def test_the_deadline_follows_the_level(level: int, seconds: int) -> None:
    made = body(level=level)

    assert at(made, "spec.activeDeadlineSeconds") == seconds
    assert {"name": "KL_LEVEL", "value": str(level)} in at(made, f"{CONTAINER}.env")


def expanded(text: str, environment: dict[str, str]) -> str:
    """Expand a text as the kubelet does."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] is None else environment.get(found[1], found[0])

    return re.sub(r"\$(?:\$|\(([^)]*)\))", value, text)


def test_the_kubelet_expands_nothing_in_the_program_and_in_the_users_command() -> None:
    container = at(body(), CONTAINER)
    environment: dict[str, str] = {}
    for each in container["env"]:
        environment[each["name"]] = expanded(each["value"], environment)

    assert environment == {
        "KL_ATTEMPT": "k7f3q2ab",
        "KL_LEVEL": "3",
        "KL_GPUS": "8",
        "KL_COMMAND": "run.sh $(hostname) $$ $KL_GPUS",
    }
    assert [expanded(each, environment) for each in container["command"]] == ["/bin/sh", "-c", script()]


def test_the_server_knows_every_field_of_the_body() -> None:
    assert problems(body()) == []


def test_every_controller_has_jobs_of_its_own() -> None:
    other = job_body(ORDER, SETTINGS, "team-b")

    assert other["metadata"]["labels"]["trainy.konduktor.ai/instance"] == "team-b"
    assert other["metadata"]["name"] == body()["metadata"]["name"]
