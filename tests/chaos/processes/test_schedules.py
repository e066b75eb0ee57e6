"""Some schedules in every test run; ``make chaos`` plays hundreds of others."""

from __future__ import annotations

import pytest

from tests.chaos.processes.actors import LINUX
from tests.chaos.processes.play import run
from tests.chaos.processes.schedule import schedule_of

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not LINUX, reason="sees by /proc that a process stands still"),
]


@pytest.mark.parametrize("seed", [3, 11])
def test_whatever_happens_nothing_is_lost_and_nothing_acts_twice(seed: int) -> None:
    outcome = run(seed)

    assert not outcome.wrong, f"seed {seed}: {outcome.wrong}\n{outcome.said}"
    assert outcome.faults
    assert outcome.node_writes


def test_a_schedule_follows_from_its_seed() -> None:
    assert str(schedule_of(7)) == str(schedule_of(7))
    assert str(schedule_of(7)) != str(schedule_of(8))


def test_over_a_hundred_schedules_everything_happens() -> None:
    happened = {step.what for seed in range(100) for step in schedule_of(seed).steps}

    assert happened >= {
        *("say", "ship", "replay", "duplicate", "kill", "start", "freeze", "thaw", "loki", "kube"),
        *("delete lease", "reset", "taint by hand", "untaint by hand", "others write", "reboot", "recreate"),
    }
