"""Nodes that are deleted with our taint: noticed, told, and remembered over a restart of the controller."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import cast

import pytest

from konductor_like.controller.metrics import Metrics
from konductor_like.controller.operator_controls import OperatorControls
from konductor_like.controller.reconciler import Reconciler
from konductor_like.controller.report import Report
from konductor_like.model import Checkpoint, Controls, EventReason, Machine, Source
from konductor_like.policy.config import PolicyConfig
from tests.controller.reconciling import UNANSWERED, Cluster, xid
from tests.policy.scenes import at, fleet, node, ns


class Desk:
    """A fleet of five, of which one may be out, and one controller after the other."""

    def __init__(self) -> None:
        self.cluster = Cluster(fleet(5))
        self.metrics = Metrics()
        self.told: list[str] = []
        self.lease = Controls()
        """What the controller before this one left there."""
        self.reconciler = self._reconciler()

    def _reconciler(self) -> Reconciler:
        class FromLease:
            @staticmethod
            def update(_now: datetime, *, at_once: bool = False) -> Controls:
                del at_once
                return self.lease

        def fleet_event(reason: EventReason, message: str) -> None:
            if reason is EventReason.DELETED:
                self.told.append(message)

        return Reconciler(
            self.cluster,
            self.cluster,
            self.cluster,
            Report(self.metrics, fleet_event=fleet_event),
            self.metrics,
            rules=PolicyConfig(),
            start=Checkpoint({Source.KERNEL: ns(0), Source.POD: ns(0)}, act_from_ns=ns(-900)),
            unknown_node_seconds=600,
            controls=cast("OperatorControls", FromLease),
        )

    def run(self, *numbers: int, seconds: float) -> None:
        """One reconcile, with an Xid 79 of each of these nodes."""
        lines = [xid(f"gpu-{number}", seconds=seconds) for number in numbers]
        self.reconciler.run(lines, {Source.KERNEL: ns(seconds)}, at(seconds))

    def restart(self) -> None:
        """Another process goes on with what the last renewal wrote."""
        self.lease = replace(self.lease, tainted=self.reconciler.tainted() or ())
        self.reconciler = self._reconciler()

    def delete(self, name: str) -> None:
        """An autoscaler, or a person."""
        del self.cluster.nodes[name]


@pytest.mark.parametrize("restarted", ["never", "before", "after", "at the time"])
def test_a_node_that_was_deleted_with_our_taint_makes_no_room(restarted: str) -> None:
    desk = Desk()
    desk.run(1, 2, seconds=1)
    assert desk.cluster.tainted == {"gpu-1"}
    if restarted == "before":
        desk.restart()
        desk.run(seconds=5)
    desk.delete("gpu-1")
    if restarted == "at the time":  # nobody saw it go
        desk.restart()
    desk.run(seconds=10)
    if restarted == "after":
        desk.restart()
        desk.run(seconds=15)

    desk.run(seconds=309)
    assert desk.cluster.tainted == set()
    desk.run(seconds=310)

    assert desk.cluster.tainted == {"gpu-2"}
    assert desk.told == ["gpu-1 was deleted with our taint: the room stays empty until 2026-03-04T12:05:10Z."]


def test_it_is_told_in_the_log_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.run(1, 2, seconds=1)
    desk.delete("gpu-1")

    with caplog.at_level(logging.WARNING, "konductor_like"):
        desk.run(seconds=10)
        desk.run(seconds=11)

    said = [record.message for record in caplog.records if "deleted with" in record.message]
    assert said == ["gpu-1 was deleted with our taint: the room stays empty until 2026-03-04T12:05:10Z."]
    assert desk.metrics.registry.get_sample_value("konductor_like_tainted_nodes_deleted_total") == 1
    assert desk.metrics.registry.get_sample_value("konductor_like_brake_cooling") == 1


def test_a_node_that_is_deleted_right_after_the_write_is_noticed() -> None:
    desk = Desk()
    desk.cluster.apply = lambda state: desk.delete(state.name)  # type: ignore[method-assign]  # the watch is faster
    desk.run(1, seconds=1)
    del desk.cluster.apply

    desk.run(2, seconds=5)

    assert desk.cluster.tainted == set()
    assert len(desk.told) == 1


def test_a_node_that_is_deleted_while_its_taint_has_no_answer_counts() -> None:
    desk = Desk()
    desk.cluster.moods["gpu-1"] = [UNANSWERED]
    desk.run(1, seconds=1)
    desk.delete("gpu-1")

    desk.run(2, seconds=5)

    assert desk.cluster.tainted == set()
    assert len(desk.told) == 1


def test_a_node_that_was_made_anew_while_no_controller_looked_was_deleted() -> None:
    desk = Desk()
    desk.run(1, seconds=1)
    other = Machine("uid-new", "system-new", "boot-new")
    desk.cluster.nodes["gpu-1"] = replace(node("gpu-1"), machine=other)
    desk.restart()

    desk.run(2, seconds=10)

    assert desk.cluster.tainted == set()
    assert len(desk.told) == 1


def test_a_controller_that_never_looked_leaves_on_the_lease_what_is_there() -> None:
    assert Desk().reconciler.tainted() is None
