"""Writing a person's word on the Lease, beside whoever holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from konductor_like.cluster import lease_object, paths
from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.errors import KubeConflict
from konductor_like.cluster.lease_object import LeaseView

_TRIES = 8
"""The controller renews the Lease every few seconds; so often in a row it will not be faster."""


Notes = Mapping[str, str | None]
"""Annotations to set, or with None to remove."""


def annotate_lease(client: KubeClient, namespace: str, name: str, key: str, value: str | None) -> LeaseView:
    """Set one annotation of the Lease, or remove it; see :func:`note_on_lease`."""
    return note_on_lease(client, namespace, name, lambda _: {key: value})


def note_on_lease(
    client: KubeClient, namespace: str, name: str, notes_for: Callable[[LeaseView], Notes]
) -> LeaseView:
    """Set and remove annotations of the Lease, in view of what it says; gives what it said before.

    Nothing is written where ``notes_for`` gives none. Guarded by the Lease's resourceVersion. Raises
    KubeNotFound where there is no Lease, or another KubeError.
    """
    path = paths.lease(namespace, name)
    left = _TRIES
    while True:
        lease = client.get(path)
        before = lease_object.view(lease)
        notes = notes_for(before)
        if not notes:
            return before
        for key, value in notes.items():
            lease = lease_object.annotated(lease, key, value)
        left -= 1
        try:
            client.replace(path, lease)
        except KubeConflict:
            if not left:
                raise
        else:
            return before
