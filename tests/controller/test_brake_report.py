"""One Event when the brake begins to hold back nodes, one when it ends, none for a restart in between."""

from __future__ import annotations

from konductor_like.controller.reporting.report import BrakeReport
from konductor_like.model import EventReason
from konductor_like.policy.config import PolicyConfig
from tests.policy.scenes import Cluster, at, fault, fleet, reset_node


class Desk:
    """A brake of five nodes, its report, and the Events that it sends."""

    def __init__(self) -> None:
        self.cluster = Cluster(fleet(5))
        self.told: list[tuple[EventReason, str]] = []
        self.restart()

    def restart(self) -> None:
        self.report = BrakeReport(lambda reason, message: self.told.append((reason, message)))
        self.report.begin(self.cluster.nodes)

    def tick(self, *numbers: int, seconds: float) -> None:
        faults = [fault(f"gpu-{number}", seconds=seconds) for number in numbers]
        brake = self.cluster.tick(*faults, seconds=seconds).brake
        self.report.tell(brake, at(seconds))


def test_one_event_reports_the_nodes_held_back_and_why_and_one_the_end() -> None:
    desk = Desk()
    desk.tick(1, seconds=4)
    assert desk.told == []

    desk.tick(2, 3, seconds=5)
    desk.tick(4, seconds=6)
    desk.restart()
    desk.tick(seconds=10)
    for name in ("gpu-2", "gpu-3", "gpu-4"):
        reset_node(desk.cluster, name, 60)
    desk.tick(seconds=61)
    desk.tick(seconds=62)
    desk.tick(5, seconds=70)

    held, free, again = desk.told
    assert held == (
        EventReason.HOLDING,
        (
            "The brake began to hold back 2 nodes at 2026-03-04T12:00:05Z: gpu-2 (xid 79 on GPU "
            "0000:4e:00), gpu-3 (xid 79 on GPU 0000:4e:00). Reason: "
            "1 of 5 GPU nodes are out of service, the limit is 1. Releasing nodes allows further taints."
        ),
    )
    text = "The brake stopped holding nodes back at 2026-03-04T12:01:01Z. No node is held."
    assert free == (EventReason.FREE, text)
    assert again[0] is EventReason.HOLDING


def test_if_no_taint_is_allowed_the_event_does_not_advise_releases() -> None:
    desk = Desk()
    desk.cluster.rules = PolicyConfig(brake_max_nodes=0)

    desk.tick(1, seconds=5)

    assert desk.told[0][1].endswith("the limit is 0, so the controller taints no node.")
