"""The memory of what was delivered."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.loki.read_state import DeliveredLines, line_digest
from konductor_like.loki.response import Entry
from tests.loki.support import NOW, SECOND, entry, settings

SETTINGS = settings()


def line(at_ns: int = NOW, text: str = "NVRM: one", node: str | None = "gpu-a", **more: str) -> Entry:
    return entry(at_ns, text, node, **{"k8s_pod_uid": "u1", "k8s_container_restart_count": "0", **more})


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(line(observed_timestamp="7"), id="read again by the collector"),
        pytest.param(line(k8s_daemonset_name="dmesg"), id="enriched later"),
    ],
)
def test_a_line_shipped_twice_is_the_same_line(again: Entry) -> None:
    assert line_digest(line(), SETTINGS) == line_digest(again, SETTINGS)


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
def test_another_line_is_another_line(other: Entry) -> None:
    assert line_digest(line(), SETTINGS) != line_digest(other, SETTINGS)


def test_without_a_node_any_label_tells_lines_apart() -> None:
    one, two = (Entry(NOW, "NVRM", {"job": "kmsg", "host": host}) for host in ("a", "b"))

    assert line_digest(one, SETTINGS) != line_digest(two, SETTINGS)


@hypothesis.settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.text(max_size=3), min_size=2, max_size=2),
    st.lists(st.text(max_size=3), min_size=2, max_size=2),
)
def test_parts_never_run_into_one_another(first: list[str], second: list[str]) -> None:
    one, two = (entry(NOW, text, k8s_pod_uid=uid) for uid, text in (first, second))

    assert (line_digest(one, SETTINGS) == line_digest(two, SETTINGS)) == (first == second)


@hypothesis.settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.integers(0, 200 * SECOND), max_size=60, unique=True), st.integers(0, 200 * SECOND))
def test_nothing_needed_is_forgotten_and_memory_is_bounded(timestamps: list[int], before_ns: int) -> None:
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


def test_too_many_digests_cost_the_oldest_but_never_their_count() -> None:
    seen = DeliveredLines(most=100)
    for second in range(30):
        seen.add({1000 * second + number: NOW + second * SECOND for number in range(10)})

    assert seen._kept <= 200
    assert not seen.has(NOW, 0)
    assert seen.has(NOW + 29 * SECOND, 29_001)
    assert [seen.count(NOW + start, NOW + start + 1) for start in (0, 10 * SECOND, 20 * SECOND)] == [100] * 3
    seen.forget_before(NOW + 100 * SECOND)
    assert seen._kept == seen.count(NOW, NOW + 100 * SECOND) == 0
