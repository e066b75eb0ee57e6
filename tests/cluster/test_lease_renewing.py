from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeError, KubeUnavailable, LeadershipLost
from konductor_like.cluster.lease.annotations import CONTROLS_ANNOTATION, LeasePayload
from konductor_like.cluster.lease.election import (
    LeaderLease,
    LeaseKeeper,
)
from konductor_like_sandbox.fault_injection import Drop, Mishap
from konductor_like_sandbox.kubernetes import KubernetesServer, matching, refusal
from tests.cluster.lease_scenes import (
    NAMESPACE,
    WRITES,
    Clock,
    candidate,
    cursor,
    delete,
    may_write,
    note,
    saved,
    spec,
)
from tests.cluster.scenes import record, release, wait_until

# Renewing.


def test_one_write_renews_and_saves_the_cursor(
    server: KubernetesServer, lease: LeaderLease, client: KubeClient, clock: Clock
) -> None:
    server.clear_calls()
    before = spec(server)["renewTime"]
    clock.seconds += 10

    lease.renew(LeasePayload(cursor(5)))

    assert [call.verb for call in server.calls()] == ["update"]
    assert spec(server)["renewTime"] > before
    assert saved(client) == cursor(5)


def test_the_releases_are_saved_with_the_cursor_and_removed_when_there_are_none(
    client: KubeClient, clock: Clock
) -> None:
    covered = replace(record(), releases=(release(),))
    lease = candidate(client, clock)
    lease.try_acquire()

    lease.renew(LeasePayload(replace(cursor(5), released=(covered,))))
    assert saved(client) == replace(cursor(5), released=(covered,))
    lease.renew(LeasePayload())
    assert saved(client) == replace(cursor(5), released=(covered,))
    lease.release(LeasePayload(cursor(6)))
    assert saved(client) == cursor(6)


def test_who_lost_the_lease_can_neither_renew_it_nor_move_the_cursor(
    client: KubeClient, clock: Clock
) -> None:
    first, second = candidate(client, clock), candidate(client, clock, "b")
    first.try_acquire()
    second.try_acquire()
    clock.seconds += 31
    assert second.try_acquire().is_ours
    second.renew(LeasePayload(cursor(7)))
    clock.seconds -= 31  # the first process was suspended, and its clock did not move

    with pytest.raises(LeadershipLost, match="now held by b"):
        first.renew(LeasePayload(cursor(99)))

    assert saved(client) == cursor(7)
    with pytest.raises(LeadershipLost, match="does not hold the Lease"):
        first.budget_seconds()
    assert not first.release(LeasePayload(cursor(99)))
    assert saved(client) == cursor(7)


def test_a_second_process_with_the_same_identity_takes_the_lease_from_the_first(
    client: KubeClient, clock: Clock
) -> None:
    first, second = candidate(client, clock, "pod_uid"), candidate(client, clock, "pod_uid")
    first.try_acquire()
    clock.seconds += 1
    second.try_acquire()

    with pytest.raises(LeadershipLost):
        first.renew(LeasePayload(cursor(99)))
    second.renew(LeasePayload(cursor(1)))
    assert saved(client) == cursor(1)


def test_a_note_on_the_lease_does_not_cost_it_and_is_kept(
    server: KubernetesServer, lease: LeaderLease, client: KubeClient
) -> None:
    note(client, "ticket", "1234")

    lease.renew(LeasePayload(cursor(5)))

    (found,) = server.objects("leases", NAMESPACE)
    assert found["metadata"]["annotations"]["ticket"] == "1234"
    assert saved(client) == cursor(5)


def test_a_renewal_reads_the_controls_that_people_wrote_meanwhile(client: KubeClient, clock: Clock) -> None:
    lease = candidate(client, clock)
    assert lease.renewal_since(float("-inf")) is None
    lease.try_acquire()
    taken_at = clock.seconds
    note(client, CONTROLS_ANNOTATION, '{"acts":[{"control":"pause","by":"kim"}]}')
    clock.seconds += 10

    assert lease.renewal_since(taken_at) is None
    lease.renew(LeasePayload(cursor(5)))

    news = lease.renewal_since(taken_at)
    assert news is not None
    assert (news[0], news[1].controls.pause and news[1].controls.pause.by) == (clock.seconds, "kim")
    assert lease.renewal_since(clock.seconds) is None


@pytest.mark.parametrize(
    "mishap",
    [refusal(500, after=True), Mishap(drop=Drop.RESET, after=True), Mishap(drop=Drop.MIDWAY)],
    ids=["500", "reset", "cut off"],
)
def test_a_renewal_that_took_effect_without_an_answer_does_not_cost_the_lease(
    server: KubernetesServer, lease: LeaderLease, client: KubeClient, mishap: Mishap
) -> None:
    server.mishaps.add(mishap, when=WRITES)
    with pytest.raises(KubeError):
        lease.renew(LeasePayload(cursor(5)))

    lease.renew(LeasePayload(cursor(6)))

    assert saved(client) == cursor(6)


def test_a_take_over_that_took_effect_without_an_answer_is_found(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    server.mishaps.add(refusal(504, after=True), when=matching("POST", "leases"))
    lease = candidate(client, clock)
    with pytest.raises(KubeUnavailable):
        lease.try_acquire()

    assert lease.try_acquire().is_ours


def test_a_lease_that_somebody_deleted_is_put_back_with_its_cursor(
    server: KubernetesServer, lease: LeaderLease, client: KubeClient
) -> None:
    lease.renew(LeasePayload(cursor(5)))
    delete(server)

    lease.renew(LeasePayload(cursor(6)))

    assert saved(client) == cursor(6)
    lease.renew(LeasePayload(cursor(7)))
    assert saved(client) == cursor(7)


def test_a_deleted_lease_that_another_process_created_again_is_lost(
    server: KubernetesServer, lease: LeaderLease, client: KubeClient, clock: Clock
) -> None:
    delete(server)
    candidate(client, clock, "b").try_acquire()

    with pytest.raises(LeadershipLost, match="held by b"):
        lease.renew(LeasePayload(cursor(6)))


def test_a_lease_that_another_process_creates_between_two_requests_is_lost(
    server: KubernetesServer, lease: LeaderLease, client: KubeClient, clock: Clock
) -> None:
    candidate_b = candidate(client, clock, "b")
    delete(server)
    candidate_b.try_acquire()
    # The Lease is missing when we renew and read it, and exists when we create it.
    for when in (WRITES, matching("GET", "leases")):
        server.mishaps.add(refusal(404), when=when)

    with pytest.raises(LeadershipLost, match="another process created it again"):
        lease.renew(LeasePayload())


# Releasing.


def test_after_a_release_the_next_holder_starts_at_once(
    server: KubernetesServer, lease: LeaderLease, client: KubeClient, clock: Clock
) -> None:
    assert lease.release(LeasePayload(cursor(5)))

    assert spec(server)["holderIdentity"] == ""
    assert not may_write(lease)
    found = candidate(client, clock, "b").try_acquire()
    assert (found.is_ours, found.holder, found.checkpoint) == (True, "b", cursor(5))


def test_a_release_is_not_hindered_by_a_note(lease: LeaderLease, client: KubeClient) -> None:
    note(client, "ticket", "1234")

    assert lease.release(LeasePayload(cursor(5)))


def test_a_release_that_fails_is_left_to_expire(server: KubernetesServer, lease: LeaderLease) -> None:
    server.mishaps.add(refusal(503), when=WRITES)

    assert not lease.release(LeasePayload(cursor(5)))
    assert not may_write(lease)
    assert spec(server)["holderIdentity"] == "a"


def test_the_budget_runs_from_before_the_renewal_was_sent(
    lease: LeaderLease, client: KubeClient, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = client.replace

    def slowly(*args: Any, **parts: Any) -> Any:
        answer = real(*args, **parts)
        clock.seconds += 4
        return answer

    monkeypatch.setattr(client, "replace", slowly)
    lease.renew(LeasePayload())

    assert lease.budget_seconds() == pytest.approx(16.0)


def test_after_the_deadline_nothing_may_be_written(
    lease: LeaderLease, client: KubeClient, clock: Clock
) -> None:
    assert lease.budget_seconds() == pytest.approx(20.0)
    clock.seconds += 19.9
    assert lease.budget_seconds() == pytest.approx(0.1)

    clock.seconds += 0.2

    with pytest.raises(LeadershipLost, match="could not be renewed for 20 s"):
        lease.budget_seconds()
    with pytest.raises(LeadershipLost):
        lease.renew(LeasePayload(cursor(5)))
    assert saved(client) is None


def test_before_the_lease_is_taken_nothing_may_be_written(client: KubeClient, clock: Clock) -> None:
    with pytest.raises(LeadershipLost, match="does not hold the Lease"):
        candidate(client, clock).budget_seconds()
    with pytest.raises(LeadershipLost, match="does not hold the Lease"):
        candidate(client, clock).renew(LeasePayload())


def test_two_processes_compete_for_hours_and_never_both_may_write(client: KubeClient, clock: Clock) -> None:
    rivals = [candidate(client, clock, name) for name in "ab"]
    terms: list[str] = []
    for step in range(400):
        clock.seconds += 3
        asleep = (step // 40) % 2  # in turns, one of the two sends nothing for a while
        awake = rivals[1 - asleep]
        try:
            awake.renew(LeasePayload(cursor(step)))
        except LeadershipLost:
            awake.try_acquire()
        able = [name for name, rival in zip("ab", rivals, strict=True) if may_write(rival)]
        assert len(able) <= 1
        terms.extend(name for name in able if terms[-1:] != [name])

    assert len(terms) >= 9


def kept(lease: LeaderLease, losses: list[str], newest: Any = lambda: LeasePayload(cursor(5))) -> LeaseKeeper:
    """Start a keeper; ``losses`` gets the reasons why the Lease was lost."""
    keeper = LeaseKeeper(lease, newest, losses.append)
    keeper.start()
    return keeper


def fast(client: KubeClient, clock: Clock) -> LeaderLease:
    """A LeaderLease that has the Lease and renews it all the time."""
    lease = candidate(client, clock, renew_interval_seconds=0.01)
    lease.try_acquire()
    return lease


def test_the_keeper_saves_the_newest_cursor(client: KubeClient, clock: Clock) -> None:
    counted = iter(range(1_000_000))
    losses: list[str] = []
    keeper = kept(fast(client, clock), losses, lambda: LeasePayload(cursor(next(counted))))
    try:
        wait_until(lambda: saved(client) == cursor(0))
        wait_until(lambda: saved(client) != cursor(0))
    finally:
        keeper.stop()
    assert losses == []


def test_the_keeper_renews_at_once_when_it_is_asked_to(client: KubeClient, clock: Clock) -> None:
    lease, losses = candidate(client, clock, renew_interval_seconds=600.0), list[str]()
    lease.try_acquire()
    keeper = kept(lease, losses)
    try:
        assert saved(client) != cursor(5)
        keeper.renew_soon()
        wait_until(lambda: saved(client) == cursor(5))
    finally:
        keeper.stop()
    assert losses == []


def test_the_keeper_renews_again_after_errors(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    lease, losses = fast(client, clock), list[str]()
    server.mishaps.add(refusal(503), times=None, when=WRITES)
    keeper = kept(lease, losses)
    try:
        wait_until(lambda: len(server.calls("update", "leases")) > 3)
        server.mishaps.clear()
        wait_until(lambda: saved(client) == cursor(5))
    finally:
        keeper.stop()
    assert losses == []


def test_the_keeper_reports_the_loss_of_the_lease_once(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    lease, losses = fast(client, clock), list[str]()
    server.mishaps.add(refusal(503), times=None, when=WRITES)
    keeper = kept(lease, losses)
    clock.seconds += 30
    try:
        wait_until(lambda: losses)
    finally:
        keeper.stop()

    assert losses == ["the Lease could not be renewed for 20 s."]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_keeper_that_fails_by_a_bug_reports_it(client: KubeClient, clock: Clock) -> None:
    losses: list[str] = []
    keeper = kept(fast(client, clock), losses, lambda: 1 / 0)
    wait_until(lambda: losses)
    keeper.stop()

    assert losses == ["the process stopped renewing the Lease: division by zero."]


def test_stopping_the_keeper_does_not_wait_for_the_interval(client: KubeClient, clock: Clock) -> None:
    lease = candidate(client, clock, renew_interval_seconds=3600.0)
    lease.try_acquire()
    keeper = kept(lease, [])
    thread = threading.Thread(target=keeper.stop)
    thread.start()
    thread.join(5)

    assert not thread.is_alive()
