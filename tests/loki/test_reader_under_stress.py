"""The reader when there is much to read, or Loki cannot or will not answer."""

from __future__ import annotations

from contextlib import suppress
from sys import getsizeof

import pytest

from konductor_like.loki.query.errors import (
    LokiAnswerTooLarge,
    LokiError,
    LokiRefused,
    LokiStopped,
    LokiTimeout,
    LokiUnavailable,
)
from konductor_like.loki.query.window_query import TimeWindow
from tests.loki.support import (
    HOUR,
    NOW,
    SECOND,
    Call,
    MemoryLoki,
    cursor_of,
    entry,
    poll,
    start_reader,
    steady_reader,
    texts_of,
)


def test_a_long_absence_is_read_in_bounded_polls_oldest_first() -> None:
    entries = [entry(NOW + hour * HOUR, f"hour {hour}") for hour in range(30)]
    loki = MemoryLoki(entries)
    reader = start_reader(loki, cursor_ns=NOW)
    now_ns = NOW + 29 * HOUR + 60 * SECOND

    batches = [poll(reader, now_ns)]
    while batches[-1].more:
        batches.append(poll(reader, now_ns))

    texts = [text for batch in batches for text in texts_of(batch)]
    assert texts.pop(texts.index("hour 29")) in texts_of(batches[0]), "the present is not kept waiting"
    assert texts == [f"hour {hour}" for hour in range(29)]
    assert len(batches) > 2
    assert all(batch.queries <= 8 + 1 for batch in batches)
    assert all(call.end_ns - call.start_ns <= HOUR for call in loki.calls)
    cursors = [batch.upto_ns for batch in batches]
    assert cursors == sorted(cursors)
    assert cursors[-1] == now_ns


def test_a_count_that_is_far_too_high_does_no_harm_where_a_query_was_not_sharded() -> None:
    loki = MemoryLoki(shards=1, overcount=100_000)
    reader = steady_reader(loki)
    loki.entries += [entry(NOW + number * 1_000, f"line {number}") for number in range(20_000)]

    texts = [text for _ in range(40) for text in texts_of(poll(reader, NOW + SECOND))]

    assert texts == [f"line {number}" for number in range(20_000)]
    assert len(loki.calls) < 120
    assert not loki.counted


def test_the_answer_of_a_sharded_query_whose_count_is_too_high_is_proven_by_counting() -> None:
    loki = MemoryLoki(shards=16, overcount=100_000)
    reader = steady_reader(loki)
    loki.entries += [entry(NOW + number * 10_000, f"line {number}") for number in range(20_000)]

    texts = [text for _ in range(60) for text in texts_of(poll(reader, NOW + SECOND))]

    assert texts == [f"line {number}" for number in range(20_000)]
    assert len(loki.calls) < 200
    assert len(loki.counted) >= 4


def test_the_memory_that_long_lines_take_ends_a_poll_early() -> None:
    long = "🔥" * 30_000
    loki = MemoryLoki([entry(NOW + number * SECOND, long, node=f"gpu-{number}") for number in range(170)])
    reader = start_reader(loki)

    batch = poll(reader, NOW + 170 * SECOND)

    assert batch.more
    assert 2 * 2**20 <= sum(getsizeof(text) for text in texts_of(batch)) < 3 * 6 * 2**20


def test_more_lines_in_one_nanosecond_than_loki_gives_out_are_reported() -> None:
    loki = MemoryLoki(allowed_limit=10)
    reader = steady_reader(loki, loki_limit=10)
    loki.entries += [entry(NOW + SECOND, f"line {number}") for number in range(50)]

    batches = [poll(reader, NOW + 5 * SECOND)]
    while batches[-1].more:
        batches.append(poll(reader, NOW + 5 * SECOND))

    (window,) = [window for batch in batches for window in batch.incomplete_windows]
    assert window == TimeWindow(NOW + SECOND, NOW + SECOND + 1)
    assert len([text for batch in batches for text in texts_of(batch)]) == 10


def test_a_smaller_limit_of_the_tenant_is_adopted_for_good() -> None:
    loki = MemoryLoki([entry(NOW, "fault")], allowed_limit=1000)
    reader = start_reader(loki)

    batch = poll(reader, NOW)
    poll(reader, NOW + 5 * SECOND)

    assert texts_of(batch) == ["fault"]
    assert reader._query.limit == 1000
    assert [call.limit for call in loki.calls[:3]] == [1024, 1000, 1000]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(LokiRefused("parse error at line 1, col 7"), id="a bad query"),
        pytest.param(LokiUnavailable("starting"), id="unavailable"),
        pytest.param(LokiTimeout("slow"), id="time-outs"),
        pytest.param(LokiStopped("stopping"), id="stopping"),
    ],
)
def test_a_failed_poll_raises_and_moves_nothing(error: LokiError) -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.entries.append(entry(NOW + SECOND, "fault"))
    # What took too long is asked for again with one entry, and half as wide.
    loki.failures += [error] * (4 if isinstance(error, LokiTimeout) else 1)

    with pytest.raises(type(error)) as caught:
        reader.poll(NOW + 5 * SECOND)

    assert caught.value is error
    assert cursor_of(reader) == NOW
    assert texts_of(poll(reader, NOW + 10 * SECOND)) == ["fault"]


def test_a_loki_too_slow_for_wide_windows_is_asked_for_narrower_ones() -> None:
    def refuse(call: Call) -> LokiError | None:
        return LokiTimeout("slow") if call.end_ns - call.start_ns > 600 * SECOND else None

    loki = MemoryLoki(
        [entry(NOW + minute * 60 * SECOND, f"minute {minute}") for minute in range(300)], refuse=refuse
    )
    reader = start_reader(loki)
    texts: list[str] = []
    failures = 0

    for _ in range(100):
        try:
            batch = poll(reader, NOW + 5 * HOUR)
        except LokiTimeout:
            failures += 1
            continue
        texts += texts_of(batch)
        failures += batch.failure is not None
        if not batch.more and batch.failure is None:
            break

    assert sorted(texts) == sorted(f"minute {minute}" for minute in range(300))
    assert failures < 10


@pytest.mark.parametrize("bearable_seconds", [40, 120])
def test_a_loki_too_slow_for_the_overlap_is_still_read_in_the_present(bearable_seconds: int) -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.refuse = lambda call: (
        LokiTimeout("slow") if call.end_ns - call.start_ns > bearable_seconds * SECOND else None
    )
    found: list[str] = []

    for number in range(66):
        if number < 60:
            loki.entries.append(entry(NOW + (5 * number + 4) * SECOND, f"line {number}"))
        with suppress(LokiTimeout):
            found += texts_of(poll(reader, NOW + (5 * number + 5) * SECOND))

    assert found == [f"line {number}" for number in range(60)]


def test_wide_windows_come_back_once_loki_is_fast_again() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    # Each window is asked for again with fewer entries, and half as wide.
    loki.failures += [LokiTimeout("slow")] * 4 * 6
    for _ in range(6):
        with pytest.raises(LokiTimeout):
            reader.poll(NOW + 5 * SECOND)
    while poll(reader, NOW + 5 * SECOND).more:
        pass

    for number in range(80):
        poll(reader, NOW + number * 5 * SECOND)
    loki.calls.clear()
    poll(reader, NOW + 400 * SECOND)

    assert len(loki.calls) == 1


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(LokiAnswerTooLarge("more than 64 MiB"), id="more bytes than we hold"),
        pytest.param(LokiRefused("the query would read too many bytes (query: 2GB, …)"), id="byte limit"),
    ],
)
def test_a_window_that_is_too_much_at_once_is_read_in_parts(error: LokiError) -> None:
    def refuse(call: Call) -> LokiError | None:
        return error if call.end_ns - call.start_ns > 60 * SECOND else None

    loki = MemoryLoki([], refuse=refuse)
    reader = start_reader(loki)
    loki.entries += [entry(NOW - minute * 60 * SECOND, f"minute {minute}") for minute in range(59, -1, -1)]

    texts: list[str] = []
    more = True
    while more:
        batch = poll(reader, NOW)
        texts += texts_of(batch)
        more = batch.more

    assert sorted(texts) == sorted(f"minute {minute}" for minute in range(60))


def test_one_nanosecond_too_large_to_hold_is_read_with_fewer_lines_and_reported() -> None:
    def refuse(call: Call) -> LokiError | None:
        held = [line for line in loki.entries if call.start_ns <= line.timestamp_ns < call.end_ns]
        return LokiAnswerTooLarge("more than 64 MiB") if min(call.limit, len(held)) > 3 else None

    loki = MemoryLoki([entry(NOW, f"line {number}") for number in range(9)], refuse=refuse)
    reader = start_reader(loki)

    batches = [poll(reader, NOW + SECOND)]
    while batches[-1].more:
        batches.append(poll(reader, NOW + SECOND))

    assert {window for batch in batches for window in batch.incomplete_windows} == {TimeWindow(NOW, NOW + 1)}
    assert 2 <= len([text for batch in batches for text in texts_of(batch)]) <= 6


def test_a_window_that_cannot_be_had_at_all_raises_instead_of_looping() -> None:
    too_large = LokiAnswerTooLarge("more than 64 MiB")
    always = MemoryLoki(refuse=lambda _call: too_large)
    bytes_limit = MemoryLoki(refuse=lambda _call: LokiRefused("the query would read too many bytes"))

    with pytest.raises(LokiAnswerTooLarge):
        start_reader(always).poll(NOW)
    with pytest.raises(LokiRefused):
        start_reader(bytes_limit).poll(NOW)

    assert len(always.calls) < 2 * 90
    assert len(bytes_limit.calls) < 2 * 15


def test_memory_is_bounded_by_what_can_be_read_again() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)

    for second in range(0, 5_000, 5):
        loki.entries = [line for line in loki.entries if line.timestamp_ns > NOW + (second - 400) * SECOND]
        loki.entries += [entry(NOW + second * SECOND + number, f"{second} {number}") for number in range(10)]
        poll(reader, NOW + second * SECOND)
        assert reader._delivered._kept <= (3600 + 2 * 120 + 10 + 5) / 5 * 10 + 10


def test_a_cursor_near_the_beginning_of_time_is_no_negative_timestamp() -> None:
    loki = MemoryLoki()
    reader = start_reader(loki, cursor_ns=5 * SECOND)

    reader.poll(NOW)

    assert loki.calls[0].start_ns == 0
