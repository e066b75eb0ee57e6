"""Heartbeats: the first after the backlog, then one each minute, for any log and wall clock."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from konductor_like.kmsg import EndOfLogError
from tests.kmsg.scripted import Pause, Script, Step, play, reader_of, record, records, script


def minutely(log: Script, minutes: int) -> bool:
    """Whether heartbeats cover ``minutes`` minutes, at most about a minute apart."""
    uptimes = [uptime for _, uptime in log.heartbeats]
    apart = [after - before for before, after in pairwise(uptimes)]
    return len(uptimes) in (minutes, minutes + 1) and all(59.9 < seconds < 61.5 for seconds in apart)


def test_the_first_heartbeat_follows_the_backlog_and_has_its_last_sequence() -> None:
    log = play(*records(range(3000)), Pause(1))

    assert len(log.heartbeats) == 1
    assert log.heartbeats[0][0] == 2999
    assert re.fullmatch(r"heartbeat .* wall=2026-03-03T10:00:0\d\.\d{3}Z", log.lines[-1])


def test_a_silent_log_has_a_heartbeat_each_minute() -> None:
    log = play(record(7, "last"), Pause(600.5))

    assert minutely(log, 10)
    assert {sequence for sequence, _ in log.heartbeats} == {7}


def test_no_heartbeat_comes_before_the_first_record() -> None:
    log = play(Pause(150), record(7, "first"), Pause(1))

    assert [sequence for sequence, _ in log.heartbeats] == [7]
    assert log.reads < 200


def test_steady_records_do_not_delay_heartbeats() -> None:
    """100 records a second: too slow to fill a batch, too fast for the reader's wait for a fragment."""
    stream: list[Step] = [step for each in records(range(30_000)) for step in (each, Pause(0.01))]

    log = play(*stream)

    assert minutely(log, 5)
    assert log.texts == [str(i) for i in range(30_000)]


def test_a_flood_does_not_delay_heartbeats() -> None:
    log = play(*records(range(300_000)), read_seconds=0.001)

    uptimes = [uptime for _, uptime in log.heartbeats]
    assert len(uptimes) == 4  # the first after a minute, since the backlog never ended
    assert all(59.9 < after - before < 70 for before, after in pairwise([5.0, *uptimes]))


def test_a_reader_that_was_blocked_sends_one_heartbeat_and_not_all_missed_ones() -> None:
    log = script(record(1, "1"), Pause(1), record(2, "2"), Pause(1))
    reader = reader_of(log)
    write = log.write

    def slow(data: bytes) -> None:
        write(data)
        if b"] 2" in data:
            log._sleep(600)

    reader._write = slow
    with pytest.raises(EndOfLogError):
        reader.run()

    assert [sequence for sequence, _ in log.heartbeats] == [1, 2]
