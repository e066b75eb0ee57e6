"""A gap at the beginning of a kernel log is a loss only as far as no earlier reader was heard."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from konductor_like.controller.fleet.log_starts import LogStarts
from konductor_like.detection import Heartbeat, Overrun

BOOT, OTHER = "boot-b", "boot-a"


def gap(last: int, boot: str = BOOT) -> Overrun:
    return Overrun(boot, 0, last, last + 1)


def beat(sequence: int, boot: str = BOOT) -> Heartbeat:
    return Heartbeat(boot, sequence, 0, datetime(2026, 3, 4, tzinfo=UTC))


def test_a_boot_that_was_never_heard_has_lost_all_records_before_the_first_one() -> None:
    assert LogStarts().lost("gpu-1", gap(39_999), 10) == Overrun(BOOT, 0, 39_999, 40_000)


def test_of_a_boot_that_was_heard_only_later_records_are_lost() -> None:
    starts = LogStarts()
    starts.note_heartbeat("gpu-1", beat(100), 5)

    assert starts.lost("gpu-1", gap(4_999), 10) == Overrun(BOOT, 101, 4_999, 4_899)
    starts.note_heartbeat("gpu-1", beat(6_000), 15)
    assert starts.lost("gpu-1", gap(5_999), 20) is None  # the next reader finds nothing new to be missing


def test_a_reader_that_prints_what_was_heard_already_has_lost_nothing() -> None:
    for sequence in (4_999, 5_200):
        starts = LogStarts()
        starts.note_heartbeat("gpu-1", beat(sequence), 5)

        assert starts.lost("gpu-1", gap(4_999), 10) is None


def test_heartbeats_of_the_new_reader_or_of_another_boot_or_node_prove_nothing() -> None:
    others, own = LogStarts(), LogStarts()
    others.note_heartbeat("gpu-1", beat(90_000, OTHER), 4)
    others.note_heartbeat("gpu-2", beat(90_000), 5)
    own.note_heartbeat("gpu-1", beat(40_007), 10)  # read before the gap's line, and printed after it

    for starts in (others, own):
        assert starts.lost("gpu-1", gap(39_999), 10) == Overrun(BOOT, 0, 39_999, 40_000)


def test_a_line_that_is_read_again_is_decided_once() -> None:
    starts = LogStarts()

    found = [starts.lost("gpu-1", gap(last), 10) for last in (39_999, 39_999, 20_000)]

    assert found == [Overrun(BOOT, 0, 39_999, 40_000), None, None]
    starts.forget_others([])
    assert starts.lost("gpu-1", gap(39_999), 10) is not None


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=12))
def test_no_loss_is_missed_however_often_readers_are_replaced(readers: list[tuple[int, bool]]) -> None:
    """Each reader prints five records from ``first`` on, and some of them send no heartbeat."""
    starts, printed, lost, truly_lost = LogStarts(), 0, 0, 0
    for number, (skipped, beats) in enumerate(readers):
        first = printed + skipped  # what the kernel prints while no reader runs, and overwrites again
        if first:
            found = starts.lost("gpu-1", gap(first - 1), 10 * number)
            lost += found.lost if found else 0
        truly_lost += skipped
        printed = first + 5
        if beats:
            starts.note_heartbeat("gpu-1", beat(printed - 1), 10 * number + 1)

    assert lost >= truly_lost  # a reader without a heartbeat was not heard
    if all(beats for _, beats in readers):
        assert lost == truly_lost
