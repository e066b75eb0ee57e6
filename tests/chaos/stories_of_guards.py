"""The stories about what keeps a node out of service although it could return."""

from __future__ import annotations

import random

from tests.chaos.people import Claim, Cordon, Label, SpoilRecord, Untaint
from tests.chaos.setup import MANAGED
from tests.chaos.steps import (
    Flap,
    ForgetHistory,
    Kill,
    KubeTrouble,
    Ready,
    Reboot,
    SlowWarmup,
    Step,
    Stop,
    Wait,
)
from tests.chaos.stories import Story, poll, release, strike, xid
from tests.chaos.stories_of_returns import back, heard, out, out_and_back


def flapping(r: random.Random, node: int, times: int = 6) -> list[Step]:
    """GPUs or the readiness of a node come and go within a minute."""
    gpus, away, apart = r.random() < 0.6, r.choice((0.0, 1.0, 10.0, 40.0)), r.choice((20.0, 50.0, 61.0))
    return [step for _ in range(times) for step in (Flap(node, gpus, away), Wait(apart), poll(r))]


GUARD_STORIES: tuple[Story, ...] = (
    lambda r, n: [*out(r, n), *back(r, n, 2), Label(n), *heard(r, 2), Label(n, value=None), *heard(r, 2)],
    lambda r, n: [*out(r, n), *back(r, n, 2), Label(n, MANAGED, None), *heard(r), Label(n, MANAGED), poll(r)],
    lambda r, n: [*out(r, n), *back(r, n, 2), Claim(n), *heard(r, 2), Claim(n, on=False), *heard(r, 2)],
    lambda r, n: [*out(r, n), *back(r, n, 2), Ready(n, on=False), *heard(r, 2), Ready(n), *heard(r, 2)],
    lambda r, n: [
        *out(r, n),
        *back(r, n, r.choice((1, 3))),
        SpoilRecord(n),
        *heard(r, 2),
        xid(r, n),
        poll(r),
    ],
    lambda r, n: [*out(r, n), SpoilRecord(n), poll(r), release(r, n), poll(r), *out_and_back(r, n)],
    lambda r, n: [*out(r, n), Reboot(n), SlowWarmup(r.choice((60.0, 600.0))), Kill(0), *heard(r, 5)],
    lambda r, n: [*out(r, n), Reboot(n, new_board=True), poll(r), *heard(r), *out_and_back(r, n)],
    lambda r, n: (
        [step for _ in range(3) for step in (*out(r, n), Untaint(n), poll(r), Wait(61.0))]
        + [*out(r, n), *back(r, n)]
    ),
    lambda r, n: [
        *(*out(r, n), *back(r, n, 3), KubeTrouble("503", "lease", 80), *heard(r, 2)),
        *(xid(r, n + 1), poll(r)),
    ],
    lambda r, n: [*out(r, n), *back(r, n, 3), Stop(0, 0, False, 3, True), *heard(r, 1), Cordon(n), Wait(1.0)],
    lambda r, n: [*out(r, n), *back(r, n, r.choice((1, 2))), *flapping(r, n), *heard(r, 6)],
    lambda r, n: [
        *(*out(r, n), *back(r, n, 2), *flapping(r, n, 1), r.choice((ForgetHistory(), Kill(0), strike(r)))),
        *heard(r, 4),
    ],
    lambda r, n: [*flapping(r, n, r.choice((2, 8))), *out(r, n), *back(r, n, 5)],
    lambda r, n: [*out(r, n), *back(r, n, 3), xid(r, n + 1), xid(r, n + 2), poll(r), strike(r), *heard(r, 2)],
)
