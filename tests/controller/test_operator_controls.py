"""The controller follows the controls on the Lease, and reports each once."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from konductor_like.cluster.api.errors import KubeUnavailable
from konductor_like.cluster.lease.annotations import LeaseControls
from konductor_like.controller.loop.operator_controls import AGAIN_SECONDS, OperatorControls
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.model import Control, ControlAct, Controls, EventReason

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
LEASE = LeaseControls()
PAUSE = ControlAct(Control.PAUSE, NOON, "kim", "driver roll-out", NOON + timedelta(hours=1), act="a1b2")
PAUSED = Controls((PAUSE,))
INTERVAL = 10.0


def facts(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a line of the audit trail."""
    found = getattr(record, "facts", {})
    assert found["audit"] == "v1"
    return dict(found)


class Desk:
    """The operator controls over a Lease in memory, with a clock and the Events that they send."""

    def __init__(self) -> None:
        self.lease: LeaseControls | None = LEASE
        self.down = False
        self.reads = 0
        self.seconds = 0.0
        self.renewal: tuple[float, LeaseControls] | None = None
        self.events: list[EventReason] = []
        self.acts: list[str] = []
        self.metrics = Metrics()
        self.controls = OperatorControls(
            self._read,
            self._event,
            self.metrics,
            interval_seconds=INTERVAL,
            renewed=self._renewed,
            clock=lambda: self.seconds,
        )

    def _event(self, reason: EventReason, message: str, act: str) -> None:
        del message
        self.events.append(reason)
        self.acts.append(act)

    def _read(self) -> LeaseControls | None:
        self.reads += 1
        if self.down:
            raise KubeUnavailable("down")
        return self.lease

    def _renewed(self, since_seconds: float) -> tuple[float, LeaseControls] | None:
        return self.renewal if self.renewal is not None and self.renewal[0] > since_seconds else None

    def renew(self, controls: Controls) -> None:
        self.renewal = (self.seconds, replace(LEASE, controls=controls))

    def write(self, controls: Controls) -> None:
        assert self.lease is not None
        self.lease = replace(self.lease, controls=controls)

    def paused(self) -> float:
        return self.metrics.registry.get_sample_value("konductor_like_paused") or 0.0


def test_the_lease_is_read_once_an_interval_and_at_once_before_a_taint() -> None:
    desk = Desk()
    desk.controls.update(NOON)
    desk.write(PAUSED)

    desk.seconds = INTERVAL - 1
    assert desk.controls.update(NOON) == Controls()
    assert desk.controls.update(NOON, at_once=True) == PAUSED
    assert desk.reads == 2
    desk.seconds = 2 * INTERVAL
    desk.write(Controls())
    assert desk.controls.update(NOON) == Controls()


def test_the_controls_of_a_renewal_count_for_an_interval_without_reading_the_lease() -> None:
    desk = Desk()
    for controls in (Controls(), PAUSED, Controls()):
        desk.renew(controls)
        assert desk.controls.update(NOON) == controls
        desk.seconds += INTERVAL - 1

    assert (desk.reads, desk.events) == (0, [EventReason.PAUSED, EventReason.RESUMED])
    desk.write(PAUSED)
    desk.seconds += 1
    assert desk.controls.update(NOON) == PAUSED  # there was no renewal for an interval


def test_an_older_renewal_that_is_answered_late_ends_no_pause_that_was_read_since() -> None:
    desk = Desk()
    desk.renew(Controls())
    under_way, desk.renewal = desk.renewal, None
    desk.seconds += 1
    desk.write(PAUSED)
    desk.controls.update(NOON, at_once=True)

    desk.renewal = under_way

    assert desk.controls.update(NOON) == PAUSED
    assert desk.events == [EventReason.PAUSED]


def test_while_the_lease_cannot_be_read_the_known_controls_count_and_only_one_taint_waits() -> None:
    desk = Desk()
    desk.write(PAUSED)
    desk.controls.update(NOON)

    desk.down = True
    for _ in range(5):
        assert desk.controls.update(NOON, at_once=True) == PAUSED
    assert desk.reads == 2
    desk.seconds, desk.down = 1.0, False
    desk.renew(PAUSED)  # now the Lease is known to be readable again
    desk.controls.update(NOON)
    desk.controls.update(NOON, at_once=True)
    assert desk.reads == 3
    desk.seconds, desk.down = 2.0, True
    desk.controls.update(NOON, at_once=True)
    desk.seconds, desk.down = 2.0 + AGAIN_SECONDS, False
    desk.write(Controls())

    assert desk.controls.update(NOON) == Controls()


def test_a_pause_and_its_end_are_reported_once_in_log_metric_and_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    desk = Desk()
    desk.write(PAUSED)

    for _ in range(3):
        desk.controls.update(NOON, at_once=True)
    assert (desk.events, desk.paused()) == ([EventReason.PAUSED], 1)
    for _ in range(3):
        desk.controls.update(NOON + timedelta(hours=1), at_once=True)

    assert (desk.events, desk.paused()) == ([EventReason.PAUSED, EventReason.RESUMED], 0)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        (
            "Tainting is paused by kim until 2026-03-04T13:00:00Z: driver roll-out. "
            "The controller still records faults, and `reset` works."
        ),
        "audit: pause applied",
        "The pause has expired. The brake's limits still apply.",
        "audit: resume applied",
    ]
    assert desk.acts == ["a1b2", "a1b2"]


LATER = NOON + timedelta(minutes=5)
RESUMED = ControlAct(Control.RESUME, LATER, "ann", act="c3d4")
RESUMED_BEFORE = replace(RESUMED, at=NOON - timedelta(hours=1))


@pytest.mark.parametrize(
    ("before", "after", "by", "said", "act"),
    [
        (PAUSED, Controls(), None, "Tainting was resumed.", ""),
        (PAUSED, Controls((RESUMED,)), "ann", "Tainting was resumed by ann.", "c3d4"),
        (
            *(PAUSED, Controls((replace(RESUMED, reason="all is back"),)), "ann"),
            *("Tainting was resumed by ann: all is back.", "c3d4"),
        ),
        (Controls((RESUMED_BEFORE, PAUSE)), Controls((RESUMED_BEFORE,)), None, "Tainting was resumed.", ""),
    ],
    ids=["by nobody knows whom", "by a person", "for a reason", "a resume before the pause is not its end"],
)
def test_a_pause_that_somebody_ends_is_reported_as_resumed(
    before: Controls, after: Controls, by: str | None, said: str, act: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    desk = Desk()
    desk.write(before)
    desk.controls.update(NOON)
    desk.write(after)

    desk.controls.update(LATER, at_once=True)

    assert caplog.records[-2].getMessage().startswith(said)
    told = facts(caplog.records[-1])
    assert (told["verb"], told["outcome"], told["by"]) == ("resume", "applied", by)
    assert desk.acts == ["a1b2", act]


def test_a_brake_reset_is_reported_once_and_not_by_a_controller_of_the_next_day(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    desk = Desk()
    desk.write(Controls((ControlAct(Control.BRAKE_RESET, NOON, "kim", "false alarm", act="e5f6"),)))

    for _ in range(3):
        desk.controls.update(NOON, at_once=True)

    assert (desk.events, desk.acts) == ([EventReason.BRAKE_RESET], ["e5f6"])
    told = facts(caplog.records[-1])
    assert (told["verb"], told["act"], told["why"]) == ("brake-reset", "e5f6", "false alarm")
    successor = Desk()
    successor.lease = desk.lease
    successor.controls.update(NOON + timedelta(days=1))
    assert successor.events == []


def test_an_annotation_that_cannot_be_read_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.lease = replace(LEASE, problem="annotation x: it is not JSON")

    for _ in range(3):
        desk.controls.update(NOON, at_once=True)

    assert [record.getMessage() for record in caplog.records] == [
        "The controller cannot read all annotations of the Lease: annotation x: it is not JSON."
    ]


def test_a_lease_that_is_deleted_ends_no_pause() -> None:
    desk = Desk()
    lease, desk.lease = desk.lease, None
    assert desk.controls.update(NOON) == Controls()
    desk.lease = lease
    desk.write(PAUSED)
    desk.controls.update(NOON, at_once=True)

    desk.lease = None

    assert desk.controls.update(NOON, at_once=True) == PAUSED
    assert (desk.events, desk.paused()) == ([EventReason.PAUSED], 1)
