from __future__ import annotations

from typing import Any

import pytest

from konductor_like.cluster.client import KubeClient
from konductor_like.cluster.errors import LeadershipLost
from konductor_like.cluster.lease_annotations import Carried
from tests.cluster.lease_scenes import (
    Clock,
    candidate,
    cursor,
    may_write,
    saved,
)


def test_the_budget_runs_from_before_the_renewal_was_sent(
    client: KubeClient, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    real = client.replace

    def slowly(*args: Any, **parts: Any) -> Any:
        answer = real(*args, **parts)
        clock.seconds += 4
        return answer

    monkeypatch.setattr(client, "replace", slowly)
    lease.renew(Carried())

    assert lease.budget_seconds() == pytest.approx(16.0)


def test_after_the_deadline_nothing_may_be_written(client: KubeClient, clock: Clock) -> None:
    lease = candidate(client, clock)
    lease.try_acquire()
    assert lease.budget_seconds() == pytest.approx(20.0)
    clock.seconds += 19.9
    assert lease.budget_seconds() == pytest.approx(0.1)

    clock.seconds += 0.2

    with pytest.raises(LeadershipLost, match="could not be renewed for 20 s"):
        lease.budget_seconds()
    with pytest.raises(LeadershipLost):
        lease.renew(Carried(cursor(5)))
    assert saved(client) is None


def test_the_holders_right_to_write_ends_before_anybody_else_may_take_over(
    client: KubeClient, clock: Clock
) -> None:
    first, second = candidate(client, clock), candidate(client, clock, "b")
    first.try_acquire()
    second.try_acquire()
    while not second.try_acquire().held:
        clock.seconds += 0.5

    with pytest.raises(LeadershipLost):
        first.budget_seconds()


def test_before_it_is_held_nothing_may_be_written(client: KubeClient, clock: Clock) -> None:
    with pytest.raises(LeadershipLost, match="not ours"):
        candidate(client, clock).budget_seconds()
    with pytest.raises(LeadershipLost, match="not ours"):
        candidate(client, clock).renew(Carried())


def test_two_fight_for_hours_and_never_both_may_write(client: KubeClient, clock: Clock) -> None:
    rivals = [candidate(client, clock, name) for name in "ab"]
    terms: list[str] = []
    for step in range(400):
        clock.seconds += 3
        asleep = (step // 40) % 2  # in turns, one of them neither renews nor looks for a while
        awake = rivals[1 - asleep]
        try:
            awake.renew(Carried(cursor(step)))
        except LeadershipLost:
            awake.try_acquire()
        able = [name for name, rival in zip("ab", rivals, strict=True) if may_write(rival)]
        assert len(able) <= 1
        terms.extend(name for name in able if terms[-1:] != [name])

    assert len(terms) >= 9
