"""The bounded form of ``make chaos``: a fixed base that always runs, a fresh seed, and what was found once.

What broke is told with its seed; ``python -m tests.chaos --seed N`` shows it, made short.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

import pytest

from tests.chaos import others, people
from tests.chaos import steps as s
from tests.chaos.found import FOUND
from tests.chaos.mutants import GUARDED_TWICE, MUTANTS, caught_by
from tests.chaos.run import play_seeds
from tests.chaos.schedule import Schedule, play, schedule_of
from tests.chaos.setup import Setup
from tests.chaos.shrink import shrunk
from tests.chaos.steps import Step

BATCH = 30


@pytest.mark.parametrize("first", range(1, 1 + 8 * BATCH, BATCH))
def test_nothing_breaks_in_the_schedules_that_always_run(first: int) -> None:
    tally = play_seeds(range(first, first + BATCH))

    assert tally.broken == []
    assert tally.taints > BATCH, "schedules in which hardly anything happens prove nothing"


def test_nothing_breaks_in_schedules_that_never_ran_before() -> None:
    first = 1_000_000 + secrets.randbelow(1_000_000_000)

    tally = play_seeds(range(first, first + BATCH))

    assert tally.broken == [], f"seeds {first} and on"


@pytest.mark.parametrize("sentence", FOUND)
def test_what_was_found_once_does_not_come_back(sentence: str) -> None:
    assert play(FOUND[sentence]).broken == []


def test_a_seed_is_one_schedule_in_every_process() -> None:
    code = (
        "from tests.chaos.schedule import play, schedule_of\n"
        "for seed in (6, 23): print('\\n'.join(play(schedule_of(seed), traced=True).trace))"
    )

    def trace(hash_seed: str) -> str:
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True
        ).stdout

    first = trace("1")
    assert first.count("PATCH") > 3
    assert first == trace("2")


SHORT = Schedule(
    1,
    Setup(plain=(False,)),
    (
        *(
            s.Wait(5.0),
            s.PodLine(0),
            s.Xid(0, 31),
            s.Xid(0, 79),
            s.Beat(0),
            others.OthersWrite(0, 3),
            s.Wait(30.0),
        ),
        *(people.Reset(0), s.Beat(0), s.Replay(0), s.ForgetHistory(), s.Beat(0)),
    ),
)


def test_a_program_that_forgets_what_a_reset_covers_is_caught_and_its_schedule_made_short() -> None:
    assert play(SHORT).broken == []

    with MUTANTS["nothing was seen before"]():
        short = shrunk(SHORT)
        [first, *_] = play(short).broken

    assert "happened" in first or "may act" in first
    assert len(short.steps) < len(SHORT.steps)
    assert any(isinstance(step, s.Xid) for step in short.steps)


CAUGHT_BY: dict[str, int] = {
    "no answer is asked for with fewer entries": 17,
    "kernel positions tell no replay": 16,
    "nothing was seen before": 2,
    "a release covers no incident": 4,
    "a release covers everything": 7,
    "a taint taken off by hand is set again": 1,
    "a line counts for the present boot, whatever it names": 1,
    "the brake lets everybody pass": 2,
    "another's Lease is taken at once": 6,
    "a pause is not heeded": 2,
    "pools have no brake of their own": 13,
    "the pace is not kept": 12,
    "a deleted node is forgotten": 78,
    "an acknowledgement is forgotten": 3,
    "hardware's own failure may be collateral": 8,
    "nothing waits to be told apart": 7,
    "a threshold is one too high": 64,
    "the softer taint lingers": 1,
    "a pod's word of its memory is enough": 6,
    "a job's end confirms a pod": 132,
    "a pod is confirmed however long ago": 37,
    "all the jobs of one failure count": 7,
    "what a failure elsewhere explains counts": 26,
}
"""By mutant, a seed whose schedule notices it: ``python -m tests.chaos.mutants`` finds these seeds."""


@pytest.mark.parametrize(("name", "seed"), CAUGHT_BY.items())
def test_a_broken_promise_is_caught(name: str, seed: int) -> None:
    assert caught_by(name, range(seed, seed + 1)) is not None


_RACK_FAILS: tuple[Step, ...] = (
    *(s.Beat(0), s.Wait(60.0), s.Xid(0, 79), s.Wait(1.0), s.Xid(1, 145), s.Xid(2, 149), s.Beat(0)),
    *(s.Wait(6.0), s.Beat(0)),
)


def _page_faults_of(*jobs: int) -> tuple[Step, ...]:
    """On one GPU, in one job after the other."""
    return tuple(
        step
        for job in jobs
        for step in (s.Xid(0, 31), s.PodLine(0, 0.0, job), s.Beat(0), s.Wait(130.0), s.Beat(0))
    )


_CONFIRMED_LATE: tuple[Step, ...] = (
    *(s.Beat(0), s.Wait(400.0), s.Beat(0), s.Wait(400.0), s.Beat(0), s.PodLine(0, 0.0, 1, ecc=True)),
    *(s.Xid(0, 94, 0, 0.9), s.Beat(0), s.Wait(200.0), s.Kill(0), s.Beat(0), s.Wait(900.0), s.Beat(0)),
)

RARELY_MET: dict[str, tuple[Step, ...]] = {
    "every growth is written at once": (s.Xid(0, 95, 1), s.Wait(10.0), s.Beat(0)) * 40,
    "lines of one failure count one by one": (s.Beat(0), s.Xid(0, 94, 0, times=12), s.Beat(0)),
    "the past is forgotten at a restart": (
        *(s.Beat(0), s.Xid(0, 94), s.Beat(0), s.Wait(130.0), s.Xid(0, 94), s.Beat(0), s.Kill(0)),
        *(s.Wait(1500.0), s.Beat(0), s.Xid(0, 94), s.Beat(0)),
    ),
    "collateral taints": _RACK_FAILS,
    "no event has an origin": _RACK_FAILS,
    "nothing confirms a pod": (s.Beat(0), s.PodLine(0, 0.0, 1, ecc=True), s.Xid(0, 94), s.Beat(0)),
    "a kernel's word that comes late confirms nothing": _CONFIRMED_LATE,
    "whose a page fault was nobody learns from pods": _page_faults_of(1, 2, 3),
    "one job counts again and again": _page_faults_of(1, 1, 1),
}
"""What takes many random schedules to be noticed, with the steps that it takes."""


@pytest.mark.parametrize("name", RARELY_MET)
def test_a_promise_that_few_schedules_touch_is_judged_all_the_same(name: str) -> None:
    steps = RARELY_MET[name]
    late_seconds = 1500.0 if steps is _CONFIRMED_LATE else 20.0
    setup = Setup(plain=(False,) * 10, rack=steps is _RACK_FAILS, lateness_seconds=late_seconds)
    schedule = Schedule(1, setup, steps)
    assert play(schedule).broken == []

    with MUTANTS[name]():
        [first, *_] = play(schedule).broken
    assert "This turn failed" not in first


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_still_fits_the_program(name: str) -> None:
    caught_by(name, range(2, 4))  # raises where a turn fails by the mutant's own fault


def test_every_mutant_that_nothing_catches_says_why() -> None:
    assert set(GUARDED_TWICE) < set(MUTANTS)
    assert not set(GUARDED_TWICE) & set(CAUGHT_BY)


def test_schedules_differ_and_use_every_kind_of_step() -> None:
    used = {type(step) for seed in range(400) for step in schedule_of(seed).steps}
    kinds = {
        kind
        for module in (s, others, people)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and kind is not s.Step
    }

    assert used == kinds
