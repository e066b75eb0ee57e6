"""Stories about events on many nodes, and about doubt that grows: see :mod:`tests.chaos.stories`."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.chaos import people as p
from tests.chaos import steps as s
from tests.chaos.machines import FATAL, LINKS, SUSPECT, SYMPTOMS
from tests.chaos.steps import Step
from tests.chaos.telling import LATE_SHARES, Story, again, beat, release, strike, wait, xid

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
