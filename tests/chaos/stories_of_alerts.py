"""The stories about alerts of Prometheus: see :mod:`tests.chaos.alerts`."""

from __future__ import annotations

import random

from tests.chaos.alerts import NAMES, ExporterDown, Fires, Renamed, Unanswered
from tests.chaos.steps import Gpus, Reboot, Round, Step, Wait
from tests.chaos.stories import Story, poll
from tests.chaos.stories_of_others import meanwhile, restart
from tests.chaos.stories_of_returns import back, heard, out

BETWEEN_SECONDS = (61.0, 61.0, 150.0, 280.0, 400.0)
"""Seconds between two rounds; after more than 300, nothing is known of the time between."""


def asked(r: random.Random, seconds: float) -> list[Step]:
    """The controller works for so long, in one case of five with a wait that is too long to know anything."""
    steps: list[Step] = []
    waits = (280.0, 280.0, 310.0) if r.random() < 0.2 else (200.0, 280.0)
    while seconds > 0:
        wait = r.choice(waits)
        steps += [Wait(wait), Round(0)]
        seconds -= wait
    return steps


def fires(r: random.Random, node: int, name: str) -> list[Step]:
    return [Fires(node, name), Wait(r.choice(BETWEEN_SECONDS)), poll(r)]


def ends(r: random.Random, node: int, name: str) -> list[Step]:
    """The alert is resolved, for long enough or not, and what the answers are meanwhile."""
    resolved, seconds = Fires(node, name, on=False), r.choice((300.0, 1500.0, 2100.0, 2400.0))
    ways: tuple[list[Step], ...] = (
        [resolved, *asked(r, seconds)],
        [ExporterDown(node), *asked(r, seconds), ExporterDown(node, on=False), *asked(r, 300.0)],
        [resolved, *asked(r, 900.0), ExporterDown(node), Wait(61.0), poll(r), ExporterDown(node, on=False)],
        [resolved, *asked(r, 900.0), *restart(r), *asked(r, seconds)],
        [resolved, Unanswered(r.choice(("error", "part"))), *asked(r, seconds), Unanswered()],
        [
            resolved,
            *asked(r, 900.0),
            Unanswered("error"),
            Wait(400.0),
            poll(r),
            Unanswered(),
            *asked(r, 900.0),
        ],
        [Renamed(node, name, r.choice(NAMES)), *asked(r, seconds)],
        [Renamed(node, name), *asked(r, seconds)],
        [step for _ in range(4) for step in (resolved, *asked(r, 280.0), *fires(r, node, name))],
    )
    return r.choice(ways)


def story(r: random.Random, node: int) -> list[Step]:
    """An alert fires, ends, and fires once more; two things happen meanwhile."""
    name = r.choice(NAMES)
    return [
        *(*fires(r, node, name), *meanwhile(r, node), *ends(r, node, name), *meanwhile(r, node)),
        *fires(r, node, name),
    ]


ALERT_STORIES: tuple[Story, ...] = (
    story,
    story,
    story,
    # A boot, after which the alert is quiet for a while, and its own `for` begins anew.
    lambda r, n: [
        *(*fires(r, n, name := r.choice(NAMES)), Reboot(n, 30.0), Fires(n, name, on=False)),
        *(*asked(r, r.choice((200.0, 600.0, 2000.0))), *fires(r, n, name), *heard(r, 2)),
    ],
    # An alert on a node that is out for a fault of its own, and comes back.
    lambda r, n: [*out(r, n), *fires(r, n, r.choice(NAMES)), *back(r, n, 5), *heard(r, 2)],
    # A lost GPU takes its metrics along.
    lambda r, n: [
        *fires(r, n, r.choice(NAMES)),
        Gpus(n, 7),
        ExporterDown(n),
        *asked(r, 2000.0),
        *heard(r, 2),
    ],
)
"""Alerts of Prometheus."""
