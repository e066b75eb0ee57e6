"""What people told the controller, read from the Lease: a pause holds before the next taint is written.

A leader has the Lease as it is in the answer to each renewal, and reads it again only before a taint.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from konductor_like.cluster.errors import KubeError
from konductor_like.cluster.lease_annotations import LeaseControls
from konductor_like.cluster.transport import suspend_aware_seconds
from konductor_like.controller import audit, logs
from konductor_like.controller.metrics import Metrics
from konductor_like.model import ControlAct, Controls, EventReason
from konductor_like.model.time import stamp
from konductor_like.policy.wording import pause_words

TIMEOUT_SECONDS = 2.0
"""A taint waits no longer than this for the Lease to be read."""
AGAIN_SECONDS = 5.0
"""When it could not be read, what is known holds for so long before it is tried again."""
NEWS = timedelta(minutes=10)
"""A reset of the brake that is older was reported by the controller that led then."""


class OperatorControls:
    """Knows what people wrote on the Lease, from renewals or by reading it, and reports what changed."""

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
        """``read`` gives the Lease as it is now, None where there is none, or raises a KubeError.

        ``fleet_event`` sends an Event: its reason, its words, and the act that it tells of. ``renewed`` gives
        what a renewal that was sent later than that found, and when it was sent, by the same ``clock``.
        """
        self._read = read
        self._renewed = renewed
        self._fleet_event = fleet_event
        self._metrics = metrics
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._as_of_seconds = float("-inf")
        self._due_seconds = float("-inf")
        self._failed = False
        self._controls = Controls()
        self._problem: str | None = None
        self._reported_pause: ControlAct | None = None
        self._reported_reset: ControlAct | None = None

    def update(self, now: datetime, *, at_once: bool = False) -> Controls:
        """Read the Lease if that is due, report what changed, and give what holds.

        What it gives is at most an interval old. ``at_once`` reads now, unless that failed a moment ago.
        """
        seconds, view = self._clock(), None
        renewal = self._renewed(self._as_of_seconds)
        if renewal is not None:
            self._as_of_seconds, view = renewal
            self._failed, self._due_seconds = False, self._as_of_seconds + self._interval_seconds
        if seconds >= self._due_seconds or (at_once and not self._failed):
            try:
                # The holder of a Lease that was deleted puts it back, with the pause.
                view = self._read() or view
                self._failed, self._due_seconds = False, seconds + self._interval_seconds
                # A renewal that was under way meanwhile may have been answered from before what was read.
                self._as_of_seconds = self._clock()
            except KubeError as error:
                self._failed, self._due_seconds = True, seconds + AGAIN_SECONDS
                logs.debug(f"The Lease cannot be read for a pause: {error}.")
        if view is not None:
            if view.problem is not None and view.problem != self._problem:
                logs.warning(f"What the Lease carries cannot be read in full: {view.problem}.")
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
        message = f"Tainting is {pause_words(holding)}. Releases and records go on."
        logs.warning(message, by=holding.by)
        audit.heeded("pause", by=holding.by, act=holding.act, why=holding.reason)
        self._fleet_event(EventReason.PAUSED, message, holding.act)

    def _report_end(self, pause: ControlAct, *, expired: bool) -> None:
        """A pause is over: it expired, or somebody ended it, who may have left a name."""
        resume = self._controls.resume
        if expired:
            how, by, act = "The pause has expired", None, pause.act
        elif resume is not None and resume.at >= pause.at:
            how, by, act = f"Tainting was resumed by {resume.by}", resume.by, resume.act
        else:
            how, by, act = "Tainting was resumed", None, ""
        message = f"{how}: what is still true is acted upon now."
        logs.info(message, by=by)
        audit.heeded("resume", by=by, act=act, why="the pause has expired" if expired else "")
        self._fleet_event(EventReason.RESUMED, message, act)

    def _report_brake_reset(self, now: datetime) -> None:
        reset = self._controls.brake_reset
        if reset is not None and reset != self._reported_reset and now - reset.at < NEWS:
            why = f": {reset.reason}" if reset.reason else ""
            message = f"{reset.by} reset the brake at {stamp(reset.at)}{why}."
            logs.info(message, by=reset.by)
            audit.heeded("brake-reset", by=reset.by, act=reset.act, why=reset.reason)
            self._fleet_event(EventReason.BRAKE_RESET, message, reset.act)
        self._reported_reset = reset
