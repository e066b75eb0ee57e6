"""The stories about the way back: reboots, returns, relapses, tests, and what forbids a return."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.chaos.machines import APPLICATION, BEYOND_REBOOT, FATAL, SUSPECT, TEST
from tests.chaos.people import (
    Cordon,
    DeleteLease,
    Pause,
    Reset,
    Resume,
    Taint,
    TaintByHand,
)
from tests.chaos.steps import (
    DeleteNode,
    Gpus,
    Kill,
    KubeTrouble,
    Reboot,
    Register,
    Round,
    Silence,
    Start,
    Step,
    Stop,
    Wait,
    Xid,
)
from tests.chaos.stories import Story, old_lines, poll, release, strike, xid

LOST_ANSWERS = ("timeout after", "reset after", "late", "timeout", "409", "503")


def fault(r: random.Random, node: int, codes: Sequence[int] = FATAL) -> Step:
    """A fault whose line is in Loki at once."""
    return Xid(node, r.choice(codes), r.randrange(2))


def heard(r: random.Random, minutes: int = 4) -> list[Step]:
    """The kernel log is heard for some minutes, and the controller works."""
    steps: list[Step] = []
    for _ in range(minutes):
        steps += [Wait(61.0), poll(r)]
    return steps


def out(r: random.Random, node: int) -> list[Step]:
    """A fault takes the node out of service."""
    return [fault(r, node), poll(r)]


def back(r: random.Random, node: int, minutes: int = 4) -> list[Step]:
    """The machine boots and is heard."""
    return [Reboot(node, r.choice((0.0, 0.0, 30.0))), Round(0), *heard(r, minutes)]


def out_and_back(r: random.Random, node: int) -> list[Step]:
    return [*out(r, node), *back(r, node)]


def relapse(r: random.Random, node: int) -> list[Step]:
    """The node returns and fails on probation."""
    return [*out_and_back(r, node), *out(r, node)]


RETURN_STORIES: tuple[Story, ...] = (
    out_and_back,
    lambda r, n: [*out_and_back(r, n), Wait(r.choice((200.0, 1100.0))), poll(r)],
    # Faults on probation, and after it.
    lambda r, n: [*relapse(r, n), *back(r, n)],
    lambda r, n: [*relapse(r, n), release(r, n), poll(r), *out_and_back(r, n)],
    lambda r, n: [*out_and_back(r, n), Wait(3700.0), poll(r), *out_and_back(r, n)],
    lambda r, n: [
        *(*relapse(r, n), *relapse(r, n + 1), *relapse(r, n + 2), *out_and_back(r, n + 3)),
        *(r.choice((Resume(), strike(r), DeleteLease())), *heard(r, 2)),
    ],
    lambda r, n: [*out_and_back(r, n), fault(r, n, SUSPECT), poll(r), Xid(n, TEST), poll(r)],
    # Lines of the old boot and of the new one that come late, or again.
    lambda r, n: [xid(r, n), *out(r, n), *back(r, n), old_lines(r, n), poll(r)],
    lambda r, n: [
        *(*out(r, n), Reboot(n), Xid(n, r.choice(FATAL), 0, r.choice((0.5, 0.95, 2.0)))),
        *(fault(r, n, APPLICATION), poll(r), *heard(r), *heard(r, 2)),
    ],
    lambda r, n: [*out(r, n), Reboot(n, 30.0), *out(r, n), *heard(r)],
    lambda r, n: [*out(r, n), *back(r, n, 1), fault(r, n, SUSPECT), *heard(r), fault(r, n, SUSPECT), poll(r)],
    lambda r, n: [*out(r, n), *back(r, n, 1), *out(r, n), *heard(r), *back(r, n)],
    # Needs that a reboot does not meet.
    lambda r, n: [fault(r, n, BEYOND_REBOOT), poll(r), *back(r, n), *out(r, n), poll(r)],
    lambda r, n: [*out(r, n), fault(r, n, BEYOND_REBOOT), Reboot(n), *heard(r)],
    # Holds, and marks for replacement.
    lambda r, n: [*out(r, n), release(r, n), poll(r), *out_and_back(r, n), Wait(320.0), poll(r)],
    lambda r, n: [
        *(*out(r, n), Reset(n), poll(r), Wait(3.0), *out(r, n), Reset(n), poll(r), Wait(3.0)),
        *(*out_and_back(r, n), Reset(n), poll(r)),
    ],
    # People, other programs and the kubelet.
    lambda r, n: [*out(r, n), Cordon(n), *back(r, n), Cordon(n, on=False), *heard(r, 2)],
    lambda r, n: [*out(r, n), *back(r, n, 2), Cordon(n), *heard(r, 2), Cordon(n, on=False), poll(r)],
    lambda r, n: [*out(r, n), Pause(r.choice((None, 400.0))), *back(r, n), Resume(), *heard(r, 2)],
    lambda r, n: [*out(r, n), Taint(n), *back(r, n), release(r, n), poll(r)],
    lambda r, n: [*out(r, n), *back(r, n, 2), Taint(n), *heard(r, 2)],
    lambda r, n: [TaintByHand(n), *out_and_back(r, n)],
    lambda r, n: [*out(r, n), Reboot(n), *heard(r, 2), release(r, n), *heard(r, 2)],
    lambda r, n: [*out(r, n), Reboot(n), Gpus(n, 7), *heard(r), Gpus(n, 8), *heard(r, 2)],
    lambda r, n: [Gpus(n, 7), *heard(r, 4), r.choice((Gpus(n, 8), Reboot(n), fault(r, n))), *heard(r, 4)],
    # A kernel log that is not heard, or has a gap.
    lambda r, n: [*out(r, n), Silence(n, r.choice((150.0, 500.0)), r.random() < 0.5), *back(r, n, 9)],
    lambda r, n: [*out(r, n), *back(r, n, 1), Silence(n, 500.0, r.random() < 0.5), *heard(r, 10)],
    lambda r, n: [*out(r, n), *back(r, n, 1), *back(r, n)],
    lambda r, n: [*out(r, n), Reboot(n, 300.0), *heard(r, 6)],
    # Crashes and lost answers at the return's write.
    lambda r, n: [*out(r, n), *back(r, n, 1), Kill(0, 0, r.random() < 0.5, True), *heard(r)],
    lambda r, n: [*out(r, n), *back(r, n, 1), strike(r), *heard(r), strike(r), *heard(r, 2)],
    lambda r, n: [
        *(*out(r, n), *back(r, n, 1), KubeTrouble(r.choice(LOST_ANSWERS), "node", r.choice((1, 1, 3)))),
        *(*heard(r), *out(r, n), *heard(r, 2)),
    ],
    lambda r, n: [
        *(*out(r, n), *back(r, n, 1), Stop(0, 0, r.random() < 0.5, 4, True), *heard(r)),
        *(r.choice((fault(r, n), Taint(n), Cordon(n), Reset(n), Reboot(n))), *heard(r)),
    ],
    lambda r, n: [*out(r, n), Start(1), Reboot(n), Round(1), Kill(0), *heard(r), Round(1), *heard(r, 2)],
    lambda r, n: [*out(r, n), Reboot(n), DeleteNode(n), Register(n, r.random() < 0.3), *heard(r)],
    # Tests end, suspicions end.
    lambda r, n: [Xid(n, TEST), poll(r), Wait(r.choice((100.0, 250.0))), poll(r), old_lines(r, n), poll(r)],
    lambda r, n: [Xid(n, TEST), poll(r), Wait(190.0), r.choice((strike(r), fault(r, n))), *heard(r, 2)],
    lambda r, n: [Xid(n, TEST), poll(r), Taint(n), Wait(250.0), *heard(r, 2)],
    lambda r, n: [Xid(n, TEST), *out_and_back(r, n)],
    lambda r, n: [fault(r, n, SUSPECT), poll(r), *back(r, n, 2), fault(r, n, SUSPECT), poll(r)],
    lambda r, n: [fault(r, n, SUSPECT), poll(r), *heard(r, 14), fault(r, n, SUSPECT), poll(r)],
)
