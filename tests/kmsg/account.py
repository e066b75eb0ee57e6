"""Compares the reader's output with the kernel's records: every sequence once, and no invented line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.kmsg.ring import BOOT, Ring, escape

_RECORD = re.compile(
    rb"kmsg/1 boot=([0-9a-f-]{36}) seq=(\d+) facility=(\d+) priority=([0-7]) \[( *\d+)\.(\d{6})\] (.*)"
)
_GAP = re.compile(rb"kmsg/1 gap boot=([0-9a-f-]{36}) from=(\d+) to=(\d+) lost=(\d+)")
_BEAT = re.compile(
    rb"kmsg/1 heartbeat boot=([0-9a-f-]{36}) seq=(\d+) uptime=(\d+)\.(\d{6})"
    rb" wall=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"
)
_UNREADABLE = re.compile(rb"kmsg/1 unreadable boot=([0-9a-f-]{36}) ([ -~]*)")


@dataclass(slots=True)
class Account:
    """Totals over all lines. ``joined`` is the number of fragments that were joined to an earlier line."""

    lines: int = 0
    joined: int = 0
    gaps: int = 0
    lost: int = 0
    unreadable: int = 0
    beats: int = 0


def audit(output: bytes, ring: Ring, quiet_after: Iterable[int] = ()) -> Account:
    """Check that ``output`` is what the ring delivered, in order, with its gaps. Raises AssertionError.

    After the sequences in ``quiet_after`` a fragment came too late to be joined.
    """
    account = Account()
    assert output.endswith(b"\n") or not output
    late = {sequence + 1 for sequence in quiet_after}
    after_last = max(ring.delivered, default=-1) + 1
    parsed = [_parse(line) for line in output.split(b"\n")[:-1]]
    starts = [start for start, _ in parsed if start is not None] + [after_last]
    broken = iter(ring.broken)
    place, due, claimed = 0, 0, -1
    for start, match in parsed:
        assert match[1].decode() == BOOT
        if match.re is _UNREADABLE:
            assert match[2] == _raw(next(broken))
            account.unreadable += 1
        elif match.re is _BEAT:
            assert int(match[2]) == claimed
            account.beats += 1
        else:
            assert start == due
            place += 1
            due = starts[place]
            if match.re is _GAP:
                _check_gap(match, due, ring)
                account.gaps += 1
                account.lost += due - start
            else:
                _check_line(match, start, due, ring, late)
                account.lines += 1
                account.joined += due - start - 1
                claimed = due - 1
    assert due == after_last
    assert next(broken, None) is None
    return account


def _parse(line: bytes) -> tuple[int | None, re.Match[bytes]]:
    for pattern in (_RECORD, _GAP):
        if match := pattern.fullmatch(line):
            return int(match[2]), match
    match = _BEAT.fullmatch(line) or _UNREADABLE.fullmatch(line)
    assert match, line
    return None, match


def _check_gap(match: re.Match[bytes], end: int, ring: Ring) -> None:
    first, last = int(match[2]), int(match[3])
    assert last + 1 == end
    assert int(match[4]) == end - first > 0
    assert not any(first <= sequence < end for sequence in ring.delivered)


def _check_line(match: re.Match[bytes], start: int, end: int, ring: Ring, late: set[int]) -> None:
    head, *fragments = (ring.delivered[sequence] for sequence in range(start, end))
    assert match[7] == b"".join(escape(message.text) for message in (head, *fragments))
    assert (int(match[3]), int(match[4])) == (head.writer[0], head.priority)
    assert all(message.fragment and message.writer == head.writer for message in fragments)
    assert late.isdisjoint(range(start + 1, end))
    following = ring.delivered.get(end)
    if following is not None and following.fragment and following.writer == head.writer:
        assert end in late, "a fragment that belongs to this line stands on its own"


def _raw(record: bytes) -> bytes:
    """Return a broken record as the reader shows it, with its backslashes."""
    return re.sub(rb"[^ -~]", lambda match: b"\\x%02x" % match[0][0], record)
