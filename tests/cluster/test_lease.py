from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from konductor_like.cluster.checkpoint import CURSOR_ANNOTATION
from konductor_like.cluster.client import KubeClient, leases_path
from konductor_like.cluster.errors import KubeConfigError
from konductor_like.cluster.lease import LeaderLease, own_identity, read_lease
from konductor_like.cluster.lease_annotations import Carried
from konductor_like.model import Coverage
from konductor_like.sandbox.kubernetes import KubernetesServer, matching, refusal
from tests.cluster.lease_scenes import (
    NAME,
    NAMESPACE,
    WRITES,
    Clock,
    candidate,
    cursor,
    note,
    spec,
)
from tests.cluster.scenes import NOON

# Taking it.


def test_the_first_one_takes_it(server: KubernetesServer, client: KubeClient, clock: Clock) -> None:
    status = candidate(client, clock).try_acquire()

    assert (status.is_ours, status.holder, status.checkpoint, status.problem) == (True, "a", None, None)
    assert spec(server)["holderIdentity"] == "a"
    assert spec(server)["leaseDurationSeconds"] == 30
    assert spec(server)["leaseTransitions"] == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec(server)["renewTime"])


def test_of_two_who_create_it_at_once_one_gets_it(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    candidate(client, clock).try_acquire()
    server.mishaps.add(refusal(404), when=matching("GET", "leases"))  # not there yet when we looked

    status = candidate(client, clock, "b").try_acquire()

    assert (status.is_ours, status.holder) == (False, "a")


def test_of_two_who_take_it_over_at_once_one_gets_it(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    first = candidate(client, clock)
    first.try_acquire()
    first.release(Carried())
    server.mishaps.add(refusal(409), when=WRITES)

    assert not candidate(client, clock, "b").try_acquire().is_ours
    assert candidate(client, clock, "b").try_acquire().is_ours


def test_a_namespace_that_is_not_there_is_told_with_the_command(client: KubeClient) -> None:
    with pytest.raises(KubeConfigError, match="namespace konductor-like does not exist") as caught:
        candidate(client, Clock()).try_acquire()
    assert caught.value.hint.endswith("kubectl create namespace konductor-like")


def test_a_cursor_mangled_by_hand_is_told_and_no_obstacle(client: KubeClient, clock: Clock) -> None:
    first = candidate(client, clock)
    first.try_acquire()
    first.release(Carried(cursor(5)))
    note(client, CURSOR_ANNOTATION, "yesterday")

    status = candidate(client, clock, "b").try_acquire()

    assert (status.is_ours, status.checkpoint) == (True, None)
    assert status.problem == f"annotation {CURSOR_ANNOTATION}: it is not JSON"


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None}, {"leaseDurationSeconds": 15}], ids=str)
def test_a_lease_that_nobody_holds_is_free(
    client: KubeClient, clock: Clock, spec: dict[str, Any] | None
) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
    }
    client.create(leases_path(NAMESPACE), lease if spec is None else {**lease, "spec": spec})

    assert candidate(client, clock).try_acquire().is_ours


# Expiry.


def test_a_lease_is_respected_for_its_duration_and_not_longer(client: KubeClient, clock: Clock) -> None:
    candidate(client, clock).try_acquire()
    second = candidate(client, clock, "b")
    assert not second.try_acquire().is_ours

    clock.seconds += 29.9
    assert not second.try_acquire().is_ours
    clock.seconds += 0.2

    assert second.try_acquire().is_ours


def test_it_is_the_holders_duration_that_counts(client: KubeClient, clock: Clock) -> None:
    candidate(client, clock, duration_seconds=60).try_acquire()
    second = candidate(client, clock, "b", duration_seconds=25)
    second.try_acquire()

    clock.seconds += 59
    assert not second.try_acquire().is_ours
    clock.seconds += 2
    assert second.try_acquire().is_ours


def test_what_was_written_long_ago_may_still_be_alive_when_it_is_first_seen(
    client: KubeClient, clock: Clock
) -> None:
    candidate(client, clock).try_acquire()
    clock.seconds += 3600  # whatever the times on it say, nobody watched it meanwhile

    assert not candidate(client, clock, "b").try_acquire().is_ours


def test_a_renewal_starts_the_wait_again(client: KubeClient, clock: Clock) -> None:
    first, second = candidate(client, clock), candidate(client, clock, "b")
    first.try_acquire()
    for _ in range(6):
        assert not second.try_acquire().is_ours
        clock.seconds += 10
        first.renew(Carried())


def test_a_persons_note_on_the_lease_is_no_renewal(client: KubeClient, clock: Clock) -> None:
    candidate(client, clock).try_acquire()
    second = candidate(client, clock, "b")
    second.try_acquire()
    clock.seconds += 25
    note(client, "ticket", "1234")
    second.try_acquire()
    clock.seconds += 6

    assert second.try_acquire().is_ours


def test_changing_hands_is_counted(server: KubernetesServer, client: KubeClient, clock: Clock) -> None:
    candidate(client, clock).try_acquire()
    second = candidate(client, clock, "b")
    second.try_acquire()
    clock.seconds += 31
    second.try_acquire()

    assert spec(server)["leaseTransitions"] == 1


def test_the_same_identity_takes_over_at_once(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    candidate(client, clock, "pod_uid").try_acquire()

    assert candidate(client, clock, "pod_uid").try_acquire().is_ours  # the container was restarted
    assert spec(server)["leaseTransitions"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs the process table of Linux")
def test_a_killed_process_of_this_machine_is_not_waited_for(client: KubeClient, clock: Clock) -> None:
    program = "from konductor_like.cluster import lease as i; print(i.own_identity({}), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        holder = process.stdout.readline().strip()
        candidate(client, clock, holder).try_acquire()
        alive = candidate(client, clock, own_identity({})).try_acquire()
        process.kill()
        process.wait()
        killed = candidate(client, clock, own_identity({})).try_acquire()

    assert (alive.is_ours, alive.holder) == (False, holder)
    assert killed.is_ours


# Reading it, for status.


def test_a_lease_that_is_not_there_reads_as_none(client: KubeClient) -> None:
    assert read_lease(client, NAMESPACE, NAME) is None


def test_what_it_says_can_be_read(lease: LeaderLease, client: KubeClient, clock: Clock) -> None:
    lease.renew(Carried(cursor(5), Coverage(NOON, frozenset({"gpu-3"}))))

    seen = read_lease(client, NAMESPACE, NAME)

    assert seen is not None
    assert (seen.holder, seen.duration_seconds, seen.renewed) == ("a", 30, clock.now())
    assert (seen.checkpoint, seen.coverage) == (cursor(5), Coverage(NOON, frozenset({"gpu-3"})))
