"""A node's life: its stages, the table of what becomes of it, and how a node may be released."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.model import Covers, IncidentKey, Life, Quarantine, ReleaseHow, Stage, Verb
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.lifecycle import QUARANTINES_KEPT, TABLE, Facts, Happening, become
from tests.policy.scenes import at

TIMES = st.sampled_from([at(-86_400), at(-60), at(0), at(3600)])
HOWS = st.sampled_from(ReleaseHow)
PAST = st.lists(st.builds(Quarantine, TIMES, TIMES, st.just("xid.79"), HOWS, st.booleans()), max_size=12)
LIVES = st.builds(
    Life,
    tainted_at=st.none() | TIMES,
    hold_until=st.none() | TIMES,
    replace_since=st.none() | TIMES,
    contested_at=st.none() | TIMES,
    removed_at=st.none() | TIMES,
    first_removed_at=st.none() | TIMES,
    removed_by=st.sampled_from(["", "karpenter"]),
    put_backs=st.integers(0, 4),
    put_back_at=st.none() | TIMES,
    probation_until=st.none() | TIMES,
    quarantines=PAST.map(tuple),
)
FACTS = st.builds(
    Facts,
    at=TIMES,
    policy=st.sampled_from([PolicyConfig(), PolicyConfig(repeat_count=1), PolicyConfig(repeat_count=0)]),
    how=HOWS,
    failed=st.none() | st.just(IncidentKey("xid.79", "0000:4e:00")),
    is_first=st.booleans(),
)
UNTAINTED = {Stage.IN_SERVICE, Stage.PROBATION, Stage.REMOVED}
NOTHING = {
    Happening.TAINTED: {Stage.OUT},
    Happening.RELEASED_BY_HAND: {*Stage} - {Stage.REMOVED},
    Happening.REMOVED: {*Stage} - {Stage.REMOVED},
    Happening.BACK: {*Stage} - {Stage.OUT},
    Happening.PUT_BACK: {*Stage} - {Stage.REMOVED},
    Happening.FAILED_UNTAINTED: {*Stage} - {Stage.REMOVED},
    Happening.CONTESTED: {*Stage} - {Stage.REMOVED},
    Happening.REBOOTED: {*Stage} - {Stage.OUT, Stage.REMOVED},
    Happening.VALIDATED: {*Stage} - {Stage.OUT, Stage.REMOVED},
    Happening.TEST_ENDED: {*Stage} - {Stage.OUT, Stage.REMOVED},
    Happening.PROBATION_OVER: {Stage.IN_SERVICE},
}
"""At which stages a thing changes nothing; any other has an effect at each stage."""
EVERYTHING = [*product(Stage, Happening)]


@pytest.mark.parametrize(("stage", "happening"), EVERYTHING)
def test_what_changes_a_life_is_in_the_table_and_nothing_else(stage: Stage, happening: Happening) -> None:
    assert ((stage, happening) not in TABLE) is (stage in NOTHING.get(happening, set()))


@given(LIVES, FACTS, st.sampled_from(EVERYTHING), st.booleans())
def test_whatever_happens_to_whatever_life_taint_and_claim_agree(
    life: Life, facts: Facts, what: tuple[Stage, Happening], tainted: bool
) -> None:
    stage, happening = life.stage(tainted=tainted), what[1]

    after, verb, event = become(life, stage, happening, facts)

    if stage in NOTHING.get(happening, set()):
        assert (after is life, verb, event) == (True, Verb.RECORD, None)
    elif verb is Verb.TAINT:
        assert stage in UNTAINTED
        assert after.stage(tainted=True) is Stage.OUT
        assert event is not None
    elif verb is Verb.UNTAINT:
        assert stage not in UNTAINTED
        assert after.stage(tainted=False) in (Stage.IN_SERVICE, Stage.PROBATION)
        assert event is not None
        assert (after.hold_until, after.replace_since) == (None, None)
    elif not tainted:
        assert after.claimed <= life.claimed
    else:
        assert after.claimed >= life.claimed
    past, earlier = ([replace(each, relapse=False) for each in x.quarantines] for x in (after, life))
    assert past in (earlier, [*past[:1], *earlier][:QUARANTINES_KEPT])


@given(LIVES, st.booleans())
def test_every_life_has_one_stage_even_if_record_and_taint_disagree(life: Life, tainted: bool) -> None:
    stage = life.stage(tainted=tainted)

    assert (stage in UNTAINTED) is not tainted
    assert (stage in (Stage.OUT, Stage.REMOVED)) is life.claimed
    assert (stage is Stage.PROBATION) is (life.on_probation and not tainted and not life.claimed)


@pytest.mark.parametrize(
    ("how", "by_controller", "covers"),
    [
        (ReleaseHow.RESET, False, Covers.READ),
        (ReleaseHow("reset of xid 79 on GPU 0000:4e:00"), False, Covers.MET),
        (ReleaseHow.BY_HAND, False, Covers.READ),
        (ReleaseHow.REBOOT, True, Covers.MET),
        (ReleaseHow.TEST_ENDED, True, Covers.MET),
        (ReleaseHow.UNKNOWN, False, Covers.READ),
        (ReleaseHow.VALIDATED, True, Covers.TESTED),
        (ReleaseHow("a later one"), False, Covers.READ),
    ],
)
def test_how_a_node_was_released_tells_by_whom_and_what_is_covered(
    how: ReleaseHow, by_controller: bool, covers: Covers
) -> None:
    assert (how.by_controller, how.covers) == (by_controller, covers)
