"""Spans of silence: what a heartbeat cuts, and what many of them are told as."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from konductor_like.controller.gaps import GAPS_MOST, SECOND_NS, SPANS_PER_NODE, cut, fewest, grouped, merged

QUIET = 300 * SECOND_NS
HOUR = 3600 * SECOND_NS
DAY = 24 * HOUR
FLEET = [f"gpu-{i}" for i in range(40)]
MOMENTS = st.integers(0, 7 * 24).map(lambda hours: hours * HOUR)
SPANS = st.tuples(MOMENTS, MOMENTS).map(sorted).filter(lambda pair: pair[0] < pair[1]).map(tuple)
MISSING = st.lists(st.tuples(st.sampled_from(FLEET), SPANS), max_size=300)


def test_a_heartbeat_cuts_a_gap_and_short_rests_are_no_gaps() -> None:
    gap = (0, 900 * SECOND_NS)

    assert cut([gap], 450 * SECOND_NS, QUIET) == [(0, 450 * SECOND_NS), (450 * SECOND_NS, 900 * SECOND_NS)]
    assert cut([gap], 300 * SECOND_NS, QUIET) == [(300 * SECOND_NS, 900 * SECOND_NS)]
    assert cut([gap], 900 * SECOND_NS, QUIET) == [gap]


@given(st.lists(st.integers(1, 599), unique=True), st.randoms())
def test_the_order_in_which_heartbeats_come_makes_no_difference(beats: list[int], chance: object) -> None:
    whole = [(0, 600 * SECOND_NS)]
    shuffled = sorted(beats, key=lambda _: chance.random())  # type: ignore[attr-defined]  # hypothesis's Random
    in_order, any_order = list(whole), list(whole)
    for one, other in zip(sorted(beats), shuffled, strict=True):
        in_order = cut(in_order, one * SECOND_NS, 60 * SECOND_NS)
        any_order = cut(any_order, other * SECOND_NS, 60 * SECOND_NS)

    edges = [0, *sorted(beats), 600]
    longest = max(later - earlier for earlier, later in pairwise(edges))
    assert bool(in_order) == bool(any_order) == (longest > 60)


@given(st.lists(SPANS, max_size=30))
def test_few_spans_cover_all_that_many_did(spans: list[tuple[int, int]]) -> None:
    kept = fewest(list(spans))

    assert len(kept) <= SPANS_PER_NODE
    assert all(any(start <= a and b <= end for start, end in kept) for a, b in spans)


@given(MISSING)
def test_however_many_gaps_there_are_few_are_told_and_none_is_left_out(
    missing: list[tuple[str, tuple[int, int]]],
) -> None:
    gaps = grouped(missing, FLEET)

    assert len(gaps) <= GAPS_MOST
    for node, (start_ns, end_ns) in missing:
        assert any(
            gap.concerns(node)
            and gap.start_ns <= start_ns
            and gap.end_ns is not None
            and end_ns <= gap.end_ns
            for gap in gaps
        )


def test_what_most_of_the_fleet_misses_is_told_by_the_others() -> None:
    span = (0, HOUR)

    few, most = (grouped([(name, span) for name in FLEET[:count]], FLEET) for count in (3, 38))

    assert (few[0].nodes, few[0].all_but) == (frozenset(FLEET[:3]), False)
    assert (most[0].nodes, most[0].all_but) == (frozenset(FLEET[38:]), True)


def test_nodes_that_fell_silent_in_the_same_minute_share_a_gap() -> None:
    missing = [(name, (number * SECOND_NS, None)) for number, name in enumerate(FLEET)]

    assert len(grouped(missing, FLEET)) == 1


@given(st.lists(SPANS, max_size=20), MOMENTS)
def test_merged_spans_cover_the_same_moments(spans: list[tuple[int, int]], moment: int) -> None:
    def covers(them: object) -> bool:
        return any(start <= moment < end for start, end in them)  # type: ignore[attr-defined]  # of pairs

    assert covers(merged(spans)) == covers(spans)
