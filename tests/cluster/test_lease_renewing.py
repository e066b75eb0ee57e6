from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.errors import KubeError, KubeUnavailable, LeadershipLost
from konductor_like.cluster.lease import (
    LeaseStatus,
)
from konductor_like.cluster.lease_annotations import CONTROLS_ANNOTATION, Carried
from konductor_like.sandbox.kubernetes import KubernetesServer, matching, refusal
from konductor_like.sandbox.mishaps import Drop, Mishap
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
from tests.cluster.scenes import record, release

# Renewing.


def test_one_write_renews_and_saves_the_cursor(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    server.clear_calls()
    before = spec(server)["renewTime"]
    clock.seconds += 10

    lease.renew(Carried(cursor(5)))

    assert [call.verb for call in server.calls()] == ["update"]
    assert spec(server)["renewTime"] > before
    assert saved(client) == cursor(5)


def test_what_releases_cover_goes_with_the_cursor_and_goes_when_nothing_is_covered(
    client: KubeClient, clock: Clock
) -> None:
    covered = replace(record(), releases=(release(),))
    lease = candidate(client, clock)
    lease.try_acquire()

    lease.renew(Carried(replace(cursor(5), released=(covered,))))
    assert saved(client) == replace(cursor(5), released=(covered,))
    lease.renew(Carried())
    assert saved(client) == replace(cursor(5), released=(covered,))
    lease.release(Carried(cursor(6)))
    assert saved(client) == cursor(6)


def test_without_a_cursor_the_saved_one_stays(client: KubeClient, clock: Clock) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    lease.renew(Carried(cursor(5)))

    lease.renew(Carried())

    assert saved(client) == cursor(5)


def test_who_lost_the_lease_can_neither_renew_it_nor_move_the_cursor(
    client: KubeClient, clock: Clock
) -> None:
    first, second = candidate(client, clock), candidate(client, clock, "b")
    first.try_acquire()
    second.try_acquire()
    clock.seconds += 31
    assert second.try_acquire().held
    second.renew(Carried(cursor(7)))
    clock.seconds -= 31  # the first one slept and believes that no time has passed

    with pytest.raises(LeadershipLost, match="now held by b"):
        first.renew(Carried(cursor(99)))

    assert saved(client) == cursor(7)
    with pytest.raises(LeadershipLost, match="not ours"):
        first.budget_seconds()
    assert not first.release(Carried(cursor(99)))
    assert saved(client) == cursor(7)


def test_a_second_process_under_the_same_name_puts_the_first_one_out(
    client: KubeClient, clock: Clock
) -> None:
    first, second = candidate(client, clock, "pod_uid"), candidate(client, clock, "pod_uid")
    first.try_acquire()
    clock.seconds += 1
    second.try_acquire()

    with pytest.raises(LeadershipLost):
        first.renew(Carried(cursor(99)))
    second.renew(Carried(cursor(1)))
    assert saved(client) == cursor(1)


def test_a_note_on_the_lease_does_not_cost_it_and_is_kept(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    note(client, "ticket", "1234")

    lease.renew(Carried(cursor(5)))

    (found,) = server.objects("leases", NAMESPACE)
    assert found["metadata"]["annotations"]["ticket"] == "1234"
    assert saved(client) == cursor(5)


def test_a_renewal_tells_what_people_wrote_meanwhile(client: KubeClient, clock: Clock) -> None:
    lease = candidate(client, clock)
    assert lease.news(float("-inf")) is None
    lease.try_acquire()
    taken_at = clock.seconds
    note(client, CONTROLS_ANNOTATION, '{"acts":[{"control":"pause","by":"kim"}]}')
    clock.seconds += 10

    assert lease.news(taken_at) is None
    lease.renew(Carried(cursor(5)))

    news = lease.news(taken_at)
    assert news is not None
    assert (news[0], news[1].controls.pause and news[1].controls.pause.by) == (clock.seconds, "kim")
    assert lease.news(clock.seconds) is None


@pytest.mark.parametrize(
    "mishap",
    [refusal(500, after=True), Mishap(drop=Drop.RESET, after=True), Mishap(drop=Drop.MIDWAY)],
    ids=["500", "reset", "cut off"],
)
def test_a_renewal_that_took_effect_without_an_answer_does_not_cost_the_lease(
    server: KubernetesServer, client: KubeClient, clock: Clock, mishap: Mishap
) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    server.mishaps.add(mishap, when=WRITES)
    with pytest.raises(KubeError):
        lease.renew(Carried(cursor(5)))

    lease.renew(Carried(cursor(6)))

    assert saved(client) == cursor(6)


def test_a_take_over_that_took_effect_without_an_answer_is_found(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    server.mishaps.add(refusal(504, after=True), when=matching("POST", "leases"))
    lease = candidate(client, clock)
    with pytest.raises(KubeUnavailable):
        lease.try_acquire()

    assert lease.try_acquire().held


def test_a_lease_that_somebody_deleted_is_put_back_with_its_cursor(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    lease.renew(Carried(cursor(5)))
    delete(server)

    lease.renew(Carried(cursor(6)))

    assert saved(client) == cursor(6)
    lease.renew(Carried(cursor(7)))
    assert saved(client) == cursor(7)


def test_but_not_when_another_was_faster(server: KubernetesServer, client: KubeClient, clock: Clock) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    delete(server)
    candidate(client, clock, "b").try_acquire()

    with pytest.raises(LeadershipLost, match="held by b"):
        lease.renew(Carried(cursor(6)))


def test_nor_when_that_happens_between_two_looks(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    candidate_b = candidate(client, clock, "b")
    delete(server)
    candidate_b.try_acquire()
    for when in (WRITES, matching("GET", "leases")):
        server.mishaps.add(refusal(404), when=when)  # still gone when we renewed, back when we created

    with pytest.raises(LeadershipLost, match="another took it"):
        lease.renew(Carried())


# Releasing.


def test_after_a_release_the_next_one_starts_at_once(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()

    assert lease.release(Carried(cursor(5)))

    assert spec(server)["holderIdentity"] == ""
    assert not may_write(lease)
    assert candidate(client, clock, "b").try_acquire() == LeaseStatus(True, "b", cursor(5))


def test_a_release_is_not_hindered_by_a_note(client: KubeClient, clock: Clock) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    note(client, "ticket", "1234")

    assert lease.release(Carried(cursor(5)))


def test_a_release_that_fails_is_left_to_expire(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    server.mishaps.add(refusal(503), when=WRITES)

    assert not lease.release(Carried(cursor(5)))
    assert not may_write(lease)
    assert spec(server)["holderIdentity"] == "a"


def test_releasing_what_is_not_held_does_nothing(
    server: KubernetesServer, client: KubeClient, clock: Clock
) -> None:
    assert not candidate(client, clock).release(Carried(cursor(5)))
    assert server.calls() == []
