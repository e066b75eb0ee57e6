"""The stories about what harms: floods, refused returns, lost records, forged times."""

from __future__ import annotations

import random

from tests.chaos.harm import (
    FOR_GOOD,
    LEASE_PARTS,
    RECORD_PARTS,
    YEARS,
    Crowd,
    Foreign,
    ForgeLease,
    ForgeRecord,
    Nameless,
    Overwritten,
    RefuseRecord,
    RefuseReturns,
)
from tests.chaos.machines import APPLICATION, FATAL, SUSPECT
from tests.chaos.people import Reset
from tests.chaos.steps import Flood, Kill, Reboot, Replay, Step, Terminate, Wait, Xid
from tests.chaos.stories import Story, old_lines, poll, release, strike, wait, xid
from tests.chaos.stories_of_returns import back, heard, out, out_and_back

KINDS_OF_FLOODS = (63, 63, 31, 79, None)
"""The Xids of a driver that names ever new GPUs; None for ever new Xids."""


def two(r: random.Random, node: int) -> list[Step]:
    """Faults of both GPUs."""
    return [Xid(node, r.choice(FATAL), 0), Xid(node, r.choice((*FATAL, *SUSPECT)), 1), poll(r)]


def flood(r: random.Random, node: int) -> Step:
    if r.random() < 0.4:
        return Flood(node, of_pod=True)
    return Flood(node, r.choice(KINDS_OF_FLOODS), r.choice((20, 20, 70)))


HARM_STORIES: tuple[Story, ...] = (
    # Floods, beside a fault of this node and of another.
    lambda r, n: [flood(r, n), poll(r), xid(r, n), xid(r, n + 1), poll(r), flood(r, n), poll(r), poll(r)],
    lambda r, n: [flood(r, n), poll(r), Reset(n), poll(r), Replay(n), poll(r), xid(r, n), poll(r)],
    lambda r, n: [flood(r, n), strike(r), poll(r), poll(r), Reset(n), flood(r, n), poll(r), poll(r)],
    lambda r, n: [
        *(flood(r, n), poll(r), Terminate(0), flood(r, n), Wait(r.choice((30.0, 400.0))), poll(r)),
        *(xid(r, n, APPLICATION), poll(r)),
    ],
)

AHEAD_SECONDS = (YEARS, YEARS, YEARS, 20.0, 250.0, 3000.0)
"""How far ahead of true time a wrong clock is."""


def forge(r: random.Random, node: int) -> Step:
    """A time in the future on a Node or on the Lease."""
    ahead_seconds = r.choice(AHEAD_SECONDS)
    if r.random() < 0.5:
        return ForgeLease(str(r.choice(LEASE_PARTS)), ahead_seconds)
    return ForgeRecord(node, r.choice(RECORD_PARTS), ahead_seconds)


def restart(r: random.Random) -> list[Step]:
    """Another controller reads what the Lease says, in one case of two."""
    return [r.choice((Kill(0), Terminate(0)))] if r.random() < 0.5 else []


def refuse(r: random.Random, node: int) -> Step:
    return RefuseReturns(node, r.choice((1, 3, 3, FOR_GOOD)))


def overwritten(r: random.Random, node: int) -> Step:
    return Overwritten(node, r.choice((0, 0, 400)))


def foreign(r: random.Random, node: int) -> Step:
    ahead_seconds = r.choice((-r.random(), -r.random(), 20.0, 600.0, 4000.0, 1e6))
    return Foreign(node, ahead_seconds, r.choice(FATAL), r.randrange(2))


FOREIGN_STORIES: tuple[Story, ...] = (
    # A line without a boot id before a release, and a fault after it.
    lambda r, n: [foreign(r, n), poll(r), release(r, n), poll(r), wait(r), xid(r, n), poll(r)],
    lambda r, n: [xid(r, n), foreign(r, n), poll(r), Reset(n), poll(r), Replay(n), xid(r, n), poll(r)],
    lambda r, n: [foreign(r, n), poll(r), Reset(n), strike(r), poll(r), xid(r, n), poll(r)],
    lambda r, n: [Reboot(n), foreign(r, n), *restart(r), poll(r), Reset(n), poll(r), xid(r, n), poll(r)],
    lambda r, n: [*two(r, n), foreign(r, n), Reset(n), *restart(r), wait(r), poll(r), xid(r, n), poll(r)],
)
"""Lines without a boot id, with stamps of another boot."""


def crowd(r: random.Random, node: int) -> Step:
    """A node has no room for its record, or for a short one only, or a policy refuses it."""
    if r.random() < 0.25:
        return RefuseRecord(node)
    return Crowd(node, r.choice((60, 60, 60, 400, 1500)))


def clear(r: random.Random, node: int) -> list[Step]:
    """The node has room again, and a controller has had the time to use it."""
    return [Crowd(node, None), RefuseRecord(node, on=False), Wait(r.choice((1.0, 130.0))), poll(r)]


CROWDED_STORIES: tuple[Story, ...] = (
    lambda r, n: [crowd(r, n), poll(r), xid(r, n), poll(r), *restart(r), wait(r), poll(r), *clear(r, n)],
    lambda r, n: [
        *out(r, n),
        crowd(r, n),
        xid(r, n),
        poll(r),
        release(r, n),
        poll(r),
        old_lines(r, n),
        poll(r),
    ],
    lambda r, n: [
        *(crowd(r, n), *out(r, n), strike(r), poll(r), release(r, n), *restart(r), poll(r), old_lines(r, n)),
        *(poll(r), xid(r, n), poll(r), *clear(r, n)),
    ],
    lambda r, n: [crowd(r, n), *out_and_back(r, n), *restart(r), Replay(n), poll(r), *clear(r, n)],
    lambda r, n: [crowd(r, n), *two(r, n), wait(r), poll(r), *clear(r, n), Reset(n), poll(r)],
)
"""Nodes without room for their record."""


def nameless(r: random.Random, node: int) -> Step:
    return Nameless(node, r.choice((1.0, 30.0, 150.0, 700.0)))


NAMELESS_STORIES: tuple[Story, ...] = (
    lambda r, n: [nameless(r, n), xid(r, n), poll(r), wait(r), poll(r)],
    lambda r, n: [nameless(r, n), xid(r, n), strike(r), poll(r), release(r, n), old_lines(r, n), poll(r)],
    lambda r, n: [*out(r, n), nameless(r, n), *back(r, n, 3), xid(r, n), poll(r), *heard(r, 2)],
    lambda r, n: [Reboot(n, r.choice((0.0, 30.0))), nameless(r, n), xid(r, n), poll(r), Wait(31.0), poll(r)],
)
"""Kernel lines and heartbeats that come without the node's name."""

FORGED_STORIES: tuple[Story, ...] = (
    # The API server refuses the return of one node, while another returns.
    lambda r, n: [refuse(r, n), *out(r, n), *out(r, n + 1), Reboot(n + 1), *back(r, n, 5)],
    lambda r, n: [*out(r, n), refuse(r, n), *back(r, n), strike(r), *heard(r), xid(r, n + 1), poll(r)],
    lambda r, n: [Xid(n, 14), poll(r), refuse(r, n), Wait(250.0), poll(r), *out_and_back(r, n + 1)],
    # The beginning of a boot is overwritten before, or after, a reader read it.
    lambda r, n: [*out(r, n), Reboot(n), overwritten(r, n), poll(r), *heard(r, 5)],
    lambda r, n: [*out(r, n), *back(r, n, 2), overwritten(r, n), Replay(n), *heard(r, 5)],
    lambda r, n: [*out(r, n), Reboot(n), overwritten(r, n), *restart(r), *heard(r), strike(r), *heard(r)],
    lambda r, n: [overwritten(r, n), poll(r), *out_and_back(r, n)],
    # Times of the future, and then faults and returns, of this node and of another.
    lambda r, n: [forge(r, n), *restart(r), poll(r), xid(r, n + 1), poll(r), xid(r, n), poll(r)],
    lambda r, n: [*out(r, n), forge(r, n), *restart(r), poll(r), *out_and_back(r, n + 1), *heard(r)],
    lambda r, n: [xid(r, n), xid(r, n + 1), poll(r), forge(r, n), release(r, n + 1), poll(r), xid(r, n + 2)],
    lambda r, n: [*out_and_back(r, n), forge(r, n), poll(r), *out_and_back(r, n + 1), xid(r, n), poll(r)],
)
"""Refused returns, overwritten kernel logs, and times of the future."""
