"""Label sets: how they are ordered, written and named, and the level that every line gets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name, without empty values: in Loki an empty value means no label."""

SERVICE_NAME = "service_name"
DETECTED_LEVEL = "detected_level"
_DISCOVERED_AS_SERVICE = (
    *("service", "app", "application", "app_name", "name", "app_kubernetes_io_name"),
    *("container", "container_name", "k8s_container_name", "component", "workload", "job", "k8s_job_name"),
)
"""Loki's ``discover_service_name``: the first of these labels that is set names the service."""

LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LEVEL = re.compile(
    r"""(?:^|(?<=[ \t\n\[({"'=|]))
    (trace|debug|fatal|critical|error|err|warning|warn|info)
    (?=[ \t\n\[\](){}:,!"'=|]|$)""",
    re.VERBOSE,
)


def label_set(labels: Mapping[str, str] | Iterable[tuple[str, str]]) -> Labels:
    """Return the label set of these names and values. If a name is repeated, its last value counts."""
    return tuple(sorted((name, value) for name, value in dict(labels).items() if value))


def with_service_name(labels: Mapping[str, str]) -> Labels:
    """Return the label set of a stream as Loki stores it, with a ``service_name`` if it had none."""
    if labels.get(SERVICE_NAME):
        return label_set(labels)
    found = (labels[name] for name in _DISCOVERED_AS_SERVICE if labels.get(name))
    return label_set({**labels, SERVICE_NAME: next(found, "unknown_service")})


@lru_cache(maxsize=4096)
def written(labels: Labels) -> str:
    """Return the label set as LogQL writes it. The streams of an answer are in the order of this text."""
    return "{" + ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels) + "}"


@lru_cache(maxsize=1024)
def normalized(name: str) -> str:
    """Return the label name of an OTLP attribute. Raises ``ValueError`` if no character of it is usable.

    Source: prometheus/otlptranslator LabelNamer, seen on a real Loki.
    """
    label = re.sub(r"_+", "_", re.sub(r"[^a-zA-Z0-9_]", "_", name))
    if not label.strip("_"):
        raise ValueError(f'normalization for label name "{name}" resulted in invalid name "{label}"')
    return f"key_{label}" if label[0].isdigit() else label


def detected_level(line: str) -> str:
    """Return the level that Loki guesses from the text (pkg/distributor/field_detection.go).

    The level is in every answer. Loki also reads it from JSON fields and labels, which kernel lines do not
    have.
    """
    match = _LEVEL.search(line.lower())
    return {"err": "error", "warning": "warn"}.get(match[1], match[1]) if match else "unknown"
