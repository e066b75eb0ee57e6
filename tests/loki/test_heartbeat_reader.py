"""Heartbeats are read in tiles behind the present, about once each; a reread reads a span again."""

from __future__ import annotations

import pytest

from konductor_like.loki.query.errors import LokiTimeout, LokiUnavailable
from konductor_like.loki.query.response import Entry
from konductor_like.loki.query.window_query import ByteBudget
from konductor_like.loki.readers.heartbeat import NAMES_MOST, HeartbeatReader, Reread
from konductor_like.loki.readers.poll import PollResult
from tests.loki.support import NOW, SECOND, MemoryLoki, entry, settings

BOOT = "0b6f3c1e-7d52-4a8e-9a53-1f2e3d4c5b6a"
BEAT = f"kmsg/1 heartbeat boot={BOOT} seq=5512 uptime=812.300441 wall=2026-03-03T10:00:00.250Z"


def beats(node: str, *seconds: float) -> list[Entry]:
    """Return heartbeats at these seconds after NOW."""
    return [entry(NOW + round(at * SECOND), BEAT, node) for at in seconds]


def reader_of(loki: MemoryLoki, budget: ByteBudget | None = None, **values: object) -> HeartbeatReader:
    return HeartbeatReader(loki, settings(**values), NOW, budget or ByteBudget(2**30))


def drain(reader: HeartbeatReader, now_ns: int) -> list[PollResult]:
    """Poll until nothing is left to read."""
    batches = []
    while True:
        batch = reader.poll(now_ns)
        reader.commit(batch)
        batches.append(batch)
        if not batch.more:
            return batches


def heard(batches: list[PollResult]) -> list[int]:
    """Return the seconds after NOW of the lines that were read."""
    return [round((line.timestamp_ns - NOW) / SECOND) for batch in batches for line in batch.lines]


def test_at_the_start_the_heartbeats_of_the_stale_span_are_read() -> None:
    loki = MemoryLoki(beats("gpu-1", -400, -299, -240, -30))

    assert heard(drain(reader_of(loki), NOW)) == [-299, -240, -30]


def test_in_steady_state_each_tile_is_one_query_and_each_heartbeat_is_read_once() -> None:
    loki = MemoryLoki(beats("gpu-1", *range(0, 600, 60)))
    reader = reader_of(loki)
    drain(reader, NOW)
    loki.calls.clear()

    batches = [batch for step in range(1, 31) for batch in drain(reader, NOW + 20 * step * SECOND)]

    assert len(loki.calls) == 30
    assert heard(batches) == list(range(0, 600, 60))[:10]
    assert all(call.end_ns - call.start_ns == 20 * SECOND for call in loki.calls)


def test_a_tile_with_more_than_loki_gives_is_read_in_parts_and_nothing_is_left_out() -> None:
    loki = MemoryLoki([one for i in range(50) for one in beats(f"gpu-{i}", -100 + i / 10, -40 + i / 10)])
    loki.allowed_limit = 10

    batches = drain(reader_of(loki), NOW)

    assert len({(line.node, line.timestamp_ns) for batch in batches for line in batch.lines}) == 100
    assert len(batches) > 1
    assert all(batch.queries < 30 for batch in batches)


def test_after_a_failure_it_goes_on_where_it_stopped() -> None:
    loki = MemoryLoki(beats("gpu-1", 0, 60, 120))
    reader = reader_of(loki)
    drain(reader, NOW)
    loki.failures = [LokiUnavailable("no")]
    with pytest.raises(LokiUnavailable):
        reader.poll(NOW + 60 * SECOND)

    assert heard(drain(reader, NOW + 150 * SECOND)) == [0, 60, 120]


def test_after_a_long_failure_it_skips_what_is_older_than_the_stale_span() -> None:
    loki = MemoryLoki(beats("gpu-1", *range(0, 7200, 60)))
    reader = reader_of(loki)
    drain(reader, NOW)

    found = heard(drain(reader, NOW + 7200 * SECOND))

    assert found[0] == 6900
    assert found[-1] == 7140


def test_a_reread_reads_a_span_once_more_for_its_nodes_alone() -> None:
    loki = MemoryLoki([*beats("gpu-1", -3000, -2000), *beats("gpu-2", -2500)])
    reader = reader_of(loki)
    drain(reader, NOW)
    loki.queries.clear()
    reader.reread([Reread(NOW - 3600 * SECOND, NOW, frozenset({"gpu-1"}))])

    batches = drain(reader, NOW)

    assert heard(batches) == [-3000, -2000]
    assert [query.endswith('| k8s_node_name=~"gpu-1"') for query in loki.queries] == [True]
    assert heard(drain(reader, NOW)) == []


def test_a_reread_for_too_many_names_asks_for_all_nodes() -> None:
    loki = MemoryLoki()
    reader = reader_of(loki)
    names = frozenset(f"gpu-{i}" for i in range(NAMES_MOST + 1))
    drain(reader, NOW)
    loki.queries.clear()
    reader.reread([Reread(NOW - 60 * SECOND, NOW, names)])

    drain(reader, NOW)

    assert loki.queries
    assert not any("gpu-" in query for query in loki.queries)


def test_a_long_reread_never_delays_the_present() -> None:
    late = [one for i in range(60) for one in beats(f"gpu-{i}", *range(-3600, -600, 60))]
    loki = MemoryLoki([*late, *beats("gpu-fresh", 10)])
    loki.allowed_limit = 40
    reader = reader_of(loki)
    drain(reader, NOW)
    reader.reread(
        [Reread(NOW - 3600 * SECOND, NOW - 600 * SECOND, frozenset({f"gpu-{i}" for i in range(60)}))]
    )
    first = reader.poll(NOW)
    reader.commit(first)
    assert first.more

    second = reader.poll(NOW + 40 * SECOND)

    assert second.lines[0].node == "gpu-fresh"


def test_a_reread_that_failed_or_was_not_committed_comes_again() -> None:
    loki = MemoryLoki(beats("gpu-1", -2000, -1000))
    reader = reader_of(loki)
    drain(reader, NOW)
    reader.reread(
        Reread(NOW + at * SECOND, NOW + (at + 1) * SECOND, frozenset({"gpu-1"})) for at in (-2000, -1000)
    )
    loki.failures = [LokiUnavailable("no")]
    with pytest.raises(LokiUnavailable):
        reader.poll(NOW)
    reader.poll(NOW)

    assert sorted(heard(drain(reader, NOW))) == [-2000, -1000]


OLD = Reread(NOW - 3600 * SECOND, NOW - 1200 * SECOND, frozenset({"gpu-1"}))


def test_a_reread_that_fails_again_and_again_is_given_up_and_its_nodes_stay_unread() -> None:
    loki = MemoryLoki(beats("gpu-1", 10, -2000))
    reader = reader_of(loki)
    drain(reader, NOW)
    loki.refuse = lambda call: LokiTimeout("no") if call.start_ns < NOW - 1000 * SECOND else None
    reader.reread([OLD])
    for _ in range(3):
        with pytest.raises(LokiTimeout):
            reader.poll(NOW)

    assert heard(drain(reader, NOW + 60 * SECOND)) == [10]
    assert reader.rereading() == {"gpu-1"}
    loki.refuse = lambda _call: None
    reader.reread([OLD])
    assert heard(drain(reader, NOW + 60 * SECOND)) == [-2000]
    assert reader.rereading() == frozenset()


def test_while_loki_answers_nobody_no_reread_is_given_up_until_it_is_too_old() -> None:
    loki = MemoryLoki(beats("gpu-1", -2000))
    reader = reader_of(loki)
    drain(reader, NOW)
    reader.reread([OLD])
    loki.failures = [LokiUnavailable("no")] * 10
    while loki.failures:
        with pytest.raises(LokiUnavailable):
            reader.poll(NOW)

    assert heard(drain(reader, NOW)) == [-2000]
    later = NOW + 86_400 * SECOND
    drain(reader, later)
    reader.reread([OLD])
    loki.failures = [LokiUnavailable("no")]
    with pytest.raises(LokiUnavailable):
        reader.poll(later)
    assert heard(drain(reader, later)) == []


def test_a_span_that_waits_already_is_not_read_twice() -> None:
    reader = reader_of(MemoryLoki(beats("gpu-1", -2000)))
    drain(reader, NOW)

    reader.reread([OLD])
    reader.reread([OLD])

    assert heard(drain(reader, NOW)) == [-2000]


def test_heartbeats_count_against_the_byte_budget_and_when_it_is_short_only_rereads_wait() -> None:
    clock = [0.0]
    budget = ByteBudget(10_000, lambda: clock[0])
    loki = MemoryLoki(beats("gpu-1", *range(0, 600, 60), -2000))
    reader = reader_of(loki, budget)
    drain(reader, NOW + 60 * SECOND)
    assert budget.used > 0

    budget.spend(9_000)
    reader.reread([OLD])
    waits = drain(reader, NOW + 300 * SECOND) + drain(reader, NOW + 300 * SECOND)
    assert heard(waits)[-1] == 240
    assert reader.rereading() == {"gpu-1"}
    clock[0] = 61.0

    assert heard(drain(reader, NOW + 300 * SECOND)) == [-2000]
    assert budget.used > 0


def test_lines_without_a_node_and_of_other_streams_are_counted() -> None:
    nameless = entry(NOW - 30 * SECOND, BEAT, None)
    foreign = Entry(NOW - 30 * SECOND, BEAT, {"k8s_namespace_name": "default", "k8s_container_name": "job"})
    reader = reader_of(MemoryLoki([nameless, foreign]))

    batches = drain(reader, NOW)

    assert sum(batch.without_node for batch in batches) == 1
    assert sum(batch.foreign for batch in batches) == 1
