"""The state of a source's reading, as values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.loki.query.response import Entry
from konductor_like.loki.query.window_query import TimeWindow
from konductor_like.loki.readers.read_state import (
    UNREAD_MOST,
    DeliveredLines,
    NoisyRead,
    PendingSpan,
    ReaderConfig,
    ReadState,
    Reason,
    line_digest,
    noisy_nodes,
    planned,
)
from tests.loki.support import HOUR, NOW, SECOND, entry, settings

CONFIG = ReaderConfig(
    overlap_ns=180 * SECOND,
    lateness_ns=HOUR,
    skew_ns=90 * SECOND,
    widest_ns=HOUR,
    interval_ns=5 * SECOND,
    sweep_every_ns=120 * SECOND,
    revisit_every_ns=600 * SECOND,
)
STEADY = ReadState(cursor_ns=NOW, present_read_ns=NOW, overlap_read_at_ns=NOW, swept_ns=NOW)


def _spans_of(progress: ReadState) -> list[tuple[Reason, int, int]]:
    """Return the span in seconds relative to NOW."""
    return [
        (work.reason, (work.start_ns - NOW) // SECOND, (work.end_ns - NOW) // SECOND)
        for work in progress.pending
    ]


@given(st.permutations(range(UNREAD_MOST + 10)), st.integers(0, 2))
def test_however_many_spans_loki_cannot_return_each_of_their_moments_stays_unread(
    order: list[int], touching: int
) -> None:
    """Beyond the most that are kept apart, spans are joined, and none is dropped."""
    spans = [TimeWindow(NOW + n * HOUR, NOW + n * HOUR + SECOND) for n in order]
    spans += [TimeWindow(span.end_ns, span.end_ns + SECOND) for span in spans[:touching]]
    state = STEADY
    for number, span in enumerate(spans):
        state = state.without_unreadable(span, NOW)

        assert len(state.unread) <= UNREAD_MOST
        assert all(
            any(one.span.start_ns <= each.start_ns and each.end_ns <= one.span.end_ns for one in state.unread)
            for each in spans[: number + 1]
        )
    assert state.read_ns <= min(span.start_ns for span in spans)


def test_as_many_unread_spans_as_may_be_kept_apart_are_kept_apart() -> None:
    state = STEADY
    for n in range(UNREAD_MOST):
        state = state.without_unreadable(TimeWindow(NOW + n * HOUR, NOW + n * HOUR + SECOND), NOW)
    assert len(state.unread) == UNREAD_MOST

    state = state.without_unreadable(TimeWindow(NOW - HOUR, NOW - HOUR + SECOND), NOW)

    last_ns = NOW + (UNREAD_MOST - 1) * HOUR + SECOND
    assert [one.span for one in state.unread] == [TimeWindow(NOW - HOUR, last_ns)]


def test_a_start_reads_back_by_the_lateness_and_a_sweep_interval_before_the_cursor() -> None:
    begun = planned(ReadState(NOW - HOUR, present_read_ns=NOW - HOUR), CONFIG, (), NOW)

    assert _spans_of(begun) == [(Reason.CATCH_UP, -7320, -180)]
    assert begun.restart_from_ns == NOW - HOUR


def test_nothing_is_due_between_two_sweeps_or_when_a_clock_steps_back_a_little() -> None:
    assert planned(STEADY, CONFIG, (), NOW + 100 * SECOND).pending == ()
    assert planned(STEADY, CONFIG, (), NOW - 2 * SECOND).pending == ()


def test_a_sweep_begins_the_lateness_before_the_previous_sweep() -> None:
    swept = planned(replace(STEADY, present_read_ns=NOW + 125 * SECOND), CONFIG, (), NOW + 130 * SECOND)

    assert _spans_of(swept) == [(Reason.SWEEP, -3600, 120)]


def test_until_a_sweep_is_done_the_cursor_stays_where_a_start_would_look_as_far_back() -> None:
    fast = replace(STEADY, present_read_ns=NOW + 300 * SECOND)
    swept = planned(fast, CONFIG, (), NOW + 300 * SECOND)
    begun = planned(ReadState(swept.restart_from_ns, present_read_ns=0), CONFIG, (), NOW + 900 * SECOND)

    assert begun.pending[0].start_ns == swept.pending[0].start_ns
    assert replace(swept, pending=()).restart_from_ns == NOW + 300 * SECOND


def test_no_sweep_begins_before_the_last_one_has_ended_and_then_it_reaches_back_further() -> None:
    under_way = PendingSpan(Reason.SWEEP, NOW - 60 * SECOND, NOW)
    busy = replace(STEADY, present_read_ns=NOW + 300 * SECOND, pending=(under_way,))

    assert planned(busy, CONFIG, (), NOW + 300 * SECOND).pending == (under_way,)
    free = planned(replace(busy, pending=()), CONFIG, (), NOW + 300 * SECOND)
    assert _spans_of(free) == [(Reason.SWEEP, -3600, 290)]


def test_after_an_absence_the_span_between_holds_the_cursor_until_it_is_read() -> None:
    back = planned(STEADY, CONFIG, (), NOW + 100 * SECOND + HOUR)

    assert _spans_of(back)[0] == (Reason.CATCH_UP, -3600, 3520)
    assert back.restart_from_ns == NOW


def test_a_clock_that_steps_back_takes_the_cursor_with_it() -> None:
    back = planned(STEADY, CONFIG, (), NOW - HOUR)

    assert back.cursor_ns == back.present_read_ns == NOW - HOUR
    assert _spans_of(back) == [(Reason.CATCH_UP, -7320, -3780)]


def test_an_open_gap_is_read_every_ten_minutes_and_once_more_when_it_closed() -> None:
    gap = TimeWindow(NOW - 3 * HOUR, NOW - 2 * HOUR)
    steady = replace(STEADY, swept_ns=NOW + 10 * HOUR, present_read_ns=NOW + 10 * HOUR)
    first = planned(steady, CONFIG, [gap], NOW + 10 * HOUR)
    again = planned(replace(first, pending=()), CONFIG, [gap], NOW + 10 * HOUR + 599 * SECOND)
    later = planned(replace(first, pending=()), CONFIG, [gap], NOW + 10 * HOUR + 600 * SECOND)
    closed = planned(replace(first, pending=()), CONFIG, [], NOW + 10 * HOUR + SECOND)
    over = planned(replace(closed, pending=()), CONFIG, [], NOW + 20 * HOUR)

    assert [work.reason for work in first.pending] == [Reason.GAP]
    assert [work.reason for work in again.pending if work.reason is Reason.GAP] == []
    assert [work.reason for work in later.pending if work.reason is Reason.GAP] == [Reason.GAP]
    assert [work.reason for work in closed.pending] == [Reason.GAP]
    assert [work.reason for work in over.pending if work.reason is Reason.GAP] == []


_work = st.builds(
    lambda why, start, width: PendingSpan(why, start, start + width),
    st.sampled_from(list(Reason)),
    st.integers(0, 50),
    st.integers(1, 20),
)


@given(st.lists(_work, max_size=8))
def test_no_moment_of_a_span_is_lost_when_spans_are_joined(items: list[PendingSpan]) -> None:
    state = STEADY
    for item in items:
        state = state.with_span(item)

    def moments(of: list[PendingSpan]) -> set[tuple[Reason, int]]:
        return {(one.reason, at) for one in of for at in range(one.start_ns, one.end_ns)}

    assert moments(list(state.pending)) == moments(items)
    assert sum(one.end_ns - one.start_ns for one in state.pending) == len(moments(items)), (
        "nothing is read twice"
    )


def test_a_rest_without_noisy_nodes_reads_them_once_it_is_joined_with_a_rest_with_them() -> None:
    one = PendingSpan(Reason.REST, 0, 10, frozenset({"a", "b"}))

    (joined,) = STEADY.with_span(one).with_span(PendingSpan(Reason.REST, 5, 20, frozenset({"b"}))).pending

    assert joined == PendingSpan(Reason.REST, 0, 20, frozenset({"b"}))


def test_the_cursor_waits_for_noisy_nodes_and_rests_but_not_for_gaps() -> None:
    work = (PendingSpan(Reason.REST, NOW - 5, NOW), PendingSpan(Reason.GAP, NOW - HOUR, NOW - HOUR + 1))
    progress = replace(STEADY, cursor_ns=NOW - 100, pending=work)

    assert progress.restart_from_ns == NOW - 5
    assert replace(progress, noisy_reads=(NoisyRead(frozenset({"a"}), NOW - 50),)).restart_from_ns == NOW - 50
    assert (
        replace(progress, noisy_reads=(NoisyRead(frozenset({"a"}), NOW - 500),)).restart_from_ns == NOW - 100
    )


def test_nodes_that_fill_a_page_are_noisy_and_the_others_are_not() -> None:
    page = [entry(NOW, node="noisy")] * 900 + [entry(NOW, node=f"gpu-{number}") for number in range(100)]

    assert noisy_nodes(page, "k8s_node_name") == {"noisy"}
    assert noisy_nodes(page[-100:], "k8s_node_name") == frozenset()


@pytest.mark.parametrize(("lines", "over"), [(0, True), (1000, True), (2000, False)])
def test_a_node_is_no_longer_noisy_when_little_came_for_half_a_minute(lines: int, over: bool) -> None:
    noisy_read = NoisyRead(frozenset({"a"}), NOW).read(NOW + SECOND, 50_000, SECOND)

    assert not noisy_read.is_over(NOW + SECOND, 5000)
    calm = noisy_read.read(NOW + 31 * SECOND, lines, SECOND)
    assert calm.is_over(NOW + 31 * SECOND, 5000) is over
    assert not calm.is_over(NOW + 32 * SECOND, 5000), "it was not read to the present"


def test_lines_that_may_be_late_are_read_again_from_ten_seconds_ago_or_later() -> None:
    noisy_read = NoisyRead(frozenset({"a"}), NOW - 60 * SECOND).read(NOW, 5000, SECOND)

    assert noisy_read.again_from(NOW - 60 * SECOND).upto_ns == NOW - 10 * SECOND
    assert noisy_read.again_from(NOW - SECOND).upto_ns == NOW - SECOND
    assert noisy_read.again_from(NOW - SECOND).reached_ns == NOW


SETTINGS = settings()


def line(at_ns: int = NOW, text: str = "NVRM: one", node: str | None = "gpu-a", **more: str) -> Entry:
    return entry(at_ns, text, node, **{"k8s_pod_uid": "u1", "k8s_container_restart_count": "0", **more})


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(line(NOW + 1), id="time"),
        pytest.param(line(text="NVRM: two"), id="text"),
        pytest.param(line(node="gpu-b"), id="node"),
        pytest.param(line(k8s_pod_uid="u2"), id="pod"),
        pytest.param(line(k8s_container_restart_count="1"), id="restart"),
        pytest.param(line(node=None), id="no node"),
    ],
)
def test_a_line_shipped_twice_is_the_same_line_and_another_is_another(other: Entry) -> None:
    assert line_digest(line(), SETTINGS) != line_digest(other, SETTINGS)
    again = line(observed_timestamp="7", k8s_daemonset_name="dmesg")
    assert line_digest(line(), SETTINGS) == line_digest(again, SETTINGS)


def test_lines_without_a_node_differ_when_any_label_differs() -> None:
    one, two = (Entry(NOW, "NVRM", {"job": "kmsg", "host": host}) for host in ("a", "b"))

    assert line_digest(one, SETTINGS) != line_digest(two, SETTINGS)


@given(
    st.lists(st.text(max_size=3), min_size=2, max_size=2),
    st.lists(st.text(max_size=3), min_size=2, max_size=2),
)
def test_a_digest_keeps_neighbouring_parts_apart(first: list[str], second: list[str]) -> None:
    one, two = (entry(NOW, text, k8s_pod_uid=uid) for uid, text in (first, second))

    assert (line_digest(one, SETTINGS) == line_digest(two, SETTINGS)) == (first == second)


@given(st.lists(st.integers(0, 200 * SECOND), max_size=60, unique=True), st.integers(0, 200 * SECOND))
def test_digests_that_are_needed_are_kept_and_memory_is_bounded(
    timestamps: list[int], before_ns: int
) -> None:
    seen = DeliveredLines()
    for timestamp in timestamps:
        seen.add({timestamp * 7: timestamp})

    seen.forget_before(before_ns)

    kept = {timestamp for timestamp in timestamps if seen.has(timestamp, timestamp * 7)}
    assert kept >= {timestamp for timestamp in timestamps if timestamp >= before_ns}
    assert not [timestamp for timestamp in kept if timestamp < before_ns - 10 * SECOND]
    assert seen._kept == len(kept)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_digests_are_found_however_they_were_added(size: int) -> None:
    seen = DeliveredLines()
    digests = [line_digest(entry(NOW, f"line {number}"), SETTINGS) for number in range(3000)]
    for start in range(0, len(digests), size):
        seen.add(dict.fromkeys(digests[start : start + size], NOW))

    assert all(seen.has(NOW, digest) for digest in digests)
    assert not any(seen.has(NOW, digest ^ 1) for digest in digests)
    assert seen._kept == seen.count(NOW, NOW + 1) == 3000


def test_lines_are_counted_by_whole_buckets_of_ten_seconds() -> None:
    seen = DeliveredLines()
    seen.add({1: NOW, 2: NOW + 9 * SECOND, 3: NOW + 10 * SECOND, 4: NOW + 25 * SECOND})

    assert seen.count(NOW, NOW + 10 * SECOND) == 2
    assert seen.count(NOW, NOW + 20 * SECOND) == 3
    assert seen.count(NOW + 5 * SECOND, NOW + 21 * SECOND) == 4
    assert seen.count(NOW + 40 * SECOND, NOW + 90 * SECOND) == 0


def test_what_loki_counts_beyond_the_distinct_lines_is_remembered() -> None:
    seen = DeliveredLines()
    seen.add({1: NOW, 2: NOW + SECOND})

    seen.expect(NOW + 3 * SECOND, 5)
    seen.add({3: NOW + 2 * SECOND})

    assert seen.count(NOW, NOW + 10 * SECOND) == 6


def test_with_too_many_digests_the_oldest_are_dropped_but_never_their_count() -> None:
    seen = DeliveredLines(most=100)
    for second in range(30):
        seen.add({1000 * second + number: NOW + second * SECOND for number in range(10)})

    assert seen._kept <= 200
    assert not seen.has(NOW, 0)
    assert seen.has(NOW + 29 * SECOND, 29_001)
    assert [seen.count(NOW + start, NOW + start + 1) for start in (0, 10 * SECOND, 20 * SECOND)] == [100] * 3
    seen.forget_before(NOW + 100 * SECOND)
    assert seen._kept == seen.count(NOW, NOW + 100 * SECOND) == 0
