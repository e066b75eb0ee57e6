"""No answer is too big to read: Loki is asked for less, and nothing waits behind a window that fails."""

from __future__ import annotations

import pytest

from konductor_like.loki.query.errors import (
    LokiAnswerTooLarge,
    LokiDropped,
    LokiError,
    LokiRefused,
    LokiTimeout,
    LokiUnavailable,
)
from konductor_like.loki.query.response import Entry
from konductor_like.loki.query.window_query import PAGE_BYTES, TimeWindow, WindowQuery
from konductor_like.loki.readers.source import SourceReader
from konductor_like.model import Source
from tests.loki.support import (
    ENTRY_BYTES,
    HOUR,
    NOW,
    QUERY,
    SECOND,
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

XID_79 = "NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen off the bus."
REFUSALS = [
    pytest.param(LokiAnswerTooLarge("413"), id="413"),
    pytest.param(LokiTimeout("504"), id="504 or silence"),
    pytest.param(LokiDropped("502"), id="502 or dropped"),
]


def _read(reader: SourceReader, loki: MemoryLoki, minutes: int, oldest_ns: int = NOW) -> dict[str, int]:
    """Poll every five seconds, and at once while there is more; return when each text came, in seconds."""
    came: dict[str, int] = {}
    everything, loki.entries = loki.entries, []
    for seconds in range(5, minutes * 60, 5):
        now_ns = oldest_ns + seconds * SECOND
        loki.entries = [line for line in everything if line.timestamp_ns <= now_ns]
        for _ in range(50):
            try:
                batch = poll(reader, now_ns)
            except LokiError:
                break
            for text in texts_of(batch):
                assert text not in came, "delivered twice"
                came[text] = seconds
            if not batch.more:
                break
    return came


def _storm(lines: int, text_bytes: int, a_second: int) -> list[Entry]:
    return [
        entry(NOW + number * SECOND // a_second, f"NVRM: {number} {'x' * text_bytes}", node="gpu-storm")
        for number in range(lines)
    ]


@pytest.mark.parametrize("too_large", REFUSALS)
@pytest.mark.parametrize(("lines", "text_bytes"), [(30_000, 1_000), (900, 90_000), (60, 1_500_000)])
def test_a_storm_that_no_answer_holds_is_read_through_and_delays_no_other_nodes_fault(
    too_large: LokiError, lines: int, text_bytes: int
) -> None:
    loki = MemoryLoki(too_large=too_large)
    reader = steady_reader(loki)
    storm = _storm(lines, text_bytes, lines // 30)
    loki.entries = [*storm, entry(NOW + 12 * SECOND, XID_79, node="gpu-other")]

    came = _read(reader, loki, minutes=10)

    assert came[XID_79] <= 12 + 10
    assert len(came) == lines + 1
    assert max(came.values()) <= 30 + 180, "it catches up within minutes"
    assert cursor_of(reader) == NOW + 595 * SECOND


@pytest.mark.parametrize("too_large", REFUSALS)
def test_a_restart_in_a_storm_reads_it_through_as_well(too_large: LokiError) -> None:
    loki = MemoryLoki(_storm(20_000, 1_000, 1_000), too_large=too_large)
    loki.entries.append(entry(NOW + 12 * SECOND, XID_79, node="gpu-other"))

    came = _read(start_reader(loki), loki, minutes=5, oldest_ns=NOW + 60 * SECOND)

    assert len(came) == 20_001


def test_the_first_page_of_kernel_lines_fits_between_the_parts_of_a_loki_with_its_own_defaults() -> None:
    loki = MemoryLoki(_storm(8_000, 1_000, 1_000))
    reader = start_reader(loki)

    batch = poll(reader, NOW + 10 * SECOND)

    assert batch.failure is None
    assert all(call.limit * (1_000 + ENTRY_BYTES) < PAGE_BYTES for call in loki.calls[1:])


def test_the_size_of_entries_is_learnt_kept_for_a_while_and_forgotten() -> None:
    loki = MemoryLoki(_storm(40, 100_000, 10))
    asking = WindowQuery(loki, QUERY, settings(), HOUR)
    usual = asking.limit

    asking.lines_of()(TimeWindow(NOW, NOW + SECOND))
    heavy = asking.limit
    asking.succeeded()
    kept = asking.limit
    for _ in range(40):
        asking.succeeded()

    assert heavy == PAGE_BYTES // (100_000 + ENTRY_BYTES + 9)
    assert heavy <= kept < 2 * heavy
    assert 0.99 * usual <= asking.limit <= usual


def test_light_entries_make_larger_pages_up_to_the_tenants_limit() -> None:
    loki = MemoryLoki(_storm(30_000, 50, 30_000))
    asking = WindowQuery(loki, QUERY, settings(), HOUR, limit=4000)

    result = asking.lines_of()(TimeWindow(NOW, NOW + SECOND))

    assert result is not None
    assert len(result.entries) == 4000
    assert result.answer_bytes < PAGE_BYTES


def test_a_slow_loki_is_not_asked_for_fewer_lines_where_that_did_not_help() -> None:
    loki = MemoryLoki(refuse=lambda _call: LokiTimeout("slow"))
    asking = WindowQuery(loki, QUERY, settings(), HOUR)
    usual = asking.limit

    with pytest.raises(LokiTimeout):
        asking.lines_of()(TimeWindow(NOW, NOW + HOUR))

    assert [call.limit for call in loki.calls] == [usual, 1]
    assert asking.limit == usual


def _broken_chunk(from_ns: int, to_ns: int) -> MemoryLoki:
    """A Loki that has lost a chunk: every query that touches its time fails for good."""

    def refuse(call: Call) -> LokiError | None:
        touches = call.start_ns < to_ns and from_ns < call.end_ns
        return LokiUnavailable("object not found in storage") if touches else None

    return MemoryLoki(refuse=refuse)


def test_a_window_that_fails_for_good_blocks_nothing_but_the_cursor() -> None:
    broken_ns = NOW + 2 * HOUR
    loki = _broken_chunk(broken_ns, broken_ns + SECOND)
    loki.entries = [entry(NOW + minutes * 60 * SECOND, f"minute {minutes}") for minutes in range(300)]
    reader = start_reader(loki)

    texts: set[str] = set()
    batch = None
    for seconds in range(0, 7200, 5):
        batch = poll(reader, NOW + 5 * HOUR + seconds * SECOND)
        texts |= set(texts_of(batch))
        assert batch.failure is None or not batch.more, "trying again at once would not help"

    assert batch is not None
    assert texts == {f"minute {minutes}" for minutes in range(300)} - {"minute 120"}
    assert len(batch.unread) == 1
    assert batch.unread[0].width_ns <= 60 * SECOND
    assert batch.upto_ns == batch.unread[0].start_ns <= broken_ns

    loki.refuse = lambda _call: None
    for seconds in range(7200, 7800, 5):
        batch = poll(reader, NOW + 5 * HOUR + seconds * SECOND)
        texts |= set(texts_of(batch))
    assert "minute 120" in texts
    assert not batch.unread
    assert batch.upto_ns == NOW + 5 * HOUR + 7795 * SECOND


def test_a_restart_asks_again_for_what_could_not_be_read() -> None:
    loki = _broken_chunk(NOW + HOUR, NOW + HOUR + SECOND)
    loki.entries = [entry(NOW + HOUR, "in the lost chunk")]
    reader = start_reader(loki)
    for seconds in range(0, 300, 5):
        poll(reader, NOW + 3 * HOUR + seconds * SECOND)
    loki.refuse = lambda _call: None

    restarted = start_reader(loki, cursor_of(reader))

    assert texts_of(poll(restarted, NOW + 3 * HOUR + 300 * SECOND)) == ["in the lost chunk"]


def test_a_span_that_could_not_be_read_for_a_day_is_given_up_and_reported() -> None:
    loki = _broken_chunk(NOW + HOUR, NOW + HOUR + SECOND)
    reader = start_reader(loki)
    given_up: list[TimeWindow] = []
    batch = None

    for minutes in range(0, 30 * 60, 2):
        batch = poll(reader, NOW + 2 * HOUR + minutes * 60 * SECOND)
        given_up += batch.given_up

    assert batch is not None
    assert given_up[0].start_ns <= NOW + HOUR < given_up[-1].end_ns
    assert not batch.unread
    assert batch.upto_ns == NOW + 2 * HOUR + (30 * 60 - 2) * 60 * SECOND


def test_a_window_of_a_noisy_node_that_fails_delays_neither_its_later_lines_nor_other_noisy_nodes() -> None:
    loki = MemoryLoki()
    reader = steady_reader(loki)
    broken_ns = NOW + 5 * SECOND
    loki.refuse = lambda call: (
        LokiRefused("bad chunk")
        if call.start_ns <= broken_ns < call.end_ns and call.end_ns < NOW + 60 * SECOND
        else None
    )
    storm = [
        entry(NOW + number * SECOND // 400, f"{node} {number}", node=node)
        for number in range(12_000)
        for node in ("gpu-1", "gpu-2")
    ]
    loki.entries = storm

    came = _read(reader, loki, minutes=5)

    assert len(came) > 0.9 * len(storm)


def test_pod_lines_that_detection_finds_nothing_in_are_not_kept() -> None:
    loki = MemoryLoki(
        [_pod_line(number, "NCCL WARN nothing" if number % 2 else "bad") for number in range(6)]
    )
    reader = SourceReader(Source.POD, loki, QUERY, settings(), NOW, keeps=lambda text: text == "bad")

    batch = poll(reader, NOW + 60 * SECOND)

    assert texts_of(batch) == ["bad"] * 3
    assert batch.foreign == 0
    assert poll(reader, NOW + 65 * SECOND).lines == ()


def _pod_line(number: int, text: str) -> Entry:
    labels = {"k8s_namespace_name": "train", "k8s_pod_name": f"job-{number}", "k8s_node_name": "gpu-a"}
    return Entry(NOW + number * SECOND, text, labels)
