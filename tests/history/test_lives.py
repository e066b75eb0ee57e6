"""Over random lives the history tells the true outages, and never one that was not."""

from __future__ import annotations

import pytest

from konductor_like.history.outages import End, Outage
from konductor_like.history.read import Collector, History, TrailReading
from tests.history.lives import TICK, Lives, TrueOutage
from tests.policy.scenes import at

STEPS = 120
CLOSE = 1.0


def history_of(lives: Lives, lost: tuple[float, float] | None = None, since: float = 0.0) -> History:
    collector = Collector(TrailReading(at(since), at(lives.seconds + 1)))
    collector.take(lives.trail(lost))
    return collector.history(lives.cluster.nodes)


def match(outage: Outage, truth: list[TrueOutage]) -> TrueOutage | None:
    since = (outage.since - at(0)).total_seconds()
    same = [each for each in truth if each.node == outage.node and abs(each.since - since) < CLOSE]
    return same[0] if same else None


def assert_true(outage: Outage, truth: TrueOutage | None) -> None:
    assert truth is not None, outage
    if outage.end is End.OUT:
        assert truth.until is None, (outage, truth)
    elif outage.end is End.ENDED:
        assert truth.until is not None, (outage, truth)
        assert outage.until is not None, (outage, truth)
        seen = truth.seen_until or truth.until
        told = (outage.until - at(0)).total_seconds()
        assert truth.until - CLOSE < told < seen + CLOSE, (outage, truth)
        assert outage.how.startswith(truth.how), (outage, truth)
        assert outage.by in (truth.by, None), (outage, truth)


@pytest.mark.parametrize("seed", range(12))
def test_the_history_is_the_truth(seed: int) -> None:
    lives = Lives(seed)
    lives.live(STEPS)

    found = history_of(lives)

    for outage in found.outages:
        assert_true(outage, match(outage, lives.truth))
    assert len(found.outages) == len({(each.node, each.since) for each in found.outages})
    told = [match(each, lives.truth) for each in found.outages]
    unseen = [each for each in lives.truth if each not in told]
    # A person may taint and release a node while no controller runs; only the record may tell it.
    assert all(each.seen_until is not None and each.seen_until - each.since >= TICK for each in unseen), (
        unseen
    )
    unknown = [match(each, lives.truth) for each in found.outages if each.end is End.UNKNOWN]
    assert all(each is not None and each.seen_until is None for each in unknown)  # no controller came back
    assert not found.differing
    assert not found.missing_in_records
    assert len(lives.truth) > 5


@pytest.mark.parametrize("seed", range(12, 20))
def test_with_a_gap_of_the_trail_the_history_says_less_and_never_more(seed: int) -> None:
    lives = Lives(seed)
    lives.live(STEPS)
    begin, end = STEPS * TICK * 0.3, STEPS * TICK * 0.6

    found = history_of(lives, (begin, end))

    for outage in found.outages:
        assert_true(outage, match(outage, lives.truth))
    told = [match(each, lives.truth) for each in found.outages]
    for each in lives.truth:
        outside = each.since > end or (each.until is not None and each.until < begin - TICK)
        if outside and each.seen_until is not None and each.seen_until - each.since > TICK:
            assert each in told or each.seen_until > (each.until or 0) + TICK, each
