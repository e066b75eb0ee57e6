"""The collector's values, and which of its receivers reads which file."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import pytest

from tests.manifests.manifests import documents

[VALUES] = documents("otel-values.yaml")
CONFIG = VALUES["config"]
KERNEL = CONFIG["receivers"]["file_log/kernel"]
PODS = CONFIG["receivers"]["file_log/pods"]
RECEIVERS: dict[str, dict[str, Any]] = {"kernel": KERNEL, "pods": PODS}
EXPORTERS = {name: exporter for name, exporter in CONFIG["exporters"].items() if exporter is not None}
PIPELINES = {
    name: pipeline for name, pipeline in CONFIG["service"]["pipelines"].items() if pipeline is not None
}
NEVER_GIVE_UP = 0.0
"""The retry time that means for ever."""

each_receiver = pytest.mark.parametrize("receiver", RECEIVERS.values(), ids=list(RECEIVERS))
each_exporter = pytest.mark.parametrize("exporter", EXPORTERS.values(), ids=list(EXPORTERS))
each_pipeline = pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=list(PIPELINES))


def log_file(namespace: str, container: str, name: str = "0.log") -> str:
    """The path that the kubelet gives to a container's log."""
    return f"/var/log/pods/{namespace}_some-pod_0a1b2c3d-0000-1111-2222-333344445555/{container}/{name}"


def read_by(path: str) -> list[str]:
    """Which receivers read a file."""
    return [
        name
        for name, receiver in RECEIVERS.items()
        if _matches(path, receiver["include"]) and not _matches(path, receiver.get("exclude", ()))
    ]


def _matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a path matches a glob, segment by segment: no wildcard stands for a slash."""
    parts = path.split("/")
    return any(
        len(parts) == len(glob.split("/")) and all(map(fnmatchcase, parts, glob.split("/"))) for glob in globs
    )
