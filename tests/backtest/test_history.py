"""Reading the history: a Loki that fails for a while, and the byte budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from konductor_like.backtest.history import HistoryReader
from konductor_like.backtest.result import History
from konductor_like.loki.query.errors import LokiError, LokiRefused, LokiUnavailable
from konductor_like.loki.query.patient import FAILURES_MOST
from konductor_like.loki.query.response import Count, Entry, QueryResult
from konductor_like.loki.query.window_query import ByteBudget, TimeWindow
from konductor_like.model import Source
from konductor_like.settings import Settings
from tests.backtest.histories import KERNEL, SECOND_NS, START_NS

HOUR_NS = 3600 * SECOND_NS
SPAN = TimeWindow(START_NS, START_NS + 48 * HOUR_NS)
Fails = Callable[[int], LokiError | None]


@dataclass
class OneLineAMinute:
    """A Loki with one line a minute; ``fails`` returns the error of a query by its number."""

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


def past(loki: OneLineAMinute, **more: object) -> HistoryReader:
    return HistoryReader(
        Source.KERNEL,
        loki,
        "{}",
        Settings(log_endpoint="http://loki"),
        History(SPAN),
        ByteBudget(2**40),
        lambda _: None,
        **more,  # type: ignore[arg-type]  # of the tests' own choice
    )


def times(one: HistoryReader) -> Iterator[int]:
    for page in one.pages():
        yield from (line.timestamp_ns for line in page.lines)


def every_minute(span: TimeWindow) -> list[int]:
    return list(range(span.start_ns, span.end_ns, 60 * SECOND_NS))


def test_a_loki_that_fails_for_a_while_is_asked_again_later_with_a_warning() -> None:
    warnings: list[str] = []
    rests: list[float] = []
    loki = OneLineAMinute(lambda number: LokiUnavailable("Loki restarts") if 4 <= number < 8 else None)
    one = past(loki, tell=warnings.append)
    one.pause = rests.append

    assert list(times(one)) == every_minute(SPAN)
    assert rests == [10.0, 20.0, 30.0, 40.0]
    assert warnings[0] == "Loki restarts; retrying in 10 seconds"


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


def test_the_budget_makes_the_reader_wait_and_the_waiting_is_counted() -> None:
    clock = 0.0
    one = past(OneLineAMinute())
    one.budget = ByteBudget(3 * 2**20, lambda: clock)

    def pass_time(seconds: float) -> None:
        nonlocal clock
        clock += seconds

    one.pause = pass_time

    assert list(times(one)) == every_minute(SPAN)
    assert one.found.waited_seconds >= 60 * (one.found.queries // 3 - 1)
