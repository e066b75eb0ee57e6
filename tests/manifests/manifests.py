"""The shipped manifests as data: what `kubectl apply -f` would read out of each file, in its order."""

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
