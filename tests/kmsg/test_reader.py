"""The reader's loop: the times of its output, lost records, and its end."""

from __future__ import annotations

import errno
import os

import pytest

from konductor_like.kmsg import write_all
from tests.kmsg.scripted import Pause, play, reader_of, record, records, script


def test_a_single_record_is_printed_at_once() -> None:
    log = play(Pause(3), record(1, "one"), Pause(3))

    when = next(at for at, data in zip(log.at_seconds, log.output, strict=True) if b"] one" in data)
    assert when == pytest.approx(5 + 3, abs=0.05)


def test_a_fragment_that_comes_at_once_is_joined() -> None:
    log = play(record(1, "Xid "), Pause(0.015), record(2, "(PCI", "c"), Pause(0.015), record(3, ")", "c"))

    assert log.texts == ["Xid (PCI)"]


def test_a_fragment_that_comes_late_is_a_line_of_its_own() -> None:
    log = play(record(1, "NVRM: Xid "), Pause(0.025), record(2, "(PCI)", "c"))

    assert log.texts == ["NVRM: Xid ", "(PCI)"]


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EINVAL, errno.EIO, errno.EPERM])
def test_any_other_error_ends_the_reader_after_every_line_was_printed(number: int) -> None:
    log = script(*records(range(3)), OSError(number, os.strerror(number)), record(3, "3"))

    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        reader_of(log).run()

    assert caught.value.errno == number
    assert log.texts == ["0", "1", "2"]


def test_a_stop_prints_pending_lines_and_leaves_the_rest_unread() -> None:
    log = script(*records(range(10)))
    reader = reader_of(log)
    read = log.read

    def read_and_stop() -> bytes:
        if log.reads == 3:
            reader.stop()
        return read()

    reader._read = read_and_stop
    reader.run()

    assert log.texts == ["0", "1", "2", "3"]
    assert len(log.steps) == 6


def test_a_stop_while_the_log_is_silent_is_noticed_soon() -> None:
    log = script(record(1, "1"), Pause(3600))
    reader = reader_of(log)
    wait = log.wait

    def wait_and_stop(seconds: float) -> bool:
        reader.stop()
        assert seconds <= 1
        return wait(seconds)

    reader._wait = wait_and_stop
    reader.run()

    assert log.texts == ["1"]
    assert log.monotonic_ns() < 7e9


def test_a_silent_log_causes_few_wake_ups() -> None:
    log = play(record(1, "1"), Pause(3600))

    assert log.reads < 3600 * 1.1


def test_a_flood_is_written_in_batches_and_in_order() -> None:
    log = play(*records(range(20_000)))

    assert log.texts == [str(i) for i in range(20_000)]
    assert len(log.output) < 20


def test_an_output_that_accepts_few_bytes_at_a_time_gets_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []

    def write(_descriptor: int, data: memoryview) -> int:
        taken.append(bytes(data[: len(taken) + 1]))
        return len(taken[-1])

    monkeypatch.setattr(os, "write", write)
    write_all(1, b"one line\nand another\n")

    assert b"".join(taken) == b"one line\nand another\n"
    assert len(taken) > 3
