"""What people told the controller, read from the Lease: a pause holds before the next taint is written.

Who leads has the Lease as it is in the answer to each renewal, and looks at it only before a taint.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from konductor_like.cluster.errors import KubeError
from konductor_like.cluster.fence import suspend_aware_seconds
from konductor_like.cluster.lease_object import LeaseView
from konductor_like.controller import audit, logs
from konductor_like.controller.metrics import Metrics
from konductor_like.model import EventReason, Pause, Rearm, Steering
from konductor_like.model.time import stamp
from konductor_like.policy.wording import pause_words

TIMEOUT_SECONDS = 2.0
"""A taint waits no longer than this for the Lease to be read."""
AGAIN_SECONDS = 5.0
"""When it could not be read, what is known holds for so long before it is tried again."""
NEWS = timedelta(minutes=10)
"""A reset of the brake that is older was said by whoever led then."""


class Wheel:
    """Knows what the Lease says: from renewals, else by reading it; says what changed."""

    def __init__(
        self,
        read: Callable[[], LeaseView | None],
        fleet_event: Callable[[EventReason, str, str], None],
        metrics: Metrics,
        *,
        interval_seconds: float,
        renewed: Callable[[float], tuple[float, LeaseView] | None] = lambda _: None,
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
        self._steering = Steering()
        self._problem: str | None = None
        self._pause: Pause | None = None
        self._rearm: Rearm | None = None

    def steering(self, now: datetime, *, at_once: bool = False) -> Steering:
        """What holds, at most an interval old; ``at_once`` looks now, unless that failed a moment ago."""
        seconds = self._clock()
        news = self._renewed(self._as_of_seconds)
        if news is not None:
            self._as_of_seconds, seen = news
            self._failed, self._due_seconds = False, self._as_of_seconds + self._interval_seconds
            self._heed(seen)
        if seconds >= self._due_seconds or (at_once and not self._failed):
            self._look(seconds)
        self._tell(now)
        return self._steering

    def _look(self, seconds: float) -> None:
        try:
            seen = self._read()
        except KubeError as error:
            self._failed, self._due_seconds = True, seconds + AGAIN_SECONDS
            logs.debug(f"The Lease cannot be read for a pause: {error}.")
            return
        self._failed, self._due_seconds = False, seconds + self._interval_seconds
        # A renewal that was under way meanwhile may have been answered from before what was read.
        self._as_of_seconds = self._clock()
        if seen is not None:  # who holds a Lease that was deleted puts it back, with the pause
            self._heed(seen)

    def _heed(self, seen: LeaseView) -> None:
        self._steering, problem = seen.steering, seen.problem
        if problem is not None and problem != self._problem:
            logs.warning(f"What the Lease carries cannot be read in full: {problem}.")
        self._problem = problem

    def _tell(self, now: datetime) -> None:
        """Say once when a pause begins or ends, and when the brake was reset."""
        pause, rearm = self._steering.pause, self._steering.rearm
        holding = pause if pause is not None and pause.holds(now) else None
        self._metrics.paused.set(holding is not None)
        if holding is not None and holding != self._pause:
            message = f"Tainting is {pause_words(holding)}. Releases and records go on."
            logs.warning(message, by=holding.by)
            audit.heeded("pause", by=holding.by, act=holding.act, why=holding.reason)
            self._fleet_event(EventReason.PAUSED, message, holding.act)
        elif holding is None and self._pause is not None:
            self._tell_end(self._pause, expired=pause is not None)
        self._pause = holding
        if rearm is not None and rearm != self._rearm and now - rearm.at < NEWS:
            why = f": {rearm.reason}" if rearm.reason else ""
            message = f"{rearm.by} reset the brake at {stamp(rearm.at)}{why}."
            logs.info(message, by=rearm.by)
            audit.heeded("brake-reset", by=rearm.by, act=rearm.act, why=rearm.reason)
            self._fleet_event(EventReason.REARMED, message, rearm.act)
        self._rearm = rearm

    def _tell_end(self, pause: Pause, *, expired: bool) -> None:
        """A pause is over: by itself, or by the word of somebody who may have left a name."""
        resume = self._steering.resume
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
