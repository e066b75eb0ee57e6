"""The short form of ``make chaos``: fixed seeds, fresh seeds, kept findings, examples, and mutants.

A failure names its seed; ``python -m tests.chaos --seed N`` shortens and prints its schedule.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections import Counter

import pytest

from tests.chaos import alerts, harm, others, people, steps, suspicions, validations, words
from tests.chaos.examples import EXAMPLES
from tests.chaos.examples_of_alerts import ALERT_EXAMPLES
from tests.chaos.examples_of_guards import GUARD_EXAMPLES
from tests.chaos.examples_of_harm import HARM_EXAMPLES
from tests.chaos.examples_of_others import OTHERS_EXAMPLES
from tests.chaos.found import FOUND
from tests.chaos.harm import LEASE_PARTS, RECORD_PARTS
from tests.chaos.lines import NAMELESS
from tests.chaos.mutant import Mutant, NoSuchNameError
from tests.chaos.mutants import MUTANTS, noticed_by
from tests.chaos.people import Reset
from tests.chaos.run import play_seeds
from tests.chaos.schedule import Schedule, play, schedule_of, shrunk
from tests.chaos.setup import Setup
from tests.chaos.steps import (
    PodLine,
    Replay,
    Round,
    Step,
    Wait,
    Xid,
)

BATCH = 3
FIXED = 6
"""Number of seeds that always run; ``make chaos`` runs 20,000."""


@pytest.mark.parametrize("first", range(1, 1 + FIXED, BATCH))
def test_no_invariant_breaks_in_the_schedules_that_always_run(first: int) -> None:
    tally = play_seeds(range(first, first + BATCH))

    assert tally.broken == []
    assert tally.taints > BATCH, "schedules with hardly any taint prove nothing"


def test_no_invariant_breaks_in_schedules_that_never_ran_before() -> None:
    first = 1_000_000 + secrets.randbelow(1_000_000_000)

    tally = play_seeds(range(first, first + BATCH))

    assert tally.broken == [], f"seeds from {first}"


@pytest.mark.parametrize("schedule", FOUND.values(), ids=FOUND)
def test_a_kept_finding_does_not_break_again(schedule: Schedule) -> None:
    assert play(schedule).broken == []


@pytest.mark.parametrize("schedule", (EXAMPLES | GUARD_EXAMPLES).values(), ids=EXAMPLES | GUARD_EXAMPLES)
def test_an_example_taints_the_expected_nodes_and_no_others(schedule: Schedule) -> None:
    assert play(schedule).broken == []


def test_refused_returns_overwritten_logs_and_times_of_the_future_happen_and_break_nothing() -> None:
    outcomes = {name: play(schedule) for name, schedule in HARM_EXAMPLES.items()}

    assert {name: outcome.broken for name, outcome in outcomes.items() if outcome.broken} == {}
    assert sum((outcome.happened for outcome in outcomes.values()), Counter()).keys() >= {
        "refused removal of a taint",
        *harm.CROWDED,
        *NAMELESS,
        "foreign stamp above the uptime",
        "beginning of a boot overwritten, never heard",
        "beginning of a boot overwritten, heard before",
        "beginning of a boot overwritten, heard before, and a part lost",
        *(f"record with {part} years ahead" for part in RECORD_PARTS),
        "record with returns a little ahead",
        *(f"Lease with {part} years ahead" for part in LEASE_PARTS),
    }


def test_other_programs_words_do_everything_that_is_counted_and_break_nothing() -> None:
    outcomes = {name: play(schedule) for name, schedule in OTHERS_EXAMPLES.items()}

    assert {name: outcome.broken for name, outcome in outcomes.items() if outcome.broken} == {}
    assert sum((outcome.happened for outcome in outcomes.values()), Counter()).keys() >= {
        *(f"condition {deed}" for deed in words.DEEDS),
        *(f"suspicion by a condition {deed}" for deed in suspicions.DEEDS),
        suspicions.TAINT,
    }


def test_alerts_do_everything_that_is_counted_and_break_nothing() -> None:
    outcomes = {name: play(schedule) for name, schedule in ALERT_EXAMPLES.items()}

    assert {name: outcome.broken for name, outcome in outcomes.items() if outcome.broken} == {}
    assert sum((outcome.happened for outcome in outcomes.values()), Counter()).keys() >= {
        *(f"alert {deed}" for deed in alerts.DEEDS),
        *(f"suspicion by an alert {deed}" for deed in suspicions.DEEDS if deed != "is confirmed"),
    }


def test_a_seed_gives_the_same_schedule_in_every_process() -> None:
    code = (
        "from tests.chaos.schedule import play, schedule_of\n"
        "print('\\n'.join(play(schedule_of(13), traced=True).trace))"
    )

    environ = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True
    )

    assert done.stdout.count("PATCH") > 3
    assert done.stdout.rstrip("\n") == "\n".join(play(schedule_of(13), traced=True).trace)


def test_a_program_that_forgets_what_a_reset_covers_breaks_a_schedule_which_is_shortened() -> None:
    schedule = Schedule(
        1,
        Setup(plain=(False,)),
        (
            *(PodLine(0), Xid(0, 31), Xid(0, 79), Round(0), Wait(30.0)),
            *(Reset(0), Round(0), Replay(0), Round(0)),
        ),
    )
    assert play(schedule).broken == []

    with MUTANTS["nothing was seen before"]():
        short = shrunk(schedule)
        [first, *_] = play(short).broken

    assert "happened" in first or "may act" in first
    assert len(short.steps) < len(schedule.steps)
    assert any(isinstance(step, Xid) for step in short.steps)


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.guarded])
def test_a_mutant_is_noticed(name: str) -> None:
    assert noticed_by(name)


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.guarded])
def test_a_mutant_that_nothing_notices_still_fits_the_program(name: str) -> None:
    assert not noticed_by(name, range(6, 7))


@pytest.mark.parametrize("gone", ["policy.no_such_function", "policy.Entry.no_such_method"])
def test_a_mutant_of_a_removed_name_raises(gone: str) -> None:
    with pytest.raises(NoSuchNameError, match="no_such"), Mutant(gone, lambda real: real)():
        pass


def test_schedules_differ_and_use_every_kind_of_step() -> None:
    used = {type(step) for seed in range(400) for step in schedule_of(seed).steps}
    kinds = {
        kind
        for module in (steps, people, harm, validations, others, alerts)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and kind is not Step
    }

    assert used == kinds
