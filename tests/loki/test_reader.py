"""The reader: nothing lost, nothing delivered twice, one query when nothing special happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from konductor_like.loki.query.errors import LokiError, LokiTimeout, LokiUnavailable
from konductor_like.loki.query.response import Entry
from konductor_like.loki.readers.read_state import ReaderConfig
from konductor_like.loki.readers.source import SourceReader
from konductor_like.model import Source
from tests.loki.support import (
    HOUR,
    LATENESS,
    NOW,
    OVERLAP,
    QUERY,
    SECOND,
    SKEW,
    SWEEP,
    Call,
    MemoryLoki,
    cursor_of,
    entry,
    poll,
    settings,
    start_reader,
    steady_reader,
    texts_of,
)


def test_a_steady_poll_is_one_query_from_the_overlap_to_the_skew() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)

    batch = poll(reader, NOW + 5 * SECOND)

    assert loki.calls == [Call(NOW - OVERLAP, NOW + 5 * SECOND + SKEW, 1024)]
    assert (batch.queries, batch.more, batch.upto_ns) == (1, False, NOW + 5 * SECOND)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"poll_interval_seconds": 3600.0}, id="a poll every hour"),
        pytest.param({"lateness_seconds": 0.0}, id="no lateness"),
    ],
)
def test_a_steady_poll_is_one_query_whatever_the_spans_are(values: dict[str, float]) -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki, **values)
    interval = settings(**values).poll_interval_seconds

    for number in range(1, 6):
        poll(reader, NOW + int(number * interval * SECOND))

    sweeps = 5 if interval > 120 else 0
    assert len(loki.calls) == 5 + sweeps


def test_a_line_is_delivered_once_although_every_poll_reads_it_again() -> None:
    loki = MemoryLoki([entry(NOW + SECOND, "fault")])
    reader = steady_reader(loki)

    first, second = poll(reader, NOW + 5 * SECOND), poll(reader, NOW + 10 * SECOND)

    # The clocks of nodes may be ahead, so the sweep at NOW has read it already.
    assert texts_of(first) == texts_of(second) == []


def test_a_line_that_arrives_late_is_found_in_the_overlap() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    poll(reader, NOW + 5 * SECOND)

    loki.entries.append(entry(NOW - 100 * SECOND, "late"))

    assert texts_of(poll(reader, NOW + 10 * SECOND)) == ["late"]
    assert texts_of(poll(reader, NOW + 15 * SECOND)) == []


@pytest.mark.parametrize("ahead_seconds", [60, 300, 599])
def test_a_node_clock_ahead_of_ours_is_read_at_once_and_once(ahead_seconds: int) -> None:
    """Loki itself takes no line from further ahead than ten minutes (``creation_grace_period``)."""
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.entries.append(entry(NOW + ahead_seconds * SECOND, "from the future"))

    seen = [texts_of(poll(reader, NOW + seconds * SECOND)) for seconds in range(5, 900, 5)]

    assert [texts for texts in seen if texts] == [["from the future"]]
    assert seen[0]


def test_lines_come_oldest_first_over_all_streams() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.entries += [
        entry(NOW + offset, f"line {offset}", node=f"gpu-{offset % 3}") for offset in (7, 2, 9, 4)
    ]

    assert texts_of(poll(reader, NOW + SECOND)) == ["line 2", "line 4", "line 7", "line 9"]


def test_two_records_of_the_kernel_in_one_entry_are_two_lines() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.entries.append(entry(NOW, "[    1.5] NVRM: one\n[    1.6] NVRM: two", node="gpu-7"))

    batch = poll(reader, NOW + SECOND)

    assert texts_of(batch) == ["[    1.5] NVRM: one", "[    1.6] NVRM: two"]
    assert {line.node for line in batch.lines} == {"gpu-7"}


def test_a_gap_is_read_as_soon_as_it_is_known() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.entries.append(entry(NOW - 5 * HOUR, "late"))

    reader.revisit([(NOW - 5 * HOUR, NOW - 4 * HOUR)])

    assert texts_of(poll(reader, NOW + 5 * SECOND)) == ["late"]


def test_a_batch_that_was_not_committed_comes_again() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.entries.append(entry(NOW + SECOND, "fault"))

    first = reader.poll(NOW + 5 * SECOND)
    loki.entries.append(entry(NOW + 2 * SECOND, "another"))
    second = reader.poll(NOW + 10 * SECOND)

    assert texts_of(first) == ["fault"]
    assert texts_of(second) == ["fault", "another"]
    assert cursor_of(reader) == NOW
    reader.commit(second)
    assert cursor_of(reader) == NOW + 10 * SECOND


def test_only_the_latest_batch_can_be_committed_and_only_once() -> None:
    reader = steady_reader(MemoryLoki())
    old, latest = reader.poll(NOW + SECOND), reader.poll(NOW + 2 * SECOND)

    with pytest.raises(ValueError, match="latest poll"):
        reader.commit(old)
    reader.commit(latest)
    with pytest.raises(ValueError, match="latest poll"):
        reader.commit(latest)


def test_a_restart_from_the_cursor_loses_nothing() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.entries.append(entry(NOW + SECOND, "seen but not acted upon"))
    reader.poll(NOW + 5 * SECOND)
    cursor_ns = cursor_of(reader)
    loki.entries.append(entry(NOW - 1800 * SECOND, "arrived while we were away, half an hour late"))

    restarted = start_reader(loki, cursor_ns)

    assert texts_of(poll(restarted, NOW + 600 * SECOND)) == [
        "arrived while we were away, half an hour late",
        "seen but not acted upon",
    ]


def test_a_cursor_in_the_future_is_taken_for_now_and_reported() -> None:
    loki = MemoryLoki([entry(NOW - 60 * SECOND, "fault")])
    reader = start_reader(loki, cursor_ns=NOW + 24 * HOUR)

    batch = poll(reader, NOW)

    assert batch.cursor_ahead_ns == 24 * HOUR
    assert loki.calls[0].start_ns == NOW - LATENESS - SWEEP
    assert cursor_of(reader) == NOW
    assert poll(reader, NOW).cursor_ahead_ns == 0


def test_lines_without_a_node_are_delivered_and_counted() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.entries += [entry(NOW + 1, "whose?", node=None), entry(NOW + 2, "mine")]

    batch = poll(reader, NOW + SECOND)

    assert texts_of(batch) == ["whose?", "mine"]
    assert batch.without_node == 1
    assert poll(reader, NOW + 2 * SECOND).without_node == 0


def test_a_line_of_another_stream_is_counted_once_and_not_delivered() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    loki.entries.append(Entry(NOW + 1, "NVRM: Xid said by a pod", {"k8s_namespace_name": "default"}))

    first, second = poll(reader, NOW + SECOND), poll(reader, NOW + 2 * SECOND)

    assert (first.lines, first.foreign) == ((), 1)
    assert (second.lines, second.foreign) == ((), 0)


@pytest.mark.parametrize(
    ("lateness", "kept", "sweep"), [(50, 180, 120), (3600, 3600, 120), (21_600, 21_600, 720)]
)
def test_the_spans_come_from_the_source_and_the_lateness(lateness: int, kept: int, sweep: int) -> None:
    values = settings(lateness_seconds=lateness)

    kernel, pod = (ReaderConfig.of(values, source) for source in (Source.KERNEL, Source.POD))

    assert (kernel.overlap_ns, pod.overlap_ns) == (180 * SECOND, 15 * SECOND)
    assert (kernel.lateness_ns, pod.lateness_ns) == (kept * SECOND, 900 * SECOND)
    assert (kernel.sweep_every_ns, pod.sweep_every_ns) == (sweep * SECOND, 1200 * SECOND)
    assert kernel.skew_ns == pod.skew_ns == 600 * SECOND


SPANS = ReaderConfig(
    overlap_ns=30 * SECOND,
    lateness_ns=60 * SECOND,
    skew_ns=20 * SECOND,
    widest_ns=100 * SECOND,
    sweep_every_ns=40 * SECOND,
)
LIMIT = 8


@dataclass(frozen=True)
class Step:
    """Let seconds pass and lines arrive with these delays (negative: a clock ahead), then poll."""

    seconds: int
    delays: list[int]
    failure: LokiError | None
    acted_upon: bool
    """Whether to commit; without, the process fails between reading and acting."""
    restarted: bool


_steps = st.builds(
    Step,
    seconds=st.integers(0, 40),
    delays=st.lists(st.integers(-15, 50), max_size=12),
    failure=st.sampled_from([None, None, None, LokiUnavailable("down"), LokiTimeout("slow")]),
    acted_upon=st.sampled_from([True, True, False]),
    restarted=st.sampled_from([False, False, False, True]),
)


_FLOOD_AND_ABSENCE = [
    Step(0, [0, 0, 0, 0, 0, 1, 1, 11], None, acted_upon=True, restarted=False),
    Step(13, [], LokiUnavailable("down"), acted_upon=True, restarted=False),
    Step(34, [], None, acted_upon=False, restarted=False),
    Step(23, [], None, acted_upon=True, restarted=False),
]


@example(steps=_FLOOD_AND_ABSENCE, counts=False)
@given(steps=st.lists(_steps, min_size=1, max_size=15), counts=st.booleans())
def test_every_line_is_delivered_whatever_happens(steps: list[Step], counts: bool) -> None:
    loki = MemoryLoki(allowed_limit=LIMIT, counts=counts)
    now_ns = NOW
    reader = _started(loki, now_ns)
    committed: list[list[str]] = [[]]
    written = 0
    crowded: set[int] = set()

    for step in [*steps, Step(0, [], None, acted_upon=True, restarted=False)]:
        now_ns += step.seconds * SECOND
        for delay in step.delays:
            loki.entries.append(entry(now_ns - delay * SECOND + written, f"line {written}"))
            written += 1
        if step.restarted:
            reader = _started(loki, cursor_of(reader))
            committed.append([])
        if step.failure is not None:
            loki.failures = [step.failure]
        more = True
        while more:
            try:
                batch = reader.poll(now_ns)
            except LokiError:
                break
            crowded |= {window.start_ns for window in batch.incomplete_windows}
            assert batch.upto_ns <= now_ns
            if not step.acted_upon:
                break
            reader.commit(batch)
            committed[-1] += [line.text for line in batch.lines]
            more = batch.more
        loki.failures = []
    now_ns += SPANS.lateness_ns  # by then a sweep has been due
    more = True
    while more:
        batch = reader.poll(now_ns)
        reader.commit(batch)
        committed[-1] += [line.text for line in batch.lines]
        more = batch.more

    assert not crowded
    for life in committed:
        assert not [text for text, times in Counter(life).items() if times > 1]
    assert {text for life in committed for text in life} == {f"line {number}" for number in range(written)}


def _started(loki: MemoryLoki, cursor_ns: int) -> SourceReader:
    return SourceReader(Source.KERNEL, loki, QUERY, settings(loki_limit=LIMIT), cursor_ns, config=SPANS)
