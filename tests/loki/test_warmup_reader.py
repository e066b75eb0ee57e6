"""The past is read once, forward, kernel lines first, and never at the expense of the present."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from konductor_like.detection.multiline import MultilineDetector
from konductor_like.loki.query.errors import LokiTimeout, LokiUnavailable
from konductor_like.loki.query.response import Entry, QueryResult
from konductor_like.loki.query.window_query import ByteBudget
from konductor_like.loki.readers.poll import PollResult
from konductor_like.loki.readers.warmup import LINES_MOST, WarmupReader, WarmupTotals
from konductor_like.model import Fault, Source
from tests.loki.support import HOUR, NOW, QUERY, SECOND, SKEW, MemoryLoki, entry, settings

DAY = 24 * HOUR
PODS = '{k8s_namespace_name="default"} |= "NCCL WARN"'
KERNEL = {Source.KERNEL: QUERY}
BOTH = {**KERNEL, Source.POD: PODS}
XID = "NVRM: Xid (PCI:0000:4e:00): 94, pid=1, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
NCCL = "gpu-1:1:2 [0] transport/net_socket.cc:1 NCCL WARN socketProgress: Connection closed by remote peer"


class Loki(MemoryLoki):
    """A Loki with the lines of both sources."""

    def __init__(self, kernel: list[Entry], pods: list[Entry] | None = None) -> None:
        super().__init__()
        self.kernel, self.pods = kernel, pods or []
        self.asked: list[tuple[str, int, int]] = []
        self.bytes_a_second = 0

    def query_range(self, query: str, start_ns: int, end_ns: int, limit: int) -> QueryResult:
        self.asked.append((query, start_ns, end_ns))
        self.entries = self.pods if query == PODS else self.kernel
        result = super().query_range(QUERY, start_ns, end_ns, limit)
        processed = (end_ns - start_ns) // SECOND * self.bytes_a_second
        return replace(result, bytes_processed=processed)


def pod(timestamp_ns: int, node: str = "gpu-1") -> Entry:
    labels = {
        "k8s_namespace_name": "default",
        "k8s_container_name": "main",
        "k8s_pod_name": f"run-1-{node}",
        "k8s_node_name": node,
        "jobset_name": "run-1",
    }
    return Entry(timestamp_ns, NCCL, labels)


class Life:
    """A reader with a clock and a budget that the test sets."""

    def __init__(
        self,
        loki: Loki,
        *,
        queries: Mapping[Source, str] = BOTH,
        seconds: int = 86_400,
        since_ns: int = 0,
        mib: int = 6144,
    ) -> None:
        self.loki = loki
        self.seconds = 0.0
        self.rests: list[float] = []
        self.accounts: list[WarmupTotals] = []
        self.budget = ByteBudget(mib * 2**20, self.clock)
        self.reader = WarmupReader(
            loki,
            settings(),
            queries,
            MultilineDetector().detect,
            self.budget,
            seconds=seconds,
            since_ns=since_ns,
            now_ns=NOW,
            finished=self.accounts.append,
            clock=self.clock,
        )

    def clock(self) -> float:
        return self.seconds

    def poll(self) -> PollResult:
        batch = self.reader.poll(NOW)
        self.reader.commit(batch)
        self.rests.append(batch.wait_seconds)
        self.seconds += batch.wait_seconds
        return batch

    def read(self, each: Callable[[PollResult], object] = lambda _: None) -> list[Fault]:
        """Poll and commit until everything is read."""
        found: list[Fault] = []
        while True:
            batch = self.poll()
            if batch.queries:
                each(batch)
            found += batch.past or ()
            if not batch.more:
                return found


def test_a_day_is_read_once_kernel_lines_first_and_each_source_forward() -> None:
    loki = Loki(
        [entry(NOW - 25 * HOUR, XID), entry(NOW - 23 * HOUR, XID), entry(NOW - HOUR, XID)],
        [pod(NOW - 2 * HOUR), pod(NOW - 20 * HOUR)],
    )
    life = Life(loki)

    found = life.read()

    assert [(fault.source, NOW - fault.timestamp_ns) for fault in found] == [
        (Source.KERNEL, 23 * HOUR),
        (Source.KERNEL, HOUR),
        (Source.POD, 20 * HOUR),
        (Source.POD, 2 * HOUR),
    ]
    assert found[-1].job == "default/JobSet/run-1"
    for query in (QUERY, PODS):
        windows = [(start, end) for asked, start, end in loki.asked if asked == query]
        assert windows[0][0] == NOW - DAY
        assert windows[-1][1] == NOW + SKEW
        assert all(one[1] == other[0] for one, other in pairwise(windows))
    assert len(loki.asked) < 20
    [account] = life.accounts
    assert (account.lines, account.faults, account.queries) == (4, 4, len(loki.asked))


def test_nothing_from_before_we_began_to_act_is_evidence() -> None:
    loki = Loki([entry(NOW - 3 * HOUR, XID), entry(NOW - HOUR, XID)])

    assert len(Life(loki, since_ns=NOW - 2 * HOUR).read()) == 1


def test_it_reads_no_further_back_than_the_rules_look() -> None:
    loki = Loki([entry(NOW - 3 * HOUR, XID), entry(NOW - HOUR, XID)])

    found = Life(loki, queries=KERNEL, seconds=7200).read()

    assert len(found) == 1
    assert {query for query, _, _ in loki.asked} == {QUERY}


def test_it_rests_as_long_as_loki_worked_and_at_least_a_moment() -> None:
    life = Life(Loki([]))
    times = iter([0.0, *([4.0] * 100)])
    query_range = life.loki.query_range

    def slow(*args: object, **kwargs: object) -> QueryResult:
        life.seconds += next(times)
        return query_range(*args, **kwargs)  # type: ignore[arg-type]  # handed on as they came

    life.loki.query_range = slow  # type: ignore[method-assign]  # a Loki that takes its time

    life.read()

    assert life.rests[0] == pytest.approx(0.1)
    assert life.rests[1:] == pytest.approx([4.0] * len(life.rests[1:]))
    assert len(life.rests) > 5


def test_it_takes_half_of_the_budget_at_most_and_narrows_what_costs_too_much() -> None:
    loki = Loki([])
    loki.bytes_a_second = 100_000  # 8.6 GB a day
    life = Life(loki, queries=KERNEL, mib=100)
    used: list[float] = []

    life.read(lambda _: used.append(life.budget.used))

    assert max(used) < 0.5 + 2 * 0.9  # the first query, of a quarter of an hour, costs nine tenths
    assert max(used[5:]) <= 0.65
    widths = [end - start for _, start, end in loki.asked[2:]]
    assert max(widths) <= 106 * SECOND


def test_a_piece_that_was_not_committed_comes_again() -> None:
    life = Life(Loki([entry(NOW - 24 * HOUR + SECOND, XID)]))

    first = life.reader.poll(NOW)
    again = life.poll()

    assert first.past == again.past
    assert len(again.past or ()) == 1
    assert life.poll().past == ()


def test_after_a_failure_it_goes_on_where_it_was_and_asks_a_slow_loki_for_less() -> None:
    loki = Loki([entry(NOW - n * HOUR, XID) for n in range(1, 24)])
    life = Life(loki)
    life.poll()
    loki.failures = [LokiUnavailable("no"), *[LokiTimeout("too slow")] * 2]
    for error in (LokiUnavailable, LokiTimeout):
        with pytest.raises(error):
            life.poll()

    assert len(life.read()) == 23
    assert life.accounts[0].faults == 23


def test_a_storm_of_the_past_comes_in_bounded_pieces() -> None:
    storm = [entry(NOW - 5 * HOUR + n * SECOND // 100, f"{XID} {n}") for n in range(3 * LINES_MOST)]
    sizes: list[int] = []

    found = Life(Loki(storm)).read(lambda batch: sizes.append(len(batch.past or ())))

    assert len(found) == len(storm)
    assert max(sizes) <= LINES_MOST


def test_after_the_last_piece_nothing_is_asked() -> None:
    loki = Loki([entry(NOW - HOUR, XID)])
    life = Life(loki)
    life.read()
    asked = len(loki.asked)

    assert life.poll().past is None
    assert len(loki.asked) == asked
    assert len(life.accounts) == 1
