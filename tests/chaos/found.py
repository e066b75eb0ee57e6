"""What schedules have found, made short and kept: each is a sentence that was not true once."""

from __future__ import annotations

from tests.chaos import people as p
from tests.chaos import steps as s
from tests.chaos.schedule import Schedule
from tests.chaos.setup import Setup
from tests.chaos.steps import Step
from tests.chaos.stories import CURSORS


def _kept(setup: Setup, *steps: Step) -> Schedule:
    return Schedule(1, setup, steps)


KMSG, PLAIN = Setup(plain=(False,)), Setup(plain=(True,))
"""A plain log has no heartbeats, whose gaps make good for much."""

FOUND: dict[str, Schedule] = {
    "a count whose write went through unanswered is not added again": _kept(
        KMSG,
        *(s.Xid(0, 79, 1), s.Beat(0), s.KubeTrouble("timeout after", "node"), s.Xid(0, 79, 1)),
        *(s.Beat(0), p.Untaint(0), s.Beat(0)),
    ),
    "the last of several pod lines does not count again after a restart": _kept(
        KMSG, s.Beat(0), s.PodLine(0), s.PodLine(0), s.Beat(0), s.Wait(700.0), s.Beat(0), s.Kill(0), s.Beat(0)
    ),
    "a release covers plain lines that were acted upon after the cursor was last saved": _kept(
        PLAIN,
        *(s.Xid(0, 95, 1), s.Beat(0), s.Reboot(0, 30.0), p.Reset(0), s.Beat(0), s.Wait(60.0), s.Beat(0)),
        *(s.Kill(0), s.Beat(0)),
    ),
    "a reset covers late lines of an incident that an earlier reset had closed": _kept(
        KMSG,
        *(s.Xid(0, 79, 0), s.Beat(0), p.Reset(None), s.Wait(200.0)),
        *(s.KubeTrouble("timeout after", "node"), s.Xid(0, 79, 0, 0.5), s.Xid(0, 119, 0), s.Beat(0)),
        *(p.Reset(0), s.Beat(0)),
    ),
    "a controller's clock that is set back and forth loses no line": _kept(
        PLAIN,
        *(s.Beat(0), s.SetClock(0, -600.0), s.Xid(0, 79, 0, 0.05), s.Beat(0), s.SetClock(0, 0.0)),
        *(s.Beat(0), s.Wait(700.0)),
    ),
    "a cursor from the future loses nothing that came while nobody read": _kept(
        PLAIN, s.Beat(0), p.SpoilCursor(CURSORS[3]), s.Kill(0), s.Xid(0, 119, 1), s.Wait(320.0), s.Beat(0)
    ),
    "a checkpoint without cursors loses nothing that came while nobody read": _kept(
        PLAIN, s.Beat(0), p.SpoilCursor(CURSORS[2]), s.Kill(0), s.Xid(0, 74, 0), s.Wait(320.0), s.Beat(0)
    ),
    "a taint in flight does not hide that the one before it was taken off by hand": _kept(
        Setup(plain=(False,), overlap_seconds=2.0, lateness_seconds=2.0),
        *(s.Xid(0, 119, 0), s.Xid(0, 95, 1, 2.0), s.Beat(0), p.Untaint(0), s.KubeTrouble("503", "node", 80)),
        *(s.Reboot(0, 30.0), s.Beat(0), s.Beat(0)),
    ),
    "a removal by hand covers no fault that waits for its write": _kept(
        Setup(plain=(False, False), brake_percent=50.0),
        *(s.Xid(0, 48, 0), s.Beat(0), s.Xid(1, 119, 1), s.Beat(0), s.KubeTrouble("503", "node", 80)),
        *(s.Reboot(0, 0.0), p.Untaint(0), s.Beat(0), s.Xid(0, 48, 0)),
    ),
    "a taint decided before a reboot does not reach the node after it": _kept(
        KMSG,
        *(s.Beat(0), s.Xid(0, 95, 0), s.Stop(0, 0, False, 2, True), s.Beat(0)),
        *(s.Reboot(0, 0.0), s.Wait(30.0), s.Beat(0)),
    ),
    "what was known of a reboot is still known after a restart": _kept(
        Setup(plain=(True,), brake_percent=20.0, loki_limit=24, loki_cuts=True, rate_nodes=2),
        *(s.Xid(0, 94, 0), s.Xid(0, 79, 1), s.Replay(0), s.Beat(0), s.Reboot(0, 40.0), s.Wait(60.0)),
        *(s.Kill(0, 0, True, True), s.Beat(0), s.Beat(0), p.Untaint(0), s.Wait(10.0), s.Xid(0, 119, 0)),
    ),
    "a start by a clock that is ahead passes no line by": _kept(
        KMSG,
        *(s.Beat(0), s.SetClock(0, 120.0), s.Terminate(0), s.Xid(0, 119, 0, 0.05), s.Beat(0)),
        s.Wait(700.0),
    ),
    "a taint that went with its Node comes back with it, a reboot before notwithstanding": _kept(
        KMSG,
        *(s.Xid(0, 95, 0), s.Beat(0), s.Beat(0), s.Reboot(0, 0.0), s.Beat(0), s.DeleteNode(0)),
    ),
    "a fault after an acknowledgement is no part of what was acknowledged": _kept(
        KMSG,
        *(s.Xid(0, 79, 0), s.Wait(5.0), s.Beat(0), p.Ack(0), s.Xid(0, 79, 0), p.Untaint(0)),
    ),
    "a pause that comes back with the Lease is heeded until it is taken off": _kept(
        KMSG,
        *(s.Beat(0), s.Xid(0, 119, 0), p.Pause(), s.Beat(0), p.DeleteLease()),
    ),
    "a cursor from the future makes a reset cover nothing that is to come": _kept(
        Setup(plain=(False,), overlap_seconds=2.0, lateness_seconds=2.0),
        *(
            s.PodLine(0),
            s.Beat(0),
            p.SpoilCursor(CURSORS[3]),
            p.Reset(0),
            s.Wait(1500.0),
            s.Xid(0, 48, 0, 0.5),
        ),
    ),
    "what settles by a clock that is a little ahead settles after a restart as well": _kept(
        Setup(plain=(False, True), loki_cuts=True, rack=True, common_jobs=0),
        *(s.KubeTrouble("reset after", "node"), s.Xid(0, 149), s.Beat(0), s.Kill(0, 7, True)),
        *(s.Xid(1, 149), s.Beat(0), s.Beat(0)),
    ),
}
