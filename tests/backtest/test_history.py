"""Reading the past: kept windows, a Loki that fails for a while, and what it may process for us."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from konductor_like.backtest.cache import HistoryCache
from konductor_like.backtest.history import FAILURES_MOST, HistoryReader
from konductor_like.backtest.result import TimeSpan
from konductor_like.loki.errors import LokiError, LokiRefused, LokiUnavailable
from konductor_like.loki.response import Count, Entry, QueryResult
from konductor_like.loki.window_query import ByteBudget
from konductor_like.model import Source
from konductor_like.settings import Settings
from tests.backtest.histories import KERNEL, SECOND_NS, START_NS

HOUR_NS = 3600 * SECOND_NS
SPAN = TimeSpan(START_NS, START_NS + 48 * HOUR_NS)
Fails = Callable[[int], LokiError | None]


@dataclass
class OneLineAMinute:
    """A Loki of that content; ``fails`` says which of its queries, by number, end how."""

    fails: Fails = lambda _: None
    asked: list[tuple[int, int]] = field(default_factory=list)

    def query_range(self, _query: str, start_ns: int, end_ns: int, limit: int) -> QueryResult:
        error = self.fails(len(self.asked))
        self.asked.append((start_ns, end_ns))
        if error is not None:
            raise error
        minute = 60 * SECOND_NS
        at = range(-(-start_ns // minute) * minute, end_ns, minute)
        entries = tuple(Entry(ns, f"NVRM: {ns}", {**KERNEL, "k8s_node_name": "gpu-1"}) for ns in at)
        return QueryResult(entries[:limit], None, 2**20, limit, 1)

    def count(self, *_: object) -> Count:
        raise AssertionError("nothing here is sharded")


def past(loki: OneLineAMinute, cache: HistoryCache | None = None, **more: object) -> HistoryReader:
    return HistoryReader(
        Source.KERNEL,
        loki,
        "{}",
        Settings(log_endpoint="http://loki"),
        ByteBudget(2**40),
        lambda _: None,
        cache=cache,
        keep_upto_ns=SPAN.end_ns - HOUR_NS,
        **more,  # type: ignore[arg-type]  # of the tests' own choice
    )


def times(one: HistoryReader, span: TimeSpan = SPAN) -> Iterator[int]:
    for page in one.pages(span):
        yield from (line.timestamp_ns for line in page.lines)


def every_minute(span: TimeSpan) -> list[int]:
    return list(range(span.start_ns, span.end_ns, 60 * SECOND_NS))


def test_a_second_run_asks_only_for_what_is_too_young_to_be_kept(tmp_path: Path) -> None:
    first, second = OneLineAMinute(), OneLineAMinute()

    assert list(times(past(first, HistoryCache(tmp_path, "0" * 20)))) == every_minute(SPAN)
    again = past(second, HistoryCache(tmp_path, "0" * 20))
    assert list(times(again)) == every_minute(SPAN)

    assert len(first.asked) > 5
    assert second.asked[0][0] == SPAN.end_ns - HOUR_NS
    assert again.kept_lines == 47 * 60


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    first = past(OneLineAMinute(), HistoryCache(tmp_path, "0" * 20))
    for _, page in zip(range(5), first.pages(SPAN), strict=False):
        assert page.lines
    second = OneLineAMinute()

    assert list(times(past(second, HistoryCache(tmp_path, "0" * 20)))) == every_minute(SPAN)
    assert second.asked[0][0] == first.upto_ns


def test_another_span_takes_what_is_kept_of_it_and_asks_for_what_lies_between(tmp_path: Path) -> None:
    early, late = TimeSpan(START_NS, START_NS + 10 * HOUR_NS), TimeSpan(START_NS + 20 * HOUR_NS, SPAN.end_ns)
    for span in (early, late):
        assert list(times(past(OneLineAMinute(), HistoryCache(tmp_path, "0" * 20)), span)) == every_minute(
            span
        )
    middle = TimeSpan(START_NS + 5 * HOUR_NS, START_NS + 25 * HOUR_NS)
    loki = OneLineAMinute()

    assert list(times(past(loki, HistoryCache(tmp_path, "0" * 20)), middle)) == every_minute(middle)

    assert (loki.asked[0][0], loki.asked[-1][1]) == (early.end_ns, late.start_ns)


def test_a_directory_that_takes_no_more_ends_the_keeping_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(HistoryCache, "store", full)

    assert list(times(past(OneLineAMinute(), HistoryCache(tmp_path, "0" * 20)))) == every_minute(SPAN)


def test_a_loki_that_fails_for_a_while_is_asked_again_later_and_that_is_told() -> None:
    told: list[str] = []
    rests: list[float] = []
    loki = OneLineAMinute(lambda number: LokiUnavailable("Loki restarts") if 4 <= number < 8 else None)
    one = past(loki, tell=told.append)
    one.pause = rests.append

    assert list(times(one)) == every_minute(SPAN)
    assert rests == [10.0, 20.0, 30.0, 40.0]
    assert told[0] == "Loki restarts; asking again in 10 seconds"


@pytest.mark.parametrize(
    ("fails", "asked"),
    [
        (lambda number: LokiUnavailable("down") if number >= 4 else None, 4 + FAILURES_MOST + 1),
        (lambda number: LokiRefused("no such label") if number >= 4 else None, 5),
        (lambda _: LokiUnavailable("down"), 1),
    ],
    ids=["for good", "what asking again does not help", "from the first query on"],
)
def test_a_failure_that_lasts_ends_the_reading_after_what_was_read(fails: Fails, asked: int) -> None:
    loki = OneLineAMinute(fails)
    one = past(loki)

    with pytest.raises(LokiError):
        list(times(one))

    assert len(loki.asked) == asked
    assert one.upto_ns >= SPAN.start_ns


def test_the_budget_makes_it_wait_and_the_waiting_is_counted() -> None:
    clock = 0.0
    one = past(OneLineAMinute())
    one.budget = ByteBudget(3 * 2**20, lambda: clock)

    def pass_time(seconds: float) -> None:
        nonlocal clock
        clock += seconds

    one.pause = pass_time

    assert list(times(one)) == every_minute(SPAN)
    assert one.waited_seconds >= 60 * (one.queries // 3 - 1)
