"""Windows: whatever the server cuts, every line is read exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.loki.query.response import Entry, QueryResult
from konductor_like.loki.query.window_query import ByteBudget, Piece, TimeWindow, is_complete, read_span
from konductor_like.loki.readers.source import SourceReader
from konductor_like.model import Source
from tests.loki.support import NOW, QUERY, SECOND, MemoryLoki, entry, poll, settings

LIMIT = 6


def _lines(timestamps: list[int]) -> list[Entry]:
    return [Entry(timestamp, f"line {number}", {}) for number, timestamp in enumerate(timestamps)]


class CuttingServer:
    """Returns any of the lines when more match than the limit, as a sharded Loki may; else all of them.

    Its count of matching lines is too high by as much as it likes, and never too low. Without counts it cuts
    as was seen on real servers: never below half the limit. Now and then it does not shard, and cuts at the
    limit only.
    """

    def __init__(self, lines: list[Entry], choose: Callable[[int, int], int], *, counts: bool = True) -> None:
        self._lines = lines
        self._choose = choose
        self._counts = counts
        self.queries: list[TimeWindow] = []

    def __call__(self, window: TimeWindow) -> QueryResult | None:
        self.queries.append(window)
        matching = [line for line in self._lines if window.start_ns <= line.timestamp_ns < window.end_ns]
        given_out = matching
        shards = self._choose(1, 3)
        if shards == 1:
            given_out = sorted(matching, key=lambda line: line.timestamp_ns)[:LIMIT]
        elif len(matching) > LIMIT:
            keep = self._choose(0 if self._counts else LIMIT // 2 + 1, LIMIT)
            given_out = sorted(matching, key=lambda line: crc32(line.text.encode()))[:keep]
        counted = len(matching) + self._choose(0, 2) if self._counts else None
        return QueryResult(tuple(given_out), counted, 0, LIMIT, shards)


@st.composite
def _choosers(draw: st.DrawFn) -> Callable[[int, int], int]:
    choices = draw(st.lists(st.integers(0, 100), min_size=1, max_size=20))
    used = iter(range(10**9))

    def choose(low: int, high: int) -> int:
        return low + choices[next(used) % len(choices)] % (high - low + 1)

    return choose


@given(
    timestamps=st.lists(st.integers(0, 400), max_size=60),
    choose=_choosers(),
    counts=st.booleans(),
    first_ns=st.integers(1, 500),
    widest_ns=st.integers(1, 500),
)
def test_every_line_is_read_exactly_once_whatever_the_server_cuts(
    timestamps: list[int], choose: Callable[[int, int], int], counts: bool, first_ns: int, widest_ns: int
) -> None:
    lines = _lines(timestamps)
    server = CuttingServer(lines, choose, counts=counts)

    pieces = list(read_span(TimeWindow(100, 300), first_ns, widest_ns, server))

    read = Counter(entry.text for piece in pieces for entry in piece.entries)
    assert set(read.values()) <= {1}
    crowded = {piece.window.start_ns for piece in pieces if not piece.complete}
    inside = [line for line in lines if 100 <= line.timestamp_ns < 300]
    assert all(read[line.text] == 1 or line.timestamp_ns in crowded for line in inside)
    assert set(read) <= {line.text for line in inside}
    edges = [100, *(piece.window.end_ns for piece in pieces)]
    assert [piece.window.start_ns for piece in pieces] == edges[:-1], "accepted windows touch"
    assert edges[-1] == 300
    assert all(window.width_ns <= widest_ns for window in server.queries)
    honest_below = LIMIT - 3 if counts else LIMIT // 2  # the count may be two too high
    assert all(piece.complete or piece.window.width_ns == 1 for piece in pieces)
    assert all(timestamps.count(timestamp) > honest_below for timestamp in crowded)


def test_a_full_answer_that_was_not_sharded_is_asked_for_once() -> None:
    asked: list[TimeWindow] = []

    def in_order(window: TimeWindow) -> QueryResult:
        asked.append(window)
        found = [line for line in _lines([*range(0, 400, 10)]) if line.timestamp_ns >= window.start_ns]
        return QueryResult(tuple(found[:LIMIT]), None, 0, LIMIT, 1)

    pieces = read_span(TimeWindow(0, 400), 400, 400, in_order)

    assert next(pieces) == Piece(TimeWindow(0, 50), tuple(_lines([0, 10, 20, 30, 40])))
    assert next(pieces).window.start_ns == 50
    assert [window.start_ns for window in asked] == [0, 50]


@pytest.mark.parametrize(("lines", "complete"), [(20, False), (LIMIT, True)])
def test_a_crowded_nanosecond_is_flagged_unless_loki_counts_no_more_than_came(
    lines: int, complete: bool
) -> None:
    def ask(window: TimeWindow) -> QueryResult:
        held = _lines([500] * lines) if window.start_ns <= 500 < window.end_ns else []
        return QueryResult(tuple(held[:LIMIT]), len(held), 0, LIMIT)

    (crowded,) = [piece for piece in read_span(TimeWindow(0, 1000), 1000, 1000, ask) if piece.entries]

    assert crowded == Piece(TimeWindow(500, 501), tuple(_lines([500] * LIMIT)), complete=complete)


def test_a_window_whose_answer_would_be_too_large_is_halved() -> None:
    def refuses_wide(window: TimeWindow) -> QueryResult | None:
        return None if window.width_ns > 25 else QueryResult((), 0, 0, LIMIT)

    pieces = list(read_span(TimeWindow(0, 100), 100, 100, refuses_wide))

    assert pieces == [Piece(TimeWindow(start, start + 25), ()) for start in (0, 25, 50, 75)]


@pytest.mark.parametrize(
    ("entries", "counted", "complete"),
    [
        pytest.param(0, 0, True, id="nothing"),
        pytest.param(5, 5, True, id="below the limit"),
        pytest.param(6, 6, False, id="exactly the limit: may be cut"),
        pytest.param(4, 6, True, id="the count is too high but within the limit"),
        pytest.param(4, 7, False, id="fewer than the limit, but more matched: holes"),
        pytest.param(3, None, True, id="no count, half the limit"),
        pytest.param(4, None, False, id="no count, more than half the limit"),
    ],
)
def test_the_completeness_guard(entries: int, counted: int | None, complete: bool) -> None:
    result = QueryResult(tuple(_lines([1] * entries)), counted, 0, LIMIT)

    assert is_complete(result) is complete


def test_a_nanosecond_that_almost_fills_an_answer_is_followed_by_a_window_of_some_width() -> None:
    lines = tuple(_lines([100] * 99))

    def ask(window: TimeWindow) -> QueryResult:
        return QueryResult(lines if window.start_ns == 100 else (), None, 0, 100, 1)

    pieces = list(read_span(TimeWindow(100, 102), 1, 1, ask))

    assert [(piece.window, piece.next_width_ns) for piece in pieces] == [
        (TimeWindow(100, 101), 1),
        (TimeWindow(101, 102), 2),
    ]


def test_pods_wait_first_then_sweeps_then_kernel_lines_for_a_minute() -> None:
    seconds = 0.0
    budget = ByteBudget(1000, lambda: seconds)
    seen = []
    for _ in range(11):
        budget.spend(100)
        slowed = [budget.slowdown(source) > 1 for source in (Source.POD, Source.KERNEL)]
        seen.append((slowed[0], not budget.allows_sweeps, slowed[1]))

    assert seen[5] == (False, False, False)
    assert seen[6] == (True, False, False)
    assert seen[8] == (True, True, False)
    assert seen[10] == (True, True, True)
    seconds = 61.0
    assert (budget.used, budget.slowdown(Source.POD)) == (0, 1)


def test_an_overdrawn_budget_postpones_the_sweep_but_never_the_present() -> None:
    seconds, loki = 0.0, MemoryLoki()
    budget = ByteBudget(10_000, lambda: seconds)
    reader = SourceReader(Source.KERNEL, loki, QUERY, settings(), NOW, budget=budget)
    poll(reader, NOW)
    budget.spend(20_000)
    loki.entries += [entry(NOW - 1800 * SECOND, "late"), entry(NOW + 129 * SECOND, "now")]

    tight = poll(reader, NOW + 130 * SECOND)
    seconds = 61.0
    relaxed = poll(reader, NOW + 191 * SECOND)

    assert ([line.text for line in tight.lines], tight.more) == (["now"], False)
    assert [line.text for line in relaxed.lines] == ["late"]
