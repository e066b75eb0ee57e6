"""Jobs as the API server stores them: their defaults, and the rules that a new one must meet.

Only the rules that a Job of one pod may break. Sources: pkg/registry/batch/job/strategy.go,
pkg/apis/batch/validation and pkg/apis/core/validation of Kubernetes 1.36.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from konductor_like_sandbox.kubernetes.errors import Cause

_POD = "spec.template.spec"
_NAME_BYTES = 63
"""A Job's name is a label of its pods."""
_LABELS = ("batch.kubernetes.io/job-name", "job-name")
_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_OVERCOMMITTED = ("cpu", "memory", "ephemeral-storage")


def complete(job: dict[str, Any]) -> None:
    """Write the defaults and the selector into a new Job, which has its UID."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    job["metadata"]["generation"] = 1
    job["status"] = {}
    defaults = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed"}
    job["spec"] = {**defaults, "suspend": False, "podReplacementPolicy": "TerminatingOrFailed", **job["spec"]}
    job["spec"]["selector"] = {"matchLabels": {_UID_LABELS[0]: uid}}
    template = job["spec"]["template"]
    labels = {**dict.fromkeys(_LABELS, name), **dict.fromkeys(_UID_LABELS, uid)}
    template["metadata"] = {**template.get("metadata", {})}
    template["metadata"]["labels"] = {**template["metadata"].get("labels", {}), **labels}
    spec = template["spec"]
    for field, value in (
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
        ("securityContext", {}),
    ):
        spec.setdefault(field, value)
    for container in spec["containers"]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})


def problems(job: Mapping[str, Any]) -> Iterator[Cause]:
    """Return the errors of a new Job."""
    name = job["metadata"].get("name", "")
    if len(name.encode()) > _NAME_BYTES:
        yield Cause.invalid("metadata.name", f'"{name}"', f"must be no more than {_NAME_BYTES} characters")
    spec = job.get("spec", {}).get("template", {}).get("spec", {})
    if spec.get("restartPolicy") not in ("OnFailure", "Never"):
        yield Cause.required(f"{_POD}.restartPolicy", 'valid values: "OnFailure", "Never"')
    if not spec.get("containers"):
        yield Cause.required(f"{_POD}.containers")
    volumes = {volume.get("name") for volume in spec.get("volumes", ())}
    for index, container in enumerate(spec.get("containers", ())):
        yield from _container(container, volumes, f"{_POD}.containers[{index}]")
    for index, toleration in enumerate(spec.get("tolerations", ())):
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            why = "value must be empty when `operator` is 'Exists'"
            yield Cause.invalid(f"{_POD}.tolerations[{index}].operator", json.dumps(toleration), why)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = spec.get("affinity", {}).get("nodeAffinity", {}).get(required, {})
    for index, term in enumerate(affinity.get("nodeSelectorTerms", ())):
        place = f"{_POD}.affinity.nodeAffinity.{required}.nodeSelectorTerms[{index}].matchFields"
        for number, field in enumerate(term.get("matchFields", ())):
            yield from _field(field, f"{place}[{number}]")


def _container(container: Mapping[str, Any], volumes: set[Any], place: str) -> Iterator[Cause]:
    for field in ("name", "image"):
        if not container.get(field):
            yield Cause.required(f"{place}.{field}")
    for index, mount in enumerate(container.get("volumeMounts", ())):
        if mount.get("name") not in volumes:
            message = f'Not found: "{mount.get("name")}"'
            yield Cause(f"{place}.volumeMounts[{index}].name", "FieldValueNotFound", message)
    requests, limits = (container.get("resources", {}).get(part, {}) for part in ("requests", "limits"))
    for name in sorted({*requests, *limits} - set(_OVERCOMMITTED)):
        if name not in limits:
            why = "Limit must be set for non overcommitable resources"
            yield Cause.required(f"{place}.resources.limits", why)
        elif requests.get(name, limits[name]) != limits[name]:
            why = f"must be equal to {name} limit of {limits[name]}"
            yield Cause.invalid(f"{place}.resources.requests", f'"{requests[name]}"', why)


def _field(field: Mapping[str, Any], place: str) -> Iterator[Cause]:
    if field.get("key") != "metadata.name":
        yield Cause.invalid(f"{place}.key", f'"{field.get("key")}"', "not a valid field selector key")
    if field.get("operator") in ("In", "NotIn") and len(field.get("values", ())) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield Cause.required(f"{place}.values", why)
