"""What schedules are drawn from: single steps, and stories of a few steps about one node.

A story brings together what must meet for something to go wrong; schedules mix several, so that each goes
wrong in the middle of the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import timedelta

from tests.chaos import people as p
from tests.chaos import steps as s
from tests.chaos.clock import START_NS, moment_of
from tests.chaos.machines import APPLICATION, FATAL, JOB_FAULTS, LINKS, SUSPECT, SYMPTOMS
from tests.chaos.steps import Step
from tests.chaos.traffic import KUBE_KINDS, KUBE_TARGETS, LOKI_KINDS

Story = Callable[[random.Random, int], list[Step]]
"""Draws the steps of a story about one node."""

LATE_SHARES = (0.0, 0.0, 0.0, 0.0, 0.05, 0.5, 0.95, 2.0)
"""How late a line arrives, as a share of what the schedule's settings allow."""
SPANS_SECONDS = (1.0, 5.0, 5.0, 10.0, 30.0, 60.0)
LONG_SECONDS = (320.0, 700.0, 1500.0, 5400.0)


def xid(r: random.Random, node: int, codes: Sequence[int] = FATAL) -> Step:
    """A fault, most often at once in Loki."""
    return s.Xid(node, r.choice(codes), r.randrange(2), r.choice(LATE_SHARES))


def beat(r: random.Random) -> Step:
    """A round of the first controller, or now and then of the second."""
    return s.Beat(0 if r.random() < 0.8 else 1)


def wait(r: random.Random) -> Step:
    return s.Wait(r.choice(SPANS_SECONDS))


def strike(r: random.Random) -> Step:
    """SIGKILL or SIGSTOP somewhere in the next rounds."""
    slot, after, writes = r.choice((0, 0, 0, 1)), r.random() < 0.5, r.random() < 0.5
    requests = r.choice((0, 0, 1)) if writes else r.randrange(10)
    if r.random() < 0.6:
        return s.Kill(slot, requests, after, writes)
    return s.Stop(slot, requests, after, r.randint(1, 9), writes)


def release(r: random.Random, node: int) -> Step:
    """Somebody lets the node go."""
    chance = r.random()
    if chance < 0.55:
        return p.Reset(node)
    return p.Reset(None) if chance < 0.7 else p.Untaint(node)


def again(r: random.Random, node: int) -> Step:
    """Old lines come once more."""
    return s.Replay(node) if r.random() < 0.6 else s.Reread(node, r.choice((0.0, 15.0)))


# Events on many nodes

APART_SECONDS = (61.0, 130.0, 700.0)
"""Long enough for two failures to be two."""
LONG_APART_SECONDS = (61.0, 400.0, 400.0, 700.0)
"""Most are long enough for two jobs not to have been ended by one thing."""


def crash(r: random.Random, node: int, job: int, ranks: Sequence[int]) -> list[Step]:
    """The ranks of a job print what they print when it dies, within seconds."""
    told: list[Step] = []
    for rank in ranks:
        late = r.choice(LATE_SHARES)
        told += [
            s.Xid(node + rank, r.choice(SYMPTOMS), r.randrange(2), late),
            s.PodLine(node + rank, late, job),
            s.Wait(r.choice((0.2, 1.0, 3.0))),
        ]
    return told


def _job(r: random.Random) -> int:
    return r.randint(1, 6)


def again_and_again(r: random.Random, node: int, code: int, times: int) -> list[Step]:
    """The same fault on one GPU, so far apart that each is one of its own."""
    gpu = r.randrange(2)
    told: list[Step] = []
    for _ in range(times):
        told += [s.Xid(node, code, gpu), beat(r), s.Wait(r.choice(APART_SECONDS)), beat(r)]
    return told


def fails_with(r: random.Random, node: int, partners: Sequence[int]) -> list[Step]:
    """One job after the other dies on the node and another one, with nothing in any kernel's log."""
    told: list[Step] = []
    for job, partner in enumerate(partners, start=1):
        told += [
            s.PodLine(node, 0.0, job),
            s.PodLine(node + partner, 0.0, job),
            beat(r),
            s.Wait(r.choice(LONG_APART_SECONDS)),
        ]
    return [*told, beat(r)]


SHARED_STORIES: tuple[Story, ...] = (
    # A job dies, with a GPU or without one in sight.
    lambda r, n: [xid(r, n), *crash(r, n, _job(r), (0, 1, 2)), beat(r), wait(r), beat(r)],
    lambda r, n: [*crash(r, n, _job(r), (0, 1, 2)), beat(r), s.Wait(5.0), xid(r, n + 1), beat(r), beat(r)],
    lambda r, n: [*crash(r, n, _job(r), (0, 1)), beat(r), wait(r), *crash(r, n, _job(r), (0, 2)), beat(r)],
    lambda r, n: [xid(r, n), *crash(r, n, 2, (1, 2)), strike(r), beat(r), beat(r), release(r, n), beat(r)],
    lambda r, n: [*crash(r, n, 3, (0, 1)), beat(r), p.Ack(n), *crash(r, n, 3, (0, 1)), beat(r)],
    # A rack, where all print alike when one link fails.
    lambda r, n: [*(xid(r, n + rank, LINKS) for rank in range(3)), beat(r), s.Wait(6.0), beat(r)],
    lambda r, n: [
        *(s.Xid(n, r.choice(FATAL)), s.Wait(1.0), s.Xid(n + 1, r.choice(LINKS))),
        *(s.Xid(n + 2, r.choice(LINKS)), beat(r), s.Wait(6.0), beat(r)),
    ],
    lambda r, n: [
        *(s.Xid(n, r.choice(LINKS)), beat(r), s.Wait(2.0), xid(r, n + 1), beat(r), s.Wait(6.0), beat(r)),
        *(strike(r), beat(r)),
    ],
    lambda r, n: [s.Xid(n, r.choice(LINKS)), beat(r), strike(r), beat(r), s.Wait(6.0), beat(r)],
    lambda r, n: [s.Xid(n, r.choice(LINKS)), beat(r), beat(r), s.Wait(2.0), beat(r), s.Wait(4.0), beat(r)],
    lambda r, n: [
        *(s.Xid(n, 145), s.Xid(n + 1, 149), beat(r), s.Wait(6.0), beat(r), release(r, n), beat(r)),
        *(again(r, n), s.Wait(400.0), s.Xid(n + 1, 145), beat(r), s.Wait(6.0), beat(r)),
    ],
    # Doubt grows.
    lambda r, n: again_and_again(r, n, 94, 3),
    lambda r, n: [
        *(*again_and_again(r, n, 94, 2), strike(r), beat(r), s.Xid(n, 94, 0), beat(r), s.Xid(n, 94, 1)),
    ],
    lambda r, n: [*again_and_again(r, n, 94, 2), s.Reboot(n), beat(r), *again_and_again(r, n, 94, 2)],
    lambda r, n: [*again_and_again(r, n, 94, 2), release(r, n), beat(r), *again_and_again(r, n, 94, 2)],
    lambda r, n: [s.Xid(n, 94, 0, times=r.choice((3, 12))), beat(r), wait(r), again(r, n), beat(r)],
    lambda r, n: [
        step
        for job in (1, 2, 3)
        for step in (s.Xid(n, 31, 0), s.PodLine(n, 0.0, job), beat(r), s.Wait(130.0))
    ],
    lambda r, n: fails_with(r, n, (1, 2, 1, 2)),
    lambda r, n: fails_with(r, n, (1, 2, 3, 1)),
    lambda r, n: fails_with(r, n, (1, 1, 1, 2, 1)),
    lambda r, n: [xid(r, n, SUSPECT), beat(r), p.UntaintSoftly(n), beat(r), xid(r, n, SUSPECT), beat(r)],
)


# Doubt that grows into enough, or must not

SOON_SECONDS = (0.2, 5.0, 61.0, 300.0, 590.0)
"""Within the span in which kernel and pod confirm each other."""
LATE_SECONDS = (0.0, 0.0, 0.0, 15.0, 150.0, 1000.0)
BETWEEN_SECONDS = (61.0, 130.0, 400.0)


def ecc(r: random.Random, node: int, job: int | None = None) -> Step:
    """A pod says that memory failed."""
    return s.PodLine(node, r.choice(LATE_SECONDS), r.randrange(7) if job is None else job, ecc=True)


def page_faults(r: random.Random, node: int, jobs: Sequence[Sequence[int]], code: int) -> list[Step]:
    """On one GPU one page fault after the other, each in the middle of what these jobs' pods say."""
    gpu = r.randrange(2)
    told: list[Step] = []
    for mine in jobs:
        fault: Step = s.Xid(node, code, gpu, r.choice((0.0, 0.0, 0.0, 0.5)))
        words: list[Step] = [s.PodLine(node, r.choice(LATE_SECONDS), job) for job in mine]
        words.insert(r.randrange(len(words) + 1), fault)
        told += [*words, beat(r), s.Wait(r.choice(BETWEEN_SECONDS))]
    return [*told, beat(r)]


def _fault(r: random.Random) -> int:
    return r.choice(JOB_FAULTS)


DOUBT_STORIES: tuple[Story, ...] = (
    # A pod tells of its memory: before the kernel does or after it, alone, too early, or beside a job's end.
    lambda r, n: [ecc(r, n), beat(r), s.Wait(r.choice(SOON_SECONDS)), xid(r, n, SUSPECT), beat(r), beat(r)],
    lambda r, n: [xid(r, n, SUSPECT), beat(r), s.Wait(r.choice(SOON_SECONDS)), ecc(r, n), beat(r), beat(r)],
    lambda r, n: [ecc(r, n), beat(r), xid(r, n, SYMPTOMS), beat(r), s.Wait(700.0), beat(r)],
    lambda r, n: [ecc(r, n), beat(r), s.Wait(700.0), xid(r, n, SUSPECT), beat(r)],
    lambda r, n: [ecc(r, n), strike(r), beat(r), wait(r), xid(r, n, SUSPECT), strike(r), beat(r), beat(r)],
    lambda r, n: [
        *(s.PodLine(n, 0.0, 1, ecc=True), s.Xid(n, r.choice(SUSPECT), 0, 0.95), beat(r), s.Kill(0)),
        *(s.Wait(950.0), beat(r), s.Wait(600.0), beat(r)),
    ],
    lambda r, n: [ecc(r, n), xid(r, n + 1, SUSPECT), beat(r), wait(r), ecc(r, n + 1), beat(r)],
    lambda r, n: [s.Xid(n, 95), beat(r), release(r, n), beat(r), ecc(r, n), beat(r), wait(r), beat(r)],
    lambda r, n: [ecc(r, n), beat(r), r.choice((p.Reset(n), p.Ack(n))), beat(r), xid(r, n, SUSPECT), beat(r)],
    lambda r, n: [
        *(ecc(r, n), beat(r), s.Reboot(n, r.choice((0.0, 30.0))), beat(r), xid(r, n, SUSPECT), beat(r)),
    ],
    lambda r, n: [s.Xid(n + 1, r.choice(FATAL)), s.PodLine(n + 1, 0.0, 1), ecc(r, n, 1), beat(r), beat(r)],
    # Page faults that follow the GPU, one job, a failure elsewhere, or nobody knows whom.
    lambda r, n: page_faults(r, n, ((1,), (2,), (3,)), _fault(r)),
    lambda r, n: page_faults(r, n, ((1, 2, 3), (1,), (2,), (3,)), _fault(r)),
    lambda r, n: page_faults(r, n, ((1,), (1,), (1,), (2,)), _fault(r)),
    lambda r, n: page_faults(r, n, ((1, 2, 3), (1, 2, 3), (1, 2, 3)), _fault(r)),
    lambda r, n: [
        *(*page_faults(r, n, ((4,), (5,)), 31), strike(r), beat(r), *page_faults(r, n, ((6,),), 31)),
        *(strike(r), beat(r), beat(r)),
    ],
    lambda r, n: [*page_faults(r, n, ((1,), (2,)), 31), release(r, n), *page_faults(r, n, ((3,),), 31)],
    lambda r, n: [*page_faults(r, n, ((1,), (2,)), 31), s.Reboot(n), *page_faults(r, n, ((3,),), 31)],
    lambda r, n: [
        *(s.Xid(n, 31), s.PodLine(n, 0.0, 1), s.PodLine(n, 0.0, 2), s.PodLine(n, 0.0, 3), s.Wait(20.0)),
        *(s.Xid(n, 31), s.Wait(20.0), s.Xid(n, 31), beat(r), beat(r)),
    ],
    lambda r, n: [
        step
        for job in (1, 2, 3)
        for step in (
            *(s.Xid(n + 1, r.choice(FATAL)), s.PodLine(n + 1, 0.0, job)),
            *(s.Xid(n, 31), s.PodLine(n, 0.0, job), beat(r), s.Wait(420.0), beat(r)),
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
    lambda r, n: [xid(r, n), beat(r)],
    lambda r, n: [xid(r, n), beat(r), release(r, n), beat(r)],
    lambda r, n: [xid(r, n), beat(r), release(r, n), again(r, n), beat(r), wait(r), beat(r)],
    lambda r, n: [xid(r, n), wait(r), strike(r), beat(r), wait(r), beat(r)],
    lambda r, n: [xid(r, n), wait(r), strike(r), beat(r), s.Wait(r.choice(LONG_SECONDS)), beat(r)],
    lambda r, n: [xid(r, n), wait(r), s.Kill(0, 0, r.random() < 0.5, True), beat(r), wait(r), beat(r)],
    lambda r, n: [
        *(s.Xid(n, 79, 0, 0.95), beat(r), r.choice((s.Terminate(0), s.Kill(0))), s.Wait(60.0), beat(r)),
    ],
    # So late that Loki has cached by then that there was nothing.
    lambda r, n: [
        s.Xid(n, r.choice(FATAL), 0, 0.95),
        *(step for _ in range(6) for step in (s.Wait(320.0), beat(r))),
    ],
    lambda r, n: [s.Xid(n, 48, 0, times=40), xid(r, n + 1), xid(r, n + 2), beat(r), beat(r)],
    lambda _, n: [step for _ in range(8) for step in (s.Xid(n, 95, 1), s.Wait(10.0), s.Beat(0))],
    lambda r, n: [xid(r, n), strike(r), beat(r), release(r, n), beat(r), again(r, n), beat(r)],
    lambda r, n: [
        *(s.KubeTrouble(r.choice(KUBE_KINDS), "node", r.choice((1, 1, 2, 6))), xid(r, n), beat(r), beat(r)),
    ],
    lambda r, n: [
        *(s.KubeTrouble(r.choice(KUBE_KINDS), "node", r.choice((1, 6))), xid(r, n), beat(r), strike(r)),
        *(beat(r), s.Wait(r.choice(LONG_SECONDS)), beat(r)),
    ],
    lambda r, n: [
        *(s.KubeTrouble(r.choice(("late", "timeout after", "reset after")), "node"), xid(r, n), beat(r)),
        *(release(r, n), beat(r), s.Wait(200.0), beat(r)),
    ],
    lambda r, n: [
        *(s.KubeTrouble("503", "node", 80), xid(r, n), beat(r), s.Wait(200.0), beat(r), s.Wait(110.0)),
        *(s.Kill(0), beat(r), beat(r)),
    ],
    lambda r, n: [s.LokiTrouble(r.choice(LOKI_KINDS), r.choice((1, 2, 6))), xid(r, n), beat(r), beat(r)],
    lambda r, n: [s.Blind(r.choice((5.0, 40.0))), xid(r, n), beat(r), wait(r), beat(r)],
    lambda r, n: [xid(r, n), s.Wait(r.choice(LONG_SECONDS)), xid(r, n), beat(r)],
    lambda r, n: [xid(r, n), s.Reboot(n, r.choice((0.0, 3.0, 40.0))), beat(r), xid(r, n), beat(r)],
    lambda r, n: [
        *(xid(r, n), beat(r), s.Reboot(n, r.choice((0.0, 30.0))), release(r, n), again(r, n), beat(r)),
    ],
    lambda r, n: [s.Reboot(n, 40.0), xid(r, n), beat(r), strike(r), beat(r), s.Wait(60.0), beat(r)],
    lambda r, n: [xid(r, n), s.DeleteNode(n), beat(r), s.Register(n, r.random() < 0.3), xid(r, n), beat(r)],
    lambda r, n: [
        *(xid(r, n), beat(r), s.DeleteNode(n), s.Register(n, r.random() < 0.5), beat(r), again(r, n)),
        beat(r),
    ],
    lambda r, n: [
        *(s.Start(1), s.Beat(1), s.Wait(5.0), s.Kill(0), xid(r, n), s.Wait(320.0), s.Beat(1), s.Beat(0)),
    ],
    lambda r, n: [
        *(s.Start(1), s.Beat(1), xid(r, n), s.Stop(0, 0, False, 6, True), s.Beat(0), s.Wait(150.0)),
        *(s.Wait(160.0), s.Beat(1), release(r, n), s.Beat(1), s.Beat(0)),
    ],
    lambda r, n: [s.Terminate(0), xid(r, n), s.Wait(r.choice(LONG_SECONDS)), beat(r)],
    lambda r, n: [p.DeleteLease(), xid(r, n), beat(r), s.Beat(1)],
    lambda r, n: [p.SpoilCursor(r.choice(CURSORS)), s.Kill(0), xid(r, n), beat(r), beat(r)],
    lambda r, n: [
        *(s.SetClock(0, r.choice((-600.0, -20.0, -3.0, 3.0, 120.0))), xid(r, n), beat(r)),
        s.SetClock(0, 0.0),
    ],
    lambda r, n: [
        *(s.SetNodeClock(n, r.choice((-60.0, -5.0, 60.0, 300.0))), xid(r, n), beat(r)),
        s.SetNodeClock(n, 0.0),
    ],
    lambda r, n: [
        *(s.Xid(n, r.choice(FATAL), 0, times=r.choice((12, 40))), beat(r), strike(r), wait(r), beat(r)),
    ],
    lambda r, n: [xid(r, n, SUSPECT), beat(r), xid(r, n, SUSPECT), beat(r), s.Wait(650.0), beat(r)],
    lambda r, n: [
        *(xid(r, n, APPLICATION), s.PodLine(n), beat(r), s.PodLine(n, 10.0), xid(r, n, APPLICATION)),
        beat(r),
    ],
    lambda r, n: [p.TaintByHand(n), xid(r, n), beat(r), p.Untaint(n), beat(r)],
    lambda r, n: [
        *(p.TaintByHand(n, *r.choice((("false", "NoSchedule"), ("true", "NoExecute")))), xid(r, n)),
        *(beat(r), p.RemoveTwin(n), beat(r)),
    ],
    lambda r, n: [p.OthersWrite(n, r.randrange(100)), xid(r, n), p.OthersWrite(n, r.randrange(100)), beat(r)],
    lambda r, n: [
        *(s.Collectors(n, 2), xid(r, n), beat(r), again(r, n), release(r, n), beat(r), s.Collectors(n, 1)),
    ],
    lambda r, n: [p.Taint(n), beat(r), xid(r, n), beat(r), release(r, n), beat(r), again(r, n), beat(r)],
    lambda r, n: [xid(r, n), beat(r), strike(r), p.Taint(n), beat(r), p.Untaint(n), beat(r)],
    lambda r, n: [xid(r, n, SUSPECT), beat(r), p.Ack(n), beat(r), xid(r, n), beat(r), p.Ack(n), beat(r)],
    lambda r, n: [
        *(p.Pause(r.choice((None, 60.0, 700.0))), xid(r, n), beat(r), wait(r), xid(r, n + 1), beat(r)),
        *(r.choice((p.Resume(), strike(r), s.Wait(700.0))), beat(r), beat(r)),
    ],
    lambda r, n: [xid(r, n), s.Stop(0, 0, r.random() < 0.5, 3, True), beat(r), p.Pause(), beat(r), beat(r)],
    lambda r, n: [
        *(xid(r, n), xid(r, n + 1), xid(r, n + 2), beat(r), release(r, n), beat(r), wait(r), beat(r)),
        *(r.choice((p.Rearm(), s.Wait(200.0), release(r, n + 1))), beat(r)),
    ],
    lambda r, _: [s.ForgetHistory(), beat(r)],
    lambda r, _: [
        *(s.KubeTrouble(r.choice(KUBE_KINDS), r.choice(list(KUBE_TARGETS)), r.choice((1, 2, 5))), beat(r)),
    ],
)

LARGE_STORIES: tuple[Story, ...] = (
    lambda r, n: [
        *(s.Xid(n, r.choice(APPLICATION), 0, times=r.choice((12, 40, 100))), xid(r, n + 1), beat(r)),
        *(wait(r), strike(r), beat(r), wait(r), beat(r)),
    ],
    lambda r, n: [
        *(s.PodFlood(n, r.choice((8, 40)), r.choice((300, 900))), s.PodLine(n + 1), xid(r, n), beat(r)),
        *(r.choice((strike(r), wait(r))), s.PodFlood(n), s.PodLine(n, 0.0, 1), beat(r), wait(r), beat(r)),
    ],
    lambda r, n: [
        *(s.Xid(n, r.choice(APPLICATION), 0, times=40), s.Terminate(0), s.Wait(r.choice(LONG_SECONDS))),
        *(xid(r, n + 1), beat(r), beat(r), wait(r), beat(r)),
    ],
)
"""Answers that Loki cannot hand over, of the kernel log and of a pod, beside a fault elsewhere."""

STORIES = (*SINGLE_STORIES, *SHARED_STORIES, *DOUBT_STORIES)


def draw(r: random.Random, nodes: int, stories: Sequence[Story], length: int) -> list[Step]:
    """About ``length`` steps: stories, woven into one another."""
    woven: list[Step] = []
    while len(woven) < length:
        story = r.choice(stories)(r, r.randrange(nodes))
        # Each story keeps its order, and begins somewhere in the last few steps of those before it.
        place = max(0, len(woven) - r.choice((0, 0, 0, 3, 8)))
        for step in story:
            woven.insert(place, step)
            place = min(len(woven), place + 1 + r.choice((0, 0, 0, 1)))
    return woven
