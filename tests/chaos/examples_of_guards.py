"""Plain cases of nodes that one guard keeps out of service: see ``examples``.

Each guard has a case here: a mutant in which the guard never holds must break it.
"""

from __future__ import annotations

from dataclasses import replace

from konductor_like.policy.recovery.guards import Guard
from tests.chaos.examples import BACK, GPUS, HEARD, OUT, ROUND, case
from tests.chaos.people import Claim, Cordon, Label, Reset, SpoilRecord, Strip
from tests.chaos.schedule import Schedule
from tests.chaos.setup import MANAGED, RECOVERABLE
from tests.chaos.steps import (
    Flap,
    ForgetHistory,
    Kill,
    KubeTrouble,
    Ready,
    Reboot,
    Silence,
    SlowWarmup,
    Step,
    Stop,
    Wait,
    Xid,
)
from tests.chaos.validations import FAIL, PASS, Program, Rehearse, Validate

ONE = replace(BACK, plain=(False,))
TESTED = replace(ONE, returns=False, validated=True)
"""Nodes return by themselves after a validation."""
_SELECTED = replace(TESTED, recovery_selector=f"{RECOVERABLE}=yes")
_BOOTED: tuple[Step, ...] = (*OUT, Reboot(0), ROUND)
"""A fault, and the boot that meets its need."""
_BACK_SOON: tuple[Step, ...] = (*_BOOTED, *HEARD[:6])
"""One more minute, and the node returns."""
_VALIDATED: tuple[Step, ...] = (Program(0, PASS), *_BOOTED, *HEARD, *HEARD[:6])
"""The GPUs have passed, and the node returns when the kernel log is read past the end of the test."""
_GPU_FLAPS: tuple[Step, ...] = (Flap(0), Wait(30.0), ROUND) * 8
_READY_FLAPS: tuple[Step, ...] = (Flap(0, gpus=False), Wait(30.0), ROUND) * 8
_REMOVED = (Strip(0), ROUND, Wait(400.0), ROUND)

GUARD_EXAMPLES: dict[str, Schedule] = {
    "a node that is opted out after its reboot stays tainted": case(
        (0,), *_BACK_SOON, Label(0), *HEARD, setup=ONE
    ),
    "a node that is no longer selected stays tainted": case(
        (0,), *_BACK_SOON, Label(0, MANAGED, None), *HEARD, setup=ONE
    ),
    "a node that another tool has claimed stays tainted": case(
        (0,), *_BACK_SOON, Claim(0), *HEARD, setup=ONE
    ),
    "a node that another tool has given back returns": case(
        (), *_BACK_SOON, Claim(0), *HEARD, Claim(0, on=False), ROUND, setup=ONE
    ),
    "a node that is not ready stays tainted": case((0,), *_BACK_SOON, Ready(0, on=False), *HEARD, setup=ONE),
    "a node whose GPUs come and go stays tainted": case((0,), *_BACK_SOON, *_GPU_FLAPS, setup=ONE),
    "a node whose readiness comes and goes stays tainted": case((0,), *_BACK_SOON, *_READY_FLAPS, setup=ONE),
    "a node whose GPUs come and go stays tainted after a validation, too": case(
        (0,), *_VALIDATED, *_GPU_FLAPS, setup=TESTED
    ),
    "a node that keeps its GPUs and its readiness returns, whatever it did before": case(
        (), *_BACK_SOON, *_GPU_FLAPS, *_READY_FLAPS, *HEARD, setup=ONE
    ),
    "a node whose GPUs come and go in service is suspect": case(
        (), *(Flap(0, seconds=40.0), Wait(20.0), ROUND, Wait(41.0), ROUND) * 5, setup=GPUS, suspect=(0,)
    ),
    "a flap that a new list of the Nodes hides keeps the node out": case(
        (0,), *_BACK_SOON, Flap(0, seconds=1.0), Wait(5.0), ForgetHistory(), Wait(56.0), ROUND, setup=ONE
    ),
    "a node whose record is damaged stays tainted": case(
        (0,), *_BACK_SOON, SpoilRecord(0), *HEARD, setup=ONE
    ),
    "a node whose taint a program removes is tainted again": case(
        (0,), Xid(0, 79), ROUND, *_REMOVED, ROUND, setup=ONE
    ),
    "a contested taint stays off": case(
        (), Xid(0, 79), ROUND, *_REMOVED * 4, ROUND, Wait(4000.0), ROUND, setup=ONE
    ),
    "a contested node that fails anew is tainted": case(
        (0,), Xid(0, 79), ROUND, *_REMOVED * 4, ROUND, Xid(0, 48), ROUND, setup=ONE
    ),
    "no node returns while the Lease cannot be read": case(
        (0,), *_BACK_SOON, KubeTrouble("503", "lease", 80), *HEARD[:2], setup=ONE
    ),
    "no node returns while the controller reads what was acted upon before": case(
        (0,), *_BOOTED, SlowWarmup(1000.0), Kill(0), ROUND, *HEARD, setup=ONE
    ),
    "a node whose kernel log has a gap stays tainted": case(
        (0,), *_BACK_SOON, Silence(0, 300.0, lost=True), *HEARD * 3, setup=replace(ONE, quiet_seconds=300.0)
    ),
    "a node whose kernel log is heard for a short time stays tainted": case(
        (0,), *_BOOTED, *HEARD, setup=replace(ONE, quiet_seconds=300.0)
    ),
    "no node returns while the rate limit holds another back": case(
        (0, 1),
        *(*_BACK_SOON, Xid(1, 79), ROUND, Xid(2, 79), ROUND, *HEARD[:2]),
        setup=replace(BACK, plain=(False,) * 3, rate_nodes=1),
    ),
    "a node that is marked for replacement stays tainted": case(
        (0,), *OUT, Reset(0), ROUND, Wait(5.0), *_BOOTED, *HEARD, setup=replace(ONE, repeat_count=2)
    ),
    "a node that is out for a test stays tainted": case(
        (0,), Xid(0, 14), ROUND, Reboot(0), ROUND, *HEARD, setup=replace(ONE, test_seconds=0.0)
    ),
    "a node that gets another board stays tainted": case(
        (0,), *OUT, Reboot(0, new_board=True), ROUND, *HEARD, setup=ONE
    ),
    "a node whose GPUs passed a validation returns": case((), *_VALIDATED, *HEARD, setup=TESTED),
    "a node stays tainted while its validation runs": case((0,), *_BOOTED, *HEARD * 2, setup=TESTED),
    "a node that failed a validation is not validated again by the controller itself": case(
        (0,), Program(0, FAIL), *_BOOTED, *HEARD * 2, Program(0, PASS), *HEARD * 3, setup=TESTED
    ),
    "a person may have a node validated again, and it returns after the pass": case(
        (),
        *(Program(0, FAIL), *_BOOTED, *HEARD * 2, Program(0, PASS), Validate(0), ROUND, *HEARD * 2),
        setup=TESTED,
    ),
    "a node that is not selected for recovery is not validated and stays tainted": case(
        (0,), Label(0, RECOVERABLE, None), *_VALIDATED, *HEARD, setup=_SELECTED
    ),
    "a node that passed a validation does not return in a rehearsal": case(
        (0,), *_VALIDATED, Rehearse(), *HEARD * 2, setup=TESTED
    ),
    "a node that is cordoned between the decision and the write stays tainted": case(
        (0,),
        *(*_BACK_SOON, Stop(0, 0, False, 2, True), Wait(61.0), ROUND, Cordon(0), Wait(1.0), ROUND),
        setup=ONE,
    ),
}

KEPT_BY: dict[Guard, str] = {
    Guard.RETURNS_OFF: "a node that booted stays tainted unless the settings say otherwise",
    Guard.OPTED_OUT: "a node that is opted out after its reboot stays tainted",
    Guard.NOT_SELECTED: "a node that is no longer selected stays tainted",
    Guard.PAUSED: "no node returns in a pause",
    Guard.LEASE_UNREAD: "no node returns while the Lease cannot be read",
    Guard.RECORD_UNREADABLE: "a node whose record is damaged stays tainted",
    Guard.PERSON: "a node that a person tainted stays tainted",
    Guard.RELAPSED: "a node that fails on probation does not return by itself again",
    Guard.REPLACE: "a node that is marked for replacement stays tainted",
    Guard.HOLD: "a node with a hold stays tainted until it ends",
    Guard.NO_FAULT: "a node that is out for a test stays tainted",
    Guard.NEEDS_MORE: "a node whose fault needs an inspection stays tainted",
    Guard.NOT_REBOOTED: "a node that did not boot stays tainted",
    Guard.NOT_VALIDATED: "a node that failed a validation is not validated again by the controller itself",
    Guard.CONTESTED: "a contested taint stays off",
    Guard.CORDONED: "a cordoned node stays tainted",
    Guard.CLAIMED: "a node that another tool has claimed stays tainted",
    Guard.NOT_READY: "a node that is not ready stays tainted",
    Guard.GPUS: "a node with fewer GPUs than before stays tainted",
    Guard.LINES_LOST: "a node whose kernel log was overwritten before anybody read it stays tainted",
    Guard.RETURNS_STOPPED: "after three relapses no node returns by itself",
    Guard.BRAKE: "no node returns while the rate limit holds another back",
    Guard.WRITE_FAILS: "a return that is refused for good keeps no other node out",
    Guard.REPLAYING: "no node returns while the controller reads what was acted upon before",
    Guard.SILENT: "a node whose kernel log is silent stays tainted",
    Guard.GAP: "a node whose kernel log has a gap stays tainted",
    Guard.TOO_YOUNG: "a node whose kernel log is heard for a short time stays tainted",
    Guard.UNSTEADY: "a node whose GPUs come and go stays tainted",
    Guard.NO_RECOVERY: "a node that is not selected for recovery is not validated and stays tainted",
    Guard.REHEARSED: "a node that passed a validation does not return in a rehearsal",
    Guard.VALIDATING: "a node stays tainted while its validation runs",
}
"""The case of each guard."""
BESIDE: dict[Guard, tuple[Guard, ...]] = {
    Guard.PERSON: (Guard.NEEDS_MORE, Guard.NOT_REBOOTED),
    Guard.REPLACE: (Guard.NEEDS_MORE, Guard.NOT_REBOOTED),
    Guard.NEEDS_MORE: (Guard.NOT_REBOOTED,),
}
"""The guards that hold wherever this one does, so that a mutant has to break them too: a reboot does not meet
what a person, an inspection or a replacement is needed for."""
GUARDED: dict[Guard, str] = {
    Guard.OTHER_MACHINE: "a decision adapts the record first, and the faults then need an inspection",
    Guard.RETURN_LIMIT: "no more nodes are chosen than the hour still allows",
}
"""The other mechanism that keeps the node out where the guard does not hold."""
OF_THE_COMMAND_LINE = (Guard.SETTINGS_UNKNOWN, Guard.NOT_RUNNING, Guard.NOT_PUBLISHED)
"""The guards that no controller has."""
