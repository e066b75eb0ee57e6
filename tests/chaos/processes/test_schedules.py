"""Two schedules that every test run plays; ``make chaos`` plays hundreds of others."""

from __future__ import annotations

import pytest

from tests.chaos.processes.actors import LINUX
from tests.chaos.processes.play import run
from tests.chaos.processes.schedule import schedule_of

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not LINUX, reason="needs /proc to see that a process is stopped"),
]


@pytest.mark.parametrize("seed", [3, 11])
def test_no_fault_is_lost_and_no_fault_acts_twice(seed: int) -> None:
    outcome = run(seed)

    assert not outcome.wrong, f"seed {seed}: {outcome.wrong}\n{outcome.output}"
    assert outcome.faults
    assert outcome.node_writes


def test_a_schedule_follows_from_its_seed() -> None:
    assert str(schedule_of(7)) == str(schedule_of(7))
    assert str(schedule_of(7)) != str(schedule_of(8))


def test_a_hundred_schedules_contain_every_kind_of_step() -> None:
    happened = {step.what for seed in range(100) for step in schedule_of(seed).steps}

    assert happened >= {
        *("print", "ship", "replay", "duplicate", "kill", "start", "freeze", "thaw", "loki", "kube"),
        *("delete lease", "reset", "taint by hand", "untaint by hand", "others write", "reboot", "recreate"),
    }
