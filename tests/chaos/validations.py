"""Steps about validations: their programs and Jobs, people's wishes, and rehearsals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from konductor_like.cli.nodes.validation import Cancellation, Wish
from konductor_like.cli.options import DryRun
from konductor_like.cluster.api.errors import KubeError
from konductor_like_sandbox.kubernetes.jobs import Ended, Started
from konductor_like_sandbox.kubernetes.store import Key
from tests.chaos.attempts import Ran
from tests.chaos.people import carry_out, client_of
from tests.chaos.setup import SPACE, settings_of
from tests.chaos.steps import node_of
from tests.validation_outputs import ATTEMPT, BOOT, FACTS, NCCL, dcgm_of, log_of, message_of

if TYPE_CHECKING:
    from tests.chaos.world import World

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
HANG, NO_IMAGE, DISPLACED = "hang", "no image", "displaced"
PROGRAMS = (PASS, FAIL, UNKNOWN, HANG, NO_IMAGE, DISPLACED)
"""What happens to the pods of a node's validations."""


@cache
def _output(kind: str, level: int, gpus: int) -> tuple[str, str]:
    """Return the log and the termination message of a program, with the attempt and the boot to be set."""
    dcgm = json.dumps(dcgm_of(4, level))
    if kind == UNKNOWN:
        dcgm = dcgm.replace('"Pass"', '"Skip"', 1)
    if kind == FAIL:
        gpus -= 1
    facts = FACTS
    for _ in range(8 - gpus):
        facts = re.sub(r"<gpu id=.*?</gpu>", "", facts, count=1, flags=re.DOTALL)
    facts = facts.replace(">8<", f">{gpus}<")
    steps = (("facts", 0, facts), ("dcgm", 0, dcgm), ("nccl", 0, NCCL))
    return log_of(*steps).decode(), message_of(*steps, gpus=gpus)


def _program(world: World, name: str, kind: str) -> Callable[[Started], Ended]:
    def run(started: Started) -> Ended:
        machine, attempt = world.machines[name], started.environment["KL_ATTEMPT"]
        output = _output(kind, int(started.environment["KL_LEVEL"]), machine.gpus)
        log, message = (each.replace(ATTEMPT, attempt).replace(BOOT, machine.boot_id) for each in output)
        found = machine.gpus - (kind == FAIL)
        ran = Ran(kind == PASS, machine.boot_id, found, world.clock.true_ns)
        world.ledger.attempts.ran[attempt] = ran
        return Ended(0, log.encode(), message)

    return run


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a node's validations ends like this from now on, or never."""

    node: int
    kind: str = PASS

    def take(self, world: World) -> None:
        name, jobs = node_of(world, self.node), world.kube.jobs
        for each in (jobs.programs, jobs.waits, jobs.refusals):
            each.pop(name, None)
        if self.kind == NO_IMAGE:
            jobs.waits[name] = ("ImagePullBackOff", "Back-off pulling image")
        elif self.kind == DISPLACED:
            jobs.refusals[name] = ("UnexpectedAdmissionError", "no healthy devices")
        elif self.kind != HANG:
            jobs.programs[name] = _program(world, name, self.kind)


@dataclass(frozen=True, slots=True)
class DeleteJobs:
    """Somebody deletes all Jobs of validations, or only their pods."""

    pods: bool = False

    def take(self, world: World) -> None:
        table = "pods" if self.pods else "jobs"
        for each in world.kube.objects(table, SPACE):
            world.kube._store.delete(table, Key(SPACE, each["metadata"]["name"]))
            world.ledger.happened[f"{table[:-1]} of a validation deleted by somebody"] += 1


@dataclass(frozen=True, slots=True)
class Validate:
    """``konductor-like validate NODE``, with ``--level``."""

    node: int
    level: int | None = None

    def take(self, world: World) -> None:
        try:
            work = Wish(client_of(world), world.settings, DryRun.NONE, reason="")
        except KubeError as error:
            world.log(f"   {error}")
            return
        work.level = self.level
        carry_out(world, work, node_of(world, self.node))
        world.ledger.happened["validation asked for by a person"] += work.done


@dataclass(frozen=True, slots=True)
class CancelValidation:
    """``konductor-like validate NODE --cancel``."""

    node: int

    def take(self, world: World) -> None:
        work = Cancellation(client_of(world), world.settings, DryRun.NONE, reason="")
        carry_out(world, work, node_of(world, self.node))
        world.ledger.happened["validation cancelled by a person"] += work.done


@dataclass(frozen=True, slots=True)
class Rehearse:
    """The controllers are restarted with another ``KONDUCTOR_RECOVERY``."""

    on: bool = True

    def take(self, world: World) -> None:
        if not world.setup.validated:
            return
        world.settings = settings_of(replace(world.setup, rehearses=self.on))
        for process in world.processes:
            if process is not None:
                world.kill(process)
