"""The namespace that the Lease lives in: on a laptop it may not exist yet."""

from __future__ import annotations

from konductor_like.cluster import paths
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.errors import KubeConfigError, KubeConflict, KubeForbidden, KubeNotFound


def ensure_namespace(client: KubeClient, name: str) -> None:
    """See to it that the namespace exists, creating it if that is allowed.

    Raises KubeConfigError with the command to run when it is missing and may not be created. Where
    Namespaces may not be read, as in a pod, it is taken to exist: the Lease will tell.
    """
    try:
        client.get(paths.namespace(name))
    except KubeForbidden:
        return
    except KubeNotFound:
        _create(client, name)


def namespace_missing(name: str) -> KubeConfigError:
    """The error to raise when a namespace turns out not to exist."""
    return KubeConfigError(
        f"namespace {name} does not exist, and creating it is not allowed",
        hint=f"create it with: kubectl create namespace {name}",
    )


def _create(client: KubeClient, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        client.create(paths.NAMESPACES, body)
    except KubeConflict:
        return  # somebody else just did
    except KubeForbidden as error:
        raise namespace_missing(name) from error
