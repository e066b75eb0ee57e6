"""What several lines say together reaches the node; what a user wrote is told, or ignored by a setting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from konductor_like.demo.stage import Stage
from konductor_like.demo.story import XID_79
from tests.processes.waiting import says, until

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


def run_once(stage: Stage, **settings: str) -> None:
    quick = {"KONDUCTOR_POLL_INTERVAL_SECONDS": "0.1", "KONDUCTOR_BRAKE_MAX_PERCENT": "100"}
    controller = stage.start_controller("--once", **quick, **settings)
    until(lambda: controller.process.poll() is not None, "it ends", controller)
    assert controller.process.returncode == 0, list(controller.log)


def test_an_xid_in_a_form_that_nobody_knows_is_said_counted_and_shown(stage: Stage) -> None:
    controller = stage.start_controller(KONDUCTOR_POLL_INTERVAL_SECONDS="0.1")
    for _ in range(3):
        stage.kernel("gpu-01", f"NVRM: board 3: {XID_79.removeprefix('NVRM: ')}")
    stage.push("gpu-02", f'{{"gpu": 3, "text": "{XID_79}"}}')

    until(says(controller, "node gpu-01: a line of the kernel log names an Xid"), "it is said", controller)
    until(says(controller, "of no collector that is known"), "the reason is said", controller)
    stage.heartbeats()

    shown = "Unparsed:    gpu-01 (3 lines), gpu-02 (1 line) with an Xid that is not understood"
    until(lambda: shown in stage.run("status").stdout, "it is shown", controller)
    assert sum("names an Xid" in line for line in controller.log) == 2
    assert not any(node.tainted for node in stage.nodes())


@pytest.mark.parametrize(("setting", "tainted"), [("count", True), ("ignore", False)])
def test_a_line_that_a_user_wrote_counts_as_the_setting_says(
    stage: Stage, setting: str, *, tainted: bool
) -> None:
    stage.kernel("gpu-01", f"<12>{XID_79}")
    for line in LOST:
        stage.kernel("gpu-02", line)

    run_once(stage, KONDUCTOR_USER_WRITTEN=setting)

    node = stage.node("gpu-01")
    assert node.tainted is tainted
    assert [incident["user_written"] for incident in node.record.get("incidents", [])] == [True] * tainted
    assert stage.node("gpu-02").tainted, "what several lines say together"
    [incident] = stage.node("gpu-02").record["incidents"]
    assert (incident["rule"], incident["gpu"]) == ("nvrm.fallen_off_bus", "0000:c7:00")
