"""History in the real controller: after a restart it reads the day before again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from konductor_like_sandbox.demo.stage import RunningController, Stage
from konductor_like_sandbox.fault_injection import Mishap
from konductor_like_sandbox.http import Request
from tests.processes.waiting import logged, until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

HOUR = 3600.0
A_DAY_BACK = {"KONDUCTOR_FIRST_START_ACT_SECONDS": "86400", "KONDUCTOR_LATENESS_SECONDS": "86400"}
"""As if the controller had run for a day and had acted on the lines of that day."""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(gpu_nodes=20) as ready:
        yield ready


def tainted(stage: Stage) -> set[str]:
    return {node.name for node in stage.nodes() if node.tainted}


def started(stage: Stage, **settings: str) -> RunningController:
    controller = stage.start_controller(KONDUCTOR_POLL_INTERVAL_SECONDS="0.2", **settings)
    until(logged(controller, "Reading Loki"), "it leads", controller)
    return controller


def test_a_fault_does_not_wait_for_history_that_cannot_be_read(stage: Stage) -> None:
    before = stage.start_controller("--once", **A_DAY_BACK)
    until(lambda: before.process.poll() == 0, "all is read once", before)

    def reads_history(request: Request) -> bool:
        start_ns = int(request.param("start", "0"))
        return "query_range" in request.path and start_ns < time.time_ns() - 2 * HOUR * 1e9

    stage.loki.fail(Mishap(503, "too many outstanding requests"), times=None, when=reads_history)
    controller = started(stage)
    until(logged(controller, "Cannot read warmup lines"), "the past is refused", controller)
    stage.kernel(stage.gpu_nodes[0], "NVRM: Xid (PCI:0000:4e:00): 79, pid=1, GPU has fallen off the bus.")
    until(lambda: tainted(stage) == {stage.gpu_nodes[0]}, "it is tainted", controller)
    assert not logged(controller, "Older lines are read")()
