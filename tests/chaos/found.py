"""Shortened schedules that once broke the program, kept as regression tests.

Each name is the promise that was broken.
"""

from __future__ import annotations

from tests.chaos.people import (
    DeleteLease,
    Pause,
    Reset,
    SpoilCursor,
    Untaint,
)
from tests.chaos.schedule import Schedule
from tests.chaos.setup import Setup
from tests.chaos.steps import (
    DeleteNode,
    Kill,
    KubeTrouble,
    PodLine,
    Reboot,
    Replay,
    Round,
    SetClock,
    Silence,
    Step,
    Stop,
    Terminate,
    Wait,
    Xid,
)
from tests.chaos.stories import CURSORS


def _kept(setup: Setup, *steps: Step) -> Schedule:
    return Schedule(1, setup, steps)


KMSG, PLAIN = Setup(plain=(False,)), Setup(plain=(True,))
"""A plain log has no heartbeats, so no gap of heartbeats makes the controller read it again."""

FOUND: dict[str, Schedule] = {
    "a count whose write went through unanswered is not added again": _kept(
        KMSG,
        *(Xid(0, 79, 1), Round(0), KubeTrouble("timeout after", "node"), Xid(0, 79, 1)),
        *(Round(0), Untaint(0), Round(0)),
    ),
    "the last of several pod lines does not count again after a restart": _kept(
        KMSG, Round(0), PodLine(0), PodLine(0), Round(0), Wait(700.0), Round(0), Kill(0), Round(0)
    ),
    "a release covers plain lines that were acted upon after the cursor was last saved": _kept(
        PLAIN,
        *(Xid(0, 95, 1), Round(0), Reboot(0, 30.0), Reset(0), Round(0), Wait(60.0), Round(0)),
        *(Kill(0), Round(0)),
    ),
    "a reset covers late lines of an incident that an earlier reset had closed": _kept(
        KMSG,
        *(Xid(0, 79, 0), Round(0), Reset(None), Wait(200.0)),
        *(KubeTrouble("timeout after", "node"), Xid(0, 79, 0, 0.5), Xid(0, 119, 0), Round(0)),
        *(Reset(0), Round(0)),
    ),
    "a controller's clock that is set back and forth loses no line": _kept(
        PLAIN,
        *(Round(0), SetClock(0, -600.0), Xid(0, 79, 0, 0.05), Round(0), SetClock(0, 0.0)),
        *(Round(0), Wait(700.0)),
    ),
    "a cursor from the future loses no line that arrived while no controller ran": _kept(
        PLAIN, Round(0), SpoilCursor(CURSORS[3]), Kill(0), Xid(0, 119, 1), Wait(320.0), Round(0)
    ),
    "a checkpoint without cursors loses no line that arrived while no controller ran": _kept(
        PLAIN, Round(0), SpoilCursor(CURSORS[2]), Kill(0), Xid(0, 74, 0), Wait(320.0), Round(0)
    ),
    "a taint write in flight does not hide that the earlier taint was removed by hand": _kept(
        Setup(plain=(False,), overlap_seconds=2.0, lateness_seconds=2.0),
        *(Xid(0, 119, 0), Xid(0, 95, 1, 2.0), Round(0), Untaint(0), KubeTrouble("503", "node", 80)),
        *(Reboot(0, 30.0), Round(0), Round(0)),
    ),
    "a removal by hand covers no fault that waits for its write": _kept(
        Setup(plain=(False, False), brake_percent=50.0),
        *(Xid(0, 48, 0), Round(0), Xid(1, 119, 1), Round(0), KubeTrouble("503", "node", 80)),
        *(Reboot(0, 0.0), Untaint(0), Round(0), Xid(0, 48, 0)),
    ),
    "a taint decided before a reboot does not reach the node after it": _kept(
        KMSG,
        *(Round(0), Xid(0, 95, 0), Stop(0, 0, False, 2, True), Round(0)),
        *(Reboot(0, 0.0), Wait(30.0), Round(0)),
    ),
    "a controller still knows after its restart that a node rebooted": _kept(
        Setup(plain=(True,), brake_percent=20.0, loki_limit=24, loki_cuts=True, rate_nodes=2),
        *(Xid(0, 94, 0), Xid(0, 79, 1), Replay(0), Round(0), Reboot(0, 40.0), Wait(60.0)),
        *(Kill(0, 0, True, True), Round(0), Round(0), Untaint(0), Wait(10.0), Xid(0, 119, 0)),
    ),
    "a controller that starts with a clock ahead misses no line": _kept(
        KMSG,
        *(Round(0), SetClock(0, 120.0), Terminate(0), Xid(0, 119, 0, 0.05), Round(0)),
        Wait(700.0),
    ),
    "a node that was deleted while tainted is tainted again, even if it rebooted before": _kept(
        KMSG,
        *(Xid(0, 95, 0), Round(0), Round(0), Reboot(0, 0.0), Round(0), DeleteNode(0)),
    ),
    "a pause that was restored with the Lease works until it is ended": _kept(
        KMSG,
        *(Round(0), Xid(0, 119, 0), Pause(), Round(0), DeleteLease()),
    ),
    "a reset with a cursor from the future covers no later fault": _kept(
        Setup(plain=(False,), overlap_seconds=2.0, lateness_seconds=2.0),
        *(
            PodLine(0),
            Round(0),
            SpoilCursor(CURSORS[3]),
            Reset(0),
            Wait(1500.0),
            Xid(0, 48, 0, 0.5),
        ),
    ),
    "a fault deferred by a clock that is a little ahead taints after a restart as well": _kept(
        Setup(plain=(False, True), loki_cuts=True, rack=True),
        *(KubeTrouble("reset after", "node"), Xid(0, 149), Round(0), Kill(0, 7, True)),
        *(Xid(1, 149), Round(0), Round(0)),
    ),
    "a silence that began before a controller ended and outlasted its absence keeps the node out": _kept(
        Setup(
            plain=(False, False, False),
            brake_percent=100.0,
            overlap_seconds=2.0,
            lateness_seconds=2.0,
            returns=True,
            quiet_seconds=60.0,
            probation_seconds=300.0,
            repeat_count=0,
            test_seconds=200.0,
        ),
        *(Xid(2, 95, 0), Round(0), Reboot(2, 30.0), Wait(61.0), Silence(2, 500.0, True), Wait(61.0)),
        *(Xid(1, 79, 1), Wait(61.0), Kill(0, 1, True, True), Wait(122.0), Round(0), Wait(61.0)),
    ),
}
