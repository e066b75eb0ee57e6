"""The tail in the real controller: what it brings, and that nothing depends on it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from konductor_like.demo.stage import RunningController, Stage
from konductor_like.demo.story import XID_79
from konductor_like.sandbox.fault_injection import Mishap
from konductor_like.sandbox.http import Request
from tests.catalog.user_files import OWN_RULE
from tests.processes.waiting import says, until

pytestmark = pytest.mark.processes

TAIL = "/loki/api/v1/tail"
HOUR = "3600"
FATAL_NIC = OWN_RULE.replace("severity: suspect", "severity: fatal")
NIC = "mlx5_core 0000:3d:00.0: device's health compromised - reached miss count"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(gpu_nodes=6) as ready:
        yield ready


def settled(stage: Stage, **settings: str) -> RunningController:
    """A controller that has caught up, and polls by itself only in an hour unless told otherwise."""
    controller = stage.start_controller(
        **({"KONDUCTOR_POLL_INTERVAL_SECONDS": HOUR, "KONDUCTOR_BRAKE_MAX_PERCENT": "100"} | settings)
    )
    until(says(controller, "Reading Loki"), "it leads", controller)
    return controller


def test_a_line_taints_at_once_although_the_next_poll_is_an_hour_away(stage: Stage) -> None:
    controller = settled(stage)
    until(lambda: stage.loki.open_tails == 1, "the tail is open", controller)
    stage.kernel("gpu-01", XID_79)
    until(lambda: stage.node("gpu-01").tainted, "the first fault taints", controller)
    stage.loki.close_tails()
    stage.kernel("gpu-02", XID_79)
    until(lambda: stage.node("gpu-02").tainted, "a line between two connections taints", controller)


def test_the_tail_follows_the_rules_when_they_change(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("rules: []\n", "utf-8")
    controller = settled(stage, KONDUCTOR_RULES_FILE=str(file))
    until(lambda: stage.loki.open_tails == 1, "the tail is open", controller)
    [before] = {request.param("query") for request in stage.loki.requests(TAIL)}
    file.write_text(FATAL_NIC, "utf-8")
    controller.process.send_signal(signal.SIGHUP)
    until(
        lambda: len({request.param("query") for request in stage.loki.requests(TAIL)} - {before}) == 1,
        "the tail asks for the new rule's lines",
        controller,
    )
    stage.kernel("gpu-03", NIC)
    until(lambda: stage.node("gpu-03").tainted, "the new rule taints", controller)


def test_a_loki_without_a_tail_costs_latency_only(stage: Stage) -> None:
    def is_tail(request: Request) -> bool:
        return request.path == TAIL

    stage.loki.fail(Mishap(status=404, body="404 page not found"), None, is_tail)
    controller = settled(stage, KONDUCTOR_POLL_INTERVAL_SECONDS="0.2")
    until(says(controller, "Loki's tail cannot be followed"), "it says so", controller)
    stage.kernel("gpu-01", XID_79)
    until(lambda: stage.node("gpu-01").tainted, "polling finds it", controller)


def test_without_the_setting_there_is_no_tail(stage: Stage) -> None:
    controller = settled(stage, KONDUCTOR_POLL_INTERVAL_SECONDS="0.2", KONDUCTOR_TAIL="false")
    stage.kernel("gpu-01", XID_79)
    until(lambda: stage.node("gpu-01").tainted, "polling finds it", controller)

    assert stage.loki.requests(TAIL) == []
