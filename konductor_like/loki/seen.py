"""Which entries were delivered already, for as long as they can be read again."""

from __future__ import annotations

import hashlib

from konductor_like.loki.response import Entry, Naming

_BUCKET_NS = 10_000_000_000
_POD_UID = "k8s_pod_uid"
_RESTART_COUNT = "k8s_container_restart_count"


def identity(entry: Entry, naming: Naming) -> bytes:
    """A digest that two entries share exactly when they are the same line of the same origin.

    The origin is the container's instance rather than all labels: a line that was shipped twice differs in
    what the collector adds, such as ``observed_timestamp``. Without a node's name only all labels together
    tell origins apart.
    """
    labels = entry.labels
    if labels.get(naming.node):
        names = (naming.node, naming.namespace, naming.pod, naming.container, _POD_UID, _RESTART_COUNT)
        origin = [labels.get(name, "") for name in names]
    else:
        origin = [part for pair in sorted(labels.items()) for part in pair]
    # Lengths keep neighbouring parts from running into one another.
    parts = [str(entry.timestamp_ns), *origin, entry.text]
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.digest()


class Seen:
    """Digests in buckets of time, so that forgetting the old ones costs nothing per digest."""

    def __init__(self) -> None:
        self._buckets: dict[int, set[bytes]] = {}

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())

    def has(self, timestamp_ns: int, digest: bytes) -> bool:
        """Whether :meth:`add` was told about it and it was not forgotten since."""
        return digest in self._buckets.get(timestamp_ns // _BUCKET_NS, ())

    def add(self, timestamp_ns: int, digest: bytes) -> None:
        """Remember one entry."""
        self._buckets.setdefault(timestamp_ns // _BUCKET_NS, set()).add(digest)

    def forget_before(self, timestamp_ns: int) -> None:
        """Forget what is older; up to one bucket more than needed stays."""
        for bucket in [key for key in self._buckets if key < timestamp_ns // _BUCKET_NS]:
            del self._buckets[bucket]
