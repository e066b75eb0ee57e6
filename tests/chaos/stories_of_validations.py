"""The stories about validations: their programs, people, Jobs that vanish, and what spoils a pass."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.chaos.machines import APPLICATION, FATAL, SUSPECT
from tests.chaos.people import Cordon, Label, Pause, Resume, Untaint
from tests.chaos.setup import RECOVERABLE
from tests.chaos.steps import (
    DeleteNode,
    Gpus,
    Kill,
    KubeTrouble,
    Reboot,
    Register,
    Silence,
    Start,
    Step,
    Wait,
)
from tests.chaos.stories import Story, old_lines, poll, release, strike
from tests.chaos.stories_of_returns import back, fault, heard, out, relapse
from tests.chaos.traffic import JOB_TARGETS
from tests.chaos.validations import (
    HANG,
    PASS,
    PROGRAMS,
    UNKNOWN,
    CancelValidation,
    DeleteJobs,
    Program,
    Rehearse,
    Validate,
)

KINDS = ("500", "503", "slow", "403", "409", "timeout", "timeout after", "reset after", "late", "down")


def program(r: random.Random, node: int) -> Step:
    """The node's program passes, most often."""
    return Program(node, r.choice((PASS, PASS, PASS, *PROGRAMS)))


def trouble(r: random.Random) -> Step:
    """The API server has trouble with Jobs only."""
    return KubeTrouble(r.choice(KINDS), r.choice(list(JOB_TARGETS)), r.choice((1, 2, 5, 40)))


def fixed(r: random.Random, node: int) -> list[Step]:
    """A fault, and the boot that meets its need."""
    return [*out(r, node), *back(r, node, 2)]


def validated(r: random.Random, node: int, kinds: Sequence[str] = (PASS,)) -> list[Step]:
    """The node is fixed and validated, up to the wait for its kernel log."""
    return [Program(node, r.choice(kinds)), *fixed(r, node), *heard(r, 4)]


VALIDATION_STORIES: tuple[Story, ...] = (
    lambda r, n: [*validated(r, n), *heard(r, 5)],
    lambda r, n: [program(r, n), *fixed(r, n), *heard(r, 7)],
    lambda r, n: [*(program(r, n + i) for i in range(3)), *fixed(r, n), *fixed(r, n + 1), *fixed(r, n + 2)],
    lambda r, n: [*validated(r, n), strike(r), *heard(r, 3), strike(r), *heard(r, 3)],
    # A result that is not a pass, and then another.
    lambda r, n: [*validated(r, n, PROGRAMS), Program(n), Validate(n), *heard(r, 8)],
    lambda r, n: [
        *validated(r, n, (UNKNOWN,)),
        Program(n, r.choice((PASS, UNKNOWN))),
        Wait(620.0),
        *heard(r, 8),
    ],
    lambda r, n: [*validated(r, n, (HANG,)), Wait(r.choice((60.0, 4300.0))), poll(r), *heard(r, 3)],
    # Lines, boots and GPUs after the test began.
    lambda r, n: [*validated(r, n, (PASS, HANG)), fault(r, n), program(r, n), *heard(r, 5)],
    lambda r, n: [
        *validated(r, n, (PASS, HANG)),
        fault(r, n, (*SUSPECT, *APPLICATION)),
        program(r, n),
        *heard(r, 5),
    ],
    lambda r, n: [
        *validated(r, n, (PASS, HANG)),
        Reboot(n, r.choice((0.0, 40.0))),
        program(r, n),
        *heard(r, 7),
    ],
    lambda r, n: [*validated(r, n, (HANG,)), Reboot(n, 70.0), Program(n), *heard(r, 7)],
    lambda r, n: [
        *validated(r, n, (PASS, HANG)),
        Gpus(n, 7),
        program(r, n),
        *heard(r, 4),
        Gpus(n, 8),
        *heard(r, 3),
    ],
    lambda r, n: [*validated(r, n), Silence(n, 500.0, r.random() < 0.5), *heard(r, 9)],
    lambda r, n: [*validated(r, n), old_lines(r, n), *heard(r, 4), old_lines(r, n), *out(r, n)],
    lambda r, n: [*validated(r, n), Wait(r.choice((3500.0, 3700.0))), *heard(r, 8)],
    lambda r, n: [Program(n), *relapse(r, n), *back(r, n, 8)],
    # People and other programs.
    lambda r, n: [*out(r, n), program(r, n), Validate(n, r.choice((None, 2, 4))), poll(r), *heard(r, 3)],
    lambda r, n: [*out(r, n), Validate(n), poll(r), CancelValidation(n), *heard(r, 2), *back(r, n)],
    lambda r, n: [*validated(r, n, (HANG,)), CancelValidation(n), poll(r), program(r, n), *heard(r, 6)],
    lambda r, n: [*validated(r, n, (HANG,)), release(r, n), *heard(r, 2), *validated(r, n)],
    lambda r, n: [*validated(r, n), Untaint(n), poll(r), *heard(r, 2), *out(r, n), *heard(r, 2)],
    lambda r, n: [
        *validated(r, n, (HANG,)),
        DeleteJobs(r.random() < 0.4),
        *heard(r, 3),
        Program(n),
        *heard(r, 12),
    ],
    lambda r, n: [*validated(r, n, (PASS, HANG)), Cordon(n), *heard(r, 3), Cordon(n, on=False), *heard(r, 4)],
    lambda r, n: [*validated(r, n), Pause(r.choice((None, 400.0))), *heard(r, 4), Resume(), *heard(r, 4)],
    lambda r, n: [*validated(r, n), Rehearse(), *heard(r, 5), Rehearse(on=False), *heard(r, 5)],
    lambda r, n: [Rehearse(), *validated(r, n), *heard(r, 4), Rehearse(on=False), *heard(r, 6)],
    lambda r, n: [
        Label(n, RECOVERABLE, "no"),
        *validated(r, n),
        *heard(r, 4),
        Label(n, RECOVERABLE, "yes"),
        poll(r),
    ],
    # Nodes, controllers and the API server.
    lambda r, n: [
        *validated(r, n, (HANG,)),
        DeleteNode(n),
        *heard(r, 2),
        Register(n, r.random() < 0.3),
        *heard(r),
    ],
    lambda r, n: [
        *validated(r, n, (HANG,)),
        Start(1),
        Kill(0),
        poll(r),
        *heard(r, 2),
        program(r, n),
        *heard(r, 4),
    ],
    lambda r, n: [Program(n), *out(r, n), trouble(r), *back(r, n), trouble(r), *heard(r, 8)],
    lambda r, n: [
        *validated(r, n, (HANG,)),
        trouble(r),
        *out(r, n + 1),
        trouble(r),
        program(r, n),
        *heard(r, 6),
    ],
    lambda r, n: [
        *validated(r, n),
        KubeTrouble("timeout after", "node"),
        *heard(r),
        strike(r),
        fault(r, n, FATAL),
        *heard(r),
    ],
)
