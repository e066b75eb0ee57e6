"""Writing a person's word on the Lease, beside whoever holds it."""

from __future__ import annotations

from konductor_like.cluster import lease_object, paths
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.errors import KubeConflict
from konductor_like.cluster.lease_object import LeaseView

_TRIES = 8
"""The controller renews the Lease every few seconds; so often in a row it will not be faster."""


def annotate_lease(client: KubeClient, namespace: str, name: str, key: str, value: str | None) -> LeaseView:
    """Set an annotation of the Lease, or remove it with None; gives what the Lease said before.

    Guarded by the Lease's resourceVersion. Raises KubeNotFound where there is no Lease, or another KubeError.
    """
    path = paths.lease(namespace, name)
    left = _TRIES
    while True:
        lease = client.get(path)
        left -= 1
        try:
            client.replace(path, lease_object.annotated(lease, key, value))
        except KubeConflict:
            if not left:
                raise
        else:
            return lease_object.view(lease)
