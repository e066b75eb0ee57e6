"""A Node was replaced: its kernel lines since boot are read once, within bounds."""

from __future__ import annotations

from contextlib import suppress

from konductor_like.loki.errors import LokiError, LokiTimeout, LokiUnavailable
from konductor_like.loki.node_backfill import LINES_MOST, NodeBackfill
from konductor_like.loki.poll import PollResult
from konductor_like.loki.response import QueryResult
from tests.loki.support import HOUR, NOW, QUERY, SECOND, MemoryLoki, entry, settings, texts_of


def reader_of(loki: MemoryLoki) -> NodeBackfill:
    return NodeBackfill(loki, QUERY, settings())


def poll(reader: NodeBackfill) -> PollResult:
    batch = reader.poll(NOW)
    reader.commit(batch)
    return batch


def test_the_lines_of_one_node_since_its_boot_are_read_oldest_first_and_once() -> None:
    loki = MemoryLoki(
        [
            entry(NOW - 3 * HOUR, "before the boot", "gpu-1"),
            entry(NOW - HOUR, "second", "gpu-1"),
            entry(NOW - 2 * HOUR, "first", "gpu-1"),
            entry(NOW - HOUR, "another's", "gpu-2"),
        ]
    )
    reader = reader_of(loki)
    reader.request("gpu-1", NOW - 2 * HOUR)

    assert texts_of(poll(reader)) == ["first", "second"]
    assert texts_of(poll(reader)) == []
    assert loki.queries == [f'{QUERY} | k8s_node_name=~"gpu-1"']


def test_lines_of_other_nodes_are_left_out_whatever_loki_answers() -> None:
    class Unfiltered(MemoryLoki):
        """Answer as if the label filter selected everything."""

        def query_range(self, query: str, start_ns: int, end_ns: int, limit: int) -> QueryResult:
            return super().query_range(query.partition(" | ")[0], start_ns, end_ns, limit)

    reader = reader_of(
        Unfiltered([entry(NOW - HOUR, "mine", "gpu-1"), entry(NOW - HOUR, "another's", "gpu-2")])
    )
    reader.request("gpu-1", NOW - 2 * HOUR)

    assert texts_of(poll(reader)) == ["mine"]


def test_never_more_than_a_day_and_never_more_than_five_thousand_lines() -> None:
    loki = MemoryLoki(
        [
            entry(NOW - 30 * HOUR, "too old", "gpu-1"),
            *(entry(NOW - HOUR + i * SECOND // 10, f"line {i}", "gpu-1") for i in range(6000)),
        ]
    )
    reader = reader_of(loki)
    reader.request("gpu-1", 0)

    lines = texts_of(poll(reader))

    assert len(lines) == LINES_MOST
    assert lines[0] == "line 0"


def test_a_batch_that_was_not_committed_comes_again() -> None:
    reader = reader_of(MemoryLoki([entry(NOW - HOUR, "one", "gpu-1")]))
    reader.request("gpu-1", NOW - 2 * HOUR)

    assert texts_of(reader.poll(NOW)) == texts_of(poll(reader)) == ["one"]


def test_a_node_waits_while_loki_is_away_and_is_given_up_when_its_own_query_fails() -> None:
    loki = MemoryLoki([entry(NOW - HOUR, "one", "gpu-1")])
    away, slow = reader_of(loki), reader_of(loki)
    for reader, error in ((away, LokiUnavailable("no")), (slow, LokiTimeout("slow"))):
        loki.failures = [error] * 10
        reader.request("gpu-1", NOW - 2 * HOUR)
        while loki.failures:
            with suppress(LokiError):
                reader.poll(NOW)
                loki.failures.clear()

    assert texts_of(poll(away)) == ["one"]
    assert texts_of(poll(slow)) == []


def test_a_boot_that_is_still_to_come_by_our_clock_is_read_all_the_same() -> None:
    reader = reader_of(MemoryLoki([entry(NOW - SECOND // 2, "now", "gpu-1")]))
    reader.request("gpu-1", NOW + HOUR)

    assert texts_of(poll(reader)) == ["now"]
