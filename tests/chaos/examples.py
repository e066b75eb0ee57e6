"""Plain cases for the whole controller, each with the nodes that are tainted after its last step.

Random schedules rarely combine these steps, and their invariants do not check the policy.
"""

from __future__ import annotations

from dataclasses import replace

from tests.chaos.people import Cordon, OthersWrite, Pause, Reset, Resume, Taint, Untaint
from tests.chaos.schedule import Schedule
from tests.chaos.setup import Setup
from tests.chaos.steps import (
    DeleteNode,
    Gpus,
    Kill,
    KubeTrouble,
    PodLine,
    Reboot,
    Replay,
    Round,
    SetClock,
    SetNodeClock,
    Silence,
    Step,
    Stop,
    Wait,
    Xid,
)

ROUND = Round(0)
FIVE = Setup(plain=(False,) * 5)
SHORT = Setup(plain=(True,) * 12, overlap_seconds=2.0, lateness_seconds=2.0)
"""With short overlap and no heartbeats, lines behind a cursor that is too far ahead are never read again."""
WIDE = Setup(plain=(True,), overlap_seconds=20.0, lateness_seconds=1500.0)
LATE = Setup(plain=(False,), lateness_seconds=1500.0)
RACK = Setup(plain=(False,) * 3, rack=True)
BACK = Setup(
    plain=(False,) * 4,
    returns=True,
    quiet_seconds=60.0,
    probation_seconds=86_400.0,
    hold_seconds=0.0,
    repeat_count=0,
)
"""Nodes return by themselves after a reboot, and neither holds nor marks for replacement delay that."""
TESTS = Setup(plain=(False,), test_seconds=200.0)
GPUS = Setup(plain=(False, False), gpu_seconds=200.0, suspect_days=0.01)
SLOW = Setup(plain=(False,) * 5, brake_percent=20.0, cooldown_seconds=300.0)
"""The brake allows one tainted node of five, and cools down for five minutes after its release."""


def case(
    tainted: tuple[int, ...], *steps: Step, setup: Setup = FIVE, suspect: tuple[int, ...] | None = None
) -> Schedule:
    return Schedule(1, setup, (ROUND, *steps, ROUND), tainted, suspect)


def _contained(times: int) -> tuple[Step, ...]:
    """Contained memory errors of one GPU, each a failure of its own."""
    return (Xid(0, 94), ROUND, Wait(130.0), ROUND) * times


HEARD = (Wait(61.0), ROUND) * 4
OUT: tuple[Step, ...] = (Xid(0, 79), ROUND)
_OUT_AND_BACK: tuple[Step, ...] = (*OUT, Reboot(0), ROUND, *HEARD)
_OUT_AND_BACK_AGAIN: tuple[Step, ...] = (Xid(0, 48, 1), ROUND, Reboot(0), ROUND, *HEARD)
"""Another fault: one that comes back after a reboot needs an inspection."""
_RELAPSES: tuple[Step, ...] = tuple(
    step
    for node, times in ((0, 2), (1, 2), (2, 2), (3, 1))
    for step in (Xid(node, 79), ROUND, Reboot(node), ROUND, *HEARD) * times
)
"""Three nodes return and fail again, and then a fourth would return."""
_ALL_NODES: tuple[Step, ...] = tuple(Xid(node, 79) for node in range(12))
_EXPLAINED: tuple[Step, ...] = tuple(
    step
    for job in (1, 2, 3)
    for step in (
        *(Xid(1, 79), PodLine(1, 0.0, job), Xid(0, 31), PodLine(0, 0.0, job)),
        *(ROUND, Wait(420.0), ROUND),
    )
)

EXAMPLES: dict[str, Schedule] = {
    # Nothing is lost
    "a fault whose write failed is found by the next process": case(
        (),
        *(KubeTrouble("503", "node", 80), Xid(0, 79), ROUND, Wait(200.0), ROUND),
        *(Wait(110.0), Kill(0)),
        setup=SHORT,
    ),
    "while writes are under way the cursor stays behind them": case(
        tuple(range(12)),
        *(*_ALL_NODES, Wait(300.0), KubeTrouble("timeout", "node", 11)),
        *(Kill(0, 11, True, True), ROUND, Wait(100.0)),
        setup=SHORT,
    ),
    "a refused write is made again": case((0,), KubeTrouble("409", "node"), Xid(0, 79), ROUND),
    "a line that comes later than any poll looks back is found": case(
        (0,), Xid(0, 79, 0, 0.05), *(Wait(15.0), ROUND) * 20, setup=WIDE
    ),
    "a line that came late while nobody read is found": case(
        (0,),
        *(Wait(310.0), ROUND, Xid(0, 79, 0, 0.5), *(Wait(100.0), ROUND) * 7, Kill(0), Wait(100.0)),
        setup=WIDE,
    ),
    "an answer that Loki cut hides no node": case(
        (0, 1, 2),
        *(Xid(0, 48, 0, times=40), Xid(1, 79), Xid(2, 79)),
        setup=Setup(plain=(False,) * 3, loki_limit=24, loki_cuts=True),
    ),
    # Other writers and the Lease
    "fields that others own on a Node are kept": case((0,), OthersWrite(0, 1), Xid(0, 79)),
    "a change that others make during a write is kept": case(
        (0,), Xid(0, 79), Stop(0, 0, False, 1, True), ROUND, OthersWrite(0, 0), Wait(5.0)
    ),
    "a process that stood still does not write until it has renewed the Lease": case(
        (0,), Xid(0, 79), Stop(0, 2, True, 3), ROUND, Wait(250.0), Wait(5.0), Wait(1.0), ROUND
    ),
    "a node that was released is tainted by its next fault": case(
        (0,), Xid(0, 79), ROUND, Reset(0), ROUND, Wait(5.0), Xid(0, 79)
    ),
    "a taint that was removed by hand is not set again": case(
        (), Xid(0, 79), ROUND, Wait(5.0), Untaint(0), Reboot(0), ROUND, Wait(700.0)
    ),
    "a fault after a reset taints although the clock of its node is behind": case(
        (0,),
        *(SetNodeClock(0, -300.0), Xid(0, 79), *(Wait(330.0), ROUND) * 2, Reset(0), ROUND, Wait(5.0)),
        *(Xid(0, 79), *(Wait(330.0), ROUND) * 2),
        setup=LATE,
    ),
    # Evidence from before a restart, or that is read late
    "three failures of a GPU taint, even with a restart between them": case(
        (0,), *_contained(2), Kill(0), Wait(1300.0), ROUND, Xid(0, 94)
    ),
    "a line that arrives after later lines completes a threshold": case(
        (0,),
        *(Wait(200.0), Xid(0, 94), ROUND, Wait(130.0), Xid(0, 94, 0, 0.5)),
        *(Wait(130.0), Xid(0, 94), ROUND, Wait(620.0)),
        setup=LATE,
    ),
    "a page fault of a job whose pod line comes late does not count": case(
        (),
        *(PodLine(0, 0.0, 3), Wait(130.0), ROUND, PodLine(0, 150.0, 1), Xid(0, 13)),
        *(PodLine(0, 0.0, 3), ROUND, Wait(400.0), PodLine(0, 0.0, 1), Xid(0, 13)),
        *(Wait(61.0), PodLine(0, 0.0, 2), Xid(0, 13)),
        setup=Setup(plain=(False,), overlap_seconds=20.0, lateness_seconds=200.0),
    ),
    "a kernel line that is read long after a restart confirms a memory error": case(
        (0,),
        *(Wait(400.0), ROUND, Wait(400.0), ROUND, PodLine(0, 0.0, 1, ecc=True), Xid(0, 94, 0, 0.9)),
        *(ROUND, Wait(200.0), Kill(0), ROUND, Wait(900.0), ROUND, Wait(650.0)),
        setup=LATE,
    ),
    # Many nodes at once
    "a link failure is deferred until lines of other nodes may have arrived": case(
        (), Xid(0, 149), setup=RACK
    ),
    "a link failure is deferred even if the controller's clock is set back": case(
        (), Xid(0, 149), ROUND, SetClock(0, -600.0)
    ),
    "a link failure that nothing explains taints": case((0,), Xid(0, 149), ROUND, Wait(6.0), setup=RACK),
    "link failures of a rack after a GPU's failure are collateral": case(
        (0,),
        *(Wait(60.0), Xid(0, 79), Wait(1.0), Xid(1, 145), Xid(2, 149), ROUND, Wait(6.0)),
        setup=RACK,
    ),
    "page faults that failures of another node explain taint only that node": case((1,), *_EXPLAINED),
    "two GPUs of a rack that fail one after the other both taint": case(
        (0, 1), Wait(60.0), Xid(0, 79), Wait(1.0), Xid(1, 48), ROUND, Wait(6.0), setup=RACK
    ),
    # The brake
    "the rate limit allows one node in its window": case(
        (0,), Xid(0, 79), Xid(1, 79), ROUND, setup=replace(FIVE, rate_nodes=1)
    ),
    "the brake counts a released node until the cool-down ends": case(
        (), Xid(0, 79), Xid(1, 79), ROUND, Reset(0), ROUND, Wait(5.0), setup=SLOW
    ),
    "the brake counts a deleted node until the cool-down ends": case(
        (), Xid(0, 79), ROUND, DeleteNode(0), ROUND, Xid(1, 79), ROUND, setup=SLOW
    ),
    # The way back
    "a node that booted and is heard returns by itself": case((), *_OUT_AND_BACK, setup=BACK),
    "a node that booted stays tainted unless the settings say otherwise": case(
        (0,), *_OUT_AND_BACK, setup=replace(BACK, returns=False)
    ),
    "a node that did not boot stays tainted": case((0,), *OUT, *HEARD, setup=BACK),
    "a node whose fault needs an inspection stays tainted": case(
        (0,), Xid(0, 54), ROUND, Reboot(0), *HEARD, setup=BACK
    ),
    "a node whose kernel log is silent stays tainted": case(
        (0,), *OUT, Silence(0, 3600.0, lost=True), Reboot(0), *HEARD, setup=BACK
    ),
    "a node with a hold stays tainted until it ends": case(
        (0,), *OUT, Reset(0), ROUND, Wait(5.0), *_OUT_AND_BACK, setup=replace(BACK, hold_seconds=1800.0)
    ),
    "a node returns when its hold has ended": case(
        (),
        *(*OUT, Reset(0), ROUND, Wait(5.0), *_OUT_AND_BACK, Wait(300.0), *HEARD),
        setup=replace(BACK, hold_seconds=300.0),
    ),
    "a node that a person tainted stays tainted": case((0,), *OUT, Taint(0), Reboot(0), *HEARD, setup=BACK),
    "a cordoned node stays tainted": case((0,), *OUT, Cordon(0), Reboot(0), *HEARD, setup=BACK),
    "a node with fewer GPUs than before stays tainted": case(
        (0,), *OUT, Gpus(0, 7), Reboot(0), *HEARD, setup=BACK
    ),
    "no node returns in a pause": case((0,), *OUT, Pause(), Reboot(0), *HEARD, setup=BACK),
    "a node that fails on probation does not return by itself again": case(
        (0,), *_OUT_AND_BACK, *_OUT_AND_BACK_AGAIN, setup=BACK
    ),
    "a node that fails after its probation returns by itself again": case(
        (),
        *(*_OUT_AND_BACK, Wait(400.0), ROUND, *_OUT_AND_BACK_AGAIN),
        setup=replace(BACK, probation_seconds=300.0),
    ),
    "a fault of the new boot whose line comes after the return taints": case(
        (0,),
        *(*OUT, Reboot(0), Xid(0, 79, 1, 0.5), Xid(0, 31), ROUND, *HEARD, Wait(600.0), ROUND),
        setup=replace(BACK, lateness_seconds=1500.0),
    ),
    "a line of the old boot that comes after the return does not taint": case(
        (),
        *(*OUT, Xid(0, 79, 1, 0.5), Reboot(0), ROUND, *HEARD, Wait(600.0), ROUND),
        setup=replace(BACK, lateness_seconds=1500.0),
    ),
    "a return whose answer is lost is made once": case(
        (), *OUT, Reboot(0), ROUND, Wait(61.0), KubeTrouble("reset after", "node"), *HEARD, setup=BACK
    ),
    "a return whose controller is killed at the write is made by the next": case(
        (), *OUT, Reboot(0), ROUND, Wait(61.0), Kill(0, 0, False, True), *HEARD, *HEARD, setup=BACK
    ),
    "two nodes return in an hour if two may": case(
        (2,),
        *(step for node in range(3) for step in (Xid(node, 79), ROUND, Reboot(node), *HEARD)),
        setup=replace(BACK, returns_per_hour=2),
    ),
    "after three relapses no node returns by itself": case((0, 1, 2, 3), *_RELAPSES, setup=BACK),
    "a resume before the stop forgets no relapse": case(
        (0, 1, 2, 3), *_RELAPSES[:22], Resume(), *_RELAPSES[22:], setup=BACK
    ),
    "a person who resumes lets nodes return by themselves again": case(
        (0, 1, 2), *_RELAPSES, Resume(), *HEARD, setup=BACK
    ),
    "a node whose fault came back after a reboot stays tainted": case(
        (0,),
        *(*_OUT_AND_BACK, Wait(400.0), ROUND, *_OUT_AND_BACK),
        setup=replace(BACK, probation_seconds=300.0),
    ),
    "a test ends by itself": case((), Xid(0, 14), ROUND, Wait(250.0), ROUND, setup=TESTS),
    "a test does not end beside a fault": case(
        (0,), Xid(0, 14), Xid(0, 79), ROUND, Wait(250.0), ROUND, setup=TESTS
    ),
    "a replay of a test that has ended does not taint": case(
        (), Xid(0, 14), ROUND, Wait(250.0), ROUND, Replay(0), ROUND, setup=TESTS
    ),
    # GPUs that are missing
    "the time of missing GPUs begins again after a reboot": case(
        (), *HEARD[:2], Gpus(0, 7), ROUND, *HEARD[:4], Reboot(0), ROUND, *HEARD[:4], setup=GPUS, suspect=()
    ),
    "missing GPUs do not end by quiet": case(
        (), *HEARD[:2], Gpus(0, 7), ROUND, *HEARD, *(Wait(300.0), ROUND) * 4, setup=GPUS, suspect=(0,)
    ),
    "GPUs that many nodes lost earlier do not excuse a node that loses some now": case(
        (),
        *(*HEARD[:2], Gpus(0, 7), Gpus(1, 7), ROUND, *HEARD, *HEARD, Gpus(2, 7), ROUND, *HEARD),
        setup=replace(GPUS, plain=(False,) * 3),
        suspect=(2,),
    ),
}
