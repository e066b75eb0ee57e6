"""One node's storm: it hides nobody else's line, is read in full and in order, and costs little later."""

from __future__ import annotations

import pytest

from konductor_like.loki.readers.source import SourceReader
from tests.loki.support import (
    LATENESS,
    NOW,
    SECOND,
    MemoryLoki,
    entry,
    poll,
    steady_reader,
    texts_of,
)

LIMIT = 100


def _storm(lines: int, from_ns: int = NOW + SECOND, node: str = "noisy") -> list[str]:
    return [f"storm of {node} {from_ns} {number}" for number in range(lines)]


def _pour(loki: MemoryLoki, texts: list[str], from_ns: int = NOW + SECOND, node: str = "noisy") -> None:
    loki.entries += [entry(from_ns + number * 1000, text, node=node) for number, text in enumerate(texts)]


def _drain(reader: SourceReader, now_ns: int) -> list[str]:
    texts: list[str] = []
    for _ in range(1000):
        batch = poll(reader, now_ns)
        texts += texts_of(batch)
        if not batch.more:
            return texts
    raise AssertionError("the reader never finishes")


def test_another_nodes_line_comes_with_the_first_poll_of_a_storm() -> None:
    loki = MemoryLoki(allowed_limit=LIMIT)
    reader = steady_reader(loki, loki_limit=LIMIT)
    _pour(loki, _storm(50_000))
    loki.entries.append(entry(NOW + 3 * SECOND, "NVRM: Xid 79", node="quiet"))

    batch = poll(reader, NOW + 5 * SECOND)

    assert "NVRM: Xid 79" in texts_of(batch)
    assert batch.more
    assert batch.noisy_nodes == {"noisy"}
    assert len(loki.calls) < 20


def test_a_storm_is_delivered_in_full_in_order_once_and_in_bounded_polls() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    storm = _storm(50_000)
    _pour(loki, storm)

    batches = [poll(reader, NOW + 5 * SECOND)]
    while batches[-1].more:
        batches.append(poll(reader, NOW + 5 * SECOND))
    batches += [poll(reader, NOW + seconds * SECOND) for seconds in range(10, 300, 5)]

    assert [text for batch in batches for text in texts_of(batch)] == storm
    assert max(len(batch.lines) for batch in batches) < 25_000
    assert max(batch.queries for batch in batches) < 20


def test_a_node_that_has_calmed_down_is_read_with_all_others_again() -> None:
    loki = MemoryLoki(allowed_limit=LIMIT)
    reader = steady_reader(loki, loki_limit=LIMIT)
    _pour(loki, _storm(5_000))
    _drain(reader, NOW + 5 * SECOND)

    noisy = [poll(reader, NOW + seconds * SECOND).noisy_nodes for seconds in range(10, 300, 5)]

    assert noisy[0] == {"noisy"}
    assert noisy[-1] == frozenset()
    loki.entries.append(entry(NOW + 301 * SECOND, "calm", node="noisy"))
    assert texts_of(poll(reader, NOW + 305 * SECOND)) == ["calm"]


def test_sweeps_over_a_storm_count_it_and_do_not_read_it_again() -> None:
    loki = MemoryLoki(allowed_limit=LIMIT)
    reader = steady_reader(loki, loki_limit=LIMIT)
    _pour(loki, _storm(20_000))
    _drain(reader, NOW + 5 * SECOND)
    _drain(reader, NOW + 120 * SECOND)
    loki.calls.clear()

    for seconds in range(125, 1800, 5):
        _drain(reader, NOW + seconds * SECOND)

    polls = (1800 - 125) // 5
    assert len(loki.calls) <= 2 * polls
    assert len(loki.counted) < 200


def test_a_late_line_of_a_node_that_stormed_is_found_by_the_next_sweep() -> None:
    loki = MemoryLoki(allowed_limit=LIMIT)
    reader = steady_reader(loki, loki_limit=LIMIT)
    _pour(loki, _storm(20_000))
    for seconds in range(5, 600, 5):
        _drain(reader, NOW + seconds * SECOND)

    loki.entries.append(entry(NOW + SECOND + 1, "late", node="noisy"))
    texts = [text for seconds in range(600, 725, 5) for text in _drain(reader, NOW + seconds * SECOND)]

    assert texts == ["late"]


def test_entries_that_loki_counts_twice_are_read_again_once_and_then_left_alone() -> None:
    loki = MemoryLoki(allowed_limit=LIMIT)
    reader = steady_reader(loki, loki_limit=LIMIT)
    _pour(loki, _storm(500))
    loki.entries += [
        entry(item.timestamp_ns, item.text, node="noisy", observed="later") for item in loki.entries
    ]
    for seconds in range(5, 400, 5):
        _drain(reader, NOW + seconds * SECOND)
    loki.calls.clear()

    for seconds in range(400, 1000, 5):
        _drain(reader, NOW + seconds * SECOND)

    assert len(loki.calls) <= 1.2 * 600 / 5


def test_lines_without_a_node_may_storm_too() -> None:
    loki = MemoryLoki(allowed_limit=LIMIT)
    reader = steady_reader(loki, loki_limit=LIMIT)
    loki.entries += [entry(NOW + SECOND + number, f"whose? {number}", node=None) for number in range(2000)]
    loki.entries.append(entry(NOW + 3 * SECOND, "NVRM: Xid 79", node="quiet"))

    batch = poll(reader, NOW + 5 * SECOND)

    assert "NVRM: Xid 79" in texts_of(batch)
    assert batch.noisy_nodes == {""}
    assert len(_drain(reader, NOW + 5 * SECOND)) + len(batch.lines) == 2001


def test_a_fleet_that_storms_for_minutes_is_read_as_fast_as_its_lines_come() -> None:
    loki = MemoryLoki(allowed_limit=LIMIT)
    reader = steady_reader(loki, loki_limit=LIMIT)
    texts: list[str] = []
    written = 0
    for second in range(0, 240, 5):
        for number in range(300):
            loki.entries.append(
                entry(NOW + second * SECOND + number, f"{second} {number}", node=f"gpu-{number}")
            )
            written += 1
        texts += _drain(reader, NOW + (second + 5) * SECOND)

    assert len(texts) == len(set(texts)) == written
    assert len(loki.calls) < 8 * written / LIMIT * 5


def test_a_line_late_by_the_lateness_is_found_within_a_sweep() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    for seconds in range(5, 400, 5):
        poll(reader, NOW + seconds * SECOND)

    loki.entries.append(entry(NOW + 400 * SECOND - LATENESS, "an hour late"))
    texts = [
        text for seconds in range(400, 525, 5) for text in texts_of(poll(reader, NOW + seconds * SECOND))
    ]

    assert texts == ["an hour late"]


def test_between_two_polls_of_the_whole_overlap_a_nudged_poll_reads_little() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    poll(reader, NOW + 5 * SECOND)
    loki.calls.clear()

    reader.commit(reader.poll(NOW + 6 * SECOND))

    assert loki.calls[0].start_ns == NOW - 5 * SECOND


def test_a_nudge_for_an_older_line_reads_back_to_it() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    poll(reader, NOW + 5 * SECOND)
    loki.entries += [entry(NOW - 100 * SECOND, "late"), entry(NOW - 2 * LATENESS, "very late")]

    within = reader.poll(NOW + 6 * SECOND, NOW - 100 * SECOND)
    reader.commit(within)
    beyond = reader.poll(NOW + 7 * SECOND, NOW - 2 * LATENESS)
    reader.commit(beyond)

    assert texts_of(within) == ["late"]
    assert texts_of(beyond) == ["very late"]


def test_a_storm_faster_than_it_can_be_read_keeps_no_late_line_of_another_node_from_being_found() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    texts: list[str] = []
    for second in range(0, 400, 5):
        _pour(loki, _storm(4_000, NOW + second * SECOND), NOW + second * SECOND)
        if second == 100:
            loki.entries.append(entry(NOW - 600 * SECOND, "NVRM: Xid 79", node="quiet"))
        texts += texts_of(poll(reader, NOW + (second + 5) * SECOND))
        if "NVRM: Xid 79" in texts:
            return
    raise AssertionError("never found")


def test_a_fleet_that_storms_one_after_the_other_is_read_through_with_queries_that_loki_accepts() -> None:
    loki = MemoryLoki(allowed_limit=LIMIT)
    reader = steady_reader(loki, loki_limit=LIMIT)
    texts = []
    for number in range(1200):
        node, from_ns = f"gpu-{number}.{'x' * 180}.internal", NOW + SECOND + number * 5000
        texts += _storm(4, from_ns, node)
        _pour(loki, _storm(4, from_ns, node), from_ns, node)

    found = []
    for tenths in range(100):
        found += texts_of(poll(reader, NOW + 2 * SECOND + tenths * SECOND // 10))

    assert sorted(found) == sorted(texts)
    assert max(len(query.encode()) for query in loki.queries) < 128 * 1024  # Loki parses no more


@pytest.mark.parametrize("step_tenths", [3, 50])
@pytest.mark.parametrize("lag_tenths", [5, 10, 30])
def test_a_storming_nodes_own_lines_come_with_the_poll_after_loki_took_them_in(
    step_tenths: int, lag_tenths: int
) -> None:
    tenth, loki = SECOND // 10, MemoryLoki(allowed_limit=LIMIT)
    reader = steady_reader(loki, loki_limit=LIMIT)
    lines = [entry(NOW + number * tenth // 5, f"line {number}", node="noisy") for number in range(3000)]
    late: dict[str, float] = {}

    for tenths in range(step_tenths, 900, step_tenths):
        now_ns = NOW + tenths * tenth
        loki.entries = [line for line in lines if line.timestamp_ns + lag_tenths * tenth <= now_ns]
        for number in (int(text.split()[1]) for text in _drain(reader, now_ns)):
            late[f"line {number}"] = (now_ns - lines[number].timestamp_ns) / tenth - lag_tenths

    assert len(late) == 3000
    assert max(late.values()) <= step_tenths + 1
    assert len(loki.calls) < 2.5 * 900 / step_tenths + 100
