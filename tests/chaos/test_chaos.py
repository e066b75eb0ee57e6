"""The bounded form of ``make chaos``: a fixed base that always runs, a fresh seed, examples, and mutants.

What broke is told with its seed; ``python -m tests.chaos --seed N`` shows it, made short.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

import pytest

from tests.chaos import people
from tests.chaos import steps as s
from tests.chaos.examples import EXAMPLES
from tests.chaos.found import FOUND
from tests.chaos.mutants import MUTANTS, Mutant, NoSuchNameError, noticed_by
from tests.chaos.run import play_seeds
from tests.chaos.schedule import Schedule, play, schedule_of, shrunk
from tests.chaos.setup import Setup

BATCH = 15
FIXED = 30
"""``make chaos`` runs 20,000; these few say at once that something broke."""


@pytest.mark.parametrize("first", range(1, 1 + FIXED, BATCH))
def test_nothing_breaks_in_the_schedules_that_always_run(first: int) -> None:
    tally = play_seeds(range(first, first + BATCH))

    assert tally.broken == []
    assert tally.taints > BATCH, "schedules in which hardly anything happens prove nothing"


def test_nothing_breaks_in_schedules_that_never_ran_before() -> None:
    first = 1_000_000 + secrets.randbelow(1_000_000_000)

    tally = play_seeds(range(first, first + BATCH))

    assert tally.broken == [], f"seeds {first} and on"


@pytest.mark.parametrize("schedule", FOUND.values(), ids=FOUND)
def test_what_was_found_once_does_not_come_back(schedule: Schedule) -> None:
    assert play(schedule).broken == []


@pytest.mark.parametrize("schedule", EXAMPLES.values(), ids=EXAMPLES)
def test_in_a_plain_case_these_nodes_are_tainted_and_no_others(schedule: Schedule) -> None:
    assert play(schedule).broken == []


def test_a_seed_is_one_schedule_in_every_process() -> None:
    code = (
        "from tests.chaos.schedule import play, schedule_of\n"
        "print('\\n'.join(play(schedule_of(6), traced=True).trace))"
    )

    environ = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True
    )

    assert done.stdout.count("PATCH") > 3
    assert done.stdout.rstrip("\n") == "\n".join(play(schedule_of(6), traced=True).trace)


def test_a_program_that_forgets_what_a_reset_covers_is_caught_and_its_schedule_made_short() -> None:
    schedule = Schedule(
        1,
        Setup(plain=(False,)),
        (
            *(s.PodLine(0), s.Xid(0, 31), s.Xid(0, 79), s.Beat(0), s.Wait(30.0)),
            *(people.Reset(0), s.Beat(0), s.Replay(0), s.Beat(0)),
        ),
    )
    assert play(schedule).broken == []

    with MUTANTS["nothing was seen before"]():
        short = shrunk(schedule)
        [first, *_] = play(short).broken

    assert "happened" in first or "may act" in first
    assert len(short.steps) < len(schedule.steps)
    assert any(isinstance(step, s.Xid) for step in short.steps)


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.guarded])
def test_a_broken_promise_is_noticed(name: str) -> None:
    assert noticed_by(name)


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.guarded])
def test_a_mutant_that_nothing_notices_still_fits_the_program(name: str) -> None:
    assert not noticed_by(name, range(2, 3))


@pytest.mark.parametrize("gone", ["policy.no_such_function", "policy.Entry.no_such_method"])
def test_a_mutant_of_what_is_gone_says_so(gone: str) -> None:
    with pytest.raises(NoSuchNameError, match="no_such"), Mutant(gone, lambda real: real)():
        pass


def test_schedules_differ_and_use_every_kind_of_step() -> None:
    used = {type(step) for seed in range(400) for step in schedule_of(seed).steps}
    kinds = {
        kind
        for module in (s, people)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and kind is not s.Step
    }

    assert used == kinds
