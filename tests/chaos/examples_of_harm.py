"""Plain cases of refused returns and records, lost logs and names, and wrong clocks: see ``examples``."""

from __future__ import annotations

from dataclasses import replace

from konductor_like.model import Control
from tests.chaos.examples import BACK, HEARD, OUT, ROUND, SLOW, case
from tests.chaos.harm import (
    Crowd,
    Foreign,
    ForgeLease,
    ForgeRecord,
    Nameless,
    Overwritten,
    RefuseRecord,
    RefuseReturns,
)
from tests.chaos.people import Reset
from tests.chaos.schedule import Schedule
from tests.chaos.setup import Setup
from tests.chaos.steps import Flood, Kill, Reboot, Replay, Step, Wait, Xid

_BOTH_OUT: tuple[Step, ...] = (Xid(0, 79), ROUND, Xid(1, 48), ROUND)
_BOTH_BACK: tuple[Step, ...] = (Reboot(0), Reboot(1), ROUND, *HEARD)
_TWO = Setup(plain=(False,) * 2)
_NEXT: tuple[Step, ...] = (Kill(0), ROUND)
"""Another controller, which reads the Lease."""

HARM_EXAMPLES: dict[str, Schedule] = {
    "a node without room for its record is tainted, and its record comes when there is room": case(
        (0, 1), Crowd(0), RefuseRecord(1), Xid(0, 79), Xid(1, 79), ROUND, setup=_TWO
    ),
    "a release of a node without room for its record holds after a restart": case(
        (1,),
        *(Crowd(0), RefuseRecord(1), Xid(0, 79), Xid(1, 79), ROUND, Wait(5.0), Reset(0), Reset(1)),
        *(Wait(100.0), ROUND, Kill(0), ROUND, Replay(0), Replay(1), ROUND, Xid(1, 48, 1), ROUND),
        setup=_TWO,
    ),
    "a kernel line without the node's name taints the node that has its boot": case(
        (0,), Nameless(0, 90.0), Xid(0, 79), ROUND, Wait(61.0), ROUND, setup=_TWO
    ),
    "a stamp ahead of the uptime hides no fault after the release": case(
        *((0,), Xid(0, 79), ROUND, Foreign(0, 3600.0, 48, 1), ROUND, Wait(5.0), Reset(0), ROUND),
        *(Wait(61.0), ROUND, Xid(0, 48, 1), ROUND),
    ),
    "a driver that names ever new GPUs does not fill the record": case((1,), Flood(0), Xid(1, 79), ROUND),
    "a return that is refused for good keeps no other node out": case(
        (0,),
        *(*_BOTH_OUT, RefuseReturns(0), *_BOTH_BACK, *HEARD),
        setup=replace(BACK, returns_per_hour=1),
    ),
    "a return that is refused for long is tried again every two minutes": case(
        (), *OUT, RefuseReturns(0, 30), Reboot(0), ROUND, *HEARD, *(Wait(120.0), ROUND) * 12, setup=BACK
    ),
    "a return that is refused for a while is made later": case(
        (), *_BOTH_OUT, RefuseReturns(0, 3), *_BOTH_BACK, *HEARD, setup=BACK
    ),
    "a node whose kernel log was overwritten before anybody read it stays tainted": case(
        (0,), *OUT, Reboot(0), Overwritten(0), ROUND, *HEARD, setup=BACK
    ),
    "a node whose kernel log was overwritten while no reader ran stays tainted": case(
        (0,), *OUT, Reboot(0), Wait(61.0), Overwritten(0, 400), ROUND, *_NEXT, *HEARD, setup=BACK
    ),
    "a reader that is replaced in a boot that was heard keeps no node out": case(
        (), *OUT, Reboot(0), ROUND, Wait(61.0), Overwritten(0), ROUND, *HEARD, *HEARD, setup=BACK
    ),
    "a record with quarantines years ahead holds back no other node": case(
        (0,),
        *(ForgeRecord(1), ROUND, Wait(5.0), Xid(0, 79), ROUND),
        setup=replace(SLOW, rate_nodes=1),
    ),
    "a record with releases years ahead covers no fault of the kernel log": case(
        (1,), ForgeRecord(1, "releases"), ROUND, Wait(5.0), Xid(1, 79), ROUND
    ),
    "a record that calls the node tainted years ahead covers no later fault": case(
        (1,), ForgeRecord(1, "tainted"), ROUND, Wait(5.0), Xid(1, 79), ROUND
    ),
    "a record with a probation for years keeps no fault away": case(
        (1,), ForgeRecord(1, "probation"), ROUND, Wait(5.0), Xid(1, 79), ROUND
    ),
    "records with returns and relapses years ahead keep no other node out": case(
        (),
        *(*OUT, ForgeRecord(1, "relapses"), ForgeRecord(2, "returns"), Reboot(0), *_NEXT, *HEARD, *HEARD),
        setup=replace(BACK, returns_per_hour=1),
    ),
    "deletions and a purge years ahead on the Lease hold no taint back": case(
        (1,),
        *(ForgeLease("deleted"), ForgeLease(Control.PURGE), *_NEXT, Wait(5.0), Xid(1, 79), ROUND),
        setup=replace(SLOW, rate_nodes=1),
    ),
    "a reset of the brake years ahead leaves the cool-down, which ends": case(
        (1,),
        *(Xid(0, 79), Xid(1, 79), ROUND, ForgeLease(Control.BRAKE_RESET), Reset(0), ROUND),
        *(Wait(400.0), ROUND),
        setup=SLOW,
    ),
    "taints years ahead on the Lease hold taints back no longer than the cool-down": case(
        (1,),
        *(ForgeLease("tainted"), *_NEXT, Xid(1, 79), ROUND, Wait(400.0), ROUND),
        setup=replace(SLOW, rate_nodes=1),
    ),
    "returns and a resume years ahead on the Lease keep no node out": case(
        (),
        *(ForgeLease("returned"), ForgeLease(Control.RESUME), *_NEXT, *OUT, Reboot(0), ROUND, *HEARD),
        setup=replace(BACK, returns_per_hour=1),
    ),
    "a return that a record dates a little ahead keeps others out for two hours at most": case(
        (),
        *(*OUT, ForgeRecord(1, "returns", 3000.0), Reboot(0), ROUND, *HEARD),
        *(*(Wait(550.0), ROUND) * 13, *HEARD),
        setup=replace(BACK, returns_per_hour=1),
    ),
}
