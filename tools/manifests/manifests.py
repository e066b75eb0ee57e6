"""The shipped manifests as data, in the order in which `kubectl apply -f` reads a file, and their units."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).parents[2] / "manifests"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, which is ten times as fast, where PyYAML has it."""


def documents(name: str) -> list[dict[str, Any]]:
    """Return every object of a manifest file, in the order in which kubectl applies them."""
    loaded = yaml.load_all((MANIFESTS / name).read_text(encoding="utf-8"), Loader=LOADER)
    return [document for document in loaded if document is not None]


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    found: dict[str, Any] = json.loads((MANIFESTS / "grafana_dashboard.json").read_text("utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    """Return every panel of the dashboard in order: the rows, and also what collapsed rows contain."""
    return [each for panel in dashboard()["panels"] for each in (panel, *panel.get("panels", ()))]


def helm_values(*files: dict[str, Any]) -> dict[str, Any]:
    """Return the values of several files as Helm merges them: a list replaces an earlier list."""
    merged: dict[str, Any] = {}
    for values in files:
        for key, value in values.items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = helm_values(merged[key], value) if both else value
    return merged


def only(docs: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """Return the only object of this kind (and name). Raises ValueError if there is not exactly one."""
    found = [doc for doc in docs if doc["kind"] == kind and name in (None, doc["metadata"]["name"])]
    if len(found) != 1:
        raise ValueError(f"{len(found)} objects {kind}/{name or '*'} instead of one")
    return found[0]


OPTIONAL = (
    "job_events.yaml",
    "network_policy.yaml",
    "node_condition.yaml",
    "people_rbac.yaml",
    "validation.yaml",
)
"""Optional manifests; their namespaces must exist."""
MONITORING = ("gpu_alerts.yaml", "prometheus_rule.yaml", "service_monitor.yaml")
"""Optional manifests with resources of the Prometheus operator."""


def kubectl_manifests() -> list[str]:
    """Return the files of an installation with `kubectl apply`; the others are chart values, or optional."""
    files = (path.name for path in MANIFESTS.glob("*.yaml") if "-values" not in path.stem)
    return sorted(name for name in files if name not in (*OPTIONAL, *MONITORING, "kustomization.yaml"))


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def seconds(duration: str) -> float:
    """Convert a Go duration with one unit, such as ``336h``, to seconds. Raises ValueError for others."""
    number, unit = _split(duration)
    return number * _SECONDS[unit]


def byte_count(size: str) -> int:
    """Convert ``1Gi`` or ``1GB`` to bytes; Loki's KB, MB and GB are powers of 1024 too. Raises ValueError."""
    number, unit = _split(size)
    return number * _BYTES[unit]


def _split(quantity: str) -> tuple[int, str]:
    match = re.fullmatch(r"(\d+)([a-zA-Z]+)", quantity)
    if match is None or match[2] not in _SECONDS | _BYTES:
        raise ValueError(f"{quantity!r} is no number with a unit that is known here")
    return int(match[1]), match[2]
