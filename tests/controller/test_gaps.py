"""Spans of silence: what many of them are told as."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from konductor_like.controller.coverage import GAPS_MOST, grouped, joined
from konductor_like.model.time import SECOND_NS

HOUR = 3600 * SECOND_NS
FLEET = [f"gpu-{i}" for i in range(40)]
MOMENTS = st.integers(0, 7 * 24).map(lambda hours: hours * HOUR)
SPANS = st.tuples(MOMENTS, MOMENTS).map(sorted).filter(lambda pair: pair[0] < pair[1]).map(tuple)
MISSING = st.lists(st.tuples(st.sampled_from(FLEET), SPANS), max_size=300)


@given(MISSING)
def test_however_many_gaps_there_are_few_are_told_and_none_is_left_out(
    missing: list[tuple[str, tuple[int, int]]],
) -> None:
    gaps = grouped(missing)

    assert len(gaps) <= GAPS_MOST
    for node, (start_ns, end_ns) in missing:
        assert any(
            gap.concerns(node)
            and gap.start_ns <= start_ns
            and gap.end_ns is not None
            and end_ns <= gap.end_ns
            for gap in gaps
        )


def test_nodes_that_fell_silent_in_the_same_minute_share_a_gap() -> None:
    missing = [(name, (number * SECOND_NS, None)) for number, name in enumerate(FLEET)]

    assert len(grouped(missing)) == 1


@given(st.lists(SPANS, max_size=20), MOMENTS)
def test_joined_spans_cover_the_same_moments(spans: list[tuple[int, int]], moment: int) -> None:
    found = joined([(span, "gpu-1") for span in spans], oldest_ns=0)

    covered = any(each.start_ns <= moment < each.end_ns for each in found)
    assert covered == any(start <= moment < end for start, end in spans)
