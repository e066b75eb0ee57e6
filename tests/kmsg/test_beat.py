"""Heartbeats: once the backlog is read, then each minute, whatever the log and the wall clock do."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from konductor_like.kmsg import EndOfLogError
from tests.kmsg.scripted import Pause, Script, Step, play, reader_of, record, records, script


def minutely(log: Script, minutes: int) -> bool:
    """Whether there were heartbeats over so many minutes, never more than about a minute apart."""
    uptimes = [uptime for _, uptime in log.heartbeats]
    apart = [after - before for before, after in pairwise(uptimes)]
    return len(uptimes) in (minutes, minutes + 1) and all(59.9 < seconds < 61.5 for seconds in apart)


def test_the_first_heartbeat_follows_the_backlog_and_claims_it() -> None:
    log = play(*records(range(3000)), Pause(1))

    assert len(log.heartbeats) == 1
    assert log.heartbeats[0][0] == 2999
    assert re.fullmatch(r"heartbeat .* wall=2026-03-03T10:00:0\d\.\d{3}Z", log.lines[-1])


def test_in_silence_there_is_a_heartbeat_each_minute() -> None:
    log = play(record(7, "last"), Pause(600.5))

    assert minutely(log, 10)
    assert {sequence for sequence, _ in log.heartbeats} == {7}


def test_before_the_first_record_there_is_nothing_to_claim() -> None:
    log = play(Pause(150), record(7, "first"), Pause(1))

    assert [sequence for sequence, _ in log.heartbeats] == [7]
    assert log.reads < 200


def test_records_that_come_so_fast_that_it_is_never_quiet_do_not_keep_heartbeats_back() -> None:
    """A hundred a second: slower than a batch fills, faster than the reader waits for a fragment."""
    stream: list[Step] = [step for each in records(range(30_000)) for step in (each, Pause(0.01))]

    log = play(*stream)

    assert minutely(log, 5)
    assert log.texts == [str(i) for i in range(30_000)]


def test_a_flood_that_never_lets_it_idle_does_not_keep_heartbeats_back() -> None:
    log = play(*records(range(300_000)), read_seconds=0.001)

    uptimes = [uptime for _, uptime in log.heartbeats]
    assert len(uptimes) == 4  # the first after a minute, since the backlog never ended
    assert all(59.9 < after - before < 70 for before, after in pairwise([5.0, *uptimes]))


def test_after_a_long_time_blocked_there_is_one_heartbeat_not_all_that_were_missed() -> None:
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
