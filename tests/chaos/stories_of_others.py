"""The stories about words of other programs, true or not: see :mod:`tests.chaos.words`."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.chaos.machines import FATAL
from tests.chaos.others import Doubles, Flaps, Renames, Says, Stalls, Vanishes
from tests.chaos.people import Label, Reset
from tests.chaos.setup import MANAGED
from tests.chaos.steps import (
    DeleteNode,
    Gpus,
    Kill,
    KubeTrouble,
    Ready,
    Reboot,
    Register,
    SetNodeClock,
    Start,
    Step,
    Stop,
    Terminate,
    Wait,
    Xid,
)
from tests.chaos.stories import Story, poll, release, strike, wait, xid
from tests.chaos.stories_of_returns import LOST_ANSWERS, back, heard, out
from tests.chaos.words import KINDS, WITNESSES

RULES = tuple(KINDS)
AGO_SECONDS = (0.0, 0.0, 0.0, 3.0, 100.0, 2000.0, 90_000.0, -30.0, -500.0)
"""How long ago a word changed when it is written; one in the future has a negative age."""


def rule_of(r: random.Random, rules: Sequence[str] = RULES) -> str:
    return r.choice(rules)


def says(r: random.Random, node: int, rule: str) -> list[Step]:
    """A program finds a fault."""
    return [Says(node, rule, ago=r.choice(AGO_SECONDS), dated=r.random() > 0.1), poll(r)]


def loses_gpu(r: random.Random, node: int, rule: str) -> list[Step]:
    """A GPU is really lost: in some cases its driver says so, and sooner or later another program does."""
    line: list[Step] = [Xid(node, 79)] if r.random() < 0.2 else []
    return [Gpus(node, 7), *line, Wait(r.choice((1.0, 60.0, 260.0))), *says(r, node, rule), *heard(r, 5)]


def restart(r: random.Random) -> list[Step]:
    """Another controller goes on, which knows only what is written."""
    return [r.choice((Kill(0), Terminate(0))), poll(r)]


def meanwhile(r: random.Random, node: int) -> list[Step]:
    """Something that happens to the node or its record while a word stands."""
    return r.choice(
        (
            [release(r, node), poll(r)],
            [Reboot(node, r.choice((0.0, 30.0))), *heard(r, 2)],
            [DeleteNode(node), poll(r), Register(node, r.random() < 0.3), poll(r)],
            [Ready(node, on=False), poll(r), Ready(node), poll(r)],
            restart(r),
            [strike(r), poll(r), wait(r), poll(r)],
        )
    )


def story(r: random.Random, node: int) -> list[Step]:
    """A word, true or not, then two things that happen meanwhile, and what becomes of the word."""
    rule = rule_of(r)
    begins = loses_gpu if r.random() < 0.3 else says
    return [*begins(r, node, rule), *meanwhile(r, node), *becomes(r, node, rule), *meanwhile(r, node)]


def becomes(r: random.Random, node: int, rule: str) -> list[Step]:
    """The word changes, or no longer does."""
    ways: tuple[list[Step], ...] = (
        [Says(node, rule, bad=False), *heard(r, 2)],
        [Says(node, rule, bad=False), Stalls(node, rule), *heard(r, 16)],
        [Says(node, rule), poll(r)],
        [Flaps(node, rule, r.choice((3, 6)), r.choice((1.0, 20.0, 400.0))), *heard(r, 3)],
        [
            Stalls(node, rule),
            Wait(r.choice((100.0, 1000.0))),
            poll(r),
            Stalls(node, rule, on=False),
            poll(r),
        ],
        [Vanishes(node, rule), *heard(r, 2)],
        [Renames(node, rule, rule_of(r)), *heard(r, 2)],
        [Doubles(node, rule, r.random() < 0.5), *heard(r, 2)],
    )
    return r.choice(ways)


OTHERS_STORIES: tuple[Story, ...] = (
    story,
    story,
    story,
    # Two witnesses, in either order, at once or apart, with a restart between them or without.
    lambda r, n: [*loses_gpu(r, n, rule_of(r, WITNESSES)), *meanwhile(r, n), *heard(r, 3)],
    lambda r, n: [*says(r, n, rule_of(r, WITNESSES)), Gpus(n, 7), *heard(r, 5), *meanwhile(r, n)],
    lambda r, n: [Says(n, rule_of(r, WITNESSES)), poll(r), Wait(4000.0), Gpus(n, 7), *heard(r, 5)],
    lambda r, n: [
        *(Gpus(n, 7), *heard(r, 5), *restart(r), *says(r, n, rule_of(r, WITNESSES)), *restart(r), *heard(r)),
    ],
    lambda r, n: [
        *(*loses_gpu(r, n, rule_of(r, WITNESSES)), Gpus(n, 8), *back(r, n, 5)),
        *(release(r, n), *heard(r, 2)),
    ],
    # A change while the write of the last one fails, or while the controller stands still.
    lambda r, n: [
        *(KubeTrouble(r.choice(LOST_ANSWERS), "node", r.choice((1, 3))), *says(r, n, rule := rule_of(r))),
        *(Says(n, rule), poll(r), strike(r), Says(n, rule), poll(r), poll(r), *heard(r, 2)),
    ],
    lambda r, n: [
        *(Stop(0, 0, False, 4, True), *says(r, n, rule_of(r)), *meanwhile(r, n), *heard(r, 2)),
    ],
    # A word on a node that is out for a fault of its own, and comes back.
    lambda r, n: [*out(r, n), *says(r, n, rule_of(r)), *back(r, n, 5), *meanwhile(r, n), *heard(r, 2)],
    lambda r, n: [*says(r, n, rule_of(r)), *out(r, n), *back(r, n, 5), *meanwhile(r, n), *heard(r, 2)],
    # A clock that is off, a node that is left alone, a second controller.
    lambda r, n: [
        *(SetNodeClock(n, r.choice((-300.0, -5.0, 60.0, 300.0))), *says(r, n, rule_of(r)), *meanwhile(r, n)),
        *(SetNodeClock(n, 0.0), *heard(r, 2)),
    ],
    lambda r, n: [Label(n, MANAGED, None), *says(r, n, rule_of(r)), Label(n, MANAGED), *heard(r, 2)],
    lambda r, n: [
        Start(1),
        *says(r, n, rule := rule_of(r)),
        Kill(0),
        Wait(320.0),
        Flaps(n, rule),
        *heard(r, 6),
    ],
    # Healthy for as long as a suspicion lasts, or only nearly.
    lambda r, n: [*says(r, n, rule := rule_of(r)), Says(n, rule, bad=False), *heard(r, 18), *meanwhile(r, n)],
    lambda r, n: [
        *(*says(r, n, rule := rule_of(r)), xid(r, n + 1, FATAL), Says(n, rule, bad=False), *heard(r, 5)),
        *(r.choice((Vanishes(n, rule), Stalls(n, rule), Says(n, rule))), *heard(r, 16), Reset(n), poll(r)),
    ],
)
"""Words of other programs."""
