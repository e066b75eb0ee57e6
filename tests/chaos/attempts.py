"""The invariants of validations: which attempts run, which Jobs exist for them, and what a pass is worth.

The world's own list says which program ran for an attempt, in which boot and over how many GPUs. A pass on a
record counts for nothing here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from konductor_like.model import IncidentState, NodeState, Severity, Source, ValidationStage
from konductor_like_sandbox.http import Reply, Request
from tests.chaos.evidence import read_by, recorded_in
from tests.chaos.machines import seconds
from tests.chaos.setup import SPACE

if TYPE_CHECKING:
    from tests.chaos.process import Process
    from tests.chaos.world import World

MOST = 2
"""Attempts that run at a time, at most; in one NVLink domain one."""
BEHIND_NS = seconds(600)
"""Nanoseconds for which a controller may not know yet that an attempt has ended."""
_ATTEMPT, _NODE = "trainy.konduktor.ai/attempt", "trainy.konduktor.ai/node"


@dataclass(frozen=True, slots=True)
class Ran:
    """The program of an attempt, which ran to its end."""

    passed: bool
    boot_id: str
    gpus: int
    at_ns: int


class Attempts:
    """Checks every attempt and every Job."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ran: dict[str, Ran] = {}
        """By attempt, its program if that ran to its end."""
        self._began_ns: dict[str, int] = {}
        """When each attempt was written."""
        self._over_ns: dict[str, int] = {}
        """When an attempt ended or was cancelled."""
        self._with_job: set[str] = set()
        """Attempts of which a record has the UID of the Job."""
        self._jobs: Counter[str] = Counter()
        """Number of Jobs that were created, by attempt."""

    def ended_ns(self, attempt: str) -> int:
        """Return when the program of an attempt ended."""
        return self.ran[attempt].at_ns if attempt in self.ran else 0

    # What is checked while a schedule runs

    def written(self, process: Process | None, old: NodeState, new: NodeState) -> None:
        """Check a write of a record, and note what became of its attempt."""
        before, after, ledger = old.record.validation, new.record.validation, self._world.ledger
        if before == after:
            return
        if before is not None and before.stage is ValidationStage.RUNNING:
            is_same = after is not None and after.attempt == before.attempt
            if not (is_same and after is not None and after.stage is ValidationStage.RUNNING):
                self._over_ns[before.attempt] = self._world.clock.true_ns
        if after is None:
            return
        if after.stage is ValidationStage.RUNNING:
            self._with_job |= {after.attempt} if after.job_uid else set()
            if after.attempt not in self._began_ns:
                self._begins(process, after.attempt, new.name)
        told = (before.verdict, before.ended_at) if before is not None else (None, None)
        if after.verdict is not None and told != (after.verdict, after.ended_at):
            ledger.happened[f"validation: {after.verdict}"] += 1

    def _begins(self, process: Process | None, attempt: str, name: str) -> None:
        world, ledger = self._world, self._world.ledger
        self._began_ns[attempt] = world.clock.true_ns
        ledger.happened["validation begins"] += 1
        if process is None:
            ledger.break_(f"a person's command begins a validation of {name}")
        if world.settings.recovery == "rehearse":
            ledger.break_(f"a rehearsal begins a validation of {name}")
        running = {each for each, state in self._states() if _runs(state)} | {name}
        most = 1 if world.setup.rack else MOST
        if len(running) > most:
            ledger.break_(f"validations run on {sorted(running)}, and {most} may at a time")

    def asked(self, process: Process, request: Request) -> None:
        """Check a request of a controller before it is sent."""
        ledger = self._world.ledger
        if not (request.path.endswith("/jobs") or f"/namespaces/{SPACE}" in request.path):
            return
        if not self._world.settings.validation_image:
            ledger.break_(f"{process.name} asks for {request.path} without an image")
        if request.method != "POST":
            return
        attempt = _attempt_of(request)
        if attempt not in self._began_ns:
            ledger.break_(f"{process.name} creates a Job for {attempt}, which no record has")
        over_ns = self._over_ns.get(attempt)
        if over_ns is not None and over_ns < self._world.clock.true_ns - BEHIND_NS:
            ledger.break_(f"{process.name} creates a Job for {attempt}, which has ended")

    def created(self, request: Request, reply: Reply, *, late: bool) -> None:
        """Check that a Job is the first of its attempt, unless nobody knew of the first."""
        attempt = _attempt_of(request)
        if reply.status != 201:
            return
        self._jobs[attempt] += 1
        if self._jobs[attempt] > 1 and attempt in self._with_job and not late:
            self._world.ledger.break_(f"another Job is created for {attempt}")

    def against(self, old: NodeState) -> Iterator[str]:
        """Describe each condition of a return after a validation that does not hold."""
        world, validation = self._world, old.record.validation
        if world.settings.recovery == "rehearse":
            yield "this is a rehearsal"
        if not old.recovery_selected:
            yield "it is not selected for recovery"
        ran = self.ran.get(validation.attempt) if validation else None
        if validation is None or ran is None or not ran.passed:
            yield "no test of it passed"
            return
        if ran.boot_id != old.machine.boot_id:
            yield "its test was in another boot"
        if ran.gpus < (old.record.gpus or 0):
            yield f"{ran.gpus} of {old.record.gpus} GPUs were tested"
        began_ns = self._began_ns.get(validation.attempt, 0)
        known = [i for i in old.record.incidents if i.state is not IncidentState.RELEASED]
        for o in world.ledger.of(old.name):
            is_later = o.happened_ns > began_ns and o.machine is world.machines[old.name]
            is_known = recorded_in(o, known) or read_by(o, old.record.read)
            counts = o.source is Source.KERNEL and o.finding.severity is not Severity.INFO
            if is_later and is_known and counts:
                yield f"{o} happened after its test began"

    # What is checked at the end

    def left_over(self) -> Iterator[str]:
        """Describe each Job that no record asks for, long after everything could have been seen."""
        states = dict(self._states())
        for job in self._world.kube.objects("jobs"):
            meta = job["metadata"]
            name, attempt = meta["annotations"].get(_NODE, ""), meta["labels"].get(_ATTEMPT, "")
            validation = states[name].record.validation if name in states else None
            if not (name in states and _runs(states[name]) and validation and validation.attempt == attempt):
                yield f"the Job {meta['name']} is left over"

    # Helpers

    def _states(self) -> Iterator[tuple[str, NodeState]]:
        for name in self._world.names:
            if (stored := self._world.nodes.stored(name)) is not None:
                yield name, self._world.known(stored)


def _runs(state: NodeState) -> bool:
    """Whether an attempt runs on the node; one on a node without our taint has ended."""
    validation = state.record.validation
    return state.tainted and validation is not None and validation.stage is ValidationStage.RUNNING


def _attempt_of(request: Request) -> str:
    return str(json.loads(request.body)["metadata"]["labels"][_ATTEMPT])
