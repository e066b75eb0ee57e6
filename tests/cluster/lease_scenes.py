"""Helpers: candidates for the Lease, a clock that tests move, and reads of the Lease."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from konductor_like.cluster.api.client import KubeClient, lease_path
from konductor_like.cluster.api.errors import LeadershipLost
from konductor_like.cluster.lease.annotations import annotated
from konductor_like.cluster.lease.election import (
    LeaderLease,
    read_lease,
)
from konductor_like.model import Checkpoint, Source
from konductor_like_sandbox.kubernetes import KubernetesServer, matching
from konductor_like_sandbox.kubernetes.store import Key
from tests.cluster.scenes import NOON, NOON_NS

NAMESPACE, NAME = "konductor-like", "konductor-like"
PATH = lease_path(NAMESPACE, NAME)
WRITES = matching("PUT", "leases")


def cursor(seconds: int) -> Checkpoint:
    """Return a cursor that many seconds after noon."""
    return Checkpoint({Source.KERNEL: NOON_NS + seconds * 10**9}, NOON_NS)


class Clock:
    """Both clocks of all candidates; tests move it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        """Return the wall clock. It is wrong on purpose: nothing may depend on it."""
        return NOON + timedelta(seconds=self.seconds * 3)


def candidate(client: KubeClient, clock: Clock, name: str = "a", **parts: Any) -> LeaderLease:
    """Return a candidate: duration 30 s, renew deadline 20 s."""
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
    """Return the cursor on the Lease."""
    seen = read_lease(client, NAMESPACE, NAME)
    return seen.checkpoint if seen else None


def spec(server: KubernetesServer) -> dict[str, Any]:
    """Return the Lease's spec."""
    (lease,) = server.objects("leases", NAMESPACE)
    found: dict[str, Any] = lease["spec"]
    return found


def delete(server: KubernetesServer) -> None:
    """Delete the Lease."""
    server._store.delete("leases", Key(NAMESPACE, NAME))


def note(client: KubeClient, key: str, value: str) -> None:
    """Annotate the Lease, as ``kubectl annotate`` does."""
    client.replace(PATH, annotated(client.get(PATH), {key: value}))


def may_write(lease: LeaderLease) -> bool:
    """Whether a write may start."""
    try:
        return lease.budget_seconds() > 0
    except LeadershipLost:
        return False
