"""Kernel logs that are not read: readiness, a metric, the log and the Lease report it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from konductor_like.cluster.node.store import NodeStore
from konductor_like.controller.loop.leader import Controller
from konductor_like.controller.loop.leadership import Leadership
from konductor_like.controller.reading.poller import Delivery, Reader
from konductor_like.loki.readers.poll import PollResult
from konductor_like.model import LogLine, Source
from tests.controller.reconciling import Scene, monitor, xid
from tests.controller.test_fleet_monitor import beat
from tests.policy.scenes import ns

STALE_SECONDS = 300


class Turning:
    """A leadership that reconciles when the test asks, over a fleet whose heartbeats are heard."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.scene = Scene(3)
        monkeypatch.setattr("konductor_like.controller.loop.leadership.COVERAGE_SECONDS", 0.0)
        self.leadership = Leadership(
            self.scene.reconciler,
            self.scene.cluster,
            {"kernel": cast("Reader", None), "heartbeat": cast("Reader", None)},
            self.scene.metrics,
            monitor(self.scene.metrics, self.now_ns),
            intervals={"kernel": 5, "heartbeat": 20},
            stale_seconds=STALE_SECONDS,
            now_ns=self.now_ns,
            stop=threading.Event(),
        )

    def now_ns(self) -> int:
        return ns(self.seconds)

    def turn(self, seconds: float, *lines: LogLine, read: float | None = None) -> None:
        """Hear every node's heartbeat, and read kernel lines up to ``read`` or not at all."""
        self.seconds = seconds
        beats = tuple(beat(node, seconds) for node in self.scene.cluster.snapshot())
        deliveries = [Delivery("heartbeat", batch(beats, ns(seconds)))]
        if read is not None:
            deliveries.append(Delivery("kernel", batch(lines, ns(read))))
        self.leadership._reconcile(deliveries)

    def nodes(self, state: str) -> float:
        return self.scene.count("nodes_coverage", state=state)

    def unready(self) -> list[str]:
        """Return why the controller of this leadership is not ready."""
        return self.controller().ready()

    def controller(self) -> Controller:
        """Return the controller of this leadership."""

        class Store:
            problem = None

        controller = Controller(
            cast("NodeStore", Store()), None, cast("Callable[..., object]", None), list,  # type: ignore[arg-type]  # a leadership is there already
            self.scene.metrics, once=False,
        )  # fmt: skip
        controller._leadership, controller._obstacle = self.leadership, ""
        return controller


def batch(lines: tuple[LogLine, ...], upto_ns: int) -> PollResult:
    return PollResult(lines=lines, upto_ns=upto_ns, queries=1)


@pytest.fixture
def turning(monkeypatch: pytest.MonkeyPatch) -> Turning:
    return Turning(monkeypatch)


def test_while_kernel_lines_are_not_read_every_node_is_unknown_though_it_is_heard(
    turning: Turning, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    turning.turn(10, read=10)
    turning.turn(310)
    assert (turning.nodes("measured"), turning.nodes("unknown")) == (3, 0)
    assert turning.unready() == []

    turning.turn(311)
    turning.turn(320)

    assert turning.scene.count("unread_seconds", source="kernel") == 310
    assert (turning.nodes("measured"), turning.nodes("unknown")) == (0, 3)
    [why] = turning.unready()
    assert why.startswith("kernel lines: all read only up to 2026-03-04T12:00:10Z, so every")
    assert sum("kernel lines only up to 2026-03-04T12:00:10Z" in each.message for each in caplog.records) == 1

    turning.turn(330, read=330)
    assert turning.scene.count("unread_seconds", source="kernel") == 0
    assert (turning.nodes("measured"), turning.nodes("unknown")) == (3, 0)
    assert turning.unready() == []
    assert caplog.records[-1].message == "The controller has read all kernel lines up to the present again."


def test_a_controller_that_reconciles_is_alive_however_long_it_leads(turning: Turning) -> None:
    controller = turning.controller()
    controller._alive_seconds = turning.leadership.last_reconcile_seconds = time.monotonic() - 181
    assert controller.alive() == ["the control loop has been stuck for 181 s"]

    turning.turn(10)

    assert controller.alive() == []


def test_while_the_past_is_read_for_the_first_time_there_is_no_warning(
    turning: Turning, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "konductor_like")
    for seconds in (400, 420, 440):
        turning.turn(seconds, read=seconds - 350)
    turning.turn(450, read=450)

    assert [(each.levelname, each.message.partition(" and has ")[0]) for each in caplog.records] == [
        ("INFO", "The controller is reading older kernel lines"),
        ("INFO", "The controller has read all kernel lines up to the present."),
    ]


def test_the_lease_has_the_time_read_up_to_even_if_a_fault_waits_for_its_node(turning: Turning) -> None:
    turning.turn(10, read=10)
    turning.turn(400, replace(xid(seconds=20), node="gpu-99"), read=400)

    coverage = turning.leadership.lease_content().coverage
    assert coverage is not None
    assert coverage.read_ns == {Source.KERNEL: ns(400)}
    assert turning.scene.kernel_checkpoint == ns(20)
    assert turning.leadership.unread_since_ns() is None


def test_a_source_that_is_not_read_any_more_has_no_unread_seconds(turning: Turning) -> None:
    turning.turn(400)
    assert turning.scene.count("unread_seconds", source="kernel") == 400
    turning.leadership._stop.set()
    turning.leadership.pollers.clear()

    turning.leadership.run()

    assert turning.scene.metrics.registry.get_sample_value(
        "konductor_like_unread_seconds", {"source": "kernel"}
    ) is None  # fmt: skip
