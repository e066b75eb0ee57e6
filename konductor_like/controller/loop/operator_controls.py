"""The operators' controls, read from the Lease: pause, resume, brake reset.

The answer to each renewal contains them. The leader also reads the Lease if no renewal has succeeded for some
time, and before every taint, so that a pause takes effect before the next taint is written.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from konductor_like.cluster.api.errors import KubeError
from konductor_like.cluster.api.transport import suspend_aware_seconds
from konductor_like.cluster.lease.annotations import LeaseControls
from konductor_like.controller import logs
from konductor_like.controller.reporting import audit
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.model import ControlAct, Controls, EventReason
from konductor_like.model.time import stamp
from konductor_like.policy.wording import pause_words

TIMEOUT_SECONDS = 2.0
"""Seconds that a taint waits at most for the Lease to be read."""
AGAIN_SECONDS = 5.0
"""Seconds after a failed read in which the known controls stay in force and the Lease is not read again."""
RECENT = timedelta(minutes=10)
"""Age above which a brake reset is not reported: the controller that led at the time has reported it."""


class OperatorControls:
    """Knows the operators' controls on the Lease, and reports when they change."""

    def __init__(
        self,
        read: Callable[[], LeaseControls | None],
        fleet_event: Callable[[EventReason, str, str], None],
        metrics: Metrics,
        *,
        interval_seconds: float,
        renewed: Callable[[float], tuple[float, LeaseControls] | None] = lambda _: None,
        clock: Callable[[], float] = suspend_aware_seconds,
    ) -> None:
        """Prepare to read.

        ``read`` reads the Lease; it returns None if there is none, or raises a KubeError. ``fleet_event``
        sends an Event with a reason, a message and the act that it reports. ``renewed(seconds)`` returns the
        controls from a renewal that was sent after that time, and when it was sent, by the same ``clock``.
        """
        self._read = read
        self._renewed = renewed
        self._fleet_event = fleet_event
        self._metrics = metrics
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._as_of_seconds = float("-inf")
        self._due_seconds = float("-inf")
        self.unread = False
        """Whether the last read of the Lease failed, so that a new pause may be unknown."""
        self._controls = Controls()
        self._problem: str | None = None
        self._reported_pause: ControlAct | None = None
        self._reported_reset: ControlAct | None = None

    def update(self, now: datetime, *, at_once: bool = False) -> Controls:
        """Return the controls in force, after reading the Lease if that is due, and report changes.

        The controls are at most one interval old. ``at_once`` reads the Lease now, unless the last read
        failed.
        """
        seconds, view = self._clock(), None
        renewal = self._renewed(self._as_of_seconds)
        if renewal is not None:
            self._as_of_seconds, view = renewal
            self.unread, self._due_seconds = False, self._as_of_seconds + self._interval_seconds
        if seconds >= self._due_seconds or (at_once and not self.unread):
            try:
                # If the Lease was deleted, the leader's next renewal creates it again, with the pause.
                view = self._read() or view
                self.unread, self._due_seconds = False, seconds + self._interval_seconds
                # A renewal that was under way during the read may contain older controls than the read.
                self._as_of_seconds = self._clock()
            except KubeError as error:
                self.unread, self._due_seconds = True, seconds + AGAIN_SECONDS
                logs.debug(f"The controller cannot read the Lease for a pause: {error}.")
        if view is not None:
            if view.problem is not None and view.problem != self._problem:
                logs.warning(f"The controller cannot read all annotations of the Lease: {view.problem}.")
            self._controls, self._problem = view.controls, view.problem
        if self._controls.acts or self._reported_pause:
            self._report_pause(now)
            self._report_brake_reset(now)
        return self._controls

    def _report_pause(self, now: datetime) -> None:
        pause, before = self._controls.pause, self._reported_pause
        holding = self._reported_pause = pause if pause is not None and pause.holds(now) else None
        self._metrics.paused.set(holding is not None)
        if holding is None and before is not None:
            self._report_end(before, expired=pause is not None)
        if holding is None or holding == before:
            return
        message = (
            f"Tainting is {pause_words(holding)}. The controller still records faults, and `reset` works."
        )
        logs.warning(message, by=holding.by)
        audit.control_applied("pause", by=holding.by, act=holding.act, why=holding.reason)
        self._fleet_event(EventReason.PAUSED, message, holding.act)

    def _report_end(self, pause: ControlAct, *, expired: bool) -> None:
        """Report the end of a pause: it expired, or somebody ended it, perhaps without leaving a name."""
        resume = self._controls.resume
        if expired:
            how, by, act, why = "The pause has expired", None, pause.act, "the pause has expired"
        elif resume is not None and resume.at >= pause.at:
            how, by, act, why = f"Tainting was resumed by {resume.by}", resume.by, resume.act, resume.reason
            how += f": {why}" if why else ""
        else:
            how, by, act, why = "Tainting was resumed", None, "", ""
        message = f"{how}. The brake's limits still apply."
        logs.info(message, by=by)
        audit.control_applied("resume", by=by, act=act, why=why)
        self._fleet_event(EventReason.RESUMED, message, act)

    def _report_brake_reset(self, now: datetime) -> None:
        reset = self._controls.brake_reset
        if reset is not None and reset != self._reported_reset and now - reset.at < RECENT:
            why = f": {reset.reason}" if reset.reason else ""
            message = f"{reset.by} reset the brake at {stamp(reset.at)}{why}."
            logs.info(message, by=reset.by)
            audit.control_applied("brake-reset", by=reset.by, act=reset.act, why=reset.reason)
            self._fleet_event(EventReason.BRAKE_RESET, message, reset.act)
        self._reported_reset = reset
