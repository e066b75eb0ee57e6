"""What several lines say together reaches the node; what a user wrote is told, or ignored by a setting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konductor_like.demo.stage import Stage
from konductor_like.demo.story import XID_79
from tests.processes.waiting import until

pytestmark = pytest.mark.processes

LOST = (
    "NVRM: The NVIDIA GPU 0000:c7:00.0",
    "NVRM: (PCI ID: 10de:2335) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(gpu_nodes=4) as ready:
        yield ready


def run_once(stage: Stage, **settings: str) -> list[str]:
    controller = stage.start_controller("--once", KONDUCTOR_POLL_INTERVAL_SECONDS="0.1", **settings)
    until(lambda: controller.process.poll() is not None, "it ends", controller)
    assert controller.process.returncode == 0, list(controller.log)
    return list(controller.log)


def test_a_gpu_lost_in_three_lines_is_recorded_with_its_address(stage: Stage) -> None:
    for line in LOST:
        stage.kernel("gpu-01", line)

    run_once(stage)

    node = stage.node("gpu-01")
    assert node.tainted
    [incident] = node.record["incidents"]
    assert (incident["rule"], incident["gpu"]) == ("nvrm.fallen_off_bus", "0000:c7:00")


@pytest.mark.parametrize(("setting", "tainted"), [("count", True), ("ignore", False)])
def test_a_line_that_a_user_wrote_counts_as_the_setting_says(
    stage: Stage, setting: str, *, tainted: bool
) -> None:
    stage.kernel("gpu-01", f"<12>{XID_79}")

    run_once(stage, KONDUCTOR_USER_WRITTEN=setting)

    node = stage.node("gpu-01")
    assert node.tainted is tainted
    assert [incident["user_written"] for incident in node.record.get("incidents", [])] == [True] * tainted
