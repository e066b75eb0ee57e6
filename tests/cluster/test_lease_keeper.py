from __future__ import annotations

import threading
from typing import Any

import pytest

from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.lease import (
    LeaderLease,
    LeaseKeeper,
)
from konductor_like.cluster.lease_annotations import Carried
from konductor_like.sandbox.kubernetes import KubernetesServer, refusal
from tests.cluster.lease_scenes import (
    WRITES,
    Clock,
    candidate,
    cursor,
    saved,
)
from tests.cluster.scenes import wait_until


class Losses:
    """Hears why the Lease was lost."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, why: str) -> None:
        self.heard.append(why)


def kept(lease: LeaderLease, losses: Losses, newest: Any = lambda: Carried(cursor(5))) -> LeaseKeeper:
    """A keeper that was started."""
    keeper = LeaseKeeper(lease, newest, losses)
    keeper.start()
    return keeper


def fast(client: KubeClient, clock: Clock) -> LeaderLease:
    """A held Lease that is renewed all the time."""
    lease = candidate(client, clock, renew_interval_seconds=0.01)
    lease.try_acquire()
    return lease


def test_the_keeper_saves_the_newest_cursor(client: KubeClient, clock: Clock) -> None:
    counted = iter(range(1_000_000))
    losses = Losses()
    keeper = kept(fast(client, clock), losses, lambda: Carried(cursor(next(counted))))
    try:
        wait_until(lambda: saved(client) == cursor(0))
        wait_until(lambda: saved(client) != cursor(0))
    finally:
        keeper.stop()
    assert losses.heard == []


def test_the_keeper_bears_trouble(server: KubernetesServer, client: KubeClient, clock: Clock) -> None:
    lease, losses = fast(client, clock), Losses()
    server.mishaps.add(refusal(503), times=None, when=WRITES)
    keeper = kept(lease, losses)
    try:
        wait_until(lambda: len(server.calls("update", "leases")) > 3)
        server.mishaps.clear()
        wait_until(lambda: saved(client) == cursor(5))
    finally:
        keeper.stop()
    assert losses.heard == []


def test_the_keeper_tells_once_that_the_lease_is_lost(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    lease, losses = fast(client, clock), Losses()
    server.mishaps.add(refusal(503), times=None, when=WRITES)
    keeper = kept(lease, losses)
    clock.seconds += 30
    try:
        wait_until(lambda: losses.heard)
    finally:
        keeper.stop()

    assert losses.heard == ["the Lease could not be renewed for 20 s."]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_keeper_that_fails_by_a_bug_does_not_fail_in_silence(client: KubeClient, clock: Clock) -> None:
    losses = Losses()
    keeper = kept(fast(client, clock), losses, lambda: 1 / 0)
    wait_until(lambda: losses.heard)
    keeper.stop()

    assert losses.heard == ["it is no longer renewed: division by zero."]


def test_stopping_the_keeper_does_not_wait_for_the_interval(client: KubeClient, clock: Clock) -> None:
    lease = candidate(client, clock, renew_interval_seconds=3600.0)
    lease.try_acquire()
    keeper = kept(lease, Losses())
    thread = threading.Thread(target=keeper.stop)
    thread.start()
    thread.join(5)

    assert not thread.is_alive()
