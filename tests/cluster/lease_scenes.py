"""Two who want the Lease, a clock moved by hand, and what the Lease says."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from konductor_like.cluster.client import KubeClient, lease_path
from konductor_like.cluster.errors import LeadershipLost
from konductor_like.cluster.lease import (
    LeaderLease,
    read_lease,
)
from konductor_like.cluster.lease_annotations import annotated
from konductor_like.model import Checkpoint, Source
from konductor_like.sandbox.kubernetes import KubernetesServer, matching
from konductor_like.sandbox.kubernetes.store import Key
from tests.cluster.scenes import NOON, NOON_NS

NAMESPACE, NAME = "konductor-like", "konductor-like"
PATH = lease_path(NAMESPACE, NAME)
WRITES = matching("PUT", "leases")


def cursor(seconds: int) -> Checkpoint:
    """Read so far, seconds after noon."""
    return Checkpoint({Source.KERNEL: NOON_NS + seconds * 10**9}, NOON_NS)


class Clock:
    """Both clocks of every process here, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        """The wall clock; one that is wrong, since nothing depends on it."""
        return NOON + timedelta(seconds=self.seconds * 3)


def candidate(client: KubeClient, clock: Clock, name: str = "a", **parts: Any) -> LeaderLease:
    """One of those who want the Lease: 30 s long, 20 s deadline."""
    parts = {
        "duration_seconds": 30,
        "renew_deadline_seconds": 20.0,
        "renew_interval_seconds": 10.0,
        "clock": clock,
        "now": clock.now,
        **parts,
    }
    return LeaderLease(client, NAMESPACE, NAME, name, **parts)


def saved(client: KubeClient) -> Checkpoint | None:
    """The cursor on the Lease."""
    seen = read_lease(client, NAMESPACE, NAME)
    return seen.checkpoint if seen else None


def spec(server: KubernetesServer) -> dict[str, Any]:
    """The Lease's spec."""
    (lease,) = server.objects("leases", NAMESPACE)
    found: dict[str, Any] = lease["spec"]
    return found


def delete(server: KubernetesServer) -> None:
    """Somebody deletes the Lease."""
    server._store.delete("leases", Key(NAMESPACE, NAME))


def note(client: KubeClient, key: str, value: str) -> None:
    """What ``kubectl annotate`` does to the Lease."""
    client.replace(PATH, annotated(client.get(PATH), {key: value}))


def may_write(lease: LeaderLease) -> bool:
    """Whether the fence is open."""
    try:
        return lease.budget_seconds() > 0
    except LeadershipLost:
        return False
