"""What the whole controller decides in plain cases, each with the nodes that are tainted when all was said.

Random schedules rarely bring together what these need, and their invariants know no policy.
"""

from __future__ import annotations

from dataclasses import replace

from tests.chaos import people as p
from tests.chaos import steps as s
from tests.chaos.schedule import Schedule
from tests.chaos.setup import Setup
from tests.chaos.steps import Step

BEAT = s.Beat(0)
FIVE = Setup(plain=(False,) * 5)
THIN = Setup(plain=(True,) * 12, overlap_seconds=2.0, lateness_seconds=2.0)
"""Nothing makes good for a cursor that ran ahead: no look back, no heartbeats whose gaps are read again."""
WIDE = Setup(plain=(True,), overlap_seconds=20.0, lateness_seconds=1500.0)
LATE = Setup(plain=(False,), lateness_seconds=1500.0)
RACK = Setup(plain=(False,) * 3, rack=True)
SLOW = Setup(plain=(False,) * 5, brake_percent=20.0, cooldown_seconds=300.0)
"""One node of the five may be out, and its place stays empty for five minutes."""


def _says(tainted: tuple[int, ...], *steps: Step, setup: Setup = FIVE) -> Schedule:
    return Schedule(1, setup, (BEAT, *steps, BEAT), tainted)


def _contained(times: int) -> tuple[Step, ...]:
    """Contained memory errors of one GPU, each a failure of its own."""
    return (s.Xid(0, 94), BEAT, s.Wait(130.0), BEAT) * times


def _page_faults(*jobs: tuple[int, ...]) -> tuple[Step, ...]:
    """Page faults of one GPU, each beside what the pods of these jobs say."""
    told: list[Step] = []
    for mine in jobs:
        told += [s.Xid(0, 31), *(s.PodLine(0, 0.0, job) for job in mine), BEAT, s.Wait(130.0), BEAT]
    return tuple(told)


_EVERYWHERE: tuple[Step, ...] = tuple(s.Xid(node, 79) for node in range(12))
_EXPLAINED: tuple[Step, ...] = tuple(
    step
    for job in (1, 2, 3)
    for step in (
        *(s.Xid(1, 79), s.PodLine(1, 0.0, job), s.Xid(0, 31), s.PodLine(0, 0.0, job)),
        *(BEAT, s.Wait(420.0), BEAT),
    )
)

EXAMPLES: dict[str, Schedule] = {
    # Nothing is lost
    "a fault whose write failed is found by the next process": _says(
        (),
        *(s.KubeTrouble("503", "node", 80), s.Xid(0, 79), BEAT, s.Wait(200.0), BEAT),
        *(s.Wait(110.0), s.Kill(0)),
        setup=THIN,
    ),
    "while writes are under way the cursor stays behind them": _says(
        tuple(range(12)),
        *(*_EVERYWHERE, s.Wait(300.0), s.KubeTrouble("timeout", "node", 11)),
        *(s.Kill(0, 11, True, True), BEAT, s.Wait(100.0)),
        setup=THIN,
    ),
    "a refused write is made again": _says((0,), s.KubeTrouble("409", "node"), s.Xid(0, 79), BEAT),
    "a line that comes later than any poll looks back is found": _says(
        (0,), s.Xid(0, 79, 0, 0.05), *(s.Wait(15.0), BEAT) * 20, setup=WIDE
    ),
    "a line that came late while nobody read is found": _says(
        (0,),
        *(s.Wait(310.0), BEAT, s.Xid(0, 79, 0, 0.5), *(s.Wait(100.0), BEAT) * 7, s.Kill(0), s.Wait(100.0)),
        setup=WIDE,
    ),
    "an answer that Loki cut hides nobody": _says(
        (0, 1, 2),
        *(s.Xid(0, 48, 0, times=40), s.Xid(1, 79), s.Xid(2, 79)),
        setup=Setup(plain=(False,) * 3, loki_limit=24, loki_cuts=True),
    ),
    # Others and the one writer
    "what others own of a node stays": _says((0,), p.OthersWrite(0, 1), s.Xid(0, 79)),
    "what others write in the midst of a write stays": _says(
        (0,), s.Xid(0, 79), s.Stop(0, 0, False, 1, True), BEAT, p.OthersWrite(0, 0), s.Wait(5.0)
    ),
    "a process that stood still does not write until it has renewed the Lease": _says(
        (0,), s.Xid(0, 79), s.Stop(0, 2, True, 3), BEAT, s.Wait(250.0), s.Wait(5.0), s.Wait(1.0), BEAT
    ),
    "a node that was let go is known to be back": _says(
        (0,), s.Xid(0, 79), BEAT, p.Reset(0), BEAT, s.Wait(5.0), s.Xid(0, 79)
    ),
    "what was taken off by hand stays off": _says(
        (), s.Xid(0, 79), BEAT, s.Wait(5.0), p.Untaint(0), s.Reboot(0), BEAT, s.Wait(700.0)
    ),
    # Again and again on one GPU
    "two failures of a GPU are not enough": _says((), *_contained(2)),
    "three failures of a GPU are enough, a restart between them or not": _says(
        (0,), *_contained(2), s.Kill(0), s.Wait(1300.0), BEAT, s.Xid(0, 94)
    ),
    "many lines of one failure are one": _says((), s.Xid(0, 94, 0, times=12)),
    "a reset ends the counting": _says((), *_contained(2), p.Reset(0), BEAT, *_contained(2)),
    "a reboot ends the counting": _says((), *_contained(2), s.Reboot(0), BEAT, *_contained(2)),
    "a line that comes later than those after it completes a threshold": _says(
        (0,),
        *(s.Wait(200.0), s.Xid(0, 94), BEAT, s.Wait(130.0), s.Xid(0, 94, 0, 0.5)),
        *(s.Wait(130.0), s.Xid(0, 94), BEAT, s.Wait(620.0)),
        setup=LATE,
    ),
    # Page faults, and whose they were
    "page faults of three jobs are the GPU's": _says((0,), *_page_faults((1,), (2,), (3,))),
    "page faults of one job are the job's": _says((), *_page_faults((1,), (1,), (1,))),
    "page faults that may be of any of three jobs are nobody's": _says((), *_page_faults(*[(1, 2, 3)] * 3)),
    "a page fault that may be of any job takes nothing from those that are of one": _says(
        (0,), *_page_faults((1, 2, 3), (1,), (2,), (3,))
    ),
    "page faults that failures of another node explain are that node's": _says((1,), *_EXPLAINED),
    "a job whose pod is heard late leaves it open whose a page fault was": _says(
        (),
        *(s.PodLine(0, 0.0, 3), s.Wait(130.0), BEAT, s.PodLine(0, 150.0, 1), s.Xid(0, 13)),
        *(s.PodLine(0, 0.0, 3), BEAT, s.Wait(400.0), s.PodLine(0, 0.0, 1), s.Xid(0, 13)),
        *(s.Wait(61.0), s.PodLine(0, 0.0, 2), s.Xid(0, 13)),
        setup=Setup(plain=(False,), overlap_seconds=20.0, lateness_seconds=200.0),
    ),
    # A pod's word of its GPU's memory
    "a pod's word of memory is not enough": _says((), s.PodLine(0, 0.0, 1, ecc=True)),
    "a pod's word of memory and the kernel's are": _says((0,), s.PodLine(0, 0.0, 1, ecc=True), s.Xid(0, 94)),
    "what any end of a job prints confirms no pod": _says((), s.PodLine(0, 0.0, 1, ecc=True), s.Xid(0, 43)),
    "a kernel's word twelve minutes later confirms no pod": _says(
        (), s.PodLine(0, 0.0, 1, ecc=True), BEAT, s.Wait(720.0), s.Xid(0, 94)
    ),
    "a kernel's word that is read long after a restart confirms a pod's": _says(
        (0,),
        *(s.Wait(400.0), BEAT, s.Wait(400.0), BEAT, s.PodLine(0, 0.0, 1, ecc=True), s.Xid(0, 94, 0, 0.9)),
        *(BEAT, s.Wait(200.0), s.Kill(0), BEAT, s.Wait(900.0), BEAT, s.Wait(650.0)),
        setup=LATE,
    ),
    # Many nodes at once
    "a link's failure is not acted upon before others may have been heard": _says(
        (), s.Xid(0, 149), setup=RACK
    ),
    "a link's failure waits by a clock that is put back, too": _says(
        (), s.Xid(0, 149), BEAT, s.SetClock(0, -600.0)
    ),
    "a link's failure that nothing explains taints": _says(
        (0,), s.Xid(0, 149), BEAT, s.Wait(6.0), setup=RACK
    ),
    "a link's failure right after a reset waits anew": _says(
        (),
        *(s.Xid(0, 149), BEAT, s.Wait(6.0), BEAT, p.Reset(0), BEAT, s.Wait(1.0), s.Xid(0, 149)),
        setup=RACK,
    ),
    "what the links of a rack print after a GPU's failure is collateral": _says(
        (0,),
        *(s.Wait(60.0), s.Xid(0, 79), s.Wait(1.0), s.Xid(1, 145), s.Xid(2, 149), BEAT, s.Wait(6.0)),
        setup=RACK,
    ),
    "two GPUs of a rack that fail at once have both failed": _says(
        (0, 1), s.Xid(0, 79), s.Xid(1, 79), BEAT, s.Wait(6.0), setup=RACK
    ),
    # The brake
    "one node a window": _says((0,), s.Xid(0, 79), s.Xid(1, 79), BEAT, setup=replace(FIVE, rate_nodes=1)),
    "the place of a released node stays empty for a while": _says(
        (), s.Xid(0, 79), s.Xid(1, 79), BEAT, p.Reset(0), BEAT, s.Wait(5.0), setup=SLOW
    ),
    "the place of a deleted node stays empty for a while": _says(
        (), s.Xid(0, 79), BEAT, s.DeleteNode(0), BEAT, s.Xid(1, 79), BEAT, setup=SLOW
    ),
    # What it costs
    "a count that grows is written once in ten minutes": _says(
        (0,), *(s.Xid(0, 95, 1), s.Wait(10.0), BEAT) * 40
    ),
}
