"""The shipped manifests as data, in the order in which `kubectl apply -f` reads a file, and their units."""

import re
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).parents[2] / "manifests"


def documents(name: str) -> list[dict[str, Any]]:
    """Every object of a file in the manifests folder, in the order in which kubectl applies them."""
    loaded = yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8"))
    return [document for document in loaded if document is not None]


def only(docs: list[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The one object of this kind (and name); an AssertionError where there is none, or more than one."""
    found = [doc for doc in docs if doc["kind"] == kind and name in (None, doc["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} objects {kind}/{name or '*'} instead of one"
    return found[0]


OPTIONAL = ("network_policy.yaml", "people_rbac.yaml")
"""What an installation does without; it goes into namespaces that are there."""


def kubectl_manifests() -> list[str]:
    """The files that `kubectl apply` takes to install; the others are values for charts, or optional."""
    files = (path.name for path in MANIFESTS.glob("*.yaml") if not path.name.endswith("-values.yaml"))
    return sorted(name for name in files if name not in OPTIONAL)


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def seconds(duration: str) -> float:
    """Seconds of a Go duration with one unit, such as ``336h``. Raises ValueError for anything else."""
    number, unit = _split(duration)
    return number * _SECONDS[unit]


def byte_count(size: str) -> int:
    """Bytes of ``1Gi`` or ``1GB``; Loki's KB, MB and GB are powers of 1024 too. Raises ValueError else."""
    number, unit = _split(size)
    return number * _BYTES[unit]


def _split(quantity: str) -> tuple[int, str]:
    match = re.fullmatch(r"(\d+)([a-zA-Z]+)", quantity)
    if match is None or match[2] not in _SECONDS | _BYTES:
        raise ValueError(f"{quantity!r} is no number with a unit that is known here")
    return int(match[1]), match[2]
