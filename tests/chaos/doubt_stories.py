"""Stories about doubt that grows into enough, or must not: see :mod:`tests.chaos.stories`."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.chaos import people as p
from tests.chaos import steps as s
from tests.chaos.machines import FATAL, JOB_FAULTS, SUSPECT, SYMPTOMS
from tests.chaos.steps import Step
from tests.chaos.telling import Story, beat, release, strike, wait, xid

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
