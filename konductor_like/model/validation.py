"""Validations: tests of a node's GPUs by a Job of ours, and their verdicts (rule 36).

The record on the Node holds one validation: the wish, the attempt under way, or the last verdict. The wish,
and each attempt with its boot, are on the record before the Job exists. The decision alone writes them. The
worker beside it creates and deletes Jobs, and reports what it sees of them as :class:`ValidationJobs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from konductor_like.model.faults import NOWHERE, KernelPosition, Source
from konductor_like.model.gpus import Gpu
from konductor_like.model.time import unix_ns

LEVELS = (2, 3, 4)
"""The levels of ``dcgmi diag`` that a validation may have: minutes, half an hour, hours."""
DEADLINES_SECONDS = {2: 1800, 3: 3600, 4: 10_800}
"""By level, the seconds after which its Job is ended, from the Job's creation on: image pulls count."""
GPUS_KEPT = 16
"""GPUs of a validation that the record keeps, at most."""


class ValidationStage(StrEnum):
    """How far a validation is."""

    ASKED = "asked"
    """Somebody wishes it; it waits until it may begin."""
    RUNNING = "running"
    """An attempt is on the record; its Job exists, or is about to."""
    ENDED = "ended"
    """The last attempt has a verdict."""


class ValidationVerdict(StrEnum):
    """The result of one attempt."""

    PASS = "pass"  # noqa: S105  # a verdict, no password
    """Each test that was ordered passed on each GPU."""
    FAIL = "fail"
    """The hardware itself reports a fault, or the kernel did meanwhile."""
    UNKNOWN = "unknown"
    """Anything else: never a pass, and no reason for a taint."""


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What the output of one attempt says, read strictly."""

    verdict: ValidationVerdict
    why: str = ""
    """The reason of a failure, or why nothing is known; empty for a pass."""
    driver: str = ""
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Validation:
    """The validation of one node, as its record has it."""

    stage: ValidationStage
    level: int
    asked_at: datetime
    by: str
    """The person who asked for it, or the controller."""
    reason: str = ""
    """The person's reason; empty if nobody gave one."""
    waits: str = ""
    """Why it has not begun, or why its pod does not run yet."""
    tries: int = 0
    """Number of attempts of this wish, the present one included."""
    attempt: str = ""
    """The name of the latest attempt; its Job is ``validation-ATTEMPT``."""
    boot_id: str | None = None
    """The boot in which the attempt began."""
    began_at: datetime | None = None
    """When the attempt was written; its Job was created after that."""
    read: KernelPosition = NOWHERE
    read_ns: Mapping[Source, int] = field(default_factory=dict)
    """What had been read when the attempt began; a return after a pass covers no more (rule 4)."""
    expected_gpus: int = 0
    """Number of GPUs that must pass."""
    job_uid: str = ""
    """The UID of the attempt's Job, once the Job is known to exist: one that is gone is not created again."""
    ended_at: datetime | None = None
    read_end_ns: int = 0
    """Loki timestamp up to which the kernel log had been read when the verdict was known."""
    verdict: ValidationVerdict | None = None
    why: str = ""
    """The reason of a verdict that is no pass."""
    driver: str = ""
    gpus: tuple[Gpu, ...] = ()

    def began_before(self, last: KernelPosition, last_ns: int) -> bool:
        """Whether the line with this place in the kernel log and this time was read after the test began.

        The place decides, because clocks may be off; of a line without a place, the time decides.
        """
        if last.known and last.boot_id == self.boot_id:
            return not (self.read.boot_id == last.boot_id and last.at_or_before(self.read))
        return self.began_at is None or last_ns >= unix_ns(self.began_at)


@dataclass(frozen=True, slots=True)
class JobReport:
    """What the worker sees of the Job of one attempt."""

    job_uid: str
    """Empty if the Job could not be created."""
    why: str = ""
    """Why the Job's pod does not run yet, or why no Job can be created; empty if it runs or has ended."""
    gone: bool = False
    """Whether somebody deleted the Job."""
    refused: bool = False
    """Whether the API server refuses the Job for good, such as by Pod Security or a quota."""
    result: ValidationResult | None = None
    """The result, once the Job has ended."""


@dataclass(frozen=True, slots=True)
class ValidationJobs:
    """What the worker sees of all Jobs, and of the nodes that may be validated next."""

    reports: Mapping[str, JobReport] = field(default_factory=dict)
    """By attempt; an attempt that the worker has not looked at yet is absent."""
    users: Mapping[str, str] = field(default_factory=dict)
    """By node, the pods that use its GPUs, in words; empty for none. A node that was not looked at, or of
    which the answer is older than a minute, is absent."""
    problem: str = ""
    """Why the Jobs cannot be read or created; empty if they can."""
