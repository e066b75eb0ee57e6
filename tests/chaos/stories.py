"""The stories that schedules are drawn from: each is a few steps that start at one node.

A story combines steps that may break the program together. Schedules interleave several stories.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import timedelta

from tests.chaos.clock import START_NS, moment_of
from tests.chaos.machines import APPLICATION, FATAL, JOB_FAULTS, LINKS, SUSPECT, SYMPTOMS
from tests.chaos.people import (
    BrakeReset,
    DeleteLease,
    OthersWrite,
    Pause,
    RemoveTwin,
    Reset,
    Resume,
    SpoilCursor,
    Strip,
    Taint,
    TaintByHand,
    TaintSuspect,
    Untaint,
)
from tests.chaos.steps import (
    Blind,
    Collectors,
    DeleteNode,
    ForgetHistory,
    Kill,
    KubeTrouble,
    LokiTrouble,
    PodFlood,
    PodLine,
    Reboot,
    Register,
    Replay,
    Reread,
    Round,
    SetClock,
    SetNodeClock,
    Start,
    Step,
    Stop,
    Terminate,
    Wait,
    Xid,
)
from tests.chaos.traffic import KUBE_KINDS, KUBE_TARGETS, LOKI_KINDS

Story = Callable[[random.Random, int], list[Step]]
"""Draws the steps of a story about one node."""

LATE_SHARES = (0.0, 0.0, 0.0, 0.0, 0.05, 0.5, 0.95, 2.0)
"""How late a line arrives, as a share of the lateness that the schedule's settings allow."""
SPANS_SECONDS = (1.0, 5.0, 5.0, 10.0, 30.0, 60.0)
LONG_SECONDS = (320.0, 700.0, 1500.0, 5400.0)


def xid(r: random.Random, node: int, codes: Sequence[int] = FATAL) -> Step:
    """A fault, which most often is in Loki at once."""
    return Xid(node, r.choice(codes), r.randrange(2), r.choice(LATE_SHARES))


def poll(r: random.Random) -> Step:
    """A round of the first controller (80 %) or the second."""
    return Round(0 if r.random() < 0.8 else 1)


def wait(r: random.Random) -> Step:
    return Wait(r.choice(SPANS_SECONDS))


def strike(r: random.Random) -> Step:
    """SIGKILL or SIGSTOP somewhere in the next rounds."""
    slot, after, writes = r.choice((0, 0, 0, 1)), r.random() < 0.5, r.random() < 0.5
    requests = r.choice((0, 0, 1)) if writes else r.randrange(10)
    if r.random() < 0.6:
        return Kill(slot, requests, after, writes)
    return Stop(slot, requests, after, r.randint(1, 9), writes)


def release(r: random.Random, node: int) -> Step:
    """A person releases the node."""
    chance = r.random()
    if chance < 0.55:
        return Reset(node)
    return Reset(None) if chance < 0.7 else Untaint(node)


def old_lines(r: random.Random, node: int) -> Step:
    """Lines of the node are shipped once more."""
    return Replay(node) if r.random() < 0.6 else Reread(node, r.choice((0.0, 15.0)))


# Failures on many nodes

APART_SECONDS = (61.0, 130.0, 700.0)
"""Seconds between two faults that count as two failures."""
LONG_APART_SECONDS = (61.0, 400.0, 400.0, 700.0)
"""Seconds between the ends of two jobs; most are too long for one cause."""


def crash(r: random.Random, node: int, job: int, ranks: Sequence[int]) -> list[Step]:
    """The ranks of a dying job print their errors, within seconds."""
    steps: list[Step] = []
    for rank in ranks:
        late = r.choice(LATE_SHARES)
        steps += [
            Xid(node + rank, r.choice(SYMPTOMS), r.randrange(2), late),
            PodLine(node + rank, late, job),
            Wait(r.choice((0.2, 1.0, 3.0))),
        ]
    return steps


def _job(r: random.Random) -> int:
    return r.randint(1, 6)


def repeated_fault(r: random.Random, node: int, code: int, times: int) -> list[Step]:
    """The same fault on one GPU, each a failure of its own."""
    gpu = r.randrange(2)
    steps: list[Step] = []
    for _ in range(times):
        steps += [Xid(node, code, gpu), poll(r), Wait(r.choice(APART_SECONDS)), poll(r)]
    return steps


def fails_beside(r: random.Random, node: int, partners: Sequence[int]) -> list[Step]:
    """Several jobs die, each on the node and one partner, without a kernel line."""
    steps: list[Step] = []
    for job, partner in enumerate(partners, start=1):
        steps += [
            PodLine(node, 0.0, job),
            PodLine(node + partner, 0.0, job),
            poll(r),
            Wait(r.choice(LONG_APART_SECONDS)),
        ]
    return [*steps, poll(r)]


MANY_NODE_STORIES: tuple[Story, ...] = (
    # A job dies, with a GPU fault or without one.
    lambda r, n: [xid(r, n), *crash(r, n, _job(r), (0, 1, 2)), poll(r), wait(r), poll(r)],
    lambda r, n: [*crash(r, n, _job(r), (0, 1, 2)), poll(r), Wait(5.0), xid(r, n + 1), poll(r), poll(r)],
    lambda r, n: [*crash(r, n, _job(r), (0, 1)), poll(r), wait(r), *crash(r, n, _job(r), (0, 2)), poll(r)],
    lambda r, n: [xid(r, n), *crash(r, n, 2, (1, 2)), strike(r), poll(r), poll(r), release(r, n), poll(r)],
    lambda r, n: [*crash(r, n, 3, (0, 1)), poll(r), Reset(n), *crash(r, n, 3, (0, 1)), poll(r)],
    # A rack, where all nodes print the same Xids when one link fails.
    lambda r, n: [*(xid(r, n + rank, LINKS) for rank in range(3)), poll(r), Wait(6.0), poll(r)],
    lambda r, n: [
        *(Xid(n, r.choice(FATAL)), Wait(1.0), Xid(n + 1, r.choice(LINKS))),
        *(Xid(n + 2, r.choice(LINKS)), poll(r), Wait(6.0), poll(r)),
    ],
    lambda r, n: [
        *(Xid(n, r.choice(LINKS)), poll(r), Wait(2.0), xid(r, n + 1), poll(r), Wait(6.0), poll(r)),
        *(strike(r), poll(r)),
    ],
    lambda r, n: [Xid(n, r.choice(LINKS)), poll(r), strike(r), poll(r), Wait(6.0), poll(r)],
    lambda r, n: [Xid(n, r.choice(LINKS)), poll(r), poll(r), Wait(2.0), poll(r), Wait(4.0), poll(r)],
    lambda r, n: [
        *(Xid(n, 145), Xid(n + 1, 149), poll(r), Wait(6.0), poll(r), release(r, n), poll(r)),
        *(old_lines(r, n), Wait(400.0), Xid(n + 1, 145), poll(r), Wait(6.0), poll(r)),
    ],
    # Faults that repeat.
    lambda r, n: repeated_fault(r, n, 94, 3),
    lambda r, n: [
        *(*repeated_fault(r, n, 94, 2), strike(r), poll(r), Xid(n, 94, 0), poll(r), Xid(n, 94, 1)),
    ],
    lambda r, n: [*repeated_fault(r, n, 94, 2), Reboot(n), poll(r), *repeated_fault(r, n, 94, 2)],
    lambda r, n: [*repeated_fault(r, n, 94, 2), release(r, n), poll(r), *repeated_fault(r, n, 94, 2)],
    lambda r, n: [Xid(n, 94, 0, times=r.choice((3, 12))), poll(r), wait(r), old_lines(r, n), poll(r)],
    lambda r, n: [
        step for job in (1, 2, 3) for step in (Xid(n, 31, 0), PodLine(n, 0.0, job), poll(r), Wait(130.0))
    ],
    lambda r, n: fails_beside(r, n, (1, 2, 1, 2)),
    lambda r, n: fails_beside(r, n, (1, 2, 3, 1)),
    lambda r, n: fails_beside(r, n, (1, 1, 1, 2, 1)),
    lambda r, n: [xid(r, n, SUSPECT), poll(r), TaintSuspect(n), poll(r), xid(r, n, SUSPECT), poll(r)],
)


# Suspicion that reaches a threshold, or must not

SOON_SECONDS = (0.2, 5.0, 61.0, 300.0, 590.0)
"""Seconds within which a kernel line and a pod line confirm each other."""
LATE_SECONDS = (0.0, 0.0, 0.0, 15.0, 150.0, 1000.0)
BETWEEN_SECONDS = (61.0, 130.0, 400.0)


def ecc(r: random.Random, node: int, job: int | None = None) -> Step:
    """A pod prints a memory error."""
    return PodLine(node, r.choice(LATE_SECONDS), r.randrange(7) if job is None else job, ecc=True)


def page_faults(r: random.Random, node: int, jobs: Sequence[Sequence[int]], code: int) -> list[Step]:
    """Page faults of one GPU, each among the lines of these jobs' pods."""
    gpu = r.randrange(2)
    steps: list[Step] = []
    for mine in jobs:
        fault: Step = Xid(node, code, gpu, r.choice((0.0, 0.0, 0.0, 0.5)))
        pod_lines: list[Step] = [PodLine(node, r.choice(LATE_SECONDS), job) for job in mine]
        pod_lines.insert(r.randrange(len(pod_lines) + 1), fault)
        steps += [*pod_lines, poll(r), Wait(r.choice(BETWEEN_SECONDS))]
    return [*steps, poll(r)]


def _fault(r: random.Random) -> int:
    return r.choice(JOB_FAULTS)


THRESHOLD_STORIES: tuple[Story, ...] = (
    # A pod prints a memory error: before or after the kernel line, alone, too early, or at a job's end.
    lambda r, n: [ecc(r, n), poll(r), Wait(r.choice(SOON_SECONDS)), xid(r, n, SUSPECT), poll(r), poll(r)],
    lambda r, n: [xid(r, n, SUSPECT), poll(r), Wait(r.choice(SOON_SECONDS)), ecc(r, n), poll(r), poll(r)],
    lambda r, n: [ecc(r, n), poll(r), xid(r, n, SYMPTOMS), poll(r), Wait(700.0), poll(r)],
    lambda r, n: [ecc(r, n), poll(r), Wait(700.0), xid(r, n, SUSPECT), poll(r)],
    lambda r, n: [ecc(r, n), strike(r), poll(r), wait(r), xid(r, n, SUSPECT), strike(r), poll(r), poll(r)],
    lambda r, n: [
        *(PodLine(n, 0.0, 1, ecc=True), Xid(n, r.choice(SUSPECT), 0, 0.95), poll(r), Kill(0)),
        *(Wait(950.0), poll(r), Wait(600.0), poll(r)),
    ],
    lambda r, n: [ecc(r, n), xid(r, n + 1, SUSPECT), poll(r), wait(r), ecc(r, n + 1), poll(r)],
    lambda r, n: [Xid(n, 95), poll(r), release(r, n), poll(r), ecc(r, n), poll(r), wait(r), poll(r)],
    lambda r, n: [ecc(r, n), poll(r), Reset(n), poll(r), xid(r, n, SUSPECT), poll(r)],
    lambda r, n: [
        *(ecc(r, n), poll(r), Reboot(n, r.choice((0.0, 30.0))), poll(r), xid(r, n, SUSPECT), poll(r)),
    ],
    lambda r, n: [Xid(n + 1, r.choice(FATAL)), PodLine(n + 1, 0.0, 1), ecc(r, n, 1), poll(r), poll(r)],
    # Page faults that follow the GPU, one job, a failure elsewhere, or have no known cause.
    lambda r, n: page_faults(r, n, ((1,), (2,), (3,)), _fault(r)),
    lambda r, n: page_faults(r, n, ((1, 2, 3), (1,), (2,), (3,)), _fault(r)),
    lambda r, n: page_faults(r, n, ((1,), (1,), (1,), (2,)), _fault(r)),
    lambda r, n: page_faults(r, n, ((1, 2, 3), (1, 2, 3), (1, 2, 3)), _fault(r)),
    lambda r, n: [
        *(*page_faults(r, n, ((4,), (5,)), 31), strike(r), poll(r), *page_faults(r, n, ((6,),), 31)),
        *(strike(r), poll(r), poll(r)),
    ],
    lambda r, n: [*page_faults(r, n, ((1,), (2,)), 31), release(r, n), *page_faults(r, n, ((3,),), 31)],
    lambda r, n: [*page_faults(r, n, ((1,), (2,)), 31), Reboot(n), *page_faults(r, n, ((3,),), 31)],
    lambda r, n: [
        *(Xid(n, 31), PodLine(n, 0.0, 1), PodLine(n, 0.0, 2), PodLine(n, 0.0, 3), Wait(20.0)),
        *(Xid(n, 31), Wait(20.0), Xid(n, 31), poll(r), poll(r)),
    ],
    lambda r, n: [
        step
        for job in (1, 2, 3)
        for step in (
            *(Xid(n + 1, r.choice(FATAL)), PodLine(n + 1, 0.0, job)),
            *(Xid(n, 31), PodLine(n, 0.0, job), poll(r), Wait(420.0), poll(r)),
        )
    ],
)

# Single nodes

_FUTURE = f"{moment_of(START_NS) + timedelta(days=1500):%Y-%m-%dT%H:%M:%SZ}"
_PAST = f"{moment_of(START_NS) - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
CURSORS = (
    *(None, "no json", f'{{"v":1,"read":{{}},"act_from":"{_PAST}"}}'),
    f'{{"v":1,"read":{{"kernel":"{_FUTURE}","pod":"{_FUTURE}"}},"act_from":"{_PAST}"}}',
)


SINGLE_STORIES: tuple[Story, ...] = (
    lambda r, n: [xid(r, n), poll(r)],
    lambda r, n: [xid(r, n), poll(r), release(r, n), poll(r)],
    lambda r, n: [xid(r, n), poll(r), release(r, n), old_lines(r, n), poll(r), wait(r), poll(r)],
    lambda r, n: [xid(r, n), wait(r), strike(r), poll(r), wait(r), poll(r)],
    lambda r, n: [xid(r, n), wait(r), strike(r), poll(r), Wait(r.choice(LONG_SECONDS)), poll(r)],
    lambda r, n: [xid(r, n), wait(r), Kill(0, 0, r.random() < 0.5, True), poll(r), wait(r), poll(r)],
    lambda r, n: [
        *(Xid(n, 79, 0, 0.95), poll(r), r.choice((Terminate(0), Kill(0))), Wait(60.0), poll(r)),
    ],
    # A line so late that Loki has cached an empty answer before.
    lambda r, n: [
        Xid(n, r.choice(FATAL), 0, 0.95),
        *(step for _ in range(6) for step in (Wait(320.0), poll(r))),
    ],
    lambda r, n: [Xid(n, 48, 0, times=40), xid(r, n + 1), xid(r, n + 2), poll(r), poll(r)],
    lambda _, n: [step for _ in range(8) for step in (Xid(n, 95, 1), Wait(10.0), Round(0))],
    lambda r, n: [xid(r, n), strike(r), poll(r), release(r, n), poll(r), old_lines(r, n), poll(r)],
    lambda r, n: [
        *(KubeTrouble(r.choice(KUBE_KINDS), "node", r.choice((1, 1, 2, 6))), xid(r, n), poll(r), poll(r)),
    ],
    lambda r, n: [
        *(KubeTrouble(r.choice(KUBE_KINDS), "node", r.choice((1, 6))), xid(r, n), poll(r), strike(r)),
        *(poll(r), Wait(r.choice(LONG_SECONDS)), poll(r)),
    ],
    lambda r, n: [
        *(KubeTrouble(r.choice(("late", "timeout after", "reset after")), "node"), xid(r, n), poll(r)),
        *(release(r, n), poll(r), Wait(200.0), poll(r)),
    ],
    lambda r, n: [
        *(KubeTrouble("503", "node", 80), xid(r, n), poll(r), Wait(200.0), poll(r), Wait(110.0)),
        *(Kill(0), poll(r), poll(r)),
    ],
    lambda r, n: [LokiTrouble(r.choice(LOKI_KINDS), r.choice((1, 2, 6))), xid(r, n), poll(r), poll(r)],
    lambda r, n: [Blind(r.choice((5.0, 40.0))), xid(r, n), poll(r), wait(r), poll(r)],
    lambda r, n: [xid(r, n), Wait(r.choice(LONG_SECONDS)), xid(r, n), poll(r)],
    lambda r, n: [xid(r, n), Reboot(n, r.choice((0.0, 3.0, 40.0))), poll(r), xid(r, n), poll(r)],
    lambda r, n: [
        *(xid(r, n), poll(r), Reboot(n, r.choice((0.0, 30.0))), release(r, n), old_lines(r, n), poll(r)),
    ],
    lambda r, n: [Reboot(n, 40.0), xid(r, n), poll(r), strike(r), poll(r), Wait(60.0), poll(r)],
    lambda r, n: [xid(r, n), DeleteNode(n), poll(r), Register(n, r.random() < 0.3), xid(r, n), poll(r)],
    lambda r, n: [
        *(xid(r, n), poll(r), DeleteNode(n), Register(n, r.random() < 0.5), poll(r), old_lines(r, n)),
        poll(r),
    ],
    lambda r, n: [
        *(Start(1), Round(1), Wait(5.0), Kill(0), xid(r, n), Wait(320.0), Round(1), Round(0)),
    ],
    lambda r, n: [
        *(Start(1), Round(1), xid(r, n), Stop(0, 0, False, 6, True), Round(0), Wait(150.0)),
        *(Wait(160.0), Round(1), release(r, n), Round(1), Round(0)),
    ],
    lambda r, n: [Terminate(0), xid(r, n), Wait(r.choice(LONG_SECONDS)), poll(r)],
    lambda r, n: [DeleteLease(), xid(r, n), poll(r), Round(1)],
    lambda r, n: [SpoilCursor(r.choice(CURSORS)), Kill(0), xid(r, n), poll(r), poll(r)],
    lambda r, n: [
        *(SetClock(0, r.choice((-600.0, -20.0, -3.0, 3.0, 120.0))), xid(r, n), poll(r)),
        SetClock(0, 0.0),
    ],
    lambda r, n: [
        *(SetNodeClock(n, r.choice((-60.0, -5.0, 60.0, 300.0))), xid(r, n), poll(r)),
        SetNodeClock(n, 0.0),
    ],
    lambda r, n: [
        *(Xid(n, r.choice(FATAL), 0, times=r.choice((12, 40))), poll(r), strike(r), wait(r), poll(r)),
    ],
    lambda r, n: [xid(r, n, SUSPECT), poll(r), xid(r, n, SUSPECT), poll(r), Wait(650.0), poll(r)],
    lambda r, n: [
        *(xid(r, n, APPLICATION), PodLine(n), poll(r), PodLine(n, 10.0), xid(r, n, APPLICATION)),
        poll(r),
    ],
    lambda r, n: [TaintByHand(n), xid(r, n), poll(r), Untaint(n), poll(r)],
    lambda r, n: [
        *(
            xid(r, n),
            poll(r),
            Strip(n, r.random() < 0.5),
            r.choice((poll(r), Kill(0), strike(r))),
            Wait(15.0),
        ),
        *(poll(r), xid(r, n), poll(r), r.choice((Reset(n), Taint(n), Reboot(n))), poll(r)),
    ],
    lambda r, n: [
        *(xid(r, n), poll(r)),
        *(step for _ in range(4) for step in (Strip(n, r.random() < 0.5), poll(r), Wait(400.0), poll(r))),
        *(r.choice((Reset(n), Taint(n), xid(r, n), Reboot(n), poll(r))), poll(r)),
    ],
    lambda r, n: [
        *(TaintByHand(n, *r.choice((("false", "NoSchedule"), ("true", "NoExecute")))), xid(r, n)),
        *(poll(r), RemoveTwin(n), poll(r)),
    ],
    lambda r, n: [OthersWrite(n, r.randrange(100)), xid(r, n), OthersWrite(n, r.randrange(100)), poll(r)],
    lambda r, n: [
        *(Collectors(n, 2), xid(r, n), poll(r), old_lines(r, n), release(r, n), poll(r), Collectors(n, 1)),
    ],
    lambda r, n: [Taint(n), poll(r), xid(r, n), poll(r), release(r, n), poll(r), old_lines(r, n), poll(r)],
    lambda r, n: [xid(r, n), poll(r), strike(r), Taint(n), poll(r), Untaint(n), poll(r)],
    lambda r, n: [xid(r, n, SUSPECT), poll(r), Reset(n), poll(r), xid(r, n), poll(r), Reset(n), poll(r)],
    lambda r, n: [
        *(Pause(r.choice((None, 60.0, 700.0))), xid(r, n), poll(r), wait(r), xid(r, n + 1), poll(r)),
        *(r.choice((Resume(), strike(r), Wait(700.0))), poll(r), poll(r)),
    ],
    lambda r, n: [xid(r, n), Stop(0, 0, r.random() < 0.5, 3, True), poll(r), Pause(), poll(r), poll(r)],
    lambda r, n: [
        *(xid(r, n), xid(r, n + 1), xid(r, n + 2), poll(r), release(r, n), poll(r), wait(r), poll(r)),
        *(r.choice((BrakeReset(), Wait(200.0), release(r, n + 1))), poll(r)),
    ],
    lambda r, _: [ForgetHistory(), poll(r)],
    lambda r, _: [
        *(KubeTrouble(r.choice(KUBE_KINDS), r.choice(list(KUBE_TARGETS)), r.choice((1, 2, 5))), poll(r)),
    ],
)

LARGE_STORIES: tuple[Story, ...] = (
    lambda r, n: [
        *(Xid(n, r.choice(APPLICATION), 0, times=r.choice((12, 40, 100))), xid(r, n + 1), poll(r)),
        *(wait(r), strike(r), poll(r), wait(r), poll(r)),
    ],
    lambda r, n: [
        *(PodFlood(n, r.choice((8, 40)), r.choice((300, 900))), PodLine(n + 1), xid(r, n), poll(r)),
        *(r.choice((strike(r), wait(r))), PodFlood(n), PodLine(n, 0.0, 1), poll(r), wait(r), poll(r)),
    ],
    lambda r, n: [
        *(Xid(n, r.choice(APPLICATION), 0, times=40), Terminate(0), Wait(r.choice(LONG_SECONDS))),
        *(xid(r, n + 1), poll(r), poll(r), wait(r), poll(r)),
    ],
)
"""Answers too large for Loki to send, of the kernel log and of a pod, beside a fault elsewhere."""

STORIES = (*SINGLE_STORIES, *MANY_NODE_STORIES, *THRESHOLD_STORIES)


def woven(r: random.Random, steps: Sequence[Step], others: Sequence[Step]) -> list[Step]:
    """Weave other steps into these, or append them; each list keeps its order."""
    if r.random() < 0.5:
        return [*steps, *others]
    places = sorted(r.randrange(len(steps) + 1) for _ in others)
    mixed = list(steps)
    for place, step in reversed(list(zip(places, others, strict=True))):
        mixed.insert(place, step)
    return mixed


def draw(r: random.Random, nodes: int, stories: Sequence[Story], length: int) -> list[Step]:
    """Interleave stories to about ``length`` steps."""
    woven: list[Step] = []
    while len(woven) < length:
        story = r.choice(stories)(r, r.randrange(nodes))
        # Each story keeps its order, and begins at most 8 steps before the end of the earlier ones.
        place = max(0, len(woven) - r.choice((0, 0, 0, 3, 8)))
        for step in story:
            woven.insert(place, step)
            place = min(len(woven), place + 1 + r.choice((0, 0, 0, 1)))
    return woven
