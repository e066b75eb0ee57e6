from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient, leases_path
from konductor_like.cluster.api.errors import KubeConfigError
from konductor_like.cluster.lease.annotations import LeasePayload
from konductor_like.cluster.lease.checkpoint import CURSOR_ANNOTATION
from konductor_like.cluster.lease.election import LeaderLease, own_identity, read_lease
from konductor_like.model import Coverage
from konductor_like_sandbox.kubernetes import KubernetesServer, matching, refusal
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

# Taking the Lease.


def test_the_first_process_takes_the_lease(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    status = candidate(client, clock).try_acquire()

    assert (status.is_ours, status.holder, status.checkpoint, status.problem) == (True, "a", None, None)
    assert spec(server)["holderIdentity"] == "a"
    assert spec(server)["leaseDurationSeconds"] == 30
    assert spec(server)["leaseTransitions"] == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec(server)["renewTime"])


def test_if_two_processes_create_the_lease_at_once_one_gets_it(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    candidate(client, clock).try_acquire()
    server.mishaps.add(refusal(404), when=matching("GET", "leases"))  # the Lease did not exist at our read

    status = candidate(client, clock, "b").try_acquire()

    assert (status.is_ours, status.holder) == (False, "a")


def test_if_two_processes_take_the_lease_over_at_once_one_gets_it(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    first = candidate(client, clock)
    first.try_acquire()
    first.release(LeasePayload())
    server.mishaps.add(refusal(409), when=WRITES)

    assert not candidate(client, clock, "b").try_acquire().is_ours
    assert candidate(client, clock, "b").try_acquire().is_ours


def test_a_missing_namespace_is_an_error_with_the_command_to_create_it(client: KubeClient) -> None:
    with pytest.raises(KubeConfigError, match="namespace konductor-like does not exist") as caught:
        candidate(client, Clock()).try_acquire()
    assert caught.value.hint.endswith("kubectl create namespace konductor-like")


def test_a_mangled_cursor_is_reported_and_does_not_prevent_the_take_over(
    client: KubeClient, clock: Clock
) -> None:
    first = candidate(client, clock)
    first.try_acquire()
    first.release(LeasePayload(cursor(5)))
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


def test_the_holders_duration_counts_and_not_ours(client: KubeClient, clock: Clock) -> None:
    candidate(client, clock, duration_seconds=60).try_acquire()
    second = candidate(client, clock, "b", duration_seconds=25)
    second.try_acquire()

    clock.seconds += 59
    assert not second.try_acquire().is_ours
    clock.seconds += 2
    assert second.try_acquire().is_ours


def test_an_old_lease_is_respected_when_it_is_first_seen(client: KubeClient, clock: Clock) -> None:
    candidate(client, clock).try_acquire()
    clock.seconds += 3600  # the times on the Lease do not count: we have not watched it

    assert not candidate(client, clock, "b").try_acquire().is_ours


def test_a_renewal_starts_the_wait_again(client: KubeClient, clock: Clock) -> None:
    first, second = candidate(client, clock), candidate(client, clock, "b")
    first.try_acquire()
    for _ in range(6):
        assert not second.try_acquire().is_ours
        clock.seconds += 10
        first.renew(LeasePayload())


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
    program = (
        "import konductor_like.cluster.lease.election as i; print(i.own_identity({}), flush=True); input()"
    )
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


# Reading the Lease, for status.


def test_a_lease_that_does_not_exist_reads_as_none(client: KubeClient) -> None:
    assert read_lease(client, NAMESPACE, NAME) is None


def test_the_content_of_a_lease_can_be_read(lease: LeaderLease, client: KubeClient, clock: Clock) -> None:
    lease.renew(LeasePayload(cursor(5), Coverage(NOON, frozenset({"gpu-3"}))))

    seen = read_lease(client, NAMESPACE, NAME)

    assert seen is not None
    assert (seen.holder, seen.duration_seconds, seen.renewed) == ("a", 30, clock.now())
    assert (seen.checkpoint, seen.coverage) == (cursor(5), Coverage(NOON, frozenset({"gpu-3"})))
