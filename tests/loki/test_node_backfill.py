"""A Node was replaced: its kernel lines since boot are read once, to the end, in bounded pieces."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from konductor_like.loki.query.errors import LokiError, LokiTimeout, LokiUnavailable
from konductor_like.loki.query.response import QueryResult
from konductor_like.loki.query.window_query import STORM_LINES, ByteBudget
from konductor_like.loki.readers.backfill import NODES_MOST, TRIES, NodeBackfill
from konductor_like.loki.readers.poll import PollResult
from tests.loki.support import HOUR, NOW, QUERY, SECOND, Call, MemoryLoki, entry, settings, texts_of

MINUTE_BYTES = 6144 * 2**20


class Life:
    """A reader with a clock and a budget that the test sets."""

    def __init__(self, loki: MemoryLoki) -> None:
        self.seconds = 0.0
        self.given_up: list[str] = []
        self.budget = ByteBudget(MINUTE_BYTES, lambda: self.seconds)
        self.reader = NodeBackfill(
            loki,
            QUERY,
            settings(),
            self.budget,
            gave_up=lambda node, _: self.given_up.append(node),
            clock=lambda: self.seconds,
        )

    def poll(self, now_ns: int = NOW) -> PollResult:
        batch = self.reader.poll(now_ns)
        self.reader.commit(batch)
        return batch

    def read(self) -> list[PollResult]:
        """Poll and commit until every node is read."""
        batches = [self.poll()]
        while batches[-1].more:
            batches.append(self.poll())
        return batches


def texts(batches: list[PollResult]) -> list[str]:
    return [text for batch in batches for text in texts_of(batch)]


def test_the_lines_of_one_node_since_its_boot_are_read_oldest_first_and_once() -> None:
    loki = MemoryLoki(
        [
            entry(NOW - 3 * HOUR, "before the boot", "gpu-1"),
            entry(NOW - HOUR, "second", "gpu-1"),
            entry(NOW - 2 * HOUR, "first", "gpu-1"),
            entry(NOW - HOUR, "another's", "gpu-2"),
        ]
    )
    life = Life(loki)
    life.reader.request("gpu-1", NOW - 2 * HOUR)

    assert texts(life.read()) == ["first", "second"]
    assert texts(life.read()) == []
    assert set(loki.queries) == {f'{QUERY} | k8s_node_name=~"gpu-1"'}
    assert len(loki.queries) < 10


def test_a_flood_in_the_last_second_is_read_once_and_to_the_end() -> None:
    lines = [entry(NOW - SECOND + n * 1000, f"line {n}", "gpu-1") for n in range(90)]
    life = Life(MemoryLoki(lines, allowed_limit=10))
    life.reader.request("gpu-1", NOW - HOUR)

    found: list[str] = []
    for _ in range(200):
        found += texts_of(life.poll())

    assert found == [f"line {n}" for n in range(90)]
    assert life.reader.waiting() == frozenset()


def test_lines_of_other_nodes_are_left_out_whatever_loki_answers() -> None:
    class Unfiltered(MemoryLoki):
        """Answer as if the label filter selected everything."""

        def query_range(self, query: str, start_ns: int, end_ns: int, limit: int) -> QueryResult:
            return super().query_range(query.partition(" | ")[0], start_ns, end_ns, limit)

    life = Life(Unfiltered([entry(NOW - HOUR, "mine", "gpu-1"), entry(NOW - HOUR, "another's", "gpu-2")]))
    life.reader.request("gpu-1", NOW - 2 * HOUR)

    assert texts(life.read()) == ["mine"]


def test_a_fault_behind_a_storm_of_earlier_lines_is_found_and_each_piece_is_bounded() -> None:
    storm = [entry(NOW - 3 * HOUR + i * SECOND // 1000, f"line {i}", "gpu-1") for i in range(12_000)]
    life = Life(MemoryLoki([entry(NOW - 30 * HOUR, "too old", "gpu-1"), *storm, entry(NOW - HOUR, "last")]))
    for node in ("gpu-1", "gpu-a"):
        life.reader.request(node, 0)

    batches = life.read()

    assert max(len(batch.lines) for batch in batches) <= STORM_LINES
    assert [text for text in texts(batches) if text != "last"] == [f"line {i}" for i in range(12_000)]
    at = next(number for number, batch in enumerate(batches) if "last" in texts_of(batch))
    assert at < len(batches) - 10  # the nodes take turns, so a quiet one does not wait for the storm
    assert life.reader.waiting() == frozenset()


def test_lines_of_after_the_first_poll_are_left_to_the_reader_of_the_present() -> None:
    loki = MemoryLoki([entry(NOW + SECOND, "later", "gpu-1")])
    life = Life(loki)
    life.reader.request("gpu-1", NOW - 2 * HOUR)
    life.poll()
    while life.poll(NOW + HOUR).more:
        pass

    assert max(call.end_ns for call in loki.calls) == NOW


def test_a_node_that_is_replaced_again_while_it_is_read_is_read_from_the_beginning() -> None:
    life = Life(MemoryLoki([entry(NOW - 2 * HOUR + SECOND, "first", "gpu-1")]))
    life.reader.request("gpu-1", NOW - 2 * HOUR)
    batch = life.reader.poll(NOW)
    life.reader.request("gpu-1", NOW - 2 * HOUR)
    life.reader.commit(batch)

    assert texts_of(batch) == texts(life.read()) == ["first"]


def test_a_batch_that_was_not_committed_comes_again() -> None:
    life = Life(MemoryLoki([entry(NOW - HOUR, "one", "gpu-1")]))
    life.reader.request("gpu-1", NOW - HOUR)

    assert texts_of(life.reader.poll(NOW)) == texts_of(life.poll()) == ["one"]


def test_a_node_waits_while_loki_is_away_and_is_given_up_with_a_word_when_its_own_query_fails() -> None:
    loki = MemoryLoki([entry(NOW - HOUR, "one", "gpu-1")])
    away, slow = Life(loki), Life(loki)
    for life, error in ((away, LokiUnavailable("no")), (slow, LokiTimeout("slow"))):
        loki.refuse = partial(_always, error)
        life.reader.request("gpu-1", NOW - 2 * HOUR)
        for _ in range(TRIES):
            assert life.given_up == []
            with suppress(LokiError):
                life.poll()
    loki.refuse = partial(_always, None)

    assert (away.given_up, slow.given_up) == ([], ["gpu-1"])
    assert texts(away.read()) == ["one"]
    assert texts(slow.read()) == []


def _always(error: LokiError | None, _call: Call) -> LokiError | None:
    return error


def test_a_boot_that_is_still_to_come_by_our_clock_is_read_all_the_same() -> None:
    life = Life(MemoryLoki([entry(NOW - SECOND // 2, "now", "gpu-1")]))
    life.reader.request("gpu-1", NOW + HOUR)

    assert texts(life.read()) == ["now"]


def test_it_counts_against_the_byte_budget_and_waits_while_half_of_it_is_spent() -> None:
    loki = MemoryLoki([entry(NOW - HOUR, "one", "gpu-1")])
    life = Life(loki)
    life.reader.request("gpu-1", NOW - HOUR)
    life.budget.spend(MINUTE_BYTES // 2)

    waits = life.poll()

    assert (waits.more, waits.queries, loki.calls) == (True, 0, [])
    assert waits.wait_seconds >= 1
    life.seconds = 61
    assert texts_of(life.poll()) == ["one"]
    assert life.budget.used > 0


def test_a_node_more_than_may_wait_is_refused_and_one_that_waits_already_is_not() -> None:
    life = Life(MemoryLoki())

    taken = [life.reader.request(f"gpu-{number}", NOW) for number in range(NODES_MOST + 1)]

    assert taken == [True] * NODES_MOST + [False]
    assert life.reader.request("gpu-0", NOW)
    assert len(life.reader.waiting()) == NODES_MOST
