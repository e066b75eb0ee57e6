"""Plain cases of alerts of Prometheus, with the nodes that are suspect then: see ``examples``."""

from __future__ import annotations

from tests.chaos.alerts import LINK, PORT, REMAP, ExporterDown, Fires, Renamed, Unanswered
from tests.chaos.examples import HEARD, ROUND, case
from tests.chaos.people import Reset
from tests.chaos.schedule import Schedule
from tests.chaos.setup import Setup
from tests.chaos.steps import Kill, Ready, Reboot, Step, Wait

_FIVE = Setup(plain=(False,) * 5, suspect_days=7.0)
_AGAIN: tuple[Step, ...] = (Kill(0), ROUND)
_MINUTE: tuple[Step, ...] = (Wait(61.0), ROUND)
_HALF_AN_HOUR: tuple[Step, ...] = (Wait(280.0), ROUND) * 8
_HEARD: tuple[Step, ...] = HEARD * 9


def _case(suspect: tuple[int, ...], *steps: Step, setup: Setup = _FIVE) -> Schedule:
    return case((), *steps, setup=setup, suspect=suspect)


def _again(node: int, *between: Step) -> tuple[Step, ...]:
    """The alert is resolved, and fires once more after these steps."""
    return (Fires(node, REMAP, on=False), *_MINUTE, *between, Fires(node, REMAP), *_MINUTE)


ALERT_EXAMPLES: dict[str, Schedule] = {
    "alerts make suspects, count once, and taint nothing": _case(
        (0, 1, 2),
        *(Fires(0, REMAP), Fires(1, PORT), Fires(2, LINK), *_MINUTE, *_AGAIN, *_HALF_AN_HOUR),
        *_again(0),
    ),
    "an alert fires anew after half an hour of absence, and no earlier": _case(
        (0, 1),
        *(Fires(0, REMAP), Fires(1, REMAP), *_MINUTE, *_again(0, *_HALF_AN_HOUR), *_again(1)),
    ),
    "after a release the same firing says nothing": _case(
        (1,),
        *(Fires(0, REMAP), Fires(1, REMAP), *_MINUTE, Reset(0), Reset(1), *_MINUTE, *_AGAIN),
        *(*_HALF_AN_HOUR, *_again(0), *_again(1, *_HALF_AN_HOUR)),
    ),
    "an absence without the exporter, in a partial answer or without an answer is none": _case(
        (),
        *(Fires(0, REMAP), Fires(1, REMAP), Fires(2, REMAP), *_MINUTE, Reset(0), Reset(1), Reset(2)),
        *(ExporterDown(0), *_HALF_AN_HOUR, ExporterDown(0, on=False), Fires(0, REMAP), *_MINUTE),
        *_again(1, Unanswered("part"), *_HALF_AN_HOUR, Unanswered()),
        *_again(2, Unanswered("error"), *_HALF_AN_HOUR, Unanswered(), *_MINUTE),
    ),
    "a boot ends only a firing that is over": _case(
        (0,),
        *(Fires(0, REMAP), Fires(1, REMAP), *_MINUTE, Reboot(0), Reboot(1), Fires(1, REMAP, on=False)),
        *(Fires(0, REMAP, on=False), *_MINUTE, Fires(0, REMAP), *_HALF_AN_HOUR),
    ),
    "quiet ends only an alert that is absent for as long": _case(
        (1, 2),
        *(Fires(0, REMAP), Fires(1, REMAP), Fires(2, REMAP), *_MINUTE, Fires(0, REMAP, on=False)),
        *(ExporterDown(2), *_HEARD),
        setup=Setup(plain=(False,) * 5, suspect_days=0.02),
    ),
    "alerts of other names, and of nodes that are not ready, begin nothing": _case(
        (2,),
        Fires(0, REMAP),
        Renamed(0, REMAP),
        Ready(1, on=False),
        *(Fires(1, REMAP), *_MINUTE, Fires(1, REMAP, on=False), *_MINUTE),
        Ready(1),
        Fires(2, REMAP),
        *_MINUTE,
    ),
}
