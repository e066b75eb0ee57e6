"""Plain cases of nodes that one guard alone keeps out of service: see ``examples``."""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.examples import BACK, HEARD, OUT, ROUND, case
from tests.chaos.people import Claim, Cordon, Label, SpoilRecord, Untaint
from tests.chaos.schedule import Schedule
from tests.chaos.setup import MANAGED
from tests.chaos.steps import (
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

ONE = replace(BACK, plain=(False,))
_BOOTED: tuple[Step, ...] = (*OUT, Reboot(0), ROUND)
"""A fault, and the boot that meets its need."""
_BACK_SOON: tuple[Step, ...] = (*_BOOTED, *HEARD[:6])
"""One more minute, and the node returns."""
_REMOVED: tuple[Step, ...] = (Untaint(0), ROUND, Wait(61.0))

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
    "a node whose record is damaged stays tainted": case(
        (0,), *_BACK_SOON, SpoilRecord(0), *HEARD, setup=ONE
    ),
    "a node whose taint is contested stays tainted": case(
        (0,),
        *(step for code in (79, 48, 95) for step in (Xid(0, code), ROUND, *_REMOVED)),
        *(Xid(0, 119), ROUND, Reboot(0), ROUND, *HEARD),
        setup=ONE,
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
    "a node that gets another board stays tainted": case(
        (0,), *OUT, Reboot(0, new_board=True), ROUND, *HEARD, setup=ONE
    ),
    "a node that is cordoned between the decision and the write stays tainted": case(
        (0,),
        *(*_BACK_SOON, Stop(0, 0, False, 2, True), Wait(61.0), ROUND, Cordon(0), Wait(1.0), ROUND),
        setup=ONE,
    ),
}
