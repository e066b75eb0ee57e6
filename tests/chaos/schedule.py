"""Random schedules, each drawn from a seed, and how one is played to its end."""

from __future__ import annotations

import logging
import random
from collections import Counter
from dataclasses import dataclass, field, replace

from konductor_like.controller.logs import LOGGER
from konductor_like_sandbox.loki.limits import BigAnswer
from tests.chaos.aftermath import Aftermath
from tests.chaos.people import Resume
from tests.chaos.setup import RECOVERABLE, Setup
from tests.chaos.steps import Round, Step
from tests.chaos.stories import LARGE_STORIES, STORIES, draw, woven
from tests.chaos.stories_of_alerts import ALERT_STORIES
from tests.chaos.stories_of_guards import GUARD_STORIES
from tests.chaos.stories_of_harm import (
    CROWDED_STORIES,
    FOREIGN_STORIES,
    FORGED_STORIES,
    HARM_STORIES,
    NAMELESS_STORIES,
)
from tests.chaos.stories_of_others import OTHERS_STORIES
from tests.chaos.stories_of_returns import RETURN_STORIES
from tests.chaos.stories_of_validations import VALIDATION_STORIES
from tests.chaos.world import World

_SPANS = ((2.0, 2.0), (2.0, 2.0), (20.0, 20.0), (20.0, 200.0), (60.0, 1500.0))
"""Overlap and lateness in seconds. If both are short, lines behind a cursor too far ahead are never read."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The setup of a world, and the steps that are taken in it."""

    seed: int
    setup: Setup
    steps: tuple[Step, ...]
    tainted: tuple[int, ...] | None = None
    """The nodes that must be tainted after the last step; None: only the invariants are checked."""
    suspect: tuple[int, ...] | None = None
    """The nodes that must be suspect then."""

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.setup}", *(f"    {step}," for step in self.steps)])


@dataclass(slots=True)
class Outcome:
    """The result of a schedule: the broken invariants, and how much it did."""

    schedule: Schedule
    broken: list[str]
    taints: int
    requests: int
    happened: Counter[str]
    """How often each rare event happened, each guard began to keep a node out, and each Event was sent."""
    trace: list[str] = field(default_factory=list)


_BESIDE = (
    ("harm", 0.4, HARM_STORIES),
    ("forged", 0.3, FORGED_STORIES),
    ("foreign", 0.15, FOREIGN_STORIES),
    ("guards", 0.3, GUARD_STORIES),
    ("crowded", 0.06, CROWDED_STORIES),
    ("nameless", 0.06, NAMELESS_STORIES),
)
"""Stories that are woven into this share of the schedules."""


def schedule_of(seed: int) -> Schedule:
    rng, large, back = random.Random(seed), random.Random(f"large {seed}"), random.Random(f"return {seed}")
    nodes = rng.choice((1, 2, 3, 3, 4, 5))
    overlap_seconds, lateness_seconds = rng.choice(_SPANS)
    setup = Setup(
        plain=tuple(rng.random() < 0.3 for _ in range(nodes)),
        brake_percent=rng.choice((100.0, 100.0, 100.0, 100.0, 50.0, 20.0)),
        loki_limit=rng.choice((5000, 5000, 5000, 24)),
        loki_cuts=rng.random() < 0.5,
        message_bytes=large.choice((4 * 2**20, 4 * 2**20, 60_000, 15_000)),
        big_answer=large.choice(list(BigAnswer)),
        query_timeout_seconds=large.choice((60.0, 60.0, 10.0, 3.0)),
        write_timeout_seconds=large.choice((30.0, 30.0, 2.0)),
        slow_writes=rng.random() < 0.3,
        overlap_seconds=overlap_seconds,
        lateness_seconds=lateness_seconds,
        pool_percent=rng.choice((None, None, 50.0)),
        rate_nodes=rng.choice((None, None, None, 1, 2)),
        cooldown_seconds=rng.choice((0.0, 60.0, 300.0)),
        rack=rng.random() < 0.4,
        suspect_taints=rng.random() < 0.3,
        returns=back.random() < 0.5,
        quiet_seconds=back.choice((0.0, 60.0, 60.0, 120.0, 300.0)),
        probation_seconds=back.choice((0.0, 300.0, 1000.0, 3600.0, 3600.0)),
        returns_per_hour=back.choice((10, 10, 10, 1, 2)),
        hold_seconds=back.choice((0.0, 0.0, 300.0, 1800.0)),
        repeat_count=back.choice((0, 0, 3)),
        test_seconds=back.choice((0.0, 200.0, 200.0, 3600.0)),
        suspect_days=back.choice((7.0, 7.0, 0.0, 0.01)),
        gpu_seconds=back.choice((1800.0, 200.0, 200.0, 0.0)),
    )
    # Each schedule draws from a few stories only, so that one story repeats without others in between.
    stories = rng.sample(STORIES, rng.choice((3, 6, 12, len(STORIES))))
    steps = draw(rng, nodes, stories, rng.randint(20, 60))
    while large.random() < 0.5:
        place = large.randrange(len(steps))
        steps[place:place] = large.choice(LARGE_STORIES)(large, large.randrange(nodes))
    chance = back.random()
    if chance < 0.35:  # most other stories forbid a return
        setup = replace(setup, returns=True, brake_percent=100.0, pool_percent=None, rate_nodes=None)
        setup = replace(setup, plain=(back.random() < 0.3, *(False,) * (nodes - 1)))
        steps = draw(back, nodes, RETURN_STORIES, back.choice((30, 60)))
    elif chance < 0.65:
        steps = woven(back, steps, draw(back, nodes, RETURN_STORIES, back.choice((8, 16))))
    for name, share, more in _BESIDE:
        r = random.Random(f"{name} {seed}")
        if r.random() < share:
            steps = woven(r, steps, draw(r, nodes, more, r.choice((8, 16, 30))))
    others = random.Random(f"others {seed}")
    chance = others.random()
    if chance < 0.4:
        setup = replace(setup, suspect_days=others.choice((setup.suspect_days, 0.01)), gpu_seconds=200.0)
        if chance < 0.1:  # some other story meddles with most of these
            steps = draw(others, nodes, OTHERS_STORIES, 40)
        else:
            steps = woven(others, steps, draw(others, nodes, OTHERS_STORIES, others.choice((8, 16, 30))))
    alerts = random.Random(f"alerts {seed}")
    chance = alerts.random()
    if chance < 0.1:  # some other story meddles with most of these
        setup = replace(setup, suspect_days=alerts.choice((setup.suspect_days, 0.05)))
        steps = draw(alerts, nodes, ALERT_STORIES, 40)
    elif chance < 0.3:
        steps = woven(alerts, steps, draw(alerts, nodes, ALERT_STORIES, alerts.choice((8, 16, 30))))
    tested = random.Random(f"validated {seed}")
    if tested.random() < 0.2:
        return _with_validations(tested, seed, setup, steps)
    return Schedule(seed, setup, (Round(), *steps))


def _with_validations(r: random.Random, seed: int, setup: Setup, steps: list[Step]) -> Schedule:
    """Return a schedule of validations alone, or woven into these steps."""
    nodes = max(2, len(setup.plain))
    is_asked_only = r.random() < 0.15
    setup = replace(
        setup,
        plain=(False,) * nodes,
        validated=not is_asked_only,
        image=is_asked_only,
        recovery_selector=r.choice(("", "", "", f"{RECOVERABLE}=yes")),
        rack=r.random() < 0.2,
        repeat_count=0,
        hold_seconds=r.choice((0.0, 0.0, 300.0)),
    )
    if r.random() < 0.7:  # most other stories forbid a return
        setup = replace(setup, brake_percent=100.0, pool_percent=None, rate_nodes=None)
        steps = draw(r, nodes, VALIDATION_STORIES, 40)
    else:
        steps = woven(r, steps, draw(r, nodes, VALIDATION_STORIES, r.choice((16, 30))))
    return Schedule(seed, setup, (Round(), *steps))


def play(schedule: Schedule, *, traced: bool = False, until_broken: bool = False) -> Outcome:
    """Play a schedule, let the world recover, and check the invariants; or play it until one breaks."""
    random.seed(schedule.seed)  # jitter under test
    world = World(schedule.setup, schedule.seed, trace=[] if traced else None, until_broken=until_broken)
    with world.clock.installed(), listening(world):
        world.run(schedule.steps)
        if schedule.tainted is not None:
            world.ledger.check_tainted([world.names[number] for number in schedule.tainted])
        if schedule.suspect is not None:
            world.ledger.check_suspect([world.names[number] for number in schedule.suspect])
        if traced or not world.ledger.broken:
            recover(world)
    ledger = world.ledger
    ledger.happened.update(f"Event {event['reason']}" for event in world.kube.objects("events"))
    return Outcome(schedule, ledger.broken, ledger.tainted_once, world.requests, ledger.happened, world.trace)


def shrunk(schedule: Schedule) -> Schedule:
    """Return a broken schedule without the steps that it can lose and still break, in ever smaller pieces."""
    steps = list(schedule.steps)
    size = max(1, len(steps) // 2)
    while True:
        at, left = 0, len(steps)
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if _breaks(replace(schedule, steps=tuple(fewer))):
                steps = fewer
            else:
                at += size
        if size == 1 and len(steps) == left:
            return replace(schedule, steps=tuple(steps))
        size = max(1, size // 2)


def _breaks(schedule: Schedule) -> bool:
    return bool(play(schedule, until_broken=True).broken)


def recover(world: World) -> None:
    """End all troubles, let everything that is under way arrive, and check the end state."""
    world.log("══ all troubles end")
    world.heal()
    for span in (1.0, 130.0, 5.0, 330.0, 130.0, 5.0, 350.0, 650.0, 6.0, 20.0, *(110.0,) * 4):
        world.advance(span)
        world.round_of_all()
        world.ledger.check_now()
        if world.paused():
            Resume().take(world)  # a deleted Lease has come back with its pause
    before = world.ledger.writes - world.ledger.timed
    for _ in range(2):
        world.advance(5.0)
        world.round_of_all()
    Aftermath(world).check(before)


class listening(logging.Handler):  # noqa: N801  # used as a context
    """Reports exceptions that the program logs to the ledger, and shows the whole log in a trace."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def __enter__(self) -> None:
        self._before = (LOGGER.handlers[:], LOGGER.level, LOGGER.propagate)
        LOGGER.handlers[:] = [self]
        LOGGER.setLevel(logging.DEBUG if self._world.traced else logging.ERROR)
        LOGGER.propagate = False

    def __exit__(self, *_exc: object) -> None:
        LOGGER.handlers[:], level, LOGGER.propagate = self._before
        LOGGER.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        self._world.log(f"   log: {record.getMessage()}")
        if record.exc_info:
            self._world.ledger.mistake(record)
