"""One Event when the brake begins to hold nodes back, one when it ends, and none for a restart in between."""

from __future__ import annotations

from konductor_like.controller.report import BrakeReport
from konductor_like.model import EventReason
from konductor_like.policy.config import PolicyConfig
from tests.policy.scenes import Cluster, at, fault, fleet, let_go


class Desk:
    """A brake of five nodes, its report, and the Events that it sends."""

    def __init__(self) -> None:
        self.cluster = Cluster(fleet(5))
        self.told: list[tuple[EventReason, str]] = []
        self.report = self._report()

    def _report(self) -> BrakeReport:
        return BrakeReport(lambda reason, message: self.told.append((reason, message)))

    def restart(self) -> None:
        self.report = self._report()
        self.report.begin(self.cluster.nodes)

    def tick(self, *numbers: int, seconds: float) -> None:
        faults = [fault(f"gpu-{number}", seconds=seconds) for number in numbers]
        self.report.tell(self.cluster.tick(*faults, seconds=seconds).brake, at(seconds))

    @property
    def reasons(self) -> list[EventReason]:
        return [reason for reason, _ in self.told]


def test_one_event_names_how_many_are_held_and_why() -> None:
    desk = Desk()

    desk.tick(1, 2, 3, seconds=5)
    desk.tick(4, seconds=6)

    assert desk.told == [
        (
            EventReason.HOLDING,
            (
                "Since 2026-03-04T12:00:05Z the brake holds back 2 nodes: gpu-2, gpu-3: "
                "1 of 5 GPU nodes are out, 1 may be. Releasing nodes makes room."
            ),
        )
    ]


def test_where_no_taint_is_allowed_nobody_is_told_to_release_nodes() -> None:
    desk = Desk()
    desk.cluster.rules = PolicyConfig(brake_max_nodes=0)

    desk.tick(1, seconds=5)

    assert desk.told[0][1].endswith("0 of 5 GPU nodes are out, 0 may be: the settings allow no taint at all.")


def test_one_event_tells_that_it_ended() -> None:
    desk = Desk()
    desk.tick(1, 2, seconds=5)

    let_go(desk.cluster, "gpu-2", 60)
    desk.tick(seconds=61)
    desk.tick(seconds=62)

    assert desk.told[1:] == [
        (EventReason.FREE, "Since 2026-03-04T12:01:01Z the brake holds nothing any more.")
    ]


def test_a_brake_that_holds_nothing_sends_none() -> None:
    desk = Desk()

    desk.tick(1, seconds=5)
    desk.tick(seconds=6)

    assert desk.told == []


def test_a_restart_announces_nothing_again_and_still_tells_the_end() -> None:
    desk = Desk()
    desk.tick(1, 2, seconds=5)

    desk.restart()
    desk.tick(seconds=10)
    assert desk.reasons == [EventReason.HOLDING]
    let_go(desk.cluster, "gpu-2", 60)
    desk.tick(seconds=61)

    assert desk.reasons == [EventReason.HOLDING, EventReason.FREE]


def test_each_time_has_events_of_its_own() -> None:
    desk = Desk()
    desk.tick(1, 2, seconds=5)
    let_go(desk.cluster, "gpu-2", 60)
    desk.tick(seconds=61)
    desk.tick(3, seconds=70)

    assert desk.reasons == [EventReason.HOLDING, EventReason.FREE, EventReason.HOLDING]
    assert len({message for _, message in desk.told}) == 3
