"""The byte budget: who waits, and for how long."""

from __future__ import annotations

from konductor_like.loki.reader import SourceReader
from konductor_like.loki.window_query import ByteBudget
from konductor_like.model import Source
from tests.loki.support import NOW, QUERY, SECOND, MemoryLoki, entry, poll, settings


class Clock:
    """Time by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_pods_wait_first_then_sweeps_then_kernel_lines() -> None:
    budget = ByteBudget(1000, Clock())
    seen = []
    for _ in range(11):
        budget.spend(100)
        seen.append(
            (
                budget.slowdown(Source.POD) > 1,
                not budget.allows_sweeps,
                budget.slowdown(Source.KERNEL) > 1,
            )
        )

    assert seen[5] == (False, False, False)
    assert seen[6] == (True, False, False)
    assert seen[8] == (True, True, False)
    assert seen[10] == (True, True, True)


def test_what_was_spent_more_than_a_minute_ago_counts_no_more() -> None:
    clock = Clock()
    budget = ByteBudget(1000, clock)
    budget.spend(2000)
    assert budget.used == 2.0

    clock.seconds = 61.0

    assert budget.used == 0.0
    assert budget.slowdown(Source.KERNEL) == 1.0


def test_an_overdrawn_budget_postpones_the_sweep_but_never_the_present() -> None:
    clock, loki = Clock(), MemoryLoki()
    budget = ByteBudget(10_000, clock)
    reader = SourceReader(Source.KERNEL, loki, QUERY, settings(), NOW, budget=budget)
    poll(reader, NOW)
    budget.spend(20_000)
    loki.entries += [entry(NOW - 1800 * SECOND, "late"), entry(NOW + 129 * SECOND, "now")]

    tight = poll(reader, NOW + 130 * SECOND)
    clock.seconds = 61.0
    relaxed = poll(reader, NOW + 191 * SECOND)

    assert ([line.text for line in tight.lines], tight.more) == (["now"], False)
    assert [line.text for line in relaxed.lines] == ["late"]
