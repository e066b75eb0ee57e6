"""Plain cases of other programs' words, with the nodes that are suspect then: see ``examples``."""

from __future__ import annotations

from tests.chaos.examples import HEARD, ROUND, case
from tests.chaos.others import Doubles, Flaps, Renames, Says, Stalls, Vanishes
from tests.chaos.people import Reset
from tests.chaos.schedule import Schedule
from tests.chaos.setup import Setup
from tests.chaos.steps import DeleteNode, Gpus, Kill, Ready, Reboot, Register, Step, Wait

_COUNT, _PROBLEM, _XIDS = "condition.GPUMissing", "condition.GPUProblem", "condition.GpuXid"
_CENTRAL = "condition.SysLogsGPUFallenOff"
"""Its program does not run on the node: a boot changes nothing of what it says."""
_FIVE = Setup(plain=(False,) * 5, gpu_seconds=200.0, suspect_days=0.02)
"""A suspicion lasts for 29 minutes, and a word is out of date after 15."""
_AGAIN = (Kill(0), ROUND)
"""Another controller, which knows only what is written."""
_LATER = (Wait(600.0), ROUND)
"""Kubelets and programs have written their heartbeats since."""


def _said(suspect: tuple[int, ...], *steps: Step) -> Schedule:
    return case((), *steps, setup=_FIVE, suspect=suspect)


OTHERS_EXAMPLES: dict[str, Schedule] = {
    "words of other programs make suspects, count each change once, and taint nothing": _said(
        (0, 1, 2),
        *(Says(0, _COUNT), Says(1, _PROBLEM), Flaps(2, _PROBLEM, 6), *HEARD, *_AGAIN, *_LATER),
        *(
            Says(0, _COUNT),
            Says(1, _PROBLEM, bad=False),
            Flaps(2, _PROBLEM, 5, 100.0),
            *HEARD,
            *_AGAIN,
            *_LATER,
        ),
    ),
    "words that are said anew, or under another name, begin suspicions": _said(
        (0, 1, 2, 3),
        *(Says(0, _COUNT), Stalls(0, _COUNT), Says(1, _COUNT, ago=-500.0), Wait(1000.0), ROUND),
        *(Stalls(0, _COUNT, on=False), Says(2, _PROBLEM), Says(3, _COUNT), ROUND),
        *(Renames(2, _PROBLEM, _COUNT), DeleteNode(3), ROUND, Register(3, new_machine=True), *_LATER),
    ),
    "words that tell nothing of the present begin nothing": _said(
        (),
        *(Says(0, _COUNT, ago=-5000.0), Says(1, _COUNT, dated=False)),
        *(Says(2, _COUNT, bad=False), Doubles(2, _COUNT), Ready(3, on=False), Says(3, _COUNT)),
        *(Says(4, _COUNT), Stalls(4, _COUNT), Wait(1000.0), ROUND),
    ),
    "a word of an earlier boot begins nothing": _said(
        (),
        *(Ready(0, on=False), Says(0, _CENTRAL), Stalls(0, _CENTRAL), *_LATER),
        *(Reboot(0), Ready(0), ROUND),
    ),
    "a boot ends only a suspicion whose program says that it has changed": _said(
        (0, 1),
        *(Says(0, _CENTRAL), Says(1, _COUNT), Says(2, _COUNT), Says(3, _CENTRAL), ROUND, Reset(3)),
        *(ROUND, Vanishes(1, _COUNT), Wait(5.0), Reboot(0), Reboot(1), Reboot(2), Reboot(3), ROUND),
        *(*_LATER, *_AGAIN),
    ),
    "quiet ends only a suspicion whose program says for as long that it is healthy": _said(
        (1, 2),
        *(Says(0, _COUNT), Says(1, _COUNT), Says(2, _COUNT), ROUND, Vanishes(2, _COUNT)),
        *(Says(0, _COUNT, bad=False), Says(1, _COUNT, bad=False), Stalls(1, _COUNT), *HEARD * 8),
    ),
    "a program that counts too few GPUs and a Node that lacks some taint together": case(
        (0,), Gpus(0, 7), Says(0, _COUNT), *HEARD * 2, setup=_FIVE
    ),
    "neither a word of hours ago nor one about Xids is a second witness": _said(
        (0,), Says(0, _COUNT), ROUND, Wait(4000.0), ROUND, Says(0, _XIDS), Gpus(0, 7), *HEARD * 2
    ),
}
