"""The tail in the real controller."""

from __future__ import annotations

import pytest

from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.story import XID_79
from tests.processes.waiting import logged, until

pytestmark = pytest.mark.processes


def test_a_line_taints_at_once_although_the_next_poll_is_an_hour_away() -> None:
    with Stage(gpu_nodes=6) as stage:
        controller = stage.start_controller(
            KONDUCTOR_POLL_INTERVAL_SECONDS="3600", KONDUCTOR_BRAKE_MAX_PERCENT="100"
        )
        until(logged(controller, "Reading Loki"), "it leads", controller)
        until(lambda: stage.loki.open_tails == 1, "the tail is open", controller)
        stage.kernel("gpu-01", XID_79)
        until(lambda: stage.node("gpu-01").tainted, "the first fault taints", controller)
        stage.loki.close_tails()
        stage.kernel("gpu-02", XID_79)
        until(lambda: stage.node("gpu-02").tainted, "a line between two connections taints", controller)
