"""What schedules are drawn from: single steps, and stories of a few steps about one node.

A story brings together what must meet for something to go wrong; schedules mix several, so that each goes
wrong in the middle of the others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

from tests.chaos import others as o
from tests.chaos import people as p
from tests.chaos import steps as s
from tests.chaos.clock import START_NS, moment_of
from tests.chaos.doubt_stories import DOUBT_STORIES
from tests.chaos.machines import APPLICATION, FATAL, SUSPECT
from tests.chaos.shared_stories import SHARED_STORIES
from tests.chaos.steps import Step
from tests.chaos.telling import LONG_SECONDS, Story, again, beat, release, strike, wait, xid
from tests.chaos.troubles import KUBE_KINDS, KUBE_TARGETS, LOKI_KINDS

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
    lambda r, n: [o.DeleteLease(), xid(r, n), beat(r), s.Beat(1)],
    lambda r, n: [o.SpoilCursor(r.choice(CURSORS)), s.Kill(0), xid(r, n), beat(r), beat(r)],
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
    lambda r, n: [o.OthersWrite(n, r.randrange(100)), xid(r, n), o.OthersWrite(n, r.randrange(100)), beat(r)],
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
